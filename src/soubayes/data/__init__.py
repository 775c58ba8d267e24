"""Data from files, tables and collections that do not fit in memory."""

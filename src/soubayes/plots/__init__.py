"""Figures; each function returns the matplotlib Axes (extra ``plot``)."""

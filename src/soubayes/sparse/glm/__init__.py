"""Any other likelihood: read row by row, or all rows at once."""

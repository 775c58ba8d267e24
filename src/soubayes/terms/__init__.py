"""What a column, a factor, a curve, a unit and a pair are: their columns, scales and names."""

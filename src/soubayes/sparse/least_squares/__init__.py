"""Normal noise: X enters through its cross-products alone."""

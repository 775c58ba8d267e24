"""Intervals that cover at every size of the coefficient, and the statistics that they need."""

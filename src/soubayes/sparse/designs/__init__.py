"""Where X lives: one protocol for least squares, one for passes over rows."""

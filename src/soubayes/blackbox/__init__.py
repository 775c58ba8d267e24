"""The black-box engine: a confidence for every block of any NumPyro model."""

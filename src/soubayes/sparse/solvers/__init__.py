"""How J is minimised."""

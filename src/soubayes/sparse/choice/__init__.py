"""How confidences are chosen."""

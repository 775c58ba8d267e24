"""What can be said from draws of a posterior that exist already: sensitivity and reweighting."""

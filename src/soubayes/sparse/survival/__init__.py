"""Survival times: risk sets, the partial likelihood, and the baseline hazard."""

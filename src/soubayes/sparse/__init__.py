"""Sparse global-local estimators: normal means, linear and logistic regression."""

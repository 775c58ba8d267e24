"""Likelihoods: the expected loss of a row under a normal linear predictor."""

from soubayes.sparse.likelihoods.base import CoupledLikelihood, RowLikelihood, RowTerms

__all__ = ["CoupledLikelihood", "RowLikelihood", "RowTerms"]

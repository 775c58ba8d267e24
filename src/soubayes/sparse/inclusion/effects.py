"""One effect: which column carries it, or that there is none."""

from typing import NamedTuple

import numpy as np

from soubayes.sparse.inclusion.field import ColumnEvidence
from soubayes.sparse.inclusion.sizes import log_sum
from soubayes.sparse.inclusion.slabs import Slab

Array = np.ndarray


class Columns(NamedTuple):
    """What an effect would be in each column, given the other effects."""

    log_bayes: Array  # (p,): log p(y | effect there)/p(y | none), averaged over the slab
    inside: Array  # (p, m): posterior weights of the slab's components
    spread: Array  # (p,): posterior variance in units of the noise, averaged over them
    evidence: ColumnEvidence


def look_at(evidence: ColumnEvidence, slab: Slab, degrees: float) -> Columns:
    """Bayes factors of all columns."""
    each = slab.log_bayes_factors(evidence, degrees)
    column = log_sum(each)
    inside = np.exp(each - column[:, None])
    shrunk = slab.variance / (1.0 + np.multiply.outer(evidence.s, slab.variance))
    return Columns(column, inside, np.einsum("jm,jm->j", inside, shrunk), evidence)


class Effect(NamedTuple):
    """The posterior of one effect."""

    alpha: Array  # (p,): the probability that column j carries it; their sum is ``active``
    columns: Columns

    @property
    def active(self) -> float:
        """The probability that there is such an effect."""
        return float(self.alpha.sum())


def anchored_effect(log_odds: Array, given_top: Array, top: int, columns: Columns) -> Effect:
    """The effect that column ``top`` carries, or one of the columns that could take its place.

    ``log_odds`` are the posterior's, a column alone against no effect; ``given_top`` the same when
    ``top`` is in already. A column's odds that vanish with ``top`` are those of taking its place;
    what is left is another effect.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        fall = np.nan_to_num(np.minimum(given_top - log_odds, 0.0), nan=0.0, neginf=-np.inf)
        log_alpha = log_odds + np.log(-np.expm1(fall))
    log_alpha[top] = log_odds[top]
    return Effect(np.exp(log_alpha - log_sum(np.append(log_alpha, 0.0))), columns)

"""Columns of different confidence: ordered sources of uncertainty inside one Gaussian q(beta).

A source's conditional covariance given the earlier ones is gamma_k times the inverse of its Schur
complement in A, the later sources integrated out. So with the sources in order

    S = sum_k (gamma_k - gamma_(k-1)) inverse(A restricted to the sources from k on),

gamma times the inverse of A if all confidences agree.
"""

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from soubayes.sparse.model import ColumnModel

Array = np.ndarray


class Restricted(Protocol):
    """The inverse of A restricted to some columns."""

    @property
    def variance(self) -> Array:
        """Its diagonal."""

    @property
    def log_det(self) -> float:
        """log|A| of these columns."""


Part = TypeVar("Part", bound=Restricted)


class Nested(NamedTuple, Generic[Part]):
    """The columns of a source and all later ones, with the share of their inverse in S."""

    columns: Array  # ascending
    share: float
    part: Part


def nested(model: ColumnModel, restrict: Callable[[Array], Part]) -> list[Nested[Part]]:
    """One entry a source that has columns; sources of equal confidence share a part of S."""
    own = [columns for _, columns in model.sources if len(columns)]
    found, before = [], 0.0
    for i, columns in enumerate(own):
        tail = np.sort(np.concatenate(own[i:])).astype(int)
        gamma = float(model.confidence[columns[0]])
        found.append(Nested(tail, gamma - before, restrict(tail)))
        before = gamma
    return found


def mixed(model: ColumnModel, among: Array) -> bool:
    """Whether columns ``among`` (a mask) differ in confidence, so their order matters."""
    first = [own[0] for _, own in model.sources if len(own)]
    return len({float(model.confidence[j]) for j in first if among[j]}) > 1


def variances(model: ColumnModel, parts: list[Nested[Part]]) -> Array:
    """diag(S)."""
    total = np.zeros(len(model.confidence))
    for each in parts:
        if each.share:
            total[each.columns] += each.share * each.part.variance
    return total


def covariance(model: ColumnModel, inverse: Callable[[Array], Array]) -> Array:
    """S as a matrix; ``inverse`` gives that of A restricted to some columns."""
    p = len(model.confidence)
    total = np.zeros((p, p))
    own, before = [columns for _, columns in model.sources if len(columns)], 0.0
    for i, columns in enumerate(own):
        gamma = float(model.confidence[columns[0]])
        if gamma != before:
            tail = np.sort(np.concatenate(own[i:])).astype(int)
            total[np.ix_(tail, tail)] += (gamma - before) * inverse(tail)
        before = gamma
    return total


def log_determinants(model: ColumnModel, parts: list[Nested[Part]]) -> Array:
    """log|conditional precision| of every source, 0 for one without columns, sigma apart."""
    # the Schur complement of a source in A has the determinant |A from k on| / |A from k + 1 on|
    values = [each.part.log_det for each in parts] + [0.0]
    found = iter(np.subtract(values[:-1], values[1:]))
    return np.array([next(found) if len(own) else 0.0 for _, own in model.sources])


def log_variances(model: ColumnModel, parts: list[Nested[Part]]) -> Array:
    """One number a column; those of a source sum to log|its conditional covariance|."""
    found = np.log(model.confidence)
    for (_, own), log_det in zip(model.sources, log_determinants(model, parts), strict=True):
        if len(own):
            found[own] -= log_det / len(own)
    return found

"""One fit of all classes, as an estimator reports it and predicts from it.

The coordinates' basis takes the classes in the order of their frequencies, so their names do
not matter.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from soubayes.sparse.choice.race import Choice
from soubayes.sparse.glm.fitting import STRIDE
from soubayes.sparse.glm.path import Limits
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.multinomial.fitting import (
    ROOM,
    SOFTMAX_FOLD_TOL,
    ClassFamily,
    ClassIntake,
    ClassSolved,
    log_shares,
)
from soubayes.sparse.multinomial.softmax import Softmax, class_basis
from soubayes.sparse.multinomial.supports import class_supports
from soubayes.sparse.posterior import Mixture, SparsePoint
from soubayes.threads import solver_threads

Array = np.ndarray

WAY_TOL = 1e-4  # relative fall of J at which a point on the way counts as reached
BLOCK = 256  # rows
NEARER = 1e-160  # times a row whose predictors overflow


@dataclass(frozen=True)
class ClassMixture:
    """The mixture of all classes; ``rank`` is where a class stands in the basis."""

    mixture: Mixture
    rank: Array

    def views(self) -> list[Mixture]:
        """Each class's coefficients, which sum to 0 over the classes."""
        found = []
        for r in self.rank:
            parts = [
                replace(part, posterior=part.posterior.of_class(int(r)))  # type: ignore[attr-defined]
                for part in self.mixture.components
            ]
            found.append(replace(self.mixture, components=tuple(parts)))
        return found

    def log_proba(self, rows: Array) -> Array:
        """(rows, c): recalibrated log probabilities."""
        return np.concatenate([self._log_proba(part) for part in _blocks(rows)])

    def _log_proba(self, rows: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            said = log_shares(self.mixture, rows)
            bad = ~np.isfinite(said).all(axis=1)
            if bad.any():
                said[bad] = log_shares(self.mixture, NEARER * rows[bad])
        said = self.mixture.power * said[:, self.rank]
        shift = said.max(axis=1, keepdims=True)
        return said - shift - np.log(np.exp(said - shift).sum(axis=1, keepdims=True))

    def sd(self, rows: Array) -> Array:
        """(rows, c): of the probabilities under the posterior."""
        return np.concatenate([self._sd(part) for part in _blocks(rows)])

    def _sd(self, rows: Array) -> Array:
        first = second = np.zeros((len(rows), len(self.rank)))
        for part in self.mixture.components:
            q: Any = part.posterior
            with np.errstate(over="ignore", invalid="ignore"):
                mean, root = q.predictors(rows)
                far = ~(
                    np.isfinite(mean).all(axis=1)
                    & np.isfinite(root.reshape(len(root), -1)).all(axis=1)
                )
                if far.any():
                    mean[far], root[far] = q.predictors(NEARER * rows[far])
            mean, sd = Softmax(q.classes).share_sd(mean, root)
            first = first + part.weight * mean
            second = second + part.weight * (mean**2 + sd**2)
        return np.sqrt(np.maximum(second - np.square(first), 0.0))[:, self.rank]

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, c, columns): draws of the classes' coefficients together."""
        which = rng.choice(len(self.mixture.components), n, p=self.mixture.weights)
        basis = class_basis(len(self.rank))[self.rank]
        first: Any = self.mixture.components[0].posterior
        draws = np.empty((n, len(self.rank), len(first.mean)))
        for k, part in enumerate(self.mixture.components):
            mine, q = which == k, part.posterior
            draws[mine] = np.einsum("nja,ka->nkj", q.sample(int(mine.sum()), rng), basis)
        return draws


def _blocks(rows: Array) -> list[Array]:
    """A few rows at a time: each has its predictors at hundreds of nodes."""
    return [rows[begin : begin + BLOCK] for begin in range(0, max(len(rows), 1), BLOCK)]


class ClassFit(NamedTuple):
    """The sparse point of all classes, before the choice among candidates."""

    family: ClassFamily
    intake: ClassIntake
    solved: ClassSolved
    codes: Array  # of the rows: where their class stands in the basis
    rank: Array

    @property
    def points(self) -> list[SparsePoint]:
        """In the order of the classes."""
        return [self.solved.points[r] for r in self.rank]

    @property
    def alone(self) -> ClassMixture:
        """The sparse point as a mixture of one."""
        return ClassMixture(Mixture((self.solved.component,)), self.rank)

    def supports(self) -> list[SupportPosterior]:
        """The posterior over supports, as each class reports it."""
        return class_supports(self.family, self.intake, self.solved, self.codes, self.rank)

    def choices(self, found: Choice) -> tuple[ClassMixture, list[Choice]]:
        """The mixture, and the one choice as each class reports it."""
        whole = ClassMixture(found.mixture, self.rank)
        each = []
        for r, view in zip(self.rank, whole.views(), strict=True):
            held = found.out_of_fold
            assert held is not None
            mean = held[f"class {r}"]
            own = {"y": (self.codes == r).astype(float), "mean": mean}
            own |= {"sd": np.sqrt(mean * (1.0 - mean)), "fold": held["fold"]}
            each.append(found._replace(mixture=view, out_of_fold=pd.DataFrame(own)))
        return whole, each


def fit_class_point(settings: Any, X: Any, y: Array, classes: Array, weight: Array) -> ClassFit:
    """The sparse point of rows in memory."""
    index = np.searchsorted(classes, y)
    order = np.argsort(-np.bincount(index, weight, len(classes)), kind="stable")
    rank = np.argsort(order)
    family = ClassFamily(settings, len(classes))
    intake = family.in_memory(X, weight)
    limits = Limits(settings.max_iter, settings.tol, settings.say_newton(""), loose=WAY_TOL)
    if intake.shared.design.n_columns > ROOM:  # a point of so many coordinates takes long
        limits = limits._replace(loose=SOFTMAX_FOLD_TOL, stride=STRIDE, refine=True)
    with solver_threads(int(min(X.shape))):
        solved = family.solve(intake, rank[index], limits, False)
    return ClassFit(family, intake, solved, rank[index], rank)

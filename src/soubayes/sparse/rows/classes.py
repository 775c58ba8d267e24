"""q of the coefficients of several classes, as each class sees it and as predictions need it.

In c - 1 coordinates (`softmax.py`) ``mean`` is (columns, coordinates), the intercept's row last.
``predictors`` gives rows the means and roots of the covariances of their coordinates; ``of_class``
is the posterior of one class's coefficients, which sum to 0 over the classes. The coordinates'
basis takes the classes in the order of their frequencies, so their names do not matter: ``rank``
says where a class stands in it.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logsumexp

from soubayes.sparse.likelihoods.softmax import Softmax, class_basis, spread_root
from soubayes.sparse.posterior import LowRankPosterior, Mixture, Posterior, spread_out

Array = np.ndarray

BLOCK = 256  # rows that are predicted at once: each has its predictors at hundreds of nodes
NEARER = 1e-160  # times a row whose predictors overflow: above 1e308 it is still above 1e148


class ProductClasses:
    """Normal coefficients of all coordinates, (columns, d): a product over the coordinates."""

    def __init__(self, parts: tuple[Posterior, ...]) -> None:
        self.parts = parts
        self.mean = np.stack([posterior.mean for posterior in parts], axis=1)

    @property
    def classes(self) -> int:
        """c."""
        return self.mean.shape[1] + 1

    def predictors(self, X: Array) -> tuple[Array, Array]:
        """(rows, d) means, and (rows, d) or (rows, d, d) roots of covariances."""
        return X @ self.mean, np.sqrt(
            np.stack([posterior.spread(X) for posterior in self.parts], axis=1)
        )

    def moved(self, order: Array, scale: Array) -> "ProductClasses":
        """Of the same coefficients in another order of columns, each times its scale."""
        return ProductClasses(tuple(posterior.moved(order, scale) for posterior in self.parts))

    def placed(self, place: Array, size: int) -> "ProductClasses":
        """As that of ``size`` columns, these at ``place``, the others exactly 0."""
        return ProductClasses(tuple(posterior.placed(place, size) for posterior in self.parts))

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of shape (n, columns, d)."""
        return np.stack([posterior.sample(n, rng) for posterior in self.parts], axis=2)

    def of_class(self, k: int) -> Posterior:
        """The coefficients of a class."""
        contrast = class_basis(self.classes)[k]
        mean, square = self.mean @ contrast, contrast**2
        first = self.parts[0]
        variance = sum(
            s * posterior.variance for s, posterior in zip(square, self.parts, strict=True)
        )
        if isinstance(first, LowRankPosterior):
            parts = [
                posterior for posterior in self.parts if isinstance(posterior, LowRankPosterior)
            ]
            diagonal = sum(
                s * posterior.diagonal for s, posterior in zip(square, parts, strict=True)
            )
            half = np.vstack(
                [a * posterior.half for a, posterior in zip(contrast, parts, strict=True)]
            )
            none = np.zeros((0, 0))  # draws are of all classes together
            factor = half, np.ones(half.shape[1]), None, none
            known = first.scale, np.asarray(variance)
            return LowRankPosterior(mean, np.asarray(diagonal), *factor, *known)
        S = sum(s * posterior.covariance for s, posterior in zip(square, self.parts, strict=True))
        return Posterior(mean, np.asarray(variance), first.active, np.asarray(S), first.scale)

    def between(self, k: int, other: int) -> Array:
        """The covariance between the coefficients of two classes."""
        share = class_basis(self.classes)[k] * class_basis(self.classes)[other]
        return np.asarray(sum(s * p.full() for s, p in zip(share, self.parts, strict=True)))


class JointClasses:
    """All covariances of the coordinates of the columns in play, the others independent.

    ``variance`` and ``covariance`` are in units of ``scale`` squared, as in `Posterior`.
    """

    def __init__(
        self, mean: Array, variance: Array, active: Array, covariance: Array, scale: Array
    ) -> None:
        # contiguous, as a file gives them back: products round alike
        self.mean, self.variance = np.ascontiguousarray(mean), np.ascontiguousarray(variance)
        self.covariance = np.ascontiguousarray(covariance)  # (k, d, k, d)
        self.active, self.scale = active, scale

    @property
    def classes(self) -> int:
        """c."""
        return self.mean.shape[1] + 1

    def predictors(self, X: Array) -> tuple[Array, Array]:
        rows = X * self.scale
        inside = rows[:, self.active]
        V = np.einsum("ni,iajb,nj->nab", inside, self.covariance, inside, optimize=True)
        dropped = np.square(np.delete(rows, self.active, axis=1))
        extra = dropped @ np.delete(self.variance, self.active, axis=0)
        V[:, range(V.shape[1]), range(V.shape[1])] += extra
        return X @ self.mean, spread_root(V)

    def moved(self, order: Array, scale: Array) -> "JointClasses":
        place = np.argsort(order)[self.active]
        inside = np.argsort(place)
        return JointClasses(
            self.mean[order] * scale[:, None],
            self.variance[order],
            place[inside],
            self.covariance[inside][:, :, inside],
            self.scale[order] * scale,
        )

    def placed(self, place: Array, size: int) -> "JointClasses":
        return JointClasses(
            spread_out(self.mean.T, place, size).T,
            spread_out(self.variance.T, place, size).T,
            place[self.active],
            self.covariance,
            spread_out(self.scale, place, size, 1.0),
        )

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        k, d = len(self.active), self.classes - 1
        draws = rng.standard_normal((n, *self.mean.shape))
        square = self.covariance.reshape(k * d, k * d)
        root = np.linalg.cholesky(square + 1e-14 * np.diag(np.diag(square)))
        inside = (draws[:, self.active].reshape(n, k * d) @ root.T).reshape(n, k, d)
        draws *= np.sqrt(self.variance)
        draws[:, self.active] = inside
        return self.mean + draws * self.scale[:, None]

    def of_class(self, k: int) -> Posterior:
        contrast = class_basis(self.classes)[k]
        S = np.einsum("iajb,a,b->ij", self.covariance, contrast, contrast, optimize=True)
        variance = self.variance @ contrast**2
        variance[self.active] = np.diag(S)
        return Posterior(self.mean @ contrast, variance, self.active, S, self.scale)

    def between(self, k: int, other: int) -> Array:
        A = class_basis(self.classes)
        S = np.diag(self.variance @ (A[k] * A[other]))
        inside = np.einsum("iajb,a,b->ij", self.covariance, A[k], A[other], optimize=True)
        S[np.ix_(self.active, self.active)] = inside
        return S * self.scale * self.scale[:, None]


ClassPosterior = ProductClasses | JointClasses


@dataclass(frozen=True)
class ClassView:
    """Whose posterior one class reports, and the place of the class in the basis."""

    whole: ClassPosterior
    place: int

    @property
    def posterior(self) -> Posterior:
        """That of the coefficients of the class."""
        return self.whole.of_class(self.place)


def of_class(mixture: Mixture, place: int) -> Mixture:
    """A mixture of all classes as one class reports it."""
    parts = []
    for component in mixture.components:
        whole: Any = component.posterior
        view = ClassView(whole, place)
        parts.append(replace(component, posterior=view.posterior, view=view))
    return replace(mixture, components=tuple(parts))


@dataclass(frozen=True)
class ClassMixture:
    """The mixture of all classes; ``rank`` is where a class stands in the basis."""

    mixture: Mixture
    rank: Array

    @classmethod
    def of(cls, reported: list[Mixture]) -> "ClassMixture | None":
        """From what the classes report; None where every class has a model of its own."""
        if reported[0].components[0].view is None:
            return None
        first = reported[0]
        parts = [
            replace(component, posterior=component.view.whole, view=None)
            for component in first.components
        ]
        rank = [mixture.components[0].view.place for mixture in reported]
        return cls(replace(first, components=tuple(parts)), np.array(rank))

    def log_proba(self, rows: Array) -> Array:
        """(rows, c): recalibrated log probabilities."""
        return np.concatenate([self._log_proba(block) for block in _blocks(rows)])

    def _log_proba(self, rows: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            log_share = log_shares(self.mixture, rows)
            bad = ~np.isfinite(log_share).all(axis=1)
            if bad.any():
                log_share[bad] = log_shares(self.mixture, NEARER * rows[bad])
        log_share = self.mixture.power * log_share[:, self.rank]
        shift = log_share.max(axis=1, keepdims=True)
        return log_share - shift - np.log(np.exp(log_share - shift).sum(axis=1, keepdims=True))

    def sd(self, rows: Array) -> Array:
        """(rows, c): of the probabilities under the posterior."""
        return np.concatenate([self._sd(block) for block in _blocks(rows)])

    def _sd(self, rows: Array) -> Array:
        first = second = np.zeros((len(rows), len(self.rank)))
        for component in self.mixture.components:
            q: Any = component.posterior
            with np.errstate(over="ignore", invalid="ignore"):
                mean, root = q.predictors(rows)
                far = ~(
                    np.isfinite(mean).all(axis=1)
                    & np.isfinite(root.reshape(len(root), -1)).all(axis=1)
                )
                if far.any():
                    mean[far], root[far] = q.predictors(NEARER * rows[far])
            mean, sd = Softmax(q.classes).share_sd(mean, root)
            first = first + component.weight * mean
            second = second + component.weight * (mean**2 + sd**2)
        return np.sqrt(np.maximum(second - np.square(first), 0.0))[:, self.rank]

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, c, columns): draws of the classes' coefficients together."""
        which = rng.choice(len(self.mixture.components), n, p=self.mixture.weights)
        basis = class_basis(len(self.rank))[self.rank]
        first: Any = self.mixture.components[0].posterior
        draws = np.empty((n, len(self.rank), len(first.mean)))
        for k, component in enumerate(self.mixture.components):
            mine, q = which == k, component.posterior
            draws[mine] = np.einsum("nja,ka->nkj", q.sample(int(mine.sum()), rng), basis)
        return draws


def _blocks(rows: Array) -> list[Array]:
    """A few rows at a time: each has its predictors at hundreds of nodes."""
    return [rows[begin : begin + BLOCK] for begin in range(0, max(len(rows), 1), BLOCK)]


def log_shares(mixture: Mixture, rows: Array) -> Array:
    """(rows, c): log probabilities averaged over the posterior, before recalibration."""
    log_shares_of = []
    for component in mixture.components:
        q: Any = component.posterior
        mean, root = q.predictors(rows)
        log_share = Softmax(q.classes).log_mean_shares(mean, np.sqrt(component.inflation) * root)
        log_shares_of.append(log_share)
    return logsumexp(np.stack(log_shares_of), b=mixture.weights[:, None, None], axis=0)

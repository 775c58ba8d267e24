"""q of the coefficients of several classes, in c - 1 coordinates, and as each class sees it.

``mean`` is (columns, coordinates), the intercept's row last. ``predictors`` gives rows the means
and roots of the covariances of their coordinates; ``of_class`` is the posterior of one class's
coefficients, which sum to 0 over the classes.
"""

import numpy as np

from soubayes.sparse.multinomial.softmax import class_basis, spread_root
from soubayes.sparse.posterior import LowRankPosterior, Posterior

Array = np.ndarray


class ClassPosterior:
    """Normal coefficients of all coordinates."""

    mean: Array  # (columns, d)

    @property
    def classes(self) -> int:
        """c."""
        return self.mean.shape[1] + 1

    def predictors(self, X: Array) -> tuple[Array, Array]:
        """(rows, d) means, and (rows, d, d) or (rows, d) roots of covariances."""
        raise NotImplementedError

    def of_class(self, k: int) -> Posterior:
        """The coefficients of a class."""
        raise NotImplementedError

    def moved(self, order: Array, scale: Array) -> "ClassPosterior":
        """Of the same coefficients in another order of columns, each times its scale."""
        raise NotImplementedError

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Draws of shape (n, columns, d)."""
        raise NotImplementedError

    def between(self, k: int, other: int) -> Array:
        """The covariance between the coefficients of two classes."""
        raise NotImplementedError


class ProductClasses(ClassPosterior):
    """A product over the coordinates."""

    def __init__(self, parts: tuple[Posterior, ...]) -> None:
        self.parts = parts
        self.mean = np.stack([part.mean for part in parts], axis=1)

    def predictors(self, X: Array) -> tuple[Array, Array]:
        return X @ self.mean, np.sqrt(np.stack([part.spread(X) for part in self.parts], axis=1))

    def moved(self, order: Array, scale: Array) -> "ProductClasses":
        return ProductClasses(tuple(part.moved(order, scale) for part in self.parts))

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        return np.stack([part.sample(n, rng) for part in self.parts], axis=2)

    def of_class(self, k: int) -> Posterior:
        own = class_basis(self.classes)[k]
        mean, square = self.mean @ own, own**2
        first = self.parts[0]
        variance = sum(s * part.variance for s, part in zip(square, self.parts, strict=True))
        if isinstance(first, LowRankPosterior):
            parts: list[LowRankPosterior] = list(self.parts)  # type: ignore[arg-type]
            diagonal = sum(s * part.diagonal for s, part in zip(square, parts, strict=True))
            half = np.vstack([a * part.half for a, part in zip(own, parts, strict=True)])
            none = np.zeros((0, 0))  # draws are of all classes together
            factor = half, np.ones(half.shape[1]), None, none
            known = first.scale, np.asarray(variance)
            return LowRankPosterior(mean, np.asarray(diagonal), *factor, *known)
        S = sum(s * part.covariance for s, part in zip(square, self.parts, strict=True))
        return Posterior(mean, np.asarray(variance), first.active, np.asarray(S), first.scale)

    def between(self, k: int, other: int) -> Array:
        share = class_basis(self.classes)[k] * class_basis(self.classes)[other]
        return np.asarray(sum(s * p.full() for s, p in zip(share, self.parts, strict=True)))


class JointClasses(ClassPosterior):
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

    def predictors(self, X: Array) -> tuple[Array, Array]:
        rows = X * self.scale
        inside = rows[:, self.active]
        V = np.einsum("ni,iajb,nj->nab", inside, self.covariance, inside, optimize=True)
        own = np.square(np.delete(rows, self.active, axis=1))
        extra = own @ np.delete(self.variance, self.active, axis=0)
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
        own = class_basis(self.classes)[k]
        S = np.einsum("iajb,a,b->ij", self.covariance, own, own, optimize=True)
        variance = self.variance @ own**2
        variance[self.active] = np.diag(S)
        return Posterior(self.mean @ own, variance, self.active, S, self.scale)

    def between(self, k: int, other: int) -> Array:
        A = class_basis(self.classes)
        S = np.diag(self.variance @ (A[k] * A[other]))
        inside = np.einsum("iajb,a,b->ij", self.covariance, A[k], A[other], optimize=True)
        S[np.ix_(self.active, self.active)] = inside
        return S * self.scale * self.scale[:, None]

"""The posterior over supports of several classes: a column is a group of c - 1 coordinates."""

import numpy as np

from soubayes.sparse.blocks import GroupLabels
from soubayes.sparse.glm.supports import settle
from soubayes.sparse.inclusion.field import Quadratic
from soubayes.sparse.inclusion.grouped import GroupProduct
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.multinomial.fitting import ClassFamily, ClassIntake, ClassSolved
from soubayes.sparse.multinomial.softmax import class_basis
from soubayes.threads import solver_threads

Array = np.ndarray

CERTAIN_CLASS = 1e-9  # of a row in a coordinate: a class that is certain


def class_supports(
    family: ClassFamily, intake: ClassIntake, solved: ClassSolved, y: Array, rank: Array
) -> list[SupportPosterior]:
    """What is known about every class; which columns carry an effect is the same for all.

    The quadratic form of the loss at the mean predictors of the product over the columns. ``y`` and
    ``rank`` say where the classes of the rows, and the classes, stand in the basis.
    """
    settings, d = family.settings, family.classes - 1
    X = intake.shared.design.X[:, : len(intake.plan.back)][:, intake.plan.back]
    p, scale = X.shape[1], intake.units.scale
    posterior = solved.component.posterior
    coef = posterior.mean[:p] * (scale * solved.points[0].selected)[:, None]
    alpha = posterior.mean[p:].sum(axis=0)
    always = np.zeros(p)
    always[intake.plan.order] = np.nan_to_num(intake.plan.model.variance[:p], nan=0.0)

    def at(place: Array) -> tuple[Quadratic, object]:
        data = ClassQuadratic(intake.shared, X, place.reshape(-1, d), y, settings.centre)
        return data, data.place

    number = np.arange(p) if settings.groups is None else settings.groups.number
    groups = GroupLabels(np.repeat(number, d), [str(g) for g in range(int(number.max()) + 1)])
    flat = coef.ravel()
    begin = np.flatnonzero(flat), flat[flat != 0.0] ** 2
    with solver_threads(int(min(X.shape))):
        start, kept = (alpha + X @ coef).ravel(), np.repeat(always, d)
        found = settle(at, start, begin, kept, groups=groups)  # type: ignore[arg-type]
    assert isinstance(found, GroupProduct)
    basis = class_basis(family.classes)
    return [SupportPosterior.of(found.turned(basis[r]), 1.0 / scale, scale) for r in rank]


class ClassQuadratic(Quadratic):
    """The loss to second order about predictors ``eta`` (n, d), the intercepts taken out.

    With B the information of the rows and r = B eta + score, the loss of coefficients b is
    b'X'BXb/2 - b'X'r. Its minimum over the intercepts takes out (X'B1)(1'B1)^-1(1'BX).
    """

    def __init__(self, rows: object, X: Array, eta: Array, y: Array, intercept: bool) -> None:
        likelihood, weight = rows.likelihood, rows.weight  # type: ignore[attr-defined]
        d = eta.shape[1]
        terms = likelihood.terms(eta, np.zeros_like(eta), y)
        self.X, self.B = (
            X,
            weight[:, None, None] * (terms.curvature + CERTAIN_CLASS * np.eye(d)),
        )
        response = np.einsum("nab,nb->na", self.B, eta) + weight[:, None] * terms.score
        self.middle = np.zeros((len(X[0]), d, d))  # X'B1
        self.inverse, self.total = np.zeros((d, d)), response.sum(axis=0)
        if intercept:
            self.middle = np.einsum("nj,nab->jab", X, self.B, optimize=True)
            self.inverse = np.linalg.inv(self.B.sum(axis=0))
        scores = X.T @ response - self.middle @ (self.inverse @ self.total)
        own = np.square(X).T @ np.einsum("naa->na", self.B)
        own -= np.einsum("jab,bc,jac->ja", self.middle, self.inverse, self.middle, optimize=True)
        typical = float(np.einsum("naa->", self.B)) / d
        # y'y is read only where the noise is unknown
        super().__init__(np.maximum(own, 0.0).ravel(), scores.ravel(), 0.0, typical)

    def cross(self, columns: Array) -> Array:
        return self._products(np.arange(self.X.shape[1]), columns)

    def within(self, columns: Array) -> Array:
        d = self.B.shape[1]
        some, place = np.unique(columns // d, return_inverse=True)
        return self._products(some, columns)[place * d + columns % d]

    def place(self, mean: Array) -> Array:
        """The predictors of other mean coefficients, with the intercepts that are best there."""
        coef = mean.reshape(-1, self.B.shape[1])
        explained = np.einsum("jab,jb->a", self.middle, coef)
        return (self.X @ coef + self.inverse @ (self.total - explained)).ravel()

    def _products(self, some: Array, columns: Array) -> Array:
        """X'BX of all coordinates of ``some`` columns of X with the coordinates ``columns``."""
        d, X = self.B.shape[1], self.X[:, some]
        found = np.empty((len(some), d, len(columns)))
        for i, (j, a) in enumerate(zip(columns // d, columns % d, strict=True)):
            found[:, :, i] = X.T @ (self.B[:, :, a] * self.X[:, [j]])
        taken = self.middle[columns // d, columns % d] @ self.inverse  # (columns, d)
        found -= np.einsum("jab,ib->jai", self.middle[some], taken)
        return found.reshape(-1, len(columns))

"""The points of the plane (scale prior, confidences) between dense and sparse.

A point is a prior of the local scales, gamma_tau and gamma_b. A large gamma_tau/gamma_b is ridge
regression, a small one lets every tau_j follow the data, and gamma_b is the threshold of z^2. All
points have a half-Cauchy global scale. Neighbours on the dial predict alike: a handful is enough.
"""

from dataclasses import replace
from typing import NamedTuple, TypeVar

import numpy as np

from soubayes.sparse.scales import make_prior
from soubayes.sparse.scales.half_cauchy import HalfCauchy
from soubayes.sparse.solvers.model import ColumnModel

AnyModel = TypeVar("AnyModel", bound=ColumnModel)
LOOSE = 0.1  # nats in a step at which a point counts as reached


class DialPoint(NamedTuple):
    """One point: the prior of the local scales, and two confidences."""

    prior: str
    local: float  # gamma_tau
    coef: float  # gamma_b

    @property
    def label(self) -> str:
        """A short name, the same in every table."""
        return f"{self.prior} {self.local:g}, {self.coef:g}"


def at_point(model: AnyModel, point: DialPoint) -> AnyModel:
    """The model with the priors and confidences of a point in all columns."""
    return replace(
        model,
        confidence=np.full(len(model.sparse), point.coef),
        local_confidence=np.full(len(model.sparse), point.local),
        local_prior=make_prior(point.prior, 10.0),
        global_prior=HalfCauchy(),
    )

"""A positive nuisance parameter: q and the prior are normal in its logarithm t."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.optimize import minimize

from soubayes.sparse.glm.likelihood import Array


def _rule(count: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


NARROW = 0.2  # standard deviation of t below which 3 nodes are exact to 1e-6
NODES_3, NODES_5, NODES_15 = _rule(3), _rule(5), _rule(15)


@dataclass(frozen=True)
class LogNormal:
    """q(t) = N(mean, sd^2) with the prior N(prior_mean, prior_sd^2); sd = 0: t is known.

    >>> LogNormal(0.0, 2.0, 0.0, 2.0).kl
    0.0
    """

    mean: float
    sd: float
    prior_mean: float
    prior_sd: float

    @classmethod
    def prior(cls, mean: float, sd: float) -> Self:
        """q before any row is seen."""
        return cls(mean, sd, mean, sd)

    @classmethod
    def known(cls, t: float) -> Self:
        """A parameter that is not estimated."""
        return cls(t, 0.0, t, 1.0)

    @property
    def kl(self) -> float:
        """KL(q || prior) in nats; 0 if t is known."""
        if self.sd == 0.0:
            return 0.0
        ratio = self.sd / self.prior_sd
        off = (self.mean - self.prior_mean) / self.prior_sd
        return float(0.5 * (ratio**2 + off**2 - 1.0) - np.log(ratio))

    @property
    def nodes(self) -> tuple[Array, Array]:
        """Values of t and their weights: 3 or 5 of them, or the known one."""
        if self.sd == 0.0:
            return np.array([self.mean]), np.ones(1)
        nodes, weights = NODES_3 if self.sd < NARROW else NODES_5
        return self.mean + self.sd * nodes, weights

    def moment(self, power: float) -> float:
        """E[exp(power t)]."""
        return float(np.exp(power * self.mean + 0.5 * (power * self.sd) ** 2))

    def best(self, loss: Callable[[Array], Array], confidence: float) -> Self:
        """The q that minimises E[loss(t)] + confidence KL."""

        def objective(x: Array) -> float:
            q = replace(self, mean=float(x[0]), sd=float(np.exp(x[1])))
            expected = NODES_15[1] @ loss(q.mean + q.sd * NODES_15[0])
            return float(expected) + confidence * q.kl

        start = np.array([self.mean, np.log(self.sd)])
        scale = max(abs(objective(start)), 1.0)
        # the simplex is started at the size of q, and needs no slopes of the loss
        size = np.array([[0.0, 0.0], [self.sd, 0.0], [0.0, 0.3]])
        found = minimize(
            objective,
            start,
            method="Nelder-Mead",
            options={"initial_simplex": start + size, "xatol": 1e-8, "fatol": 1e-13 * scale},
        )
        return replace(self, mean=float(found.x[0]), sd=float(np.exp(found.x[1])))

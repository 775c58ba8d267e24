"""A positive nuisance parameter: q and the prior are normal in its logarithm t."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from soubayes.sparse.likelihoods.base import Array, normal_rule

NARROW = 0.2  # standard deviation of t below which 3 nodes are exact to 1e-6
UPDATE_STEPS = 60  # of q, of which few are needed
# of q, in standard deviations: shorter ones are taken whatever the objective says. They change it
# by half of their square, 5e-9 nats, which the rounding of 1e6 nats may hide
SURE_STEP = 1e-4


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
        nodes, weights = normal_rule(3 if self.sd < NARROW else 5)
        return self.mean + self.sd * nodes, weights

    def moment(self, power: float) -> float:
        """E[exp(power t)]."""
        return float(np.exp(power * self.mean + 0.5 * (power * self.sd) ** 2))

    def best(self, loss: Callable[[Array], Array], confidence: float) -> Self:
        """The q that minimises E[loss(t)] + confidence KL, by Newton steps.

        For t = mean + sd z Stein's identities give E[loss'] = E[loss z]/sd and
        E[loss''] = E[loss (z^2 - 1)]/sd^2, so no slopes of the loss are needed. A long step that
        does not lower the objective is halved.
        """
        nodes, weights = normal_rule(15)
        pull = confidence / self.prior_sd**2

        def at(q: Self) -> tuple[float, Array]:
            values = loss(q.mean + q.sd * nodes)
            return float(weights @ values) + confidence * q.kl, values - values[len(nodes) // 2]

        q, (value, values) = self, at(self)
        for _ in range(UPDATE_STEPS):
            # dJ/dmean and d2J/dmean2 by Stein's identities, the prior's pull included
            slope = float((weights * nodes) @ values) / q.sd + pull * (q.mean - q.prior_mean)
            bend = float((weights * (nodes**2 - 1.0)) @ values) / q.sd**2 + pull
            move = -slope / max(bend, 0.1 * confidence / q.sd**2)
            move = float(np.clip(move, -2.0 * q.sd, 2.0 * q.sd))
            # the stationary variance is confidence/bend; the step is in its logarithm
            narrow = 0.5 * np.log(confidence / max(bend, 1e-300) / q.sd**2)
            narrow = float(np.clip(narrow, -1.0, 1.0))
            sure = max(abs(move) / q.sd, abs(narrow)) < SURE_STEP
            for share in (1.0, 0.5, 0.25, 0.125):
                new = replace(
                    q, mean=q.mean + share * move, sd=q.sd * float(np.exp(share * narrow))
                )
                trial_value, trial = at(new)
                if sure or trial_value <= value:
                    break
            else:
                break
            q, value, values = new, trial_value, trial
            if abs(move) < 1e-9 * q.sd and abs(narrow) < 1e-9:
                break
        return q

r"""The loss of Cox's model with the baseline hazard integrated out, and its derivatives.

The increments h_j of the baseline hazard are the last block. Their prior is Gamma(a_j, c), so
q(h_j | beta) = Gamma(a_j + d_j/gamma_b, c + S_j/gamma_b) is exact, with S_j the sum of exp(eta)
over the risk set. What the block hands on to the coefficients is

    V(eta) = - sum_i d_i eta_i + sum_j (d_j + gamma_b a_j) log(gamma_b c + S_j) + constant:

Cox's partial likelihood with gamma_b c subjects of average risk (eta = 0) in
every risk set and gamma_b a_j events among them. As c goes to 0 it is the partial likelihood.

The second derivative in eta is diag(A) - sum_j w_j pi_j pi_j', with pi_j the shares of the subjects
in S_j, w_j = d_j + gamma_b a_j and A = sum_j w_j pi_j the expected events. In terms of columns X it
is X'AX minus the cross-products of the risk-set means: O(n k^2).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from soubayes.sparse.survival.risk_sets import RiskSets

Array = np.ndarray

_LEAST = 1e-250  # of an exposure, relative to the largest risk


class PartialLoss(NamedTuple):
    """V at known predictors, with what its derivatives follow from."""

    sets: RiskSets
    loss: float
    risk: Array  # (n,) weight times exp(eta - top)
    exposure: Array  # (r,) gamma_b c + S_j in the same units
    expected: Array  # (n,) A
    top: float

    @classmethod
    def at(cls, sets: RiskSets, eta: Array) -> "PartialLoss":
        """V at these predictors."""
        top = float(eta.max())
        # only differences of log risks count: the largest exponential is 1
        risk = sets.weight * np.exp(eta - top)
        exposure = sets.sums(risk) + sets.ghost * np.exp(-top)
        lost = exposure < _LEAST  # a risk set is never empty: its log risks are too far below
        exposure = np.where(lost, _LEAST, exposure)
        count = sets.count
        deaths = sets.weight * sets.y["event"]
        # V = sum_j (d_j + gamma a_j) log(gamma c + S_j) - sum_i d_i eta_i
        loss = float(count @ (np.log(exposure) + top) - deaths @ eta) + _constant(sets)
        loss = np.inf if lost.any() else loss
        # A_i = w_i exp(eta_i) sum over the jumps at which i is at risk of count/exposure
        return cls(sets, loss, risk, exposure, risk * sets.spread(count / exposure), top)

    @property
    def score(self) -> Array:
        """Minus the slope in the predictors: events minus expected events."""
        return self.sets.weight * self.sets.y["event"] - self.expected

    def means(self, X: Array) -> Array:
        """(r, k) means of the columns in every risk set."""
        return self.sets.sums(self.risk[:, None] * X) / self.exposure[:, None]

    def curvature(self, X: Array) -> Array:
        """X'MX, with M the second derivative in the predictors."""
        # M = diag(A) - sum_j count_j r_j r_j', r_j the shares of the subjects in the exposure
        mean = self.means(X)
        rooted = X * np.sqrt(self.expected)[:, None]
        apart = mean * np.sqrt(self.sets.count)[:, None]
        return rooted.T @ rooted - apart.T @ apart

    def second(self) -> Array:
        """M itself, n x n."""
        share = self.sets.sums(np.diag(self.risk)) / self.exposure[:, None]
        apart = share * np.sqrt(self.sets.count)[:, None]
        return np.diag(self.expected) - apart.T @ apart


def _constant(sets: RiskSets) -> float:
    """What of V does not depend on the predictors; left out for an improper prior."""
    mass, gamma = sets.prior.mass, sets.prior.confidence
    if mass == 0.0:
        return 0.0
    a = sets.pull / gamma
    shape = a + sets.deaths / gamma
    # log of the integral of h^(a + d/gamma - 1) exp(-h (mass + ..)) of every jump
    log_integral = a * np.log(mass) + gammaln(shape) - gammaln(a) + shape * np.log(gamma)
    return -gamma * float(log_integral.sum())


def baseline_kl(at: PartialLoss) -> float:
    """KL(q(h | beta) || prior) of the increments at known predictors; 0 for an improper prior."""
    sets = at.sets
    mass, gamma = sets.prior.mass, sets.prior.confidence
    if mass == 0.0:
        return 0.0
    a = sets.pull / gamma
    shape = a + sets.deaths / gamma
    rate = at.exposure * np.exp(at.top) / gamma
    # KL of two gamma distributions, the terms of the shapes, then those of the rates
    nats = (shape - a) * psi(shape) - gammaln(shape) + gammaln(a)
    nats += a * np.log(rate / mass) + shape * (mass - rate) / rate
    return float(nats.sum())

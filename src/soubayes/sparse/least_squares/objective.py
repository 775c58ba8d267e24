"""The noise, and J of the Gaussian models, block by block (supplement C.4.1-C.4.2)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from soubayes.sparse.least_squares.designs import LeastSquares, Ridge
from soubayes.sparse.model import ColumnModel, coefficient_kl, log_prior_variance, source_costs
from soubayes.sparse.scales.balance import ScaleCosts
from soubayes.sparse.scales.functions import log_minus_psi

Array = np.ndarray


class Noise(NamedTuple):
    """q(sigma^2) = Inv-Gamma(shape, shape * variance); variance is 1/E[1/sigma^2]."""

    shape: float
    variance: float

    @property
    def mean_log(self) -> float:
        """E[log sigma^2]."""
        return float(np.log(self.variance) + log_minus_psi(self.shape))


@dataclass(frozen=True)
class NoisePrior:
    """sigma^2 ~ Inv-Gamma(shape, scale), with its confidence gamma_s."""

    shape: float
    scale: float
    confidence: float = 1.0

    def kl(self, q: Noise) -> float:
        """KL(q(sigma^2) || prior) in nats.

        >>> round(NoisePrior(3.0, 2.0).kl(Noise(3.0, 2.0 / 3.0)), 12)
        0.0
        """
        a, b = q.shape, q.shape * q.variance
        a0, b0 = self.shape, self.scale
        return float(
            a0 * np.log(b / b0) - gammaln(a) + gammaln(a0) + (a - a0) * psi(a) + (b0 - b) * a / b
        )

    def estimate(self, rss: float, degrees: float) -> float:
        """sigma^2 at confidence 1, from the residuals and what is left of n."""
        return (2.0 * self.scale + rss) / (2.0 * self.shape + degrees)


@dataclass(frozen=True)
class LeastSquaresModel(ColumnModel):
    """Coefficients, noise and intercept of normal means and linear regression.

    If ``scaled`` the prior of beta_j is multiplied by sigma^2 (linear regression).
    """

    noise: NoisePrior
    scaled: bool = True
    intercept_variance: float | None = None  # None: no intercept
    intercept_confidence: float = 1.0  # gamma_alpha
    searched: float = 0.0  # degrees of freedom that the choice of the support has used up

    def noise_degrees(self, n: float, k: float) -> float:
        """What is left of n for the noise after k effective parameters (and an intercept)."""
        left = max(n - k - (self.intercept_variance is not None), 0.0)
        return max(left - self.searched, 0.5 * left)

    def noise_estimate(self, n: float, rss: float, k: float) -> float:
        """The unit-confidence estimate of sigma^2; an intercept costs one observation."""
        return self.noise.estimate(rss, self.noise_degrees(n, k))

    def intercept_spread(self, n: float, noise: float) -> float:
        """s_alpha^2, the variance of the intercept at the mean of X (supplement C.4.2)."""
        if self.intercept_variance is None:
            return 0.0
        return 1.0 / (n / (self.intercept_confidence * noise) + 1.0 / self.intercept_variance)


class Value(NamedTuple):
    """J, the expected loss and what each block cost in nats."""

    value: float
    expected_loss: float
    kl: dict[str, float]


def objective_value(
    model: LeastSquaresModel,
    n: float,
    ridge: Ridge,
    w: Array,
    scales: ScaleCosts,
    noise: Noise,
    log_dets: Array,
) -> Value:
    """J = E[loss] + sum_k gamma_k KL_k at q(beta) = N(m, S) with S the best for precisions w.

    With A = X'X + diag(w) and w_j = gamma_j u_j, the conditional covariance of each source is
    gamma_k sigma^2 times the inverse of its Schur complement in A (``log_dets``: their log
    determinants, a source each), so tr(A S) = sigma^2 sum_j gamma_j.
    """
    gamma, v = model.confidence, noise.variance
    kappa = w * ridge.variance
    # E|y - X beta|^2 = RSS + tr(X'X S), and tr(X'X S) = v sum_j gamma_j (1 - kappa_j)
    loss = 0.5 * n * (np.log(2.0 * np.pi) + noise.mean_log)
    loss += 0.5 * (ridge.rss / v + float(gamma @ (1.0 - kappa)))
    log_prior = log_prior_variance(model, scales)
    if model.scaled:
        log_prior = log_prior + np.where(model.sparse, noise.mean_log, 0.0)
    # E[beta_j^2]; supplement C.4.2 with the prior precision w/(gamma v)
    second = gamma * v * ridge.variance + ridge.mean**2
    nats = coefficient_kl(w / (gamma * v), second, log_prior, np.log(gamma * v))
    costs = source_costs(model, nats)
    total = 0.0
    for (name, columns), log_det in zip(model.sources, log_dets, strict=True):
        costs[name] += 0.5 * float(log_det)
        total += float(gamma[columns[0]]) * costs[name] if len(columns) else 0.0
    costs |= {"local": float(scales.local.sum()), "global": scales.top}
    costs["noise"] = model.noise.kl(noise)
    total += float(model.scales.local_confidence @ scales.local)
    total += model.global_confidence * scales.top
    total += model.noise.confidence * costs["noise"]
    if model.intercept_variance is not None:
        spread = model.intercept_spread(n, v)
        loss += 0.5 * n * spread / v
        # KL(N(0, s^2) || N(0, s_0^2)): its mean is that of y, where the prior is centred
        ratio = spread / model.intercept_variance
        costs["intercept"] = float(0.5 * (ratio - np.log(ratio) - 1.0))
        total += model.intercept_confidence * costs["intercept"]
    return Value(float(loss + total), float(loss), costs)


def restricted(design: LeastSquares, w: Array, whole: Ridge) -> Callable[[Array], Ridge]:
    """The posterior of some columns alone, that of all of them already known."""
    return lambda tail: whole if len(tail) == len(w) else design.take(tail).ridge(w[tail])

"""The objective J of the Gaussian global-local models (supplement C.4.1-C.4.2), block by block."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from soubayes.sparse.designs import Design, Ridge
from soubayes.sparse.gamma_functions import log_minus_psi
from soubayes.sparse.scales import Prior, Scale, kl

Array = np.ndarray


@dataclass(frozen=True)
class Model:
    """Priors and confidences, column by column, in standardised units.

    The coefficients are ordered sources of uncertainty: ``groups`` lists the columns of each
    source, the sparse ones first. Columns with a finite ``variance`` have the plain prior
    N(0, variance), the others N(0, tau_j^2 nu^2 sigma^2), or N(0, tau_j^2 nu^2) if not
    ``scaled`` (normal means).
    """

    gamma: Array  # (p,) confidence in each coefficient
    local: Array  # (p,) confidence in each tau_j
    top: float  # confidence in nu
    noise: float  # confidence in sigma
    local_prior: Prior
    top_prior: Prior
    noise_shape: float
    noise_scale: float
    variance: Array  # (p,) NaN for sparse columns
    groups: tuple[tuple[str, Array], ...]
    scaled: bool = True
    intercept_variance: float | None = None  # None: no intercept
    intercept: float = 1.0  # confidence in alpha
    searched: float = 0.0  # degrees of freedom that the choice of the support has used up

    @property
    def sparse(self) -> Array:
        """Which columns have the global-local prior."""
        return np.isnan(self.variance)

    @property
    def mixed(self) -> bool:
        """Whether sparse columns differ in confidence, so that their order matters."""
        return (
            len(
                {
                    float(self.gamma[g[0]])
                    for _, g in self.groups
                    if len(g) and np.isnan(self.variance[g[0]])
                }
            )
            > 1
        )

    def take(self, index: Array) -> "Model":
        """The same model of some columns, given by a mask or sorted indices."""
        where = np.full(len(self.gamma), -1)
        where[index] = np.arange(len(self.gamma[index]))
        groups = tuple((name, where[g][where[g] >= 0]) for name, g in self.groups)
        return replace(
            self,
            gamma=self.gamma[index],
            local=self.local[index],
            variance=self.variance[index],
            groups=groups,
        )

    def noise_degrees(self, n: float, k: float) -> float:
        """What is left of n for the noise after k effective parameters (and an intercept)."""
        left = max(n - k - (self.intercept_variance is not None), 0.0)
        return max(left - self.searched, 0.5 * left)

    def at(self, confidence: float, free: Array) -> "Model":
        """The same model with the confidence of the ``free`` columns set."""
        return replace(self, gamma=np.where(free, confidence, self.gamma))


class Noise(NamedTuple):
    """q(sigma^2) = Inv-Gamma(shape, shape * variance); variance is 1/E[1/sigma^2]."""

    shape: float
    variance: float

    @property
    def mean_log(self) -> float:
        """E[log sigma^2]."""
        return float(np.log(self.variance) + log_minus_psi(self.shape))


class Value(NamedTuple):
    """J, the expected loss and what each block cost in nats."""

    value: float
    expected_loss: float
    kl: dict[str, float]


def evaluate(
    model: Model,
    n: float,
    ridge: Ridge,
    w: Array,
    tau: Scale,
    nu: Scale,
    noise: Noise,
    log_dets: Array,
) -> Value:
    """J = E[loss] + sum_k gamma_k KL_k at q(beta) = N(m, S) with S the best for precisions w.

    With A = X'X + diag(w) and w_j = gamma_j u_j, the conditional covariance of each source is
    gamma_k sigma^2 times the inverse of its Schur complement in A (``log_dets``: their log
    determinants), so that tr(A S) = sigma^2 sum_j gamma_j. ``tau`` has one factor a sparse column.
    """
    gamma, sparse, v = model.gamma, model.sparse, noise.variance
    kappa = w * ridge.variance
    loss = 0.5 * n * (np.log(2.0 * np.pi) + noise.mean_log)
    loss += 0.5 * (ridge.rss / v + float(gamma @ (1.0 - kappa)))
    # KL of a Gaussian source: 1/2 [tr(prior precision * second moment) - k + log-determinants]
    log_prior = np.log(np.where(sparse, 1.0, model.variance))
    log_prior[sparse] = tau.mean_log + nu.mean_log + (noise.mean_log if model.scaled else 0.0)
    own = kappa + w * ridge.mean**2 / (gamma * v) - 1.0 + log_prior - np.log(gamma * v)
    costs, total = {}, 0.0
    for (name, columns), log_det in zip(model.groups, log_dets, strict=True):
        costs[name] = 0.5 * (float(own[columns].sum()) + float(log_det))
        total += float(gamma[columns[0]]) * costs[name] if len(columns) else 0.0
    local = kl(model.local_prior, tau)
    costs["local"] = float(local.sum())
    costs["global"] = float(kl(model.top_prior, nu))
    costs["noise"] = noise_kl(model, noise)
    total += float(model.local[sparse] @ local) + model.top * costs["global"]
    total += model.noise * costs["noise"]
    if model.intercept_variance is not None:
        spread = intercept_spread(model, n, v)
        loss += 0.5 * n * spread / v
        ratio = spread / model.intercept_variance
        costs["intercept"] = float(0.5 * (ratio - np.log(ratio) - 1.0))
        total += model.intercept * costs["intercept"]
    return Value(float(loss + total), float(loss), costs)


def intercept_spread(model: Model, n: float, noise: float) -> float:
    """s_alpha^2, the variance of the intercept at the mean of X (supplement C.4.2)."""
    if model.intercept_variance is None:
        return 0.0
    return 1.0 / (n / (model.intercept * noise) + 1.0 / model.intercept_variance)


def noise_kl(model: Model, noise: Noise) -> float:
    """KL between q(sigma^2) and its Inv-Gamma(noise_shape, noise_scale) prior."""
    a, b = noise.shape, noise.shape * noise.variance
    a0, b0 = model.noise_shape, model.noise_scale
    return float(
        a0 * np.log(b / b0) - gammaln(a) + gammaln(a0) + (a - a0) * psi(a) + (b0 - b) * a / b
    )


def source_log_dets(design: Design, model: Model, w: Array, ridge: Ridge) -> Array:
    """log|Schur complement| of every source of coefficients in A, later sources integrated out."""
    columns, log_dets = [g for _, g in model.groups], np.zeros(len(model.groups) + 1)
    for i in range(len(columns)):
        tail = np.sort(np.concatenate(columns[i:])).astype(int)
        if len(tail):
            part = ridge if len(tail) == len(w) else design.take(tail).ridge(w[tail])
            log_dets[i] = part.log_det
    return log_dets[:-1] - log_dets[1:]


def source_variances(design: Design, model: Model, w: Array, ridge: Ridge) -> Array:
    """diag(S) / (gamma_j sigma^2) under the ordered sources; diag(A^-1) if confidences agree."""
    gammas = [float(model.gamma[g[0]]) for _, g in model.groups if len(g)]
    columns = [g for _, g in model.groups if len(g)]
    if len(set(gammas)) <= 1:
        return ridge.variance
    total, before = np.zeros(len(w)), 0.0
    for i, gamma in enumerate(gammas):
        tail = np.sort(np.concatenate(columns[i:])).astype(int)
        part = ridge if i == 0 else design.take(tail).ridge(w[tail])
        total[tail] += (gamma - before) * part.variance
        before = gamma
    return total / model.gamma


def source_covariance(design: Design, model: Model, w: Array) -> Array:
    """S / sigma^2 under the ordered sources: gamma A^-1 if their confidences agree."""
    total, before = np.zeros((len(w), len(w))), 0.0
    columns = [g for _, g in model.groups if len(g)]
    for i, group in enumerate(columns):
        gamma = float(model.gamma[group[0]])
        if gamma != before:
            tail = np.sort(np.concatenate(columns[i:])).astype(int)
            total[np.ix_(tail, tail)] += (gamma - before) * design.take(tail).inverse(w[tail])
        before = gamma
    return total

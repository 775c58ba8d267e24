"""Pareto-smoothed importance weights and their diagnostic k-hat (Vehtari et al. 2024)."""

import numpy as np


def pareto_smoothed(log_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Importance weights with a smoothed tail, which sum to 1, and k-hat (Vehtari et al. 2024).

    The largest 3 sqrt(n) of the weights are replaced by quantiles of a generalised Pareto
    distribution fitted to them. Its shape is k-hat: below 0.7 weighted means can be trusted.

    >>> from scipy.stats import norm
    >>> x = norm.ppf(np.linspace(0.001, 0.999, 1000))  # w = e^(x^2 / 2) has no mean
    >>> print(pareto_smoothed(-(x**2))[1] < 0 < 0.7 < pareto_smoothed(x**2 / 2)[1])
    True
    """
    n = len(log_weights)
    log_w = np.asarray(log_weights, float) - np.max(log_weights)
    count = pareto_tail(n)
    order = np.argsort(log_w)
    tail = order[-count:]
    cutoff = log_w[order[-count - 1]]
    excess = np.exp(log_w[tail]) - np.exp(cutoff)
    khat = float("-inf")
    # weights with a largest value that many draws have, or all alike, have no tail
    if np.ptp(log_w[tail]) > 1e-12 and count >= 5 and excess[0] > 0:
        khat, scale = pareto_fit(excess)
        levels = (np.arange(count) + 0.5) / count
        quantile = scale * np.expm1(-khat * np.log1p(-levels)) / khat
        log_w[tail] = np.minimum(np.log(quantile + np.exp(cutoff)), 0.0)
    weights = np.exp(log_w)
    return weights / weights.sum(), khat


def pareto_tail(n: int) -> int:
    """How many of n weights are taken for their tail."""
    return int(min(0.2 * n, 3 * np.sqrt(n)))


def pareto_fit(x: np.ndarray) -> tuple[float, float]:
    """Shape and scale of a generalised Pareto distribution (Zhang and Stephens 2009), x sorted.

    The shape is drawn towards 1/2 by ten observations' worth, as PSIS has it.
    """
    n = len(x)
    grid = 30 + int(np.sqrt(n))
    theta = 1 / x[-1] + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (
        3 * x[int(n / 4 + 0.5) - 1]
    )
    shape = np.log1p(-theta[:, None] * x).mean(axis=1)
    profile = n * (np.log(-theta / shape) - shape - 1)
    weights = 1 / np.exp(profile - profile[:, None]).sum(axis=1)
    best = np.sum(theta * weights / weights.sum())
    k = np.log1p(-best * x).mean()
    return float((n * k + 10 * 0.5) / (n + 10)), float(-k / best)

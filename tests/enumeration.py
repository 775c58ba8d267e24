"""The exact posterior over supports of a small design, by enumeration."""

import itertools

import numpy as np
from scipy.special import betaln, logsumexp


def exact_inclusion(X, y, variance, weight, share, noise=None):
    """Inclusion probabilities and posterior means, every support and slab component enumerated.

    y = X b + N(0, sigma^2), b_j ~ sum_m weight_m N(0, sigma^2 variance_m) where included,
    1/sigma^2 improper (or sigma known), number of effects with `log_size_prior`. X and y
    are centred by the caller, which costs a degree of freedom.
    """
    n, p = X.shape
    logs, included, means = [], [], []
    for choice in itertools.product(range(len(variance) + 1), repeat=p):
        kept = [j for j, m in enumerate(choice) if m]
        V = np.array([variance[choice[j] - 1] for j in kept])
        k = len(kept)
        log_prior = log_size_prior(k, p, share) + sum(np.log(weight[choice[j] - 1]) for j in kept)
        A = X[:, kept].T @ X[:, kept] + np.diag(1.0 / V)
        b = np.linalg.solve(A, X[:, kept].T @ y)
        rest = y @ y - b @ (X[:, kept].T @ y)
        log_det = np.linalg.slogdet(A)[1] + np.log(V).sum()
        if noise is None:
            fit = -0.5 * (n - 1) * np.log(rest)
        else:
            fit = -0.5 * rest / noise
        logs.append(log_prior - 0.5 * log_det + fit)
        included.append(np.isin(np.arange(p), kept))
        mean = np.zeros(p)
        mean[kept] = b
        means.append(mean)
    q = np.exp(np.array(logs) - logsumexp(logs))
    return q @ np.array(included), q @ np.array(means)


def log_size_prior(k, p, weight):
    """Of one support of k columns: half beta-binomial(1, 1 + weight p), half (1, 1)."""
    return np.logaddexp(
        *(betaln(1 + k, 1 + w * p + p - k) - betaln(1, 1 + w * p) for w in (weight, 0.0))
    )

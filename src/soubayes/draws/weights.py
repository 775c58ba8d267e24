"""Log weights that take draws at confidence 1 to other confidences, and their sampling error.

With r_k = log p(theta_k | theta_<k, y) - log pi(theta_k | theta_<k), Theorem 1 gives

    log w = sum_k (1 / gamma_k - 1) r_k + sum_{k>1} (gamma_k / gamma_{k-1} - 1) log C_k(theta_<k),
    C_k = E[exp(I_k) | theta_<k],
    I_k = (1 / gamma_k - 1) r_k + (gamma_{k+1} / gamma_k) log C_{k+1}.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from soubayes.draws.known import Draws
from soubayes.draws.ratios import PER_FEATURE, polynomials


class Weights(NamedTuple):
    """log w at every draw, and the parts that it is made of, by block."""

    log_weight: np.ndarray
    inside: dict[str, np.ndarray]  # I_k, for blocks whose C_k is not constant
    log_c: dict[str, np.ndarray]  # log C_k
    moved: dict[str, np.ndarray]  # I_k - log C_k, the log ratio of q_k to p_k, for all blocks
    value_change: float  # of V: -gamma_1 log C_1


def log_weights(
    draws: Draws, gammas: Mapping[str, float], r: Mapping[str, np.ndarray], simple: bool = False
) -> Weights:
    """log w at every draw, from the last block to the first."""
    total = np.zeros(len(draws.log_likelihood))
    after = np.zeros(len(total))  # gamma_{k+1} log C_{k+1}, what the later blocks say
    insides: dict[str, np.ndarray] = {}
    log_cs: dict[str, np.ndarray] = {}
    names = draws.names
    moved = {name: np.zeros(len(total)) for name in names}
    value_change = 0.0
    for k in range(len(names) - 1, -1, -1):
        gamma = gammas[names[k]]
        part = (1 / gamma - 1) * r[names[k]]
        total += part
        inside = part + after / gamma
        if k == 0:
            first = logsumexp(inside) - np.log(len(inside))
            moved[names[0]], value_change = inside - first, float(-gamma * first)
            break
        if gamma == gammas[names[k - 1]] == 1 and not np.any(inside):
            after = np.zeros(len(total))
            continue
        log_c = _log_mean_given(draws, names[:k], inside, simple)
        total += (gamma / gammas[names[k - 1]] - 1) * log_c
        after = gamma * log_c
        insides[names[k]], log_cs[names[k]], moved[names[k]] = inside, log_c, inside - log_c
    return Weights(total - total.max(), insides, log_cs, moved, value_change)


def influence(
    draws: Draws, gammas: Mapping[str, float], weights: Weights, each: np.ndarray
) -> np.ndarray:
    """What every draw adds to a weighted mean, (draw, function), given w (f - mean) at the draws.

    r and C are estimated from the same draws, so a draw also moves the weights of the others. With
    g the derivative of the weighted mean by log p(theta_k | theta_<k), a draw moves the mean by
    E[g | theta_<=k] - E[g | theta_<k], taken at that draw, if the density is estimated freely. The
    conditional means are regressions here, as the densities are. The derivatives follow from the
    formula of log w by the chain rule, from the first block to the last.
    """
    names = draws.names
    own = {}  # derivative by r_k at every draw
    total = each.copy()
    through = np.zeros_like(each)  # derivative by I_{k-1}
    for k, name in enumerate(names):
        gamma = gammas[name]
        derivative = each
        through_this = np.zeros_like(each)
        if name in weights.log_c:
            before = gammas[names[k - 1]]
            moved = (gamma / before - 1) * each + gamma / before * through
            by_log_c = _mean_given(draws, names[:k], moved)
            ratio = np.exp(weights.inside[name] - weights.log_c[name])[:, None]
            through_this = by_log_c * ratio
            total += by_log_c * (ratio - 1)  # C_k is a mean over draws
            derivative = each + through_this
        own[name] = (1 / gamma - 1) * derivative
        through = through_this
    last = own[names[-1]]  # the last ratio is the log likelihood less the others
    for k, name in enumerate(names[:-1]):
        by_density = own[name] - last
        total += _mean_given(draws, names[: k + 1], by_density)
        total -= _mean_given(draws, names[:k], by_density)
    return total


def _log_mean_given(
    draws: Draws, names: tuple[str, ...], log_values: np.ndarray, simple: bool
) -> np.ndarray:
    """log E[e^value | earlier blocks], a polynomial of them, by a regression with a log link."""
    result = np.empty(len(log_values))
    for here, features in _features(draws, names, 2 if simple else 3):
        result[here] = _log_link(features, log_values[here])
    return result


def _mean_given(draws: Draws, names: tuple[str, ...], values: np.ndarray) -> np.ndarray:
    """E[value | blocks] for every column, a polynomial of the blocks."""
    if not names:
        return np.broadcast_to(values.mean(axis=0), values.shape)
    result = np.empty(values.shape)
    for here, features in _features(draws, names, 3):
        result[here] = features @ np.linalg.lstsq(features, values[here], rcond=None)[0]
    return result


def _features(
    draws: Draws, names: tuple[str, ...], degree: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and polynomials of the continuous blocks, for every combination of discrete values."""
    n = len(draws.log_likelihood)
    continuous = [draws.values[name] for name in names if name not in draws.discrete]
    x = np.concatenate(continuous, axis=1) if continuous else np.empty((n, 0))
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    features = polynomials(np.clip(x, -4, 4), degree, n // PER_FEATURE)
    counted = [draws.values[name] for name in names if name in draws.discrete]
    levels = np.zeros(n, int)
    if counted:
        levels = np.unique(np.concatenate(counted, axis=1), axis=0, return_inverse=True)[1].ravel()
    for level in np.unique(levels):
        here = levels == level
        yield here, features[here]


def _log_link(features: np.ndarray, log_values: np.ndarray) -> np.ndarray:
    """Fitted log means of e^value: Newton's method on the quasi-likelihood, which is concave."""
    top = log_values.max()
    values = np.exp(log_values - top)
    coef = np.zeros(features.shape[1])
    coef[0] = np.log(values.mean())
    penalty = 1e-6 * len(values) * values.mean() * np.eye(len(coef))
    penalty[0, 0] = 1e-12
    for _ in range(100):
        mean = np.exp(np.clip(features @ coef, -60, 30))
        gradient = features.T @ (values - mean) - penalty @ coef
        step = np.linalg.solve(features.T @ (mean[:, None] * features) + penalty, gradient)
        coef = coef + step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < 1e-9:
            break
    return np.clip(features @ coef, -60, 30) + top


def normalised_weights(log_weight: np.ndarray) -> np.ndarray:
    """Weights that sum to 1."""
    weights = np.exp(log_weight - log_weight.max())
    return weights / weights.sum()

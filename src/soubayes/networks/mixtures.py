"""Mixtures of predictions: normal components, averages of networks, weights by held-out rows."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp, ndtr

from soubayes.networks.held_out import fitted_temperature

FACTORS = 2.0 ** np.arange(-4, 9)  # what may multiply the variance of an average of networks
UNSEEN = 2  # networks that have not seen a row of the training data
_LEAST_WEIGHT = 1e-3  # components of less weight are left out
_HALVINGS, _STEPS_OF_EM = 60, 2000


class NormalMixture(NamedTuple):
    """Normal components of the predictive distribution of every row."""

    mean: np.ndarray  # (components, rows) or (components, rows, outputs)
    variance: np.ndarray  # likewise
    weight: np.ndarray  # (components,), with sum 1

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """log p(y) of every row; the outputs of a component are independent."""
        squares = (y - self.mean) ** 2 / self.variance
        logs = -(squares + np.log(2 * np.pi * self.variance)) / 2
        logs = logs.reshape(*logs.shape[:2], -1).sum(axis=2)
        return logsumexp(logs, axis=0, b=self.weight[:, None])

    def quantile(self, level: float) -> np.ndarray:
        """The quantile of every row and output, by bisection."""
        sd = np.sqrt(self.variance)
        low, high = (self.mean - 40 * sd).min(axis=0), (self.mean + 40 * sd).max(axis=0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = np.tensordot(self.weight, ndtr((middle - self.mean) / sd), 1) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2


def interval_tails(coverage: float) -> tuple[float, float]:
    """The levels of the two ends of a central interval.

    >>> interval_tails(0.5)
    (0.25, 0.75)
    """
    if not 0 < coverage < 1:
        raise ValueError(f"coverage is {coverage}, but it must be between 0 and 1.")
    return (1 - coverage) / 2, (1 + coverage) / 2


def stacking_weights(log_density: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The mixture weights of the largest log score, given log p_k(y_i) and weights of the rows.

    The score is concave in the weights; expectation–maximisation climbs it.

    >>> stacking_weights(np.log([[0.9, 0.9, 0.1], [0.1, 0.1, 0.9]]), np.ones(3)).round(3)
    array([0.708, 0.292])
    """
    density = np.exp(log_density - log_density.max(axis=0))
    weights = np.full(len(density), 1 / len(density))
    for _ in range(_STEPS_OF_EM):
        share = weights[:, None] * density
        weights = (share / share.sum(axis=0)) @ counted / counted.sum()
    return weights


class Average(NamedTuple):
    """The average of several networks of one kind, (rows, outputs)."""

    mean: np.ndarray
    within: np.ndarray  # noise and posterior variance of a network, averaged
    between: np.ndarray  # variance between the networks

    def variance(self, factor: float) -> np.ndarray:
        """Of a component: all parts of the uncertainty, times a factor."""
        return factor * (self.within + self.between)


def average(nets: Sequence[Any], X: np.ndarray) -> Average:
    """The average of regressions at the rows of X."""
    means, deviations = zip(*(net._moments(X, 100, "draws") for net in nets), strict=True)
    noise = np.mean([net._noise_variance() for net in nets], axis=0)
    within = noise + np.square(deviations).mean(axis=0)
    parts = np.mean(means, axis=0), within, np.var(means, axis=0, ddof=1)
    return Average(*(part.reshape(len(X), -1) for part in parts))


def probabilities(nets: Sequence[Any], X: np.ndarray) -> np.ndarray:
    """The average of the networks' class probabilities by draws."""
    return np.mean([net._probabilities(X, mode="draws") for net in nets], axis=0)


def held_out(
    networks: list[list[Any]], X: np.ndarray, parts: np.ndarray, of: Callable[..., Any]
) -> Iterable[tuple[Any, ...]]:
    """For every kind, a tuple over the folds: `of` the two networks that have not seen the fold.

    Network j is trained without the folds j and j + 1, so fold j is new to the networks j - 1 and
    j.
    """
    by_fold = [
        [of(pair, X[part]) for pair in zip(networks[j - 1], networks[j], strict=True)]
        for j, part in enumerate(parts)
    ]
    return zip(*by_fold, strict=True)


def stacked_weights(
    kinds: Iterable[Sequence[np.ndarray]], codes: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, float]:
    """Weights of the kinds and the temperature of the mixture, from held-out probabilities."""
    p = np.array([np.concatenate(folds) for folds in kinds])
    logs = np.log(np.maximum(p[:, np.arange(len(codes)), codes], 1e-30))
    total = _without_least(stacking_weights(logs, weight))
    return total, fitted_temperature(np.tensordot(total, p, 1), codes, weight)


def noise_weights(
    kinds: Iterable[Sequence[Average]], y: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Weights (kinds, factors) of normal components, from held-out averages."""
    joined = [Average(*map(np.concatenate, zip(*folds, strict=True))) for folds in kinds]
    targets = np.asarray(y, float).reshape(len(y), -1)
    logs = np.array(
        [
            _component(each.mean, each.variance(factor), 1.0).log_density(targets)
            for each in joined
            for factor in FACTORS
        ]
    )
    weights = _without_least(stacking_weights(logs, weight))
    return weights.reshape(len(joined), len(FACTORS))


def mixture(networks: list[list[Any]], weights: np.ndarray, X: np.ndarray) -> NormalMixture:
    """The predictive distribution of the rows of X.

    An average of all K networks has a smaller squared error than the held-out average of two, by
    (1/2 - 1/K) times the variance between networks (Krogh and Vedelsby, 1995).
    """
    spared = 1 / UNSEEN - 1 / len(networks)
    parts = []
    for members, of_kind in zip(zip(*networks, strict=True), weights, strict=True):
        if not of_kind.any():
            continue
        each = average(members, X)
        for weight, factor in zip(of_kind, FACTORS, strict=True):
            variance = each.variance(factor)
            variance = np.maximum(variance - spared * each.between, variance / 2)
            if weight > 0:
                parts.append(_component(each.mean, variance, weight))
    return NormalMixture(*map(np.concatenate, zip(*parts, strict=True)))


def _without_least(weights: np.ndarray) -> np.ndarray:
    weights = np.where(weights < _LEAST_WEIGHT, 0.0, weights)
    return weights / weights.sum()


def _component(mean: np.ndarray, variance: np.ndarray, weight: float) -> NormalMixture:
    return NormalMixture(mean[None], variance[None], np.array([weight]))

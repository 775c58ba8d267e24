"""Columns without look-alikes: their posterior by expectation propagation."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from soubayes.sparse.inclusion.sizes import log_sum
from soubayes.sparse.inclusion.slabs import Slab

Array = np.ndarray

STEPS = np.repeat([0.5, 0.2, 0.1], [60, 90, 150])  # how far a site moves in each round
KNOWN_NOISE = 20  # rounds in which the noise counts as known, which finds the way more surely
FLATTEST = 1e-3  # least precision of a site, as a share of what the data say
FEWEST = 5.0  # degrees of freedom


class Surroundings(NamedTuple):
    """What the columns see of the rest: X'Omega^-1 X, X'Omega^-1 y and y'Omega^-1 y under Omega.

    ``odds`` gives prior log odds of the columns from their Bayes factors, ``slab`` the slab from
    the expected counts of effects at its points; ``others`` effects are expected elsewhere.
    """

    gram: Array
    scores: Array
    yy: float
    n: float
    degrees: float
    odds: Callable[[Array], Array]
    slab: Callable[[Array], Slab]
    others: float


class Alone(NamedTuple):
    """Where the rounds came to rest.

    s and q are a column's information and score with all other coefficients integrated out,
    ``inside`` the weights of the slab's points given an effect, ``noise`` the mean of sigma^2.
    """

    alpha: Array
    s: Array
    q: Array
    log_bayes: Array
    inside: Array
    slab: Slab
    noise: float
    degrees: float
    settled: bool


def propagate(
    around: Surroundings, slab: Slab, alpha: Array, noise: float, tol: float = 1e-3
) -> Alone:
    """Every coefficient's spike and slab is replaced by the normal of the same mean and variance.

    Expectation propagation (Minka 2001) with parallel, damped updates. Unlike a product of effects
    it carries over how uncertain the other coefficients are, their absence included. The noise is
    unknown with n minus the expected number of effects as its degrees of freedom: variances of
    effects are free, so that an effect uses up what it says about the noise.
    """
    G, n = around.gram, around.n
    known = np.isinf(around.degrees)
    precision = np.where(alpha > 0.5, n / 64.0, 10.0 * n)  # sites, in units of 1/noise
    shift, fall, change = np.zeros(len(alpha)), np.zeros(len(alpha)), np.inf
    for round_, step in enumerate(STEPS):
        S = np.linalg.inv(G + np.diag(precision))
        mean, variance = S @ (around.scores + shift), np.diag(S)
        s = np.maximum(1.0 / variance - precision, 1e-9 * n)
        q = mean / variance - shift
        V = slab.variance
        spread = 1.0 + V * s[:, None]
        shrunk, falls = V / spread, V * q[:, None] ** 2 / spread
        occam = np.log(slab.weight) - 0.5 * np.log(spread)
        if known or round_ < KNOWN_NOISE:
            each = occam + 0.5 * falls / noise
        else:
            left = np.maximum(around.degrees - around.others - alpha.sum() + alpha, FEWEST)
            rest = (left * noise + alpha * fall)[:, None]
            share = np.minimum(falls / rest, 1.0 - 1e-12)
            each = occam - 0.5 * left[:, None] * np.log1p(-share)
        log_bayes = log_sum(each)
        inside = np.exp(each - log_bayes[:, None])
        new = expit(log_bayes + around.odds(log_bayes))
        change, alpha = float(np.abs(new - alpha).max()), new
        if change < tol and (known or round_ > KNOWN_NOISE + 1):
            break
        centre = q[:, None] * shrunk
        squares = centre**2 + shrunk * noise
        first = alpha * np.einsum("jm,jm->j", inside, centre)
        second = alpha * np.einsum("jm,jm->j", inside, squares)
        fall = np.einsum("jm,jm->j", inside, falls)
        wanted = noise / np.maximum(second - first**2, 1e-12 * noise / n) - s
        wanted = np.maximum(wanted, FLATTEST * s)
        precision = precision + step * (wanted - precision)
        shift = shift + step * (first * (s + wanted) - q - shift)
        if not known:
            lost = around.yy - 2.0 * around.scores @ mean + mean @ G @ mean + noise * np.sum(G * S)
            size = np.sum(alpha * np.einsum("jm,jm->j", inside, squares / V))
            noise = np.sqrt(noise * (lost + size) / (around.degrees + alpha.sum()))
        slab = around.slab(alpha @ inside)
    degrees = around.degrees
    if not known:
        degrees = max(degrees - around.others - float(alpha.sum()), FEWEST)
        noise = noise * degrees / (degrees - 2.0)
    return Alone(alpha, s, q, log_bayes, inside, slab, noise, degrees, change < tol)

"""Priors of the number and size of effects, one effect, and columns without look-alikes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from soubayes.sparse.constants import CENTRE, FEWEST_DEGREES, PULL, WIDTH
from soubayes.sparse.inclusion.field import ColumnEvidence

Array = np.ndarray

SLAB_GRID = 4.0 ** np.arange(1, 17)  # information times variance of the slab's components


@dataclass(frozen=True)
class Slab:
    """The prior of an effect that is there, shared by all: sum_m weight_m N(0, variance_m).

    Variances are in units of the noise, for a standardised column.
    """

    variance: Array
    weight: Array

    def log_bayes_factors(self, evidence: ColumnEvidence, degrees: float) -> Array:
        """log of weight_m p(y | effect in column j of variance m)/p(y | no effect), (p, m).

        An unknown noise is integrated out under the prior 1/sigma^2.
        """
        s, q, V = evidence.s[:, None], evidence.q[:, None], self.variance
        spread = 1.0 + V * s
        fall = V * q * q / spread
        occam = np.log(self.weight) - 0.5 * np.log(spread)
        if np.isinf(degrees):
            return occam + 0.5 * fall
        # Student's t in the place of the normal: (1 - fall/rest)^(-degrees/2)
        share = np.minimum(fall / evidence.rest, 1.0 - 1e-12)
        return occam - 0.5 * degrees * np.log1p(-share)


def default_slab(n: float, widest: float = np.inf) -> Slab:
    """The slab before data, of variances up to ``widest``."""
    return log_normal_slab(n, np.zeros(max(int(np.sum(SLAB_GRID / n <= widest)), 1)))


def log_normal_slab(n: float, counts: Array) -> Slab:
    """log V ~ N(m, v) on a grid, m and v from the expected counts of effects at each point.

    A slab of one peak: a second one at small variances would take null columns for effects.
    """
    at, total = np.log(SLAB_GRID[: len(counts)]), PULL + counts.sum()
    # an EM step for log V ~ N(m, v) with PULL effects' worth of prior
    m = (PULL * CENTRE + counts @ at) / total
    v = (PULL * (WIDTH**2 + (CENTRE - m) ** 2) + counts @ (at - m) ** 2) / total
    weight = np.exp(-0.5 * (at - m) ** 2 / v) + 1e-12
    return Slab(SLAB_GRID[: len(counts)] / n, weight / weight.sum())


SHARE_NODES = 64  # of the rule over the share of columns with an effect


@dataclass(frozen=True)
class SizePrior:
    """The share of columns with an effect is Beta(1, 1 + weight p) or uniform, with equal odds.

    The first says that effects are few: their number falls like (1 + weight)^-k. The second, a
    uniform prior of their number, takes over where they are many. The share is integrated out.
    """

    weight: float = 0.5

    def log_odds(
        self,
        log_bayes: Array,
        p: int,
        counted: Array | float = 1.0,
        known: Array | float = 0.0,
    ) -> Array:
        """Prior log odds of each place for an effect, given the Bayes factors of all the others.

        Given the share pi the places are independent, place k with a likelihood 1 - pi + pi B_k.
        So the odds of place j are the ratio of the integrals of pi and of 1 - pi against the
        prior times the likelihoods of all places but j. A place may be ``counted`` in part: a
        column that one of the effects has taken is no place of its own. ``known`` adds the log
        likelihoods of further places, (nodes,).

        >>> SizePrior(0.0).log_odds(np.full(3, -np.inf), 3).round(2)  # B(2, 3)/B(1, 4) = 1/3
        array([-1.1, -1.1, -1.1])
        """
        log_pi, log_rest = _nodes(p)
        log_likelihoods = self.log_likelihoods(log_bayes, p)
        few = np.log1p(self.weight * p) + self.weight * p * log_rest
        # densities of both, times dpi/dlogit
        log_weight = np.logaddexp(few, 0.0) + log_pi + log_rest + known
        log_likelihoods = log_likelihoods * np.reshape(counted, (-1, 1))
        without = log_weight + log_likelihoods.sum(axis=0) - log_likelihoods
        return log_sum(without + log_pi) - log_sum(without + log_rest)

    def log_likelihoods(self, log_bayes: Array, p: int) -> Array:
        """log(1 - pi + pi B_k) of each place at nodes of pi, (places, nodes)."""
        log_pi, log_rest = _nodes(p)
        return np.logaddexp(log_rest, log_pi + log_bayes[:, None])


def _nodes(p: int) -> tuple[Array, Array]:
    """log pi and log(1 - pi), evenly spaced in log(pi/(1 - pi))."""
    logit = np.linspace(-np.log(p) - 7.0, 12.0, SHARE_NODES)
    return -np.logaddexp(0.0, -logit), -np.logaddexp(0.0, logit)


def log_sum(values: Array) -> Array:
    """log of the sum of exp(values) over the last axis, whose largest entry is finite.

    Three times as fast as scipy's at these shapes, where it is a large share of a sweep.

    >>> log_sum(np.log([[1.0, 2.0], [3.0, 4.0]])).round(4)
    array([1.0986, 1.9459])
    """
    top = values.max(axis=-1, keepdims=True)
    return np.log(np.exp(values - top).sum(axis=-1)) + top[..., 0]


class Columns(NamedTuple):
    """What an effect would be in each column, given the other effects."""

    log_bayes: Array  # (p,): log p(y | effect there)/p(y | none), averaged over the slab
    inside: Array  # (p, m): posterior weights of the slab's components
    spread: Array  # (p,): posterior variance in units of the noise, averaged over them
    evidence: ColumnEvidence


def look_at(evidence: ColumnEvidence, slab: Slab, degrees: float) -> Columns:
    """Bayes factors of all columns."""
    log_bayes = slab.log_bayes_factors(evidence, degrees)
    column = log_sum(log_bayes)
    inside = np.exp(log_bayes - column[:, None])
    shrunk = slab.variance / (1.0 + np.multiply.outer(evidence.s, slab.variance))
    return Columns(column, inside, np.einsum("jm,jm->j", inside, shrunk), evidence)


class Effect(NamedTuple):
    """The posterior of one effect."""

    alpha: Array  # (p,): the probability that column j carries it; their sum is ``active``
    columns: Columns

    @property
    def active(self) -> float:
        """The probability that there is such an effect."""
        return float(self.alpha.sum())


def anchored_effect(log_odds: Array, given_top: Array, top: int, columns: Columns) -> Effect:
    """The effect that column ``top`` carries, or one of the columns that could take its place.

    ``log_odds`` are the posterior's, a column alone against no effect; ``given_top`` the same when
    ``top`` is in already. A column's odds that vanish with ``top`` are those of taking its place;
    what is left is another effect.
    """
    log_alpha = stand_ins(log_odds, given_top, top)
    return Effect(np.exp(log_alpha - log_sum(np.append(log_alpha, 0.0))), columns)


def stand_ins(log_odds: Array, given_top: Array, top: int) -> Array:
    """Log odds of each place to take that of ``top``; those of ``top`` itself stay."""
    with np.errstate(divide="ignore", invalid="ignore"):
        fall = np.nan_to_num(np.minimum(given_top - log_odds, 0.0), nan=0.0, neginf=-np.inf)
        log_alpha = log_odds + np.log(-np.expm1(fall))
    log_alpha[top] = log_odds[top]
    return log_alpha


DAMPING = np.repeat([0.5, 0.2, 0.1], [60, 90, 150])  # how far a site moves in each round
KNOWN_NOISE = 20  # rounds in which the noise counts as known, which finds the way more surely
FLATTEST = 1e-3  # least precision of a site, as a share of what the data say
SETTLED = 1e-3  # change of an inclusion probability at which it counts as found


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


def propagate(around: Surroundings, slab: Slab, alpha: Array, noise: float) -> Alone:
    """Every coefficient's spike and slab is replaced by the normal of the same mean and variance.

    Expectation propagation (Minka 2001) with parallel, damped updates. Unlike a product of effects
    it carries over how uncertain the other coefficients are, their absence included. The noise is
    unknown with n minus the expected number of effects as its degrees of freedom: variances of
    effects are free, so an effect uses up what it says about the noise.
    """
    G, n = around.gram, around.n
    known = np.isinf(around.degrees)
    precision = np.where(alpha > 0.5, n / 64.0, 10.0 * n)  # sites, in units of 1/noise
    shift, fall, change = np.zeros(len(alpha)), np.zeros(len(alpha)), np.inf
    for round_, step in enumerate(DAMPING):
        S = np.linalg.inv(G + np.diag(precision))
        mean, variance = S @ (around.scores + shift), np.diag(S)
        # the cavity: what is known of a coefficient without its own site
        s = np.maximum(1.0 / variance - precision, 1e-9 * n)
        q = mean / variance - shift
        V = slab.variance
        spread = 1.0 + V * s[:, None]
        shrunk, falls = V / spread, V * q[:, None] ** 2 / spread
        occam = np.log(slab.weight) - 0.5 * np.log(spread)
        if known or round_ < KNOWN_NOISE:
            log_weights = occam + 0.5 * falls / noise
        else:
            left = np.maximum(around.degrees - around.others - alpha.sum() + alpha, FEWEST_DEGREES)
            rest = (left * noise + alpha * fall)[:, None]
            share = np.minimum(falls / rest, 1.0 - 1e-12)
            log_weights = occam - 0.5 * left[:, None] * np.log1p(-share)
        log_bayes = log_sum(log_weights)
        inside = np.exp(log_weights - log_bayes[:, None])
        new = expit(log_bayes + around.odds(log_bayes))
        change, alpha = float(np.abs(new - alpha).max()), new
        if change < SETTLED and (known or round_ > KNOWN_NOISE + 1):
            break
        centre = q[:, None] * shrunk
        squares = centre**2 + shrunk * noise
        first = alpha * np.einsum("jm,jm->j", inside, centre)
        second = alpha * np.einsum("jm,jm->j", inside, squares)
        fall = np.einsum("jm,jm->j", inside, falls)
        # the site that gives the cavity these two moments; a negative precision is held at FLATTEST
        # s
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
        degrees = max(degrees - around.others - float(alpha.sum()), FEWEST_DEGREES)
        noise = noise * degrees / (degrees - 2.0)
    return Alone(alpha, s, q, log_bayes, inside, slab, noise, degrees, change < SETTLED)

"""The evidence of a support in which some columns share a scale.

A group of m columns has b_g ~ N(0, tau_g^2 I) with one tau_g. So its coefficients are integrated
out: with w_g = sigma^2/tau_g^2, A = X'X + diag(w), and RSS_w = y'y - y'X A^-1 X'y,

    -2 log p(y | w) = l log(pi RSS_w) - 2 log Gamma(l/2) + log|A| - sum_g m_g log w_g

under 1/sigma^2, where l is n less the columns of their own: a group takes no degree of freedom. Its
tau_g is integrated under the slab of log sizes, log tau_g ~ N(mean, spread), which a fitted tau_g
would not pay for. Given the other groups p(y | w_g) is known for all w_g from the eigenvalues of
S_g, the information about b_g with all else adjusted.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import logsumexp

from soubayes.sparse.least_squares.designs import LeastSquares
from soubayes.sparse.least_squares.unit_gram import UnitGram

Array = np.ndarray

_ROUNDS = 12  # of all groups together; three or four settle
# log tau in steps of a tenth, six standard deviations of the slab and six around the mode: the
# trapezoid rule has all the digits of a smooth integrand that vanishes at both ends
_STEP, _REACH = 0.1, 6.0
# steps of log w between which log p(y | w) of many units is a cubic spline: all along, and about
# its largest value
_COARSE, _FINE, _ABOUT = 1.0, 0.25, 2.0


class SupportWithGroups(NamedTuple):
    """A support with groups, at the tau_g of largest evidence."""

    w: Array  # (k,) prior precisions: w_g, and those given of the columns of their own
    rss: float  # RSS_w
    variance: Array  # (k,) of the coefficients in units of the noise
    log_size: Array  # log|b_j| of the signals of their own, then log tau_g
    log_integral: float  # log of p(y) under the slab of every tau_g over p(y | w_g), summed
    used: float  # effective degrees of freedom of the groups


def group_evidence(
    part: LeastSquares, groups: Array, kept: Array, own: float, left: float, least: float
) -> SupportWithGroups:
    """Of a support whose columns belong to ``groups``, -1 being a column of its own.

    Columns of their own have the precision ``own``; those that are ``kept`` are signals whose sizes
    the slab is fitted to. ``left`` is l, ``least`` the least spread of the slab.
    """
    members = [np.flatnonzero(groups == g) for g in np.unique(groups[groups >= 0])]
    w, log_tau = np.where(groups < 0, own, 1.0), np.zeros(len(members))  # tau_g as the noise
    slab, sizes = (0.0, least), np.zeros(0)
    for _ in range(_ROUNDS):
        before = log_tau.copy()
        at = GroupPosterior.of(part, w, left)
        sizes = at.sizes(kept)
        for g, columns in enumerate(members):
            log_tau[g] = _Profile.of(at, columns).mode(at, *slab)
            # w_g = sigma^2/tau_g^2
            w[columns] = at.noise * math.exp(-2.0 * log_tau[g])
        every = np.append(sizes, log_tau)
        slab = float(every.mean()), max(float(every.var()), least)
        if np.max(np.abs(log_tau - before)) <= _STEP:
            break
    at = GroupPosterior.of(part, w, left)
    profiles = [_Profile.of(at, columns) for columns in members]
    log_tau = np.array([0.5 * math.log(at.noise / w[columns[0]]) for columns in members])
    both = zip(profiles, log_tau, strict=True)
    total = sum(profile.log_integral(at, *slab, mode) for profile, mode in both)
    used = sum(profile.degrees for profile in profiles)
    return SupportWithGroups(
        w, at.rss, at.variance, np.append(at.sizes(kept), log_tau), total, used
    )


class GroupPosterior(NamedTuple):
    """The coefficients at prior precisions w."""

    part: LeastSquares
    w: Array
    inverse: Array | None  # A^-1; None: of many units
    mean: Array
    variance: Array  # diagonal of A^-1
    rss: float  # RSS_w
    left: float

    @classmethod
    def of(cls, part: LeastSquares, w: Array, left: float) -> "GroupPosterior":
        inverse = None if isinstance(part, UnitGram) else part.inverse(w)
        if inverse is None:
            ridge = part.ridge(w)
            mean, variance = ridge.mean, ridge.variance
        else:
            mean, variance = inverse @ part.scores, np.diag(inverse).copy()
        return cls(part, w.copy(), inverse, mean, variance, at_least(part, mean), left)

    def block(self, columns: Array) -> Array:
        """A^-1 of some columns."""
        if self.inverse is None:
            assert isinstance(self.part, UnitGram)
            return self.part.inverse_of(self.w, columns)
        return self.inverse[np.ix_(columns, columns)]

    @property
    def noise(self) -> float:
        """The noise variance."""
        return self.rss / self.left

    def sizes(self, kept: Array) -> Array:
        """log|b_j| of these columns, no less than of their standard errors."""
        square = np.maximum(self.mean**2, self.variance * self.noise)
        return 0.5 * np.log(np.maximum(square[kept], 1e-300))


def at_least(part: LeastSquares, mean: Array) -> float:
    """RSS_w at a posterior mean, above rounding."""
    return max(part.yy - float(mean @ part.scores), 1e-12 * part.yy, 1e-300)


@dataclass(frozen=True)
class _Profile:
    """p(y | w_g) of one group as a function of w_g, all else held."""

    w: float  # at which the others were adjusted

    @classmethod
    def of(cls, at: GroupPosterior, columns: Array) -> "_Profile":
        part = at.part
        if isinstance(part, UnitGram) and part.has_units(columns):
            return _OfUnits(float(at.w[columns[0]]), at, columns)
        return _OfColumns.of(at, columns)

    @property
    def degrees(self) -> float:
        """tr[S_g (S_g + w I)^-1]."""
        raise NotImplementedError

    def log_density(self, w: Array, left: float) -> Array:
        """log p(y | w) but for a constant, at several w."""
        raise NotImplementedError

    def mode(self, at: GroupPosterior, mean: float, spread: float) -> float:
        """log tau where p(y | w) times the slab is largest."""
        data = 0.5 * math.log(at.noise)  # effects as large as the noise
        reach = _REACH + abs(mean - data)
        t = np.arange(data - reach, data + reach, _STEP)
        return float(t[np.argmax(self._with_slab(t, at, mean, spread))])

    def log_integral(self, at: GroupPosterior, mean: float, spread: float, mode: float) -> float:
        """The log of the integral of p(y | w) over the slab, relative to p(y) at the mode."""
        reach = _REACH * math.sqrt(spread)
        t = np.arange(min(mean - reach, mode - _REACH), max(mean + reach, mode + _REACH), _STEP)
        integrand = self._with_slab(t, at, mean, spread)
        here = float(self.log_density(np.array([self.w]), at.left)[0])
        return float(logsumexp(integrand)) + math.log(_STEP) - here

    def _with_slab(self, t: Array, at: GroupPosterior, mean: float, spread: float) -> Array:
        slab = -0.5 * ((t - mean) ** 2 / spread + math.log(2.0 * math.pi * spread))
        return self.log_density(at.noise * np.exp(-2.0 * t), at.left) + slab


@dataclass(frozen=True)
class _OfColumns(_Profile):
    """From the eigenvalues of S_g."""

    values: Array  # eigenvalues of S_g
    scores: Array  # squares of the scores about b_g, along the eigenvectors
    rest: float  # RSS without the group

    @classmethod
    def of(cls, at: GroupPosterior, columns: Array) -> "_OfColumns":
        w = float(at.w[columns[0]])
        # (A^-1)_gg = (S_g + w I)^-1, and b_g = (S_g + w I)^-1 q_g
        values, vectors = np.linalg.eigh(at.block(columns))
        total = 1.0 / np.maximum(values, 1e-300)
        q = total * (vectors.T @ at.mean[columns])
        rest = at.rss + float((q * q) @ (1.0 / total))
        return cls(w, np.maximum(total - w, 0.0), q * q, rest)

    @property
    def degrees(self) -> float:
        return float((self.values / (self.values + self.w)).sum())

    def log_density(self, w: Array, left: float) -> Array:
        w = np.atleast_1d(w)
        total = self.values + w[:, None]
        rss = np.maximum(self.rest - (self.scores / total).sum(axis=1), 1e-12 * self.rest)
        return -0.5 * left * np.log(rss) - 0.5 * np.log1p(self.values / w[:, None]).sum(axis=1)


@dataclass(frozen=True)
class _OfUnits(_Profile):
    """The effects of many units: by elimination at some w, and splines between them."""

    at: GroupPosterior
    columns: Array

    @property
    def degrees(self) -> float:
        return float(np.sum(1.0 - self.w * self.at.variance[self.columns]))

    def log_density(self, w: Array, left: float) -> Array:
        log_w = np.log(np.atleast_1d(w))
        if len(log_w) == 1:
            return np.array([self._exact(float(log_w[0]), left)])
        low, high = float(log_w.min()), float(log_w.max())
        knots = np.linspace(low, high, max(int(np.ceil((high - low) / _COARSE)), 3) + 1)
        values = np.array([self._exact(one, left) for one in knots])
        best = knots[int(np.argmax(values))]
        finer = np.arange(max(best - _ABOUT, low), min(best + _ABOUT, high), _FINE)
        finer = finer[np.abs(finer[:, None] - knots).min(axis=1) > 1e-9]
        every = np.append(knots, finer)
        values = np.append(values, [self._exact(float(one), left) for one in finer])
        order = np.argsort(every)
        return np.asarray(CubicSpline(every[order], values[order])(log_w))

    def _exact(self, log_w: float, left: float) -> float:
        part = self.at.part
        assert isinstance(part, UnitGram)
        w = self.at.w.copy()
        w[self.columns] = math.exp(log_w)
        mean, log_det = part.marginal(w)
        log_det -= len(self.columns) * log_w
        return -0.5 * left * math.log(at_least(part, mean)) - 0.5 * log_det

"""Intervals with a frequentist guarantee that are short where a sparse prior expects the value.

Of all tests of b_j = theta whose acceptance region is an interval, take the one that is expected to
accept least under a working prior (Pratt 1963; Hoff and Yu 2019); the values that are accepted are
the interval. The region has the probability ``level`` whatever the prior says, as long as the prior
is independent of the pivot. So the prior of column j is fitted to the other columns, with the
share of the estimates that depends on b_j taken out; and the unit of noise is that of the
hypothesis, sigma_theta^2 = (RSS + (b_j - theta)^2/V_jj)/(df + 1), which is independent of the pivot
where theta is true (Basu) and costs no degree of freedom.
"""

from functools import lru_cache

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri, stdtr, stdtrit

from soubayes.sparse.constants import LARGEST_SPLIT, SPREADS
from soubayes.sparse.intervals.estimates import ColumnEstimates

Array = np.ndarray

# the working prior in standard errors: (1 - share) at 0, and a slab with heavy tails
SHARES = expit(np.linspace(-6.0, 2.0, 9))
SCALES = 2.0 ** np.arange(-0.5, 6.0)
NULL_VALUES = np.sinh(np.linspace(0.0, 5.3, 61))  # |theta|, up to 100 standard errors
SPLITS = np.linspace(0.0, LARGEST_SPLIT, 61)  # log odds of the lower tail's share of 1 - level
BINS = np.sinh(np.linspace(0.0, 5.3, 161))  # |z| of the other columns
NOISE_STEP = 0.2  # of log(noise) between two fits of the prior
SCAN = 201  # pivots that are tried before the ends are bisected
PIVOT_HALVINGS = 42  # of a bracket: to the last digits of float64


def fab_intervals(given: ColumnEstimates, level: float) -> tuple[Array, Array]:
    """Lower and upper ends for every column; a region in pieces is given as its hull."""
    lower, upper = np.full((2, len(given.value)), np.inf) * [[-1.0], [1.0]]
    exact = given.se == 0.0
    lower[exact] = upper[exact] = given.value[exact]
    use = np.flatnonzero((given.se > 0.0) & np.isfinite(given.se))
    if not len(use):
        return lower, upper
    value, se = given.value[use], given.se[use]
    R = None if given.correlation is None else given.correlation[np.ix_(use, use)]
    table = _Table(value / se, given.degrees, 1.0 - level, R, given.lean)
    low, high = table.ends()
    lower[use], upper[use] = value - high * se, value - low * se
    return lower, upper


class _Table:
    """The tests of all columns: z in standard errors, R the correlations of the estimates."""

    def __init__(self, z: Array, degrees: float, alpha: float, R: Array | None, lean: float):
        self.z, self.degrees, self.alpha = z, degrees, alpha
        self.pivots = np.linspace(0.0, float(-logit(alpha * expit(-SPLITS[-1]))), SCAN // 2 + 1)
        self.pivots = np.concatenate([-self.pivots[:0:-1], self.pivots])  # log odds of P(T < t)
        others, use = _others(z, R)
        known = np.isinf(degrees)
        # the reference of the noise is a function of the other columns alone, as the prior is
        square = np.sum(np.where(use, others**2, 0.0), axis=1) / np.maximum(use.sum(axis=1), 1)
        self.reference = np.where(
            square > 0.0, 0.5 * np.log(np.where(square > 0, square, 1.0)), 0.0
        )
        if known:
            self.first, count = np.zeros(len(z)), 1
        else:
            ends = self._log_noise(np.array([0.0, self._pivot(self.pivots[-1])]))
            first, last = (np.floor((end - self.reference) / NOISE_STEP) for end in ends)
            self.first, count = first, int(np.max(last - first)) + 2
        rows = []
        for i in range(count):
            log_noise = 0.0 if known else (self.reference + NOISE_STEP * (self.first + i))[:, None]
            share, scale = _fitted_prior(np.abs(others) * np.exp(-log_noise), use)
            rows.append(_splits_of(share, scale, degrees, alpha))
        self.splits = lean * np.stack(rows, axis=1)  # (p, noises, values)

    def ends(self) -> tuple[Array, Array]:
        """The least and the largest pivot (b_j - theta)/se that is accepted."""
        p = len(self.z)
        inside = self._accepts(np.broadcast_to(self.pivots, (p, SCAN)))
        first, last = inside.argmax(axis=1), SCAN - 1 - inside[:, ::-1].argmax(axis=1)
        low = self._bisected(self.pivots[np.maximum(first - 1, 0)], self.pivots[first])
        high = self._bisected(self.pivots[np.minimum(last + 1, SCAN - 1)], self.pivots[last])
        return self._pivot(low), self._pivot(high)

    def _bisected(self, outside: Array, inside: Array) -> Array:
        for _ in range(PIVOT_HALVINGS):
            middle = 0.5 * (outside + inside)
            yes = self._accepts(middle[:, None])[:, 0]
            outside, inside = np.where(yes, outside, middle), np.where(yes, middle, inside)
        return inside

    def _accepts(self, odds: Array) -> Array:
        """Whether theta = b_j - t se is accepted, with t at these log odds of P(T < t)."""
        t = self._pivot(odds)
        noise = self._log_noise(t)
        theta = (self.z[:, None] - t) * np.exp(-noise)
        lower = expit(np.sign(theta) * self._split(np.abs(theta), noise))  # share of the lower tail
        return (expit(odds) >= self.alpha * lower) & (expit(-odds) >= self.alpha * (1.0 - lower))

    def _pivot(self, odds: Array | float) -> Array:
        """t with these log odds of P(T < t)."""
        return -np.sign(odds) * _quantile(expit(-np.abs(odds)), self.degrees)

    def _log_noise(self, t: Array) -> Array:
        """log(sigma_theta/s)."""
        if np.isinf(self.degrees):
            return np.zeros_like(t)
        return 0.5 * np.log((self.degrees + t**2) / (self.degrees + 1.0))

    def _split(self, theta: Array, noise: Array) -> Array:
        """Log odds of the lower tail, linear between values of theta and of the noise."""
        rows = np.arange(len(self.z))[:, None]
        v, at_value = _place(theta, NULL_VALUES)
        position = (noise - self.reference[:, None]) / NOISE_STEP - self.first[:, None]
        last = self.splits.shape[1] - 1
        if not last:
            return _between(self.splits[rows, 0, v], self.splits[rows, 0, v + 1], at_value)
        n = np.clip(np.floor(position), 0, last - 1).astype(int)
        at_noise = np.clip(position - n, 0.0, 1.0)
        low = _between(self.splits[rows, n, v], self.splits[rows, n + 1, v], at_noise)
        high = _between(self.splits[rows, n, v + 1], self.splits[rows, n + 1, v + 1], at_noise)
        return _between(low, high, at_value)


def _others(z: Array, R: Array | None) -> tuple[Array, Array]:
    """Row j: the other estimates with what depends on z_j taken out, and which there are."""
    p = len(z)
    if R is None:
        return np.broadcast_to(z, (p, p)), ~np.eye(p, dtype=bool)
    left = 1.0 - R**2
    use = left > 1e-9
    np.fill_diagonal(use, False)
    return (z[None, :] - R * z[:, None]) / np.sqrt(np.where(use, left, 1.0)), use


def _fitted_prior(size: Array, use: Array) -> tuple[Array, Array]:
    """Log odds of the share and log scale for each row of |z|: their means given the row."""
    p = len(size)
    i, at = _place(size, BINS)
    counts = np.zeros(p * len(BINS))
    rows = np.arange(p)[:, None] * len(BINS)
    for place, weight in ((i, 1.0 - at), (i + 1, at)):
        counts += np.bincount((rows + place)[use], weight[use], len(counts))
    fit = counts.reshape(p, -1) @ _log_marginals().reshape(-1, len(BINS)).T
    weight = np.exp(fit - fit.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    share, scale = np.meshgrid(logit(SHARES), np.log(SCALES), indexing="ij")
    return weight @ share.ravel(), weight @ scale.ravel()


@lru_cache(maxsize=1)
def _log_marginals() -> Array:
    """log of the working marginal over the null density at BINS, (shares, scales, bins)."""
    spread = np.sqrt(1.0 + np.square(np.multiply.outer(SCALES, SPREADS)))[..., None]
    log_ratio = 0.5 * BINS**2 * (1.0 - 1.0 / spread**2) - np.log(spread)
    slab = np.logaddexp.reduce(log_ratio, axis=1) - np.log(len(SPREADS))
    share = SHARES[:, None, None]
    return np.logaddexp(np.log1p(-share), np.log(share) + slab)


def _splits_of(share: Array, scale: Array, degrees: float, alpha: float) -> Array:
    """(p, values): the table of regions, linear in the log odds of the share and the log scale."""
    table = _regions(degrees, alpha)
    a, at_share = _place(share, logit(SHARES))
    b, at_scale = _place(scale, np.log(SCALES))
    at_share, at_scale = at_share[:, None], at_scale[:, None]
    low = _between(table[a, b], table[a, b + 1], at_scale)
    high = _between(table[a + 1, b], table[a + 1, b + 1], at_scale)
    return _between(low, high, at_share)


@lru_cache(maxsize=32)
def _regions(degrees: float, alpha: float) -> Array:
    """Log odds of the lower tail's share that minimise the probability of acceptance under the
    working marginal, (shares, scales, values).

    The estimate itself is always accepted: no tail has more than one half.
    """
    splits = SPLITS[alpha * expit(SPLITS) <= 0.5]
    lower, upper = alpha * expit(splits), alpha * expit(-splits)
    low = NULL_VALUES[:, None] + _quantile(lower, degrees)
    high = NULL_VALUES[:, None] - _quantile(upper, degrees)
    if np.isinf(degrees):
        null = ndtr(high) - ndtr(low)
    else:
        null = stdtr(degrees, high) - stdtr(degrees, low)
    regions = np.empty((len(SHARES), len(SCALES), len(NULL_VALUES)))
    for b, scale in enumerate(SCALES):
        slab = np.zeros_like(null)
        for spread in np.sqrt(1.0 + (SPREADS * scale) ** 2):
            slab += (ndtr(high / spread) - ndtr(low / spread)) / len(SPREADS)
        for a, share in enumerate(SHARES):
            regions[a, b] = splits[np.argmin((1.0 - share) * null + share * slab, axis=1)]
    regions[:, :, 0] = 0.0  # theta = 0 is symmetric
    return regions


def _quantile(tail: Array, degrees: float) -> Array:
    return np.asarray(ndtri(tail) if np.isinf(degrees) else stdtrit(degrees, tail))


def _place(x: Array, grid: Array) -> tuple[Array, Array]:
    """The interval of the grid that x is in, and where; beyond the grid its ends."""
    i = np.clip(np.searchsorted(grid, x) - 1, 0, len(grid) - 2)
    return i, np.clip((x - grid[i]) / (grid[i + 1] - grid[i]), 0.0, 1.0)


def _between(a: Array, b: Array, at: Array) -> Array:
    return a + at * (b - a)

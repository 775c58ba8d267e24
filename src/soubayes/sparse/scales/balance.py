"""Which columns share a tau, and how a prior precision is split between tau and nu."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from soubayes.sparse.scales.base import LAST_STEP, Scale, ScalePrior, as_floats, newton_root

Array = np.ndarray


class Groups(NamedTuple):
    """Columns that share a tau have one number; numbers are 0, 1, ... in order of appearance.

    >>> pair = Groups.of([7, 3, 7])
    >>> pair.total(np.array([1.0, 2.0, 3.0])), pair.each(np.array([5.0, 6.0]))
    (array([4., 2.]), array([5., 6., 5.]))
    """

    number: Array  # (columns,)
    n_groups: int
    alone: bool  # every column has a tau of its own, so nothing needs to be summed

    @classmethod
    def of(cls, labels: Sequence[object] | Array) -> "Groups":
        """Columns with equal labels share a tau."""
        _, first, number = np.unique(np.asarray(labels), return_index=True, return_inverse=True)
        rank = np.empty(len(first), int)
        rank[np.argsort(first)] = np.arange(len(first))
        return cls(rank[number.ravel()], len(first), len(first) == len(number))

    @classmethod
    def single(cls, count: int) -> "Groups":
        """One column in each group, the paper's model."""
        return cls(np.arange(count), count, True)

    @property
    def sizes(self) -> Array:
        """The number of columns of each group."""
        return np.bincount(self.number, minlength=self.n_groups).astype(float)

    def take(self, columns: Array) -> "Groups":
        """Of some columns, given by a mask or ascending indices."""
        inside = self.number[columns]
        return Groups.single(len(inside)) if self.alone else Groups.of(inside)

    def total(self, values: Array) -> Array:
        """The sum over the columns of each group."""
        if self.alone:
            return values
        return np.bincount(self.number, values, self.n_groups)

    def sum(self, values: Array) -> Array:
        """The sum over its group, for every column."""
        return values if self.alone else self.each(self.total(values))

    def mean(self, values: Array) -> Array:
        """The mean over its group, for every column."""
        return values if self.alone else self.each(self.total(values) / self.sizes)

    def most(self, values: Array) -> Array:
        """The largest value of its group, for every column."""
        if self.alone:
            return values
        largest = np.full(self.n_groups, -np.inf)
        np.maximum.at(largest, self.number, values)
        return self.each(largest)

    def first(self, values: Array) -> Array:
        """Values that agree within a group, one for each group."""
        if self.alone:
            return values
        firsts = np.empty(self.n_groups, values.dtype)
        firsts[self.number[::-1]] = values[::-1]
        return firsts

    def each(self, values: Array) -> Array:
        """The value of its group for every column."""
        return values if self.alone else values[self.number]

    def largest(self, values: Array, most: int) -> Array:
        """A mask of the columns of the groups of largest value, at most ``most`` columns.

        ``values`` agree within a group; groups of value 0 or less are left out.
        """
        gains, size = self.first(values), self.sizes
        order = np.argsort(-gains, kind="stable")
        fits = order[np.cumsum(size[order]) <= most]
        chosen = np.zeros(self.n_groups, bool)
        chosen[fits] = gains[fits] > 0.0
        return self.each(chosen)


class ScaleCosts(NamedTuple):
    """What J needs of q(tau_g^2) and q(nu^2)."""

    log_local: Array  # (g,) E[log tau_g^2]
    log_top: float  # E[log nu^2]
    local: Array  # (g,) nats of every tau_g
    top: float  # and of nu


class ScaleModel(NamedTuple):
    """Priors and weights of q(tau_g^2) and q(nu^2)."""

    local_prior: ScalePrior
    global_prior: ScalePrior
    weight: Array  # (g,) sum of the confidences of the columns that share tau_g
    local_confidence: Array  # (g,)
    global_confidence: float

    def split(self, precision: Array, start: Scale | None = None) -> tuple[Scale, Scale]:
        """The best q(tau^2), q(nu^2) with the precisions d_g = E[1/tau_g^2] E[1/nu^2] held.

        The last axis is that of g; a nu each for what stands before it. Only the two KL terms move
        with rho = b_nu/a_nu: for exponential priors rho is the root of
        sum_g gt_g (1 - rate_t kappa_g/(rho d_g)) + gn (rate_n kappa_n rho - 1), kappa = a/(a-1).
        Solving for d and rho instead of tau and nu in turn is what makes the solvers fast.

        >>> from soubayes.sparse.scales.priors import Exponential
        >>> prior, ones = Exponential(10.0), np.ones(3)
        >>> tau, nu = ScaleModel(prior, prior, ones, 1e-9 * ones, 1.0).split(ones)
        >>> bool(np.allclose(tau.mean_inverse * nu.mean_inverse, 1.0))
        True
        """
        if not precision.size:
            return Scale(np.ones(0), np.ones(0)), start or Scale(np.array(2.0), np.array(1.0))
        half = np.asarray(0.5 * self.weight.sum(axis=-1))
        shape = np.maximum(half / self.global_confidence, 2.0)
        nu = start or Scale(shape, np.full_like(shape, 0.1))
        shape = np.maximum(self.weight / (2.0 * self.local_confidence), 2.0)
        tau = Scale(shape, 1.0 / (precision * nu.ratio[..., None]))
        for _ in range(100):
            last = nu
            tau, nu = self.refresh(precision, (tau, nu))
            moved = [np.abs(np.log(new / old)).max() for new, old in zip(nu, last, strict=True)]
            if max(moved) < 1e-7:  # J is flat here: its error is the square of this
                break
        return tau, nu

    def balance(self, precision: Array, held: tuple[Scale, Scale]) -> tuple[Scale, Scale]:
        """The same with the shapes ``held``: only the ratios move."""
        tau, nu = held
        if not precision.size:
            return held

        def slope(t: Array) -> tuple[Array, Array]:
            # rho dJ/drho at fixed precisions, and its derivative in t = log rho
            rho = np.exp(t)
            one, two = self.local_prior.kl_slope(tau.at(1.0 / (precision * rho[..., None])))
            top_one, top_two = self.global_prior.kl_slope(nu.at(rho))
            return (
                self.global_confidence * top_one - (self.local_confidence * one).sum(axis=-1),
                self.global_confidence * top_two + (self.local_confidence * two).sum(axis=-1),
            )

        rho = np.asarray(np.exp(newton_root(slope, np.log(nu.ratio), 80.0)))
        return tau.at(1.0 / (precision * rho[..., None])), nu.at(rho)

    def refresh(self, precision: Array, held: tuple[Scale, Scale]) -> tuple[Scale, Scale]:
        """One round of `split`: ratios for the shapes held, then the best shapes for them.

        One round suffices when the scales start near their optimum.
        """
        local, top = self.balance(precision, held)
        if not precision.size:
            return local, top
        a = self.local_prior.best_shape(local.ratio, self.weight / 2.0, self.local_confidence)
        weight = self.weight.sum(axis=-1) / 2.0
        a_nu = self.global_prior.best_shape(top.ratio, weight, self.global_confidence)
        return Scale(a, local.ratio), Scale(a_nu, top.ratio)

    def coordinate_step(self, local: Scale, top: Scale, energy: Array) -> tuple[Scale, Scale]:
        """Algorithm 1: tau, then nu; ``energy`` sums gamma_b E[beta_j^2 (/ sigma^2)] of a group."""
        if not len(self.weight):
            return local, top
        half = self.weight / 2.0
        local = self.local_prior.coordinate_step(
            local, half, 0.5 * energy * top.mean_inverse, self.local_confidence
        )
        pull = 0.5 * float(energy @ local.mean_inverse)
        top = self.global_prior.coordinate_step(top, half.sum(), pull, self.global_confidence)
        return local, top

    def kl(self, local: Scale, top: Scale) -> tuple[Array, float]:
        """Nats of every tau_g, and of nu."""
        if not len(self.weight):
            return np.zeros(0), 0.0
        return self.local_prior.kl(local), float(self.global_prior.kl(top))

    def costs(self, local: Scale, top: Scale) -> ScaleCosts:
        """What J needs of these scales."""
        return ScaleCosts(local.mean_log, float(top.mean_log), *self.kl(local, top))

    def costs_of_each(self, local: Scale, top: Scale) -> list[ScaleCosts]:
        """The same of several nu, with a leading axis of ``local`` for each."""
        if not self.weight.size:
            pairs = zip(map(Scale, *local), map(Scale, *top), strict=True)
            return [self.costs(*pair) for pair in pairs]
        parts = local.mean_log, top.mean_log, self.local_prior.kl(local), self.global_prior.kl(top)
        return [ScaleCosts(a, float(b), c, float(d)) for a, b, c, d in zip(*parts, strict=True)]

    def value(self, local: Scale, top: Scale) -> float:
        """The scales' part of J, without their share in E[beta_j^2] d_j."""
        if not len(self.weight):
            return 0.0
        log_tau = self.weight @ (local.mean_log + top.mean_log) / 2.0
        local_kl, common = self.kl(local, top)
        return float(log_tau + self.local_confidence @ local_kl + self.global_confidence * common)


ROUGH_ROOT = 2e-4  # where a root need not be nearer, as in a fold, its start may do
MOST_PULL = 20.0  # KL' differs from its constant by less than half of this times M/w (rate 10)


def stationary_precision(
    prior: ScalePrior,
    s: ArrayLike,
    signal: ArrayLike,
    ratio: ArrayLike,
    limit: ArrayLike,
    shape: ArrayLike,
    groups: Groups | None = None,
    near: float = LAST_STEP,
) -> Array:
    """The prior precision w = gamma_b u_j at which J, with beta profiled out, is stationary.

    One scale, everything else held: the posterior precision of a column is s + w and its mean
    q/(s + w) in units where the noise is 1. With Q = ``signal`` = E[1/sigma^2] q^2 / gamma_b,
    g = ``ratio`` = gamma_t/gamma_b, M = ``limit`` = gamma_b E[1/nu^2], and the sum over the columns
    that share the scale, w solves

        sum_j [ s_j/(s_j + w) - Q_j w/(s_j + w)^2 ] = -2 g KL'(M/w),

    KL' the derivative in log(ratio) of KL(q(tau^2) || prior) at ``shape`` and ratio M/w: for the
    exponential prior -1 + rate a/(a-1) M/w, for the half-Cauchy -1/2 + M/(w + M). As g -> 0 this is
    w = s^2/(Q - s) when Q > s and (s - Q)/(2g), a coefficient that is practically zero, when not:
    the confidence in beta is a threshold on z^2 = gamma_b Q/s. ``near``: see `newton_root`.

    >>> from soubayes.sparse.scales.priors import Exponential
    >>> w = stationary_precision(Exponential(10.0), 4.0, np.array([8.0, 2.0]), 1e-9, 1.0, 1e9)
    >>> [f"{x:.4g}" for x in w]
    ['4', '1e+09']
    """
    if groups is not None:
        return _stationary_of_groups(prior, groups, *as_floats(s, signal, ratio, limit, shape))
    # (1) of docs/development/solver.md in units of s: x = w/s is the unknown
    s, g, a = np.asarray(s), np.asarray(ratio), np.asarray(shape)
    z, top, twice = signal / s, limit / s, 2.0 * g

    def balance(t: Array) -> tuple[Array, Array]:
        x = np.exp(t)  # w / s
        up = 1.0 / (1.0 + x)
        kappa = x * up
        bend = kappa * up
        one, two = prior.kl_slope(Scale(a, top / x))
        value = z * bend - up - twice * one
        return value, bend * (1.0 + z * (1.0 - 2.0 * kappa)) + twice * two

    start = _without_pull(prior, z, g, a)
    if near > ROUGH_ROOT:
        off = MOST_PULL * g * top * np.exp(-start)
        if float(off.max(initial=0.0)) < near:
            return s * np.exp(start)
    return s * np.exp(newton_root(balance, start, 60.0, near))


def _without_pull(prior: ScalePrior, z: Array, g: Array, a: Array) -> Array:
    """log(w/s) without the prior's pull on large scales: exact for small g, a start otherwise."""
    # at small ratios KL' is a constant c: (1) is quadratic in x, with low = -2 g c
    low = np.minimum(-2.0 * g * prior.kl_slope(Scale(a, np.asarray(1e-300)))[0], 0.9)
    up, excess = 2.0 * (1.0 - low), z + (2.0 * low - 1.0)
    return np.log(up / (excess + np.sqrt(excess * excess + 2.0 * low * up)))


def _stationary_of_groups(
    prior: ScalePrior, groups: Groups, s: Array, Q: Array, g: Array, M: Array, a: Array
) -> Array:
    """The same with columns that share a scale; ``g``, ``M`` and ``a`` agree within a group."""
    size = groups.sizes
    own_g, own_M, own_a = groups.first(g), groups.first(M), groups.first(a)

    def balance(t: Array) -> tuple[Array, Array]:
        w = groups.each(np.exp(t))
        up, x = s / (s + w), w / s
        one, two = prior.kl_slope(Scale(own_a, own_M / np.exp(t)))
        slope = Q / s * x * up * up - up
        change = x * up * up * (1.0 + Q / s * (1.0 - 2.0 * x * up))
        return groups.total(slope) - 2.0 * own_g * one, groups.total(change) + 2.0 * own_g * two

    mean_s = groups.total(s) / size
    start = np.log(mean_s) + _without_pull(prior, groups.total(Q) / size / mean_s, own_g, own_a)
    return groups.each(np.exp(newton_root(balance, start, 60.0)))

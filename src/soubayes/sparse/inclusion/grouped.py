"""The posterior over supports where columns come and go in groups.

A group that carries an effect has coefficients N(0, V I) with one V of the slab. As in
`product.py`, a group is decided on with the coefficients of all others integrated out; in place of
s and q of a column there are the matrix S = X_g' Omega^-1 X_g and the vector q = X_g' Omega^-1 y.
In the sweeps every group is an effect of its own. In the end each probable group shares its effect
with the groups that could take its place.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import expit

from soubayes.sparse.constants import CLAIM, FEWEST_DEGREES, LEAVE
from soubayes.sparse.inclusion.field import Field, Quadratic
from soubayes.sparse.inclusion.priors import (
    SizePrior,
    Slab,
    default_slab,
    log_normal_slab,
    log_sum,
    stand_ins,
)

Array = np.ndarray

GROUP_SIZES = SizePrior()
SHARED = 1e-3  # share of an effect below which a group does not stand in for another
GROUP_SWEEPS = 100  # over all groups
BETTER = 0.1  # log Bayes factor by which another group must explain more to take an effect over
EXCHANGES = 10  # rounds in which a group may give its effect to one that explains more


class GroupOdds(NamedTuple):
    """Groups of one size, each given all others; the first axis is that of the groups."""

    log_bayes: Array  # log p(y | effect)/p(y | none), averaged over the slab
    inside: Array  # (., m) posterior weights of the slab's components
    mean: Array  # (., columns) of the coefficients if the group carries an effect
    spread: Array  # (., columns, columns) of their covariance, in units of the noise
    between: Array  # (., columns, columns) the part of it that is between components
    statistic: Array  # q'S^-1 q, what the group explains without a prior
    rank: Array
    shrunk: Array  # (., 2) averages of the posterior variance, and of information times it


class GroupShare(NamedTuple):
    """A group that carries an effect with probability ``weight``, and its coefficients then."""

    group: int
    weight: float
    mean: Array  # (columns,) standardised
    covariance: Array
    p_value: float  # of what it explains, the effects of all others integrated out


class GroupProduct(NamedTuple):
    """Effects, each shared by the groups that may carry it, likeliest first."""

    number: Array  # (p,) of the group of each column
    effects: list[list[GroupShare]]
    faint: list[GroupShare]  # groups that may carry an effect of their own besides
    alike: list[Array]  # of each effect: correlations between its groups
    p_value: Array  # (groups,)
    variance: Array  # (p,) d in Omega
    degrees: float
    converged: bool

    @property
    def probability(self) -> Array:
        """(groups,): 1 - prod_l (1 - alpha_lg)."""
        left = np.ones(len(self.p_value))
        for share in (*self.faint, *(one for effect in self.effects for one in effect)):
            left[share.group] *= 1.0 - share.weight
        return 1.0 - left

    @property
    def average(self) -> Array:
        """The standardised coefficients averaged over supports."""
        total = np.zeros(len(self.number))
        for share in (*self.faint, *(one for effect in self.effects for one in effect)):
            total[self.number == share.group] += share.weight * share.mean
        return total

    @property
    def start(self) -> tuple[Array, Array]:
        """Columns with an effect and their variances, to begin another product with."""
        columns = np.flatnonzero(self.variance)
        return columns, self.variance[columns]

    def turned(self, own: Array) -> "GroupProduct":
        """Of the combination ``own`` of the coordinates of every column, which are neighbours."""
        d = len(own)

        def one(share: GroupShare) -> GroupShare:
            k = len(share.mean) // d
            covariance = np.einsum(
                "iajb,a,b->ij", share.covariance.reshape(k, d, k, d), own, own, optimize=True
            )
            return share._replace(mean=share.mean.reshape(k, d) @ own, covariance=covariance)

        return self._replace(
            number=self.number[::d],
            effects=[[one(share) for share in effect] for effect in self.effects],
            faint=[one(share) for share in self.faint],
            variance=self.variance[::d],
        )


class _Members(NamedTuple):
    """Groups of one size."""

    groups: Array
    columns: Array  # (groups, columns)
    grams: Array  # (groups, columns, columns) of X'X


def fit_groups(
    data: Quadratic,
    number: Array,
    start: tuple[Array, Array],
    *,
    always: Array,
    widest: float = np.inf,
    tol: float = 1e-3,
) -> GroupProduct:
    """Sweep over the groups until no probability changes.

    ``always`` are prior variances of columns that are in every support; groups of such columns
    have the probability 1.
    """
    state = _GroupSweeper(data, number, start, always, default_slab(data.n, widest))
    converged = state.settle(tol)
    for _ in range(EXCHANGES):
        if not state.exchange():
            break
        converged = state.settle(tol)
    return state.product(converged)


class _GroupSweeper:
    """Every group's probability, its variance in Omega, and the prior odds."""

    def __init__(
        self, data: Quadratic, number: Array, start: tuple[Array, Array], always: Array, slab: Slab
    ) -> None:
        self.data, self.number, self.slab, self.field = data, number, slab, Field(data)
        count = int(number.max()) + 1
        self.own = np.split(np.argsort(number, kind="stable"), np.cumsum(np.bincount(number))[:-1])
        sizes = np.array([len(members) for members in self.own])
        self.alike = [self._of_size(np.flatnonzero(sizes == size)) for size in np.unique(sizes)]
        self.place = np.empty((count, 2), int)  # of a group: which size, and where in it
        for k, same in enumerate(self.alike):
            self.place[same.groups, 0] = k
            self.place[same.groups, 1] = np.arange(len(same.groups))
        kept = np.bincount(number, always > 0.0) > 0.0
        self.use = (np.bincount(number, data.norms > 1e-9 * data.n) > 0.0) & ~kept
        d = always.copy()
        d[start[0]] += np.where(self.use[number[start[0]]], start[1], 0.0)
        self.d = np.bincount(number, d) / sizes  # one variance for each group
        self.alpha = np.where(self.use, self.d > 0.0, kept).astype(float)
        self.odds = np.zeros(count)
        self.field.reset(self.d[number])
        self._weigh_sizes(self._log_bayes(self._look_all()))

    def _of_size(self, groups: Array) -> _Members:
        columns = np.stack([self.own[g] for g in groups])
        return _Members(
            groups, columns, np.stack([self.data.within(members) for members in columns])
        )

    def settle(self, tol: float) -> bool:
        """Sweep until no probability changes by more than ``tol``; whether that was reached."""
        for sweep in range(GROUP_SWEEPS):
            before = self.alpha.copy()
            self.sweep(1.0 if sweep < 20 else 0.5)
            if sweep > 1 and float(np.abs(self.alpha - before).max()) < tol:
                return True
        return False

    def exchange(self) -> bool:
        """Give effects to groups that are likelier to carry them; whether there was one.

        Sweeps change one group at a time, so they never leave a group for a better stand-in.
        """
        moved = False
        for g in np.flatnonzero((self.alpha >= CLAIM) & self.use).tolist():
            d, alpha = self.d[g], self.alpha[g]
            self._set(g, 0.0)
            log_bayes = self._log_bayes(self._look_all())
            best = int(np.argmax(np.where(self._free(g), log_bayes, -np.inf)))
            if log_bayes[best] > log_bayes[g] + BETTER:
                self.alpha[g], self.alpha[best], moved = 0.0, alpha, True
                g = best
            self._set(g, d)
        return moved

    def _look_all(self) -> list[GroupOdds]:
        return [self._look(same) for same in self.alike]

    def _log_bayes(self, each: Sequence[GroupOdds]) -> Array:
        """Of every group against no effect."""
        log_bayes = np.empty(len(self.own))
        for same, evidence in zip(self.alike, each, strict=True):
            log_bayes[same.groups] = evidence.log_bayes
        return log_bayes

    def _free(self, top: int) -> Array:
        """Groups that may carry the effect of ``top``: itself, and those without an effect."""
        free = self.use & (self.alpha < CLAIM)
        free[top] = True
        return free

    def sweep(self, step: float) -> None:
        """Update the groups that may be in Omega in turn, all others at once; then the priors."""
        self.field.reset(self.d[self.number])
        log_bayes = np.zeros(len(self.own))
        counts = np.zeros(len(self.slab.variance))
        for same in self.alike:
            odds = self._look(same)
            goal = expit(odds.log_bayes + self.odds[same.groups])
            calm = ~self.use[same.groups] | ((self.d[same.groups] == 0.0) & (goal < CLAIM))
            for i, g in enumerate(same.groups):
                if not calm[i]:
                    one = self._look(same, i)
                    for whole, new in zip(odds, one, strict=True):
                        whole[i] = new[0]
                    self._update(g, one, step)
            quiet = same.groups[calm & self.use[same.groups]]
            self.alpha[quiet] = goal[calm & self.use[same.groups]]
            log_bayes[same.groups] = odds.log_bayes
            counts += np.where(self.use, self.alpha, 0.0)[same.groups] @ odds.inside
        self._weigh_sizes(log_bayes)
        self.slab = log_normal_slab(self.data.n, counts)

    def _weigh_sizes(self, log_bayes: Array) -> None:
        """The prior odds of every group, from the Bayes factors of all others."""
        if self.use.any():
            self.odds[self.use] = GROUP_SIZES.log_odds(log_bayes[self.use], int(self.use.sum()))

    def _update(self, g: int, one: GroupOdds, step: float) -> None:
        """A group's probability, and the variance at which ridge regression shrinks as much."""
        goal = float(expit(one.log_bayes[0] + self.odds[g]))
        self.alpha[g] += step * (goal - self.alpha[g])
        new, (T, sT) = 0.0, one.shrunk[0]
        if self.alpha[g] >= (LEAVE if self.d[g] > 0.0 else CLAIM):
            # d with d/(1 + s d) = alpha T, T the average posterior variance
            new = self.alpha[g] * T / max(1.0 - self.alpha[g] * sT, 1e-9)
        if abs(new - self.d[g]) > 1e-6 * max(self.d[g], 1.0 / self.data.n):
            self._set(g, new)

    def _set(self, g: int, d: float) -> None:
        self.field.change(self.own[g], np.full(len(self.own[g]), d - self.d[g]))
        self.d[g] = d

    def _look(self, same: _Members, i: int | None = None) -> GroupOdds:
        """Groups of one size, or one of them, with their own variance taken out of Omega."""
        at = slice(None) if i is None else slice(i, i + 1)
        columns, grams, d = same.columns[at], same.grams[at], self.d[same.groups[at]]
        return look_at_groups(self.field, columns, grams, d, self.slab, self.data.degrees)

    def product(self, converged: bool) -> GroupProduct:
        """The effects of the probable groups, each shared with those that could take its place."""
        self.field.reset(self.d[self.number])
        noise, degrees = 1.0, self.data.degrees
        if not np.isinf(degrees):
            # each effect has a variance of its own, and so uses up what it says about the noise
            used = float(np.bincount(self.number) @ self.alpha)
            # the noise is what is left of y'y, over its degrees of freedom
            noise, degrees = self.field.evidence.rest / degrees, max(degrees - used, FEWEST_DEGREES)
        by_size = self._look_all()
        shares = [
            self._share(g, self.alpha[g], by_size, noise, degrees) for g in range(len(self.own))
        ]
        p_value = np.array([share.p_value for share in shares])
        present = np.flatnonzero(self.alpha >= CLAIM)
        present = present[np.lexsort((p_value[present], -self.alpha[present].round(6)))]
        effects = [self._shared(shares[g], by_size, noise, degrees) for g in present]
        likeliest = self.alpha.copy()
        for share in (one for effect in effects for one in effect):
            if share.weight > likeliest[share.group]:
                likeliest[share.group] = share.weight
                p_value[share.group] = share.p_value
        faint = [share for share in shares if 0.0 < share.weight < CLAIM]
        alike = [self._correlations([share.group for share in effect]) for effect in effects]
        d = self.d[self.number]
        return GroupProduct(self.number, effects, faint, alike, p_value, d, degrees, converged)

    def _share(
        self, g: int, weight: float, each: Sequence[GroupOdds], noise: float, degrees: float
    ) -> GroupShare:
        size, i = self.place[g]
        odds = each[size]
        covariance = noise * odds.spread[i] + odds.between[i]
        statistic, rank = odds.statistic[i] / noise, max(int(odds.rank[i]), 1)
        if np.isinf(degrees):
            chance = float(stats.chi2.sf(statistic, rank))
        else:
            chance = float(stats.f.sf(statistic / rank, rank, degrees))
        return GroupShare(g, float(weight), odds.mean[i], covariance, chance)

    def _shared(
        self, first: GroupShare, each: Sequence[GroupOdds], noise: float, degrees: float
    ) -> list[GroupShare]:
        """The effect of a group, with the groups that explain as much in its place.

        A group's odds that vanish with it are those of taking its place.
        """
        top = first.group
        if not self.use[top]:
            return [first]
        d, (size, i) = self.d[top], self.place[top]
        self._set(top, 0.0)
        alone = self._look_all()
        self._set(top, float(each[size].inside[i] @ self.slab.variance))
        given = self._log_bayes(self._look_all())
        self._set(top, d)
        # all have the prior odds of the place, which is one
        log_bayes = np.where(self._free(top), self._log_bayes(alone), -np.inf)
        weight = np.exp(stand_ins(log_bayes, given, top) - log_bayes[top])
        weight *= self.alpha[top] / weight.sum()  # the sweeps know how probable the effect is
        order = np.argsort(-weight, kind="stable")
        order = order[(weight[order] > SHARED) | (order == top)]
        weight[top] += self.alpha[top] - weight[order].sum()
        return [self._share(int(g), weight[g], alone, noise, degrees) for g in order]

    def _correlations(self, groups: list[int]) -> Array:
        """The first canonical correlation of every pair of groups, in X'X.

        Groups of one size have the sign with which their columns correlate in turn.
        """
        correlations = np.eye(len(groups))
        roots = [_inverse_root(self.data.within(self.own[g])) for g in groups]
        for a, g in enumerate(groups):
            for b in range(a):
                columns = np.sort(np.append(self.own[g], self.own[groups[b]]))
                both = self.data.within(columns)
                cross = both[
                    np.ix_(np.isin(columns, self.own[g]), np.isin(columns, self.own[groups[b]]))
                ]
                # the largest singular value of S_aa^-1/2 S_ab S_bb^-1/2
                size = min(float(np.linalg.norm(roots[a] @ cross @ roots[b], 2)), 1.0)
                turn = cross.shape[0] == cross.shape[1] and np.trace(cross) < 0.0
                correlations[a, b] = correlations[b, a] = -size if turn else size
        return correlations


def look_at_groups(
    field: Field, own: Array, gram: Array, d: Array, slab: Slab, degrees: float
) -> GroupOdds:
    """Groups ``own`` (groups, columns), each with its own variance d taken out of Omega."""
    S, q = field.blocks(own, gram), field.evidence.q[own]
    rest = np.full(len(own), field.evidence.rest)
    out = np.flatnonzero(d)
    if len(out):  # Omega without d X_g X_g'
        So, qo, do = S[out], q[out], d[out, None, None]
        # Woodbury: (Omega - d X_g X_g')^-1 from S = X_g'Omega^-1 X_g
        N = np.linalg.inv(np.eye(own.shape[1]) - do * So) * -do
        pulled = np.einsum("gij,gj->gi", N, qo)
        rest[out] = np.maximum(rest[out] - np.einsum("gi,gi->g", qo, pulled), 1e-300)
        q[out], S[out] = qo - np.einsum("gij,gj->gi", So, pulled), So - So @ N @ So
    values, vectors = np.linalg.eigh((S + S.transpose(0, 2, 1)) / 2.0)
    values = np.maximum(values, 1e-12 * field.data.n)
    turned, V = np.einsum("gij,gi->gj", vectors, q), slab.variance
    spread = 1.0 + V[:, None] * values[:, None, :]  # (groups, m, columns)
    shrunk = V[:, None] / spread
    # what the group explains with variance V: q'(S + 1/V)^-1 q, in the eigenbasis of S
    fall = np.einsum("gmj,gj->gm", shrunk, turned**2)
    log_bayes = np.log(slab.weight) - 0.5 * np.log(spread).sum(axis=2)
    if np.isinf(degrees):
        log_bayes = log_bayes + 0.5 * fall
    else:
        share = np.minimum(fall / rest[:, None], 1.0 - 1e-12)
        log_bayes = log_bayes - 0.5 * degrees * np.log1p(-share)
    # averaged over the slab's variances
    total = log_sum(log_bayes)
    inside = np.exp(log_bayes - total[:, None])
    # E[b | V] = (S + 1/V)^-1 q
    means = np.einsum("gmj,gij->gmi", shrunk * turned[:, None, :], vectors)
    mean = np.einsum("gm,gmi->gi", inside, means)
    off, kept = means - mean[:, None, :], np.einsum("gm,gmj->gj", inside, shrunk)
    strong = values > 1e-9 * field.data.n
    return GroupOdds(
        total,
        inside,
        mean,
        (vectors * kept[:, None, :]) @ vectors.transpose(0, 2, 1),
        (off * inside[:, :, None]).transpose(0, 2, 1) @ off,
        np.where(strong, turned**2 / values, 0.0).sum(axis=1),
        strong.sum(axis=1),
        np.stack([kept.mean(axis=1), (kept * values).mean(axis=1)], axis=1),
    )


def _inverse_root(gram: Array) -> Array:
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-9 * max(float(values[-1]), 1e-300)
    root = np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    return (vectors * root) @ vectors.T

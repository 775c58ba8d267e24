"""The posterior over supports where columns come and go in groups.

A group that carries an effect has coefficients N(0, V I) with one V of the slab. As in
`product.py`, a group is decided on with the coefficients of all others integrated out; in place of
s and q of a column there are the matrix S = X_g' Omega^-1 X_g and the vector q = X_g' Omega^-1 y.
Groups do not stand in for each other: every group is an effect of its own.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import expit

from soubayes.sparse.inclusion.field import Field, Quadratic
from soubayes.sparse.inclusion.priors import SizePrior, Slab, default_slab, log_normal_slab, log_sum

Array = np.ndarray

GROUP_SIZES = SizePrior()
IN_FIELD = 1e-3  # probability from which a group enters Omega
PRESENT = 0.5  # from which it counts as an effect
GROUP_SWEEPS = 100
FEWEST_DEGREES = 5.0  # of freedom of the noise


class GroupEffect(NamedTuple):
    """One group, given the others."""

    log_bayes: float  # log p(y | effect)/p(y | none), averaged over the slab
    inside: Array  # (m,) posterior weights of the slab's components
    mean: Array  # (columns,) of the coefficients if the group carries an effect
    square: Array  # (columns,) of their standard deviations, in units of the noise
    between: Array  # (columns,) the part of the variance that is between components
    statistic: float  # q'S^-1 q, what the group explains without a prior
    rank: int
    shrunk: tuple[float, float]  # averages of the posterior variance, and of information times it


class GroupProduct(NamedTuple):
    """Every group's probability, and its coefficients if it carries an effect."""

    number: Array  # (p,) of the group of each column
    probability: Array  # (groups,)
    mean: Array  # (p,) standardised
    sd: Array  # (p,)
    p_value: Array  # (groups,)
    variance: Array  # (p,) d in Omega
    degrees: float
    converged: bool

    @property
    def average(self) -> Array:
        """The standardised coefficients averaged over supports."""
        return self.probability[self.number] * self.mean

    @property
    def start(self) -> tuple[Array, Array]:
        """Columns with an effect and their variances, to begin another product with."""
        columns = np.flatnonzero(self.variance)
        return columns, self.variance[columns]


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
    members = [np.flatnonzero(number == g) for g in range(int(number.max()) + 1)]
    use = np.array([bool((data.norms[own] > 1e-9 * data.n).any()) for own in members])
    use &= np.array([not always[own].any() for own in members])
    slab, field = default_slab(data.n, widest), Field(data)
    grams = [data.within(own) for own in members]
    d = always.copy()
    d[start[0]] += np.where(use[number[start[0]]], start[1], 0.0)
    for own in members:
        d[own] = d[own].mean()  # one variance a group
    alpha = np.where(use, (d > 0)[[own[0] for own in members]], 1.0).astype(float)
    alpha[~use & (np.array([always[own].sum() for own in members]) == 0.0)] = 0.0
    odds, converged = np.zeros(len(members)), False
    found: list[GroupEffect] = []
    for sweep in range(GROUP_SWEEPS):
        field.reset(d)
        before, step = alpha.copy(), 1.0 if sweep < 20 else 0.5
        found = []
        for g, own in enumerate(members):
            effect = _look_at_group(field, own, grams[g], d[own[0]], slab, data.degrees)
            found.append(effect)
            if not use[g]:
                continue
            alpha[g] += step * (float(expit(effect.log_bayes + odds[g])) - alpha[g])
            new, (T, sT) = 0.0, effect.shrunk
            if alpha[g] > IN_FIELD:
                new = alpha[g] * T / max(1.0 - alpha[g] * sT, 1e-9)
            if abs(new - d[own[0]]) > 1e-6 * max(d[own[0]], 1.0 / data.n):
                field.change(own, np.full(len(own), new - d[own[0]]))
                d[own] = new
        log_bayes = np.array([effect.log_bayes for effect in found])[use]
        if len(log_bayes):
            odds[use] = GROUP_SIZES.log_odds(log_bayes, len(log_bayes))
            inside = np.stack([effect.inside for effect in found])
            slab = log_normal_slab(data.n, alpha[use] @ inside[use])
        converged = sweep > 1 and float(np.abs(alpha - before).max()) < tol
        if converged:
            break
    return _assembled(data, field, number, members, found, alpha, d, converged)


def _look_at_group(
    field: Field, own: Array, gram: Array, d: float, slab: Slab, degrees: float
) -> GroupEffect:
    """One group with its own variance taken out of Omega."""
    S, q, rest = field.inside(own, gram), field.evidence.q[own], field.evidence.rest
    if d > 0.0:  # Omega without d X_g X_g'
        N = np.linalg.inv(np.eye(len(own)) - d * S) * -d
        rest = max(rest - float(q @ N @ q), 1e-300)
        q, S = q - S @ (N @ q), S - S @ N @ S
    values, vectors = np.linalg.eigh((S + S.T) / 2.0)
    values = np.maximum(values, 1e-12 * field.data.n)
    turned, V = vectors.T @ q, slab.variance
    spread = 1.0 + np.multiply.outer(V, values)  # (m, columns)
    shrunk = V[:, None] / spread
    fall = shrunk @ turned**2
    each = np.log(slab.weight) - 0.5 * np.log(spread).sum(axis=1)
    if np.isinf(degrees):
        each = each + 0.5 * fall
    else:
        each = each - 0.5 * degrees * np.log1p(-np.minimum(fall / rest, 1.0 - 1e-12))
    total = float(log_sum(each))
    inside = np.exp(each - total)
    means = (shrunk * turned) @ vectors.T  # (m, columns)
    mean = inside @ means
    strong = values > 1e-9 * field.data.n
    return GroupEffect(
        total,
        inside,
        mean,
        (vectors**2) @ (inside @ shrunk),
        inside @ (means - mean) ** 2,
        float(np.sum(turned[strong] ** 2 / values[strong])),
        int(strong.sum()),
        (float((inside @ shrunk).mean()), float((inside @ (shrunk * values)).mean())),
    )


def _assembled(
    data: Quadratic,
    field: Field,
    number: Array,
    members: list[Array],
    found: list[GroupEffect],
    alpha: Array,
    d: Array,
    converged: bool,
) -> GroupProduct:
    sizes = np.array([len(own) for own in members])
    noise, degrees = 1.0, data.degrees
    if not np.isinf(degrees):
        # each effect has a variance of its own, and so uses up what it says about the noise
        noise = field.evidence.rest / degrees
        degrees = max(degrees - float(alpha @ sizes), FEWEST_DEGREES)
    mean, sd, p_value = np.zeros(len(number)), np.zeros(len(number)), np.ones(len(members))
    for g, (own, effect) in enumerate(zip(members, found, strict=True)):
        mean[own], sd[own] = effect.mean, np.sqrt(noise * effect.square + effect.between)
        statistic = effect.statistic / noise
        if effect.rank and np.isinf(degrees):
            p_value[g] = stats.chi2.sf(statistic, effect.rank)
        elif effect.rank:
            p_value[g] = stats.f.sf(statistic / effect.rank, effect.rank, degrees)
    return GroupProduct(number, alpha, mean, sd, p_value, d, degrees, converged)

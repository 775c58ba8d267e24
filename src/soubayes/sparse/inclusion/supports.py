"""What the posterior over supports says: credible sets, intervals, discoveries."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from soubayes.sparse.constants import PRESENCE, PURITY, SET_LEVEL
from soubayes.sparse.inclusion.grouped import GroupProduct
from soubayes.sparse.inclusion.priors import Effect
from soubayes.sparse.inclusion.product import Product

Array = np.ndarray

NEGLIGIBLE = 1e-4  # probabilities below this are left out of an effect's list of columns
EQUAL_WEIGHTS = 1e-6  # relative difference of weights that count as equal


class CredibleSet(NamedTuple):
    """Columns of which one carries an effect, the likeliest first.

    ``effect``, ``lower`` and ``upper`` are for one standard deviation of a column, with the sign
    that the effect has in the first column of the set.
    """

    columns: Array
    weights: Array  # the probability that it is this column
    probability: float  # that it is one of them: the sum of the weights
    purity: float  # the smallest absolute correlation between two of them
    effect: float
    lower: float
    upper: float
    groups: Array | None = None  # numbers of the groups, one for each weight, if there are groups


@dataclass(frozen=True)
class SupportPosterior:
    """The posterior over supports of one target: a product of single effects.

    Parameters
    ----------
    probability, mean, p_value : ndarray of shape (p,)
        Inclusion probability; coefficient averaged over supports, in the user's units; and how
        probable so large a score is without an effect, the other coefficients integrated out.
    held : float
        The posterior probability of the supports that have no effect besides those of the product.
        The others are in ``probability`` column by column, as if they were independent.
    converged : bool
    effect, column, weight, centre, sd : ndarray of shape (entries,)
        Entry i: effect ``effect[i]`` (-1: no effect of the product) is carried by ``column[i]``
        with probability ``weight[i]``, and its standardised coefficient then has this mean and sd.
    alike : list of ndarray
        For every effect the correlations between its columns, in the order of the entries.
    units, x_scale : ndarray of shape (p,)
        A standardised coefficient in the user's units, and the standard deviations of X.
    degrees : float
        Of the t distributions; infinite where the noise is known.
    groups : ndarray of shape (p,) or None
        The number of the group of each column, if columns come and go in groups.
    """

    probability: Array
    mean: Array
    p_value: Array
    held: float
    converged: bool
    effect: Array
    column: Array
    weight: Array
    centre: Array
    sd: Array
    alike: list[Array]
    units: Array
    x_scale: Array
    degrees: float
    groups: Array | None = None

    @classmethod
    def _of_groups(cls, found: GroupProduct, units: Array, x_scale: Array) -> "SupportPosterior":
        """From a product over groups: every column has the probability of its group."""
        members = [np.flatnonzero(found.number == g) for g in range(len(found.p_value))]
        shares = [(i, one) for i, effect in enumerate(found.effects) for one in effect]
        shares += [(-1, one) for one in found.faint]
        size = [len(members[one.group]) for _, one in shares]
        column, centre, square = (
            np.concatenate([np.zeros(0), *parts])
            for parts in (
                [members[one.group] for _, one in shares],
                [one.mean for _, one in shares],
                [np.diag(one.covariance) for _, one in shares],
            )
        )
        weight = np.repeat([one.weight for _, one in shares], size)
        column, p = column.astype(int), len(found.number)
        alone = np.array([one.weight for one in found.faint])
        return cls(
            probability=found.probability[found.number],
            mean=np.bincount(column, weight * centre, p) * units,
            p_value=found.p_value[found.number],
            held=float(np.exp(np.log1p(-alone).sum())),
            converged=found.converged,
            effect=np.repeat([i for i, _ in shares], size).astype(int),
            column=column,
            weight=weight,
            centre=centre,
            sd=np.sqrt(np.maximum(square, 1e-300)),
            alike=found.alike,
            units=units,
            x_scale=x_scale,
            degrees=found.degrees,
            groups=found.number,
        )

    @property
    def first_of_groups(self) -> Array:
        """The first column of every group."""
        assert self.groups is not None
        return np.unique(self.groups, return_index=True)[1]

    @classmethod
    def of(cls, found: Product | GroupProduct, units: Array, x_scale: Array) -> "SupportPosterior":
        """From the product; ``units`` multiply a standardised coefficient."""
        if isinstance(found, GroupProduct):
            return cls._of_groups(found, units, x_scale)
        entries = [_entries(effect, i, found) for i, effect in enumerate(found.effects)]
        entries.append(_entries(found.faint, -1, found))
        effect, column, weight, centre, sd = map(np.concatenate, zip(*entries, strict=True))
        probability = found.probability
        return cls(
            probability=probability,
            mean=np.bincount(column, weight * centre, len(probability)) * units,
            p_value=_p_values(found),
            held=float(np.exp(np.sum(np.log1p(-np.minimum(found.faint.alpha, 1.0 - 1e-15))))),
            converged=found.converged,
            effect=effect,
            column=column,
            weight=weight,
            centre=centre,
            sd=sd,
            alike=[
                found.field.correlations(column[effect == i]) for i in range(len(found.effects))
            ],
            units=units,
            x_scale=x_scale,
            degrees=found.degrees,
        )

    def credible_sets(
        self, level: float = SET_LEVEL, purity: float = PURITY, presence: float = PRESENCE
    ) -> list[CredibleSet]:
        """For every effect the smallest set that holds it with this probability if it is there.

        Effects that are less probable than ``presence`` have no set, nor have effects whose
        columns are less correlated than ``purity``. The likeliest effect comes first; of those
        that are equally likely, the largest. If columns are in groups, a set is one of groups.
        """
        sets = []
        for i, alike in enumerate(self.alike):
            entries = np.flatnonzero(self.effect == i)  # sorted by weight
            places = self._places(entries)  # the first entry of each column, or of each group
            weights = self.weight[entries][places]
            reached = np.cumsum(weights)
            if reached[-1] < presence:
                continue
            last = weights[int(np.searchsorted(reached, level * reached[-1]))]
            # all copies of a column, or none
            count = int(np.sum(weights >= (1.0 - EQUAL_WEIGHTS) * last))
            weights, alike = weights[:count], alike[:count, :count]
            pure = float(np.abs(alike).min())
            if pure < purity:
                continue
            entries = entries[: np.append(places, len(entries))[count]]
            middle, groups = (np.nan, np.nan, np.nan), None
            if self.groups is not None:
                groups = self.groups[self.column[entries]][places[:count]]
            if len(entries) == count:  # no group of several columns, which has no single effect
                sign = np.where(alike[0] < 0.0, -1.0, 1.0)
                unit = (self.units * self.x_scale)[self.column[entries]]
                centre, sd = sign * self.centre[entries] * unit, self.sd[entries] * unit
                middle = self._mixture(weights, centre, sd, level)
            chance = float(weights.sum())
            sets.append(CredibleSet(self.column[entries], weights, chance, pure, *middle, groups))
        if self.groups is not None:
            return sets  # in their order for all classes
        # rounded: 1 - 1e-16 is no less than 1
        return sorted(sets, key=lambda one: (-round(one.probability, 6), -abs(one.effect)))

    def _places(self, own: Array) -> Array:
        """Where in the entries of an effect each column begins, or each group."""
        if self.groups is None:
            return np.arange(len(own))
        return np.flatnonzero(np.diff(self.groups[self.column[own]], prepend=-1))

    def set_numbers(self, level: float = SET_LEVEL) -> Array:
        """For every column the number of its credible set, from 1; 0 if it is in none."""
        numbers = np.zeros(len(self.probability), int)
        for number, one in reversed(list(enumerate(self.credible_sets(level), 1))):
            numbers[one.columns] = number
        return numbers

    def _mixture(
        self, weights: Array, centre: Array, sd: Array, level: float
    ) -> tuple[float, float, float]:
        ends = quantiles(
            np.array([0.5 - level / 2.0, 0.5 + level / 2.0]),
            np.zeros(len(weights), int), weights / weights.sum(), centre, sd, 1, self.degrees,
        )  # fmt: skip
        return float(weights @ centre / weights.sum()), float(ends[0, 0]), float(ends[1, 0])

    def quantiles(self, levels: Array) -> Array:
        """(levels, p) quantiles of the coefficients, averaged over supports, in the user's units.

        A column has 0 in its distribution with the probability that it carries no effect.
        """
        p = len(self.probability)
        standardised = quantiles(
            levels, self.column, self._share, self.centre, self.sd, p, self.degrees
        )
        return standardised * self.units

    @property
    def coefficient_sd(self) -> Array:
        """Standard deviations of the same distributions."""
        p, share = len(self.probability), self._share
        mean = np.bincount(self.column, share * self.centre, p)
        square = np.bincount(self.column, share * (self.sd**2 + self.centre**2), p)
        return np.sqrt(np.maximum(square - mean**2, 0.0)) * np.abs(self.units)

    @property
    def _share(self) -> Array:
        """Of the entries; the weights of a column in several effects may exceed its probability."""
        total = np.bincount(self.column, self.weight, len(self.probability))
        return self.weight * (self.probability / np.maximum(total, 1e-300))[self.column]

    def discoveries(self, fdr: float) -> Array:
        """The largest set of columns whose share without an effect is at most ``fdr``."""
        if self.groups is None:
            return largest_set(self.probability, self.p_value, fdr)
        first = self.first_of_groups
        return largest_set(self.probability[first], self.p_value[first], fdr)[self.groups]


def largest_set(probability: Array, p_value: Array, fdr: float) -> Array:
    """The most columns, likeliest first, whose share of wrong ones is at most ``fdr``.

    The share is the larger of two estimates: the mean of 1 - probability, and that of Benjamini
    and Hochberg, p times the largest p-value by the number of columns. The first trusts the slab,
    whose small effects look like noise; the second does not.

    >>> largest_set(np.array([0.99, 0.9, 0.7, 0.1]), np.array([1e-4, 1e-3, 0.02, 0.5]), 0.15)
    array([ True,  True,  True, False])
    """
    order = np.argsort(-probability, kind="stable")
    number = np.arange(1, len(order) + 1)
    # Bayesian false discovery rate of the first k, then that of Benjamini and Hochberg
    expected = np.cumsum(1.0 - probability[order]) / number
    by_chance = len(order) * np.maximum.accumulate(p_value[order]) / number
    held = np.flatnonzero(np.maximum(expected, by_chance) <= fdr)
    chosen = np.zeros(len(order), bool)
    chosen[order[: held.max(initial=-1) + 1]] = True
    return chosen


def quantiles(
    levels: Array, column: Array, weight: Array, centre: Array, sd: Array, p: int, degrees: float
) -> Array:
    """Quantiles of mixtures of t distributions and a point at 0, one mixture for each column.

    By bisection, all columns at once; (levels, p).

    >>> one = np.ones(1)
    >>> quantiles(np.array([0.05, 0.95]), np.zeros(1, int), one, 0 * one, one, 1, np.inf).round(3)
    array([[-1.645],
           [ 1.645]])
    """
    absent = 1.0 - np.bincount(column, weight, p)
    reach = np.zeros(p)
    np.maximum.at(reach, column, np.abs(centre) + 60.0 * sd)
    values = np.zeros((len(levels), p))
    for i, level in enumerate(levels):
        low, high = -reach, reach.copy()
        for _ in range(70):
            middle = (low + high) / 2.0
            below = stats.t.cdf((middle[column] - centre) / sd, degrees)
            mass = np.bincount(column, weight * below, p) + absent * (middle >= 0.0)
            low, high = np.where(mass < level, middle, low), np.where(mass < level, high, middle)
        values[i] = high
        # a jump of the distribution function at 0
        at_zero = np.bincount(column, weight * stats.t.cdf(-centre / sd, degrees), p)
        values[i, (at_zero <= level) & (level <= at_zero + absent)] = 0.0
    return values


def _p_values(found: Product) -> Array:
    """Two-sided, of each column's score where its likeliest effect is out."""
    likeliest = found.faint.alpha.copy()
    s, q = (a.copy() for a in found.faint.columns.evidence[:2])
    for effect in found.effects:
        likelier = effect.alpha > likeliest
        likeliest[likelier] = effect.alpha[likelier]
        s[likelier], q[likelier] = (
            effect.columns.evidence.s[likelier],
            effect.columns.evidence.q[likelier],
        )
    return 2.0 * stats.t.sf(np.abs(q) / np.sqrt(s * found.noise), found.degrees)


def _entries(effect: Effect, index: int, found: Product) -> tuple[Array, ...]:
    """Columns of an effect by falling weight: effect, column, weight, mean and sd."""
    least = NEGLIGIBLE if index >= 0 else 0.0
    order = np.argsort(-effect.alpha, kind="stable")
    order = order[effect.alpha[order] > least]
    evidence, inside = effect.columns.evidence, effect.columns.inside[order]
    s, q = evidence.s[order][:, None], evidence.q[order][:, None]
    shrunk = found.slab.variance / (1.0 + s * found.slab.variance)
    means = q * shrunk
    mean = np.einsum("jm,jm->j", inside, means)
    square = np.einsum("jm,jm->j", inside, means**2 + shrunk * found.noise)
    sd = np.sqrt(np.maximum(square - mean**2, 1e-300))
    return np.full(len(order), index), order, effect.alpha[order], mean, sd

"""The posterior over supports as a product of single effects, found by sweeps over them."""

from typing import NamedTuple

import numpy as np

from soubayes.sparse.constants import CLAIM, FAINT, LEAVE, MANY_EFFECTS, SIMILAR, STANDS_IN, SUPPORT
from soubayes.sparse.inclusion.field import Field, Quadratic
from soubayes.sparse.inclusion.priors import (
    SETTLED,
    Alone,
    Columns,
    Effect,
    SizePrior,
    Slab,
    Surroundings,
    anchored_effect,
    default_slab,
    log_normal_slab,
    look_at,
    propagate,
)

Array = np.ndarray

KEPT_SHARE = 1e-3  # probabilities below this do not enter Omega
LOOKED_AT = 5  # places without an effect that are tried in turn
FEWEST_SWEEPS, MOST_SWEEPS = 3, 100  # over all effects
MOST_ALONE = 500  # columns that are propagated together
_NOTHING = np.zeros(0, int), np.zeros(0)


class Product(NamedTuple):
    """The effects at the end of the sweeps."""

    effects: list[Effect]
    faint: Effect  # columns that may carry an effect which is in none of the effects
    slab: Slab
    noise: float  # mean of sigma^2, with its degrees of freedom
    degrees: float
    converged: bool
    field: Field

    @property
    def probability(self) -> Array:
        """1 - prod_l (1 - alpha_lj)."""
        left = np.log1p(-np.minimum(self.faint.alpha, 1.0 - 1e-15))
        for effect in self.effects:
            left = left + np.log1p(-np.minimum(effect.alpha, 1.0 - 1e-15))
        return -np.expm1(left)


def fit_product(
    data: Quadratic,
    start: tuple[Array, Array] | None = None,
    *,
    always: Array | None = None,
    widest: float = np.inf,
    sweeps: int = MOST_SWEEPS,
) -> Product:
    """Sweep over single effects until no inclusion probability changes.

    Each effect is updated given the others, whose coefficients are integrated out. In the end the
    columns without look-alikes are propagated (`alone`). ``start`` are
    columns and prior variances of effects to begin with, ``always`` prior variances of columns
    that are in every support, ``widest`` the largest variance of an effect, ``sweeps`` the most.
    """
    state = _Sweeper(data, always, default_slab(data.n, widest))
    state.begin(*(start or _NOTHING))
    converged, before = False, np.zeros(state.p)
    for sweep in range(1, sweeps + 1):
        state.sweep(1.0 if sweep < 20 else 0.5)
        after = state.product(False).probability
        converged = float(np.abs(after - before).max(initial=0.0)) < SETTLED
        before = after
        converged = converged or (sweep >= FEWEST_SWEEPS and state.all_alone(after))
        if converged or state.ran_off:
            break
    return state.separate(state.product(converged))


class _Sweeper:
    """The effects, and the field that holds what they contribute to Omega."""

    def __init__(self, data: Quadratic, always: Array | None, slab: Slab) -> None:
        self.data, self.prior, self.slab = data, SizePrior(), slab
        self.p = len(data.norms)
        self.always = np.zeros(self.p) if always is None else always
        use = (data.norms > 1e-9 * data.n) & (self.always == 0.0)
        self.barred = np.where(use, 0.0, -np.inf)
        self.count = int(use.sum())
        self.field = Field(data)
        self.effects: list[Effect] = []
        self.parts: list[tuple[Array, Array]] = []  # columns and their share of d
        self.faint = Effect(np.zeros(self.p), self._look())
        self.column_prior = self.barred.copy()  # log odds of columns in no effect
        self.effect_prior: list[float] = []  # the same of every effect

    def begin(self, columns: Array, variance: Array) -> None:
        """Effects that are known to start with."""
        alike = np.abs(self.field.correlations(columns)) >= STANDS_IN
        started = np.zeros(len(columns), bool)
        for i, (j, v) in enumerate(zip(columns, variance, strict=True)):
            if np.isfinite(self.barred[j]) and not alike[i, started].any():
                started[i] = True
                alone = np.arange(self.p) == j
                self.effects.append(Effect(alone.astype(float), self.faint.columns))
                self.effect_prior.append(0.0)
                self.parts.append((np.array([j]), np.array([v])))
        self._weigh_sizes()

    def sweep(self, step: float) -> None:
        """Update every effect once, look for more, then fit the weights of the slab."""
        # d of Omega anew, without the rounding of the changes since
        d = self.always.copy()
        for columns, c in self.parts:
            d[columns] += c
        self.field.reset(d)
        for i in range(len(self.effects)):
            self._update(i, step)
        kept = [i for i, effect in enumerate(self.effects) if effect.active >= LEAVE]
        for i in set(range(len(self.effects))) - set(kept):
            self._move(self.parts[i], _NOTHING)
        self.effects = [self.effects[i] for i in kept]
        self.effect_prior = [self.effect_prior[i] for i in kept]
        self.parts = [self.parts[i] for i in kept]
        while len(self.effects) < min(self.count, self.data.n) and self._claim():
            pass
        self._look_around()
        self._weigh_sizes()
        self._fit_slab()

    @property
    def ran_off(self) -> bool:
        """Whether wide data are explained by so many effects that further sweeps only add more.

        The prior of the number of effects follows the effects, so faint ones can multiply.
        """
        # with more effects than that the noise is hardly estimated
        most = max(MANY_EFFECTS, self.data.n / 3.0)  # a third of the rows, as on a path
        return self.count > self.data.n and len(self.effects) > most

    def product(self, converged: bool) -> Product:
        """As it stands."""
        degrees = self.data.degrees
        noise = 1.0 if np.isinf(degrees) else self.field.evidence.rest / degrees
        return Product(
            list(self.effects), self.faint, self.slab, noise, degrees, converged, self.field
        )

    def separate(self, found: Product) -> Product:
        """Propagate what is known about the columns without look-alikes, given all others."""
        alone = self._without_look_alikes(found.probability)
        if not len(alone):
            return found
        shared = [
            i
            for i, effect in enumerate(self.effects)
            if not np.isin(np.argmax(effect.alpha), alone)
        ]
        kept = [self.effects[i] for i in shared]
        d = self.always.copy()
        for i in shared:
            d[self.parts[i][0]] += self.parts[i][1]
        self.field.reset(d)
        around = self._surroundings(alone, kept)
        new = propagate(around, self.slab, found.probability[alone], found.noise)
        alpha = self.faint.alpha.copy()
        alpha[alone] = np.where(new.alpha > CLAIM, 0.0, new.alpha)
        columns = _replaced(self.faint.columns, alone, new)
        for j, alpha_of_column in zip(alone, new.alpha, strict=True):
            if alpha_of_column > CLAIM:
                kept.append(Effect(np.where(np.arange(self.p) == j, alpha_of_column, 0.0), columns))
        return found._replace(
            effects=kept, faint=Effect(alpha, columns), slab=new.slab, noise=new.noise,
            degrees=new.degrees, converged=found.converged and new.settled,
        )  # fmt: skip

    def all_alone(self, probability: Array) -> bool:
        """Whether no two columns that may carry an effect look alike: all will be propagated."""
        return len(self._without_look_alikes(probability)) == np.sum(probability > FAINT)

    def _without_look_alikes(self, probability: Array) -> Array:
        """Columns that may carry an effect, and that no other such column resembles."""
        likely = np.flatnonzero(probability > FAINT)
        likely = likely[np.argsort(-probability[likely], kind="stable")[:MOST_ALONE]]
        # a column alone resembles itself only
        alike = np.abs(self.field.correlations(likely)) >= SIMILAR
        alone = np.isin(np.arange(self.p), likely[alike.sum(axis=1) == 1])
        before = np.zeros_like(alone)
        while not np.array_equal(alone, before):
            before = alone.copy()
            for likely_of_effect in (effect.alpha > FAINT for effect in self.effects):
                if not alone[likely_of_effect].all():
                    alone &= ~likely_of_effect
        return np.flatnonzero(alone)

    def _surroundings(self, alone: Array, shared: list[Effect]) -> Surroundings:
        evidence = self.field.evidence
        others = np.isfinite(self.barred)
        others[alone] = False
        faint = _log_odds_of(self.faint.alpha[others]) - self.column_prior[others]
        taken = sum((effect.alpha for effect in shared), np.zeros(self.p))[others]
        known = self.prior.log_likelihoods(faint, self.count)
        known = (1.0 - np.minimum(taken, 1.0)) @ known
        counts = self.faint.alpha[others] @ self.faint.columns.inside[others]
        for effect in shared:
            i = next(i for i, other in enumerate(self.effects) if other is effect)
            odds = _log_odds_of(effect.active) - self.effect_prior[i]
            known = known + self.prior.log_likelihoods(np.array([odds]), self.count)[0]
            counts = counts + effect.alpha @ effect.columns.inside
        return Surroundings(
            gram=self.field.block(alone)[alone],
            scores=evidence.q[alone],
            yy=evidence.rest,
            n=self.data.n,
            degrees=self.data.degrees,
            odds=lambda log_bayes: self.prior.log_odds(log_bayes, self.count, known=known),
            slab=lambda more: log_normal_slab(self.data.n, counts + more),
            others=float(sum(effect.active for effect in shared)),
        )

    def _fit_slab(self) -> None:
        counts = self.faint.alpha @ self.faint.columns.inside
        for effect in self.effects:
            counts = counts + effect.alpha @ effect.columns.inside
        self.slab = log_normal_slab(self.data.n, counts)

    def _look(self, columns: Array = _NOTHING[0], c: Array = _NOTHING[1]) -> Columns:
        """All columns, when d[columns] is less by c."""
        return look_at(self.field.without(columns, c), self.slab, self.data.degrees)

    def _log_odds(self, columns: Columns, own: int | None) -> Array:
        """The posterior odds of every column against no effect, given the other effects."""
        free = np.zeros(self.p)
        for i, effect in enumerate(self.effects):
            if i != own:
                with np.errstate(divide="ignore"):
                    # a column that carries another effect cannot carry this one
                    free += np.log1p(-np.minimum(effect.alpha, 1.0))
        prior = self.column_prior if own is None else self.effect_prior[own]
        return self.barred + free + columns.log_bayes + prior

    def _weigh_sizes(self) -> None:
        """The prior odds of every effect and column, from the Bayes factors of all others."""
        if not self.count:
            return
        use = np.isfinite(self.barred)
        faint = _log_odds_of(self.faint.alpha[use]) - self.column_prior[use]
        active = np.array([effect.active for effect in self.effects])
        known = _log_odds_of(active) - np.array(self.effect_prior)
        taken = sum((effect.alpha for effect in self.effects), np.zeros(self.p))[use]
        counted = np.append(1.0 - np.minimum(taken, 1.0), np.ones(len(known)))
        odds = self.prior.log_odds(np.append(faint, known), self.count, counted)
        self.column_prior[use] = odds[: self.count]
        self.effect_prior = odds[self.count :].tolist()

    def _effect(self, own: int | None) -> Effect:
        """The effect that is likeliest given the others."""
        share = _NOTHING if own is None else self.parts[own]
        columns = self._look(*share)
        log_odds = self._log_odds(columns, own)
        left = log_odds.copy()
        top = first = int(np.argmax(left))
        for _ in range(LOOKED_AT):
            if not self._is_echo(top, columns, own):
                return self._anchored(log_odds, top, columns, share)
            left[self.field.similar(top, STANDS_IN)] = -np.inf
            top = int(np.argmax(left))
        return self._anchored(log_odds, first, columns, share)

    def _anchored(
        self, log_odds: Array, top: int, columns: Columns, part: tuple[Array, Array]
    ) -> Effect:
        # the slab's variance averaged over its posterior for the top column
        variance = float(columns.inside[top] @ self.slab.variance)
        moved = np.append(part[0], top), np.append(part[1], -variance)
        given = self._look(*_merged(moved))
        given_top = log_odds - columns.log_bayes + given.log_bayes
        return anchored_effect(log_odds, given_top, top, columns)

    def _update(self, i: int, step: float) -> None:
        new, old = self._effect(i), self.effects[i]
        if step < 1.0:
            new = new._replace(alpha=step * new.alpha + (1.0 - step) * old.alpha)
        share = self._part(new)
        self._move(self.parts[i], share)
        self.effects[i], self.parts[i] = new, share

    def _claim(self) -> bool:
        """Add the likeliest effect that is in no effect yet, if it is likely enough."""
        columns = self._look()
        log_odds = self._log_odds(columns, None)
        left = log_odds > np.log(FAINT)
        for _ in range(LOOKED_AT):
            if not left.any():
                return False
            top = int(np.argmax(np.where(left, log_odds, -np.inf)))
            effect = self._anchored(log_odds, top, columns, _NOTHING)
            if effect.active > CLAIM and not self._is_echo(top, columns):
                share = self._part(effect)
                self._move(_NOTHING, share)
                self.effects.append(effect)
                self.effect_prior.append(float(self.column_prior[top]))
                self.parts.append(share)
                return True
            left &= ~self.field.similar(top, 0.5)
        return False

    def _is_echo(self, top: int, columns: Columns, own: int | None = None) -> bool:
        """Whether a column only resembles those of another effect, and the data do not ask for it.

        Where columns are few the prior alone makes a second effect in a copy probable. Two effects
        that share one signal would each be less probable than the signal is.
        """
        if columns.log_bayes[top] > SUPPORT:
            return False
        near = self.field.similar(top, STANDS_IN)
        others = (effect for i, effect in enumerate(self.effects) if i != own)
        return any(effect.alpha[near].sum() > 0.95 * effect.active for effect in others)

    def _look_around(self) -> None:
        """Columns that may carry an effect, but not likely enough to be in Omega.

        Those that look alike compete with what their odds o exceed the prior's by:
        o_j/(1 + o_j + sum_k r_jk^2 max(o_k - prior, 0)).
        """
        columns = self._look()
        log_odds = self._log_odds(columns, None)
        # beyond exp(50) an odds is certainty
        odds = np.exp(np.minimum(log_odds, 50.0))
        alpha = odds / (1.0 + odds)
        near = np.flatnonzero(odds > FAINT)
        if len(near):
            # r^2 of the odds of k are explained by j: they are shared, not added
            more = np.maximum(odds[near] - np.exp(log_odds - columns.log_bayes)[near], 0.0)
            alike = self.field.correlations(near) ** 2
            np.fill_diagonal(alike, 0.0)
            alpha[near] = odds[near] / (1.0 + odds[near] + alike @ more)
        self.faint = Effect(alpha, columns)

    def _part(self, effect: Effect) -> tuple[Array, Array]:
        """The prior variances at which ridge regression shrinks as much as averaging does.

        The average over supports multiplies the estimate of column j by alpha_j s_j T_j, with T_j
        the posterior variance where it is included. Columns that look alike share one effect.
        """
        kept = np.flatnonzero(effect.alpha > KEPT_SHARE)
        s, T = effect.columns.evidence.s[kept], effect.columns.spread[kept]
        alpha = effect.alpha[kept]
        alike = np.minimum(self.field.correlations(kept) ** 2 @ alpha, 1.0)
        return kept, alpha * T / np.maximum(1.0 - alike * s * T, 1e-9)

    def _move(self, old: tuple[Array, Array], new: tuple[Array, Array]) -> None:
        columns, change = _merged((np.append(old[0], new[0]), np.append(-old[1], new[1])))
        use = np.abs(change) > 1e-6 * np.maximum(self.field.d[columns], 1.0 / self.data.n)
        self.field.change(columns[use], change[use])


def _replaced(columns: Columns, which: Array, new: Alone) -> Columns:
    """With what the propagation says about some of the columns."""
    s, q = columns.evidence.s.copy(), columns.evidence.q.copy()
    log_bayes, inside, spread = (a.copy() for a in columns[:3])
    s[which], q[which], log_bayes[which], inside[which] = new.s, new.q, new.log_bayes, new.inside
    shrunk = new.slab.variance / (1.0 + np.multiply.outer(new.s, new.slab.variance))
    spread[which] = np.einsum("jm,jm->j", new.inside, shrunk)
    return Columns(log_bayes, inside, spread, columns.evidence._replace(s=s, q=q))


def _merged(part: tuple[Array, Array]) -> tuple[Array, Array]:
    """Every column once, its values added."""
    columns, place = np.unique(part[0], return_inverse=True)
    return columns, np.bincount(place, part[1], len(columns))


def _log_odds_of(probability: Array | float) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(probability) - np.log1p(-np.minimum(probability, 1.0 - 1e-15))

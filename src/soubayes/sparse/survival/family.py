"""Cox regression as a family of the shell."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.special import logsumexp

from soubayes.sparse.choice.race import PATH, Candidate, Fits
from soubayes.sparse.choice.scoring import DENSITIES, HeldOut, score_densities
from soubayes.sparse.constants import (
    OTHER_VARIANCES,
    RISK_VARIANCES,
    SELECTED_VARIANCES,
    SURVIVAL_POWER,
    WILD,
)
from soubayes.sparse.designs.columns import StandardColumns
from soubayes.sparse.designs.standardise import (
    as_dense,
    check_units,
    column_units,
    in_range,
    row_slices,
    standardise_block,
)
from soubayes.sparse.dial import DialPoint
from soubayes.sparse.inclusion.field import ColumnQuadratic
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.posterior import Component, Mixture
from soubayes.sparse.rows.family import RowFamily, RowIntake, RowSolved
from soubayes.sparse.rows.state import RowSettings
from soubayes.sparse.rows.supports import settle
from soubayes.sparse.shell import TrainingRows
from soubayes.sparse.survival.hazard import PiecewiseHazard, relative_risk
from soubayes.sparse.survival.risk_sets import BaselinePrior, PartialLoss, RiskSets, baseline_kl
from soubayes.sparse.survival.rows import SurvivalRows, UnitNormal

Array = np.ndarray

_FAR = 1e9  # nats


def _dense(name: str, held: float) -> DialPoint:
    """No scale is fitted: ``held`` is the prior variance of a log risk, all columns together."""
    return DialPoint(f"{name} {held:g}", "normal", np.inf, 1.0, held)


_CALM = _dense("dense", 1.0)
SURVIVAL_DIAL = (
    DialPoint("cautious", "exponential", 0.003, 3.0),
    *(_dense("dense", held) for held in RISK_VARIANCES),
)
# one candidate of several parts: the columns of the sparse point have variances of their own, all
# others are as in a dense point
BESIDE = Candidate("sparse + dense", "normal", np.inf, 1.0)


class SurvivalFamily(RowFamily):
    """Cox's model, each candidate with the hazard that scores its rows.

    ``likelihood`` is that of an expansion of the loss.
    """

    dial = SURVIVAL_DIAL
    candidates: tuple[Candidate, ...] = (PATH, *map(Candidate.of, dial), BESIDE)
    scoring = DENSITIES._replace(
        score=partial(score_densities, power=SURVIVAL_POWER), power=SURVIVAL_POWER
    )

    def __init__(self, settings: RowSettings, ties: str, prior: BaselinePrior) -> None:
        super().__init__(UnitNormal(), settings)
        self.ties, self.prior = ties, prior

    @property
    def products(self) -> bool:
        """Expansions are of columns that are dense."""
        return False

    def design(self, X: Any, targets: Sequence[Array], weight: Array) -> RowIntake:
        """Subjects in memory, their columns standardised."""
        X, unit = in_range(X)
        units = column_units(X, weight, True, self.settings.shared)
        plan = self.settings.plan(X.shape[1])
        order = plan.order
        rows = np.empty(X.shape)
        for some in row_slices(X):
            block = as_dense(X[some])[:, order]
            rows[some] = standardise_block(
                block, units.mean[order], units.divisor[order], ones=False
            )
        units = units._replace(mean=units.mean * unit, scale=units.scale * unit)
        check_units(units.scale)
        sets = [RiskSets.of(y, weight, self.ties, self.prior) for y in targets]
        return RowIntake([SurvivalRows(rows, each) for each in sets], plan, units)

    def solve(self, intake: RowIntake, names: Sequence[Any], jobs: int = 1) -> list[RowSolved]:
        """With what the baseline hazard cost, at the mean of q."""
        solved = super().solve(intake, names, jobs)
        if self.prior.mass == 0.0:
            return solved
        with_baseline = []
        for rows, one in zip(intake.rows, solved, strict=True):
            assert isinstance(rows, SurvivalRows)
            nats = baseline_kl(PartialLoss.at(rows.sets, rows.eta(one.outcome.fit)))
            kl = {**one.points[0].kl, "baseline": nats}
            with_baseline.append(one._replace(points=[replace(one.points[0], kl=kl)]))
        return with_baseline

    def estimates(self, *_: Any) -> None:
        """None are kept: rows are read together."""

    def ordered(self, X: Any, coef: Array, sets: RiskSets) -> bool:
        """Whether these coefficients, but those with a normal prior, order the events in time."""
        plan = self.settings.plan(X.shape[1])
        keep = np.flatnonzero(plan.model.sparse[plan.back] & (coef != 0.0))
        # k columns put d events into at most about d^2k orders (Cover 1967) of the d! ~ d^d: from
        # k = d/2 on some combination orders any times
        by_chance = 2 * len(keep) >= sets.y["event"].sum()
        return not by_chance and sets.ordered_by(as_dense(X[:, keep]) @ coef[keep])

    def _row_supports(
        self, intake: RowIntake, t: int, solved: RowSolved, rows: TrainingRows
    ) -> list[SupportPosterior]:
        """From expansions of the loss."""
        given, plan, scale = intake.rows[t], intake.plan, intake.units.scale
        assert isinstance(given, SurvivalRows)
        ordered = replace(given, X=np.ascontiguousarray(given.X[:, plan.back]))
        point = solved.points[0]
        coef = np.where(point.selected, point.component.posterior.mean[: len(scale)], 0.0) * scale

        def at(mean: Array) -> tuple[ColumnQuadratic, Any]:
            expanded = ordered.expand(mean)
            matrix = expanded.matrix
            columns = StandardColumns(matrix, None, None, np.ones(len(matrix)))
            return ColumnQuadratic(columns, expanded.rows.y, ordered.n), lambda mean: mean

        start = np.flatnonzero(coef), coef[coef != 0.0] ** 2
        product = settle(at, coef, start, plan.always, ordered.X.__matmul__, self.settings.groups)
        return [SupportPosterior.of(product, 1.0 / scale, scale)]

    def fit(
        self, X: Any, targets: list[Array], weight: Array, wanted: Sequence[set[str]], known: bool
    ) -> Fits:
        """With the hazard of the rows that each candidate was fitted to."""
        asked = [names | {PATH.name} if BESIDE.name in names else names for names in wanted]
        fits = super().fit(X, targets, weight, asked, known)
        for parts, sizes, y, names in zip(*fits[:2], targets, wanted, strict=True):
            wild = {name for name in parts if known and _is_wild(name, parts[name][0], X, fits)}
            if wild:  # folds did not see it run off: a dense point takes its place
                calm = super().fit(X, [y], weight, [{_CALM.name}], False)
                parts.update(dict.fromkeys(wild, *calm.components[0].values()))
            if BESIDE.name in names:
                self._add_beside(X, y, weight, parts, sizes)
            if PATH.name not in names:
                parts.pop(PATH.name, None)
            for name, components in parts.items():
                parts[name] = tuple(with_hazard(c, X, fits.x_mean, y, weight) for c in components)
        return fits

    def _add_beside(
        self,
        X: Any,
        y: Array,
        weight: Array,
        parts: dict[str, tuple[Component, ...]],
        sizes: dict[str, float],
    ) -> None:
        """The candidate that lets the columns of the sparse point go beside the dense others."""
        each_rows, plan, units = self.design(X, [y], weight)
        kept = (parts[PATH.name][0].posterior.mean[plan.order] != 0.0) & plan.model.sparse
        fits = []
        for selected, held in product(SELECTED_VARIANCES, OTHER_VARIANCES):
            # a point of the dial has confidence 1
            variance = np.where(kept, selected * plan.model.confidence, plan.model.variance)
            model = replace(plan.model, variance=variance)
            fits.append(each_rows[0].fit_at(model, _dense("", held)))
        moved = [fit.posterior.moved(plan.back, 1.0 / units.scale) for fit in fits]
        parts[BESIDE.name] = tuple(Component(q, weight=1.0 / len(fits)) for q in moved)
        sizes[BESIDE.name] = float(np.mean([fit.effective for fit in fits])) + int(kept.sum())

    def held_out(self, mixture: Mixture, rows: Array, y: Array) -> HeldOut:
        """The log density of y, and the log risk."""
        means, variances = mixture.predict_each(rows)
        density = [
            component.likelihood.log_density(m, v, y)
            for component, m, v in zip(mixture.components, means, variances, strict=True)
        ]
        zero = np.zeros(len(y))
        # log risks of separated data may overflow: such a candidate is behind, not an error
        density = np.nan_to_num(density, nan=-_FAR, neginf=-_FAR)
        whole = logsumexp(density, b=mixture.weights[:, None], axis=0)
        return HeldOut(whole, mixture.weights @ means, zero, zero, whole, zero + np.nan)


def _is_wild(name: str, part: Component, X: Any, fits: Fits) -> bool:
    """Whether fitted scales ran off, as they may where wide data can be separated."""
    if name == PATH.name:
        return False
    risk = [(as_dense(X[rows]) - fits.x_mean) @ part.posterior.mean for rows in row_slices(X)]
    return not np.std(np.concatenate(risk)) < WILD


def with_hazard(part: Component, X: Any, x_mean: Array, y: Array, weight: Array) -> Component:
    """The component with the piecewise hazard of the rows that it was fitted to."""
    risk = np.empty(X.shape[0])
    for rows in row_slices(X):
        block = as_dense(X[rows]) - x_mean
        spread = part.inflation * part.posterior.spread(block)
        risk[rows] = block @ part.posterior.mean + 0.5 * spread
    return replace(part, likelihood=PiecewiseHazard.of(y, weight, relative_risk(risk)))

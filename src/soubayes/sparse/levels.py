"""Candidates that have only straight parts, curves as well, or pairs as well, in one race.

Every level has all candidates of the family, fitted to its own columns. The result is embedded in
the columns of the largest level: a column that a candidate does not have is exactly 0.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from soubayes.sparse.blocks import FeatureBlock, GroupLabels
from soubayes.sparse.choice.folds import enough_rows, folds_of
from soubayes.sparse.choice.race import Candidate, Choice, ChoiceTask, Fits, Predictions, choose
from soubayes.sparse.posterior import Component, SparsePoint
from soubayes.sparse.shell import (
    Choosing,
    Family,
    InMemory,
    Reported,
    TrainingRows,
    fit_rows,
)
from soubayes.terms.levels import LevelColumns, TermLevels
from soubayes.threads import solver_threads

Array = np.ndarray


def fit_levels(family: Family, rows: TrainingRows, how: Choosing, levels: TermLevels) -> Reported:
    """As `fit_rows`, the candidates having different columns."""
    chosen = how.predicts and enough_rows(len(rows.weight), how.owner, family.fewest_rows)
    folds = None
    if chosen:
        folds = folds_of(
            how.cv, rows.X, rows.labels, rows.groups,
            seed=how.seed, owner=how.owner, stratified=how.stratified,
        )  # fmt: skip
    if folds is None:
        return fit_rows(family, rows, how._replace(predicts=False))
    task = LevelTask(family, rows, how, levels)
    with solver_threads(task.size, how.jobs):
        choices = choose(task, task.candidates, folds, family.scoring, how.jobs)
        points = task.reported(choices)
    supports = None
    if how.inclusion:
        supports = fit_rows(family, rows, how._replace(predicts=False)).supports
    return Reported(points, task.x_mean, family.reported(choices), supports)


class LevelFits(NamedTuple):
    """The levels fitted to the rows of a fold, each with its columns of all rows."""

    parts: list[tuple[int, InMemory, Fits]]


class LevelTask(ChoiceTask):
    """Rows in memory whose columns differ between candidates."""

    def __init__(
        self, family: Family, rows: TrainingRows, how: Choosing, levels: TermLevels
    ) -> None:
        self.family, self.rows, self.how, self.levels = family, rows, how, levels
        self.targets, self.weight = rows.targets, rows.weight
        self.size = family.settings.system_size(rows.X)
        self.x_mean = (self.weight / self.weight.sum()) @ rows.X
        self.known: dict[int, tuple[Family, list[SparsePoint]]] = {}

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Those of all levels."""
        candidates = []
        for level in self.levels.levels:
            title = self.levels.title(level)
            for one in self.family.candidates:
                fit = f"{one.fit or one.name}, {title}"
                candidates.append(one._replace(name=f"{one.name}, {title}", fit=fit, terms=title))
        return tuple(candidates)

    def fit(self, rows: Array | None, wanted: Sequence[set[str]]) -> Fits:
        parts, pairs = [], None
        for level in self.levels.levels:
            title = self.levels.title(level)
            names = [_names_of_level(wanted_of_target, title) for wanted_of_target in wanted]
            if not any(names):
                continue
            if rows is None:
                columns, family = self._columns(level), self.at(level)[0]
            else:
                if level > 1 and pairs is None:
                    pairs = self.levels.screen(self.rows.X, rows)
                columns = self.levels.in_fold(self.rows.X, level, pairs or [], rows)
                family = self._family(columns)
            task = InMemory(family, self.rows._replace(X=columns.matrix))
            parts.append((level, task, task.fit(rows, names)))
        return self._embedded(parts) if rows is None else LevelFits(parts)  # type: ignore[return-value]

    def predict(self, fits: Fits, rows: Array) -> Predictions:
        assert isinstance(fits, LevelFits)
        predictions: Predictions = [{} for _ in self.targets]
        for level, task, fits_of_level in fits.parts:
            title = self.levels.title(level)
            for t, held in enumerate(task.predict(fits_of_level, rows)):
                predictions[t] |= {f"{name}, {title}": one for name, one in held.items()}
        return predictions

    def at(self, level: int) -> tuple[Family, list[SparsePoint]]:
        """The family of a level that knows its sparse points of all rows, and these."""
        if level not in self.known:
            columns = self._columns(level)
            family = self._family(columns)
            rows = self.rows._replace(X=columns.matrix)
            fit = fit_rows(family, rows, self.how._replace(predicts=False, inclusion=False))
            self.known[level] = family, fit.points
        return self.known[level]

    def reported(self, choices: Sequence[Choice]) -> list[SparsePoint]:
        """The sparse points, of the level that the mixture of their target is mostly of."""
        reported = []
        for t, choice in enumerate(choices):
            title = choice.sparse.partition(", ")[2]
            level = next(k for k in self.levels.levels if self.levels.title(k) == title)
            place, points = self._columns(level).place, self.at(level)[1]
            points = points if len(choices) < len(points) else [points[t]]
            reported += [placed_point(point, place, self.rows.X.shape[1]) for point in points]
        return reported

    def _columns(self, level: int) -> LevelColumns:
        return self.levels.on_all_rows(self.rows.X, level)

    def _family(self, columns: LevelColumns) -> Family:
        """The family for some columns."""
        names = tuple(f"c{j}" for j in range(len(columns.number)))
        labels = GroupLabels(
            columns.number, columns.names, common=True, columns=names, unit=columns.unit
        )
        settings = self.family.settings
        blocks = tuple(_restricted(block, columns.place) for block in settings.blocks)
        family = copy(self.family)
        family.settings, family.sparse = replace(settings, groups=labels, blocks=blocks), []
        return family

    def _embedded(self, parts: list[tuple[int, InMemory, Fits]]) -> Fits:
        """Candidates of all levels as those of the largest."""
        p = self.rows.X.shape[1]
        embedded = Fits([{} for _ in self.targets], [{} for _ in self.targets], self.x_mean)
        for level, _, fits in parts:
            place, title = self._columns(level).place, self.levels.title(level)
            for t, components_of_target in enumerate(fits.components):
                for name, components in components_of_target.items():
                    label = f"{name}, {title}"
                    placed = tuple(placed_component(one, place, p) for one in components)
                    embedded.components[t][label] = placed
                    embedded.effective[t][label] = fits.effective[t].get(name, np.nan)
        return embedded


def placed_component(component: Component, place: Array, p: int) -> Component:
    """The same fit in p columns, of which it has those at ``place``."""
    q = component.posterior
    more = len(q.mean) - len(place)  # the predictor at the mean of X
    place, size = np.append(place, p + np.arange(more)), p + more
    view = component.view
    if view is not None:  # of one class: that of all classes has the same columns
        view = replace(view, whole=view.whole.placed(place, size))
    return replace(component, posterior=q.placed(place, size), view=view)


def placed_point(point: SparsePoint, place: Array, p: int) -> SparsePoint:
    """A sparse point in p columns; those that it does not have are dropped."""

    def whole(values: Array, other: float) -> Array:
        placed = np.full((*values.shape[:-1], p), other, values.dtype)
        placed[..., place] = values
        return placed

    path = point.path
    refit = None if path.refit_coef is None else whole(path.refit_coef, 0.0)
    coef, sd = whole(path.coef, 0.0), whole(path.coef_sd, np.nan)
    return replace(
        point,
        component=placed_component(point.component, place, p),
        units=whole(point.units, 1.0),
        selected=whole(point.selected, False),
        shrinkage=whole(point.shrinkage, 1.0),
        local_scale=whole(point.local_scale, 0.0),
        path=path._replace(coef=coef, coef_sd=sd, refit_coef=refit),
    )


def _names_of_level(names: set[str], title: str) -> set[str]:
    return {name.partition(", ")[0] for name in names if name.partition(", ")[2] == title}


def _restricted(block: FeatureBlock, place: Array) -> FeatureBlock:
    """A block of columns that every level has."""
    return (
        block if not len(place) else block._replace(columns=np.searchsorted(place, block.columns))
    )

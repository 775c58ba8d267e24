"""Candidates that have only straight parts, curves as well, or pairs as well, in one race.

Every level has all candidates of the family, fitted to its own columns. The result is embedded in
the columns of the largest level: a column that a candidate does not have is exactly 0.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from soubayes.sparse.blocks import FeatureBlock, GroupLabels
from soubayes.sparse.choice.race import (
    Candidate,
    Candidates,
    Choice,
    ChoiceTask,
    Fits,
    InMemory,
    Predictions,
)
from soubayes.sparse.posterior import Component, SparsePoint
from soubayes.terms.levels import LevelColumns, TermLevels

Array = np.ndarray


class LevelFits(NamedTuple):
    """The levels fitted to the rows of a fold, each with its columns of all rows."""

    parts: list[tuple[int, InMemory, Fits]]


class LevelFamily(ABC):
    """What a family gives: candidates for some columns, and their sparse points."""

    @abstractmethod
    def candidates(self, labels: GroupLabels, blocks: tuple[FeatureBlock, ...]) -> Candidates:
        """The candidates for columns of these terms."""

    @abstractmethod
    def solve(self, candidates: Candidates, Z: Array) -> list[SparsePoint]:
        """The sparse points of all rows, which the candidates know from then on."""


class LevelTask(ChoiceTask):
    """Rows in memory whose columns differ between candidates."""

    def __init__(
        self,
        family: LevelFamily,
        levels: TermLevels,
        blocks: tuple[FeatureBlock, ...],
        Z: Array,
        targets: list[Array],
        weight: Array,
    ) -> None:
        self.family, self.levels, self.blocks = family, levels, blocks
        self.Z, self.targets, self.weight = Z, targets, weight
        self.size = int(min(Z.shape))
        self.points: dict[int, list[SparsePoint]] = {}
        self.known: dict[int, Candidates] = {}

    def rows(self, base: Candidates) -> tuple[Candidate, ...]:
        """The candidates of all levels."""
        found = []
        for level in self.levels.levels:
            title = self.levels.title(level)
            for one in base.rows:
                fit = f"{one.fit or one.name}, {title}"
                found.append(one._replace(name=f"{one.name}, {title}", fit=fit, terms=title))
        return tuple(found)

    def fit(self, rows: Array | None, wanted: Sequence[set[str]]) -> Fits:
        parts = []
        pairs: list[tuple[int, int]] | None = None
        for level in self.levels.levels:
            own = [_of_level(names, self.levels.title(level)) for names in wanted]
            if not any(own):
                continue
            if rows is None:
                columns = self.levels.on_all_rows(self.Z, level)
                self.at(level)
                candidates = self.known[level]
            else:
                if level > 1 and pairs is None:
                    pairs = self.levels.screen(self.Z, rows)
                columns = self.levels.in_fold(self.Z, level, pairs or [], rows)
                candidates = self._candidates(columns)
            inner = InMemory(candidates, columns.matrix, self.targets, self.weight)
            parts.append((level, inner, inner.fit(rows, own)))
        return self._embedded(parts) if rows is None else LevelFits(parts)  # type: ignore[return-value]

    def predict(self, fits: Fits, rows: Array) -> Predictions:
        assert isinstance(fits, LevelFits)
        found: Predictions = [{} for _ in self.targets]
        for level, inner, own in fits.parts:
            title = self.levels.title(level)
            for t, said in enumerate(inner.predict(own, rows)):
                found[t] |= {f"{name}, {title}": held for name, held in said.items()}
        return found

    def at(self, level: int) -> list[SparsePoint]:
        """The sparse points of a level, fitted to all rows."""
        if level not in self.points:
            columns = self.levels.on_all_rows(self.Z, level)
            self.known[level] = self._candidates(columns)
            self.points[level] = self.family.solve(self.known[level], columns.matrix)
        return self.points[level]

    def reported(self, choices: Sequence[Choice], per_target: int = 1) -> list[SparsePoint]:
        """The sparse point of every target, of the level that its mixture is mostly of."""
        found = []
        for t, choice in enumerate(choices):
            title = choice.sparse.partition(", ")[2]
            level = next(k for k in self.levels.levels if self.levels.title(k) == title)
            place = self.levels.on_all_rows(self.Z, level).place
            found.append(placed_point(self.at(level)[t], place, self.Z.shape[1]))
        return found

    def _candidates(self, columns: LevelColumns) -> Candidates:
        names = tuple(f"c{j}" for j in range(len(columns.number)))
        labels = GroupLabels(columns.number, columns.names, common=True, columns=names)
        blocks = [_restricted(block, columns.place) for block in self.blocks]
        return self.family.candidates(labels, tuple(b for b in blocks if len(b.columns)))

    def _embedded(self, parts: list[tuple[int, InMemory, Fits]]) -> Fits:
        """Candidates of all levels as those of the largest."""
        p = self.Z.shape[1]
        x_mean = (self.weight / self.weight.sum()) @ self.Z
        found = Fits([{} for _ in self.targets], [{} for _ in self.targets], x_mean)
        for level, _, fits in parts:
            place = self.levels.on_all_rows(self.Z, level).place
            title = self.levels.title(level)
            for t, each in enumerate(fits.components):
                for name, components in each.items():
                    found.components[t][f"{name}, {title}"] = tuple(
                        placed_component(one, place, p) for one in components
                    )
                    found.effective[t][f"{name}, {title}"] = fits.effective[t].get(name, np.nan)
        return found


def placed_component(component: Component, place: Array, p: int) -> Component:
    """The same fit in p columns, of which it has those at ``place``."""
    q = component.posterior
    more = len(q.mean) - len(place)  # the predictor at the mean of X
    place = np.append(place, p + np.arange(more))
    return replace(component, posterior=q.placed(place, p + more))


def placed_point(point: SparsePoint, place: Array, p: int) -> SparsePoint:
    """A sparse point in p columns; those that it does not have are dropped."""

    def whole(values: Array, other: float) -> Array:
        found = np.full((*values.shape[:-1], p), other, values.dtype)
        found[..., place] = values
        return found

    path = point.path
    refit = None if path.refit_coef is None else whole(path.refit_coef, 0.0)
    path = path._replace(
        coef=whole(path.coef, 0.0), coef_sd=whole(path.coef_sd, np.nan), refit_coef=refit
    )
    return replace(
        point,
        component=placed_component(point.component, place, p),
        units=whole(point.units, 1.0),
        selected=whole(point.selected, False),
        shrinkage=whole(point.shrinkage, 1.0),
        local_scale=whole(point.local_scale, 0.0),
        path=path,
    )


def _of_level(names: set[str], title: str) -> set[str]:
    return {name.partition(", ")[0] for name in names if name.partition(", ")[2] == title}


def _restricted(block: FeatureBlock, place: Array) -> FeatureBlock:
    """A block of the columns that are there; those of blocks are at every level."""
    if not len(place):
        return block
    where = np.searchsorted(place, block.columns)
    return block._replace(columns=where)

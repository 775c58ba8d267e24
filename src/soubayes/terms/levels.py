"""How much of the terms a candidate has: straight parts, curves as well, pairs as well.

The columns of a fit are ordered by level. Pairs that the data ask for are screened again in the
training rows of every fold, from the columns of the other terms.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from soubayes.terms.expansion import TermBlock, TermColumns, joined_columns
from soubayes.terms.pairs import PAIR_CURVED, CentredProduct, Margins

Array = np.ndarray

FEW_PAIRS, MANY_PAIRS = 8, 40  # pairs of the two further levels
ROWS_A_PAIR = 15  # there are at most as many pairs as rows divided by this
PAIRED_LEVELS = 12  # levels of a factor that enters pairs
MOST_MARGINS = 120  # terms that are screened for pairs, 7,140 pairs


class LevelColumns(NamedTuple):
    """The columns of one level for all rows."""

    matrix: Array  # (n, columns)
    number: Array  # (columns,) their blocks
    names: list[str]  # of the blocks
    place: Array  # (columns,) among the columns of the fit, where they are known
    unit: Array | None  # (columns,) of the large unit, else -1; None: there is none


@dataclass(frozen=True)
class TermLevels:
    """The levels of a fit; ``target`` is what pairs should explain, (n, targets)."""

    terms: TermColumns
    margins: Margins
    counts: tuple[int, ...]  # pairs of every level that has some
    target: Array
    weight: Array | None

    @property
    def levels(self) -> list[int]:
        """Those that differ."""
        return sorted({block.level for block in self.terms.blocks})

    def title(self, level: int) -> str:
        """What a candidate of a level has."""
        if level < 2:
            return ("straight", "curves")[level]
        return f"{self.counts[level - 2]} pairs"

    def on_all_rows(self, Z: Array, level: int) -> LevelColumns:
        """The columns of a fit to all rows."""
        place = np.flatnonzero(self.terms.level <= level)
        kept, number = np.unique(self.terms.number[place], return_inverse=True)
        names = [self.terms.blocks[k].name for k in kept]
        unit = self.terms.unit
        return LevelColumns(
            Z[:, place], number, names, place, None if unit is None else unit[place]
        )

    def in_fold(
        self, Z: Array, level: int, pairs: Sequence[tuple[int, int]], rows: Array
    ) -> LevelColumns:
        """The columns of a fit to some rows, with the pairs that were screened there."""
        base = self.on_all_rows(Z, min(level, 1))
        if level < 2:
            return base
        weight = None if self.weight is None else self.weight[rows]
        count, numbers, parts = len(base.names), [base.number], [base.matrix]
        added = 0
        names = list(base.names)
        for a, b in pairs[: self.counts[level - 2]]:
            for product in self.margins.products(Z[rows], a, b, weight):
                parts.append(product.of(Z))
                numbers.append(np.full(product.size, count))
                added += product.size
                names.append(f"pair {count}")
                count += 1
        none = np.zeros(0, int)
        unit = None if base.unit is None else np.append(base.unit, np.full(added, -1))
        return LevelColumns(joined_columns(parts), np.concatenate(numbers), names, none, unit)

    def screen(self, Z: Array, rows: Array) -> list[tuple[int, int]]:
        """The pairs that these rows ask for."""
        weight = None if self.weight is None else self.weight[rows]
        base, unit = Z[:, self.terms.level < 2][rows], self.terms.unit
        unit = None if unit is None else unit[self.terms.level < 2]
        return self.margins.screen(base, self.target[rows], weight, self.counts[-1], unit)


def with_pairs(
    terms: TermColumns, Z: Array, target: Array, weight: Array | None, pairs: bool
) -> tuple[TermColumns, TermLevels]:
    """The columns of a fit with the pairs that its rows ask for, and its levels."""
    margins = margins_of(terms) if pairs else Margins((), ())
    found: list[tuple[int, int]] = []
    size = len(margins.labels)
    most = min(MANY_PAIRS, Z.shape[0] // ROWS_A_PAIR, size * (size - 1) // 2)
    if most > 0:
        found = margins.screen(Z, target, weight, most, terms.unit)
    counts = (len(found),) if len(found) <= FEW_PAIRS else (FEW_PAIRS, len(found))
    blocks = []
    for rank, (a, b) in enumerate(found):
        name = f"{margins.labels[a]}:{margins.labels[b]}"
        level = 2 if rank < counts[0] else 3
        for k, product in enumerate(margins.products(Z, a, b, weight)):
            names = tuple(f"{name}[{k + 1}.{i + 1}]" for i in range(product.size))
            blocks.append(TermBlock(name, "pair", product, names, level=level))
    terms = terms.with_products(blocks)
    return terms, TermLevels(terms, margins, counts if found else (), target, weight)


def margins_of(terms: TermColumns) -> Margins:
    """The terms that pairs may be formed of: numbers, curves and factors of few levels."""
    parts: dict[str, list[Array]] = {}
    for block, where in zip(terms.blocks, terms.slices(), strict=True):
        columns = np.arange(where.start, where.stop)
        if isinstance(block.piece, CentredProduct) or block.kind in ("unit", "slope"):
            continue
        if block.kind == "curved":
            parts.setdefault(block.term, []).append(columns[:PAIR_CURVED])
        elif len(columns) <= PAIRED_LEVELS:
            parts.setdefault(block.term, []).append(columns)
    labels = list(parts)[:MOST_MARGINS]
    return Margins(tuple(labels), tuple(tuple(parts[label]) for label in labels))

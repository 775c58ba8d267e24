"""Terms learned from the rows of a fit: from a table to columns, each with its block and name.

A block is what shares a scale: a column, the levels of a factor, the curved part of a curve, the
effects of a unit, one product of a pair. `TermColumns` is learned once from X, never from y, and
is applied to new rows: a level that was not seen has no effect, and that of an unseen unit is
uncertain by the variance between units.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from soubayes.terms.basis import CURVED, FEWEST_VALUES, Cycle, NaturalSpline, cycle, spline
from soubayes.terms.kinds import (
    Column,
    Factor,
    Margin,
    Offset,
    Pair,
    Periodic,
    Slope,
    Smooth,
    Term,
    Unit,
    label,
    read_columns,
)
from soubayes.terms.pairs import PAIR_CURVED, CentredProduct
from soubayes.terms.parsing import Wanted
from soubayes.terms.table import Table, as_levels, check_columns, is_text, levels

Array = np.ndarray

NEW = "(new)"  # the level of a unit that the fit has not seen
# columns from which each curve that no one named has fewer curved columns, for the time of a fit
MANY_CURVES, FEW_CURVED = 30, 5
QUANTILES = 21  # of a column that are kept for its figure
# levels from which the effects of a unit are eliminated in blocks, and of a unit that is not
LARGE_UNIT, LARGEST_DENSE = 300, 1_000
LARGEST_UNIT = 2_000  # levels where nothing can be eliminated


@dataclass(frozen=True)
class Plain:
    """A column as it is; gaps are filled by the median."""

    column: str
    fill: float

    def columns(self, table: Table) -> Array:
        """(n, 1)."""
        return filled(table, self.column, self.fill)[:, None]


@dataclass(frozen=True)
class Bend:
    """The curved part of a curve."""

    column: str
    fill: float
    basis: NaturalSpline | Cycle

    def columns(self, table: Table) -> Array:
        """(n, curved)."""
        return self.basis.curved(filled(table, self.column, self.fill))


@dataclass(frozen=True)
class Indicators:
    """A column of 0 and 1 for every level; with ``fresh`` a last one for those not seen."""

    column: str
    levels: tuple[str, ...]
    fresh: bool = False

    def sparse(self, table: Table) -> sp.csr_array:
        """(n, levels)."""
        place = {level: k for k, level in enumerate(self.levels)}
        other = len(self.levels) if self.fresh else -1
        where = np.array([place.get(v, other) for v in as_levels(table.columns[self.column])], int)
        rows = np.flatnonzero(where >= 0)
        shape = table.rows, len(self.levels) + self.fresh
        return sp.csr_array((np.ones(len(rows)), (rows, where[rows])), shape=shape)

    def columns(self, table: Table) -> Array:
        """The same, dense."""
        return np.asarray(self.sparse(table).toarray())


@dataclass(frozen=True)
class Slopes:
    """x - centre for every level of a unit."""

    column: str
    fill: float
    centre: float
    unit: Indicators
    correlated: bool = False  # with the intercept at 0; the centre is then chosen by the data

    def sparse(self, table: Table) -> sp.csr_array:
        """(n, levels + 1)."""
        off = filled(table, self.column, self.fill) - self.centre
        return sp.csr_array(sp.diags_array(off) @ self.unit.sparse(table))

    def columns(self, table: Table) -> Array:
        """The same, dense."""
        return np.asarray(self.sparse(table).toarray())


Piece = Plain | Bend | Indicators | Slopes | CentredProduct


@dataclass(frozen=True)
class TermBlock:
    """Columns that share a scale."""

    term: str  # the label of the term that it is part of
    kind: str  # straight, curved, factor, unit, slope, pair
    piece: Piece
    names: tuple[str, ...]  # of its columns
    required: bool = False
    level: int = 0  # 0: straight, 1: curved, 2: a pair that the data asked for

    @property
    def name(self) -> str:
        """How the block is called among those of its term."""
        return f"{self.term}, {self.kind}" if self.kind == "curved" else self.term


@dataclass(frozen=True)
class TermColumns:
    """From rows to the columns of all blocks; products stand last, and read the columns before."""

    blocks: tuple[TermBlock, ...]
    offsets: tuple[Plain, ...]
    columns: tuple[str, ...]  # of X, in order
    grids: dict[str, Array]  # quantiles of the columns of numbers
    levels: dict[str, list[str]]  # of the columns that are categories
    large: str | None = None  # the column of the unit whose effects are eliminated

    @property
    def names(self) -> list[str]:
        """Of all columns."""
        return [name for block in self.blocks for name in block.names]

    @property
    def number(self) -> Array:
        """(p,) the block of every column."""
        return np.repeat(np.arange(len(self.blocks)), [len(block.names) for block in self.blocks])

    @property
    def level(self) -> Array:
        """(p,) the level of every column."""
        return np.array([block.level for block in self.blocks], int)[self.number]

    def slices(self) -> list[slice]:
        """The columns of every block."""
        ends = np.cumsum([0, *(len(block.names) for block in self.blocks)])
        return [slice(a, b) for a, b in pairwise(ends.tolist())]

    @property
    def unit(self) -> Array | None:
        """(p,) the level of the large unit that a column is an effect of, else -1."""
        if self.large is None:
            return None
        return np.concatenate([
            np.arange(len(block.names)) if self._is_large(block) else np.full(len(block.names), -1)
            for block in self.blocks
        ])  # fmt: skip

    def _is_large(self, block: TermBlock) -> bool:
        return self.large is not None and unit_column(block) == self.large

    def transform(self, table: Table) -> Array | sp.csr_array:
        """(n, p) the columns of all blocks; scipy-sparse with a large unit."""
        check_columns(table, self.needed)
        products = [b.piece for b in self.blocks if isinstance(b.piece, CentredProduct)]
        base: list[Array | sp.csr_array] = [np.zeros((table.rows, 0))]
        for block in self.blocks:
            piece = block.piece
            if isinstance(piece, CentredProduct):
                continue
            if isinstance(piece, Indicators | Slopes) and self._is_large(block):
                base.append(piece.sparse(table))
            else:
                base.append(piece.columns(table))
        Z = joined_columns(base)
        return joined_columns([Z, *(product.of(Z) for product in products)])

    def offset(self, table: Table) -> Array | None:
        """The known part of the predictors; None: there is none."""
        each = [piece.columns(table)[:, 0] for piece in self.offsets]
        return np.sum(each, axis=0) if each else None

    @property
    def needed(self) -> list[str]:
        """The columns of X that are read."""
        found: dict[str, None] = {}
        for piece in (*(block.piece for block in self.blocks), *self.offsets):
            if isinstance(piece, Slopes):
                found[piece.unit.column] = None
            if not isinstance(piece, CentredProduct):
                found[piece.column] = None
        return list(found)

    @property
    def correlated(self) -> list[int]:
        """The blocks of slopes whose centre the data choose."""
        pieces = [block.piece for block in self.blocks]
        return [k for k, p in enumerate(pieces) if isinstance(p, Slopes) and p.correlated]

    def centred_at(self, k: int, centre: float) -> "TermColumns":
        """With the slopes of a block about another centre."""
        blocks, piece = list(self.blocks), self.blocks[k].piece
        assert isinstance(piece, Slopes)
        blocks[k] = replace(blocks[k], piece=replace(piece, centre=centre))
        return replace(self, blocks=tuple(blocks))

    def with_products(self, products: Sequence[TermBlock]) -> "TermColumns":
        """With further blocks of products."""
        return replace(self, blocks=(*self.blocks, *products))

    def reads(self, block: TermBlock) -> list[str]:
        """The columns of X behind a block."""
        piece = block.piece
        if isinstance(piece, CentredProduct):
            number = self.number
            both = {int(number[j]) for j in (*piece.first, *piece.second)}
            return [name for k in sorted(both) for name in self.reads(self.blocks[k])]
        return [piece.column, piece.unit.column] if isinstance(piece, Slopes) else [piece.column]


def joined_columns(parts: Sequence[Array | sp.csr_array]) -> Array | sp.csr_array:
    """Columns side by side, scipy-sparse if any part is."""
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.hstack([sp.csr_array(part) for part in parts]))
    return np.hstack(parts)


def unit_column(block: TermBlock) -> str | None:
    """The column of the unit that a block has effects of."""
    piece = block.piece
    if isinstance(piece, Slopes):
        return piece.unit.column
    return piece.column if block.kind == "unit" and isinstance(piece, Indicators) else None


def learn(
    wanted: Wanted, table: Table, weight: Array | None = None, eliminates: bool = False
) -> TermColumns:
    """Learn terms from rows; ``eliminates``: whether effects of a large unit are eliminated."""
    named = [name for term in wanted.terms for name in read_columns(term)]
    check_columns(table, named)
    terms: list[Term] = [_resolved(term, table) for term in wanted.terms]
    if wanted.curves:
        rest = [name for name in table.columns if name not in named]
        size = FEW_CURVED if len(rest) > MANY_CURVES else None
        terms = [*(_automatic(name, table, size) for name in rest), *terms]
    for pair in [term for term in terms if isinstance(term, Pair)]:  # with their main effects
        for margin in (pair.first, pair.second):
            if margin not in terms and not _has(terms, margin):
                terms.append(margin)
    learner = _Learner(table, weight, wanted.curves)
    blocks = [block for term in terms for block in learner.blocks(term)]
    for pair in [term for term in terms if isinstance(term, Pair)]:
        blocks += learner.products(pair, blocks)
    offsets = [learner.number(term.column) for term in terms if isinstance(term, Offset)]
    if not blocks:
        raise ValueError("terms leave no column: every term is an offset or constant.")
    found = TermColumns(tuple(blocks), tuple(offsets), tuple(table.columns), {}, {})
    known = {}
    for piece in (block.piece for block in blocks):
        indicators = piece.unit if isinstance(piece, Slopes) else piece
        if isinstance(indicators, Indicators):
            known[indicators.column] = levels(table.columns[indicators.column])
    numbers = [name for name in found.needed if name not in known]
    grids = {name: _quantiles(filled(table, name, np.nan)) for name in numbers}
    units = {name: len(known[name]) for name in map(unit_column, blocks) if name is not None}
    return replace(found, grids=grids, levels=known, large=_large_unit(units, eliminates))


def _large_unit(units: dict[str, int], eliminates: bool) -> str | None:
    """The unit whose effects are eliminated; the others are columns like all."""
    largest = max(units, key=units.__getitem__, default=None)
    if largest is None:
        return None
    large = largest if eliminates and units[largest] > LARGE_UNIT else None
    for name, count in units.items():
        if name != large and count > (LARGEST_DENSE if large else LARGEST_UNIT):
            if large:
                why = f"beside {large!r} at most {LARGEST_DENSE:,}"
            else:
                why = (
                    f"at most {LARGEST_UNIT:,} by this estimator with these settings (only linear "
                    "regression with normal noise and inclusion=False eliminates effects of units)"
                )
            raise ValueError(
                f"the unit {name!r} has {count:,} levels, but {why} can be fitted. Group the "
                "units, or fit a part of them."
            )
    return large


def filled(table: Table, name: str, fill: float) -> Array:
    """A column of numbers without gaps."""
    values = table.columns[name]
    if is_text(values):
        try:
            values = np.array([np.nan if v is None else float(v) for v in values.tolist()])
        except (TypeError, ValueError):
            raise ValueError(f"column {name!r} holds text, but the term needs numbers.") from None
    return np.where(np.isnan(values), fill, values)


def _quantiles(values: Array) -> Array:
    return np.quantile(values[~np.isnan(values)], np.linspace(0.0, 1.0, QUANTILES))


def _resolved(term: Term, table: Table) -> Term:
    """Columns of text are factors, also in pairs."""
    match term:
        case Column() if is_text(table.columns[term.column]):
            return Factor(term.column, term.required)
        case Pair():
            first, second = _resolved(term.first, table), _resolved(term.second, table)
            return Pair(first, second, term.required)  # type: ignore[arg-type]
        case _:
            return term


def _has(terms: list[Term], margin: Margin) -> bool:
    """Whether the columns of a margin are there, perhaps with another ``required``."""
    return any(label(term) == label(margin) for term in terms if not isinstance(term, Pair))


def _automatic(name: str, table: Table, size: int | None) -> Margin:
    """The term of a column that is only known by its values."""
    values = table.columns[name]
    if is_text(values):
        return Factor(name)
    distinct = len(np.unique(values[~np.isnan(values)]))
    return Smooth(name, size=size) if distinct >= FEWEST_VALUES else Column(name)


class _Learner:
    """Makes the blocks of terms from the rows of a fit."""

    def __init__(self, table: Table, weight: Array | None, optional: bool) -> None:
        self.table, self.weight = table, weight
        self.curved_level = int(optional)  # with "curves" the folds decide whether any is curved

    def number(self, name: str) -> Plain:
        """A column and the value that fills its gaps."""
        values = self.table.columns[name]
        with np.errstate(invalid="ignore"):
            known = filled(self.table, name, np.nan)
        known = known[~np.isnan(known)]
        if not len(known) and len(values):
            raise ValueError(f"column {name!r} has no values: leave it out.")
        return Plain(name, float(np.median(known)))

    def blocks(self, term: Term) -> list[TermBlock]:
        """The blocks of a term; products come later."""
        name = label(term)
        match term:
            case Column():
                return [
                    TermBlock(name, "straight", self.number(term.column), (name,), term.required)
                ]
            case Factor():
                return self._factor(term)
            case Smooth():
                return self._curve(term)
            case Periodic():
                number = self.number(term.column)
                x = filled(self.table, term.column, number.fill)
                basis = cycle(x, term.begin, term.end, term.size or CURVED, self.weight)
                return [self._bend(term, number, basis, 0)]
            case Unit():
                unit = self._unit(term.column)
                return [TermBlock(name, "unit", unit, _level_names(term.column, unit))]
            case Slope():
                number, unit = self.number(term.column), self._unit(term.unit)
                x = filled(self.table, term.column, number.fill)
                centre = float(np.mean(x))
                slopes = Slopes(term.column, number.fill, centre, unit, term.correlated)
                names = _level_names(f"{term.column} | {term.unit}", unit)
                return [TermBlock(name, "slope", slopes, names)]
            case _:
                return []

    def _curve(self, term: Smooth) -> list[TermBlock]:
        number = self.number(term.column)
        x = filled(self.table, term.column, number.fill)
        try:
            basis = spline(x, term.size or CURVED, self.weight)
        except ValueError as error:
            raise ValueError(f"s({term.column}): {error}") from None
        straight = TermBlock(label(term), "straight", number, (term.column,), term.required)
        return [straight, self._bend(term, number, basis, self.curved_level)]

    def _bend(
        self, term: Smooth | Periodic, number: Plain, basis: NaturalSpline | Cycle, level: int
    ) -> TermBlock:
        names = tuple(f"{label(term)}[{k + 1}]" for k in range(basis.size))
        return TermBlock(
            label(term), "curved", Bend(term.column, number.fill, basis), names, level=level
        )

    def _factor(self, term: Factor) -> list[TermBlock]:
        found = levels(self.table.columns[term.column])
        if len(found) < 2:
            return []
        # two levels are one column; with a flat prior all levels would be one too many
        kept = found[1:] if term.required or len(found) == 2 else found
        piece = Indicators(term.column, tuple(kept))
        return [
            TermBlock(label(term), "factor", piece, _level_names(term.column, piece), term.required)
        ]

    def _unit(self, name: str) -> Indicators:
        found = levels(self.table.columns[name])
        if len(found) < 2:
            raise ValueError(
                f"the unit {name!r} has one level, but a variance between units needs at least two."
            )
        return Indicators(name, tuple(found), fresh=True)

    def products(self, pair: Pair, blocks: Sequence[TermBlock]) -> list[TermBlock]:
        """The products of a pair, a scale for each combination of parts."""
        base = [block.piece for block in blocks if not isinstance(block.piece, CentredProduct)]
        Z = joined_columns([np.zeros((self.table.rows, 0))] + [
            piece.sparse(self.table) if isinstance(piece, Indicators | Slopes)
            else piece.columns(self.table) for piece in base
        ])  # fmt: skip
        margins = []
        for margin in (pair.first, pair.second):
            begin, parts = 0, []
            for block in blocks:
                if isinstance(block.piece, CentredProduct):
                    continue
                end = begin + len(block.names)
                if block.term == label(margin):
                    size = PAIR_CURVED if block.kind == "curved" else end - begin
                    parts.append(np.arange(begin, min(end, begin + size)))
                begin = end
            margins.append(parts)
        found = []
        for k, (first, second) in enumerate((a, b) for a in margins[0] for b in margins[1]):
            piece = CentredProduct.learn(Z, first, second, self.weight)
            names = tuple(f"{label(pair)}[{k + 1}.{i + 1}]" for i in range(piece.size))
            found.append(TermBlock(label(pair), "pair", piece, names, pair.required))
        return found


def _level_names(name: str, piece: Indicators) -> tuple[str, ...]:
    return tuple(f"{name}={level}" for level in (*piece.levels, *[NEW] * piece.fresh))

"""The kinds of terms, as data: what a user asks for, before any row was seen."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A number that enters as it is, or the levels of a category."""

    column: str
    required: bool = False  # always in, with a flat prior


@dataclass(frozen=True)
class Factor:
    """The levels of a category, which come or go together."""

    column: str
    required: bool = False


@dataclass(frozen=True)
class Smooth:
    """A smooth function of a number: a straight part, and a curved part with a scale of its own."""

    column: str
    required: bool = False
    size: int | None = None  # curved columns; None: `basis.CURVED`


@dataclass(frozen=True)
class Periodic:
    """A smooth function of a number that repeats."""

    column: str
    begin: float
    end: float
    required: bool = False
    size: int | None = None


@dataclass(frozen=True)
class Pair:
    """Centred products of the bases of two terms."""

    first: "Column | Factor | Smooth | Periodic"
    second: "Column | Factor | Smooth | Periodic"
    required: bool = False


@dataclass(frozen=True)
class Unit:
    """An effect for every level of a repeated unit, such as a patient or a site."""

    column: str


@dataclass(frozen=True)
class Slope:
    """A slope of a centred number for every level of a unit, independent of its intercept.

    If it is ``correlated`` with the intercept at 0, the data choose the centre at which the two are
    independent: with T their covariance at 0 that is -T_01/T_11.
    """

    column: str
    unit: str
    correlated: bool = False


@dataclass(frozen=True)
class Offset:
    """A known part of the predictor."""

    column: str


Margin = Column | Factor | Smooth | Periodic
Term = Column | Factor | Smooth | Periodic | Pair | Unit | Slope | Offset


def label(term: Term) -> str:
    """How a term is written.

    >>> label(Pair(Factor("sex"), Smooth("dose")))
    'sex:s(dose)'
    """
    match term:
        case Smooth() | Periodic():
            return f"s({term.column})"
        case Pair():
            return f"{label(term.first)}:{label(term.second)}"
        case Unit():
            return f"(1 | {term.column})"
        case Slope():
            return f"(0 + {term.column} | {term.unit})"
        case Offset():
            return f"offset({term.column})"
        case _:
            return term.column


def read_columns(term: Term) -> tuple[str, ...]:
    """The columns that a term reads.

    >>> read_columns(Slope("days", "subject"))
    ('days', 'subject')
    """
    match term:
        case Pair():
            return (*read_columns(term.first), *read_columns(term.second))
        case Slope():
            return term.column, term.unit
        case _:
            return (term.column,)

"""From what a user writes to terms.

A term is ``x``, ``C(x)`` for a category written in numbers, ``s(x)``, ``s(month, bs="cc",
period=(0.5, 12.5))``, ``a:b``, ``a*b``, ``(1 | unit)``, ``(x | unit)``, ``(x || unit)`` or
``offset(x)``;
``required(...)`` around it keeps it in the model with a flat prior. Names that are no words stand
in backquotes. The words ``"curves"`` and ``"pairs"`` stand for all columns that no other term
names.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from soubayes.confidence import shown
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
)

WORDS = ("curves", "pairs")
FORMS = (
    'x, C(x), s(x), s(x, bs="cc", period=(0, 12)), a:b, (1 | unit), (x | unit), (x || unit), '
    'offset(x), required(...), or the words "curves" and "pairs"'
)


class Wanted(NamedTuple):
    """What ``terms`` asks for."""

    terms: tuple[Term, ...]
    curves: bool = False  # all other columns as curves
    pairs: bool = False  # and the pairs that the data ask for


def parse_terms(terms: str | Sequence[str]) -> Wanted:
    """Read ``terms``: a word, a term, or a sequence of them.

    >>> parse_terms(["s(age)", "required(sex)", "(1 | site)"]).terms
    (Smooth(column='age', required=False, size=None), Column(column='sex', required=True), \
Unit(column='site'))
    """
    given = [terms] if isinstance(terms, str) else terms
    if not isinstance(given, Sequence) or not all(isinstance(one, str) for one in given):
        raise TypeError(
            f"terms is {shown(terms)}, but it must be 'curves', 'pairs', or a list of terms such "
            'as ["s(age)", "sex", "(1 | site)"].'
        )
    words = {one.strip() for one in given} & set(WORDS)
    found: list[Term] = []
    for one in given:
        if one.strip() not in WORDS:
            found += [term for term in _parse(one.strip(), one) if term not in found]
    if not found and not words:
        raise ValueError("terms is empty: name at least one term, or leave terms out.")
    return Wanted(tuple(found), bool(words), "pairs" in words)


def split_terms(text: str, sign: str) -> list[str]:
    """Split where no bracket, quote or backquote is open.

    >>> split_terms("s(x) + (1 + x || k)", "+")
    ['s(x)', '(1 + x || k)']
    """
    return [part.strip() for part in _split(text, sign)]


def _parse(text: str, whole: str) -> list[Term]:
    """The terms of one string."""
    call = re.fullmatch(r"required\((.*)\)", text, re.S)
    if call:
        inside = _parse(call[1].strip(), whole)
        found: list[Term] = []
        for term in inside:
            if isinstance(term, Unit | Slope | Offset):
                raise _unreadable(whole, "a unit or an offset cannot be required")
            found.append(replace(term, required=True))
        return found
    bars = re.fullmatch(r"\((.*?)(\|\|?)(.*)\)", text, re.S)
    if bars:
        return _unit(bars[1].strip(), bars[2], bars[3].strip(), whole)
    call = re.fullmatch(r"offset\((.*)\)", text, re.S)
    if call:
        return [Offset(_name(call[1].strip(), whole))]
    for sign in "*:":
        parts = _split(text, sign)
        if len(parts) > 2:
            raise _unreadable(whole, "a pair has two parts")
        if len(parts) == 2:
            first, second = (_margin(part.strip(), whole) for part in parts)
            both = [Pair(first, second)]
            return [first, second, *both] if sign == "*" else list(both)
    return [_margin(text, whole)]


def _margin(text: str, whole: str) -> Margin:
    """A term of one column."""
    call = re.fullmatch(r"(\w+)\((.*)\)", text, re.S)
    if not call:
        return Column(_name(text, whole))
    if call[1] == "C":
        return Factor(_name(call[2].strip(), whole))
    if call[1] != "s":
        raise _unreadable(whole, f"{call[1]} is not a known function")
    first, *rest = [part.strip() for part in _split(call[2], ",")]
    options = dict(_option(part, whole) for part in rest)
    return _smooth(_name(first, whole), options, whole)


def _smooth(name: str, options: dict[str, object], whole: str) -> Margin:
    size = options.pop("k", None)
    if size is not None and (not isinstance(size, int) or size < 1):
        raise _unreadable(whole, "k must be a whole number above 0, the curved columns")
    kind, period = options.pop("bs", None), options.pop("period", None)
    if options:
        raise _unreadable(whole, f"s has no option {sorted(options)[0]!r}, only bs, period and k")
    if kind not in (None, "cc"):
        raise _unreadable(whole, f"bs is {kind!r}, but it must be 'cc' (periodic) or left out")
    if (kind == "cc") != (period is not None):
        raise _unreadable(whole, 'a periodic curve needs both bs="cc" and period=(begin, end)')
    if period is None:
        return Smooth(name, size=size)
    if not isinstance(period, tuple) or len(period) != 2:
        raise _unreadable(whole, f"period is {period!r}, but it must be (begin, end)")
    return Periodic(name, float(period[0]), float(period[1]), size=size)


def _option(text: str, whole: str) -> tuple[str, object]:
    key, equals, value = text.partition("=")
    try:
        if equals:
            return key.strip(), ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        pass
    raise _unreadable(whole, f"{text!r} is not an option such as k=5")


def _unit(left: str, bars: str, unit: str, whole: str) -> list[Term]:
    """``(1 | unit)``, ``(x | unit)``, ``(x || unit)``, ``(0 + x | unit)``."""
    name = _name(unit, whole)
    parts = [part.strip() for part in left.split("+")]
    slopes = [part for part in parts if part not in ("0", "1")]
    correlated = bars == "|" and "0" not in parts
    if bars == "|" and len(slopes) > 1:
        raise _unreadable(
            whole, "a slope can be correlated with the intercept, not with another slope; write (x "
            "+ z || unit), in which all are independent, or one (0 + x | unit) for each slope",
        )  # fmt: skip
    if name in slopes:
        raise _unreadable(whole, "a unit has no slope of itself")
    found: list[Term] = [] if "0" in parts else [Unit(name)]
    return found + [Slope(_name(part, whole), name, correlated) for part in slopes]


def _split(text: str, sign: str) -> list[str]:
    """Split where no bracket, quote or backquote is open."""
    parts, depth, quote, begin = [], 0, "", 0
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'`":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == sign and depth == 0:
            parts.append(text[begin:i])
            begin = i + 1
    return [*parts, text[begin:]]


def _name(text: str, whole: str) -> str:
    """The name of a column, in backquotes if it is not one word."""
    if len(text) > 2 and text[0] == text[-1] == "`":
        return text[1:-1]
    if re.search(r"[()|`~+*:\s\"']", text) or not text:
        raise _unreadable(whole, f"{text!r} is not the name of a column (write it in backquotes)")
    return text


def _unreadable(whole: str, why: str) -> ValueError:
    return ValueError(f"the term {whole!r} cannot be read: {why}. A term is {FORMS}.")

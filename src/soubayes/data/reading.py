"""Tables in files; text files as programs and countries write them."""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from numbers import Number
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from soubayes._optional import require
from soubayes.data.names import TableError, check_table_file, table_kind

SEPARATORS = ",;\t|"
DECIMALS = ("auto", ".", ",")
NEARLY_ALL = 0.9  # of the values are numbers: the others are typing errors (development/tables.md)
_SAMPLE = 1000  # rows that separator and decimal mark are read off
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_GROUPS = ",. \u00a0\u202f'’"  # between thousands


def read_table(
    path: Path, decimal: str = "auto", separator: str = "auto", text: Sequence[str] = ()
) -> Any:
    """The data frame in a file.

    ``decimal`` and ``separator`` are those of a text file; the columns named in ``text`` are not
    turned into numbers.
    """
    check_table_file(path)
    readers = {
        ".parquet": pd.read_parquet,
        ".xlsx": partial(_read_excel, text=text),
    }
    text_reader = partial(read_csv, decimal=decimal, separator=separator, text=text)
    reader = readers.get(table_kind(path), text_reader)
    try:
        frame = reader(path)
    except ImportError:
        raise
    except Exception as error:  # each reader has its own kinds
        raise TableError(f"{path.name} cannot be read: {' '.join(str(error).split())}.") from error
    if frame.empty:
        raise TableError(f"{path.name} has no rows.")
    return frame


def _read_excel(path: Path, text: Sequence[str]) -> Any:
    """The first sheet of a workbook."""
    require("openpyxl", "reading .xlsx")
    frame = pd.read_excel(path, dtype=dict.fromkeys(text, str), engine="openpyxl")
    names = [name for name in frame if name not in text]
    frame.attrs["typing_errors"] = typing_errors(frame, names, lambda row: row + 2)
    return frame


def read_csv(
    path: Path, decimal: str = "auto", separator: str = "auto", text: Sequence[str] = ()
) -> pd.DataFrame:
    """The table in a text file; ``attrs["notes"]`` says what was read in an unusual way.

    ``separator`` is "auto", "tab" or one character; columns named in ``text`` stay text.
    """
    if decimal not in DECIMALS:
        raise ValueError(f"decimal is {decimal!r}, but it must be one of {', '.join(DECIMALS)}")
    encoding = _encoding(path)
    rows = list(_rows(path, encoding))
    guessed = separator == "auto"
    separator = (
        _separator(rows) if guessed else {"tab": "\t", r"\t": "\t"}.get(separator, separator)
    )
    if len(separator) != 1:
        raise ValueError(
            f"the separator is {separator!r}, but it must be auto, tab or one character"
        )
    body = [row for row in csv.reader(rows, delimiter=separator) if not _is_blank(row)]
    header = body.pop(0) if body else []
    doubled = list(dict.fromkeys(name for name in header if name and header.count(name) > 1))
    if doubled:
        named = ", ".join(map(repr, doubled))
        raise ValueError(f"several columns are called {named}: give each its own name")
    layout = _layout(path, encoding, separator)
    codes = [name for name in layout.codes if name not in text]
    mark = _decimal(body, separator) if decimal == "auto" else decimal
    frame = pd.read_csv(
        path,
        sep=separator,
        encoding=encoding,
        decimal=mark,
        header=0,
        names=[*layout.names, *layout.beyond] or None,
        usecols=layout.names or None,
        index_col=False,
        dtype=dict.fromkeys([*text, *codes], str),
        low_memory=False,
    )
    notes = []
    if encoding == "cp1252":
        notes.append("The file is not UTF-8: read as Windows-1252 (Latin-1).")
    if guessed and separator != "," and (separator, path.suffix.lower()) != ("\t", ".tsv"):
        name = {"\t": "tabs", ";": "semicolons", "|": "bars"}[separator]
        notes.append(f"Columns are separated by {name}.")
    if layout.short:
        count, line = layout.short
        notes.append(
            f"Rows with fewer cells than the header: {count}, the first is line {line}; their last "
            "columns are missing values."
        )
    if codes:
        notes.append(f"Read as text, since values begin with 0: {', '.join(map(repr, codes))}.")
    numbers = [name for name in frame if name not in text and name not in codes]
    frame.attrs["notes"] = notes + _to_numbers(
        frame, numbers, mark, mark == "," and decimal == "auto"
    )
    lines = partial(_line_of, path, encoding, separator)
    frame.attrs["typing_errors"] = typing_errors(frame, numbers, lines)
    return frame


class Layout(NamedTuple):
    """How the rows of a text file fit its header."""

    names: list[str]  # of the columns
    beyond: list[str]  # names of empty columns after the last one
    short: tuple[int, int] | None  # rows with fewer cells than the header, the line of the first
    codes: list[str]  # columns of digits of which some begin with 0


def _layout(path: Path, encoding: str, separator: str) -> Layout:
    """From all rows, since one with a separator too many would shift its cells."""
    header: list[str] = []
    count = long = short = widest = first_short = 0
    first_long, codes = "", set()
    with open(path, encoding=encoding, newline="") as text:
        reader = csv.reader(text, delimiter=separator)
        for row in reader:
            if _is_blank(row):
                continue
            if not header:
                header = row
                continue
            count, widest = count + 1, max(widest, len(row))
            if len(row) < len(header):
                short, first_short = short + 1, first_short or reader.line_num
            if any(map(str.strip, row[len(header) :])):
                long += 1
                first_long = first_long or (
                    f"line {reader.line_num} has {len(row)} cells, but the header has {len(header)}"
                )
            codes |= {j for j, cell in enumerate(row) if cell[:1] == "0" and cell[1:].isdigit()}
    # R leaves the name of the row names out
    row_names = bool(long) and long == count and widest == len(header) + 1
    if long and not row_names:
        raise ValueError(first_long)
    names = [name or f"Unnamed: {j}" for j, name in enumerate([*[""] * row_names, *header])]
    beyond = [f"beyond {j}" for j in range(len(names), widest)]
    known = [names[j] for j in sorted(codes) if j < len(names)]
    return Layout(names, beyond, (short, first_short) if short else None, known)


def _is_blank(row: list[str]) -> bool:
    """Whether a line is empty, as pandas sees it."""
    return not row or (len(row) == 1 and not row[0].strip())


def typing_errors(
    frame: pd.DataFrame, names: Sequence[str], line_of: Callable[[int], int]
) -> dict[str, str]:
    """Columns of text of which nearly all values are numbers, and what is wrong with each.

    ``line_of`` is the line of a row.
    """
    found = {}
    for name in names:
        if pd.api.types.is_numeric_dtype(frame[name]):
            continue
        known = frame[name].dropna()
        reads = known.map(_is_number).to_numpy(bool)
        if not reads.all() and reads.mean() >= NEARLY_ALL:
            row = int(np.flatnonzero(frame[name].notna())[~reads][0])
            found[str(name)] = (
                f"line {line_of(row)}: {frame[name].iloc[row]!r} in the column {str(name)!r} is "
                f"not a number, but {reads.sum()} of its {len(reads)} values are: correct it (an "
                "empty cell is a missing value)"
            )
    return found


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return any(pattern.fullmatch(value.strip()) for pattern in _NUMBER.values())
    return isinstance(value, Number)


def _line_of(path: Path, encoding: str, separator: str, row: int) -> int:
    """The line of a text file that a row of the table ends in."""
    with open(path, encoding=encoding, newline="") as text:
        reader = csv.reader(text, delimiter=separator)
        lines = (reader.line_num for cells in reader if not _is_blank(cells))
        return next(islice(lines, row + 1, None))


def _encoding(path: Path) -> str:
    with open(path, "rb") as file:
        start = file.read(4)
        for mark, name in _MARKS.items():
            if start.startswith(mark):
                return name
        file.seek(0)
        start = file.read(4096)
    if start and start.count(0) > len(start) // 4:  # UTF-16 without its mark
        return "utf-16-le" if start[1::2].count(0) > start[::2].count(0) else "utf-16-be"
    try:
        with open(path, encoding="utf-8") as text:
            for _ in iter(lambda: text.read(2**20), ""):
                pass
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def _rows(path: Path, encoding: str) -> Iterator[str]:
    """The first lines."""
    with open(path, encoding=encoding, newline="") as text:
        for number, line in enumerate(text):
            if number > _SAMPLE:
                return
            yield line


def _separator(rows: list[str]) -> str:
    """What cuts the header and nearly all rows into the same number of fields, two or more.

    Rows may have one more, for the names of rows or with a separator at their ends.
    """
    fields: dict[str, int] = {}
    for separator in SEPARATORS:
        counts = [len(row) for row in csv.reader(rows, delimiter=separator) if row]
        more = np.array(counts) - counts[0] if counts else np.zeros(0)
        if counts and counts[0] > 1 and np.mean((more == 0) | (more == 1)) > 0.9:
            fields[separator] = counts[0]
    return max(fields, key=lambda separator: fields[separator]) if fields else ","


def _pattern(decimal: str) -> re.Pattern[str]:
    """A number with this decimal mark, thousands in groups of three, perhaps a percent sign."""
    group = f"[{re.escape(_GROUPS.replace(decimal, ''))}]"
    whole = rf"(?:\d+|\d{{1,3}}(?P<group>{group})\d{{3}}(?:(?P=group)\d{{3}})*)"
    part = rf"{re.escape(decimal)}\d+"
    return re.compile(rf"[+-]?(?:{whole}(?:{part})?|{part})(?:[eE][+-]?\d+)?\s*%?")


_NUMBER = {decimal: _pattern(decimal) for decimal in DECIMALS[1:]}


def _reads(values: list[str], decimal: str) -> bool:
    """Whether every text is a number with this decimal mark."""
    return bool(values) and all(map(_NUMBER[decimal].fullmatch, values))


def _decimal(body: list[list[str]], separator: str) -> str:
    """The mark of the columns that allow one alone, the point if they disagree.

    A column such as 1,234 allows both: it is left to the others, or to the separator, since files
    with a decimal comma have another one between columns.
    """
    found = set()
    for column in zip(*(row for row in body if len(row) == len(body[0])), strict=True):
        values = [text for cell in column if (text := cell.strip())]
        reads = [mark for mark in _NUMBER if _reads(values, mark)]
        if len(reads) == 1:
            found.add(reads[0])
        elif len(reads) == 2 and separator != "," and any("," in text for text in values):
            found.add("either")
    if "," in found:
        return "." if "." in found else ","
    return "," if found == {"either"} else "."


def _to_numbers(frame: pd.DataFrame, names: list[str], decimal: str, guessed: bool) -> list[str]:
    """Make numbers of text columns that hold nothing else, in place, and say so."""
    other = "," if decimal == "." else "."
    signs: dict[str, list[str]] = {}
    for name in names:
        if pd.api.types.is_numeric_dtype(frame[name]):
            continue
        known = frame[name].dropna()
        values = [str(value).strip() for value in known]
        mark = next((mark for mark in (decimal, other) if _reads(values, mark)), None)
        if mark is None:
            continue
        numbers = pd.Series(np.nan, index=frame.index)
        numbers[known.index] = [_number(value, mark) for value in values]
        frame[name] = numbers
        # every value matches the pattern of this mark: `_reads` has said so
        for sign, there in (
            ("percent signs", "%" in "".join(values)),
            (f"a decimal {'comma' if mark == ',' else 'point'}", mark == other),
            ("separated thousands", any(_NUMBER[mark].fullmatch(v)["group"] for v in values)),  # type: ignore[index]
        ):
            if there:
                signs.setdefault(sign, []).append(repr(str(name)))
    notes = [f"Read as numbers with {sign}: {', '.join(found)}." for sign, found in signs.items()]
    if guessed:
        notes.insert(0, "Numbers are read with a decimal comma (--decimal . to change).")
    return notes


def _number(text: str, decimal: str) -> float:
    digits = "".join(c for c in text if c not in _GROUPS + "%" or c == decimal)
    return float(digits.replace(decimal, "."))

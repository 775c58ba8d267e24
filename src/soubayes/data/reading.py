"""Tables in files; text files as programs and countries write them."""

import csv
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from soubayes._optional import require
from soubayes.data.names import TableError, check_table_file, table_kind

SEPARATORS = ",;\t|"
DECIMALS = ("auto", ".", ",")
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
    return pd.read_excel(path, dtype=dict.fromkeys(text, str), engine="openpyxl")


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
    header = next(csv.reader(rows, delimiter=separator), [])
    doubled = list(dict.fromkeys(name for name in header if name and header.count(name) > 1))
    if doubled:
        named = ", ".join(map(repr, doubled))
        raise ValueError(f"several columns are called {named}: give each its own name")
    body = list(csv.reader(rows, delimiter=separator))[1:]
    mark = _decimal(body, separator) if decimal == "auto" else decimal
    frame = pd.read_csv(
        path,
        sep=separator,
        encoding=encoding,
        decimal=mark,
        dtype=dict.fromkeys(text, str),
        low_memory=False,
    )
    notes = []
    if encoding == "cp1252":
        notes.append("The file is not UTF-8: read as Windows-1252 (Latin-1).")
    if guessed and separator != "," and (separator, path.suffix.lower()) != ("\t", ".tsv"):
        name = {"\t": "tabs", ";": "semicolons", "|": "bars"}[separator]
        notes.append(f"Columns are separated by {name}.")
    numbers = [name for name in frame if name not in text]
    frame.attrs["notes"] = notes + _to_numbers(
        frame, numbers, mark, mark == "," and decimal == "auto"
    )
    return frame


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
    """What cuts the header and nearly all rows into the same number of fields, two or more."""
    fields: dict[str, int] = {}
    for separator in SEPARATORS:
        counts = [len(row) for row in csv.reader(rows, delimiter=separator) if row]
        if counts and counts[0] > 1 and np.mean(np.array(counts) == counts[0]) > 0.9:
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

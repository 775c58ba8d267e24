"""Tables that are written for spreadsheets, which run text that looks like a formula."""

import io
import re
from pathlib import Path
from typing import Any

import pandas as pd

from soubayes._files import atomic_path
from soubayes._optional import require
from soubayes.data.names import table_kind

# what begins a formula; a text that is a number is none
_FORMULA = re.compile(r"(?=[=+\-@\t\r])(?![+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$)", re.DOTALL)


def write_table(frame: pd.DataFrame, path: Path) -> Path:
    """Write a table as the kind of file that its name says, without the labels of its rows.

    In files that spreadsheets open, an apostrophe stands before text that they would run.
    """
    kind, content = table_kind(path), io.BytesIO()
    if kind == ".parquet":
        frame.to_parquet(content, index=False)
    else:
        safe = frame.rename(columns=_shown).map(_shown)
        if kind == ".xlsx":
            require("openpyxl", "writing .xlsx")
            safe.to_excel(content, index=False, engine="openpyxl")
        else:
            safe.to_csv(content, index=False, sep="\t" if kind == ".tsv" else ",")
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.getvalue())
    return path


def _shown(value: Any) -> Any:
    """A text as a cell shows it.

    >>> _shown("=1+1"), _shown("-1.5"), _shown("- none"), _shown(-1.5)
    ("'=1+1", '-1.5', "'- none", -1.5)
    """
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value

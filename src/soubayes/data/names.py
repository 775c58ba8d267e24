"""Names of files and columns. Needs no library, so a wrong name of a file is found at once."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path

KINDS = (".csv", ".tsv", ".txt", ".parquet", ".xlsx")
FIT_FILES = ("model.soubayes", "summary.csv", "summary.html")  # in the folder of a fit
LIKE, VERY_LIKE = 0.6, 0.75  # how alike names are, of 1, to ask, and to guess


class TableError(ValueError):
    """A file or column that cannot be used as it is; the message says what to do."""


def check_table_file(path: Path) -> None:
    """An error if there is no table of this name."""
    if path.is_dir():
        inside = sorted(part.name for part in path.iterdir() if part.suffix.lower() in KINDS)
        hint = f"give one of its files, such as {inside[0]!r}" if inside else "give a file"
        raise TableError(f"{str(path)!r} is a folder{'' if inside else ' without tables'}: {hint}.")
    if not path.is_file():
        raise TableError(f"there is no file {str(path)!r}.")
    table_kind(path)


def table_kind(path: Path) -> str:
    """The ending of a file's name, one of `KINDS`.

    >>> table_kind(Path("data.CSV"))
    '.csv'
    """
    kind = path.suffix.lower()
    if kind not in KINDS:
        raise TableError(f"{path.name} is not {', '.join(KINDS)}: convert it to one of them.")
    return kind


def fit_folder(file: Path, target: str) -> Path:
    """The folder of a fit, unless another one is given: of the table and the target.

    >>> str(fit_folder(Path("data/houses.csv"), "price (1,000)"))
    'houses-price-1-000'
    """
    plain = re.sub(r"[^\w.]+", "-", target).strip("-.")
    return Path(f"{file.stem}-{plain}" if plain else file.stem)


def predictions_file(file: Path) -> Path:
    """The table of predictions of new rows, unless another one is given.

    >>> str(predictions_file(Path("data/new.xlsx")))
    'new-predictions.csv'
    """
    return Path(f"{file.stem}-predictions.csv")


def check_outputs(outputs: Sequence[Path], inputs: Sequence[Path], overwrite: bool) -> None:
    """An error if something would be written over: an input never is, other files if asked."""
    for path in outputs:
        if path.is_dir():
            inside = path / (outputs[0].name if len(outputs) > 1 else "predictions.csv")
            raise TableError(f"{str(path)!r} is a folder: give a file, such as {str(inside)!r}.")
        if not path.exists():
            continue
        if any(path.samefile(file) for file in inputs):
            raise TableError(
                f"{str(path)!r} is read and would be written over: give another --out."
            )
        if not overwrite:
            raise TableError(
                f"{str(path)!r} exists: give another --out, or add --overwrite to replace it."
            )


def no_column(name: str, columns: Sequence[str]) -> str:
    """The message for a name that is not a column, with the one that may be meant."""
    close = _alike(name, columns, LIKE)
    hint = f"did you mean {close!r}?" if close else f"there are {quoted(columns[:20])}."
    return f"no column {name!r}: {hint}"


def refuse_absent(names: Sequence[str], columns: Iterable[object]) -> None:
    """An error if a table lacks columns that a model reads, with what they may be called there."""
    there = list(map(str, columns))
    absent = [name for name in names if name not in there]
    if not absent:
        return
    spare = [name for name in there if name not in names]
    close = {name: near for name in absent if (near := _alike(name, spare, VERY_LIKE))}
    told = [f"{near!r} may be {name!r}" for name, near in close.items()]
    if len(close) < len(absent):
        told.append(f"the columns are {quoted(there[:20])}{' ...' if len(there) > 20 else ''}")
    raise TableError(
        f"the data lack {quoted(absent)}, which the model was fitted with; {', '.join(told)}."
    )


def _alike(name: str, others: Sequence[str], least: float) -> str | None:
    """The most similar of the other names, whatever their capital letters."""
    plain = {other.casefold(): other for other in reversed(others)}
    near = get_close_matches(name.casefold(), plain, 1, least)
    return plain[near[0]] if near else None


def quoted(names: Sequence[str]) -> str:
    """Names as a message shows them."""
    return ", ".join(map(repr, names))

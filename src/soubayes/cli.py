"""The command line for one's own data, and what every command shares."""

import errno
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from soubayes.data.names import (
    FIT_FILES,
    TableError,
    check_outputs,
    check_table_file,
    fit_folder,
    predictions_file,
    table_kind,
)
from soubayes.levels import LEVEL, check_level
from soubayes.progress import elapsed_line

FAILED, USAGE = 1, 2
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
MOST_PRINTED = 40

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
console = Console()


TableFile = Annotated[
    Path,
    typer.Argument(
        help="A .csv, .tsv, .txt, .parquet or .xlsx file whose first row names the columns."
    ),
]
Target = Annotated[str, typer.Option(help="The column to predict.")]
Time = Annotated[str, typer.Option(help="Instead of --target: the column of survival times.")]
Event = Annotated[
    str, typer.Option(help="With --time: a column with 1 if the event happened, 0 if not yet.")
]
TaskOption = Annotated[
    str,
    typer.Option(
        help="What the target is: regression (a number), robust (a number with outliers), positive "
        "(a number above 0), counts, classification (a class), ordered (classes in order), or auto."
    ),
]
Classes = Annotated[
    str,
    typer.Option(help="The ordered classes, lowest first, between commas: low,middle,high"),
]
Exposure = Annotated[
    str,
    typer.Option(
        help="With counts or positive numbers: a column that says for how long, or among how many, "
        "a row was observed."
    ),
]
Missing = Annotated[
    str, typer.Option(help="impute replaces missing values, drop leaves out their rows.")
]
Drop = Annotated[
    list[str] | None, typer.Option(help="A column to leave out; repeat it for several.")
]
Date = Annotated[
    list[str] | None,
    typer.Option(help="A column of dates, used as days since 1970-01-01; repeat it for several."),
]
Category = Annotated[
    list[str] | None,
    typer.Option(help="A column of labels that are written as numbers; repeat it for several."),
]
Curves = Annotated[
    bool, typer.Option("--curves", help="Numbers may be absent, straight or curved.")
]
Pairs = Annotated[
    bool, typer.Option("--pairs", help="Curves, and pairs of columns that the data ask for.")
]
UnitOption = Annotated[
    list[str] | None,
    typer.Option(
        help="A column of repeated units, such as hospitals, whose rows are alike; repeat it for "
        "several."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")]
Decimal = Annotated[str, typer.Option(help="The decimal mark in a text file: auto, . or ,")]
SeparatorOption = Annotated[
    str,
    typer.Option("--sep", help="What separates columns in a text file: auto, tab or a character."),
]
LevelOption = Annotated[float, typer.Option(help="The probability of intervals, from 0 to 1.")]
Keep = Annotated[
    list[str] | None,
    typer.Option(help="A column to copy beside the predictions; repeat it for several."),
]


def _print_version(wanted: bool) -> None:
    """Answer `--version` before a command is asked for."""
    if wanted:
        from soubayes import __version__

        say(f"soubayes {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and end.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Find which columns of a table predict one of them, and predict new rows.

    1. Learn to predict the column y from the other columns: `soubayes fit data.csv --target y`

    2. Open data-y/summary.html in a browser: what was found, and how well it predicts.

    3. Write new-predictions.csv: `soubayes predict data-y/model.soubayes new.csv`

    All options: `soubayes fit --help`, `soubayes predict --help`
    """


@app.command()
def fit(
    file: TableFile,
    target: Target = "",
    time: Time = "",
    event: Event = "",
    task: TaskOption = "auto",
    levels: Classes = "",
    exposure: Exposure = "",
    missing: Missing = "impute",
    drop: Drop = None,
    date: Date = None,
    category: Category = None,
    curves: Curves = False,
    pairs: Pairs = False,
    unit: UnitOption = None,
    decimal: Decimal = "auto",
    separator: SeparatorOption = "auto",
    level: LevelOption = LEVEL,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder for the model and its page; by default FILE-TARGET."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Find which columns of a table predict a number, a count, a class or survival.

    Writes three files into a folder named after the table and the target. Open summary.html in a
    browser: it has the coefficients, says how well the model predicts, and predicts rows that you
    enter. summary.csv lists all coefficients. model.soubayes is for the command `predict`, and for
    load_model in Python.

    Survival times: `soubayes fit data.csv --time days --event died`
    """
    if bool(target) == bool(time) or bool(time) != bool(event):
        fail("name what to predict: --target COLUMN, or both --time COLUMN and --event COLUMN.")
    with one_line_errors(TableError, ValueError):
        check_table_file(file)
        check_level("--level", level)
    out = out or fit_folder(file, target or time)
    if out.exists() and not out.is_dir():
        fail(f"--out {out} is a file, but it must be a folder: give another name.")
    with one_line_errors(TableError):
        check_outputs([out / name for name in FIT_FILES], [file], overwrite)
    settings: dict[str, Any] = {"task": task, "missing": missing}
    settings |= {"drop": drop or [], "dates": date or [], "categories": category or []}
    settings |= {"event": event} if time else {}
    settings |= {"levels": [x.strip() for x in levels.split(",")]} if levels else {}
    settings |= {"exposure": exposure} if exposure else {}
    settings |= {"curves": "pairs" if pairs else "curves"} if curves or pairs else {}
    settings |= {"units": unit} if unit else {}
    target = target or time
    reading: dict[str, Any] = {"decimal": decimal, "separator": separator}
    text = [*(category or []), *(unit or [])]
    reading |= {"text": text} if text else {}
    with table_errors():
        from soubayes.data.reading import read_table
        from soubayes.data.tabular import pose_problem
        from soubayes.fitting import (
            TableSource,
            caution,
            fit_table,
            selection,
            summary_cells,
            write_fit,
        )

        with elapsed_line("reading"):
            problem = pose_problem(read_table(file, **reading), target, **settings)
        for note in problem.notes:
            say(note)
        with elapsed_line(f"fitting {len(problem.y)} rows"):
            fitted = fit_table(problem, level)
        columns, rows = summary_cells(fitted)
        table = Table(*columns, box=None, pad_edge=False)
        for row in rows[:MOST_PRINTED]:
            table.add_row(*map(Text, row))
        say(selection(fitted))
        for note in fitted.remarks:
            say(note)
        console.print(table)
        say(caution(fitted))
        with elapsed_line("writing"):
            source = TableSource(file, target, reading, settings)
            written = write_fit(fitted, problem, source, out)
    if len(rows) > MOST_PRINTED:
        say(f"... and {len(rows) - MOST_PRINTED} more in {written[-1]}")
    say(f"Wrote {', '.join(map(str, written[:-1]))} and {written[-1]}")
    more = f" --exposure {shlex.quote(exposure)}" if exposure else ""
    say(f"Open {written[-1]} in a browser. New rows: soubayes predict {written[0]} NEW.csv{more}")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="The file model.soubayes of the command fit.")],
    file: TableFile,
    keep: Keep = None,
    exposure: Exposure = "",
    decimal: Decimal = "auto",
    separator: SeparatorOption = "auto",
    level: LevelOption = LEVEL,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The table to write: .csv, .tsv, .parquet or .xlsx; by default "
            "FILE-predictions.csv."
        ),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Predict the rows of a table with the model that the command `fit` has written.

    Writes one row for each row of the file. For a number or a count: mean, sd, and the lower and
    upper end of an interval. For a class: the class, and the probability of every class. For
    survival: the log risk, and the probability S(t) to survive the time t, with an interval, for
    three times.

    The file needs the columns that the model was fitted with; other columns are ignored. Without
    --exposure the mean of a model with an exposure is that of one unit.
    """
    out = out or predictions_file(file)
    with one_line_errors(TableError, ValueError):
        if not model.is_file():
            fail(f"there is no file {str(model)!r}: `soubayes fit` writes model.soubayes.")
        check_table_file(file)
        check_outputs([out], [file, model], overwrite)
        table_kind(out)
        check_level("--level", level)
    with table_errors():
        from soubayes.data.writing import write_table
        from soubayes.model_files import load_model
        from soubayes.predicting import predict_table, read_new_rows, remarks

        with one_line_errors(ValueError):
            loaded = load_model(model)
        with elapsed_line("reading"):
            frame = read_new_rows(loaded, file, decimal, separator)
        with elapsed_line("predicting"):
            predictions = predict_table(loaded, frame, level, keep or (), exposure)
        for note in [*frame.attrs.get("notes", ()), *remarks(loaded, frame)]:
            say(note)
        write_table(predictions, out)
    say(f"Wrote {len(predictions)} predictions to {out}")


@contextmanager
def table_errors() -> Iterator[None]:
    """Errors of tables, files and missing libraries are one line."""
    with one_line_errors(TableError, OSError, ImportError):
        yield


@contextmanager
def one_line_errors(*kinds: type[Exception]) -> Iterator[None]:
    """End the program with one line and the exit code of the trouble, without a traceback."""
    try:
        yield
    except kinds as error:
        disk = getattr(error, "errno", None) in _DISK
        fail(" ".join(str(error).split()), FAILED if disk else USAGE)


def say(message: str) -> None:
    """Print a line as it is: no markup, no colours for numbers."""
    console.print(message, soft_wrap=True, markup=False, highlight=False)


def fail(message: str, code: int = USAGE) -> NoReturn:
    """End the program with one line on the error output."""
    print(f"soubayes: {message}", file=sys.stderr)
    raise typer.Exit(code)

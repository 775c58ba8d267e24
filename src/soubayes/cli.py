"""The command line for one's own data, and what every command shares."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from soubayes._optional import explain_missing_extra
from soubayes.levels import LEVEL, check_level

FAILED, USAGE = 1, 2
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
MOST_PRINTED = 40

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()


TableFile = Annotated[
    Path, typer.Argument(help="A .csv, .tsv, .txt, .parquet or .xlsx file with a header.")
]
Target = Annotated[str, typer.Option(help="The column to predict.")]
Time = Annotated[str, typer.Option(help="The column of survival times, in place of a target.")]
Event = Annotated[
    str, typer.Option(help="With --time: 1 where the event happened, 0 where censored.")
]
TaskOption = Annotated[str, typer.Option(help="auto, regression, classification or counts.")]
Missing = Annotated[str, typer.Option(help="impute missing values, or drop rows.")]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out.")]
Date = Annotated[list[str] | None, typer.Option(help="A column of dates, as days.")]
Decimal = Annotated[str, typer.Option(help="The decimal mark of a text file: auto, . or ,")]
SeparatorOption = Annotated[
    str, typer.Option("--sep", help="Between the columns of a text file: auto, tab or a character.")
]
LevelOption = Annotated[float, typer.Option(help="The probability of the intervals.")]


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
    """Sparse regression of your own tables, and the results of the paper.

    Three steps: `soubayes fit data.csv --target y` fits the column y of a table on all others. Open
    fit/summary.html in a browser. `soubayes predict fit/model.soubayes new.csv` predicts new rows.
    """


@app.command()
def fit(
    file: TableFile,
    target: Target = "",
    time: Time = "",
    event: Event = "",
    task: TaskOption = "auto",
    missing: Missing = "impute",
    drop: Drop = None,
    date: Date = None,
    decimal: Decimal = "auto",
    separator: SeparatorOption = "auto",
    level: LevelOption = LEVEL,
    out: Annotated[Path, typer.Option(help="The folder for the model and its page.")] = Path("fit"),
) -> None:
    """Find which columns of a table predict a number, a class, a count or survival.

    Writes three files into a folder: summary.html (open it in a browser: coefficients, predictions
    of rows that you enter, how well it predicts), summary.csv (all coefficients) and model.soubayes
    (for `soubayes predict`, or load_model in Python).
    """
    if bool(target) == bool(time) or bool(time) != bool(event):
        fail("name what to predict: --target COLUMN, or both --time COLUMN and --event COLUMN.")
    settings: dict[str, Any] = {"task": task, "missing": missing}
    settings |= {"drop": drop or [], "dates": date or []} | ({"event": event} if time else {})
    target = target or time
    reading = {"decimal": decimal, "separator": separator}
    with table_errors():
        from soubayes.data.tabular import pose_problem, read_table
        from soubayes.fitting import (
            TableSource,
            caution,
            fit_table,
            selection,
            summary_cells,
            write_fit,
        )

        with one_line_errors(ValueError):
            check_level("--level", level)
        with step("reading"):
            problem = pose_problem(read_table(file, **reading), target, **settings)
        for note in problem.notes:
            say(note)
        with step(f"fitting {len(problem.y)} rows"):
            fitted = fit_table(problem, level)
        columns, rows = summary_cells(fitted)
        table = Table(*columns, box=None, pad_edge=False)
        for row in rows[:MOST_PRINTED]:
            table.add_row(*map(Text, row))
        say(selection(fitted))
        console.print(table)
        say(caution(fitted))
        with step("writing"):
            source = TableSource(file, target, reading, settings)
            written = write_fit(fitted, problem, source, out)
    if len(rows) > MOST_PRINTED:
        say(f"... and {len(rows) - MOST_PRINTED} more in {written[-1]}")
    say(f"Wrote {', '.join(map(str, written[:-1]))} and {written[-1]}")
    say(f"Open {written[-1]} in a browser. New rows: soubayes predict {written[0]} NEW.csv")


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A model.soubayes that `soubayes fit` wrote.")],
    file: TableFile,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column of the file to copy beside the predictions.")
    ] = None,
    decimal: Decimal = "auto",
    separator: SeparatorOption = "auto",
    level: LevelOption = LEVEL,
    out: Annotated[
        Path, typer.Option(help="The table to write: .csv, .tsv, .parquet or .xlsx.")
    ] = Path("predictions.csv"),
) -> None:
    """Predict the rows of a table with a model of `soubayes fit`.

    Writes a row for each row of the file: mean, sd and the ends of an interval, or the class and
    the probability of every class. Columns that the model does not read are ignored.
    """
    with table_errors():
        from soubayes.model_files import load_model
        from soubayes.predicting import predict_table, read_new_rows, remarks, write_predictions

        with one_line_errors(ValueError):
            check_level("--level", level)
            if not model.is_file():
                fail(f"there is no file {str(model)!r}: `soubayes fit` writes model.soubayes.")
            loaded = load_model(model)
        with step("reading"):
            frame = read_new_rows(loaded, file, decimal, separator)
        with step("predicting"):
            predictions = predict_table(loaded, frame, level, keep=keep or ())
        for note in [*frame.attrs.get("notes", ()), *remarks(loaded, frame)]:
            say(note)
        write_predictions(predictions, out)
    say(f"Wrote {len(predictions)} predictions to {out}")


@app.command(
    "paper",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def paper(context: typer.Context) -> None:
    """The paper's tables and figures: list, reproduce, report, archive, restore."""
    with one_line_errors(ImportError), explain_missing_extra("soubayes paper"):
        commands = import_module("soubayes.paper.commands")  # nothing else imports the experiments
    commands.paper_app(context.args, prog_name="soubayes paper")


@contextmanager
def step(name: str) -> Iterator[None]:
    """Show what is being done and for how long, on a terminal only."""
    columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    terminal = console.is_terminal
    with Progress(*columns, console=console, disable=not terminal, transient=True) as progress:
        progress.add_task(name, total=None)
        yield


@contextmanager
def table_errors() -> Iterator[None]:
    """Errors of tables, files and missing libraries are one line."""
    from soubayes.data.tabular import TableError

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

"""The command line for one's own data, and what every command shares."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

FAILED, USAGE = 1, 2
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
MOST_PRINTED = 40

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Bayesian inference with sources of uncertainty: your own data, and the paper's results.",
)
console = Console()


TableFile = Annotated[
    Path, typer.Argument(help="A .csv, .tsv, .txt or .parquet file with a header.")
]
Target = Annotated[str, typer.Option(help="The column to predict.")]
TaskOption = Annotated[str, typer.Option(help="auto, regression or classification.")]
Missing = Annotated[str, typer.Option(help="impute missing values, or drop rows.")]
Drop = Annotated[list[str] | None, typer.Option(help="A column to leave out.")]
Date = Annotated[list[str] | None, typer.Option(help="A column of dates, as days.")]
Decimal = Annotated[str, typer.Option(help="The decimal mark of a text file: auto, . or ,")]


@app.command()
def fit(
    file: TableFile,
    target: Target,
    task: TaskOption = "auto",
    missing: Missing = "impute",
    drop: Drop = None,
    date: Date = None,
    decimal: Decimal = "auto",
    out: Annotated[Path, typer.Option(help="Where the model and its page go.")] = Path("fit"),
) -> None:
    """Sparse regression or classification of a table: which columns matter, and how much.

    Writes model.soubayes (the whole pipeline, read with soubayes.load_model) and summary.html.
    """
    from soubayes.data.tabular import TableError
    from soubayes.fitting import caution, summary_cells, write_fit

    settings = {"task": task, "missing": missing, "drop": drop or [], "dates": date or []}
    with one_line_errors(TableError, OSError, ImportError):
        problem, fitted = _fitted(file, target, decimal, settings)
        columns, rows = summary_cells(fitted)
        table = Table(*columns, box=None, pad_edge=False)
        for row in rows[:MOST_PRINTED]:
            table.add_row(*map(Text, row))
        say(f"{len(rows)} of {fitted.n_features} coefficients selected. {fitted.score}")
        console.print(table)
        say(caution(fitted))
        written = write_fit(fitted, problem, target, out)
    if len(rows) > MOST_PRINTED:
        say(f"... and {len(rows) - MOST_PRINTED} more in {written[-1]}")
    say(f"Wrote {' and '.join(map(str, written))}")


@app.command()
def explore(
    file: TableFile,
    target: Target,
    task: TaskOption = "auto",
    missing: Missing = "impute",
    drop: Drop = None,
    date: Date = None,
    decimal: Decimal = "auto",
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("explorer.html"),
) -> None:
    """Fit a table and write a page to explore the fit: one file, no server, no network.

    Sliders move along the path of the confidence and between dense and sparse; the page shows
    coefficients with intervals, predictions of held-out rows, and the Python of every point.
    """
    from soubayes.data.tabular import TableError
    from soubayes.fitting import write_explorer

    settings = {"task": task, "missing": missing, "drop": drop or [], "dates": date or []}
    with one_line_errors(TableError, OSError, ImportError):
        problem, fitted = _fitted(file, target, decimal, settings)
        given = {"task": problem.task, **{k: v for k, v in settings.items() if k != "task"}}
        read = ", ".join([repr(target), *(f"{name}={value!r}" for name, value in given.items())])
        say(f"{len(fitted.summary)} of {fitted.n_features} coefficients selected. {fitted.score}")
        written = write_explorer(fitted, problem, file, target, decimal, read, out)
    say(f"Wrote {written}. Open it in a browser.")


def _fitted(file: Path, target: str, decimal: str, settings: dict[str, Any]) -> tuple[Any, Any]:
    """The problem that a file and the options pose, and its fit; decisions are said."""
    from soubayes.data.tabular import pose_problem, read_table
    from soubayes.fitting import fit_table

    problem = pose_problem(read_table(file, decimal), target, **settings)
    for note in problem.notes:
        say(note)
    with progress_bar() as progress:
        progress.add_task("fitting", total=None)
        return problem, fit_table(problem)


def progress_bar() -> Progress:
    """A bar with the time left, on a terminal only."""
    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    ]
    return Progress(*columns, console=console, disable=not console.is_terminal)


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

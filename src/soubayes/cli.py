"""The command line: list and reproduce the paper's experiments, report them, fit one's own data."""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

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

from soubayes.experiments import experiments
from soubayes.experiments.runner import Experiment, Summary, WorkerDied, run, slowness
from soubayes.experiments.storage import FILE, Outcome, RowsError, Store, Task, this_version

FAILED, USAGE, INTERRUPTED = 1, 2, 130
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
MOST_PRINTED = 40

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Bayesian inference with sources of uncertainty: the paper's results, and your own data.",
)
console = Console()


@app.command("list")
def list_experiments() -> None:
    """Every experiment, what it shows, and about how long it takes on one core here."""
    factor = slowness()
    table = Table(box=None, pad_edge=False)
    for title in ("name", "shows", "in the paper", "--quick", "--full"):
        table.add_column(title, overflow="fold")
    for experiment in experiments().values():
        times = [_duration(experiment.minutes[size] * factor) for size in ("quick", "full")]
        table.add_row(experiment.name, experiment.shows, experiment.where, *times)
    console.print(table)
    _say(f"Times are of one core (this machine: {factor:.1f} times the reference).")


@app.command()
def reproduce(
    names: Annotated[list[str], typer.Argument(help="Experiments by name, or 'all'.")],
    quick: Annotated[bool, typer.Option("--quick", help="Minutes (the default).")] = False,
    full: Annotated[bool, typer.Option("--full", help="The paper's size.")] = False,
    toy: Annotated[bool, typer.Option("--toy", help="Seconds: does it run?")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 1,
    out: Annotated[Path, typer.Option(help="The folder of the rows.")] = Path("results"),
    backend: Annotated[str, typer.Option(help="joblib or dask.")] = "joblib",
    scheduler: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute the rows again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done.")] = False,
) -> None:
    """Compute the rows of experiments; run again to go on where it stopped.

    Exit codes: 0 done, 1 some rows failed (tracebacks are kept) or could not be written, 2 wrong
    use, 130 interrupted.
    """
    if quick + full + toy > 1:
        _fail("choose one of --quick, --full and --toy.")
    size = "full" if full else "toy" if toy else "quick"
    chosen = _chosen(names)
    if backend not in ("joblib", "dask"):
        _fail(f"--backend is {backend!r}, but it must be joblib or dask.")
    if scheduler is not None and backend != "dask":
        _fail("--scheduler needs --backend dask.")
    with _one_line_errors(OSError, ImportError):
        if dry_run:
            _say_what_would_be_done(chosen, size, out, jobs, fresh)
            return
        store = Store(out)
        if fresh:
            for experiment in chosen:
                store.remove(experiment.source, experiment.grid(size))
        failed = 0
        try:
            for experiment in chosen:
                failed += _run_with_progress(
                    experiment, size, store, jobs=jobs, backend=backend, scheduler=scheduler
                ).failed
        except KeyboardInterrupt:
            _say("Stopped. Finished rows are kept: run the same command to go on.")
            raise typer.Exit(INTERRUPTED) from None
        except WorkerDied as error:
            _say(f"Stopped: {error}")
            raise typer.Exit(FAILED) from None
    _say(f"Rows are in {store.path}. Next: soubayes report {out}")
    if failed:
        _say(f"{failed} rows failed; the report shows why, the next run tries them again.")
        raise typer.Exit(FAILED)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `reproduce` wrote.")],
) -> None:
    """Write report.html (one file, opens offline) and figures/ (PNG, PDF) into the folder."""
    from soubayes.experiments.report import write_report

    if not (folder / FILE).exists():
        _fail(f"there are no rows in {str(folder)!r}: run soubayes reproduce --out {folder} first.")
    with _one_line_errors(OSError, ImportError):
        _say(f"Wrote {write_report(folder)}")


@app.command()
def fit(
    file: Annotated[Path, typer.Argument(help="A .csv or .parquet file with a header.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    task: Annotated[str, typer.Option(help="auto, regression or classification.")] = "auto",
    missing: Annotated[str, typer.Option(help="impute missing values, or drop rows.")] = "impute",
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out.")] = None,
    date: Annotated[list[str] | None, typer.Option(help="A column of dates, as days.")] = None,
    out: Annotated[Path, typer.Option(help="Where the model and its page go.")] = Path("fit"),
) -> None:
    """Sparse regression or classification of a table: which columns matter, and how much.

    Writes model.soubayes (the whole pipeline, read with soubayes.load_model) and summary.html.
    """
    from soubayes.data.tabular import TableError, pose_problem, read_table
    from soubayes.fitting import CAUTION, fit_table, summary_cells, write_fit

    with _one_line_errors(TableError, OSError, ImportError):
        frame = read_table(file)
        problem = pose_problem(
            frame, target, task=task, missing=missing, drop=drop or [], dates=date or []
        )
        for note in problem.notes:
            _say(note)
        with _progress() as progress:
            progress.add_task("fitting", total=None)
            fitted = fit_table(problem)
        columns, rows = summary_cells(fitted)
        table = Table(*columns, box=None, pad_edge=False)
        for row in rows[:MOST_PRINTED]:
            table.add_row(*map(Text, row))
        _say(f"{len(rows)} of {fitted.n_features} coefficients selected. {fitted.score}")
        console.print(table)
        _say(CAUTION)
        written = write_fit(fitted, problem, target, out)
    if len(rows) > MOST_PRINTED:
        _say(f"... and {len(rows) - MOST_PRINTED} more in {written[-1]}")
    _say(f"Wrote {' and '.join(map(str, written))}")


def _chosen(names: list[str]) -> list[Experiment]:
    known = experiments()
    if "all" in names:
        return list(known.values())
    unknown = [name for name in names if name not in known]
    if unknown:
        _fail(f"no experiment {', '.join(unknown)}; there are {', '.join(known)}, and all.")
    return [known[name] for name in dict.fromkeys(names)]


def _say_what_would_be_done(
    chosen: list[Experiment], size: str, out: Path, jobs: int, fresh: bool
) -> None:
    store = Store(out) if (out / FILE).exists() and not fresh else None
    factor = slowness()
    for experiment in chosen:
        tasks = experiment.grid(size)
        todo = store.pending(experiment.source, tasks) if store else tasks
        share = len(todo) / max(len(tasks), 1)
        time = _duration(experiment.minutes[size] * factor * share / jobs)
        _say(f"{experiment.name}: {len(todo)} of {len(tasks)} rows to compute, {time}")
        if store:
            _say_of_other_versions(experiment, store, tasks)


def _say_of_other_versions(experiment: Experiment, store: Store, tasks: list[Task]) -> None:
    found = store.versions(experiment.source, tasks)
    others = {version: count for version, count in found.items() if version != this_version()}
    if others:
        told = ", ".join(f"{count} by {version}" for version, count in sorted(others.items()))
        _say(
            f"{experiment.name}: rows kept from before were computed by other versions: {told}; "
            f"this is {this_version()}. --fresh computes them again."
        )


def _run_with_progress(
    experiment: Experiment,
    size: str,
    store: Store,
    *,
    jobs: int,
    backend: str,
    scheduler: str | None,
) -> Summary:
    """Run one experiment under a bar with the time left; without a terminal, just say the end."""
    tasks = experiment.grid(size)
    _say_of_other_versions(experiment, store, tasks)
    todo = len(store.pending(experiment.source, tasks))
    with _progress() as progress:
        bar = progress.add_task(experiment.name, total=todo)

        def on_row(task: Task, outcome: Outcome) -> None:
            progress.advance(bar)
            if outcome.error:
                reason = outcome.error.strip().splitlines()[-1]
                _say(f"{experiment.name}, seed {task.seed}: {reason}")

        done = run(
            experiment,
            size,
            store,
            jobs=jobs,
            backend=backend,
            scheduler=scheduler,
            on_row=on_row,
        )
    kept = f", {done.found} kept from before" if done.found else ""
    wrong = f", {done.failed} failed" if done.failed else ""
    _say(f"{experiment.name}: {done.computed} rows computed{kept}{wrong}.")
    return done


def _progress() -> Progress:
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


def _duration(minutes: float) -> str:
    """About how long, for people.

    >>> _duration(0.2), _duration(7), _duration(130)
    ('about 12 s', 'about 7 min', 'about 2.2 h')
    """
    if minutes < 1:
        return f"about {max(60 * minutes, 1):.0f} s"
    return f"about {minutes:.0f} min" if minutes < 100 else f"about {minutes / 60:.1f} h"


@contextmanager
def _one_line_errors(*kinds: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kinds as error:
        disk = isinstance(error, RowsError) or getattr(error, "errno", None) in _DISK
        _fail(" ".join(str(error).split()), FAILED if disk else USAGE)


def _say(message: str) -> None:
    console.print(message, soft_wrap=True, markup=False, highlight=False)


def _fail(message: str, code: int = USAGE) -> NoReturn:
    print(f"soubayes: {message}", file=sys.stderr)
    raise typer.Exit(code)

"""`python -m paper`: list, reproduce and report the paper's experiments."""

import itertools
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from paper import experiments
from paper.archive import Archive, archive_rows, restore_rows
from paper.runner import Experiment, Summary, WorkerDied, run, slowness
from paper.storage import FILE, Outcome, Store, Task, this_version
from soubayes.cli import FAILED, console, fail, one_line_errors, say
from soubayes.progress import progress_line

INTERRUPTED = 130

paper_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The paper's tables and figures: compute their rows and write a report of them.",
)


@paper_app.command("list")
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
    say(f"Times are of one core (this machine: {factor:.1f} times the reference).")


@paper_app.command()
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
        fail("choose one of --quick, --full and --toy.")
    size = "full" if full else "toy" if toy else "quick"
    chosen = _chosen(names)
    if backend not in ("joblib", "dask"):
        fail(f"--backend is {backend!r}, but it must be joblib or dask.")
    if scheduler is not None and backend != "dask":
        fail("--scheduler needs --backend dask.")
    with one_line_errors(OSError, ImportError):
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
            say("Stopped. Finished rows are kept: run the same command to go on.")
            raise typer.Exit(INTERRUPTED) from None
        except WorkerDied as error:
            say(f"Stopped: {error}")
            raise typer.Exit(FAILED) from None
    say(f"Rows are in {store.path}. Next: python -m paper report {out}")
    if failed:
        say(f"{failed} rows failed; the report shows why, the next run tries them again.")
        raise typer.Exit(FAILED)


@paper_app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that `reproduce` or `archive` wrote.")],
) -> None:
    """Write report.html (one file, opens offline) and figures/ (PNG, PDF) into the folder."""
    from paper.report import write_report

    with one_line_errors(OSError, ImportError):
        say(f"Wrote {write_report(folder)}")


@paper_app.command()
def archive(
    run: Annotated[Path, typer.Argument(help="The folder of a run (`reproduce --out`).")],
    folder: Annotated[Path, typer.Argument(help="Where the tables are, or will be.")],
    replace: Annotated[bool, typer.Option(help="Forget rows that the run lacks.")] = False,
) -> None:
    """Put the rows of a run into compressed tables, one for each experiment: rows/*.parquet.

    Rows of the same tasks are replaced, others stay.
    """
    with one_line_errors(OSError, ImportError):
        if not (run / FILE).exists():
            hint = f"run python -m paper reproduce --out {run} first"
            fail(f"there are no rows in {str(run)!r}: {hint}.")
        _say_counts(archive_rows(Store(run), Archive(folder), replace=replace))


@paper_app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="A folder with tables of `archive`.")],
    run: Annotated[Path, typer.Argument(help="The folder to go on in (`reproduce --out`).")],
) -> None:
    """Put archived rows into the folder of a run, so `reproduce` goes on from them."""
    with one_line_errors(OSError, ImportError):
        if not Archive(folder).experiments():
            fail(f"there are no tables of rows in {str(folder)!r}.")
        _say_counts(restore_rows(Archive(folder), Store(run)))


def _say_counts(counts: dict[str, int]) -> None:
    for experiment, count in counts.items():
        say(f"{experiment}: {count} rows")


def _chosen(names: list[str]) -> list[Experiment]:
    known = experiments()
    if "all" in names:
        return list(known.values())
    unknown = [name for name in names if name not in known]
    if unknown:
        fail(f"no experiment {', '.join(unknown)}; there are {', '.join(known)}, and all.")
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
        say(f"{experiment.name}: {len(todo)} of {len(tasks)} rows to compute, {time}")
        if store:
            _say_of_other_versions(experiment, store, tasks)


def _say_of_other_versions(experiment: Experiment, store: Store, tasks: list[Task]) -> None:
    found = store.versions(experiment.source, tasks)
    others = {version: count for version, count in found.items() if version != this_version()}
    if others:
        told = ", ".join(f"{count} by {version}" for version, count in sorted(others.items()))
        say(
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
    """Run one experiment and show the time left; without a terminal, just say the end."""
    tasks = experiment.grid(size)
    _say_of_other_versions(experiment, store, tasks)
    todo = len(store.pending(experiment.source, tasks))
    rows, wrongs = itertools.count(1), []
    with progress_line(experiment.name, todo, console.is_terminal) as line:

        def on_row(task: Task, outcome: Outcome) -> None:
            line(next(rows))
            if outcome.error:
                reason = outcome.error.strip().splitlines()[-1]
                wrongs.append(f"{experiment.name}, seed {task.seed}: {reason}")

        done = run(
            experiment,
            size,
            store,
            jobs=jobs,
            backend=backend,
            scheduler=scheduler,
            on_row=on_row,
        )
    for said in wrongs:
        say(said)
    kept = f", {done.found} kept from before" if done.found else ""
    wrong = f", {done.failed} failed" if done.failed else ""
    say(f"{experiment.name}: {done.computed} rows computed{kept}{wrong}.")
    return done


def _duration(minutes: float) -> str:
    """About how long, for people.

    >>> _duration(0.2), _duration(7), _duration(130)
    ('about 12 s', 'about 7 min', 'about 2.2 h')
    """
    if minutes < 1:
        return f"about {max(60 * minutes, 1):.0f} s"
    return f"about {minutes:.0f} min" if minutes < 100 else f"about {minutes / 60:.1f} h"

"""One HTML page that opens offline, and PNG and PDF files of its figures, from saved rows."""

import math
from collections import Counter
from pathlib import Path
from typing import Any

from paper import experiments
from paper.archive import rows_in
from paper.runner import Experiment
from paper.storage import Row
from paper.views import Cell, Content, Picture, View
from soubayes._files import atomic_path
from soubayes.pages import png_address, render

MARKS = {"better": "▲ better", "equal": "= equal", "worse": "▼ worse"}
TITLE = "Bayesian inference with sources of uncertainty: tables and figures, recomputed"


def write_report(folder: Path) -> Path:
    """Write ``report.html`` and ``figures/`` into ``folder`` from the rows that it holds."""
    found = rows_in(folder)
    sections = []
    for experiment in experiments().values():
        rows = found.rows(experiment.source) if found else []
        content = experiment.report(rows) if rows else []
        if content:
            sections.append(_section(experiment, rows, content, folder / "figures"))
    if not sections:
        raise FileNotFoundError(
            f"there are no rows in {str(folder)!r}. "
            f"Compute some first: python -m paper reproduce table1 --out {folder}"
        )
    text = render(
        "report.html", "python -m paper report", title=TITLE, marks=MARKS, sections=sections
    )
    target = folder / "report.html"
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target


def _section(
    experiment: Experiment, rows: list[Row], content: Content, figures: Path
) -> dict[str, Any]:
    versions = Counter(row.version for row in rows)
    warned = Counter(line for row in rows for line in row.warnings.splitlines())
    dates = sorted({row.finished[:10] for row in rows})
    return {
        "name": experiment.name,
        "shows": experiment.shows,
        "where": experiment.where,
        "verdicts": _verdicts(content),
        "parts": [
            _picture(part, figures) if isinstance(part, Picture) else _table(part)
            for part in content
        ],
        "failures": _failures(rows),
        "versions": [f"{count} by {version}" for version, count in sorted(versions.items())]
        if len(versions) > 1
        else [],
        "command": f"python -m paper reproduce {experiment.name} --{_size(experiment, rows)}",
        "rows": len(rows),
        "days": dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}",
        "minutes": f"{sum(row.seconds for row in rows) / 60:.1f}",
        "commits": ", ".join(sorted({row.commit for row in rows})),
        "libraries": ", ".join(
            sorted({f"{k} {v}" for row in rows for k, v in row.versions.items()})
        ),
        "warnings": warned.most_common(5),
    }


def _verdicts(content: Content) -> str:
    """How our SoU-SGL stands to the paper's, for the table of contents."""
    verdicts = Counter(
        part.verdict
        for view in content
        if isinstance(view, View)
        for row in view.rows
        for title, part in zip(view.columns, row, strict=True)
        if isinstance(part, Cell) and title == "SoU-SGL"
    )
    counts = [f"{verdicts[v]} {MARKS[v]}" for v in MARKS if verdicts[v]]
    return f" — SoU-SGL against the paper: {', '.join(counts)}" if counts else ""


def _table(view: View) -> dict[str, Any]:
    most = max((c.data_sets for row in view.rows for c in row if isinstance(c, Cell)), default=0)
    few = " Standard errors from so few are rough." if most < 20 else ""
    return {
        "title": view.title,
        "note": view.note,
        "folded": view.folded,
        "columns": view.columns,
        "rows": [[c if isinstance(c, str) else _cell(c, most) for c in row] for row in view.rows],
        "count": f"{most} data sets a cell unless it says otherwise.{few}" if most > 1 else "",
    }


def _cell(part: Cell, most: int) -> dict[str, Any]:
    """A number, its error, on how many data sets, the paper's number and the verdict, as text."""
    paper = "" if part.paper is None else f"{part.paper:.{part.digits}f}"
    if not math.isfinite(part.mean):
        return {"mean": None, "error": "", "on": "", "paper": paper, "verdict": ""}
    error = ""
    if math.isfinite(part.error):
        error = f"{part.error:.{part.digits}f}"
        error = error if float(error) else f"{part.error:.1g}"
    return {
        "mean": f"{part.mean:.{part.digits}f}",
        "error": error,
        "on": str(part.data_sets) if part.data_sets != most else "",
        "paper": paper,
        "verdict": part.verdict,
    }


def _picture(picture: Picture, figures: Path) -> dict[str, str]:
    figure = picture.draw()
    for kind in ("png", "pdf"):
        # no creation date inside, so the same rows give the same file
        stamp = {"CreationDate": None} if kind == "pdf" else {"Software": None}
        with atomic_path(figures / f"{picture.name}.{kind}") as temporary:
            figure.savefig(temporary, format=kind, dpi=160, metadata=stamp)
    return {"title": picture.title, "note": picture.note, "address": png_address(figure)}


def _failures(rows: list[Row]) -> dict[str, Any] | None:
    failed = [row for row in rows if row.error]
    if not failed:
        return None
    reasons = Counter(row.error.strip().splitlines()[-1] for row in failed)
    return {"count": len(failed), "reasons": dict(reasons), "trace": failed[0].error}


def _size(experiment: Experiment, rows: list[Row]) -> str:
    """The largest size that the rows nearly fill."""
    sizes = (s for s in ("full", "quick") if len(rows) >= 0.9 * len(experiment.grid(s)))
    return next(sizes, "quick")

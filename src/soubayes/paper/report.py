"""One HTML page that opens offline, and PNG and PDF files of its figures, from saved rows."""

import math
from collections import Counter
from html import escape
from pathlib import Path

from soubayes import _page
from soubayes._files import atomic_path
from soubayes.paper import experiments
from soubayes.paper.archive import rows_in
from soubayes.paper.runner import Experiment
from soubayes.paper.storage import Row
from soubayes.paper.views import Cell, Content, Picture, View

_INTRODUCTION = """<p>Bold is what these rows give, with the Monte Carlo standard error of the mean;
“paper” is the number printed there. <span class="mark better">▲ better</span>
<span class="mark equal">= equal</span> <span class="mark worse">▼ worse</span> compare the two:
equal means that they differ by no more than 2√2 standard errors (the paper's error is taken to be
as large as ours) and half a unit of the last printed digit.</p>"""
MARKS = {"better": "▲ better", "equal": "= equal", "worse": "▼ worse"}


def write_report(folder: Path) -> Path:
    """Write ``report.html`` and ``figures/`` into ``folder`` from the rows that it holds."""
    found = rows_in(folder)
    sections, contents = [], []
    for experiment in experiments().values():
        rows = found.rows(experiment.source) if found else []
        content = experiment.report(rows) if rows else []
        if content:
            sections.append(_section(experiment, rows, content, folder / "figures"))
            contents.append(_summary(experiment, content))
    if not sections:
        raise FileNotFoundError(
            f"there are no rows in {str(folder)!r}. "
            f"Compute some first: soubayes reproduce table1 --out {folder}"
        )
    title = "Bayesian inference with sources of uncertainty: tables and figures, recomputed"
    target = folder / "report.html"
    with atomic_path(target) as temporary:
        text = _page.page(title, _INTRODUCTION, f"<ul>{''.join(contents)}</ul>", *sections)
        temporary.write_text(text, encoding="utf-8")
    return target


def _summary(experiment: Experiment, content: Content) -> str:
    """A line of the table of contents: how our SoU-SGL stands to the paper's."""
    verdicts = Counter(
        part.verdict
        for view in content
        if isinstance(view, View)
        for row in view.rows
        for title, part in zip(view.columns, row, strict=True)
        if isinstance(part, Cell) and title == "SoU-SGL"
    )
    counts = [f"{verdicts[v]} {MARKS[v]}" for v in MARKS if verdicts[v]]
    told = f" — SoU-SGL against the paper: {', '.join(counts)}" if counts else ""
    name, shows = escape(experiment.name), escape(experiment.shows)
    return f'<li><a href="#{name}">{name}</a>: {shows}{told}</li>'


def _section(experiment: Experiment, rows: list[Row], content: Content, figures: Path) -> str:
    parts = [f'<section id="{escape(experiment.name)}">']
    parts.append(f"<h2>{escape(experiment.name)}: {escape(experiment.shows)}</h2>")
    parts.append(f'<p class="where">{escape(experiment.where)}</p>')
    for part in content:
        parts.append(_picture(part, figures) if isinstance(part, Picture) else _table(part))
    parts += [_failures(rows), _mixture(experiment, rows), _origin(experiment, rows), "</section>"]
    return "\n".join(parts)


def _table(view: View) -> str:
    most = max((c.data_sets for row in view.rows for c in row if isinstance(c, Cell)), default=0)
    body = [
        [str(first), *(_cell(c, most) if isinstance(c, Cell) else escape(c) for c in rest)]
        for first, *rest in view.rows
    ]
    note = f"<p>{escape(view.note)}</p>" if view.note else ""
    few = " Standard errors from so few are rough." if most < 20 else ""
    said = f"{most} data sets a cell unless it says otherwise.{few}" if most > 1 else ""
    count = f'<p class="count">{said}</p>'
    table = _page.table(view.columns, body)
    if view.folded:
        title = escape(view.title)
        return f"<details><summary>{title}</summary>{note}{table}{count}</details>"
    return f"<h3>{escape(view.title)}</h3>{note}{table}{count}"


def _cell(part: Cell, most: int) -> str:
    if not math.isfinite(part.mean):
        return f'<span class="none">–</span>{_paper(part)}'
    text = f"<b>{part.mean:.{part.digits}f}</b>"
    if math.isfinite(part.error):
        error = f"{part.error:.{part.digits}f}"
        text += f' <span class="error">± {error if float(error) else f"{part.error:.1g}"}</span>'
    if part.data_sets != most:
        text += f' <span class="error">on {part.data_sets}</span>'
    text += _paper(part)
    if part.verdict:
        text += f' <span class="mark {part.verdict}">{MARKS[part.verdict]}</span>'
    return text


def _paper(part: Cell) -> str:
    if part.paper is None:
        return ""
    return f' <span class="paper">paper {part.paper:.{part.digits}f}</span>'


def _picture(picture: Picture, figures: Path) -> str:
    figure = picture.draw()
    for kind in ("png", "pdf"):
        # no creation date inside, so that the same rows give the same file
        stamp = {"CreationDate": None} if kind == "pdf" else {"Software": None}
        with atomic_path(figures / f"{picture.name}.{kind}") as temporary:
            figure.savefig(temporary, format=kind, dpi=160, metadata=stamp)
    return _page.picture(figure, picture.title, picture.note)


def _failures(rows: list[Row]) -> str:
    failed = [row for row in rows if row.error]
    if not failed:
        return ""
    reasons = Counter(row.error.strip().splitlines()[-1] for row in failed)
    items = "".join(f"<li>{count} × {escape(reason)}</li>" for reason, count in reasons.items())
    trace = escape(failed[0].error)
    return (
        f'<div class="failed"><b>{len(failed)} rows failed</b> and are not in the tables; running '
        f"the command below tries them again.<ul>{items}</ul>"
        f"<details><summary>One traceback</summary><pre>{trace}</pre></details></div>"
    )


def _mixture(experiment: Experiment, rows: list[Row]) -> str:
    """A warning where not all rows were computed by the same version of soubayes."""
    versions = Counter(row.version for row in rows)
    if len(versions) < 2:
        return ""
    told = ", ".join(f"{count} by {version}" for version, count in sorted(versions.items()))
    return (
        f'<p class="failed">These rows were computed by {len(versions)} versions: {escape(told)}. '
        f"<code>soubayes reproduce {escape(experiment.name)} --{_size(experiment, rows)} --fresh"
        "</code> computes them again with one.</p>"
    )


def _size(experiment: Experiment, rows: list[Row]) -> str:
    """The largest size that the rows nearly fill."""
    sizes = (s for s in ("full", "quick") if len(rows) >= 0.9 * len(experiment.grid(s)))
    return next(sizes, "quick")


def _origin(experiment: Experiment, rows: list[Row]) -> str:
    """Where the rows come from, and the command that computes them."""
    commits = ", ".join(sorted({row.commit for row in rows}))
    dates = sorted({row.finished[:10] for row in rows})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    versions = sorted({f"{k} {v}" for row in rows for k, v in row.versions.items()})
    minutes = sum(row.seconds for row in rows) / 60
    warned = Counter(line for row in rows for line in row.warnings.splitlines())
    said = "".join(f"<li>{count} × {escape(line)}</li>" for line, count in warned.most_common(5))
    said = f"<p>Warnings in these rows:</p><ul>{said}</ul>" if said else ""
    return (
        f"<details class=origin><summary>{len(rows)} rows, {escape(days)}, "
        f"{minutes:.1f} minutes of one core; how to rerun</summary>"
        f"<pre>soubayes reproduce {escape(experiment.name)} --{_size(experiment, rows)}</pre>"
        f"<p>Commit {escape(commits)}; {escape(', '.join(versions))}.</p>{said}</details>"
    )

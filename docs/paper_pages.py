"""The pages of the section "Paper": one page an experiment, from the committed rows."""

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path

from paper import experiments
from paper.archive import Archive
from paper.runner import Experiment
from paper.views import Cell, Content, Picture, View

MARKS = {"better": "▲ better", "equal": "= equal", "worse": "▼ worse"}
INDEX = """# Tables and figures, recomputed

Every table and figure of the paper and its supplement, computed with this library.

Bold numbers are ours, with the Monte Carlo standard error of the mean. "Printed" is the number
in the paper. The marks ▲ better, = equal and ▼ worse compare the two. Equal means that they differ
by no more than $2\\sqrt{2}$ standard errors plus half a unit of the last printed digit; the
standard error of the paper is taken to be as large as ours.

| page | shows |
| --- | --- |
"""


def write_pages(results: Path, target: Path) -> None:
    """Write an index and one page for each experiment that has rows in ``results``."""
    archive = Archive(results)
    target.mkdir(parents=True, exist_ok=True)
    index, names = [INDEX], []
    for experiment in experiments().values():
        rows = archive.rows(experiment.source)
        content = experiment.report(rows) if rows else []
        if content:
            names.append(experiment.name)
            text = "\n\n".join(_page(experiment, len(rows), content, target))
            _write(target / f"{experiment.name}.md", text + "\n")
            link = f"[{experiment.name}]({experiment.name}.md)"
            index.append(f"| {link} | {experiment.shows} ({experiment.where}) |\n")
    index += ["\n```{toctree}\n:hidden:\n\n", "\n".join(names), "\n```\n"]
    _write(target / "index.md", "".join(index))


def _write(path: Path, text: str) -> None:
    """Write unless nothing changed, so that an unchanged page is not built again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def _page(experiment: Experiment, rows: int, content: Content, folder: Path) -> Iterator[str]:
    yield "---\nhtml_theme.sidebar_secondary.remove: true\n---"
    yield f"# {experiment.name}: {experiment.shows}"
    yield f"Place in the paper: {experiment.where}. {rows:,} rows."
    for part in content:
        yield f"## {part.title}"
        if part.note:
            yield escape(part.note)
        yield _picture(part, folder) if isinstance(part, Picture) else _table(part)
    yield f"Compute these rows again with\n\n    python -m paper reproduce {experiment.name} --full"


def _picture(picture: Picture, folder: Path) -> str:
    picture.draw().savefig(folder / f"{picture.name}.png", dpi=160, metadata={"Software": None})
    return f"![{escape(picture.title)}]({picture.name}.png)"


def _table(view: View) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in view.columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(part)}</td>' for part in row)}</tr>" for row in view.rows
    )
    table = (
        f"<table class='table paper'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
    return f"```{{raw}} html\n<div class='pst-scrollable-table-container'>{table}</div>\n```"


def _cell(part: str | Cell) -> str:
    if not isinstance(part, Cell):
        return escape(part)
    text = "–"
    if math.isfinite(part.mean):
        text = f"<b>{part.mean:.{part.digits}f}</b>"
        if math.isfinite(part.error):
            text += f" ± {part.error:.{part.digits}f}"
    if part.paper is None:
        return text
    mark = f"<span class='mark {part.verdict}'>{MARKS.get(part.verdict, '')}</span>"
    return f"{text}<br><span class='printed'>printed {part.paper:.{part.digits}f}</span> {mark}"

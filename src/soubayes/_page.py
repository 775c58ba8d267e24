"""HTML pages that need no other file, with tables that become cards on phones."""

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any

_STYLE = """
:root { --ink: #1a1a1a; --soft: #555; --line: #ccc; --band: #f5f5f2; --link: #00558b; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1200px; padding: 1rem; color: var(--ink); background: #fff;
  font: 16px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.6rem; margin: .4rem 0; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 .2rem; border-top: 2px solid var(--ink);
  padding-top: .6rem; }
h3 { font-size: 1.05rem; margin: 1.2rem 0 .3rem; }
p, li { max-width: 75ch; overflow-wrap: anywhere; }
a { color: var(--link); }
.where, .count, .error, .paper { color: var(--soft); }
.where, .count { margin: .2rem 0; font-size: .9rem; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; margin: .4rem 0;
  font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .5rem; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere; }
thead th { border-bottom: 2px solid var(--ink); }
tbody th { font-weight: 500; }
tbody tr:nth-child(even) { background: var(--band); }
.paper { display: block; }
.mark { display: inline-block; font-size: .8rem; padding: 0 .35rem; border-radius: .3rem;
  border: 1px solid currentColor; }
.better { color: #00558b; font-weight: 700; }
.equal { color: #444; }
.worse { color: #a33b00; font-weight: 700; border-style: dashed; }
figure { margin: 1rem 0; }
figure img { width: 860px; max-width: 100%; height: auto; display: block; }
figcaption { font-size: .9rem; color: var(--soft); max-width: 75ch; }
pre { background: var(--band); padding: .6rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font-size: .85rem; }
details { margin: .6rem 0; }
summary { cursor: pointer; }
.failed { border-left: 4px solid #a33b00; padding-left: .8rem; }
@media (max-width: 800px) {
  body { padding: .7rem; }
  table, tbody, tr, td, tbody th { display: block; width: 100%; }
  thead { display: none; }
  tbody tr { border: 1px solid var(--line); border-radius: .4rem; margin: 0 0 .7rem;
    padding: .3rem .5rem; }
  tbody th { border-bottom: 2px solid var(--line); font-weight: 700; }
  td { display: flex; flex-wrap: wrap; gap: .15rem .5rem; padding: .25rem .1rem; }
  td::before { content: attr(data-label); flex: 0 0 8.5rem; color: var(--soft); }
  td:last-child { border-bottom: 0; }
  .paper { display: inline; }
}
"""


def page(title: str, *parts: str) -> str:
    """A whole HTML page; ``parts`` are HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; cells are HTML, column names and each row's first cell are text."""
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in columns)
    body = []
    for first, *rest in rows:
        cells = [f'<th scope="row">{escape(first)}</th>']
        for title, shown in zip(columns[1:], rest, strict=True):
            cells.append(f'<td data-label="{escape(title)}">{shown}</td>')
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def picture(figure: Any, title: str, note: str) -> str:
    """A matplotlib figure inside the page, with its caption."""
    inside = io.BytesIO()
    figure.savefig(inside, format="png", dpi=160)
    data = base64.b64encode(inside.getvalue()).decode()
    return (
        f'<figure><img alt="{escape(title)}" src="data:image/png;base64,{data}">'
        f"<figcaption><b>{escape(title)}.</b> {escape(note)}</figcaption></figure>"
    )

"""Run the Python blocks of a page when the site is built, and show what they print and draw.

A page stays plain Markdown: its ```python blocks run in order, in one namespace and an empty
folder, with warnings as errors. `tests/test_documents.py` runs them with the same function. Sphinx
reads a page again only if it has changed, so a second build runs nothing.
"""

import contextlib
import io
import os
import re
import tempfile
import textwrap
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd

if TYPE_CHECKING:
    from sphinx.application import Sphinx

MADE = "executed"  # the folder of the figures, below the source of the site
CODE = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
WIDEST = 92  # characters of a sentence between the sidebars
DOTS_PER_INCH = 150  # sharp on screens with two pixels a point


def setup(app: "Sphinx") -> dict[str, bool]:
    """Connect to the build."""
    app.connect("source-read", execute_page)
    return {"parallel_read_safe": False}


def execute_page(app: "Sphinx", page: str, source: list[str]) -> None:
    """Put the output of every block below it; ``source`` holds the text of the page."""
    if page.startswith(("auto_examples", "api/generated")) or not CODE.search(source[0]):
        return
    folder = Path(app.srcdir) / MADE
    folder.mkdir(exist_ok=True)
    source[0] = with_outputs(source[0], folder, page.replace("/", "-"))


def with_outputs(text: str, folder: Path, name: str) -> str:
    """The page with its outputs; its figures are the files ``name``-1.png, ... in ``folder``.

    >>> page = "```python\\nprint(1 + 1)\\n```\\n"
    >>> print(with_outputs(page, Path("."), "page").replace("`", "'"))
    '''python
    print(1 + 1)
    '''
    <BLANKLINE>
    '''text
    2
    '''
    <BLANKLINE>
    """
    matplotlib.use("Agg")
    plt.close("all")  # what another page or script has left open is not of this page
    namespace: dict[str, Any] = {"__name__": "__page__"}
    here, drawn = os.getcwd(), 0

    def run(block: re.Match[str]) -> str:
        nonlocal drawn
        printed = io.StringIO()
        wide = pd.option_context("display.width", WIDEST, "display.max_columns", None)
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(), wide:
            warnings.simplefilter("error")
            exec(compile(block[1], f"{name}.md", "exec"), namespace)
        shown = [block[0]]
        if printed.getvalue().strip():
            lines = map(shown_line, printed.getvalue().rstrip().split("\n"))
            shown.append("```text\n{}\n```\n".format("\n".join(lines)))
        for number in plt.get_fignums():
            drawn += 1
            file = folder / f"{name}-{drawn}.png"
            figure = plt.figure(number)
            figure.savefig(file, dpi=DOTS_PER_INCH, bbox_inches="tight")
            shown.append(f"![{alternative_text(figure)}](/{MADE}/{file.name})\n")
        plt.close("all")
        return "\n".join(shown)

    with tempfile.TemporaryDirectory() as scratch:
        try:
            os.chdir(scratch)
            return CODE.sub(run, text)
        finally:
            os.chdir(here)
            plt.close("all")


def shown_line(line: str) -> str:
    """A line of a table as it is; a sentence that is too long for the page in several lines.

    >>> print(shown_line("word " * 30))
    word word word word word word word word word word word word word word word word word word
    word word word word word word word word word word word word
    """
    sentence = len(line) > WIDEST and "  " not in line
    return textwrap.fill(line, WIDEST) if sentence else line


def alternative_text(figure: Any) -> str:
    """What a figure shows, in words: the titles and labels of its axes."""
    parts = []
    for ax in figure.axes:
        labels = " against ".join(label for label in (ax.get_ylabel(), ax.get_xlabel()) if label)
        parts.append(": ".join(part for part in (ax.get_title(), labels) if part))
    words = "; ".join(part for part in parts if part) or "Output of the code above"
    return re.sub(r"[\[\]$\\{}]|\n", " ", words)

"""The page of the sensitivities to each prior: a sentence, two tables and a figure."""

from importlib.util import find_spec
from typing import Any

from soubayes.pages import png_address, render
from soubayes.results import shown_as_html


def sensitivity_page(found: Any) -> str:
    """One HTML page; the figure needs the extra ``plot``."""
    address = ""
    if find_spec("matplotlib") is not None:
        ax = found.plot()
        address = png_address(ax.figure)
        ax.figure.clear()
    return render(
        "sensitivity.html",
        "to_html",
        title="Which prior do the conclusions depend on?",
        sentence=found.sentence(),
        notes=found.notes,
        blocks=shown_as_html([found.blocks]),
        derivatives=shown_as_html([found.derivatives]),
        address=address,
    )

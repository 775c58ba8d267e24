"""The page of a fit with terms: the table of terms, and their effects as figures."""

from importlib.util import find_spec
from typing import Any

from soubayes.pages import png_address, render


def terms_page(
    estimator: Any,
    title: str,
    notes: list[str],
    table: tuple[list[str], list[list[str]]],
    level: float,
) -> str:
    """One HTML page; the figures need the extra ``plot``, without which it says so."""
    columns, rows = table
    plots = find_spec("matplotlib") is not None
    return render(
        "terms.html",
        "the page of a fit",
        title=title,
        notes=notes,
        columns=columns,
        rows=rows,
        figures=_figures(estimator, level) if plots else [],
        plots=plots,
        level=level,
    )


def _figures(estimator: Any, level: float) -> list[tuple[str, str]]:
    """A name and a picture for each target; several classes have one each."""
    import matplotlib.pyplot as plt

    from soubayes.plots.terms import plot_terms

    index = estimator.summary().index
    names = [str(name) for name in index.unique("target")] if index.nlevels > 1 else [""]
    pictures = []
    for target, name in enumerate(names):
        figure: Any = plot_terms(estimator, level=level, target=target)[0].figure
        pictures.append((name, png_address(figure)))
        plt.close(figure)
    return pictures

"""Thumbnails of the gallery show one panel of a script's first figure, not all of it in small."""

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from sphinx.application import Sphinx
from sphinx_gallery.scrapers import matplotlib_scraper
from sphinx_gallery.utils import scale_image

SIZE = (400, 280)  # that of sphinx-gallery
PANELS = "panels"  # a folder beside the figures of the scripts


def setup(app: Sphinx) -> None:
    """After the gallery has been made, replace its thumbnails."""
    app.connect("builder-inited", replace_thumbnails, priority=900)


def _get_sg_image_scraper() -> Any:
    """What sphinx-gallery asks a module for that is named in ``image_scrapers``."""
    return save_figures


def save_figures(block: Any, variables: dict[str, Any], conf: dict[str, Any]) -> str:
    """Save figures as sphinx-gallery does, and a panel of the first one."""
    if plt.get_fignums() and not variables["image_path_iterator"].paths:
        folder = Path(variables["target_file"]).parent / "images" / PANELS
        folder.mkdir(parents=True, exist_ok=True)
        name = Path(variables["src_file"]).stem
        save_panel(plt.figure(plt.get_fignums()[0]), folder / f"sphx_glr_{name}_thumb.png")
    return matplotlib_scraper(block, variables, conf)


def save_panel(figure: Any, file: Path) -> None:
    """Save the largest of a figure's axes (of equal ones the first), with its labels."""
    figure.canvas.draw()
    boxes = [ax.get_position() for ax in figure.axes]
    sizes = [round(box.width * box.height, 2) for box in boxes]
    chosen = figure.axes[sizes.index(max(sizes))]
    others = [ax for ax in figure.axes if ax is not chosen]
    shown = [ax.get_visible() for ax in others]
    for ax in others:
        ax.set_visible(False)
    box = chosen.get_tightbbox(figure.canvas.get_renderer())
    figure.savefig(
        file, dpi=200, bbox_inches=box.padded(4).transformed(figure.dpi_scale_trans.inverted())
    )
    for ax, visible in zip(others, shown, strict=True):
        ax.set_visible(visible)


def replace_thumbnails(app: Sphinx) -> None:
    """Put the saved panels where sphinx-gallery has put the whole figures."""
    for panel in Path(app.srcdir, "auto_examples").glob(f"*/images/{PANELS}/*.png"):
        scale_image(panel, panel.parents[1] / "thumb" / panel.name, *SIZE)

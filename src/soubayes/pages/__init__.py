"""HTML pages that need no other file: the explorer, the page of a fit, the report.

| to change | look in |
| --- | --- |
| what the explorer shows of a fit | explorer.py |
| how it is drawn | static/explorer.js, static/explorer_charts.js |
| the numbers behind "What if" | what_if.py |
| predictions in the page, and what "What if" shows | static/predict.js, static/what_if.js |
| the page of a fit with terms | terms.py |
| the page of sensitivities to priors | sensitivity.py |
| the page of several confidences | confidences.py, static/confidences.js |
| text and order of a page | templates/ |
"""

import base64
import io
import math
from functools import cache
from importlib.resources import files
from typing import Any

from soubayes._optional import require


def render(template: str, wanted: str, **values: Any) -> str:
    """A whole page from a file of ``templates/``; ``wanted`` is the feature that needs it.

    Values are escaped. Values for scripts pass through the filter ``tojson``; styles and scripts
    come from ``static/`` and stand inside the page.
    """
    return str(_environment(wanted).get_template(template).render(**values))


@cache
def _environment(wanted: str) -> Any:
    jinja2 = require("jinja2", wanted)
    markup = require("markupsafe", wanted).Markup
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: _read("templates", name)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["static"] = lambda name: markup(_read("static", name))
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment


def _read(folder: str, name: str) -> str:
    return (files("soubayes.pages") / folder / name).read_text(encoding="utf-8")


def number(value: float) -> float | None:
    """A number as a page holds it: nine digits, None where it is not finite.

    >>> number(1 / 3), number(float("nan"))
    (0.333333333, None)
    """
    return float(f"{value:.9g}") if math.isfinite(value) else None


def png_address(figure: Any) -> str:
    """A matplotlib figure as the address of an image inside a page."""
    inside = io.BytesIO()
    figure.savefig(inside, format="png", dpi=160)
    return f"data:image/png;base64,{base64.b64encode(inside.getvalue()).decode()}"


def prior_or_confidence() -> str:
    """The page "Prior width or confidence?": the normal-normal model with both dials.

    It is one file that can be opened as it is or shown in a frame of another page.

    >>> "Prior width or confidence?" in prior_or_confidence()
    True
    """
    return render("prior_or_confidence.html", "prior_or_confidence")

"""Settings of the site. ``make docs`` builds it with every warning an error."""

import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import numpydoc.xref
import numpyro
import numpyro.distributions as dist
from sklearn.datasets import load_diabetes
from sphinx.application import Sphinx
from sphinx.util import logging

import soubayes
from soubayes.pages import prior_or_confidence

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from docstring_rules import faults  # noqa: E402
from inventories import TYPES, write_inventories  # noqa: E402
from paper_pages import write_pages  # noqa: E402

project = "soubayes"
author = "The soubayes developers"
version = release = soubayes.__version__
html_title = "soubayes"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "executed_pages",
    "gallery_panels",
]
exclude_patterns = ["_build", "results", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
nitpicky = True

# text
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
mathjax_path = "mathjax/tex-chtml.js"  # copied by copy_mathjax

# other libraries: the inventories are files of ours, because a build needs no network
intersphinx_mapping = write_inventories(HERE / "_build" / "inventories")
numpydoc_xref_param_type = True
numpydoc_xref_aliases = TYPES
numpydoc_xref_ignore = "all"
numpydoc.xref.DEFAULT_LINKS.clear()  # no links at every "float" and "str"

# what the button beside a block copies: code without prompts, and no output
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
copybutton_exclude = ".linenos, .gp, .go"

# reference: types stand in the docstrings, and signatures stay short
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": True}
autosummary_generate = True
toc_object_entries_show_parents = "hide"
autosummary_generate_overwrite = True
numpydoc_show_class_members = False
numpydoc_attributes_as_param_list = True

# gallery
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",  # every script is executed
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 10_000,
    "write_computation_times": False,
    "reset_modules": ("matplotlib",),
    "remove_config_comments": True,
    "subsection_order": ["../examples/sparse", "../examples/priors", "../examples/networks"],
    "within_subsection_order": "FileNameSortKey",
    "backreferences_dir": "api/backreferences",
    "doc_module": ("soubayes",),
    "matplotlib_animations": False,
    "image_scrapers": ("gallery_panels",),
}

# appearance
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(HERE / "_static" / "search_scorer.js")  # the guide before the reference
html_favicon = "_static/favicon.svg"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": f"soubayes {version}"},
    "github_url": "https://github.com/soubayes/soubayes",
    "show_prev_next": False,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars: dict[str, list[str]] = {"index": [], "theory": []}
copyright = author


def setup(app: Sphinx) -> None:
    """Connect the checks and the generated pages to the build."""
    app.connect("builder-inited", check_docstrings)
    app.connect("builder-inited", write_paper_pages)
    app.connect("autodoc-skip-member", skip_foreign_members)
    app.connect("build-finished", copy_mathjax)
    app.connect("build-finished", write_frames)


def write_paper_pages(app: Sphinx) -> None:
    """Write the pages of the paper's tables and figures from the committed rows."""
    write_pages(HERE / "results", HERE / "paper" / "generated")


def check_docstrings(app: Sphinx) -> None:
    """A public name without a complete docstring is a warning, and so ends the build."""
    for name in soubayes.__all__:
        for fault in faults(getattr(soubayes, name), name):
            logging.getLogger(__name__).warning("docstring of soubayes.%s: %s", name, fault)


def skip_foreign_members(
    app: Sphinx, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what other libraries define: scikit-learn's ``get_params``, a tuple's ``count``."""
    if what != "class":
        return None
    function = member.fget if isinstance(member, property) else member
    module = getattr(function, "__module__", None) or ""
    return None if module.startswith("soubayes") else True


def write_frames(app: Sphinx, error: Exception | None) -> None:
    """The pages that others show in a frame: the two dials, and two explorers."""
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "_static"
    (folder / "prior_or_confidence.html").write_text(prior_or_confidence(), encoding="utf-8")
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    soubayes.SoULinearRegression(inclusion=True).fit(X, y).to_html(
        folder / "explorer.html", title="Diabetes", X=X
    )
    if not (folder / "schools.html").exists():  # it takes half a minute
        soubayes.fit_family(
            schools, EFFECT, ERROR, confidence={"tau": (0.3, 3.0), "theta": (0.3, 3.0)}
        ).to_html(folder / "schools.html", quantities=["mu", "tau", "theta"], title="Eight schools")


EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(effect: Any, error: Any) -> None:
    """Effects of coaching in eight schools (Rubin 1981)."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 20.0))
    tau = numpyro.sample("tau", dist.HalfNormal(10.0))
    with numpyro.plate("schools", len(effect)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, error), obs=effect)


def copy_mathjax(app: Sphinx, error: Exception | None) -> None:
    """Put MathJax and its fonts, from an installed package, beside the pages that use them."""
    if error is not None or app.builder.format != "html":
        return
    package = distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline")
    source = Path(str(package)) / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    fonts = Path("output") / "chtml" / "fonts" / "woff-v2"
    (target / fonts).mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "tex-chtml.js", target)
    for font in (source / fonts).glob("*.woff"):
        shutil.copy(font, target / fonts)

"""Where the pages of other libraries are, for intersphinx without a network.

Inventories of intersphinx are downloaded, and a build must not need that. So the few names that our
pages link to are listed here, and written as inventories when the site is built.
"""

import zlib
from pathlib import Path

SKLEARN = [
    "compose.ColumnTransformer",
    "impute.IterativeImputer",
    "impute.KNNImputer",
    "linear_model.ARDRegression",
    "linear_model.LassoCV",
    "linear_model.LogisticRegression",
    "preprocessing.OneHotEncoder",
]
NAMES = {
    "https://numpy.org/doc/stable/": {
        "numpy.ndarray": "reference/generated/numpy.ndarray.html",
    },
    "https://pandas.pydata.org/docs/": {
        "pandas.DataFrame": "reference/api/pandas.DataFrame.html",
        "pandas.Series": "reference/api/pandas.Series.html",
    },
    "https://scikit-learn.org/stable/": {
        f"sklearn.{name}": f"modules/generated/sklearn.{name}.html" for name in SKLEARN
    },
    "https://matplotlib.org/stable/": {
        "matplotlib.axes.Axes": "api/_as_gen/matplotlib.axes.Axes.html",
        "matplotlib.figure.Figure": "api/_as_gen/matplotlib.figure.Figure.html",
    },
    "https://docs.xarray.dev/en/stable/": {
        "xarray.DataTree": "generated/xarray.DataTree.html",
    },
}

# words in the types of docstrings, and what they link to
TYPES = {name: name for names in NAMES.values() for name in names} | {
    "ndarray": "numpy.ndarray",
    "DataFrame": "pandas.DataFrame",
    "Series": "pandas.Series",
    "Axes": "matplotlib.axes.Axes",
    "Figure": "matplotlib.figure.Figure",
    "DataTree": "xarray.DataTree",
}


def write_inventories(folder: Path) -> dict[str, tuple[str, str]]:
    """Write a file for each library; the result is a value of ``intersphinx_mapping``."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for address, names in NAMES.items():
        library = next(iter(names)).partition(".")[0]
        head = f"# Sphinx inventory version 2\n# Project: {library}\n# Version: stable\n"
        lines = [f"{name} py:class 1 {page} -" for name, page in names.items()]
        body = zlib.compress("".join(f"{line}\n" for line in lines).encode())
        file = folder / f"{library}.inv"
        head += "# The remainder of this file is compressed using zlib.\n"
        file.write_bytes(head.encode() + body)
        mapping[library] = (address, str(file))
    return mapping

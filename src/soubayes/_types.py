"""The types of public signatures. Optional libraries are imported by type checkers alone."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import sparray, spmatrix

if TYPE_CHECKING:
    from jax import Array
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
    from numpyro.infer import MCMC
    from sklearn.base import BaseEstimator as Estimator
    from sklearn.model_selection import BaseCrossValidator as Splitter
    from xarray import DataTree as DataTree
else:
    Array = Axes = DataTree = Estimator = Figure = MCMC = Splitter = Any

Seed = int | np.random.Generator | None  # of NumPy
State = int | np.random.RandomState | None  # of scikit-learn
Key = Seed | Array  # or a key of JAX
DrawsOf = MCMC | Mapping[str, ArrayLike] | DataTree
Number = float | np.ndarray  # a number, or an array of the shape of a block
Label = Hashable  # a class, or the group of a column
File = str | PathLike[str]
Matrix = ArrayLike | sparray | spmatrix
RowBlocks = Iterable[tuple[ArrayLike, ...]]  # (X, y) or (X, y, weight)
Rows = Matrix | File | RowBlocks | Callable[[], RowBlocks]
Targets = ArrayLike | str  # or the name of a column
Folds = int | str | Splitter | Sequence[tuple[ArrayLike, ArrayLike]]
FeatureBlocks = Mapping[str, Mapping[str, object]]
FeatureGroups = Sequence[Label] | Mapping[str, object]  # labels of columns, or name -> columns


class Distribution(Protocol):
    """What the exact engine asks of a frozen distribution; those of ``scipy.stats`` have it."""

    def mean(self) -> Any:
        """Its mean."""

    def std(self) -> Any:
        """Its standard deviation."""

    def ppf(self, q: Any) -> Any:
        """Its quantiles."""

"""What posteriors of weighted draws share: moments, quantiles and a table of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from soubayes._types import DataTree, Number
from soubayes.results import Printable, WholeTable, coordinates, to_inference_data


class WeightedDraws(Printable, ABC):
    """Draws of every quantity with weights that sum to 1."""

    label: ClassVar[str] = "quantity"  # of the rows of the summary

    @abstractmethod
    def _weighted(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Values of a quantity, (draw, ...), and their weights."""

    @abstractmethod
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every quantity."""

    @abstractmethod
    def sample(self, n: int, random_state: Any = 0) -> dict[str, np.ndarray]:
        """Draws without weights.

        Parameters
        ----------
        n : int
            The number of draws.
        random_state : int, Generator or jax.Array, default=0
            The seed.

        Returns
        -------
        draws : dict of str to ndarray
            Draws of every quantity.
        """

    def mean(self, name: str) -> Number:
        """Posterior mean of a quantity.

        Parameters
        ----------
        name : str
            The quantity.

        Returns
        -------
        mean : float or ndarray
            An array of the shape of the quantity.
        """
        values, weights = self._weighted(name)
        return weighted_mean(weights, values)

    def sd(self, name: str) -> Number:
        """Posterior standard deviation of a quantity, coordinate by coordinate.

        Parameters
        ----------
        name : str
            The quantity.

        Returns
        -------
        sd : float or ndarray
            An array of the shape of the quantity.
        """
        values, weights = self._weighted(name)
        return np.sqrt(weighted_mean(weights, (values - weighted_mean(weights, values)) ** 2))

    def quantile(self, name: str, p: ArrayLike) -> Number:
        """Posterior quantiles of a quantity, coordinate by coordinate.

        Parameters
        ----------
        name : str
            The quantity.
        p : float or array-like
            Probabilities between 0 and 1.

        Returns
        -------
        quantile : float or ndarray
            The quantiles on the first axes, the coordinates on the last.
        """
        values, weights = self._weighted(name)
        levels = np.asarray(p, float)
        return np.quantile(values, levels, axis=0, weights=weights, method="inverted_cdf")

    def to_arviz(self, draws: Any = 1000, random_state: Any = 0) -> DataTree:
        """Export draws to ArviZ (extra ``plot``).

        Parameters
        ----------
        draws : int, default=1000
            The number of draws, resampled by their weights.
        random_state : int or Generator, default=0
            The seed.

        Returns
        -------
        data : xarray.DataTree
            The draws as one chain of the group ``posterior``.
        """
        drawn = self.sample(draws, random_state)
        return to_inference_data(drawn, engine=type(self).__name__, **self._about())

    def summary(self) -> pd.DataFrame:
        """Summarise the posterior in a table.

        Returns
        -------
        table : pandas.DataFrame
            One row for each coordinate: mean and sd (with their standard errors where they are
            known), central 90 % interval, and the KL of its block where that is known.
        """
        return table_of(self._shapes(), self._columns(), self.label)

    def _columns(self) -> dict[str, Callable[[str], Any]]:
        return {"mean": self.mean, "sd": self.sd, **interval(self.quantile)}

    def _about(self) -> dict[str, Any]:
        """Attributes of an export."""
        return {}


def interval(quantile: Callable) -> dict[str, Callable[[str], Any]]:
    """The ends of central 90 % intervals, as columns."""
    return {"lower": lambda name: quantile(name, 0.05), "upper": lambda name: quantile(name, 0.95)}


def table_of(
    shapes: Mapping[str, tuple[int, ...]],
    columns: Mapping[str, Callable[[str], Any]],
    label: str = "quantity",
) -> pd.DataFrame:
    """A row for each coordinate of each quantity; a column is a function of a quantity's name.

    >>> table_of({"mu": (), "x": (2,)}, {"sum": lambda name: len(name)})["quantity"].tolist()
    ['mu', 'x[0]', 'x[1]']
    """
    parts = []
    for name, shape in shapes.items():
        labels = coordinates(name, shape)
        found = {title: np.ravel(column(name)) for title, column in columns.items()}
        parts.append(pd.DataFrame({label: labels, **_spread(found, len(labels))}))
    return WholeTable(pd.concat(parts, ignore_index=True))


def _spread(columns: dict[str, np.ndarray], count: int) -> dict[str, np.ndarray]:
    """One number stands for all coordinates."""
    return {title: np.broadcast_to(values, count) for title, values in columns.items()}


def weighted_mean(weights: np.ndarray, values: np.ndarray) -> Any:
    """The mean over the first axis."""
    return np.tensordot(weights, values, axes=1)

"""What a fitted network tells: its sizes, its outputs, files and drawings."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from soubayes._docstrings import fill_docstrings
from soubayes._optional import require
from soubayes._types import Axes
from soubayes.confidence import check_choice
from soubayes.networks.files import Parts, SavedModel, network_parts, read_network
from soubayes.networks.layers import active_counts, weight_counts
from soubayes.networks.prediction import (
    Arrays,
    Network,
    Uncertainty,
    draw_groups,
    outputs_by_chunk,
)
from soubayes.networks.removal import network_size
from soubayes.networks.settings import NET_ARGUMENTS, NetSettings
from soubayes.networks.state import StageEnd
from soubayes.networks.structure import Architecture, Spec

KEPT_BYTES = 2**27  # of posterior draws that are kept between calls


@fill_docstrings(NET_ARGUMENTS)
class FittedNet(SelectorMixin, SavedModel, NetSettings):
    """The part of an estimator that needs no data; `fit` of a subclass brings the networks.

    Attributes
    ----------
    history_ : pandas.DataFrame
        One row for each epoch.
    active_units_ : ndarray of int
        Units of every hidden layer whose scale is at least 1e-3.
    architecture_ : Architecture
        Sizes of all layers, multiply-adds of a row and parameters, before and after training.
    selected_inputs_ : ndarray of int
        Columns of X that the network reads.
    path_ : pandas.DataFrame
        One row for each confidence: units, multiply-adds, parameters, J (``value``) and held-out
        scores.
    value_ : float
        J after training.
    expected_loss_ : float
        The expected loss after training.
    kl_ : dict of str to float
        What it cost each block to leave its prior, in nats.
    n_iter_ : int
        Epochs done.
    finished_ : bool
        Whether all epochs were done.
    """

    path_: pd.DataFrame
    finished_: bool

    def at(self, confidence: float) -> Self:
        """The network of a path at one of its confidences, as an estimator of its own.

        Parameters
        ----------
        confidence : float
            One of the confidences of ``path_``.

        Returns
        -------
        network : estimator
            A fitted estimator.
        """
        check_is_fitted(self)
        known = self.path_["confidence"]
        places = np.flatnonzero(np.isclose(known, confidence, rtol=1e-9))
        if not len(places):
            raise ValueError(
                f"the path has no network at confidence {confidence}; it has {known.tolist()}."
            )
        net = copy.copy(self)
        net.confidence_weights = float(known[places[0]])
        net._use(int(places[0]))
        return net

    def weight_sparsity(self, threshold: float = 1e-5) -> np.ndarray:
        """Share of small weights in every layer.

        Parameters
        ----------
        threshold : float, default=1e-5
            A weight is small if its posterior mean is below this in absolute value.

        Returns
        -------
        share : ndarray
            One number for each layer. Weights of removed units count as zeros, so the shares
            are of the initial layer sizes.
        """
        check_is_fitted(self)
        counts = np.array(weight_counts(self._network.layers, threshold))
        return 1 - counts / self._network.spec.n_weights

    def log_density(self, X: ArrayLike, y: ArrayLike, *, n_draws: int = 100) -> np.ndarray:
        """Log predictive density of targets, or log probability of labels.

        Returns
        -------
        log_density : ndarray of shape (n,)
            The logarithm of p(y | x), summed over outputs; ``-inf`` for a label that was not in the
            training rows.
        """
        return -self._losses(self._rows(X), np.asarray(y), n_draws)

    def uncertainty(self, X: ArrayLike, *, n_draws: int = 100) -> Uncertainty:
        """Separate the noise of the data from what the network does not know.

        Returns
        -------
        parts : Uncertainty
            Of a regression, standard deviations of the noise (``aleatoric``), of the function
            (``epistemic``) and of both (``total``). Of classes, the mean entropy of the draws, the
            mutual information and their sum, in nats.
        """
        return self._uncertainty(self._rows(X), n_draws)

    def sample_functions(self, X: ArrayLike, n: int = 10) -> np.ndarray:
        """Draw functions from the posterior: means of y, or class probabilities.

        Parameters
        ----------
        X : array-like
            Where to evaluate them.
        n : int, default=10
            The number of draws.

        Returns
        -------
        functions : ndarray of shape (n, rows), (n, rows, outputs) or (n, rows, n_classes)
            The values of every draw.
        """
        return np.concatenate(list(self._functions(self._rows(X), n)), axis=1, dtype=float)

    def plot_path(self, ax: Axes | None = None) -> Axes:
        """Draw the held-out loss or error against the multiply-adds of each network of the path.

        Returns
        -------
        ax : matplotlib.axes.Axes
            One point for each confidence.
        """
        return _plots().plot_network_path(self, ax)

    def plot_inputs(self, ax: Axes | None = None) -> Axes:
        """Draw the inputs that are read, by the size of their weights.

        Returns
        -------
        ax : matplotlib.axes.Axes
            An image where rows are images, otherwise a bar for each column.
        """
        return _plots().plot_inputs(self, ax)

    def plot_history(self, ax: Sequence[Axes] | None = None) -> np.ndarray:
        """Draw objective, active units and weight sparsity by epoch.

        Parameters
        ----------
        ax : sequence of matplotlib.axes.Axes, optional
            The three axes to draw on; a new figure by default.

        Returns
        -------
        ax : ndarray of matplotlib.axes.Axes
            The three drawings.
        """
        return _plots().plot_history(self, ax)

    def plot_architecture(self, ax: Axes | None = None) -> Axes:
        """Draw the layers before and after training, with the weights between units.

        Returns
        -------
        ax : matplotlib.axes.Axes
            The drawing.
        """
        return _plots().plot_architecture(self, ax)

    def plot_predictive(
        self, X: ArrayLike, y: ArrayLike | None = None, ax: Axes | None = None
    ) -> Axes:
        """Draw predictions with their uncertainty.

        Parameters
        ----------
        X : array-like
            Where to predict; one column.
        y : array-like, optional
            Observations to draw as points.

        Returns
        -------
        ax : matplotlib.axes.Axes
            The drawing.
        """
        return _plots().plot_predictive(self, X, y, ax)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_ends")

    def _parts(self) -> Parts:
        return network_parts(self)

    @classmethod
    def _of_parts(cls, tree: dict[str, Any], info: dict[str, Any]) -> Self:
        return read_network(cls, tree, info)

    def _members(self) -> list[tuple[Any, float]]:
        """Networks and their weights in a prediction."""
        return [(self, 1.0)]

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, bool)
        mask[self.selected_inputs_] = True
        return mask

    def _set_fitted(self, spec: Spec, ends: list[StageEnd], history: dict[str, Any]) -> None:
        self._ends, self._spec_fitted = ends, spec
        self.history_ = pd.DataFrame(history)
        self.n_iter_ = len(history.get("epoch", ()))

    def _use(self, number: int) -> None:
        """Predict with this network of the path, and report on it."""
        end, spec = self._ends[number], self._spec_fitted
        self._chosen = number
        self._params = end.params
        self._kept_draws: dict[int | None, list[Arrays]] = {}
        self._use_calibration(number)
        self._network = Network(spec, end.params["layers"], end.kept)
        self.architecture_ = Architecture.of(spec, *network_size(spec, end.kept))
        self.active_units_ = np.array([int(count) for count in active_counts(self._network.layers)])
        columns = self._network.columns
        self.selected_inputs_ = np.arange(self.n_features_in_) if columns is None else columns
        rows = slice(end.epoch - 1, end.epoch)  # empty when the first epoch diverged
        last = {k: float(v) for k, values in self.history_.items() for v in values[rows]}
        self.value_, self.expected_loss_ = (last.get(k, np.nan) for k in ("objective", "loss"))
        self.kl_ = {k.removeprefix("kl_"): v for k, v in last.items() if k.startswith("kl_")}

    def _rows(self, X: ArrayLike) -> np.ndarray:
        """The rows of X, checked against those of `fit`."""
        check_is_fitted(self)
        return validate_data(self, self._flattened(X, reset=False), reset=False, dtype="numeric")

    def _functions(self, rows: np.ndarray, n_draws: int | None) -> Iterator[np.ndarray]:
        """Predictions of every draw (None: of the mean weights) for chunks of checked rows."""
        groups = partial(self._draw_groups, n_draws)
        return map(self._predicted, outputs_by_chunk(self._network, rows, self._x_scaler, groups))

    def _draw_groups(self, n_draws: int | None) -> Iterable[Arrays]:
        """Posterior draws, kept for the next call where they are small."""
        kept = self.__dict__.setdefault("_kept_draws", {})
        if n_draws in kept:
            return kept[n_draws]
        groups = draw_groups(self._network, n_draws, self._rng_seed)
        if 4 * self._network.n_weights * (n_draws or 1) > KEPT_BYTES:
            return groups
        kept.clear()
        kept[n_draws] = list(groups)
        return kept[n_draws]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_kept_draws"}

    @property
    def _row_shape(self) -> tuple[int, ...]:
        """Of what `fit` took."""
        return self._input_shape if self._rows_are_images else (self.n_features_in_,)

    def _n_draws(self, n_draws: int, mode: str) -> int | None:
        check_choice("mode", mode, ("draws", "mean"))
        return n_draws if mode == "draws" else None


def _plots() -> Any:
    require("matplotlib", "plots of a network")
    from soubayes.networks import plots

    return plots

"""Classification: the softmax loss, class probabilities and their temperature."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight

from soubayes.confidence import check_choice
from soubayes.networks.base import BaseNet
from soubayes.networks.feeding import Chunk
from soubayes.networks.held_out import fitted_temperature, tempered_probability
from soubayes.networks.prediction import Uncertainty, entropy, softmax
from soubayes.networks.settings import network_estimator
from soubayes.networks.state import StageEnd
from soubayes.networks.storage import labels_from_json, labels_to_json


@network_estimator
class SoUNetClassifier(ClassifierMixin, BaseNet):
    r"""Classification with a Bayesian neural network that removes units it does not need.

    Parameters
    ----------
    class_weight : dict, "balanced" or None, default=None
        Multiplies the weights of the rows of every class, as in scikit-learn.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, in the order of the columns of :meth:`predict_proba`.
    temperature_ : float
        What probabilities by draws are calibrated with: p^(1/T), fitted on held-out rows; 1 without
        them.

    See Also
    --------
    SoUNetRegressor : The same for numbers; its notes describe the model.

    Notes
    -----
    The model is that of :class:`SoUNetRegressor` with the loss
    :math:`-\log \mathrm{softmax}(f(W; x))_y` (section 4.4 of [1]_).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> net = SoUNetClassifier(hidden=(20,), epochs=200, random_state=0).fit(X, y)
    >>> bool(net.score(X, y) > 0.9)
    True
    >>> net.uncertainty(X[:2]).epistemic.shape
    (2,)
    """

    class_weight: Mapping[Any, float] | str | None = None

    _WARMUP = 0.2
    _CLASSES = True
    _MONITOR = "validation_loss"
    _noise_shape = None  # there is no noise

    def predict_proba(
        self, X: ArrayLike, *, n_draws: int = 100, mode: str = "calibrated"
    ) -> np.ndarray:
        """Probabilities of the classes.

        Parameters
        ----------
        mode : {"calibrated", "draws", "mean"}, default="calibrated"
            ``"draws"`` averages the probabilities of posterior draws; ``"calibrated"`` raises this
            average to the power 1 / ``temperature_``. ``"mean"`` uses the mean weights instead of
            draws, which is faster.

        Returns
        -------
        probability : ndarray of shape (n, n_classes)
            The columns are in the order of ``classes_``.
        """
        return self._probabilities(self._rows(X), n_draws, mode)

    def predict(self, X: ArrayLike, *, n_draws: int = 100, mode: str = "calibrated") -> np.ndarray:
        """Predict the most probable class.

        Parameters
        ----------
        mode : {"calibrated", "draws", "mean"}, default="calibrated"
            ``"mean"`` uses the mean weights instead of draws, which is faster.

        Returns
        -------
        labels : ndarray of shape (n,)
            The predicted labels.
        """
        probabilities = self.predict_proba(X, n_draws=n_draws, mode=mode)
        return self.classes_[probabilities.argmax(axis=1)]

    def _predicted(self, outputs: np.ndarray) -> np.ndarray:
        """Probabilities of the classes."""
        return softmax(outputs)

    def _probabilities(
        self, rows: np.ndarray, n_draws: int = 100, mode: str = "calibrated"
    ) -> np.ndarray:
        draws = self._functions(rows, self._n_draws(n_draws, mode))
        p = np.concatenate([_averaged(part) for part in draws])
        return tempered_probability(p, self.temperature_) if mode == "calibrated" else p

    def _uncertainty(self, rows: np.ndarray, n_draws: int) -> Uncertainty:
        aleatoric, total = [], []
        for p in self._functions(rows, n_draws):
            aleatoric.append(entropy(p).mean(axis=0))
            total.append(entropy(_averaged(p)))
        mean, whole = np.concatenate(aleatoric), np.concatenate(total)
        return Uncertainty(mean, np.maximum(whole - mean, 0.0), whole)

    def _losses(self, rows: np.ndarray, y: np.ndarray, n_draws: int = 100) -> np.ndarray:
        codes = self._encode_y(y)
        p = self._probabilities(rows, n_draws)[np.arange(len(codes)), codes]
        with np.errstate(divide="ignore"):
            return -np.log(np.where(codes < 0, 0.0, p))

    def _survey_y(self, chunks: Any) -> None:
        total: dict[Any, float] = {}
        labels = np.array([])
        for y, weight in chunks:
            here, code = np.unique(y, return_inverse=True)
            for label, count in zip(here, np.bincount(code, weight), strict=True):
                total[label] = total.get(label, 0.0) + count
            labels = np.unique(np.concatenate([labels, here])) if len(labels) else here
        self.classes_ = labels
        self._class_shares = np.array([total[label] for label in labels])
        self._class_shares /= self._class_shares.sum()
        self._n_outputs = len(self.classes_)
        check_classes(labels)
        if self.checkpoint is not None:
            labels_to_json(labels)  # what a file cannot hold is an error before the training

    def _encode_y(self, y: np.ndarray) -> np.ndarray:
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        return np.where(self.classes_[codes] == y, codes, -1).astype(np.int32)  # -1: never seen

    def _n_draws(self, n_draws: int, mode: str) -> int | None:
        check_choice("mode", mode, ("calibrated", "draws", "mean"))
        return None if mode == "mean" else n_draws

    def _noise(self, n: float) -> None:
        return None

    def _constant_loss(self) -> float:
        """Of a row, when all classes have the same probability."""
        return float(np.log(self._n_outputs))

    def _constant_losses(self, rows: Chunk) -> np.ndarray:
        """Of rows, when the shares of the classes are predicted."""
        return -np.log(self._class_shares[self._encode_y(rows.y)])

    def _class_factors(self, y: np.ndarray) -> np.ndarray | float:
        if self.class_weight is None:
            return 1.0
        return compute_sample_weight(self.class_weight, y)

    def _calibrate(self, rows: Chunk) -> dict[str, float]:
        """Fit the temperature of the network in use on rows that it has not seen."""
        codes = self._encode_y(rows.y)
        seen = codes >= 0
        p = self._probabilities(rows.X[seen], mode="draws") if seen.any() else np.ones((0, 2))
        self.temperature_ = fitted_temperature(p, codes[seen], rows.weight[seen])
        return {"temperature": self.temperature_}

    def _use_calibration(self, number: int) -> None:
        known = self.path_.get("temperature")
        self.temperature_ = 1.0 if known is None else float(known.iloc[number])

    def _exported_temperature(self, mode: str) -> float:
        return self.temperature_ if mode == "calibrated" else 1.0

    def _scales(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_x_scaler", "classes_")}

    def _go_on_with(self, scales: dict[str, Any]) -> None:
        known = scales.get("classes_", self.classes_)
        if not np.array_equal(known, self.classes_):
            raise ValueError(
                f"warm_start=True, but the classes were {known.tolist()} and are "
                f"{self.classes_.tolist()} now. Set warm_start=False."
            )
        self.__dict__.update(scales)

    def _score_outputs(
        self, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> dict[str, float]:
        right = outputs.argmax(axis=1) == y
        seen = y >= 0  # a label that was never seen says nothing about the loss
        losses = logsumexp(outputs[seen], axis=1) - outputs[seen, y[seen]]
        loss = np.average(losses, weights=weight[seen]) if seen.any() else np.nan
        return {"accuracy": float(np.average(right, weights=weight)), "loss": float(loss)}

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {}, labels_to_json(self.classes_)

    def _restore(self, arrays: dict[str, Any], info: dict[str, Any]) -> None:
        self.classes_ = labels_from_json(info)
        self._n_outputs = len(self.classes_)

    def _check_params(self, ends: list[StageEnd]) -> None:
        """A classifier has nothing but its layers."""


def _averaged(draws: np.ndarray) -> np.ndarray:
    """The average of probabilities that are float32, with the sum 1."""
    p = draws.mean(axis=0, dtype=float)
    return p / p.sum(axis=-1, keepdims=True)


def check_classes(labels: np.ndarray) -> None:
    """Raise unless there are two classes."""
    if len(labels) < 2:
        raise ValueError(
            f"y has one class, {labels.tolist()[0]!r}, but a classifier needs at least 2."
        )

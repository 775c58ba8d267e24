"""Regression: the normal loss with its noise, predictions in units of y."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import RegressorMixin

from soubayes.networks.base import BaseNet
from soubayes.networks.feeding import Chunk, ColumnMoments, Scaler
from soubayes.networks.likelihoods import noise_prior
from soubayes.networks.mixtures import NormalMixture, interval_tails
from soubayes.networks.prediction import Uncertainty
from soubayes.networks.settings import network_estimator
from soubayes.networks.state import StageEnd


@network_estimator
class SoUNetRegressor(RegressorMixin, BaseNet):
    r"""Regression with a Bayesian neural network that removes units it does not need.

    Inputs and targets are scaled inside. Several targets share the network.

    Parameters
    ----------
    confidence_noise : float, default=1.0
        Confidence in the prior of the noise precision.
    noise_prior : tuple of (float, float), optional
        Shape and rate of the gamma prior of the noise precision, in units of y. By default
        (1, 0.01 var(y)), which has little influence.

    See Also
    --------
    SoUNetClassifier : The same for classes.
    SoUNetEnsemble : Several networks, for small tables.

    Notes
    -----
    The network of section 4.4 and supplement A.4 of [1]_ has the weights

    .. math::

        w_k = \tau_k \nu \beta_k, \quad \beta_k \sim N(0, I), \quad \tau_k \sim C^+(0, b_0), \quad
        \nu \sim C^+(0, b_g),

    for the weights into unit k, with one :math:`\nu` for each layer, and a noise precision with a
    gamma prior. A fully factorised q minimises eq. 5, :math:`J(q) = E_q[-\log p(y \mid W, \phi)] +
    \sum_k \gamma_k \mathrm{KL}_k`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.linspace(-4, 4, 200)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=200)
    >>> net = SoUNetRegressor(hidden=(20, 20), epochs=300, random_state=0).fit(X, y)
    >>> mean, sd = net.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.3)
    True
    """

    confidence_noise: float = 1.0
    noise_prior: tuple[float, float] | None = None

    _WARMUP = 0.05
    _CLASSES = False
    _MONITOR = "validation_rmse"

    def predict(
        self, X: ArrayLike, *, return_std: bool = False, n_draws: int = 100, mode: str = "draws"
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict the mean of new observations.

        Parameters
        ----------
        return_std : bool, default=False
            Also return the predictive standard deviation, noise included.
        mode : {"draws", "mean"}, default="draws"
            ``"mean"`` uses the mean weights instead of draws, which is faster.

        Returns
        -------
        mean : ndarray of shape (n,) or (n, outputs)
            The predictive mean.
        sd : ndarray of the same shape
            Only with ``return_std=True``.
        """
        mean, epistemic = self._moments(self._rows(X), n_draws, mode)
        if not return_std:
            return mean
        return mean, np.sqrt(self._noise_variance() + epistemic**2)

    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.9, *, n_draws: int = 100
    ) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds a new observation with this probability.

        Parameters
        ----------
        coverage : float, default=0.9
            The probability, between 0 and 1.

        Returns
        -------
        low : ndarray of shape (n,) or (n, outputs)
            Lower ends.
        high : ndarray of the same shape
            Upper ends.
        """
        tails = interval_tails(coverage)
        found = []
        for draws in self._functions(self._rows(X), n_draws):  # a mixture of one normal a draw
            variance = np.broadcast_to(self._noise_variance(), draws.shape)
            weight = np.full(len(draws), 1 / len(draws))
            means, variances = (part.reshape(len(draws), -1) for part in (draws, variance))
            mixture = NormalMixture(means, variances, weight)
            found.append([mixture.quantile(t).reshape(draws.shape[1:]) for t in tails])
        low, high = (np.concatenate(ends) for ends in zip(*found, strict=True))
        return low, high

    def _predicted(self, outputs: np.ndarray) -> np.ndarray:
        """Means of y, in its units."""
        y = self._y_scaler.undo(outputs)
        return y[..., 0] if self._flat_y else y

    def _moments(self, rows: np.ndarray, n_draws: int, mode: str) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the function."""
        parts = list(self._functions(rows, self._n_draws(n_draws, mode)))
        mean = np.concatenate([part.mean(axis=0) for part in parts])
        return mean, np.concatenate([part.std(axis=0) for part in parts])

    def _uncertainty(self, rows: np.ndarray, n_draws: int) -> Uncertainty:
        _, epistemic = self._moments(rows, n_draws, "draws")
        variance = np.broadcast_to(self._noise_variance(), epistemic.shape)
        return Uncertainty(np.sqrt(variance), epistemic, np.sqrt(variance + epistemic**2))

    def _losses(self, rows: np.ndarray, y: np.ndarray, n_draws: int = 100) -> np.ndarray:
        y, variance = y.astype(float).reshape(len(y), -1), np.atleast_1d(self._noise_variance())
        parts, start = [], 0
        for draws in self._functions(rows, n_draws):
            mean = draws.reshape(*draws.shape[:2], -1)
            squares = (y[start : start + mean.shape[1]] - mean) ** 2 / variance
            start += mean.shape[1]
            logs = -(squares + np.log(2 * np.pi * variance)).sum(axis=-1) / 2
            parts.append(np.log(n_draws) - logsumexp(logs, axis=0))
        return np.concatenate(parts)

    def _noise_variance(self) -> Any:
        """E[1/phi] = b / (a - 1) in units of y^2."""
        a = self._noise_shape
        variance = np.exp(np.asarray(self._params["noise"]["log_rate"], float)) / (a - 1)
        variance = variance * self._y_scaler.scale**2
        return variance[0] if self._flat_y else variance

    # what BaseNet.fit asks of a likelihood

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _survey_y(self, chunks: Any) -> None:
        moments = ColumnMoments()
        for y, weight in chunks:
            y = np.asarray(y, float)
            self._flat_y = y.ndim == 1
            moments.add(y.reshape(len(y), -1), weight)
        self._y_scaler = Scaler(moments.mean, moments.sd)
        self._n_outputs = len(moments.mean)

    def _encode_y(self, y: np.ndarray) -> np.ndarray:
        return self._y_scaler(np.asarray(y, float).reshape(len(y), -1))

    def _noise(self, n: float) -> Any:
        variance = self._y_scaler.scale**2
        a0, b0 = (1.0, 0.01 * variance) if self.noise_prior is None else self.noise_prior
        prior = noise_prior(a0, b0 / variance, n, self.confidence_noise)
        self._noise_shape = float(prior.shape)
        return prior

    def _constant_loss(self) -> float:
        """Of a row, when the mean and the variance of the scaled targets are predicted."""
        return self._n_outputs * (np.log(2 * np.pi) + 1) / 2

    def _constant_losses(self, rows: Chunk) -> np.ndarray:
        """Of rows, when the mean and the variance of the targets are predicted."""
        squares = self._encode_y(rows.y).astype(float) ** 2
        return self._log_scale() + (squares + np.log(2 * np.pi)).sum(axis=1) / 2

    def _log_scale(self) -> float:
        """What the log density of a target gains by its units."""
        return float(np.log(self._y_scaler.scale).sum())

    def _class_factors(self, y: np.ndarray) -> float:
        return 1.0

    def _calibrate(self, rows: Chunk) -> dict[str, float]:
        return {}

    def _use_calibration(self, number: int) -> None:
        """A regression has none."""

    def _exported_temperature(self, mode: str) -> float:
        return 1.0

    def _scales(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("_x_scaler", "_y_scaler")}

    def _go_on_with(self, scales: dict[str, Any]) -> None:
        self.__dict__.update(scales)

    def _score_outputs(
        self, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> dict[str, float]:
        squares = ((outputs - y) * self._y_scaler.scale) ** 2
        return {"rmse": float(np.sqrt(np.average(squares.mean(axis=1), weights=weight)))}

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays = {"y_shift": self._y_scaler.shift, "y_scale": self._y_scaler.scale}
        return arrays, {"flat_y": self._flat_y, "noise_shape": self._noise_shape}

    def _restore(self, arrays: dict[str, Any], info: dict[str, Any]) -> None:
        self._y_scaler = Scaler(arrays["y_shift"], arrays["y_scale"])
        self._flat_y, self._noise_shape = bool(info["flat_y"]), float(info["noise_shape"])
        self._n_outputs = len(self._y_scaler.shift)

    def _check_params(self, ends: list[StageEnd]) -> None:
        for end in ends:
            if end.params["noise"]["log_rate"].shape != (self._n_outputs,):
                raise ValueError(f"the noise is not that of {self._n_outputs} targets")

"""The scikit-learn estimators: SoUNetRegressor and SoUNetClassifier."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin, RegressorMixin

from soubayes.networks.base import BaseNet
from soubayes.networks.feeding import Moments, Scaler
from soubayes.networks.likelihoods import noise_prior
from soubayes.networks.prediction import Uncertainty, entropy, softmax


class SoUNetRegressor(RegressorMixin, BaseNet):
    """Regression with a Bayesian neural network whose units switch themselves off.

    Minimises eq. 5 of the paper, J(q) = E_q[-log p(y | W, phi)] + sum_k gamma_k KL_k, over a fully
    factorised q for the network of supplement A.4: w_k = tau_k nu beta_k, beta ~ N(0, I),
    tau_k ~ C+(0, b_0), nu ~ C+(0, b_g), noise precision phi ~ Gamma(a0, b0). Inputs and targets are
    scaled inside (see `scale_inputs`); several targets share the network.

    Parameters
    ----------
    hidden : units of every hidden layer before training; convolutions `Conv` and `Pool` may come
        before the first dense layer.
    input_shape : shape of a row, (length, channels) or (height, width, channels), for convolutions
        on a flat X; X of shape (rows, height, width, channels) brings its own.
    prune_inputs : give every column of X a scale t ~ C+(0, b_0) of the local block, so that inputs
        are dropped too.
    prior : "horseshoe" (tau and nu as above) or "normal", w ~ N(0, 1/dim(w_k)): the standard BNN.
    confidence_local : gamma_tau. 1e-9 is the paper's SoU-SGL, 1 the horseshoe BNN.
    confidence_weights : gamma of beta, the dial between a small and an accurate network: a number
        (the paper's is 1), or several, which make a path in one training, or "auto", the path 0.03,
        0.1, 0.3, 1. With rows to score on (`validation_fraction`, ``X_val``; "auto" holds out a
        tenth of the rows when there are none) the estimator is the smallest network of the path
        whose loss there is within one standard error of the lowest, else the one of the highest
        confidence.
    confidence_global, confidence_noise : gamma of nu and phi.
    local_scale, global_scale : b_0 and b_g of the half-Cauchy priors.
    noise_prior : (a0, b0) of phi in units of y; None is Gamma(1, 0.01 var(y)), which hardly pulls.
    output_scale : give the output layer a scale kappa ~ C+(0, 1) (a departure from the
        paper).
    scale_inputs : "columns" standardises every column, "common" maps all of X to [0, 1] by its
        smallest and largest value (right for columns in one unit, such as pixels), None leaves X as
        it is. "auto" is "common" when all columns have the same smallest value and none spans more
        than ten times the median column, else "columns".
    activation : "relu", "tanh" or "elu".
    epochs : passes over the data; None is 100, or more when that makes fewer than 15,000 steps.
    batch_size, learning_rate : of Adam; the rate is held for half of the run and then decays.
    scale_speed : what multiplies the learning rate of tau and nu; pruning is their movement. None
        is 10, and 2 with fewer than 300 rows, where faster scales end at a constant.
    warmup : the part of the run over which the KL terms grow to their full weight; None is 0.05,
        for classifiers 0.2, when tau is free (confidence_local <= 0.01; 0.5 with fewer than 300
        rows), else 0.3.
    compact : remove units that know nothing about the data while training, so that the rest of
        the run costs what the small network costs.
    validation_fraction : part of the rows held out and scored every epoch.
    random_state, verbose : as in scikit-learn; verbose=1 shows a progress bar.
    checkpoint : a folder; a killed training continues from it to the same result.

    Attributes
    ----------
    history_ : a Table with a row an epoch.
    active_units_ : units of every hidden layer with E[tau nu] >= 1e-3.
    architecture_ : sizes of all layers, multiply–adds of a row and parameters, before and after.
    selected_inputs_ : columns of X that the network reads; `get_support`, `transform` and
        `get_feature_names_out` are scikit-learn's.
    path_ : a Table with a row a confidence: units, multiply–adds, parameters, J (``value``) and the
        scores on the rows held out; `at` gives the network of a row.
    value_, expected_loss_, kl_ : J, E_q[loss] and what every block cost in nats, after training.
    n_iter_, finished_ : epochs done, and whether all were.

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

    _WARMUP = 0.05

    def __init__(
        self,
        hidden: tuple[Any, ...] = (200, 200),
        *,
        prior: str = "horseshoe",
        confidence_local: float = 1e-9,
        confidence_global: float = 1.0,
        confidence_weights: float | Sequence[float] | str = 1.0,
        confidence_noise: float = 1.0,
        local_scale: float = 1.0,
        global_scale: float = 0.1,
        noise_prior: tuple[float, float] | None = None,
        output_scale: bool = True,
        input_shape: tuple[int, ...] | None = None,
        prune_inputs: bool = False,
        scale_inputs: str | None = "auto",
        activation: str = "relu",
        epochs: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.002,
        scale_speed: float | None = None,
        warmup: float | None = None,
        compact: bool = True,
        validation_fraction: float = 0.0,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.hidden = hidden
        self.prior = prior
        self.confidence_local = confidence_local
        self.confidence_global = confidence_global
        self.confidence_weights = confidence_weights
        self.confidence_noise = confidence_noise
        self.local_scale = local_scale
        self.global_scale = global_scale
        self.noise_prior = noise_prior
        self.output_scale = output_scale
        self.input_shape = input_shape
        self.prune_inputs = prune_inputs
        self.scale_inputs = scale_inputs
        self.activation = activation
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.scale_speed = scale_speed
        self.warmup = warmup
        self.compact = compact
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def predict(
        self, X: ArrayLike, *, return_std: bool = False, n_draws: int = 100, mode: str = "draws"
    ) -> Any:
        """The mean over posterior draws, or with mode="mean" the output of the mean weights.

        With `return_std` also the predictive standard deviation, noise included.
        """
        mean, epistemic = self._moments(X, n_draws, mode)
        if not return_std:
            return mean
        return mean, np.sqrt(self._noise_variance() + epistemic**2)

    def uncertainty(self, X: ArrayLike, *, n_draws: int = 100) -> Uncertainty:
        """Standard deviations of the noise (aleatoric), of the function (epistemic), of both."""
        _, epistemic = self._moments(X, n_draws, "draws")
        variance = np.broadcast_to(self._noise_variance(), epistemic.shape)
        return Uncertainty(np.sqrt(variance), epistemic, np.sqrt(variance + epistemic**2))

    def log_density(self, X: ArrayLike, y: ArrayLike, *, n_draws: int = 100) -> np.ndarray:
        """log p(y | x) of every row, averaged over posterior draws; summed over outputs."""
        y = np.asarray(y, float).reshape(len(np.asarray(y)), -1)
        variance = np.atleast_1d(self._noise_variance())
        parts, start = [], 0
        for outputs in self._outputs(X, n_draws):
            mean = self._y_scaler.undo(outputs)
            squares = (y[start : start + mean.shape[1]] - mean) ** 2 / variance
            start += mean.shape[1]
            logs = -(squares + np.log(2 * np.pi * variance)).sum(axis=-1) / 2
            parts.append(logsumexp(logs, axis=0) - np.log(n_draws))
        return np.concatenate(parts)

    def sample_functions(self, X: ArrayLike, n: int = 10) -> np.ndarray:
        """n posterior draws of the function at X; shape (n, rows) or (n, rows, outputs)."""
        parts = [self._to_y(draws) for draws in self._outputs(X, n)]
        return np.concatenate(parts, axis=1)

    def _moments(self, X: ArrayLike, n_draws: int, mode: str) -> tuple[np.ndarray, np.ndarray]:
        parts = [self._to_y(draws) for draws in self._outputs(X, self._n_draws(n_draws, mode))]
        mean = np.concatenate([part.mean(axis=0) for part in parts])
        return mean, np.concatenate([part.std(axis=0) for part in parts])

    def _to_y(self, outputs: np.ndarray) -> np.ndarray:
        y = self._y_scaler.undo(outputs)
        return y[..., 0] if self._flat_y else y

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
        moments = Moments()
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
        self._flat_y, self._noise_shape = info["flat_y"], info["noise_shape"]
        self._n_outputs = len(self._y_scaler.shift)


class SoUNetClassifier(ClassifierMixin, BaseNet):
    """Classification with a Bayesian neural network whose units switch themselves off.

    As `SoUNetRegressor`, with -log softmax(f(W; x))[y] as the loss (paper, section 4.4).

    Parameters and attributes are those of `SoUNetRegressor` but for the noise's; `classes_` holds
    the labels in the order of `predict_proba`'s columns.

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

    _WARMUP = 0.2

    def __init__(
        self,
        hidden: tuple[Any, ...] = (200, 200),
        *,
        prior: str = "horseshoe",
        confidence_local: float = 1e-9,
        confidence_global: float = 1.0,
        confidence_weights: float | Sequence[float] | str = 1.0,
        local_scale: float = 1.0,
        global_scale: float = 0.1,
        output_scale: bool = True,
        input_shape: tuple[int, ...] | None = None,
        prune_inputs: bool = False,
        scale_inputs: str | None = "auto",
        activation: str = "relu",
        epochs: int | None = None,
        batch_size: int = 100,
        learning_rate: float = 0.002,
        scale_speed: float | None = None,
        warmup: float | None = None,
        compact: bool = True,
        validation_fraction: float = 0.0,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.hidden = hidden
        self.prior = prior
        self.confidence_local = confidence_local
        self.confidence_global = confidence_global
        self.confidence_weights = confidence_weights
        self.local_scale = local_scale
        self.global_scale = global_scale
        self.output_scale = output_scale
        self.input_shape = input_shape
        self.prune_inputs = prune_inputs
        self.scale_inputs = scale_inputs
        self.activation = activation
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.scale_speed = scale_speed
        self.warmup = warmup
        self.compact = compact
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint

    def predict_proba(self, X: ArrayLike, *, n_draws: int = 100, mode: str = "draws") -> np.ndarray:
        """Class probabilities averaged over posterior draws, or of the mean weights."""
        draws = self._outputs(X, self._n_draws(n_draws, mode))
        return np.concatenate([softmax(part).mean(axis=0, dtype=float) for part in draws])

    def predict(self, X: ArrayLike, *, n_draws: int = 100, mode: str = "draws") -> np.ndarray:
        """The most probable class."""
        probabilities = self.predict_proba(X, n_draws=n_draws, mode=mode)
        return self.classes_[probabilities.argmax(axis=1)]

    def log_density(self, X: ArrayLike, y: ArrayLike, *, n_draws: int = 100) -> np.ndarray:
        """log p(y | x) of every row, averaged over posterior draws; -inf for a label never seen."""
        codes = self._encode_y(np.asarray(y))
        p = self.predict_proba(X, n_draws=n_draws)[np.arange(len(codes)), codes]
        with np.errstate(divide="ignore"):
            return np.log(np.where(codes < 0, 0.0, p))

    def uncertainty(self, X: ArrayLike, *, n_draws: int = 100) -> Uncertainty:
        """Mean entropy of the draws (aleatoric), mutual information (epistemic), their sum."""
        aleatoric, total = [], []
        for part in self._outputs(X, n_draws):
            probabilities = softmax(part)
            aleatoric.append(entropy(probabilities).mean(axis=0))
            total.append(entropy(probabilities.mean(axis=0, dtype=float)))
        mean, whole = np.concatenate(aleatoric), np.concatenate(total)
        return Uncertainty(mean, np.maximum(whole - mean, 0.0), whole)

    def sample_functions(self, X: ArrayLike, n: int = 10) -> np.ndarray:
        """n posterior draws of the class probabilities at X; shape (n, rows, classes)."""
        return np.concatenate([softmax(part).astype(float) for part in self._outputs(X, n)], axis=1)

    def _survey_y(self, chunks: Any) -> None:
        found: list[np.ndarray] = []
        for y, _ in chunks:
            found = [np.unique(np.concatenate([*found, np.unique(y)]))]
        self.classes_ = found[0]
        self._n_outputs = len(self.classes_)
        if self._n_outputs < 2:
            raise ValueError(
                f"y has one class, {self.classes_[0]!r}, but a classifier needs at least 2."
            )

    def _encode_y(self, y: np.ndarray) -> np.ndarray:
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        return np.where(self.classes_[codes] == y, codes, -1).astype(np.int32)  # -1: never seen

    def _noise(self, n: float) -> None:
        return None

    def _constant_loss(self) -> float:
        """Of a row, when all classes have the same probability."""
        return float(np.log(self._n_outputs))

    def _score_outputs(
        self, outputs: np.ndarray, y: np.ndarray, weight: np.ndarray
    ) -> dict[str, float]:
        return {"accuracy": float(np.average(outputs.argmax(axis=1) == y, weights=weight))}

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        labels = self.classes_
        kind = "text" if labels.dtype.kind in "OUS" else labels.dtype.str
        return {}, {"classes": labels.tolist(), "classes_dtype": kind}

    def _restore(self, arrays: dict[str, Any], info: dict[str, Any]) -> None:
        kind = info["classes_dtype"]
        self.classes_ = np.array(info["classes"], dtype=None if kind == "text" else kind)
        self._n_outputs = len(self.classes_)

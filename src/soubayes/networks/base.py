"""What the two estimators share: checks, fitting, reports, files."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from soubayes._optional import require
from soubayes.networks import storage
from soubayes.networks.feeding import (
    RESIDENT_BYTES,
    ArraySource,
    BatchSource,
    Moments,
    Scaler,
    data_mesh,
    minibatches,
    placement,
)
from soubayes.networks.layers import Layer, Spec, active_counts, mean_weights, weight_counts
from soubayes.networks.prediction import forward_weights, outputs_by_chunk
from soubayes.networks.progress import progress
from soubayes.networks.settings import check_choice, check_settings
from soubayes.networks.training import Problem, Run, Schedule, epochs_a_call, start, train
from soubayes.results import Table

CHECKPOINT_SECONDS = 20.0  # between two checkpoints of a long training
FREE_CONFIDENCE = 1e-2  # below it tau costs nothing, and what a unit knows is free of its scale
FEW_ROWS = 300
LEAST_EPOCHS, LEAST_STEPS = 100, 15_000  # epochs=None


class Architecture(NamedTuple):
    """Layer sizes, inputs and outputs included, before and after training.

    >>> print(Architecture((1, 100, 100, 1), (1, 3, 2, 1)))
    1–100–100–1 → 1–3–2–1
    """

    initial: tuple[int, ...]
    final: tuple[int, ...]

    def __str__(self) -> str:
        return " → ".join("–".join(map(str, sizes)) for sizes in self)


class BaseNet(BaseEstimator):
    """Fitting and reporting; a subclass brings the loss, predictions and their units."""

    _WARMUP: float  # of networks with free scales and enough rows

    def fit(
        self, X: Any, y: Any = None, *, X_val: ArrayLike | None = None, y_val: Any = None
    ) -> Self:
        """Train on arrays, memory maps, or an iterable of (X, y) batches given as X alone.

        The iterable is walked once to learn sizes and scales, and then once an epoch. Memory maps
        are read in chunks and never held whole. Rows of one's own to score every epoch on are
        given as ``X_val`` and ``y_val``; with ``validation_fraction`` they are taken from X.
        """
        check_settings(self.get_params(deep=False))
        source = self._source(X, y)
        held_out = None
        resumed = None if self.checkpoint is None else storage.read_checkpoint(self.checkpoint)
        seed = self._seed(resumed)
        if self.validation_fraction > 0:
            held_out = self._hold_out(source, np.random.default_rng(seed))
        n = self._survey(source)
        if X_val is not None or y_val is not None:
            held_out = self._given_to_score(X_val, y_val)
        spec = self._spec()
        problem = self._problem(n)
        _, batch = minibatches(n, self.batch_size)
        epochs = self._n_epochs(n)
        one_chunk = isinstance(source, ArraySource) and not source.streamed and held_out is None
        schedule = Schedule(
            epochs,
            self.batch_size,
            bool(self.compact),
            data_mesh(batch),
            epochs_a_call(epochs, n, self.batch_size, sum(spec.n_weights)) if one_chunk else 1,
            self._free_scales,
        )
        self._rng_seed = seed
        info = {"seed": seed, "fingerprint": self._fingerprint(n)}
        run = start(spec, problem, seed)
        if resumed is not None:
            run = self._resume(*resumed, info)
        with progress(self.verbose, schedule.epochs) as show:
            run, self.finished_ = train(
                spec, problem, schedule, run, seed,
                lambda epoch: self._chunks(source, seed, epoch, schedule),
                self._validator(spec, held_out),
                self._reporter(show, schedule, info),
            )  # fmt: skip
        history = storage.columns(run.rows[: run.epoch])
        self._set_fitted(spec, jax.tree.map(np.asarray, run.params), run.kept, history)
        return self

    def weight_sparsity_(self, threshold: float = 1e-5) -> np.ndarray:
        """The part of each layer's effective weights, |E_q[w]|, below the threshold.

        Weights of removed units count as zeros: the parts are of the initial layer sizes.
        """
        check_is_fitted(self)
        counts = np.array(weight_counts(self._layers, threshold))
        return 1 - counts / self._network_spec.n_weights

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file, which `load` reads without running code."""
        check_is_fitted(self)
        arrays, info = self._state()
        tree = {
            "params": self._params,
            "kept": self._kept,
            "history": dict(self.history_),
            "x_shift": self._x_scaler.shift,
            "x_scale": self._x_scaler.scale,
            **arrays,
        }
        settings = {k: v for k, v in self.get_params().items() if k not in _NOT_SAVED}
        info |= {
            "class": type(self).__name__,
            "settings": settings,
            "seed": self._rng_seed,
            "n_features_in": self.n_features_in_,
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
            "finished": self.finished_,
        }
        storage.write(path, tree, info)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator that `save` wrote."""
        tree, info = storage.read(path)
        if info.get("class") != cls.__name__:
            raise ValueError(
                f"{str(path)!r} holds a {info.get('class')}; use {info.get('class')}.load."
            )
        settings = info["settings"]
        settings["hidden"] = tuple(settings["hidden"])
        if settings.get("noise_prior") is not None:
            settings["noise_prior"] = tuple(settings["noise_prior"])
        net = cls(**settings)
        net._restore(tree, info)
        net.n_features_in_ = info["n_features_in"]
        if info["feature_names"]:
            net.feature_names_in_ = np.array(info["feature_names"], dtype=object)
        net._x_scaler = Scaler(tree["x_shift"], tree["x_scale"])
        net._rng_seed = info["seed"]
        net.finished_ = info["finished"]
        net._set_fitted(net._spec(), tree["params"], tree["kept"], tree["history"])
        return net

    def export_onnx(
        self, path: str | os.PathLike[str], *, mode: str = "mean", n_draws: int = 100
    ) -> None:
        """Write the compact network as ONNX: the mean weights, or with mode="draws" an ensemble.

        Scaling is folded into the weights; the input is float32 of shape (rows, features).
        """
        check_is_fitted(self)
        export = require("soubayes.networks.export", "export_onnx")
        export.export_onnx(self, Path(path), self._n_draws(n_draws, mode))

    def plot_history(self, ax: Any = None) -> Any:
        """Objective, active units and weight sparsity by epoch."""
        return _plots().plot_history(self, ax)

    def plot_architecture(self, ax: Any = None) -> Any:
        """The layers before and after training, with the effective weights between units."""
        return _plots().plot_architecture(self, ax)

    def plot_predictive(self, X: ArrayLike, y: ArrayLike | None = None, ax: Any = None) -> Any:
        """Predictions with their uncertainty at X."""
        return _plots().plot_predictive(self, X, y, ax)

    def _source(self, X: Any, y: Any) -> ArraySource | BatchSource:
        if y is None and not hasattr(X, "__array__") and not hasattr(X, "shape") and _pairs(X):
            return BatchSource(X)
        regression = hasattr(self, "noise_prior")
        checked, target = validate_data(
            self,
            X,
            y,
            dtype="numeric",
            ensure_min_samples=2,
            multi_output=True,
            y_numeric=regression,
        )
        if not regression:
            check_classification_targets(target)
            target = column_or_1d(target, warn=True)
        streamed = isinstance(X, np.memmap) or checked.size * 4 > RESIDENT_BYTES
        return ArraySource(checked, target, streamed=streamed)

    def _hold_out(
        self, source: ArraySource | BatchSource, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        if isinstance(source, BatchSource):
            raise ValueError(
                "validation_fraction needs arrays: an iterable of batches cannot be split. "
                "Hold batches out yourself and score them after fit."
            )
        n = len(source.X)
        count = round(self.validation_fraction * n)
        if not 1 <= count <= n - 2:
            raise ValueError(
                f"validation_fraction={self.validation_fraction} holds out {count} of {n} rows, "
                "but at least 1 must be held out and 2 must remain."
            )
        order = rng.permutation(n)
        source.rows = np.sort(order[count:])
        return source.X[np.sort(order[:count])], source.y[np.sort(order[:count])]

    def _given_to_score(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        if X is None or y is None or self.validation_fraction > 0:
            raise ValueError(
                "rows to score every epoch on are given as X_val and y_val, both, or taken from X "
                f"by validation_fraction; here X_val is {'missing' if X is None else 'given'}, "
                f"y_val is {'missing' if y is None else 'given'} and validation_fraction is "
                f"{self.validation_fraction}."
            )
        return validate_data(self, X, y, reset=False, dtype="numeric", multi_output=True)

    def _survey(self, source: ArraySource | BatchSource) -> int:
        """Sizes, scales and labels, in one walk over the data."""
        moments, digest, width = Moments(), hashlib.sha256(), None
        checks = isinstance(source, BatchSource)

        def targets() -> Iterator[np.ndarray]:
            nonlocal width
            for X, y in source.raw():
                if checks:
                    X = check_array(X, dtype="numeric", input_name="X")
                    if len(X) != len(y):
                        raise ValueError(f"a batch has {len(X)} rows of X but {len(y)} of y.")
                    if width is not None and X.shape[1] != width:
                        raise ValueError(f"batches have {width} and {X.shape[1]} features.")
                    if hasattr(self, "noise_prior"):
                        check_array(y, ensure_2d=False, dtype="numeric", input_name="y")
                width = X.shape[1]
                moments.add(X)
                digest.update(str(y.tolist()).encode() if y.dtype == object else y.tobytes())
                yield y

        self._survey_y(targets())
        if width is None or moments.n < 2:
            raise ValueError(
                f"the batches hold {moments.n} rows in all, but at least 2 are needed."
            )
        self.n_features_in_ = width
        self._x_scaler = self._scaler(moments)
        digest.update(moments.mean.tobytes() + moments.sd.tobytes())
        self._data_print = digest.hexdigest()
        return moments.n

    def _scaler(self, moments: Moments) -> Scaler:
        choice = self.scale_inputs
        if choice == "auto":
            choice = "common" if moments.one_unit() else "columns"
        if choice == "columns":
            return Scaler(moments.mean, moments.sd)
        if choice == "common":
            low, span = moments.low.min(), moments.high.max() - moments.low.min()
            return Scaler(np.array(low), np.array(span if span > 0 else 1.0))
        return Scaler(np.zeros(()), np.ones(()))

    def _spec(self) -> Spec:
        return Spec(
            (self.n_features_in_, *map(int, self.hidden), self._n_outputs),
            self.prior,
            float(self.local_scale),
            float(self.global_scale),
            bool(self.output_scale),
            self.activation,
        )

    def _problem(self, n: int) -> Problem:
        settings = self.get_params(deep=False)
        confidence = {
            name.removeprefix("confidence_"): np.asarray(value, np.float32)
            for name, value in settings.items()
            if name.startswith("confidence_")
        }
        warmup, speed = self._pace(n)
        numbers = (self.learning_rate, speed, max(warmup, 1e-9))
        optimiser = (np.asarray(value, np.float32) for value in numbers)
        return Problem(np.asarray(n, np.float32), confidence, self._noise(n), *optimiser)

    def _pace(self, n: int) -> tuple[float, float]:
        """Warm-up and speed of the scales; with few rows the KL terms weigh more, so go gently."""
        gentle = n < FEW_ROWS
        if self._free_scales:
            warmup, speed = (0.5, 2.0) if gentle else (self._WARMUP, 10.0)
        else:
            warmup, speed = 0.3, 10.0
        return (
            warmup if self.warmup is None else self.warmup,
            speed if self.scale_speed is None else self.scale_speed,
        )

    @property
    def _free_scales(self) -> bool:
        return self.prior == "horseshoe" and self.confidence_local <= FREE_CONFIDENCE

    def _n_epochs(self, n: int) -> int:
        if self.epochs is not None:
            return int(self.epochs)
        steps, _ = minibatches(n, self.batch_size)
        return max(LEAST_EPOCHS, -(-LEAST_STEPS // steps))

    def _seed(self, resumed: tuple[Run, dict[str, Any]] | None) -> int:
        if self.random_state is None and resumed is not None:
            return int(resumed[1]["seed"])
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _fingerprint(self, n: int) -> str:
        """What must not change between a training and its resumption."""
        settings = {k: repr(v) for k, v in self.get_params().items() if k not in _NOT_SAVED}
        text = json.dumps([type(self).__name__, settings, n, self._data_print], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _resume(self, run: Run, found: dict[str, Any], info: dict[str, Any]) -> Run:
        if {name: found[name] for name in info} != info:
            raise ValueError(
                f"the checkpoint in {str(self.checkpoint)!r} belongs to a training with other "
                "settings or other data. Give those again, or another folder."
            )
        return run

    def _chunks(
        self, source: ArraySource | BatchSource, seed: int, epoch: int, schedule: Schedule
    ) -> Iterator[tuple[Any, Any]]:
        copies = placement(schedule.mesh)
        rng = np.random.default_rng([seed, epoch])
        return source.chunks(
            self._x_scaler, self._encode_y, rng, lambda X, y: jax.device_put((X, y), copies)
        )

    def _validator(self, spec: Spec, held_out: Any) -> Callable[[dict[str, Any]], dict[str, float]]:
        if held_out is None:
            return lambda params: {}
        X, y = self._x_scaler(held_out[0]), self._encode_y(held_out[1])

        def validate(params: dict[str, Any]) -> dict[str, float]:
            weights = mean_weights(jax.device_get(params["layers"]))
            scores = self._score_outputs(forward_weights(spec, weights, X), y)
            return {f"validation_{name}": value for name, value in scores.items()}

        return validate

    def _reporter(
        self, show: Callable[[Run], None], schedule: Schedule, info: dict[str, Any]
    ) -> Callable[[Run], None]:
        written = time.monotonic()

        def report(run: Run) -> None:
            nonlocal written
            show(run)
            if self.checkpoint is None:
                return
            if run.epoch == schedule.epochs or time.monotonic() - written >= CHECKPOINT_SECONDS:
                storage.write_checkpoint(self.checkpoint, run, info)
                written = time.monotonic()

        return report

    def _set_fitted(self, spec: Spec, params: Any, kept: Any, history: dict[str, Any]) -> None:
        self._params, self._kept, self._network_spec = params, kept, spec
        self.history_ = Table(**history)
        widths = [layer["mean"].shape[1] for layer in params["layers"]]
        self.architecture_ = Architecture(spec.sizes, (spec.sizes[0], *widths))
        self.active_units_ = np.array([int(count) for count in active_counts(params["layers"])])
        self.n_iter_ = len(history.get("epoch", ()))
        if self.n_iter_:
            last = {name: float(values[-1]) for name, values in history.items()}
            self.value_, self.expected_loss_ = last["objective"], last["loss"]
            self.kl_ = {k.removeprefix("kl_"): v for k, v in last.items() if k.startswith("kl_")}

    @property
    def _layers(self) -> list[Layer]:
        return self._params["layers"]

    def _outputs(self, X: ArrayLike, n_draws: int | None) -> Iterator[np.ndarray]:
        check_is_fitted(self)
        checked = validate_data(self, X, reset=False, dtype="numeric")
        return outputs_by_chunk(
            self._network_spec, self._layers, checked, self._x_scaler, n_draws, self._rng_seed
        )

    def _n_draws(self, n_draws: int, mode: str) -> int | None:
        check_choice("mode", mode, ("draws", "mean"))
        return n_draws if mode == "draws" else None


_NOT_SAVED = ("random_state", "verbose", "checkpoint")


def _plots() -> Any:
    require("matplotlib", "plots of a network")
    from soubayes.networks import plots

    return plots


def _pairs(X: Any) -> bool:
    """An iterable of (X, y) pairs rather than a nested list of numbers."""
    if not hasattr(X, "__iter__"):
        return False
    if isinstance(X, list | tuple):
        return bool(X) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in X)
    return not isinstance(X, str | bytes | dict)

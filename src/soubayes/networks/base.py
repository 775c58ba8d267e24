"""What the two estimators share: checks, fitting, reports, files."""

import copy
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from soubayes._optional import require
from soubayes._types import Axes, Blocks
from soubayes.networks import path, storage, structure
from soubayes.networks.compaction import Kept, size_of
from soubayes.networks.feeding import (
    ArraySource,
    Chunk,
    Scaler,
    data_mesh,
    flat,
    minibatches,
    placement,
)
from soubayes.networks.intake import Intake
from soubayes.networks.layers import active_counts, mean_weights, weight_counts
from soubayes.networks.prediction import Network, forward_weights, outputs_by_chunk
from soubayes.networks.progress import Reporter, progress
from soubayes.networks.settings import check_choice, check_seed, check_settings
from soubayes.networks.state import (
    End,
    Problem,
    Run,
    Schedule,
    epochs_a_call,
    stage_problem,
    start,
)
from soubayes.networks.structure import Architecture, Spec
from soubayes.networks.training import train, train_together

FREE_CONFIDENCE = 1e-2  # below it tau costs nothing, and what a unit knows is free of its scale
FEW_ROWS = 300
LEAST_EPOCHS, LEAST_STEPS = 100, 15_000  # epochs=None


class Plan(NamedTuple):
    """What a call of `fit` is to train, on what, and how."""

    spec: Spec
    problem: Problem
    schedule: Schedule
    run: Run
    chunks: Callable[[int], Iterator[Chunk]]
    validator: Callable[[dict[str, Any], Kept], dict[str, float]] | None
    held_out: Chunk | None
    info: dict[str, Any]


class BaseNet(SelectorMixin, Intake):
    """Fitting and reporting; a subclass brings the loss, predictions and their units."""

    _WARMUP: float  # of networks with free scales and enough rows

    def fit(
        self,
        X: ArrayLike | Blocks,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        X_val: ArrayLike | None = None,
        y_val: ArrayLike | None = None,
    ) -> Self:
        """Train the network.

        Parameters
        ----------
        X : array-like, memory map or iterable of batches
            The rows. An iterable of ``(X, y)`` or ``(X, y, weight)`` batches is walked once to
            learn sizes and scales, and then once for every epoch. Memory maps are read in chunks.
        y : array-like, optional
            The targets. Left out for an iterable of batches.
        sample_weight : array-like of shape (n,), optional
            Multiplies the loss of every row; a weight of 2 counts a row twice.
        X_val : array-like, optional
            Rows of your own to score every epoch.
        y_val : array-like, optional
            Their targets.

        Returns
        -------
        self : estimator
            The fitted estimator.

        Raises
        ------
        KeyboardInterrupt
            On Ctrl-C. Code that catches it finds the estimator at its last finished epoch, with
            ``finished_`` False. With ``checkpoint`` the next call of ``fit`` continues from there.
        """
        plan = self._plan(X, y, sample_weight, X_val, y_val)
        with progress(self.verbose, plan.schedule.epochs) as show:
            report = Reporter(show, self.checkpoint, plan.info, plan.schedule.epochs)
            try:
                run, self.finished_ = train(
                    plan.spec, plan.problem, plan.schedule, plan.run, self._rng_seed, plan.chunks,
                    plan.validator, report,
                )  # fmt: skip
            except KeyboardInterrupt:
                if report.last is not None:
                    self.finished_ = False
                    self._set_run(plan.spec, report.last, plan.held_out)
                    report.write()
                raise
        self._set_run(plan.spec, run, plan.held_out)
        return self

    def _plan(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Plan:
        """Checks, sizes and scales of the data; what there is to train, and how."""
        check_settings(self.get_params(deep=False))
        source = self._source(X, y, sample_weight)
        resumed = None if self.checkpoint is None else storage.read_checkpoint(self.checkpoint)
        self._rng_seed = seed = self._seed(resumed)
        held_out, fraction = None, self._held_out_fraction(X_val is not None)
        if fraction > 0:
            held_out = self._hold_out(source, fraction, np.random.default_rng(seed))
        self.__dict__.pop("_ends", None)  # an earlier fit does not go with the new scaling
        n, weight = self._survey(source)
        if X_val is not None or y_val is not None:
            held_out = self._given_to_score(X_val, y_val)
        spec = self._spec()
        problem = self._problem(weight)
        _, batch = minibatches(n, self.batch_size)
        values = path.confidences(self.confidence_weights)
        stages = path.stages(values, self._n_epochs(n), rounded=self.epochs is None)
        # an epoch of a path is not scored, only its networks are
        validator = self._validator(spec, held_out if len(values) == 1 else None)
        block = 1
        if isinstance(source, ArraySource) and not source.streamed and validator is None:
            lengths = [stage.stop - stage.start for stage in stages]
            block = epochs_a_call(lengths, n, self.batch_size, spec.cost(*spec.whole)[0])
        schedule = Schedule(
            stages, n, self.batch_size, bool(self.compact), data_mesh(batch), block,
            self._free_scales, weight * self._constant_loss(),
        )  # fmt: skip
        info = {"seed": seed, "fingerprint": self._fingerprint(n)}
        run = start(spec, problem, seed)
        if resumed is not None:
            run = self._resume(*resumed, info)
        copies = placement(schedule.mesh)

        def prepare(rows: Chunk) -> Chunk:
            weights = (rows.weight / (weight / n)).astype(np.float32)
            scaled = Chunk(self._x_scaler(flat(rows.X)), self._encode_y(rows.y), weights)
            return jax.device_put(scaled, copies)

        def chunks(epoch: int) -> Iterator[Chunk]:
            return source.chunks(prepare, np.random.default_rng([seed, epoch]))

        return Plan(spec, problem, schedule, run, chunks, validator, held_out, info)

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

    def weight_sparsity_(self, threshold: float = 1e-5) -> np.ndarray:
        """Share of small weights in every layer.

        Parameters
        ----------
        threshold : float, default=1e-5
            A weight is small if its posterior mean is below this in absolute value.

        Returns
        -------
        share : ndarray
            One number for each layer. Weights of removed units count as zeros, so that the shares
            are of the initial layer sizes.
        """
        check_is_fitted(self)
        counts = np.array(weight_counts(self._network.layers, threshold))
        return 1 - counts / self._network.spec.n_weights

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file, which ``load`` reads without running code.

        Parameters
        ----------
        path : str or path-like
            The file; ``.safetensors`` is the usual ending.
        """
        check_is_fitted(self)
        arrays, info = self._state()
        tree = {
            "ends": storage.ends_tree(self._ends),
            "history": _columns(self.history_),
            "path": _columns(self.path_),
            "x_shift": self._x_scaler.shift,
            "x_scale": self._x_scaler.scale,
            **arrays,
        }
        settings = {k: v for k, v in self.get_params().items() if k not in _NOT_SAVED}
        info |= {
            "class": type(self).__name__,
            "settings": settings | {"hidden": structure.to_json(self.hidden)},
            "seed": self._rng_seed,
            "n_features_in": self.n_features_in_,
            "input_shape": self._input_shape,
            "rows_are_images": self._rows_are_images,
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
            "finished": self.finished_,
            "chosen": self._chosen,
        }
        storage.write(path, tree, info)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read an estimator that ``save`` wrote.

        Parameters
        ----------
        path : str or path-like
            The file.

        Returns
        -------
        network : estimator
            The fitted estimator.
        """
        tree, info = storage.read(path)
        if info.get("class") != cls.__name__:
            raise ValueError(
                f"{str(path)!r} holds a {info.get('class')}; use {info.get('class')}.load."
            )
        try:
            return cls._from_file(tree, info)
        except Exception as error:  # of whatever kind fields that do not fit provoke
            raise ValueError(
                f"{str(path)!r} does not hold a network that soubayes saved: {error}"
            ) from error

    @classmethod
    def _from_file(cls, tree: dict[str, Any], info: dict[str, Any]) -> Self:
        """The estimator of a file's fields, which may be anything."""
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in info["settings"].items()}
        settings["hidden"] = structure.from_json(info["settings"]["hidden"])
        check_settings(settings)
        net = cls(**settings)
        net._restore(tree, info)
        net.n_features_in_ = info["n_features_in"]
        net._input_shape = tuple(info["input_shape"])
        net._rows_are_images = bool(info["rows_are_images"])
        names = info["feature_names"]
        if names:
            net.feature_names_in_ = np.array(names, dtype=object)
        net._x_scaler = Scaler(tree["x_shift"], tree["x_scale"])
        if net._x_scaler.shift.shape not in ((), (net.n_features_in_,)) or len(names) not in (
            0,
            net.n_features_in_,
        ):
            raise ValueError(f"scales or names do not fit {net.n_features_in_} columns")
        net._rng_seed = check_seed(info["seed"])
        net.finished_ = bool(info["finished"])
        history, ends = tree["history"], storage.read_ends(tree)
        spec = net._spec()
        lengths = {len(values) for values in history.values()} or {0}
        storage.check_ends(spec, ends, min(lengths))
        net._check_params(ends)
        net._set_fitted(spec, ends, history)
        net.path_ = pd.DataFrame(tree["path"])
        if len(net.path_) != len(ends) or not 0 <= info["chosen"] < len(ends):
            raise ValueError(f"it has {len(ends)} networks and a path of {len(net.path_)}")
        net._use(info["chosen"])
        return net

    def export_onnx(
        self, path: str | os.PathLike[str], *, mode: str = "mean", n_draws: int = 100
    ) -> None:
        """Write the compact network as ONNX (extra ``onnx``).

        The graph scales its input itself. The input is float32 in the shape that ``fit`` took:
        (rows, features), or images.

        Parameters
        ----------
        path : str or path-like
            The file.
        mode : {"mean", "draws"}, default="mean"
            Export the mean weights, or an ensemble of posterior draws.
        n_draws : int, default=100
            Draws of the ensemble.
        """
        check_is_fitted(self)
        export = require("soubayes.networks.export", "export_onnx")
        export.export_onnx(self, Path(path), self._n_draws(n_draws, mode))

    def plot_path(self, ax: Axes | None = None) -> Axes:
        """Draw the held-out loss or error against the multiply-adds of each network of the path.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ax : matplotlib.axes.Axes
            One point for each confidence.
        """
        return _plots().plot_path(self, ax)

    def plot_inputs(self, ax: Axes | None = None) -> Axes:
        """Draw the inputs that are read, by the size of their weights.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

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

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

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
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ax : matplotlib.axes.Axes
            The drawing.
        """
        return _plots().plot_predictive(self, X, y, ax)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_ends")

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, bool)
        mask[self.selected_inputs_] = True
        return mask

    def _spec(self) -> Spec:
        spec = Spec(
            (self._input_shape or self.n_features_in_, *self.hidden, self._n_outputs),
            self.prior,
            float(self.local_scale),
            float(self.global_scale),
            bool(self.output_scale),
            self.activation,
            bool(self.prune_inputs),
        )
        if spec.prune_inputs and (spec.steps[0].kernel or spec.gate is None):
            raise ValueError(
                "prune_inputs is True, but it needs prior='horseshoe' and a dense first layer: a "
                "convolution reads every input."
            )
        return spec

    def _problem(self, n: float) -> Problem:
        settings = self.get_params(deep=False)
        confidence = {
            name.removeprefix("confidence_"): np.asarray(value, np.float32)
            for name, value in settings.items()
            if name.startswith("confidence_") and name != "confidence_weights"
        }
        warmup, speed = self._pace(n)
        numbers = (self.learning_rate, speed, max(warmup, 1e-9))
        optimiser = (np.asarray(value, np.float32) for value in numbers)
        return Problem(np.asarray(n, np.float32), confidence, self._noise(n), *optimiser)

    def _pace(self, n: float) -> tuple[float, float]:
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

    def _n_epochs(self, n: int) -> int | list[int]:
        """Of the first confidence, or of every one."""
        if isinstance(self.epochs, Sequence):
            return [int(count) for count in self.epochs]
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

    def _validator(
        self, spec: Spec, held_out: Chunk | None
    ) -> Callable[[dict[str, Any], Kept], dict[str, float]] | None:
        if held_out is None:
            return None
        X, y = self._x_scaler(held_out.X), self._encode_y(held_out.y)

        def validate(params: dict[str, Any], kept: Kept) -> dict[str, float]:
            network = Network(spec, jax.device_get(params["layers"]), kept)
            outputs = forward_weights(network, mean_weights(network.layers), X)
            scores = self._score_outputs(outputs, y, held_out.weight)
            return {f"validation_{name}": value for name, value in scores.items()}

        return validate

    def _set_run(self, spec: Spec, run: Run, held_out: Chunk | None) -> None:
        """The fitted state: the networks of the path and the one to use."""
        ends = [end for end in run.ends if end.epoch <= run.epoch]
        if not ends or ends[-1].epoch < run.epoch:  # interrupted within a stage
            ends.append(End(jax.device_get(run.params), run.kept, run.epoch))
        self._set_fitted(spec, ends, storage.columns(run.rows[: run.epoch]))
        table: dict[str, Any] = {
            "confidence": path.confidences(self.confidence_weights)[: len(ends)],
            **path.describe(spec, ends),
            "value": [
                run.rows[end.epoch - 1]["objective"] if end.epoch else np.nan for end in ends
            ],
        }
        chosen = len(ends) - 1
        if held_out is not None and len(ends) > 1:
            scores, losses = zip(
                *(self._scores_of(i, held_out) for i in range(len(ends))), strict=True
            )
            table |= {f"validation_{k}": [score[k] for score in scores] for k in scores[0]}
            seen = np.isfinite(losses[0])  # a label that was never seen says nothing
            if seen.any():
                losses, weight = [loss[seen] for loss in losses], held_out.weight[seen]
                means, errors = path.mean_and_error(losses, weight)
                table |= {"validation_loss": means, "validation_error": errors}
                chosen = path.smallest_good(losses, table["multiply_adds"], weight)
        self.path_ = pd.DataFrame(table | {"chosen": np.arange(len(ends)) == chosen})
        self._use(chosen)

    def _scores_of(self, number: int, rows: Chunk) -> tuple[dict[str, float], np.ndarray]:
        """Scores of the mean weights of a path's network, and the loss of every row by draws."""
        self._use(number)
        weights = mean_weights(self._network.layers)
        outputs = forward_weights(self._network, weights, self._x_scaler(rows.X))
        scores = self._score_outputs(outputs, self._encode_y(rows.y), rows.weight)
        return scores, -self.log_density(rows.X, rows.y)

    def _set_fitted(self, spec: Spec, ends: list[End], history: dict[str, Any]) -> None:
        self._ends, self._spec_fitted = ends, spec
        self.history_ = pd.DataFrame(history)
        self.n_iter_ = len(history.get("epoch", ()))

    def _use(self, number: int) -> None:
        """Predict with this network of the path, and report on it."""
        end, spec = self._ends[number], self._spec_fitted
        self._chosen = number
        self._params = end.params
        self._network = Network(spec, end.params["layers"], end.kept)
        self.architecture_ = Architecture.of(spec, *size_of(spec, end.kept))
        self.active_units_ = np.array([int(count) for count in active_counts(self._network.layers)])
        columns = self._network.columns
        self.selected_inputs_ = np.arange(self.n_features_in_) if columns is None else columns
        rows = slice(end.epoch - 1, end.epoch)  # empty when the first epoch diverged
        last = {k: float(v) for k, values in self.history_.items() for v in values[rows]}
        self.value_, self.expected_loss_ = (last.get(k, np.nan) for k in ("objective", "loss"))
        self.kl_ = {k.removeprefix("kl_"): v for k, v in last.items() if k.startswith("kl_")}

    def _outputs(self, X: ArrayLike, n_draws: int | None) -> Iterator[np.ndarray]:
        check_is_fitted(self)
        checked = validate_data(self, self._flattened(X, reset=False), reset=False, dtype="numeric")
        return outputs_by_chunk(self._network, checked, self._x_scaler, n_draws, self._rng_seed)

    def _n_draws(self, n_draws: int, mode: str) -> int | None:
        check_choice("mode", mode, ("draws", "mean"))
        return n_draws if mode == "draws" else None


def _columns(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """A table as what a file holds."""
    return {str(name): table[name].to_numpy() for name in table}


def fit_together(nets: list[list[Any]], data: list[tuple[Any, Any, Any]]) -> None:
    """Fit groups of networks of one structure, one confidence each, on data (X, y, weight).

    The networks of a group have one seed and the same data; the data of all groups have one size.
    """
    plans = [
        [net._plan(*rows, None, None) for net in group]
        for group, rows in zip(nets, data, strict=True)
    ]
    first = plans[0][0]
    runs = train_together(
        first.spec,
        [[stage_problem(p.spec, p.problem, p.schedule, 0) for p in group] for group in plans],
        first.schedule,
        [[plan.run for plan in group] for group in plans],
        [group[0]._rng_seed for group in nets],
        [jax.device_get(next(group[0].chunks(0))) for group in plans],
    )
    for net, run in zip(chain(*nets), chain(*runs), strict=True):
        net.finished_ = True
        net._set_run(first.spec, run, None)


_NOT_SAVED = ("random_state", "verbose", "checkpoint")


def _plots() -> Any:
    require("matplotlib", "plots of a network")
    from soubayes.networks import plots

    return plots

"""What the two estimators share: checks, fitting, reports, files."""

import copy
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
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
from soubayes.networks import learning, path, storage, structure
from soubayes.networks.compaction import Kept, size_of
from soubayes.networks.feeding import (
    ArraySource,
    BatchSource,
    Chunk,
    Scaler,
    data_mesh,
    flat,
    minibatches,
    placement,
)
from soubayes.networks.intake import Intake
from soubayes.networks.layers import active_counts, mean_weights, weight_counts
from soubayes.networks.prediction import (
    Arrays,
    Network,
    draw_groups,
    forward_weights,
    outputs_by_chunk,
)
from soubayes.networks.progress import Reporter, progress
from soubayes.networks.settings import check_choice, check_seed, check_settings
from soubayes.networks.state import (
    Run,
    Schedule,
    StageEnd,
    TrainingProblem,
    epochs_a_call,
    from_network,
    rescaled_noise,
    stage_problem,
    start,
)
from soubayes.networks.structure import Architecture, Conv, Spec
from soubayes.networks.training import train, train_together

FREE_CONFIDENCE = 1e-2  # below it tau costs nothing, and what a unit knows is free of its scale
FEW_ROWS = 300
KEPT_BYTES = 2**27  # of posterior draws that are kept between calls
EPOCHS, LEAST_EPOCHS = 100, 20  # epochs=None is EPOCHS, but LEAST_STEPS to MOST_STEPS
LEAST_STEPS, MOST_STEPS = 4_000, 20_000
RATES, RATE_STEPS = (0.002, 0.01), 20.0  # learning_rate=None is RATE_STEPS / steps, within RATES
HIDDEN, SMALL_HIDDEN = (200, 200), (50, 50)  # hidden=None, from path.SEPARATE_ROWS rows and below
SKIP_CONFIDENCE = 0.3  # in the weights of the linear part: 1 and 0.1 predict worse on small tables
WIDE = 4  # prune_inputs="auto" is True where columns times this are at least the rows


class TrainingPlan(NamedTuple):
    """What a call of `fit` is to train, on what, and how."""

    spec: Spec
    problem: TrainingProblem
    schedule: Schedule
    run: Run
    chunks: Callable[[int], Iterator[Chunk]]
    validator: Callable[[dict[str, Any], Kept], dict[str, float]] | None
    folder: Any  # of checkpoints, or None
    info: dict[str, Any]


class Data(NamedTuple):
    """What `fit` was given, after one walk over it."""

    source: ArraySource | BatchSource  # the rows to train on
    whole: ArraySource | BatchSource  # held-out rows included
    held_out: Chunk | None
    own: bool  # whether rows are held out to choose and to calibrate, and trained on at the end
    rows: int
    weight: float
    seed: int


class Before(NamedTuple):
    """A network to go on from, and its confidence in the weights."""

    end: StageEnd
    confidence: float
    noise_shape: float | None  # of the precision's posterior, which follows the number of rows


class BaseNet(SelectorMixin, Intake):
    """Fitting and reporting; a subclass brings the loss, predictions and their units."""

    _WARMUP: float  # of networks with free scales and enough rows
    path_: pd.DataFrame

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
        check_settings(self.get_params(deep=False))
        before = self._as_before() if self.warm_start and hasattr(self, "_ends") else None
        data = self._take_in(X, y, sample_weight, X_val, y_val)
        values = path.confidences(self.confidence_weights)
        if before is not None:
            values = (before.confidence,)
        plan = self._plan(data, values, before=before, folder=self.checkpoint)
        run = self._train(plan)
        self._set_run(plan.spec, run, values, data.held_out)
        self._say_what_was_learnt(data)
        if data.own and len(values) > 1 and self.finished_:
            self._refit(data)
        return self

    def _train(self, plan: TrainingPlan) -> Run:
        """Train to the end of a plan; Ctrl-C leaves the estimator at its last finished epoch."""
        with progress(self.verbose, plan.schedule.epochs) as show:
            report = Reporter(show, plan.folder, plan.info, plan.schedule.epochs)
            try:
                run, self.finished_ = train(
                    plan.spec, plan.problem, plan.schedule, plan.run, self._rng_seed, plan.chunks,
                    plan.validator, report,
                )  # fmt: skip
            except KeyboardInterrupt:
                if report.last is not None:
                    self.finished_ = False
                    values = [stage.confidence for stage in plan.schedule.stages]
                    self._set_run(plan.spec, report.last, values, None)
                    report.write()
                raise
        return run

    def _refit(self, data: Data) -> None:
        """Train the chosen network further, on all rows."""
        assert data.held_out is not None
        chosen, table, history, ends = self._chosen, self.path_, self.history_, list(self._ends)
        before = self._as_before()
        whole = data._replace(
            source=data.whole,
            held_out=None,
            rows=self._survey_rows,
            weight=data.weight + float(data.held_out.weight.sum()),
        )
        folder = None if self.checkpoint is None else Path(self.checkpoint) / "all_rows"
        values = (before.confidence,)
        separate = data.rows < path.SEPARATE_ROWS and isinstance(data.source, ArraySource)
        if separate:  # as it was scored: a training of its own
            plan = self._plan(whole, values, folder=folder)
        else:
            plan = self._plan(whole, values, before=before, folder=folder, part=path.REFIT)
        run = self._train(plan)
        self._set_run(plan.spec, run, values, None)
        ends = [rescaled_noise(end, before.noise_shape, self._noise_shape) for end in ends]
        last, done = self._ends[-1], len(history["epoch"])
        ends[chosen] = last._replace(epoch=done + last.epoch)
        names = [name for name in history if name in self.history_]
        rows = storage.table_columns(pd.concat([history[names], self.history_[names]]))
        rows["epoch"] = np.arange(1, len(rows["epoch"]) + 1)
        value = np.where(np.arange(len(ends)) == chosen, self.value_, table["value"])
        self._set_fitted(plan.spec, ends, rows)
        self.path_ = table.assign(**path.describe(plan.spec, ends), value=value)
        self._use(chosen)

    def _as_before(self) -> Before:
        """The chosen network, to go on from."""
        confidence = float(self.path_["confidence"].iloc[self._chosen])
        return Before(self._ends[self._chosen], confidence, self._noise_shape)

    def _take_in(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> Data:
        """Checks, sizes and scales of the data, and the rows that are held out."""
        scales = self._scales() if self.warm_start and hasattr(self, "_ends") else {}
        source = self._source(X, y, sample_weight)
        resumed = None if self.checkpoint is None else storage.read_checkpoint(self.checkpoint)
        self._rng_seed = seed = self._seed(resumed)
        held_out, whole = None, source
        if self.validation_fraction > 0:
            source, held_out = self._hold_out(source, float(self.validation_fraction), seed)
        self.__dict__.pop("_ends", None)  # an earlier fit does not go with the new scaling
        n, weight = self._survey(source)
        self._survey_rows = n
        if X_val is not None or y_val is not None:
            held_out = self._given_to_score(X_val, y_val)
        own = held_out is None and (
            isinstance(self.confidence_weights, str) or bool(self.early_stopping)
        )
        if own:
            source, held_out = self._hold_out(whole, path.held_out_part(n), seed)
            weight -= float(held_out.weight.sum())
            if isinstance(source, ArraySource) and not source.streamed:
                source = source.weighed_out(whole)  # one shape with and without these rows
            else:
                n -= len(held_out.X)
        self._go_on_with(scales)
        self._resolve(n)
        return Data(source, whole, held_out, own, n, weight, seed)

    def _resolve(self, n: int) -> None:
        """What "auto" is for these data."""
        wide = WIDE * self.n_features_in_ >= n
        small = n < path.SEPARATE_ROWS
        self._hidden = tuple(self.hidden or (SMALL_HIDDEN if small else HIDDEN))
        dense = self.prior == "horseshoe" and not isinstance(self._hidden[0], Conv)
        table = dense and self._x_scaler.shift.ndim == 1
        self._prunes = wide and table if self.prune_inputs == "auto" else bool(self.prune_inputs)
        self._skips = table if self.skip == "auto" else bool(self.skip)

    def _plan(
        self,
        data: Data,
        values: Sequence[float],
        *,
        before: "Before | None" = None,
        folder: Any = None,
        part: float = 1.0,
    ) -> TrainingPlan:
        """What there is to train, and how; `part` of the epochs when it goes on from a network."""
        source, n, weight, seed = data.source, data.rows, data.weight, data.seed
        spec = self._spec()
        epochs = self._n_epochs(n)
        if isinstance(epochs, int):
            epochs = max(1, round(part * epochs))
        elif len(epochs) != len(values):
            epochs = epochs[-1]
        auto = isinstance(self.confidence_weights, str) and not self.warm_start
        separate = auto and n < path.SEPARATE_ROWS and isinstance(source, ArraySource)
        if separate and isinstance(epochs, int):
            epochs = [max(1, round(path.SEPARATE * epochs))] * len(values)
        share = path.AUTO_LATER if auto else path.ALL_LATER
        stages = path.stages(values, epochs, rounded=self.epochs is None, all_later=share)
        steps, batch = minibatches(n, self.batch_size)
        problem = self._problem(weight, steps * (stages[0].stop - stages[0].start))
        # an epoch of a path is not scored, only its networks are
        scored = data.held_out if len(values) == 1 and before is None else None
        validator = self._validator(spec, scored)
        block = 1
        if isinstance(source, ArraySource) and not source.streamed and validator is None:
            lengths = [stage.stop - stage.start for stage in stages]
            block = epochs_a_call(lengths, n, self.batch_size, spec.cost(*spec.whole)[0])
        schedule = Schedule(
            stages, n, self.batch_size, bool(self.compact), data_mesh(batch), block,
            self._free_scales, weight * self._constant_loss(),
            self._MONITOR if self.early_stopping and scored is not None else "", separate,
        )  # fmt: skip
        info = {"seed": seed, "fingerprint": self._fingerprint(n)}
        run = start(spec, problem, seed)
        if before is not None:
            try:
                storage.check_ends(spec, [before.end], before.end.epoch)
            except (ValueError, KeyError) as error:
                raise ValueError(
                    "warm_start=True, but the network that was fitted before has another structure "
                    "than the settings or the data now ask for. Set warm_start=False."
                ) from error
            end = rescaled_noise(before.end, before.noise_shape, self._noise_shape)
            run = from_network(end)
            problem = problem._replace(warmup=np.asarray(1e-9, np.float32))
        found = None if folder is None else storage.read_checkpoint(folder)
        if found is not None:
            run = self._resume(*found, info)
        copies = placement(schedule.mesh)

        def prepare(rows: Chunk) -> Chunk:
            weights = (rows.weight / (weight / n)).astype(np.float32)
            scaled = Chunk(self._x_scaler(flat(rows.X)), self._encode_y(rows.y), weights)
            return jax.device_put(scaled, copies)

        def chunks(epoch: int) -> Iterator[Chunk]:
            return source.chunks(prepare, np.random.default_rng([seed, epoch]))

        return TrainingPlan(spec, problem, schedule, run, chunks, validator, folder, info)

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
        storage.write(path, *self._file_parts())

    def _file_parts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a file holds: arrays, and fields of JSON."""
        arrays, info = self._state()
        tree = {
            "ends": storage.ends_tree(self._ends),
            "history": storage.table_columns(self.history_),
            "path": storage.table_columns(self.path_),
            "x_shift": self._x_scaler.shift,
            "x_scale": self._x_scaler.scale,
            **arrays,
        }
        settings = {k: v for k, v in self.get_params().items() if k not in _NOT_SAVED}
        info |= {
            "class": type(self).__name__,
            "settings": settings | {"hidden": structure.to_json(self.hidden or ())},
            "hidden": structure.to_json(self._hidden),
            "seed": self._rng_seed,
            "n_features_in": self.n_features_in_,
            "input_shape": self._input_shape,
            "rows_are_images": self._rows_are_images,
            "feature_names": getattr(self, "feature_names_in_", np.array([])).tolist(),
            "finished": self.finished_,
            "chosen": self._chosen,
            "prunes": self._prunes,
            "skips": self._skips,
        }
        return tree, info

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
        storage.check_class(path, info, cls.__name__)
        with storage.crafted(path):
            return cls._from_file(tree, info)

    @classmethod
    def _from_file(cls, tree: dict[str, Any], info: dict[str, Any]) -> Self:
        """The estimator of a file's fields, which may be anything."""
        settings = {k: tuple(v) if isinstance(v, list) else v for k, v in info["settings"].items()}
        settings["hidden"] = structure.from_json(info["settings"]["hidden"]) or None
        check_settings(settings)
        net = cls(**settings)
        net._hidden = structure.from_json(info["hidden"])
        check_settings({"hidden": net._hidden})
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
        net._prunes, net._skips = bool(info["prunes"]), bool(info["skips"])
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
        mode : {"mean", "draws", "calibrated"}, default="mean"
            Export the mean weights, or the average of posterior draws; of a classifier also with
            its temperature.
        n_draws : int, default=100
            Draws of the ensemble.
        """
        check_is_fitted(self)
        export = require("soubayes.networks.export", "export_onnx")
        draws = self._n_draws(n_draws, mode)
        temperature = self.temperature_ if mode == "calibrated" else 1.0
        export.export_onnx(self, Path(path), draws, temperature)

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
            (self._input_shape or self.n_features_in_, *self._hidden, self._n_outputs),
            self.prior,
            float(self.local_scale),
            float(self.global_scale),
            bool(self.output_scale),
            self.activation,
            self._prunes,
            self._skips,
        )
        if spec.prune_inputs and (spec.steps[0].kernel or spec.gate is None):
            raise ValueError(
                "prune_inputs is True, but it needs prior='horseshoe' and a dense first layer: a "
                "convolution reads every input."
            )
        if spec.skip and spec.steps[0].kernel:
            raise ValueError("skip is True, but it needs a dense first layer, not a Conv.")
        return spec

    def _problem(self, n: float, steps: int) -> TrainingProblem:
        settings = self.get_params(deep=False)
        confidence = {
            name.removeprefix("confidence_"): np.asarray(value, np.float32)
            for name, value in settings.items()
            if name.startswith("confidence_") and name != "confidence_weights"
        }
        if self._skips:  # wherever the dial stands
            confidence["skip"] = np.asarray(SKIP_CONFIDENCE, np.float32)
        warmup, speed = self._pace(n)
        rate = self.learning_rate
        if rate is None:  # a short run takes larger steps
            rate = float(np.clip(RATE_STEPS / steps, *RATES))
        numbers = (rate, speed, max(warmup, 1e-9))
        optimiser = (np.asarray(value, np.float32) for value in numbers)
        return TrainingProblem(np.asarray(n, np.float32), confidence, self._noise(n), *optimiser)

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
        most = max(LEAST_EPOCHS, MOST_STEPS // steps)
        return min(most, max(EPOCHS, -(-LEAST_STEPS // steps)))

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

    def _set_run(
        self, spec: Spec, run: Run, values: Sequence[float], held_out: Chunk | None
    ) -> None:
        """The fitted state: the networks of the path and the one to use."""
        ends = [end for end in run.ends if end.epoch <= run.epoch]
        if not ends or ends[-1].epoch < run.epoch:  # interrupted within a stage
            ends.append(StageEnd(jax.device_get(run.params), run.kept, run.epoch))
        self._set_fitted(spec, ends, storage.columns(run.rows[: run.epoch]))
        table: dict[str, Any] = {
            "confidence": list(values)[: len(ends)],
            **path.describe(spec, ends),
            "value": [
                run.rows[end.epoch - 1]["objective"] if end.epoch else np.nan for end in ends
            ],
        }
        self.path_ = pd.DataFrame(table)
        chosen = len(ends) - 1
        if held_out is not None:
            scores, losses = zip(
                *(self._scores_of(i, held_out) for i in range(len(ends))), strict=True
            )
            table |= {k: [score[k] for score in scores] for k in scores[0]}
            seen = np.isfinite(losses[0])  # a label that was never seen says nothing
            if seen.any():
                losses, weight = [loss[seen] for loss in losses], held_out.weight[seen]
                means, errors = path.mean_and_error(losses, weight)
                table |= {"validation_loss": means, "validation_error": errors}
                chosen = path.best_confidence(losses, table["confidence"], weight)
                if self.confidence_weights == "smallest":
                    chosen = path.smallest_good(losses, table["multiply_adds"], weight)
        self.path_ = pd.DataFrame(table | {"chosen": np.arange(len(ends)) == chosen})
        self._use(chosen)

    def _scores_of(self, number: int, rows: Chunk) -> tuple[dict[str, float], np.ndarray]:
        """Scores of the mean weights of a path's network, and the calibrated loss of every row."""
        self._use(number)
        weights = mean_weights(self._network.layers)
        outputs = forward_weights(self._network, weights, self._x_scaler(rows.X))
        scores = self._score_outputs(outputs, self._encode_y(rows.y), rows.weight)
        named = {f"validation_{k}": value for k, value in scores.items()} | self._calibrate(rows)
        return named, -self.log_density(rows.X, rows.y)

    def _say_what_was_learnt(self, data: Data) -> None:
        """Warn where a constant or a linear model would do as well."""
        if not self.n_iter_:
            return
        said = learning.complaints(self, data)
        if said:
            warnings.warn(" ".join(said), learning.LittleLearntWarning, stacklevel=3)

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
        groups = partial(self._draw_groups, n_draws)
        return outputs_by_chunk(self._network, checked, self._x_scaler, groups)

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


def fit_together(
    nets: list[list[Any]],
    data: list[tuple[Any, Any, Any]],
    *,
    verbose: int = 0,
    folder: Path | None = None,
) -> None:
    """Fit groups of networks of one structure, one confidence each, on data (X, y, weight).

    The networks of a group have one seed and the same data; the data of all groups have one size.
    """
    plans = []
    for group, rows in zip(nets, data, strict=True):
        taken = [net._take_in(*rows, None, None) for net in group]
        each = zip(group, taken, strict=True)
        plans.append([net._plan(own, (net.confidence_weights,)) for net, own in each])
    first = plans[0][0]
    prints = [plan.info["fingerprint"] for group in plans for plan in group]
    with progress(verbose, first.schedule.epochs) as show:
        runs = train_together(
            first.spec,
            [[stage_problem(p.spec, p.problem, p.schedule, 0) for p in group] for group in plans],
            first.schedule,
            [[plan.run for plan in group] for group in plans],
            [group[0]._rng_seed for group in nets],
            [jax.device_get(next(group[0].chunks(0))) for group in plans],
            show,
            folder,
            {"fingerprints": prints, "seeds": [group[0]._rng_seed for group in nets]},
        )
    for net, run in zip(chain(*nets), chain(*runs), strict=True):
        net.finished_ = True
        net._set_run(first.spec, run, (net.confidence_weights,), None)


_NOT_SAVED = ("random_state", "verbose", "checkpoint", "class_weight")


def _plots() -> Any:
    require("matplotlib", "plots of a network")
    from soubayes.networks import plots

    return plots

"""What the two estimators share: `fit`, and the choice of a network of the path."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state

from soubayes._types import RowBlocks
from soubayes._warnings import warn
from soubayes.networks import path, storage
from soubayes.networks.choosing import confirmed
from soubayes.networks.feeding import ArraySource, Chunk
from soubayes.networks.fitted import FittedNet
from soubayes.networks.held_out import LittleLearntWarning, complaints, linear_predicts
from soubayes.networks.intake import Intake
from soubayes.networks.layers import mean_weights
from soubayes.networks.plan import Before, TrainingData, make_plan
from soubayes.networks.prediction import forward_weights
from soubayes.networks.progress import Reporter, progress
from soubayes.networks.settings import check_settings
from soubayes.networks.state import Run, StageEnd, TrainingPlan, rescaled_noise
from soubayes.networks.structure import Conv, Spec
from soubayes.networks.training import train

HIDDEN, SMALL_HIDDEN = (200, 200), (50, 50)  # hidden=None, from path.SEPARATE_ROWS rows and below
FREE_CONFIDENCE = 1e-2  # below it tau costs nothing, and what a unit knows is free of its scale
FITTED = "fitted.safetensors"  # in the folder of a checkpoint: the estimator after `fit`
WIDE = 4  # a table is wide, for prune_inputs and skip, if columns times this reach the rows


class BaseNet(FittedNet, Intake):
    """Fitting; a subclass brings the loss, predictions and their units."""

    _WARMUP: float  # of networks with free scales and enough rows

    def fit(
        self,
        X: ArrayLike | RowBlocks,
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
            The rows. An iterable of ``(X, y)`` or ``(X, y, weight)`` batches is read once to
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
        before = self._last_network() if self.warm_start else None
        data = self._take_in(X, y, sample_weight, X_val, y_val, before)
        values = path.confidences(self.confidence_weights)
        if before is not None:
            values = (before.confidence,)
        elif isinstance(self.confidence_weights, str) and data.held_out is None:
            values = (max(values),)  # of too few rows to choose by
        plan = make_plan(self, data, values, before=before, folder=self.checkpoint)
        run = self._train(plan)
        self._set_run(plan.spec, run, values, data.held_out, before)
        chooses = data.own and len(values) > 1 and self.finished_
        if chooses:
            self.finished_ = False  # until it is trained on all rows
            self._use(confirmed(self, data))
            self.path_["chosen"] = np.arange(len(self.path_)) == self._chosen
        self._say_what_was_learnt(data)
        if chooses:
            self._refit(data)
        if self.checkpoint is not None and self.finished_:
            self.save(Path(self.checkpoint) / FITTED)
        return self

    def _train(self, plan: TrainingPlan) -> Run:
        """Train to the end of a plan; Ctrl-C leaves the estimator at its last finished epoch."""
        with progress(self.verbose, plan.schedule.epochs) as show:
            report = Reporter(show, plan.folder, plan.info, plan.schedule.epochs)
            try:
                run, self.finished_ = train(plan, report)
            except KeyboardInterrupt:
                if report.last is not None:
                    self.finished_ = False
                    values = [stage.confidence for stage in plan.schedule.stages]
                    self._set_run(plan.spec, report.last, values, None)
                    report.write()
                raise
        return run

    def _refit(self, data: TrainingData) -> None:
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
            plan = make_plan(self, whole, values, folder=folder)
        else:
            plan = make_plan(self, whole, values, before=before, folder=folder, part=path.REFIT)
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
        self.path_ = table.assign(**path.path_columns(plan.spec, ends), value=value)
        self._use(chosen)

    def _last_network(self) -> Before | None:
        """The network of the last finished call of `fit`; of the checkpoint if this one has none.

        An interrupted call is none: its checkpoint is resumed.
        """
        if self.checkpoint is not None and not getattr(self, "finished_", False):
            self.__dict__.pop("_ends", None)
            file = Path(self.checkpoint) / FITTED
            if file.exists():
                settings = self.get_params(deep=False)
                found = vars(type(self).load(file))
                self.__dict__.update({k: v for k, v in found.items() if k not in settings})
        return self._as_before() if hasattr(self, "_ends") else None

    def _as_before(self) -> Before:
        """The chosen network, to go on from."""
        chosen = self.path_.iloc[self._chosen]
        calibration = {k: float(chosen[k]) for k in ("temperature",) if k in self.path_}
        end, confidence = self._ends[self._chosen], float(chosen["confidence"])
        return Before(end, confidence, self._noise_shape, calibration)

    def _take_in(
        self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any, before: Before | None
    ) -> TrainingData:
        """Checks, sizes and scales of the data, and the rows that are held out."""
        scales = {} if before is None else self._scales()
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
        chooses = isinstance(self.confidence_weights, str) and n >= path.FEWEST_TO_CHOOSE
        chooses = chooses and before is None
        own = held_out is None and (chooses or bool(self.early_stopping))
        if own:
            source, held_out = self._hold_out(whole, path.held_out_part(n), seed)
            weight -= float(held_out.weight.sum())
            if isinstance(source, ArraySource) and not source.streamed:
                source = source.weighed_out(whole)  # one shape with and without these rows
            else:
                n -= len(held_out.X)
        self._go_on_with(scales)
        data = TrainingData(source, whole, held_out, own, n, weight, seed)
        self._resolve(data, before)
        return data

    def _resolve(self, data: TrainingData, before: Before | None) -> None:
        """What "auto" is for these data; a network to go on from has decided it already."""
        if before is None:
            few = data.rows < path.SEPARATE_ROWS
            self._hidden: tuple[Any, ...] = SMALL_HIDDEN if few else HIDDEN
            first = (self.hidden or self._hidden)[0]
            dense = self.prior == "horseshoe" and not isinstance(first, Conv)
            dense = dense and self._x_scaler.shift.ndim == 1
            wide = WIDE * self.n_features_in_ >= data.rows
            self._prunes = dense and wide
            # many columns fit any targets, so there the linear part must show that it predicts
            self._skips = dense and (
                not wide or (self.skip == "auto" and linear_predicts(self, data))
            )
        self._hidden = tuple(self.hidden or self._hidden)
        self._prunes = self._prunes if self.prune_inputs == "auto" else bool(self.prune_inputs)
        self._skips = self._skips if self.skip == "auto" else bool(self.skip)

    def _seed(self, resumed: tuple[Run, dict[str, Any]] | None) -> int:
        if self.random_state is None and resumed is not None:
            return int(resumed[1]["seed"])
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    @property
    def _free_scales(self) -> bool:
        """Whether tau is free, so information tells which units are dead."""
        return self.prior == "horseshoe" and self.confidence_local <= FREE_CONFIDENCE

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

    def _set_run(
        self,
        spec: Spec,
        run: Run,
        values: Sequence[float],
        held_out: Chunk | None,
        before: Before | None = None,
    ) -> None:
        """The fitted state: the networks of the path and the one to use."""
        ends = [end for end in run.ends if end.epoch <= run.epoch]
        if not ends or ends[-1].epoch < run.epoch:  # interrupted within a stage
            ends.append(StageEnd(jax.device_get(run.params), run.kept, run.epoch))
        self._set_fitted(spec, ends, storage.columns(run.rows[: run.epoch]))
        table: dict[str, Any] = {
            "confidence": list(values)[: len(ends)],
            **path.path_columns(spec, ends),
            "value": [
                run.rows[end.epoch - 1]["objective"] if end.epoch else np.nan for end in ends
            ],
        }
        if before is not None:  # until other rows say otherwise
            table |= before.calibration
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
        return named, self._losses(rows.X, rows.y)

    def _say_what_was_learnt(self, data: TrainingData) -> None:
        """Warn where a constant or a linear model would do as well."""
        if not self.n_iter_:
            return
        said = complaints(self, data)
        if said:
            warn(" ".join(said), LittleLearntWarning)

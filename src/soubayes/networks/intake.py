"""What `fit` is given: checks, shapes, rows held out, and scales, in one walk over the data."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from soubayes.data.rows import check_labels, check_masks
from soubayes.networks.feeding import (
    HELD_OUT_MOST,
    RESIDENT_BYTES,
    ArraySource,
    BatchSource,
    Chunk,
    ColumnMoments,
    Scaler,
    check_weight,
    flat,
)
from soubayes.networks.settings import NetSettings


class Intake(NetSettings):
    """The part of an estimator that takes in data; a subclass brings what it asks of y."""

    _CLASSES: bool  # whether y holds labels

    def _source(self, X: Any, y: Any, sample_weight: Any) -> ArraySource | BatchSource:
        if y is None and not hasattr(X, "__array__") and not hasattr(X, "shape") and _batches(X):
            if sample_weight is not None:
                raise ValueError(
                    "sample_weight was given beside batches, which bring their own weights: let "
                    "every batch be (X, y, weight)."
                )
            return BatchSource(X)
        if isinstance(X, str | os.PathLike) or callable(X):
            raise TypeError(
                f"X is a {type(X).__name__}, but a network is trained on an array, a memory map "
                "(numpy.load with mmap_mode='r') or an iterable of (X, y) batches."
            )
        check_masks(y=y, sample_weight=sample_weight)
        X = self._flattened(X, reset=True)
        checked, target = validate_data(
            self, X, y, dtype="numeric", ensure_min_samples=2, multi_output=True,
            y_numeric=not self._CLASSES,
        )  # fmt: skip
        if self._CLASSES:
            check_labels(target)
            target = column_or_1d(target, warn=True)
        streamed = isinstance(X, np.memmap) or checked.size * 4 > RESIDENT_BYTES
        weight = check_weight(sample_weight, checked) * self._class_factors(target)
        counted = np.flatnonzero(weight)
        if len(counted) < 2:
            raise ValueError(f"{len(counted)} rows have a weight above 0, but 2 are needed.")
        rows = counted if len(counted) < len(weight) else None
        return ArraySource(checked, target, weight, rows, streamed)

    def _given_shape(self) -> tuple[int, ...]:
        return () if self.input_shape is None else tuple(map(int, self.input_shape))

    def _flattened(self, X: Any, *, reset: bool) -> Any:
        """X with columns only; `reset` remembers the shape of a row, else it must agree.

        The shape of a row that is columns and no more is ().
        """
        check_masks(X=X)
        shape = tuple(np.shape(X)[1:]) if hasattr(X, "shape") else ()
        if reset:
            self._rows_are_images = len(shape) > 1
            self._input_shape = shape if self._rows_are_images else self._given_shape()
        elif len(shape) > 1 and shape != self._input_shape:
            raise ValueError(
                f"rows of X have the shape {shape}, but the network was trained on "
                f"{self._input_shape or self.n_features_in_}."
            )
        return flat(X) if len(shape) > 1 else X

    def _hold_out(
        self, source: ArraySource | BatchSource, fraction: float, seed: int
    ) -> tuple[ArraySource | BatchSource, Chunk]:
        """The source without some of its rows, and these: as many of every label or quantile."""
        if isinstance(source, BatchSource):
            batches = replace(source, every=max(2, round(1 / fraction)))
            X, y, weight = batches.held_out()
            return batches, Chunk(check_array(flat(X), dtype="numeric", input_name="X"), y, weight)
        rows = np.arange(len(source.X)) if source.rows is None else source.rows
        n = len(rows)
        count = min(round(fraction * n), HELD_OUT_MOST)
        if not 1 <= count <= n - 2:
            raise ValueError(
                f"validation_fraction={fraction} holds out {count} of {n} rows, "
                "but at least 1 must be held out and 2 must remain."
            )
        order = np.random.default_rng(seed).permutation(rows)
        if source.y.ndim == 1 or source.y.shape[1] == 1:
            order = order[np.argsort(source.y.reshape(-1)[order], kind="stable")]
        places = ((np.arange(count) + 0.5) * n / count).astype(int)
        rest = replace(source, rows=np.sort(np.delete(order, places)))
        return rest, source[np.sort(order[places])]

    def _given_to_score(self, X: Any, y: Any) -> Chunk:
        if X is None or y is None or self.validation_fraction > 0:
            raise ValueError(
                "Pass both X_val and y_val, or set validation_fraction; got "
                f"X_val {'missing' if X is None else 'given'}, y_val "
                f"{'missing' if y is None else 'given'} and validation_fraction="
                f"{self.validation_fraction}."
            )
        X = self._flattened(X, reset=False)
        X, y = validate_data(self, X, y, reset=False, dtype="numeric", multi_output=True)
        return Chunk(X, y, np.ones(len(X)))

    def _survey(self, source: ArraySource | BatchSource) -> tuple[int, float]:
        """Rows and their total weight; sizes, scales and labels; in one walk over the data."""
        moments, digest, width = ColumnMoments(), hashlib.sha256(), None
        checks = isinstance(source, BatchSource)

        def targets() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            nonlocal width
            for X, y, weight in source.raw():
                if checks:
                    X = self._flattened(X, reset=width is None)
                    X = check_array(X, dtype="numeric", input_name="X")
                    if width is not None and X.shape[1] != width:
                        raise ValueError(f"batches have {width} and {X.shape[1]} features.")
                    if not self._CLASSES:
                        check_array(y, ensure_2d=False, dtype="numeric", input_name="y")
                width = X.shape[1]
                moments.add(X, weight)
                digest.update(str(y.tolist()).encode() if y.dtype == object else y.tobytes())
                digest.update(weight.tobytes())
                yield y, weight

        self._survey_y(targets())
        if width is None or moments.rows < 2:
            raise ValueError(
                f"the batches hold {moments.rows} rows in all, but at least 2 are needed."
            )
        self.n_features_in_ = width
        if self._input_shape and prod(self._input_shape) != width:
            raise ValueError(
                f"input_shape is {self._input_shape}, which makes {prod(self._input_shape)} "
                f"numbers in a row, but X has {width} columns."
            )
        self._x_scaler = self._scaler(moments)
        digest.update(moments.mean.tobytes() + moments.sd.tobytes())
        self._data_print = digest.hexdigest()
        return moments.rows, moments.weight

    def _scaler(self, moments: ColumnMoments) -> Scaler:
        choice = self.scale_inputs
        if choice == "auto":
            choice = "common" if moments.one_unit() else "columns"
        if choice == "columns":
            return Scaler(moments.mean, moments.sd)
        if choice == "common":
            low, span = moments.low.min(), moments.high.max() - moments.low.min()
            return Scaler(np.array(low), np.array(span if span > 0 else 1.0))
        return Scaler(np.zeros(()), np.ones(()))


def _batches(X: Any) -> bool:
    """An iterable of (X, y) or (X, y, weight) rather than a nested list of numbers."""
    if not hasattr(X, "__iter__"):
        return False
    if isinstance(X, list | tuple):
        return bool(X) and all(
            isinstance(parts, tuple) and len(parts) in (2, 3) and hasattr(parts[0], "__len__")
            for parts in X
        )
    return not isinstance(X, str | bytes | dict)

"""How the estimators choose their confidences by prediction: parameters, folds, attributes."""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs

from soubayes.confidence import shown
from soubayes.sparse.choice.folds import check_folds, make_folds
from soubayes.sparse.choice.mixture import Mixture, centred
from soubayes.sparse.choice.prediction import (
    Candidate,
    Choice,
    ChoiceTask,
    Fits,
    Predictions,
)
from soubayes.sparse.choice.prediction import choose as choose_by_prediction
from soubayes.sparse.choice.scoring import HeldOut, Scoring
from soubayes.sparse.estimators.base import SparseEstimator, as_dense, check_choice, row_slices

Array = np.ndarray

LARGE = 10_000  # rows from which moments, or losses and degrees of freedom, take the place of rows
SPARSE_BYTES = 2**25  # of a dense copy of scipy-sparse X up to which dense candidates are fitted
DENSE_BYTES = 2**28  # the same of a dense X
FEWEST = 20  # rows below which folds would say nothing
FOLDS = ((100, 20), (200, 10))  # with fewer rows than this, but not fewer than columns: how many


PATH = Candidate("path", "", np.nan, np.nan)
PATH_AVERAGE = Candidate("path average", "", np.nan, np.nan, "path")


class ChoosingEstimator(SparseEstimator):
    """The part of an estimator that chooses among candidates by what they predict.

    A subclass gives the candidates, how they are fitted, and what they say about held-out rows.
    """

    _candidates: tuple[Candidate, ...]
    _stratified = False
    _own_solver: str  # the one whose fits are candidates
    _one_part = LARGE  # rows from which cv="auto" holds out one fold only
    _error_name = "RMSE"

    @abstractmethod
    def _fit_candidates(
        self, X: Any, targets: list[Array], weight: Array, wanted: Sequence[set[str]], known: bool
    ) -> Fits:
        """The wanted candidates of every target; ``known``: the path was fitted to these rows."""

    @abstractmethod
    def _held_out(self, mixture: Mixture, rows: Array) -> HeldOut:
        """What a candidate says about held-out rows."""

    def _check_choosing(self) -> None:
        check_choice("choice", self.choice, ("prediction", "path"))
        check_folds(self.cv, "auto", None)
        for name in ("confidence_coef", "confidence_local"):
            value = getattr(self, name)
            if isinstance(value, str) and value != "auto":
                raise ValueError(
                    f"{name} is {shown(value)}, but it must be 'auto' or a number greater than 0."
                )

        seed = self.random_state
        if seed is not None and not isinstance(seed, Integral | np.random.RandomState):
            raise TypeError(
                f"random_state is {shown(seed)}, but it must be an int, a RandomState or None."
            )
        if isinstance(seed, Integral) and not 0 <= int(seed) < 2**32:
            raise ValueError(f"random_state is {seed}, but it must lie between 0 and 2**32 - 1.")

    def _by_prediction(self) -> bool:
        """Whether there is something to choose."""
        free = self.confidence_coef == "auto" and self.confidence_local == "auto"
        plain = self.feature_blocks is None and self.solver == self._own_solver
        return self.choice == "prediction" and self.cv is not None and free and plain

    def _enough(self, rows: int) -> bool:
        """Whether there are enough rows to choose by prediction; if not, it is said."""
        if rows < FEWEST:
            self._say(f"{rows} rows are too few to choose the confidences by prediction")
        return rows >= FEWEST

    def _refuse_groups(self, groups: Any) -> None:
        """Rows from somewhere else have no folds of groups."""
        if groups is not None:
            raise ValueError(
                "groups were given, but X is streamed: groups can only be held out of rows in "
                "memory. Pass X and y as arrays, or leave groups out."
            )

    def _keep(self) -> int:
        """Rows of a stream below which they are fitted in memory, with the same folds."""
        return LARGE if self._by_prediction() else 0

    def _say(self, what: str) -> None:
        text = f"{type(self).__name__}: {what}, so that the path alone decides, as with cv=None."
        warnings.warn(text, UserWarning, stacklevel=2)

    def _choose(
        self,
        X: Any,
        targets: list[Array],
        weight: Array,
        labels: Array,
        scoring: Scoring,
        groups: Array | None,
    ) -> bool:
        """Set the attributes of the mixtures; False if the rows allow no folds.

        Those of the sparse point, which was fitted before, stay.
        """
        splits = self._splits(X, labels, groups)
        if splits is None:
            return False
        self._choose_among(InMemory(self, X, targets, weight), self._candidates, splits, scoring)
        return True

    def _choose_among(
        self,
        task: ChoiceTask,
        candidates: tuple[Candidate, ...],
        splits: list[tuple[Array, Array]],
        scoring: Scoring,
    ) -> None:
        jobs = effective_n_jobs(self.n_jobs)
        self._set_choices(choose_by_prediction(task, candidates, splits, scoring, jobs))

    def _set_choices(self, choices: list[Choice], judged_by: str = "held-out rows") -> None:
        self.mixtures_ = [each.mixture for each in choices]
        tables = [each.candidates for each in choices]
        held = [each.out_of_fold for each in choices]
        said = [self._sparsity(t, each, judged_by) for t, each in enumerate(choices)]
        self.sparsity_ = said[0] if self._single else said
        self.candidates_ = tables[0] if self._single else tables
        if held[0] is not None:
            self.out_of_fold_ = held[0] if self._single else held

    def _sparsity(self, target: int, choice: Choice, judged_by: str) -> str:
        """What keeping only the selected columns costs, in words."""
        selected = np.atleast_2d(self.selected_)[target]
        table = choice.candidates
        row = list(table["candidate"]).index(PATH.label)
        path, whole = float(table["error"][row]), float(table["mixture_error"][row])
        says = f"predict {judged_by} " + compared(path, whole, self._error_name)
        return f"{int(selected.sum()):,} of {len(selected):,} columns; alone they {says}."

    def _auto_folds(self, n: int, p: int) -> int:
        more = [folds for rows, folds in FOLDS if p <= n < rows and not self._stratified]
        return more[0] if more else 5

    def _splits(self, X: Any, y: Array, groups: Array | None) -> list[tuple[Array, Array]] | None:
        """Training and test rows of every fold; one held-out part of large data."""
        n, p = X.shape
        if 8 * n * p > (SPARSE_BYTES if sp.issparse(X) else DENSE_BYTES):
            self._say(f"dense candidates would each need {n:,} x {p:,} numbers in memory")
            return None
        auto = isinstance(self.cv, str)
        cv = self._auto_folds(n, p) if auto else self.cv
        if isinstance(cv, Integral) and self._stratified:
            rarest = int(np.unique(y, return_counts=True)[1].min())
            if rarest < 2:
                self._say("a class has one row, which cannot be held out")
                return None
            cv = min(int(cv), rarest) if cv <= n else cv
        splits = make_folds(cv, y, groups, self._stratified, self.random_state, auto)
        return splits[:1] if n >= self._one_part and auto else splits


def compared(path: float, whole: float, name: str) -> str:
    """The error of the selected columns beside that of all columns, in words.

    A ratio says nothing where the smaller error is near 0, so that more than twice is two numbers.

    >>> compared(1.1, 1.0, "RMSE")
    '10% worse than all columns (RMSE 1.1 against 1)'
    >>> compared(0.02, 0.003, "log loss")
    'worse than all columns (log loss 0.02 against 0.003)'
    """
    if abs(path - whole) <= 0.005 * whole:
        return "as well as all columns"
    share = f"{abs(path / whole - 1.0):.0%} " if max(path, whole) <= 2.0 * min(path, whole) else ""
    sign = "worse" if path > whole else "better"
    return f"{share}{sign} than all columns ({name} {path:.3g} against {whole:.3g})"


class InMemory(ChoiceTask):
    """Rows in memory."""

    def __init__(
        self, estimator: ChoosingEstimator, X: Any, targets: list[Array], weight: Array
    ) -> None:
        self.estimator, self.X, self.targets, self.weight = estimator, X, targets, weight

    def fit(self, rows: Array | None, wanted: Sequence[set[str]]) -> Fits:
        if rows is None:
            data = self.X, self.targets, self.weight
        else:
            data = self.X[rows], [y[rows] for y in self.targets], self.weight[rows]
        return self.estimator._fit_candidates(*data, wanted, rows is None)

    def predict(self, fits: Fits, rows: Array) -> Predictions:
        X = self.X[rows]
        blocks = [as_dense(X[part]) for part in row_slices(X)]
        found: Predictions = []
        for each in fits.components:
            here = {}
            for label, parts in each.items():
                mixture = Mixture(parts)
                said = [
                    self.estimator._held_out(mixture, centred(block, fits.x_mean, mixture))
                    for block in blocks
                ]
                here[label] = HeldOut(*map(np.concatenate, zip(*said, strict=True)))
            found.append(here)
        return found

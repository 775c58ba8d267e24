"""Estimators of one response with a likelihood of rows: fit, predict, score.

A subclass says which likelihood its parameters mean. What it says about y, such as the variance or
the quantiles, is the likelihood's.
"""

from abc import abstractmethod
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from sklearn.base import RegressorMixin

from soubayes._docstrings import fill_docstrings
from soubayes._types import Matrix, Rows, Targets
from soubayes._warnings import warn
from soubayes.data.rows import RowSource, as_rows, block_by_block, check_sizes, row_weights
from soubayes.results import LEVEL
from soubayes.sparse.constants import LARGE
from soubayes.sparse.designs.moments import Gathered, GatherPlan
from soubayes.sparse.estimators.base import (
    FeatureSelection,
    RowwiseEstimator,
    check_predict_arguments,
    quantile_levels,
)
from soubayes.sparse.estimators.parameters import (
    METHOD_PARAMETERS,
    InterceptParameters,
    intercept_prior,
)
from soubayes.sparse.likelihoods.base import RowLikelihood
from soubayes.sparse.likelihoods.predictive import Predictive
from soubayes.sparse.likelihoods.shifted import (
    about,
    beside,
    row_offsets,
    shifted,
    with_exposure,
)
from soubayes.sparse.posterior import Mixture, SparsePoint
from soubayes.sparse.rows.family import RowFamily
from soubayes.sparse.rows.streams import StreamedTarget

Array = np.ndarray

FARTHEST_NODE = 12.0  # of the rules that average over a predictor, in standard deviations
LARGEST_LOG = 230.0  # of a mean, about 1e100: its square is a number


@fill_docstrings(METHOD_PARAMETERS)
class ResponseEstimator(FeatureSelection, RowwiseEstimator):
    """One response; a subclass has ``_likelihood`` and predicts with ``_predictive``.

    Attributes
    ----------
    likelihood_ : RowLikelihood
        The likelihood with its nuisance parameters as fitted, of the sparse point.
    inflation_ : float
        Recalibration of predictions: the factor of the predictive variances that held-out rows ask
        for; 1 without held-out rows. Normal scores of the predictive distribution are
        multiplied with its root, so quantiles move away from the median (towards it below 1), and
        densities or probabilities of classes follow. Means are not recalibrated. Coefficients and
        their intervals do not include it.
    dispersion_factor_ : float
        By which factor the posterior variances of the coefficients were multiplied because the
        residuals vary more than the family says; 1 where they agree with it.
    """

    _instead = ""  # the estimator to take where the data contradict the family
    _kind: type[RowFamily] = RowFamily

    @abstractmethod
    def _likelihood(self) -> RowLikelihood:
        """The likelihood that the parameters mean, before it has seen y."""

    def fit(
        self,
        X: Rows,
        y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p), Dask collection, path or iterable
            The rows. Data that do not fit in memory come as in :meth:`SoULogisticRegression.fit`.
        y : array-like of shape (n,), or str, optional
            The targets, or the name of the target column of a parquet file.
        offset : array-like of shape (n,), optional
            Known parts of the linear predictors, whose coefficient is 1. For rows that come in
            blocks the offset is a second column of y.

        Returns
        -------
        self : estimator
            The fitted estimator.
        """
        self._check_parameters()
        self._single = True
        self._look_at(X, y)
        return self._fit_source(X, y, sample_weight, groups, offset)

    def summary(self, level: float = LEVEL, intervals: str = "posterior") -> pd.DataFrame:
        table = super().summary(level, intervals)
        if self.dispersion_factor_ > 1.0:
            table.columns.name += (
                f"; the residuals contradict the family (variances x {self.dispersion_factor_:.2g})"
                f": try {self._instead}"
            )
        return table

    summary.__doc__ = RowwiseEstimator.summary.__doc__

    def _screening_target(self, y: Any) -> Array:
        values = super()._screening_target(y)
        return np.log(values + 0.5) if self._likelihood().log_link else values

    def _look_at(self, X: Any, y: Any) -> None:
        """What must be read of y before it becomes an array."""

    def _fit_memory(
        self, X: Any, y: Array, sample_weight: Any, groups: Any = None, offset: Any = None
    ) -> Self:
        if y.ndim > 1:  # of blocks, with the offset beside
            y, offset = y.T
        offset = row_offsets(offset, X.shape[0])
        X, weight, y, groups, offset = self._weigh(X, sample_weight, y, groups, offset)
        y = self._read_fitted(y)
        self._check_likelihood(y, weight)
        both = beside(y, offset)
        likelihood = shifted(self._likelihood(), both, weight, self._has_intercept())
        return self._fit_family(self._family(likelihood), X, [both], weight, y, groups)

    def _plan(self) -> GatherPlan:
        keep = LARGE if self._chooses() else 0
        return GatherPlan(partial(_columns, self._encode), keep=keep)

    def _encode(self, y: Array) -> Array:
        """y of a block: numbers, with their offsets beside them if there are two columns."""
        if y.ndim == 1:
            return self._read_block(y)
        if y.shape[1] != 2:
            raise ValueError(
                f"y of a block has {y.shape[1]} columns, but it must have one, or two if the "
                "second is the offset."
            )
        return beside(self._read_block(y[:, 0]), row_offsets(y[:, 1], len(y)))

    def _fit_gathered(self, rows: RowSource, gathered: Gathered) -> Self:
        assert gathered.statistics is not None
        whole = gathered.statistics.total()
        likelihood = about(self._likelihood(), whole.n, whole.y_mean, self._has_intercept())
        target = StreamedTarget(self._encode, float(whole.n * whole.y_mean[0]))
        family = self._family(likelihood)
        return self._fit_design(family, family.streamed(rows, gathered, [target]))

    def _read(self, values: Array) -> Array:
        """The targets as the numbers that the likelihood reads."""
        return self._likelihood().check(values)

    def _read_fitted(self, values: Array) -> Array:
        """The same of rows to fit: what they say about a mean exp(eta) is in proportion to y."""
        y = self._read(values)
        if self._likelihood().log_link:
            instead = "fit log(y) by SoULinearRegression(noise='student')"
            check_sizes(y, f"correct the value or leave its row out, or {instead}")
        return y

    def _read_block(self, values: Array) -> Array:
        """The same of one block of many."""
        return self._read_fitted(values)

    def _check_likelihood(self, y: Array, weight: Array) -> None:
        """A likelihood of the user's own is checked here."""

    def _has_intercept(self) -> bool:
        return bool(self.fit_intercept) and self._likelihood().intercept

    def _family(self, likelihood: RowLikelihood) -> RowFamily:
        prior = intercept_prior(self) if self._has_intercept() else None
        return self._kind(likelihood, self._row_settings(prior))

    def _predictive(self, X: Matrix, offset: ArrayLike | None) -> Predictive:
        """What the mixture says about rows."""
        X = self._checked(X)
        means, variances = self._predictors(X)[0]
        shift = row_offsets(offset, X.shape[0])
        likelihoods = [self._of(component.likelihood) for component in self.mixtures_[0].components]
        means = means if shift is None else means + shift
        if likelihoods[0].log_link:
            means, variances = _in_range(means, variances)
        mixture = self.mixtures_[0]
        return Predictive(likelihoods, mixture.weights, means, variances, mixture.widen)

    def _of(self, likelihood: RowLikelihood | None) -> Any:
        """A likelihood with fitted nuisance parameters; None: there are none."""
        return (likelihood or self._likelihood()).plain

    def _report_mixtures(self, mixtures: list[Mixture]) -> None:
        super()._report_mixtures(mixtures)
        self.inflation_ = mixtures[0].widen
        self.dispersion_factor_ = max(component.dispersion for component in mixtures[0].components)

    def _report_points(self, points: list[SparsePoint]) -> None:
        super()._report_points(points)
        self.likelihood_ = self._of(points[0].component.likelihood)

    def _target_names(self) -> list[str]:
        return ["y"]


@fill_docstrings(METHOD_PARAMETERS)
class ResponseRegression(RegressorMixin, InterceptParameters, ResponseEstimator):
    """A response that is a number."""

    _positive = False  # whether y must be above 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self._positive
        return tags

    def fit(
        self,
        X: Rows,
        y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        exposure : array-like of shape (n,), optional
            For how long, or among how many, a row was observed; above 0. The mean of y is
            proportional to it: its logarithm is added to the offset. It needs a likelihood with a
            logarithmic link.
        """
        return super().fit(X, y, sample_weight, groups, self._exposed(X, offset, exposure, y))

    @block_by_block
    def predict(
        self,
        X: Matrix,
        offset: ArrayLike | None = None,
        return_std: bool = False,
        quantiles: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Array | tuple[Array, Array]:
        """Predict the mean, standard deviation or quantiles of new observations.

        Parameters
        ----------
        return_std : bool, default=False
            Also return the predictive standard deviation of y.
        quantiles : array-like of shape (m,), optional
            Return these quantiles of the predictive distribution instead; numbers between 0 and 1.
            Quantiles of counts are whole numbers.

        Returns
        -------
        mean : ndarray of shape (n,)
            The predictive mean, averaged over the posterior; with ``quantiles`` an array of shape
            (n, m).
        sd : ndarray of shape (n,)
            Only with ``return_std=True``.
        """
        check_predict_arguments(return_std, quantiles)
        predictive = self._predictive(X, self._exposed(X, offset, exposure))
        if quantiles is not None:
            if np.isnan(predictive.cdf(predictive.mean())).any():
                raise self._lacks("cdf(y, eta), the distribution function of y")
            levels = quantile_levels(quantiles)
            return np.stack([predictive.quantile(float(level)) for level in levels], axis=1)
        if not return_std:
            return predictive.mean()
        variance = predictive.variance()
        if np.isnan(variance).any():
            raise self._lacks("noise(eta), the variance of y")
        unsure = int(predictive.unsure().sum()) if self._likelihood().log_link else 0
        if unsure:
            warn(
                f"The standard deviation of {unsure} of {len(variance)} rows rests on the far tail "
                "of the posterior, because their means are hardly known: use "
                "quantiles=[0.05, 0.5, 0.95] for these rows.",
                UserWarning,
            )
        return predictive.mean(), np.sqrt(variance)

    @block_by_block
    def log_density(
        self,
        X: Matrix,
        y: ArrayLike,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Array:
        """Log predictive density of observations, or log probability of counts.

        Returns
        -------
        log_density : ndarray of shape (n,)
            The logarithm of p(y | x), averaged over the posterior.
        """
        predictive = self._predictive(X, self._exposed(X, offset, exposure))
        return predictive.log_density(self._read(np.asarray(y)))

    def log_score(
        self,
        X: Matrix,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> float:
        """Mean log predictive density, a score for which larger is better.

        Returns
        -------
        score : float
            The weighted mean of :meth:`log_density`.
        """
        log_density = self.log_density(X, y, offset=offset, exposure=exposure)
        return float(np.average(log_density, weights=row_weights(sample_weight, len(log_density))))

    def score(
        self,
        X: Matrix,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> float:
        """Share of the deviance that is explained, D².

        Returns
        -------
        score : float
            1 for perfect predictions, 0 for those of the best constant (with the offset added). It
            is R² for a likelihood without a deviance of its own.
        """
        offset = self._exposed(X, offset, exposure)
        mean = self.predict(X, offset=offset)
        y = self._read(np.asarray(y))
        likelihood = self._of(self.mixtures_[0].components[0].likelihood)
        weight = row_weights(sample_weight, len(y))
        null = _constant(likelihood, y, weight, row_offsets(offset, len(y)))
        ours, alone = likelihood.deviance(y, mean), likelihood.deviance(y, null)
        total = float(weight @ alone)
        return 1.0 - float(weight @ ours) / total if total > 0.0 else float(weight @ ours == 0.0)

    def _exposed(self, X: Any, offset: Any, exposure: Any, y: Any = 0) -> Any:
        """The offset plus the logarithm of the exposure, one number for each row of X."""
        if exposure is None:
            return offset
        likelihood = self._likelihood()
        if not likelihood.log_link:
            name = type(likelihood).__name__
            raise ValueError(
                f"exposure was given, but the mean of {name} is not known to be proportional to "
                "it: pass an offset, or set log_link = True in a likelihood with mean exp(eta)."
            )
        if as_rows(X, y, None) is not None:
            raise ValueError(
                "exposure was given, but X comes in blocks: make its logarithm a second column of "
                "y instead."
            )
        return with_exposure(offset, exposure, X.shape[0] if hasattr(X, "shape") else len(X))

    def _lacks(self, what: str) -> TypeError:
        name = type(self._likelihood()).__name__
        return TypeError(f"{name} does not define {what}; add this method to the likelihood.")


def _in_range(means: Array, variances: Array) -> tuple[Array, Array]:
    """Predictors whose exponentials have squares; rows with larger ones are brought nearer."""
    reach = np.max(means + FARTHEST_NODE * np.sqrt(variances), axis=0)
    share = LARGEST_LOG / np.maximum(reach, LARGEST_LOG)
    far = int(np.sum(share < 1.0))
    if far:
        warn(
            f"{far} of {len(share)} rows lie so far from the rows of the fit that their means are "
            "too large to be computed. Their predictions are those of nearer rows: check them.",
            UserWarning,
        )
    return share * means, share**2 * variances


def _constant(
    likelihood: RowLikelihood, y: Array, weight: Array, offset: Array | None
) -> Array | float:
    """Means of the best model without columns."""
    if offset is None:
        return float(np.average(y, weights=weight))
    centre = likelihood.centre(float(np.average(y, weights=weight)), float(weight.sum()))

    def loss(alpha: float) -> float:
        with np.errstate(over="ignore"):
            mean = likelihood.predict(alpha + offset, np.zeros(len(y)))
            return float(weight @ likelihood.deviance(y, mean))

    middle = centre - float(np.average(offset, weights=weight))
    alpha = float(minimize_scalar(loss, bracket=(middle - 1.0, middle + 1.0)).x)
    return likelihood.predict(alpha + offset, np.zeros(len(y)))


def _columns(encode: Any, y: Array) -> Array:
    numbers = encode(y)
    return numbers[:, None] if numbers.ndim == 1 else numbers

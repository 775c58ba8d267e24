"""Sparse Bayesian linear regression as a scikit-learn estimator (section 4.2)."""

from dataclasses import field
from functools import partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from soubayes._types import Matrix, Rows, Targets
from soubayes.confidence import check_choice, shown
from soubayes.data.rows import (
    RowBlock,
    RowSource,
    as_rows,
    block_by_block,
    check_masks,
    check_weights,
    row_weights,
    walked_again,
)
from soubayes.sparse.choice.folds import check_groups, refuse_groups
from soubayes.sparse.constants import LARGE, LINEAR_LOCAL, STREAM_FOLDS
from soubayes.sparse.designs.moments import (
    FoldedMoments,
    Gathered,
    GatherPlan,
    folded_moments,
    gather,
    gather_block,
    join,
)
from soubayes.sparse.estimators.base import (
    ColumnEstimator,
    FeatureSelection,
    check_predict_arguments,
    quantile_levels,
    set_columns,
)
from soubayes.sparse.estimators.parameters import (
    InterceptParameters,
    NoiseParameters,
    check_choosing,
    check_confidences,
    check_intercept,
    check_noise,
    check_shared,
    estimator,
    intercept_prior,
)
from soubayes.sparse.intervals.estimates import ColumnEstimates, least_squares
from soubayes.sparse.least_squares.family import LinearFamily
from soubayes.sparse.least_squares.fitting import (
    LinearIntake,
    LinearSettings,
    moments_intake,
    settle_targets,
)
from soubayes.sparse.least_squares.student_noise import StreamTail, StudentPrior
from soubayes.sparse.posterior import Mixture

Array = np.ndarray

LEAST_ROWS = 2  # rows, of which the mean leaves one degree of freedom to the noise


@estimator
class SoULinearRegression(
    FeatureSelection,
    MultiOutputMixin,
    RegressorMixin,
    NoiseParameters,
    InterceptParameters,
    ColumnEstimator,
):
    r"""Sparse Bayesian linear regression with a confidence for every source of uncertainty.

    Columns that do not matter are dropped, and every coefficient has a posterior. By default the
    confidences are chosen by prediction. Columns and y are standardised inside; everything is
    reported in the units of X and y.

    Parameters
    ----------
    confidence_coef : "auto" or float, default="auto"
        Confidence in the prior of the coefficients (paper: :math:`\gamma_\beta`). It is the
        threshold of the selection: column j stays when its squared t-statistic exceeds it.
        ``"auto"`` leaves it to ``choice``. With a number nothing is chosen by prediction.
    confidence_local : "auto" or float, default="auto"
        Confidence in the prior of the local scales (:math:`\gamma_\tau`). A small value makes a
        coefficient either free or zero. ``"auto"`` leaves it to ``choice``; without a choice it is
        1e-9. If it is at least half of ``confidence_coef``, no column is dropped and the coordinate
        solver runs.
    confidence_degrees : float, default=1.0
        Confidence in the prior of the degrees of freedom, where ``noise="student"`` learns them.
    choice : {"prediction", "path"}, default="prediction"
        How confidences are chosen. ``"prediction"`` weighs fits between dense and sparse by their
        scores on held-out rows and predicts from their mixture. ``"path"`` follows
        ``confidence_coef`` from 1 upwards, reports the point with the largest marginal likelihood
        (after a price for the search) and refits its columns at confidence 1.
    cv : "auto", int, splitter, list of (train, test) or None, default="auto"
        Folds of ``choice="prediction"``. ``"auto"`` is 5 folds, or 10 (20) where n >= p and there
        are fewer than 200 (100) rows, and up to 20 where n is close to p. None means the path
        alone.
    prior : {"exponential", "horseshoe"}, default="exponential"
        Prior of the scales: exponential on their squares, or half-Cauchy.
    prior_global : {"exponential", "horseshoe"} or None, default=None
        Prior of the global scale alone. None means ``prior``.
    noise : {"normal", "student"}, default="normal"
        Distribution of the noise. ``"student"`` is Student's t: outliers count for little, and
        predictive intervals have heavy tails.
    degrees_of_freedom : "auto" or float, default="auto"
        Of Student's t, above 2. ``"auto"`` learns them: their excess over 2 has the prior
        Gamma(2, 0.1), on a grid of values.
    intercept_variance : float, default=10.0
        Variance of the normal prior of the intercept, at the mean of X and around the mean of y, in
        units of the variance of y.
    feature_blocks : mapping of str to mapping, optional
        Groups of columns with a prior of their own, for example ``{"clinical": {"columns": ["age",
        "sex"], "prior": "normal", "variance": 10.0, "confidence": 1.0}}``. Columns with a normal
        prior are never dropped; their variance is in units of var(y) / var(x). ``"prior":
        "sparse"`` gives a block its own ``confidence`` and ``confidence_local``.
    solver : {"path", "coordinate"}, default="path"
        ``"path"`` holds the noise at its estimate for confidence 1. ``"coordinate"`` is Algorithm 1
        of the paper, which minimises J jointly and converges slowly.
    max_iter : int, default=2000
        Largest number of steps (``"path"``) or sweeps (``"coordinate"``).
    tol : float, default=1e-6
        ``"path"`` stops when no shrinkage factor changes by more; ``"coordinate"`` when J falls by
        less, in nats.

    Attributes
    ----------
    coef_ : ndarray of shape (p,) or (targets, p)
    intercept_ : float or ndarray of shape (targets,)
    intercept_sd_ : float or ndarray of shape (targets,)
    noise_variance_ : float or ndarray of shape (targets,)
    degrees_of_freedom_ : float or ndarray of shape (targets,)
        Degrees of freedom of the noise; infinite if ``noise="normal"``. For a mixture the harmonic
        mean of its components.
    inflation_ : float or ndarray of shape (targets,)
        Recalibration of predictions: the factor of the predictive variances that held-out rows ask
        for, averaged over the mixture; 1 without held-out rows. ``candidates_`` has the
        factor of each candidate. Coefficients and their intervals do not include it.
    covariance_ : ndarray of shape (p, p) or (targets, p, p)
    effective_parameters_ : float or ndarray of shape (targets,)
    global_scale_ : float or ndarray of shape (targets,)
    kl_ : dict of str to float, or a list of them
    objective_ : ndarray, or a list of them
    confidence_coef_ : float or ndarray of shape (targets,)
    path_ : pandas.DataFrame, or a list of them
        The path, a row for each point: ``gamma``, ``chosen``, ``n_selected``, ``noise_variance``,
        ``value`` (J), ``guarded``, ``degrees`` (of freedom of the noise) and ``intercept``. A list
        has one entry for each target.
    path_coef_ : pandas.DataFrame, or a list of them
    path_coef_sd_ : pandas.DataFrame, or a list of them
    candidates_ : pandas.DataFrame, or a list of them
    out_of_fold_ : pandas.DataFrame, or a list of them
    sparsity_ : object, or a list of them

    See Also
    --------
    SoULogisticRegression : The same for classes.
    SoUGeneralizedRegression : The same for a likelihood of your own.
    plot_path : Coefficients along the path.
    plot_confidences : Held-out scores of the candidates.

    Notes
    -----
    The model (section 4.2 and supplement A.2 of [1]_) and its objective (supplement C.4.2) are

    .. math::

        y = \alpha + X\beta + \varepsilon, \quad \varepsilon \sim N(0, \sigma^2 I), \quad
        \beta_j \sim N(0, \tau_j^2 \nu^2 \sigma^2), \\
        J(q) = E_q[-\log p(y \mid \cdot)] + \sum_k \gamma_k \mathrm{KL}_k .

    For a small :math:`\gamma_\tau` column j stays exactly when :math:`z_j^2 > \gamma_\beta`, with
    :math:`z_j` its t-statistic given the other columns, and its coefficient shrinks to
    :math:`1 - \gamma_\beta / z_j^2` of the least-squares value.

    With ``noise="student"``, :math:`\varepsilon_i = \sigma t_i` and the loss is expanded to second
    order around the predictor, with its curvature averaged over the rows: least squares on
    pseudo-observations, which are renewed until they settle. The covariance is that of the
    marginal t. ``objective_`` differs from the least-squares objective of the pseudo-observations
    by a constant. Streams are read once for each round.

    Examples
    --------
    >>> from soubayes.datasets import experiment1
    >>> data = experiment1(55, 50, 10, random_state=0)
    >>> model = SoULinearRegression().fit(data.X, data.y)
    >>> model.sparsity_.selected
    11
    >>> model.sparse_.coef_[:12].round(1)
    array([1.1, 1.8, 3.2, 4.1, 5.2, 6. , 6.6, 8. , 8.8, 9.9, 0. , 0. ])
    >>> bool(model.selected_[:10].all()), int(model.selected_[10:].sum())
    (True, 1)
    """

    prior: str = "exponential"
    prior_global: str | None = None
    confidence_degrees: float = 1.0
    noise: str = "normal"
    degrees_of_freedom: float | str = "auto"
    solver: str = "path"
    max_iter: int = 2000
    tol: float = 1e-6
    _moments: FoldedMoments | None = field(init=False)  # of the rows so far

    def fit(
        self,
        X: Rows,
        y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p), Dask collection, path or iterable
            The rows. Data that do not fit in memory: a Dask array or dataframe, the path of a
            ``.npy`` or parquet file, or an iterable of (X, y) or (X, y, weight) blocks. They are
            read once; with ``noise="student"`` once for each round.
        y : array-like of shape (n,) or (n, targets), or str, optional
            The targets; the name of the target column for a parquet file. Left out for an iterable
            of blocks.

        Returns
        -------
        self : SoULinearRegression
            The fitted estimator.
        """
        self._check_parameters()
        rows = as_rows(X, y, sample_weight)
        if rows is not None:
            refuse_groups(groups)
            return self._fit_rows(rows)
        X, y, weight = self._check_data(X, y, sample_weight, reset=True, least=LEAST_ROWS)
        self._single = y.ndim == 1
        return self._fit_memory(X, y.reshape(len(y), -1), weight, check_groups(groups, X))

    def partial_fit(self, X: Matrix, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows and fit again.

        Any number of chunks gives the same fit as one call with all rows. The estimator keeps the p
        x p sufficient statistics of each fold and no rows, so groups cannot be held out. The
        sparse point is that of :meth:`fit`. With fewer than 10,000 rows the weights of the mixture
        are not: here row i is in fold i mod 5 and folds are scored by their moments, while
        :meth:`fit` shuffles the rows and scores every row.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p)
            New rows.
        y : array-like of shape (n,) or (n, targets)
            Their targets.

        Returns
        -------
        self : SoULinearRegression
            The estimator, fitted to all rows so far.
        """
        self._check_parameters()
        if self.noise == "student":
            raise ValueError(
                "partial_fit cannot be used with noise='student': the weight of a row depends on "
                "the fit, so rows are read again in every round. Pass all rows to fit, as an array "
                "or as blocks that can be read again."
            )
        first = not hasattr(self, "_moments")
        if not first and self._moments is None:
            raise ValueError(
                "fit kept no sufficient statistics, because there were fewer rows than columns or "
                "values of extreme size; use a new estimator and call partial_fit for every chunk."
            )
        X, y, weight = self._check_data(X, y, sample_weight, reset=first, least=1)
        if weight is not None:
            X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        before = None if first else self._moments
        folds = self._n_folds() if before is None else len(before.folds)
        new = folded_moments(X, y.reshape(len(y), -1), weight, folds)
        self._moments = new if before is None else before.merge(new)
        if first:
            self._single = y.ndim == 1
        enough = min(self._moments.rows, self._moments.total().n) >= LEAST_ROWS
        return self._fit_moments(self._moments) if enough else self

    def _fit_rows(self, rows: RowSource) -> Self:
        """From blocks of rows, in memory if they are few."""
        keep = LARGE if self._chooses() else 0
        gathered = gather(rows, GatherPlan(_numbers, self._n_folds(), keep))
        self._single = gathered.single
        set_columns(self, gathered.n_columns, rows.names)
        if gathered.rows is not None:
            X, y, weight = gathered.rows
            total = float(len(y)) if weight is None else float(weight.sum())
            check_rows(len(y), total)  # rows without weight were not gathered
            return self._fit_memory(X, _numbers(y), weight)
        assert gathered.statistics is not None
        if self.noise == "student":
            walked_again(rows, type(self).__name__)
            return self._fit_student(rows, gathered.statistics)
        self._moments = gathered.statistics
        return self._fit_moments(gathered.statistics)

    def _fit_memory(
        self, X: Any, Y: Array, sample_weight: Array | None, groups: Array | None = None
    ) -> Self:
        if groups is not None and sample_weight is not None:
            groups = groups[sample_weight > 0]
        X, Y, weight = self._weigh(X, Y, sample_weight)
        check_rows(len(Y), float(weight.sum()))
        family, targets = self._family(), list(np.ascontiguousarray(Y.T))
        self._fit_family(family, X, targets, weight, Y[:, 0], groups)
        self._moments = family.moments
        return self

    def _fit_student(self, rows: RowSource, moments: FoldedMoments) -> Self:
        """From blocks of rows: their pseudo-observations, then their statistics."""
        settings = self._settings()
        assert settings.student is not None
        intake = moments_intake(moments.total(), self.fit_intercept)
        raw = intake.units
        intake = settle_targets(
            intake,
            lambda t: StreamTail(rows, t, raw.of(t)),
            settings,
            [settings.student] * len(intake.designs),
        )
        plan = GatherPlan(_numbers, self._n_folds())
        gathered = rows.reduce(partial(_gather_observations, plan, intake), partial(join, plan))
        assert gathered.statistics is not None
        self._moments = None
        return self._fit_moments(gathered.statistics, intake)

    def _fit_moments(self, moments: FoldedMoments, intake: LinearIntake | None = None) -> Self:
        """From the statistics of the folds, whose rows are gone."""
        check_rows(moments.rows, moments.total().n)
        whole, shared = moments.total(), self._settings().shared
        intake = intake or moments_intake(whole, self.fit_intercept, shared=shared)
        return self._fit_design(self._family(), intake._replace(moments=moments))

    def _fits_noise(self) -> bool:
        return True

    def _eliminates_units(self) -> bool:
        return self.noise == "normal" and not self.inclusion

    def _family(self) -> LinearFamily:
        return LinearFamily(self._settings(), self._n_folds())

    def _n_folds(self) -> int:
        """How many folds the statistics are kept of."""
        if not self._chooses():
            return 1
        if self.cv == "auto":
            return STREAM_FOLDS
        return max(int(self.cv), 2) if isinstance(self.cv, Integral) else 1

    @block_by_block
    def predict(
        self, X: Matrix, return_std: bool = False, quantiles: ArrayLike | None = None
    ) -> Array | tuple[Array, Array]:
        """Predict the mean, standard deviation or quantiles of new observations.

        Parameters
        ----------
        return_std : bool, default=False
            Also return the predictive standard deviation, noise included.
        quantiles : array-like of shape (m,), optional
            Return these quantiles of the predictive distribution instead; numbers between 0 and 1.

        Returns
        -------
        mean : ndarray of shape (n,) or (n, targets)
            The predictive mean; with ``quantiles`` an array whose last axis has length m.
        sd : ndarray of the same shape
            Only with ``return_std=True``.

        Notes
        -----
        The noise is estimated, so quantiles are those of Student's t with the degrees of freedom of
        that estimate: with few rows they lie farther out than normal ones. ``sd`` is the scale of
        that distribution, the noise taken at its estimate.
        """
        check_is_fitted(self)
        check_predict_arguments(return_std, quantiles)
        X = validate_data(self, X, reset=False, accept_sparse=["csr", "csc"], dtype=np.float64)
        if quantiles is not None:
            levels = quantile_levels(quantiles)
            by_target = self._by_rows(X, lambda mixture, rows: mixture.quantiles(rows, levels).T)
            return (
                by_target[0].T if self._single else np.stack([one.T for one in by_target], axis=1)
            )
        coef, intercept = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        mean = np.asarray(X @ coef.T) + intercept
        if not return_std:
            return mean[:, 0] if self._single else mean
        variances = self._by_rows(X, lambda mixture, rows: mixture.predict(rows)[1])
        std = np.sqrt(np.stack(variances, axis=1))
        return (mean[:, 0], std[:, 0]) if self._single else (mean, std)

    def _check_data(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, reset: bool, least: int
    ) -> tuple[Any, Array, Array | None]:
        check_masks(X=X, y=y, sample_weight=sample_weight)
        kind = np.asarray(y).dtype.kind if y is not None else "f"
        if kind not in "biufcO":  # scikit-learn refuses complex numbers itself
            raise ValueError(f"y has dtype {np.asarray(y).dtype}, but it must hold numbers.")
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse=["csr", "csc"],
            dtype=[np.float64, np.float32],
            multi_output=True,
            y_numeric=True,
            reset=reset,
            ensure_min_samples=least,
        )
        y = np.asarray(y, float)
        if sample_weight is None:
            return X, y, None
        weight = row_weights(sample_weight, X.shape[0])
        check_weights(weight)
        return X, y, weight

    def _report_mixtures(self, mixtures: list[Mixture]) -> None:
        super()._report_mixtures(mixtures)
        self.inflation_ = self._by_target([mixture.inflation for mixture in mixtures])
        self.degrees_of_freedom_ = self._by_target([m.noise_degrees for m in mixtures])

    def _unpulled_estimates(self) -> list[ColumnEstimates]:
        if (moments := self.__dict__.get("_moments")) is not None:
            return least_squares(moments.total(), self.fit_intercept)
        return super()._unpulled_estimates()

    def _without_estimates(self) -> str:
        if self.noise == "student":
            return "they are those of normal noise, and this fit has noise='student'"
        return super()._without_estimates()

    def _check_parameters(self) -> None:
        check_choosing(self)
        check_shared(self)
        check_noise(self)
        check_choice("noise", self.noise, ("normal", "student"))
        check_confidences(self, "confidence_degrees")
        check_degrees(self.degrees_of_freedom)
        check_intercept(self)

    def _settings(self) -> LinearSettings:
        return LinearSettings(
            **self._column_settings(LINEAR_LOCAL),
            noise_shape=float(self.noise_shape),
            noise_scale=None if self.noise_scale is None else float(self.noise_scale),
            noise_confidence=float(self.confidence_noise),
            student=self._student(),
            intercept=intercept_prior(self),
        )

    def _student(self) -> StudentPrior | None:
        """The prior of Student's t; None: the noise is normal."""
        if self.noise != "student":
            return None
        d = self.degrees_of_freedom
        return StudentPrior(None if d == "auto" else float(d), float(self.confidence_degrees))


def _gather_observations(plan: GatherPlan, intake: LinearIntake, block: RowBlock) -> Gathered:
    stars = intake.observations(block.X, plan.targets(block.y))
    return gather_block(plan, block._replace(y=stars))


def check_rows(rows: int, total: float) -> None:
    """Two rows at least, which weights may count as fewer: one row says nothing about the noise."""
    if rows < LEAST_ROWS:
        raise ValueError(f"there are {rows} rows of positive weight, but {LEAST_ROWS} are needed.")
    if total < LEAST_ROWS:
        raise ValueError(
            f"sample_weight sums to {total:.2g}, but a weight is a number of rows, of which at "
            f"least {LEAST_ROWS} are needed; multiply the weights so that they sum to that number."
        )


def check_degrees(value: Any) -> None:
    """Degrees of freedom: "auto", or a finite number above 2."""
    if isinstance(value, str) and value == "auto":
        return
    if isinstance(value, bool) or not isinstance(value, Real) or not 2.0 < float(value) < np.inf:
        raise ValueError(
            f"degrees_of_freedom is {shown(value)}, but it must be 'auto' or a number above 2: "
            "with 2 or fewer the noise has no variance. For normal noise pass noise='normal'."
        )


def _numbers(y: Array) -> Array:
    """A block of y as (rows, targets) numbers."""
    if y.dtype.kind not in "biufO":
        raise ValueError(f"y has dtype {y.dtype}, but it must hold numbers.")
    y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_min_samples=0, input_name="y")
    return y if y.ndim > 1 else y[:, None]

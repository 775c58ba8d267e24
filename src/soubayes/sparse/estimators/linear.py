"""Sparse Bayesian linear regression as a scikit-learn estimator (section 4.2)."""

from dataclasses import field
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from soubayes._types import Matrix, Rows, Targets
from soubayes.confidence import check_choice, shown
from soubayes.data.rows import RowSource, block_by_block, check_masks
from soubayes.sparse.constants import LARGE, LINEAR_LOCAL, STREAM_FOLDS
from soubayes.sparse.designs.moments import FoldedMoments, Gathered, GatherPlan, folded_moments
from soubayes.sparse.estimators.base import (
    ColumnEstimator,
    FeatureSelection,
    check_predict_arguments,
    quantile_levels,
)
from soubayes.sparse.estimators.parameters import (
    InterceptParameters,
    check_choosing,
    check_shared,
    estimator,
    intercept_prior,
    noise_settings,
    trust,
)
from soubayes.sparse.intervals.estimates import ColumnEstimates, least_squares
from soubayes.sparse.least_squares.family import LinearFamily
from soubayes.sparse.least_squares.fitting import LinearSettings, moments_intake
from soubayes.sparse.least_squares.student_noise import StudentPrior
from soubayes.sparse.posterior import Mixture

Array = np.ndarray

LEAST_ROWS = 2  # rows, of which the mean leaves one degree of freedom to the noise


@estimator
class SoULinearRegression(
    FeatureSelection,
    MultiOutputMixin,
    RegressorMixin,
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
    confidence : mapping of str to float, optional
        Confidence in the priors of the other blocks by their names in ``kl_``, 1 where left out:
        ``"global"``, the global scale (:math:`\gamma_\nu`), ``"noise"``, its variance
        (:math:`\gamma_\sigma`), ``"intercept"``, and ``"degrees"``, the degrees of freedom that
        ``noise="student"`` learns.
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
    noise : {"normal", "student"}, default="normal"
        Distribution of the noise. ``"student"`` is Student's t: outliers count for little, and
        predictive intervals have heavy tails.
    degrees_of_freedom : "auto" or float, default="auto"
        Of Student's t, above 2. ``"auto"`` learns them: their excess over 2 has the prior
        Gamma(2, 0.1), on a grid of values.
    priors : mapping of str to number, optional
        Numbers of the priors: the rates of exponential priors of squared scales, ``"rate_local"``
        (10) and ``"rate_global"`` (10); ``"global"``, the prior of the global scale alone (as
        ``prior``); ``"intercept_variance"`` (10) of the normal prior of the intercept at the mean
        of X, in units of the variance of y; the shape (``"noise_shape"``, 0.001; the paper uses 3)
        and the scale (``"noise_scale"``, 1e-6 times the variance of y; the paper uses 2) of the
        inverse-gamma prior of the noise variance.
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
        Estimated noise variance.
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
    by a constant.

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
    noise: str = "normal"
    degrees_of_freedom: float | str = "auto"
    solver: str = "path"
    max_iter: int = 2000
    tol: float = 1e-6
    _moments: FoldedMoments | None = field(init=False)  # of the rows so far
    _reads_once = True
    _blocks = ("global", "intercept", "noise", "degrees")
    _numbers = (*ColumnEstimator._numbers, "noise_shape", "noise_scale")

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
            read once. With ``noise="student"`` they must be fewer than 10,000 rows.
        y : array-like of shape (n,) or (n, targets), or str, optional
            The targets; the name of the target column for a parquet file. Left out for an iterable
            of blocks.

        Returns
        -------
        self : SoULinearRegression
            The fitted estimator.
        """
        self._check_parameters()
        return self._fit_source(X, y, sample_weight, groups)

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
                "the fit, so rows are read again in every round. Pass all rows to fit."
            )
        first = not hasattr(self, "_moments")
        if not first and self._moments is None:
            raise ValueError(
                "fit kept no sufficient statistics, because there were fewer rows than columns or "
                "values of extreme size; use a new estimator and call partial_fit for every chunk."
            )
        rows, targets = self._checked_rows(X, y, reset=first, least=1)
        rows, weight, targets = self._weigh(rows, sample_weight, targets)
        before = None if first else self._moments
        folds = self._n_folds() if before is None else len(before.folds)
        counts = None if sample_weight is None else weight
        new = folded_moments(rows, targets.reshape(len(targets), -1), counts, folds)
        self._moments = new if before is None else before.merge(new)
        if first:
            self._single = targets.ndim == 1
        enough = min(self._moments.rows, self._moments.total().n) >= LEAST_ROWS
        return self._fit_moments() if enough else self

    def _plan(self) -> GatherPlan:
        # the weights of Student's t depend on the fit, so its rows are read many times
        many = self._chooses() or self.noise == "student"
        return GatherPlan(_numbers, self._n_folds(), LARGE if many else 0)

    def _fit_memory(
        self, X: Any, y: Array, sample_weight: Any, groups: Any = None, offset: Any = None
    ) -> Self:
        self._single, Y = y.ndim == 1, _numbers(y)
        X, weight, Y, groups = self._weigh(X, sample_weight, Y, groups)
        check_rows(len(Y), float(weight.sum()))
        family, targets = self._family(), list(np.ascontiguousarray(Y.T))
        self._fit_family(family, X, targets, weight, Y[:, 0], groups)
        self._moments = family.moments
        return self

    def _fit_gathered(self, rows: RowSource, gathered: Gathered) -> Self:
        if self.noise == "student":
            raise ValueError(
                f"noise='student' needs the rows in memory, but X is streamed and has {LARGE:,} "
                "rows or more: pass arrays, or use noise='normal'."
            )
        self._single, self._moments = gathered.single, gathered.statistics
        return self._fit_moments()

    def _fit_moments(self) -> Self:
        """From the statistics of the folds, whose rows are gone."""
        moments = self._moments
        assert moments is not None
        whole, shared = moments.total(), self._settings().shared
        check_rows(moments.rows, whole.n)
        intake = moments_intake(whole, self.fit_intercept, shared=shared)
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

    def _checked_rows(
        self, X: Any, y: Any, reset: bool = True, least: int = LEAST_ROWS
    ) -> tuple[Any, Array]:
        check_masks(X=X, y=y)
        kind = np.asarray(y).dtype.kind if y is not None else "f"
        if kind not in "biufcO":  # scikit-learn refuses complex numbers itself
            raise ValueError(f"y has dtype {np.asarray(y).dtype}, but it must hold numbers.")
        X, y = validate_data(
            self, X, y, accept_sparse=["csr", "csc"], dtype=[np.float64, np.float32],
            multi_output=True, y_numeric=True, reset=reset, ensure_min_samples=least,
        )  # fmt: skip
        return X, np.asarray(y, float)

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
        check_choice("noise", self.noise, ("normal", "student"))
        check_degrees(self.degrees_of_freedom)

    def _settings(self) -> LinearSettings:
        return LinearSettings(
            **self._column_settings(LINEAR_LOCAL),
            **noise_settings(self),
            student=self._student(),
            intercept=intercept_prior(self),
        )

    def _student(self) -> StudentPrior | None:
        """The prior of Student's t; None: the noise is normal."""
        if self.noise != "student":
            return None
        d = self.degrees_of_freedom
        return StudentPrior(None if d == "auto" else float(d), trust(self, "degrees"))


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

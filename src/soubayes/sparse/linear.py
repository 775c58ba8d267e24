"""Sparse Bayesian linear regression as a scikit-learn estimator (section 4.2)."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_array
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from soubayes.sparse.base import (
    FeatureSelection,
    as_dense,
    check_finite_columns,
    column_scales,
    row_slices,
    set_columns,
)
from soubayes.sparse.blocks import FeatureBlock, parse_blocks
from soubayes.sparse.designs import Gram, Wide
from soubayes.sparse.gaussian import GaussianEstimator, Units
from soubayes.sparse.moments import Moments, moments
from soubayes.sparse.streamed import gather
from soubayes.sparse.streams import Rows, as_rows, block_by_block
from soubayes.sparse.wide_columns import weighted_moments, wide_columns

Array = np.ndarray


class SoULinearRegression(FeatureSelection, MultiOutputMixin, RegressorMixin, GaussianEstimator):
    """Linear regression that selects columns by the confidence in its coefficients.

    The model of section 4.2 and supplement A.2, with a confidence gamma for every source::

        y = alpha + X beta + N(0, sigma^2),   beta_j ~ N(0, tau_j^2 nu^2 sigma^2)
        J(q) = E_q[-log p(y | .)] + sum_k gamma_k KL_k          (supplement C.4.2)

    A small ``confidence_local`` makes every tau_j follow the data, so that beta_j is either free
    or zero, and ``confidence_coef`` is the threshold: beta_j stays when z_j^2 > gamma_b. Columns
    and y are standardised inside; everything is reported in your units.

    Parameters
    ----------
    confidence_coef : "auto" or float
        gamma_b. A number means that confidence. "auto" follows a path from 1 to max(2, 3 log p),
        chooses the point whose support has the most marginal likelihood after a price for the
        search, and refits that at confidence 1. With ``solver="coordinate"`` "auto" is 1.
    confidence_local, confidence_global, confidence_noise, confidence_intercept : float
        gamma_t, gamma_n, gamma_s, gamma_alpha. All 1 with ``confidence_coef=1`` is the ordinary
        global-local model (GL). If confidence_local >= confidence_coef/2 nothing is selected,
        and the coordinate solver runs.
    prior : "exponential" or "horseshoe"
        tau_j^2, nu^2 ~ Exp(rate), or tau_j, nu ~ half-Cauchy.
    rate_local, rate_global : float
        lambda_tau, lambda_nu of the exponential priors.
    noise_shape, noise_scale : float, float or None
        sigma^2 ~ Inv-Gamma(noise_shape, noise_scale), the scale in units of y^2; None is
        1e-6 var(y). (3, 2) is the paper's.
    intercept_variance : float
        Variance of the normal prior of the intercept around the mean of y, at the mean of X, in
        units of var(y).
    feature_blocks : dict or None
        Named groups of columns with their own prior: ``{"clinical": {"columns": ["age", "sex"],
        "prior": "normal", "variance": 10.0, "confidence": 1.0}}`` is not shrunk (variance in
        units of var(y)/var(x)); ``"prior": "sparse"`` with its own ``confidence`` and
        ``confidence_local`` stays sparse. Other columns are sparse.
    fit_intercept : bool
    solver : "path" or "coordinate"
        "path" holds the noise at its unit-confidence estimate and follows the confidence from 1;
        "coordinate" is Algorithm 1, which minimises J jointly and converges slowly.
    max_iter, tol : int, float
        Steps altogether, and the change of any shrinkage factor at which "path" stops; sweeps,
        and the fall of J in nats at which "coordinate" stops.
    verbose : int
        1 prints a line a path point or sweep.

    Attributes
    ----------
    coef_, coef_sd_, intercept_, intercept_sd_, noise_variance_ : posterior means and sds
    covariance_ : (p, p), computed when asked for
    selected_ : bool mask of the columns that stayed; the others have ``coef_`` exactly 0
    shrinkage_ : kappa_j = gamma_b u_j (A^-1)_jj, 1 for a dropped column
    effective_parameters_ : p_D = sum_j (1 - kappa_j)
    local_scale_, global_scale_ : E[1/tau_j^2]^(-1/2), E[1/nu^2]^(-1/2)
    kl_ : nats of each block
    objective_ : J after every step of the final descent (path: at the final noise)
    confidence_coef_ : the confidence of the reported point ("auto": of the chosen path point)
    path_ : Table with gamma, n_selected, selected, coef, noise_variance, value (J), guarded
    solver_, n_iter_, converged_

    Examples
    --------
    >>> from soubayes.datasets import experiment1
    >>> data = experiment1(55, 50, 10, random_state=0)
    >>> model = SoULinearRegression().fit(data.X, data.y)
    >>> model.coef_[:12].round(1)
    array([1.1, 1.8, 3.2, 4.1, 5.2, 6. , 6.6, 8. , 8.8, 9.9, 0. , 0. ])
    >>> bool(model.selected_[:10].all()), int(model.selected_[10:].sum())
    (True, 1)
    """

    def __init__(
        self,
        *,
        confidence_coef: float | str = "auto",
        confidence_local: float = 1e-9,
        confidence_global: float = 1.0,
        confidence_noise: float = 1.0,
        confidence_intercept: float = 1.0,
        prior: str = "exponential",
        rate_local: float = 10.0,
        rate_global: float = 10.0,
        noise_shape: float = 1e-3,
        noise_scale: float | None = None,
        intercept_variance: float = 10.0,
        feature_blocks: Mapping[str, Mapping[str, Any]] | None = None,
        fit_intercept: bool = True,
        solver: str = "path",
        max_iter: int = 2000,
        tol: float = 1e-6,
        verbose: int = 0,
    ) -> None:
        self.confidence_coef = confidence_coef
        self.confidence_local = confidence_local
        self.confidence_global = confidence_global
        self.confidence_noise = confidence_noise
        self.confidence_intercept = confidence_intercept
        self.prior = prior
        self.rate_local = rate_local
        self.rate_global = rate_global
        self.noise_shape = noise_shape
        self.noise_scale = noise_scale
        self.intercept_variance = intercept_variance
        self.feature_blocks = feature_blocks
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit to X (n, p), dense or scipy-sparse, and y (n,) or (n, targets).

        ``sample_weight`` counts a row that many times. Data that do not fit in memory: X and y
        Dask collections; paths of ``.npy`` files; the path of a parquet folder and the name of
        its target column; or X alone, an iterable of (X, y) or (X, y, weight) blocks. One pass
        over them makes X'X, X'y and y'y, where the blocks are.
        """
        self._check_parameters()
        rows = as_rows(X, y, sample_weight)
        if rows is not None:
            return self._fit_rows(rows)
        X, y, weight = self._check_data(X, y, sample_weight, reset=True, least=2)
        self._single = y.ndim == 1
        Y = y.reshape(len(y), -1)
        self._moments: Moments | None = None
        if X.shape[0] >= X.shape[1]:
            with np.errstate(over="ignore", invalid="ignore"):  # checked below
                self._moments = moments(X, Y, weight)
            return self._fit_moments()
        return self._fit_wide(X, Y, weight)

    def partial_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Add rows and fit again: any number of chunks gives the same fit as one call.

        Keeps the p x p sufficient statistics, also for p > n.
        """
        self._check_parameters()
        first = not hasattr(self, "_moments")
        if not first and self._moments is None:
            raise ValueError(
                "fit was called with fewer rows than columns and kept no sufficient statistics; "
                "use a new estimator and call partial_fit for every chunk."
            )
        X, y, weight = self._check_data(X, y, sample_weight, reset=first, least=1)
        new = moments(X, y.reshape(len(y), -1), weight)
        if first:
            self._single = y.ndim == 1
            self._moments = new
        else:
            assert self._moments is not None
            self._moments = self._moments.merge(new)
        return self._fit_moments() if self._moments.n >= 2 else self

    @block_by_block
    def predict(
        self, X: Any, return_std: bool = False, average: bool = False
    ) -> Array | tuple[Array, Array]:
        """The posterior predictive mean, with its standard deviation if asked.

        ``average=True`` averages the predictions of all points of the path, often better than
        any one of them on wide data; the spread along the path joins the standard deviation.
        """
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, accept_sparse=["csr", "csc"], dtype=np.float64)
        coef, intercept = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        mean = np.asarray(X @ coef.T) + intercept
        between = np.zeros_like(mean)
        if average:
            tables: Any = [self.path_] if self._single else self.path_
            for t, table in enumerate(tables):
                each = np.asarray(X @ table["coef"].T) + table["intercept"]
                mean[:, t], between[:, t] = each.mean(axis=1), each.var(axis=1)
        if not return_std:
            return mean[:, 0] if self._single else mean
        spread = np.empty_like(mean)
        for rows in row_slices(X):
            centred = as_dense(X[rows]) - self._x_mean
            for t, q in enumerate(self.posteriors_):
                spread[rows, t] = q.spread(centred)
        spread += between + self._intercept_spread + np.atleast_1d(self.noise_variance_)
        std = np.sqrt(spread)
        return (mean[:, 0], std[:, 0]) if self._single else (mean, std)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_data(
        self, X: Any, y: Any, sample_weight: ArrayLike | None, reset: bool, least: int
    ) -> tuple[Any, Array, Array | None]:
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
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return X, y, weight

    def _fit_rows(self, rows: Rows) -> Self:
        found = gather(rows, _numbers)
        self._single = found.single
        self._moments = found.statistics
        if found.statistics is not None:
            set_columns(self, len(found.statistics.x_mean), rows.names)
            return self._fit_moments()
        assert found.rows is not None
        X, y, weight = found.rows
        if len(y) < 2:
            raise ValueError(f"there are {len(y)} rows of positive weight, but 2 are needed.")
        set_columns(self, X.shape[1], rows.names)
        return self._fit_wide(X, _numbers(y), weight)

    def _blocks(self) -> list[FeatureBlock]:
        return parse_blocks(
            self.feature_blocks, self.n_features_in_, getattr(self, "feature_names_in_", None)
        )

    def _fit_moments(self) -> Self:
        assert self._moments is not None
        raw = self._moments
        use = raw if self.fit_intercept else raw.about_zero()
        n = use.n
        x_scale, constant = column_scales(raw.x_mean * self.fit_intercept, np.diag(use.xx) / n, n)
        y_scale, _ = column_scales(raw.y_mean * self.fit_intercept, use.yy / n, n)
        check_finite_columns(np.concatenate([x_scale, y_scale]))
        xx = use.xx / np.outer(x_scale, x_scale)
        xx[constant], xx[:, constant] = 0.0, 0.0
        xy = use.xy / np.outer(x_scale, y_scale)
        xy[constant] = 0.0
        yy = use.yy / y_scale**2
        designs = [Gram(xx, xy[:, t], float(yy[t]), n) for t in range(len(y_scale))]
        return self._solve(designs, Units(use.x_mean, x_scale, use.y_mean, y_scale))

    def _fit_wide(self, X: Any, Y: Array, weight: Array | None) -> Self:
        counts = np.ones(len(Y)) if weight is None else weight
        n = float(counts.sum())
        share = counts / n
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            x_mean, x_square = weighted_moments(X, share, self.fit_intercept)
            y_mean, y_square = weighted_moments(Y, share, self.fit_intercept)
            x_scale, constant = column_scales(x_mean, x_square, n)
            y_scale, _ = column_scales(y_mean, y_square, n)
        check_finite_columns(np.concatenate([x_scale, y_scale]))
        root = np.sqrt(counts)
        columns = wide_columns(X, x_mean, np.where(constant, np.inf, x_scale), root)
        Y = (Y - y_mean) * root[:, None] / y_scale
        designs = [Wide(columns, Y[:, t], n) for t in range(Y.shape[1])]
        return self._solve(designs, Units(x_mean, x_scale, y_mean, y_scale))


def _numbers(y: Array) -> Array:
    """A block of y as (rows, targets) numbers."""
    if y.dtype.kind not in "biufO":
        raise ValueError(f"y has dtype {y.dtype}, but it must hold numbers.")
    y = check_array(y, ensure_2d=False, dtype=np.float64, ensure_min_samples=0, input_name="y")
    return y.reshape(len(y), -1)

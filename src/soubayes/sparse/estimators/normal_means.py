"""Sparse normal means: many units, a few replicates each (section 4.1)."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from soubayes.data.streams import check_in_memory
from soubayes.sparse.designs.standardise import column_scales, in_range
from soubayes.sparse.estimators.base import (
    SparseEstimator,
    check_confidences,
    check_positive,
    check_shared,
    shared_settings,
)
from soubayes.sparse.estimators.linear import LINEAR_LOCAL
from soubayes.sparse.least_squares.designs import Diagonal
from soubayes.sparse.least_squares.fitting import LinearSettings, linear_sparse_point, solve_targets
from soubayes.sparse.least_squares.intake import LinearIntake, TargetUnits

Array = np.ndarray


class SoUNormalMeans(SparseEstimator):
    r"""Means of many units of which most may be zero.

    Parameters
    ----------
    confidence_coef : "auto" or float, default="auto"
        Confidence in the prior of the means (paper: :math:`\gamma_\beta`): unit i stays when its
        :math:`z_i^2` exceeds it. ``"auto"`` follows a path and chooses a point of it.
    confidence_local : float, default=1e-9
        Confidence in the prior of the local scales (:math:`\gamma_\tau`).
    confidence_global : float, default=1.0
        Confidence in the prior of the global scale (:math:`\gamma_\nu`).
    confidence_noise : float, default=1.0
        Confidence in the prior of the noise variance (:math:`\gamma_\sigma`).
    prior : {"exponential", "horseshoe"}, default="exponential"
        Prior of the scales: exponential on their squares, or half-Cauchy.
    rate_local : float, default=10.0
        Rate of the exponential prior of the local scales.
    rate_global : float, default=10.0
        Rate of the exponential prior of the global scale.
    noise_shape : float, default=0.001
        Shape of the inverse-gamma prior of the noise variance.
    noise_scale : float or None, default=None
        Scale of that prior. None means 1e-6 times the mean square of Y.
    solver : {"path", "coordinate"}, default="path"
        As in :class:`SoULinearRegression`.
    max_iter : int, default=2000
        Largest number of steps or sweeps.
    tol : float, default=1e-6
        As in :class:`SoULinearRegression`.
    verbose : int, default=0
        1 prints a line for each point of the path, or for each sweep.

    Attributes
    ----------
    coef_ : ndarray of shape (units,)
        Posterior means, exactly 0 for a unit that is dropped.
    coef_sd_ : ndarray of shape (units,)
        Posterior standard deviations.
    selected_ : ndarray of bool of shape (units,)
        Which units have a mean that is not zero.
    shrinkage_ : ndarray of shape (units,)
        Shrinkage factors :math:`\kappa_i`; 1 pulls the mean of a unit to zero.
    noise_variance_ : float
        Estimated noise variance.
    effective_parameters_ : float
        The sum of :math:`1 - \kappa_i`.
    local_scale_ : ndarray of shape (units,)
        Fitted local scales.
    global_scale_ : float
        Fitted global scale.
    kl_ : dict of str to float
        What it cost each block to leave its prior, in nats.
    objective_ : ndarray
        J after every step of the last descent.
    path_ : pandas.DataFrame
        The path, as in :class:`SoULinearRegression`.
    path_coef_ : pandas.DataFrame
        The coefficients along the path; 0 where one is dropped.
    path_coef_sd_ : pandas.DataFrame
        Their posterior standard deviations; NaN where one is dropped.
    confidence_coef_ : float
        Confidence of the point that is reported.
    solver_ : str
        The solver that ran.
    n_iter_ : int
        Number of steps.
    converged_ : bool
        Whether the solver stopped by ``tol``.

    Notes
    -----
    The model of section 4.1 and supplement A.1 of [1]_, with its objective in supplement C.4.1:

    .. math:: y_{ij} \sim N(\beta_i, \sigma^2), \qquad \beta_i \sim N(0, \tau_i^2 \nu^2).

    Unlike in :class:`SoULinearRegression` the prior variance of a mean is not multiplied by the
    noise variance.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> Y = rng.normal(size=(50, 5))
    >>> Y[:3] += 10.0
    >>> np.flatnonzero(SoUNormalMeans().fit(Y).selected_)
    array([0, 1, 2])
    """

    def __init__(
        self,
        *,
        confidence_coef: float | str = "auto",
        confidence_local: float = 1e-9,
        confidence_global: float = 1.0,
        confidence_noise: float = 1.0,
        prior: str = "exponential",
        rate_local: float = 10.0,
        rate_global: float = 10.0,
        noise_shape: float = 1e-3,
        noise_scale: float | None = None,
        solver: str = "path",
        max_iter: int = 2000,
        tol: float = 1e-6,
        verbose: int = 0,
    ) -> None:
        self.confidence_coef = confidence_coef
        self.confidence_local = confidence_local
        self.confidence_global = confidence_global
        self.confidence_noise = confidence_noise
        self.prior = prior
        self.rate_local = rate_local
        self.rate_global = rate_global
        self.noise_shape = noise_shape
        self.noise_scale = noise_scale
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.verbose = verbose

    def fit(self, Y: ArrayLike, y: None = None) -> Self:
        """Fit the means.

        Parameters
        ----------
        Y : array-like of shape (units, replicates)
            The observations, one row for each unit.
        y : None, default=None
            Ignored; here for scikit-learn's interface.

        Returns
        -------
        self : SoUNormalMeans
            The fitted estimator.
        """
        self._check_parameters()
        check_in_memory(Y, "SoUNormalMeans.fit")
        if np.ndim(Y) == 1:
            raise ValueError(
                f"Y has {np.size(Y)} numbers in one dimension, but it must have shape (units, "
                "replicates): pass Y.reshape(-1, 1) for one observation of each unit."
            )
        checked: Array = validate_data(self, Y, dtype=np.float64, ensure_min_samples=2)
        units, replicates = checked.shape
        self._single = True
        n = float(checked.size)
        values, unit = in_range(checked.reshape(-1, 1))
        values = values.reshape(checked.shape)
        scale, _ = column_scales(np.zeros(1), np.array([np.mean(values**2)]), n)
        scores = values.sum(axis=1) / scale[0]
        design = Diagonal(
            np.full(units, float(replicates)), scores, float(np.sum((values / scale[0]) ** 2)), n
        )
        self.n_units_ = units
        where = TargetUnits(np.zeros(units), np.ones(units), np.zeros(1), scale * unit)
        (solved,) = solve_targets(LinearIntake([design], where), self._settings())
        return self._finish([linear_sparse_point(solved, where, 0)], where.x_mean)

    def _check_parameters(self) -> None:
        check_shared(self)
        check_confidences(self, "confidence_noise")
        check_positive(self, "noise_shape")
        if self.noise_scale is not None:
            check_positive(self, "noise_scale")

    def _settings(self) -> LinearSettings:
        return LinearSettings(
            **shared_settings(self, LINEAR_LOCAL),
            noise_shape=float(self.noise_shape),
            noise_scale=None if self.noise_scale is None else float(self.noise_scale),
            noise_confidence=float(self.confidence_noise),
            intercept=None,
            scaled=False,
        )

    def _feature_names(self) -> Array:
        return np.array([f"unit{i}" for i in range(self.n_units_)])

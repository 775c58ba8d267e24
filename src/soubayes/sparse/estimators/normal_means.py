"""Sparse normal means: many units, a few replicates each (section 4.1)."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from soubayes.data.rows import check_in_memory
from soubayes.sparse.constants import LINEAR_LOCAL
from soubayes.sparse.designs.standardise import column_scales, in_range
from soubayes.sparse.estimators.base import SparseEstimator
from soubayes.sparse.estimators.parameters import (
    check_shared,
    estimator,
    noise_settings,
    shared_settings,
)
from soubayes.sparse.least_squares.designs import Diagonal
from soubayes.sparse.least_squares.fitting import (
    LinearIntake,
    LinearSettings,
    TargetUnits,
    linear_sparse_point,
    solve_targets,
)

Array = np.ndarray


@estimator
class SoUNormalMeans(SparseEstimator):
    r"""Means of many units of which most may be zero.

    Parameters
    ----------
    confidence_coef : "auto" or float, default="auto"
        Confidence in the prior of the means (paper: :math:`\gamma_\beta`): unit i stays when its
        :math:`z_i^2` exceeds it. ``"auto"`` follows a path and chooses a point of it.
    confidence_local : float, default=1e-9
        Confidence in the prior of the local scales (:math:`\gamma_\tau`).
    prior : {"exponential", "horseshoe"}, default="exponential"
    priors : mapping of str to number, optional
        Numbers of the priors: the rates of exponential priors of squared scales, ``"rate_local"``
        (10) and ``"rate_global"`` (10); the shape (``"noise_shape"``, 0.001; the paper uses 3)
        and the scale (``"noise_scale"``, 1e-6 times the mean square of Y; the paper uses 2) of the
        inverse-gamma prior of the noise variance.
    confidence : mapping of str to float, optional
        Confidence in the priors of the other blocks by their names in ``kl_``, 1 where left out:
        ``"global"``, the global scale (:math:`\gamma_\nu`), ``"noise"``, its variance
        (:math:`\gamma_\sigma`).
    solver : {"path", "coordinate"}, default="path"
        As in :class:`SoULinearRegression`.
    max_iter : int, default=2000
        Largest number of steps or sweeps.
    tol : float, default=1e-6
        As in :class:`SoULinearRegression`.

    Attributes
    ----------
    coef_ : ndarray of shape (units,)
        Posterior means, exactly 0 for a unit that is dropped.
    covariance_ : ndarray of shape (units, units)
    selected_ : ndarray of bool of shape (units,)
        Which units have a mean that is not zero.
    shrinkage_ : ndarray of shape (units,)
        Shrinkage factors :math:`\kappa_i`; 1 pulls the mean of a unit to zero.
    noise_variance_ : float
        Estimated noise variance.
    path_ : pandas.DataFrame
        The path, as in :class:`SoULinearRegression`.

    Notes
    -----
    The model of section 4.1 and supplement A.1 of [1]_, with its objective in supplement C.4.1:

    .. math:: y_{ij} \sim N(\beta_i, \sigma^2), \qquad \beta_i \sim N(0, \tau_i^2 \nu^2).

    Unlike in :class:`SoULinearRegression` the prior variance of a mean is not multiplied by the
    noise variance.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> Y = rng.normal(size=(50, 5))
    >>> Y[:3] += 10.0
    >>> np.flatnonzero(SoUNormalMeans().fit(Y).selected_)
    array([0, 1, 2])
    """

    confidence_local: float | str = 1e-9
    prior: str = "exponential"
    solver: str = "path"
    max_iter: int = 2000
    tol: float = 1e-6
    _blocks = ("global", "noise")
    _numbers = ("rate_local", "rate_global", "global", "noise_shape", "noise_scale")

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

    def _without_estimates(self) -> str:
        return "the mean of the replicates of a unit is its estimate, with the usual interval"

    def _check_parameters(self) -> None:
        check_shared(self)

    def _settings(self) -> LinearSettings:
        return LinearSettings(
            **shared_settings(self, LINEAR_LOCAL),
            **noise_settings(self),
            intercept=None,
            scaled=False,
        )

    def _feature_names(self) -> Array:
        return np.array([f"unit{i}" for i in range(self.n_units_)])

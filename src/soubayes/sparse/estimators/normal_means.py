"""Sparse normal means: many units, a few replicates each (section 4.1)."""

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import validate_data

from soubayes.data.streams import check_in_memory
from soubayes.sparse.designs.diagonal import Diagonal
from soubayes.sparse.designs.standardise import column_scales, in_range
from soubayes.sparse.estimators.gaussian import GaussianEstimator, TargetUnits

Array = np.ndarray


class SoUNormalMeans(GaussianEstimator):
    """Means of many units of which most may be zero.

    The model of section 4.1 and supplement A.1, with a confidence gamma for every source::

        y_ij ~ N(beta_i, sigma^2),   beta_i ~ N(0, tau_i^2 nu^2)        (J: supplement C.4.1)

    Unlike in `SoULinearRegression` the prior of beta is not multiplied by sigma^2; parameters,
    solvers and "auto" are the same. ``shrinkage_`` is kappa_i: 1 pulls a unit's mean to zero.

    Parameters
    ----------
    confidence_coef : "auto" or float
        gamma_b: unit i stays when z_i^2 > gamma_b. "auto" follows a path and chooses a point.
    confidence_local, confidence_global, confidence_noise : float
        gamma_t, gamma_n, gamma_s.
    prior, rate_local, rate_global, noise_shape, noise_scale, solver, max_iter, tol, verbose
        As in `SoULinearRegression`; ``noise_scale=None`` is 1e-6 times the mean square of Y.

    Attributes
    ----------
    coef_, coef_sd_, selected_, shrinkage_, noise_variance_, effective_parameters_, local_scale_,
    global_scale_, kl_, objective_, path_, confidence_coef_, solver_, n_iter_, converged_
        As in `SoULinearRegression`, one entry a unit.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> Y = rng.normal(size=(50, 5))
    >>> Y[:3] += 10.0
    >>> np.flatnonzero(SoUNormalMeans().fit(Y).selected_)
    array([0, 1, 2])
    """

    _scaled = False

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

    def fit(self, Y: Any, y: None = None) -> Self:
        """Fit to Y of shape (units, replicates); ``y`` is ignored."""
        self._check_parameters()
        check_in_memory(Y, "SoUNormalMeans.fit")
        if np.ndim(Y) == 1:
            raise ValueError(
                f"Y has {len(Y)} numbers in one dimension, but it must have shape (units, "
                "replicates): pass Y.reshape(-1, 1) for one observation of each unit."
            )
        Y = validate_data(self, Y, dtype=np.float64, ensure_min_samples=2)
        units, replicates = Y.shape
        self._single = True
        n = float(Y.size)
        values, unit = in_range(Y.reshape(-1, 1))
        Y = values.reshape(Y.shape)
        scale, _ = column_scales(np.zeros(1), np.array([np.mean(Y**2)]), n)
        scores = Y.sum(axis=1) / scale[0]
        design = Diagonal(
            np.full(units, float(replicates)), scores, float(np.sum((Y / scale[0]) ** 2)), n
        )
        self.n_units_ = units
        self._solve(
            [design], TargetUnits(np.zeros(units), np.ones(units), np.zeros(1), scale * unit)
        )
        return self

    def _feature_names(self) -> Array:
        return np.array([f"unit{i}" for i in range(self.n_units_)])

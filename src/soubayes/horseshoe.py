"""The paper's Horseshoe baseline, sampled exactly: auxiliary-variable Gibbs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve, cholesky, eigh, qr, solve_triangular
from sklearn.utils.validation import check_array, check_X_y

from soubayes._types import DataTree
from soubayes.results import chains_for_arviz


def horseshoe_gibbs(
    X: ArrayLike | None,
    y: ArrayLike,
    draws: int = 1000,
    chains: int = 4,
    random_state: int | None = 0,
    *,
    warmup: int | None = None,
    noise_shape: float = 3.0,
    noise_scale: float = 2.0,
) -> DataTree:
    r"""Draw from the posterior of linear regression or normal means under the horseshoe prior.

    The baseline of the paper, by Gibbs sampling. There is no intercept: centre X and y first.

    Parameters
    ----------
    X : array-like of shape (n, p), or None
        The design. None gives normal means.
    y : array-like of shape (n,) or (units, replicates)
        The targets; for normal means one row for each unit.
    draws : int, default=1000
        Draws that are kept of each chain.
    chains : int, default=4
        Number of chains.
    random_state : int or None, default=0
        The seed; the same seed gives the same draws.
    warmup : int, optional
        Draws that are discarded at the start of each chain; as many as ``draws`` by default.
    noise_shape : float, default=3.0
        Shape of the inverse-gamma prior of the noise variance.
    noise_scale : float, default=2.0
        Scale of that prior, in units of y squared.

    Returns
    -------
    data : xarray.DataTree
        An object for ArviZ with ``coef``, ``local_scale``, ``global_scale`` and ``noise_variance``
        in the group ``posterior``; ``arviz_stats.summary`` gives R-hat and effective sample sizes.
        For normal means it also holds the shrinkage factors.

    Notes
    -----
    The model is that of supplement A.2 of [1]_,

    .. math::

        y \sim N(X\beta, \sigma^2 I), \quad \beta_j \sim N(0, \tau_j^2 \nu^2 \sigma^2), \quad
        \tau_j, \nu \sim C^+(0, 1), \quad \sigma^2 \sim \text{Inv-Gamma}.

    For normal means (supplement A.1) the prior of a mean is not multiplied by the noise variance.
    Half-Cauchy scales are mixtures of inverse gammas [2]_. The coefficients and the noise variance
    are drawn together, at a cost of O(n\ :sup:`2` p) for p > n [3]_.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".
    .. [2] E. Makalic and D. F. Schmidt (2016), "A simple sampler for the horseshoe estimator", IEEE
       Signal Processing Letters 23.
    .. [3] A. Bhattacharya, A. Chakraborty and B. K. Mallick (2016), "Fast sampling with Gaussian
       scale mixture priors in high-dimensional regression", Biometrika 103.

    Examples
    --------
    >>> from soubayes.datasets import experiment1
    >>> data = experiment1(30, 5, 2, random_state=0)
    >>> posterior = horseshoe_gibbs(data.X, data.y, draws=200, chains=2, random_state=0).posterior
    >>> posterior["coef"].mean(("chain", "draw")).values.round(1)
    array([ 1. ,  2.1, -0.2, -0.3,  0. ])
    """
    for name, value in [("draws", draws), ("chains", chains)]:
        if value < 1:
            raise ValueError(f"{name} is {value}, but it must be at least 1.")
    if noise_shape <= 0 or noise_scale <= 0:
        raise ValueError(
            f"noise_shape and noise_scale are {noise_shape} and {noise_scale}, "
            "but both must be greater than 0."
        )
    warmup = draws if warmup is None else warmup
    step, dimension, replicates = _problem(X, y, noise_shape, noise_scale)
    seeds = np.random.SeedSequence(random_state).spawn(chains)
    runs = [_run(step, dimension, draws, warmup, np.random.default_rng(s)) for s in seeds]
    posterior = {name: np.stack([run[name] for run in runs]) for name in runs[0]}
    if replicates:
        variance = (posterior["local_scale"] * posterior["global_scale"][..., None]) ** 2
        ratio = replicates * variance / posterior["noise_variance"][..., None]
        posterior["shrinkage"] = 1.0 / (1.0 + ratio)
    return chains_for_arviz(posterior)


class GibbsState(NamedTuple):
    """Where a chain stands; scales are squared, ``*_aux`` are the mixing variables."""

    coef: np.ndarray
    noise: float
    local: np.ndarray
    local_aux: np.ndarray
    global_: float
    global_aux: float


GibbsStep = Callable[[GibbsState, np.random.Generator], GibbsState]


def _problem(X: ArrayLike | None, y: ArrayLike, a: float, b: float) -> tuple[GibbsStep, int, int]:
    """The step of a chain, the number of coefficients, and the replicates (0 for regression)."""
    if X is None:
        Y = check_array(y, dtype=np.float64, input_name="y")
        return normal_means_step(Y, a, b), *Y.shape
    design, response = check_X_y(X, y, dtype=np.float64, y_numeric=True)
    return regression_step(design, response.astype(np.float64), a, b), design.shape[1], 0


def _run(step: GibbsStep, p: int, draws: int, warmup: int, rng: np.random.Generator) -> dict:
    shapes = {"coef": (p,), "local_scale": (p,), "global_scale": (), "noise_variance": ()}
    kept = {name: np.empty((draws, *shape)) for name, shape in shapes.items()}
    state = GibbsState(np.zeros(p), 1.0, np.ones(p), np.ones(p), 1.0, 1.0)
    for i in range(-warmup, draws):
        state = step(state, rng)
        if i >= 0:
            kept["coef"][i] = state.coef
            kept["local_scale"][i] = np.sqrt(state.local)
            kept["global_scale"][i] = np.sqrt(state.global_)
            kept["noise_variance"][i] = state.noise
    return kept


def regression_step(X: np.ndarray, y: np.ndarray, a: float, b: float) -> GibbsStep:
    """One sweep: (beta, sigma^2) jointly given the scales, then the scales."""
    n, p = X.shape
    draw = _draw_tall(X, y) if p <= n else _draw_wide(X, y)

    def step(state: GibbsState, rng: np.random.Generator) -> GibbsState:
        coef, noise = draw(np.sqrt(state.local * state.global_), a + n / 2, b, rng)
        return _draw_scales(coef, noise, state, noise, rng)

    return step


def normal_means_step(Y: np.ndarray, a: float, b: float) -> GibbsStep:
    """One sweep for ``Y`` of shape (units, replicates); beta is independent over units."""
    units, n = Y.shape
    mean = Y.mean(axis=1)
    within = np.sum((Y - mean[:, None]) ** 2)

    def step(state: GibbsState, rng: np.random.Generator) -> GibbsState:
        precision = n / state.noise + 1.0 / (state.local * state.global_)
        coef = n / state.noise * mean / precision
        coef = coef + rng.standard_normal(units) / np.sqrt(precision)
        rss = within + n * np.sum((mean - coef) ** 2)
        noise = _inverse_gamma(a + units * n / 2, b + rss / 2, rng)
        return _draw_scales(coef, noise, state, 1.0, rng)

    return step


def _draw_tall(X: np.ndarray, y: np.ndarray) -> Callable:
    """(beta, sigma^2) through the p x p system, scaled so that its eigenvalues are at least 1.

    The residual is a sum of squares, not y'y less what is explained: where the fit is close,
    that difference would be rounding error. After a QR, its cost does not depend on n.
    """
    Q, R = qr(X, mode="economic")
    projected = Q.T @ y
    outside = np.sum((y - Q @ projected) ** 2)
    gram, moment = R.T @ R, R.T @ projected

    def draw(scale: np.ndarray, shape: float, b: float, rng: np.random.Generator) -> tuple:
        lower = _root_of_one_plus(gram * np.outer(scale, scale))
        half = solve_triangular(lower, scale * moment, lower=True, check_finite=False)
        mean = solve_triangular(lower.T, half, check_finite=False)
        residual = projected - R @ (scale * mean)
        rate = b + (outside + residual @ residual + mean @ mean) / 2
        noise = _inverse_gamma(shape, rate, rng)
        random = rng.standard_normal(len(scale))
        spread = solve_triangular(lower.T, random, check_finite=False)
        return scale * (mean + np.sqrt(noise) * spread), noise

    return draw


def _draw_wide(X: np.ndarray, y: np.ndarray) -> Callable:
    """(beta, sigma^2) through the n x n system of Bhattacharya, Chakraborty and Mallick (2016)."""
    n = len(y)

    def draw(scale: np.ndarray, shape: float, b: float, rng: np.random.Generator) -> tuple:
        scaled = X * scale
        factor = (_root_of_one_plus(scaled @ scaled.T), True)
        noise = _inverse_gamma(shape, b + y @ cho_solve(factor, y) / 2, rng)
        prior = rng.standard_normal(len(scale))
        target = y / np.sqrt(noise) - scaled @ prior - rng.standard_normal(n)
        return np.sqrt(noise) * scale * (prior + scaled.T @ cho_solve(factor, target)), noise

    return draw


def _root_of_one_plus(system: np.ndarray) -> np.ndarray:
    """Lower triangular L with L L' = I + system, also where rounding hides the I."""
    system = system + np.eye(len(system))
    try:
        return cholesky(system, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        values, vectors = eigh(system)
        return qr((vectors * np.sqrt(np.maximum(values, 1.0))).T, mode="r")[0].T


# Local and global variances are kept inside these bounds, far outside of what data can tell apart,
# so that their products and reciprocals stay finite.
_SMALLEST, _LARGEST = 1e-30, 1e30


def _draw_scales(
    coef: np.ndarray, noise: float, old: GibbsState, unit: float, rng: np.random.Generator
) -> GibbsState:
    """The scales given beta, where beta_j ~ N(0, local_j global unit)."""
    squares = coef**2 / (2.0 * unit)
    p = len(coef)
    local = _inverse_gamma(np.ones(p), 1.0 / old.local_aux + squares / old.global_, rng)
    local = np.clip(local, _SMALLEST, _LARGEST)
    local_aux = _inverse_gamma(np.ones(p), 1.0 + 1.0 / local, rng)
    rate = 1.0 / old.global_aux + np.sum(squares / local)
    global_ = float(np.clip(_inverse_gamma((p + 1) / 2, rate, rng), _SMALLEST, _LARGEST))
    global_aux = _inverse_gamma(1.0, 1.0 + 1.0 / global_, rng)
    return GibbsState(coef, noise, local, local_aux, global_, global_aux)


def _inverse_gamma(shape: Any, rate: Any, rng: np.random.Generator) -> Any:
    return rate / rng.standard_gamma(shape)

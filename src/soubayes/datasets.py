"""The simulated designs of the paper, as functions of a seed."""

from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

BLOCK_1 = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)  # section 4.2
BLOCK_2 = (2, 2, 2, 2, 2, 2, 2, 2, 5, 20)  # supplement A.2, Experiment 2


class Regression(NamedTuple):
    """A simulated linear regression with unit noise: ``y = X @ coef + N(0, 1)``."""

    X: np.ndarray
    y: np.ndarray
    coef: np.ndarray

    @property
    def support(self) -> np.ndarray:
        """Where the true coefficients are not zero, as a boolean mask."""
        return self.coef != 0


class NormalMeans(NamedTuple):
    """Simulated normal means: ``Y`` of shape (units, replicates) around ``coef`` (units)."""

    Y: np.ndarray
    coef: np.ndarray


class Curve(NamedTuple):
    """A noisy function of one variable: ``X`` (n, 1), ``y`` (n,) and the ``truth`` (n,) below."""

    X: np.ndarray
    y: np.ndarray
    truth: np.ndarray


def experiment1(n: int, p: int, signals: int, *, random_state: int = 0) -> Regression:
    """Experiment 1 (section 4.2, Table 1): N(0, 1) columns, coefficients (1, ..., 10) repeated.

    The first ``signals`` coefficients repeat (1, ..., 10), the others are 0. Rows of the table
    that differ only in ``signals`` share X and the noise of a seed.

    >>> data = experiment1(25, 20, 10, random_state=0)
    >>> data.X.shape, data.coef[[0, 9, 10]]
    ((25, 20), array([ 1., 10.,  0.]))
    """
    return _independent(n, p, _repeat(BLOCK_1, p, signals), random_state)


def experiment2(n: int, p: int, signals: int, *, random_state: int = 0) -> Regression:
    """Experiment 2 (supplement A.2): as Experiment 1 with the block (2 eight times, 5, 20).

    >>> experiment2(24, 20, 10, random_state=0).coef[6:11]
    array([ 2.,  2.,  5., 20.,  0.])
    """
    return _independent(n, p, _repeat(BLOCK_2, p, signals), random_state)


def experiment3(
    signal_share: float, n: int = 55, p: int = 50, *, random_state: int = 0
) -> Regression:
    """Experiment 3 (supplement A.2): beta_j = Z_j T_j, Z_j ~ Bernoulli(rho), T_j ~ t with 2 df.

    >>> data = experiment3(0.1, random_state=0)
    >>> data.X.shape, int(data.support.sum())
    ((55, 50), 5)
    """
    rng = np.random.default_rng([3, random_state])
    coef = (rng.random(p) < signal_share) * rng.standard_t(2, size=p)
    return _independent(n, p, coef, random_state)


def correlated_design(
    n: int = 105,
    p: int = 100,
    signals: int = 20,
    *,
    correlation: float = 0.7,
    random_state: int = 0,
) -> Regression:
    """Correlation ``0.7 ** |i - j|`` (AR) of columns, Experiment 1's signals at random places.

    Not in the paper: a design that no setting was tuned on.

    >>> X = correlated_design(4000, 3, 1, random_state=0).X
    >>> np.corrcoef(X.T).round(1)
    array([[1. , 0.7, 0.5],
           [0.7, 1. , 0.7],
           [0.5, 0.7, 1. ]])
    """
    rng = np.random.default_rng(random_state)
    shocks = rng.standard_normal((n, p))
    shocks[:, 1:] *= np.sqrt(1 - correlation**2)
    X = lfilter([1.0], [1.0, -correlation], shocks, axis=1)
    coef = np.zeros(p)
    coef[np.sort(rng.choice(p, signals, replace=False))] = _repeat(BLOCK_1, signals, signals)
    return Regression(X, X @ coef + rng.standard_normal(n), coef)


def wide_design(
    n: int = 100, p: int = 200, signals: int = 10, *, random_state: int = 0
) -> Regression:
    """Fewer rows than columns, otherwise Experiment 1. Not in the paper, and not tuned on.

    >>> wide_design().X.shape
    (100, 200)
    """
    return _independent(n, p, _repeat(BLOCK_1, p, signals), random_state)


def weak_design(
    n: int = 105, p: int = 100, signals: int = 10, *, size: float = 0.5, random_state: int = 0
) -> Regression:
    """Signals of 0.5, otherwise Experiment 1. Not in the paper, and not tuned on.

    >>> weak_design().coef[8:12]
    array([0.5, 0.5, 0. , 0. ])
    """
    return _independent(n, p, _repeat((size,), p, signals), random_state)


def normal_means(
    units: int = 100,
    replicates: int = 5,
    signals: int = 20,
    *,
    size: float = 10.0,
    noise: float = 1.0,
    random_state: int = 0,
) -> NormalMeans:
    """Normal means (section 4.1, fig:Simple_HS): y_ij ~ N(beta_i, noise^2), 20 of 100 at 10.

    The paper does not print its sigma; 1 is the default here.

    >>> data = normal_means()
    >>> data.Y.shape, data.coef[[19, 20]]
    ((100, 5), array([10.,  0.]))
    """
    rng = np.random.default_rng(random_state)
    coef = _repeat((size,), units, signals)
    return NormalMeans(coef[:, None] + noise * rng.standard_normal((units, replicates)), coef)


def sine(n: int = 300, *, noise: float = 0.2, random_state: int = 0) -> Curve:
    """The toy regression of section 4.4: y = sin(x) + N(0, 0.2^2), x uniform on [-4, 4].

    >>> sine(5).X.shape
    (5, 1)
    """
    rng = np.random.default_rng(random_state)
    x = rng.uniform(-4.0, 4.0, n)
    truth = np.sin(x)
    return Curve(x[:, None], truth + noise * rng.standard_normal(n), truth)


def oracle_coef(data: Regression) -> np.ndarray:
    """Least squares on the true support, which no method knows: the best that can be expected.

    >>> data = experiment1(55, 50, 10, random_state=0)
    >>> prediction_rmse(oracle_coef(data), data.coef) < 1.3
    True
    """
    coef = np.zeros_like(data.coef)
    coef[data.support] = np.linalg.lstsq(data.X[:, data.support], data.y, rcond=None)[0]
    return coef


def prediction_rmse(estimate: np.ndarray, coef: np.ndarray) -> float:
    """sqrt(1 + |estimate - coef|^2): the error at new rows with N(0, 1) columns and unit noise.

    >>> prediction_rmse(np.array([1.0, 0.0]), np.array([1.0, 0.0]))
    1.0
    """
    return float(np.sqrt(1.0 + np.sum((np.asarray(estimate) - coef) ** 2)))


def _independent(n: int, p: int, coef: np.ndarray, seed: int) -> Regression:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    return Regression(X, X @ coef + rng.standard_normal(n), coef)


def _repeat(block: tuple[float, ...], p: int, signals: int) -> np.ndarray:
    if not 0 <= signals <= p:
        raise ValueError(f"signals is {signals}, but it must lie between 0 and p = {p}.")
    coef = np.zeros(p)
    coef[:signals] = np.resize(block, signals)
    return coef

"""Data that the paper uses: MNIST, and the simulated designs as functions of a seed."""

import gzip
import hashlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.signal import lfilter

# ---- simulated designs --------------------------------------------------------------------------

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


# ---- MNIST --------------------------------------------------------------------------------------

# sha256 of the four uncompressed idx files as first published
_MNIST = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


class MNIST(NamedTuple):
    """Images as rows of 784 pixels 0..255 and labels 0..9, all ``uint8`` and read-only."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def load_mnist(path: str | os.PathLike[str] | None = None) -> MNIST:
    """The 60,000 training and 10,000 test images of MNIST.

    Parameters
    ----------
    path : str or path-like, optional
        A folder with the four idx files, plain or compressed. By default the folder that the
        environment variable ``SOUBAYES_DATA`` names, or its folder ``mnist``. Without that variable
        the images are downloaded once by scikit-learn.

    Returns
    -------
    data : MNIST
        The arrays ``X_train`` (60000, 784), ``y_train`` (60000,), ``X_test`` (10000, 784) and
        ``y_test`` (10000,), of dtype ``uint8``. Convert what you need, for example
        ``X_train.astype("float32")``.

    Notes
    -----
    Files are checked against their checksums. The images [1]_ are those of sections 4.3 and 4.4 of
    the paper.

    References
    ----------
    .. [1] Y. LeCun, L. Bottou, Y. Bengio and P. Haffner (1998), "Gradient-based learning applied to
       document recognition", Proceedings of the IEEE 86.

    Examples
    --------
    >>> load_mnist("no-such-folder")
    Traceback (most recent call last):
    ...
    FileNotFoundError: no MNIST in 'no-such-folder': it is not a folder. Put the four files ...
    """
    folder = path if path is not None else os.environ.get("SOUBAYES_DATA")
    if folder is None:
        return _download_mnist()
    if path is None and (Path(folder) / "mnist").is_dir():
        folder = Path(folder) / "mnist"
    if not Path(folder).is_dir():
        raise _no_mnist(FileNotFoundError, f"no MNIST in {str(folder)!r}: it is not a folder.")
    parts = [_read_idx(Path(folder), name) for name in _MNIST]
    return MNIST(*(a.reshape(len(a), -1) if a.ndim == 3 else a for a in parts))


def _read_idx(folder: Path, name: str) -> np.ndarray:
    plain, packed = folder / name, folder / f"{name}.gz"
    if not plain.exists() and not packed.exists():
        raise _no_mnist(FileNotFoundError, f"no {name} (nor {name}.gz) in {str(folder)!r}.")
    try:
        content = plain.read_bytes() if plain.exists() else gzip.decompress(packed.read_bytes())
    except (OSError, EOFError) as error:
        raise _no_mnist(ValueError, f"{packed.name} in {str(folder)!r} is damaged.") from error
    _check(name, content, str(folder))
    dimensions = content[3]
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _download_mnist() -> MNIST:
    from sklearn.datasets import fetch_openml

    try:
        X, y = fetch_openml("mnist_784", version=1, as_frame=False, return_X_y=True)
    except Exception as error:  # network, file and format errors alike: the way out is the same
        said = f"{type(error).__name__}: {error}"
        raise _no_mnist(OSError, f"MNIST could not be downloaded from OpenML ({said}).") from error
    images, labels = X.astype(np.uint8), y.astype(np.uint8)
    data = MNIST(images[:60000], labels[:60000], images[60000:], labels[60000:])
    for name, part in zip(_MNIST, data, strict=True):
        shape = (len(part), 28, 28) if part.ndim == 2 else (len(part),)
        header = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
        _check(name, header + part.tobytes(), "the OpenML download")
        part.flags.writeable = False
    return data


def _check(name: str, content: bytes, origin: str) -> None:
    if hashlib.sha256(content).hexdigest() != _MNIST[name]:
        raise _no_mnist(ValueError, f"{name} from {origin} is not MNIST's: its checksum differs.")


def _no_mnist(kind: type[Exception], problem: str) -> Exception:
    return kind(
        f"{problem} Put the four files {', '.join(_MNIST)} (plain or .gz) into one folder and pass "
        "it as path, or name it in the environment variable SOUBAYES_DATA; with neither, "
        "load_mnist downloads them from OpenML."
    )

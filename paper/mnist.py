"""The images of MNIST, checked against their checksums (sections 4.3 and 4.4 of the paper)."""

import gzip
import hashlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

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

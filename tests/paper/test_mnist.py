"""The reader of MNIST: files, checksums, the download."""

import gzip
import os
import struct

import numpy as np
import pytest

from paper import mnist
from paper.mnist import load_mnist


def idx(array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def tiny_mnist(tmp_path, monkeypatch):
    """Four small idx files, two of them packed, whose checksums stand in for the real ones."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, (6, 28, 28)), np.arange(6), rng.integers(0, 256, (3, 28, 28))]
    arrays.append(np.arange(3))
    sums = {}
    for i, (name, array) in enumerate(zip(mnist._MNIST, arrays, strict=True)):
        content = idx(array)
        sums[name] = mnist.hashlib.sha256(content).hexdigest()
        if i % 2:
            (tmp_path / name).write_bytes(content)
        else:
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(mnist, "_MNIST", sums)
    return tmp_path, arrays


def test_idx_files_from_a_path_or_the_environment(tiny_mnist, monkeypatch):
    folder, arrays = tiny_mnist
    data = load_mnist(folder)
    np.testing.assert_array_equal(data.X_train, arrays[0].reshape(6, 784))
    np.testing.assert_array_equal(data.y_test, arrays[3])
    assert data.X_test.dtype == data.y_train.dtype == np.uint8
    monkeypatch.setenv("SOUBAYES_DATA", str(folder))
    np.testing.assert_array_equal(load_mnist().X_test, data.X_test)
    folder.rename(folder.parent / "mnist")
    monkeypatch.setenv("SOUBAYES_DATA", str(folder.parent))
    np.testing.assert_array_equal(load_mnist().X_test, data.X_test)


def test_missing_damaged_and_foreign_files_are_named(tiny_mnist):
    folder, _ = tiny_mnist
    with pytest.raises(FileNotFoundError, match="SOUBAYES_DATA"):
        load_mnist(folder / "elsewhere")
    images = folder / "train-images-idx3-ubyte.gz"
    whole = images.read_bytes()
    images.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz in .* is damaged"):
        load_mnist(folder)
    images.write_bytes(gzip.compress(b"\0" * 100))
    with pytest.raises(ValueError, match="its checksum differs"):
        load_mnist(folder)
    images.unlink()
    with pytest.raises(FileNotFoundError, match="no train-images-idx3-ubyte"):
        load_mnist(folder)


def test_without_files_openml_is_asked_and_checked(tiny_mnist, monkeypatch):
    """The fetcher is replaced: tests never download."""
    _, arrays = tiny_mnist
    monkeypatch.delenv("SOUBAYES_DATA", raising=False)

    def offline(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(OSError, match=r"OpenML \(OSError: no network\).*SOUBAYES_DATA"):
        load_mnist()

    images = np.zeros((60003, 784))
    images[60000:] = arrays[2].reshape(3, 784)
    labels = np.concatenate([np.zeros(60000), arrays[3]]).astype(int).astype(str)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda *a, **k: (images, labels))
    with pytest.raises(ValueError, match="train-images-idx3-ubyte from the OpenML download"):
        load_mnist()
    sums = dict(mnist._MNIST)
    for name, part in [
        ("train-images-idx3-ubyte", np.zeros((60000, 28, 28))),
        ("train-labels-idx1-ubyte", np.zeros(60000)),
    ]:
        sums[name] = mnist.hashlib.sha256(idx(part)).hexdigest()
    monkeypatch.setattr(mnist, "_MNIST", sums)
    data = load_mnist()
    np.testing.assert_array_equal(data.X_test, images[60000:])
    assert data.X_train.shape == (60000, 784)


@pytest.mark.skipif("SOUBAYES_DATA" not in os.environ, reason="SOUBAYES_DATA names no folder")
def test_the_real_files():
    data = load_mnist()
    assert [a.shape for a in data] == [(60000, 784), (60000,), (10000, 784), (10000,)]
    assert np.bincount(data.y_train)[[0, 1]].tolist() == [5923, 6742]
    assert (data.X_train.max(axis=0) == data.X_train.min(axis=0)).sum() == 67

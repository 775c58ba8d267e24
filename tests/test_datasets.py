"""The simulated designs against their definition in the paper, and MNIST's reader."""

import gzip
import os
import struct

import numpy as np
import pytest

from soubayes import datasets
from soubayes.datasets import (
    correlated_design,
    experiment1,
    experiment2,
    experiment3,
    load_mnist,
    normal_means,
    oracle_coef,
    prediction_rmse,
    sine,
    weak_design,
    wide_design,
)


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: experiment1(55, 50, 20, random_state=seed),
        lambda seed: experiment2(60, 50, 20, random_state=seed),
        lambda seed: experiment3(0.4, random_state=seed),
        lambda seed: correlated_design(random_state=seed),
        lambda seed: wide_design(random_state=seed),
        lambda seed: weak_design(random_state=seed),
    ],
    ids=["1", "2", "3", "correlated", "wide", "weak"],
)
def test_a_seed_gives_one_data_set_with_unit_noise(make):
    first, again, other = make(1), make(1), make(2)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.X, other.X)
    noise = np.concatenate([make(s).y - make(s).X @ make(s).coef for s in range(40)])
    assert abs(noise.mean()) < 4 / np.sqrt(len(noise))
    assert abs(noise.var() - 1) < 4 * np.sqrt(2 / len(noise))


def test_coefficients_of_the_papers_experiments():
    np.testing.assert_array_equal(experiment1(55, 50, 20).coef[:21], [*range(1, 11)] * 2 + [0])
    np.testing.assert_array_equal(experiment2(24, 20, 10).coef[:11], [2] * 8 + [5, 20, 0])
    coef = np.concatenate([experiment3(0.3, random_state=s).coef for s in range(200)])
    share = np.mean(coef != 0)
    assert abs(share - 0.3) < 4 * np.sqrt(0.3 * 0.7 / len(coef))
    # |t_2| exceeds sqrt(2) with probability 1 - sqrt(2)/2: P(|T| > t) = 1 - t/sqrt(2 + t^2)
    tail = np.mean(np.abs(coef[coef != 0]) > np.sqrt(2))
    assert abs(tail - (1 - np.sqrt(0.5))) < 4 * np.sqrt(0.25 / np.sum(coef != 0))


def test_correlated_columns_are_stationary():
    X = np.vstack([correlated_design(random_state=s).X for s in range(50)])
    error = 4 * np.sqrt(2 / len(X)) * 1.5
    assert np.abs(X.var(axis=0) - 1).max() < error
    lag1 = np.mean(X[:, 1:] * X[:, :-1], axis=0)
    assert np.abs(lag1 - 0.7).max() < error


def test_oracle_is_least_squares_on_the_support():
    data = experiment1(25, 20, 10, random_state=4)
    A = data.X[:, :10]
    expected = np.linalg.solve(A.T @ A, A.T @ data.y)
    np.testing.assert_allclose(oracle_coef(data)[:10], expected, rtol=1e-10)
    assert not oracle_coef(data)[10:].any()
    fresh = np.random.default_rng(0).standard_normal((200_000, 20))
    error = fresh @ (oracle_coef(data) - data.coef)
    noise = np.random.default_rng(1).standard_normal(200_000)
    simulated = np.sqrt(np.mean((error + noise) ** 2))
    assert prediction_rmse(oracle_coef(data), data.coef) == pytest.approx(simulated, rel=0.01)


def test_normal_means_and_sine():
    data = normal_means(random_state=3)
    assert abs((data.Y - data.coef[:, None]).std() - 1) < 4 / np.sqrt(2 * data.Y.size)
    curve = sine(2000, random_state=3)
    assert curve.X.min() >= -4
    assert curve.X.max() <= 4
    np.testing.assert_array_equal(curve.truth, np.sin(curve.X[:, 0]))
    assert abs((curve.y - curve.truth).std() - 0.2) < 4 * 0.2 / np.sqrt(2 * 2000)


def test_too_many_signals():
    with pytest.raises(ValueError, match="between 0 and p = 20"):
        experiment1(25, 20, 21)


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
    for i, (name, array) in enumerate(zip(datasets._MNIST, arrays, strict=True)):
        content = idx(array)
        sums[name] = datasets.hashlib.sha256(content).hexdigest()
        if i % 2:
            (tmp_path / name).write_bytes(content)
        else:
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(datasets, "_MNIST", sums)
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
    sums = dict(datasets._MNIST)
    for name, part in [
        ("train-images-idx3-ubyte", np.zeros((60000, 28, 28))),
        ("train-labels-idx1-ubyte", np.zeros(60000)),
    ]:
        sums[name] = datasets.hashlib.sha256(idx(part)).hexdigest()
    monkeypatch.setattr(datasets, "_MNIST", sums)
    data = load_mnist()
    np.testing.assert_array_equal(data.X_test, images[60000:])
    assert data.X_train.shape == (60000, 784)


@pytest.mark.skipif("SOUBAYES_DATA" not in os.environ, reason="SOUBAYES_DATA names no folder")
def test_the_real_files():
    data = load_mnist()
    assert [a.shape for a in data] == [(60000, 784), (60000,), (10000, 784), (10000,)]
    assert np.bincount(data.y_train)[[0, 1]].tolist() == [5923, 6742]
    assert (data.X_train.max(axis=0) == data.X_train.min(axis=0)).sum() == 67

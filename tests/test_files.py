"""Files are written whole, and with the permissions of any new file."""

import os
import stat
from functools import cache

import numpy as np
import pytest

from soubayes import SoULinearRegression, SoUNetRegressor, save_model
from soubayes._files import atomic_path

X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, 0] + 0.1 * X[:, 1]


@cache
def linear():
    return SoULinearRegression(choice="path").fit(X, Y)


@cache
def network(**settings):
    return SoUNetRegressor((3,), epochs=2, batch_size=20, random_state=0, **settings).fit(X, Y)


def onnx(folder):
    pytest.importorskip("onnx")
    network().export_onnx(folder / "net.onnx")


WRITERS = {
    "save_model": lambda folder: save_model(linear(), folder / "model"),
    "to_html": lambda folder: linear().to_html(folder / "page.html"),
    "save": lambda folder: network().save(folder / "net.safetensors"),
    "checkpoint": lambda folder: network(checkpoint=folder),
    "onnx": onnx,
}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
@pytest.mark.parametrize("writer", WRITERS)
def test_the_umask_decides_on_permissions(writer, umask, tmp_path):
    before = os.umask(umask)
    try:
        WRITERS[writer](tmp_path)
    finally:
        os.umask(before)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o666 & ~umask}


def test_a_failed_block_leaves_the_old_file(tmp_path):
    path = tmp_path / "note"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as temporary:  # noqa: PT012
        temporary.write_text("new")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_may_replace_the_temporary_file(tmp_path):
    """As safetensors does, whose files are their owner's alone."""
    with atomic_path(tmp_path / "note") as temporary:
        temporary.unlink()
        temporary.touch(0o600)
    (tmp_path / "other").touch()
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1

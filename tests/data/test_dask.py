"""Dask in fresh processes, whatever runs it: nothing imports `distributed` before the first fit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("dask.dataframe")
pytest.importorskip("distributed")

SCRIPT = """
import sys
import warnings

warnings.simplefilter("error")
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd

from soubayes import SoULinearRegression, SoULogisticRegression


def main(few=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 4)) * [1.0, 2.0, 3.0, 4.0] + 5.0
    y = X[:, 0] - X[:, 1] + rng.normal(size=240)
    frame = pd.DataFrame(X, columns=list("abcd"))
    both = dd.from_pandas(frame.assign(y=y), npartitions=3)
    array = da.from_array(X, chunks=(70, 4)), da.from_array(y, chunks=70), X
    table = both[list("abcd")], both["y"], frame
    sources = {"array": (array, table), "table": (table, array)}[FIRST]
    logistic = SoULogisticRegression(confidence_coef=1.0, tol=1e-3)
    for model, target in (SoULinearRegression(choice="path"), y), (logistic, y > 5.0):
        used = sources[:1] if few else sources
        sources = sources[::-1]
        for features, numbers, memory in used:
            labels = numbers if target is y else numbers > 5.0
            expected = model.fit(memory, target).predict(memory), model.coef_
            for _ in range(2):  # the second fit, and what comes after it, broke
                model.fit(features, labels)
                np.testing.assert_allclose(model.coef_, expected[1], rtol=1e-7, atol=1e-9)
                found = model.predict(features).compute()
                np.testing.assert_allclose(found, expected[0], rtol=1e-7, atol=1e-9)
                np.testing.assert_allclose(array[0].sum().compute(), X.sum())
                assert both.groupby("y").a.count().compute().sum() == 240
    print("done")


if __name__ == "__main__":
    assert "distributed" not in sys.modules
"""

RUN = {
    "default": "main()",
    "threads, then synchronous": (
        "for scheduler in ('threads', 'synchronous'):\n"
        "        with dask.config.set(scheduler=scheduler):\n            main(few=True)"
    ),
    "processes": (
        "from concurrent.futures import ProcessPoolExecutor\n"
        "    from multiprocessing import get_context\n"
        "    with ProcessPoolExecutor(1, get_context('spawn')) as pool:\n"
        "        with dask.config.set(scheduler='processes', pool=pool):\n"
        "            main(few=True)"
    ),
    "cluster": (
        "from distributed import Client, LocalCluster\n"
        "    with LocalCluster(n_workers=1, processes=False, dashboard_address=':0') as cluster:\n"
        "        with Client(cluster):\n            main(few=True)"
    ),
}


@pytest.mark.parametrize(
    ("scheduler", "first"),
    [
        ("default", "array"),
        ("threads, then synchronous", "table"),
        ("processes", "array"),
        ("cluster", "array"),
    ],
)
def test_a_fit_leaves_dask_as_it_was(scheduler, first, tmp_path):
    """With ``few``, the linear model gets one kind of collection and the logistic the other."""
    script = tmp_path / "user.py"
    script.write_text(f"FIRST = {first!r}\n{SCRIPT}    {RUN[scheduler]}\n")
    source = str(Path(__file__).parents[2] / "src")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": source},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-1] == "done"

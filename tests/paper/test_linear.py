"""What the linear tables measure, and on how many data sets."""

from collections import Counter

import numpy as np
import pytest

from paper.linear import FIRST_SEED, grid, measure, report
from paper.linear_methods import METHODS, Fit
from paper.peers import PEERS
from paper.printed import printed_rows
from paper.storage import Row
from soubayes.datasets import Regression, experiment1


def test_measures_of_an_estimate():
    truth = np.array([1.0, 2.0, 0.0, 0.0, 0.0, 0.0])
    data = Regression(np.eye(6), truth, truth)
    estimate = np.array([1.3, 0.0, 0.2, 0.05, 0.005, 0.0])
    interval = (estimate - 0.4, np.array([1.7, 2.5, 1.0, 1.0, 1.0, 1.0]))
    row = measure(data, Fit(estimate, interval))
    errors = 0.3**2 + 2.0**2 + 0.2**2 + 0.05**2 + 0.005**2
    assert row["rmse"] == pytest.approx(np.sqrt(1 + errors))
    assert [row[f"below_1e-{k}"] for k in (1, 2, 3)] == [0.75, 0.5, 0.25]
    assert row["signals_found"] == 0.5
    assert row["coverage"] == 0.5  # the second interval holds 2, but the signal was dropped


def test_a_design_without_nulls_or_signals_is_not_a_number_instead_of_an_error():
    ones = np.ones(3)
    assert np.isnan(measure(Regression(np.eye(3), ones, ones), Fit(ones))["below_1e-3"])
    zeros = np.zeros(3)
    assert np.isnan(measure(Regression(np.eye(3), zeros, zeros), Fit(ones))["signals_found"])


@pytest.mark.parametrize("table", ["table1", "tableS1", "tableS2"])
def test_full_size_is_the_papers_with_a_hundred_data_sets(table):
    tasks = grid(table, "full")
    assert min(t.seed for t in tasks) == FIRST_SEED
    counts = Counter((t.parameters["method"], t.parameters.get("p", 50)) for t in tasks)
    rows = Counter(row.get("p", 50) for row in printed_rows(table))
    for (method, p), count in counts.items():
        if method == "horseshoe" and p >= 200:
            assert 10 * rows[p] <= count < 100 * rows[p]
        else:
            assert count == 100 * rows[p]
    quick = {(t.seed, str(t.parameters)) for t in grid(table, "quick")}
    assert quick <= {(t.seed, str(t.parameters)) for t in tasks}


def test_share_of_data_sets_far_from_the_oracle():
    where = {"design": "experiment1", "n": 25, "p": 20, "signals": 10}
    rows = [
        Row(seed, {**where, "method": method}, {"rmse": value}, "", "", 0.0, "", "", {})
        for method, values in {"oracle": [1.0, 2.0], "sou": [2.5, 3.0]}.items()
        for seed, value in enumerate(values)
    ]
    far = report("table1", rows)[-1]
    assert far.columns == ["design", "SoU-SGL"]
    assert far.rows[0][1].mean == 0.5


@pytest.mark.parametrize("method", ["abess", pytest.param("mcp", marks=pytest.mark.slow)])
def test_peers_that_are_installed_apart(method):
    pytest.importorskip({"abess": "abess", "mcp": "skglm"}[method])
    data = experiment1(55, 50, 10, random_state=0)
    coef = PEERS[method].fit(data, 0).coef
    assert coef.shape == (50,)
    assert measure(data, Fit(coef))["rmse"] < 1.5


def test_ard_intervals_match_its_posterior():
    data = experiment1(55, 20, 5, random_state=0)
    fit = PEERS["ard"].fit(data, 0)
    low, high = fit.interval
    assert np.all((low < data.coef)[:5] & (data.coef < high)[:5])
    assert np.all(low <= fit.coef)
    assert METHODS["oracle"].fit(data, 0).interval is None

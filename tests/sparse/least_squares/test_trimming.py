"""trimming: places that do not pay leave a support with groups."""

from functools import partial

import numpy as np

from soubayes import SoULinearRegression
from soubayes.sparse.least_squares.criterion import choose_support
from soubayes.sparse.least_squares.designs import Gram
from soubayes.sparse.least_squares.trimming import trimmed


def test_noise_leaves_and_signals_stay():
    rng = np.random.default_rng(0)
    n = 200
    X = rng.normal(size=(n, 8))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    places = np.array([0, 0, 0, 1, 1, 1, 2, 3])  # the first group and the column 2 are signals
    y = X[:, :3] @ np.array([0.4, -0.3, 0.3]) + 0.5 * X[:, 6] + rng.normal(size=n)
    y -= y.mean()
    design = Gram(X.T @ X, X.T @ y, float(y @ y), float(n))
    choose = partial(
        choose_support, design, sparse=np.ones(8, bool), free=1.0 / np.array([3] * 6 + [1, 1]),
        intercept=True, places=4.0, groups=np.array([0, 0, 0, 1, 1, 1, -1, -1]),
    )  # fmt: skip
    kept = trimmed(design, np.arange(8), np.full(8, 5.0), places, choose)
    np.testing.assert_array_equal(kept, [0, 1, 2, 6])
    # columns without a place are not searched, and stay
    places[3:6] = places[7] = -1
    kept = trimmed(design, np.arange(8), np.full(8, 5.0), places, choose)
    np.testing.assert_array_equal(kept, np.arange(8))


def test_a_path_with_groups_keeps_little_noise():
    kept = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(300, 20))
        y = np.sin(6 * X[:, 0]) + 2 * X[:, 1] + 4 * (X[:, 2] - 0.5) ** 2 + rng.normal(size=300)
        model = SoULinearRegression(terms="curves", choice="path").fit(X, y)
        kind = model.summary()["kind"]
        assert (kind.iloc[:2] != "absent").all()
        kept += int((kind.iloc[3:] != "absent").sum())
    assert kept <= 3  # of 204; 5 where the path's support is reported as it is

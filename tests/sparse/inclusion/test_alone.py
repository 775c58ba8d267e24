"""alone: columns without look-alikes, against the enumeration of every support."""

import numpy as np
import pytest
from test_product import quadratic, standard

from enumeration import exact_inclusion
from soubayes.sparse.inclusion import priors
from soubayes.sparse.inclusion.priors import SizePrior
from soubayes.sparse.inclusion.product import _Sweeper, fit_product
from soubayes.sparse.rows.supports import averaged


def dense(seed, n=60, p=7):
    """Most columns carry an effect, half of them weak."""
    rng = np.random.default_rng(seed)
    X, coef = rng.normal(size=(n, p)), np.array([1.5, 0.6, 0.3, -0.3, 0.2, 0.0, 0.0])
    return standard(X, X @ coef + rng.normal(size=n))


@pytest.mark.parametrize("known", [False, True])
def test_it_is_closer_to_enumeration_than_effects_alone(known, monkeypatch):
    monkeypatch.setattr(priors, "SLAB_GRID", np.array([16.0, 256.0]))
    off = {True: [], False: []}
    for seed in range(2):
        X, y = dense(seed)
        if known:
            y = 2.0 * y  # the noise was about half of it
        noise, degrees = (1.0, np.inf) if known else (None, len(y) - 1)
        data = quadratic(X, y, degrees)
        for propagated in (True, False):
            with monkeypatch.context() as patch:
                if not propagated:
                    patch.setattr(_Sweeper, "separate", lambda self, found: found)
                found = fit_product(data, (np.arange(3), np.full(3, 0.5)))
            assert found.converged
            exact, mean = exact_inclusion(
                X, y, found.slab.variance, found.slab.weight, SizePrior().weight, noise
            )
            off[propagated].append(np.abs(found.probability - exact))
            if propagated:
                np.testing.assert_allclose(averaged(found), mean, atol=0.02)
    assert np.max(off[True]) < 0.05
    assert np.mean(off[True]) < 0.5 * np.mean(off[False])


def test_columns_that_look_alike_stay_one_effect():
    X, y = dense(5)
    X[:, 6] = X[:, 0] + 0.05 * X[:, 6]
    X, y = standard(X, y)
    found = fit_product(quadratic(X, y))
    (shared,) = [effect for effect in found.effects if effect.alpha[0] > 0.1]
    assert shared.alpha[6] > 0.1
    assert shared.active == pytest.approx(1.0, abs=1e-3)
    assert all(np.count_nonzero(e.alpha) == 1 for e in found.effects if e is not shared)

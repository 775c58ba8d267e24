"""least_squares: the loss of a linear regression, from X'X or from the columns."""

import numpy as np
import pytest

from soubayes.sparse.designs.columns import standard_columns
from soubayes.sparse.least_squares.designs import Diagonal, Gram, Wide
from soubayes.sparse.least_squares.fitting import quadratic_of
from soubayes.sparse.least_squares.state import NoisePrior


def test_rows_and_their_products_are_one_loss():
    rng = np.random.default_rng(0)
    raw, y = rng.normal(size=(15, 8)), rng.normal(size=15)
    X = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    y = y - y.mean()
    noise = NoisePrior(shape=1.5, scale=2.0)
    gram = quadratic_of(Gram(X.T @ X, X.T @ y, float(y @ y), 15.0), noise, True)
    columns = standard_columns(raw, raw.mean(axis=0), raw.std(axis=0))
    wide = quadratic_of(Wide(columns, y, 15.0), noise, True)
    for name in ("norms", "scores", "yy", "n", "degrees"):
        np.testing.assert_allclose(getattr(wide, name), getattr(gram, name), atol=1e-9)
    few = np.array([6, 0, 3])
    np.testing.assert_allclose(wide.cross(few), gram.cross(few), atol=1e-9)
    # an inverse gamma prior of sigma^2 is 2 shape more residuals, whose squares sum to 2 scale
    assert gram.degrees == 15 - 1 + 3
    assert gram.yy == pytest.approx(y @ y + 4.0)


def test_other_designs_are_refused():
    with pytest.raises(TypeError, match="no posterior over supports"):
        quadratic_of(Diagonal(np.ones(2), np.ones(2), 3.0, 2.0), NoisePrior(1.0, 1.0), False)

"""Where a path begins; large scipy-sparse rows by products, against the same rows made dense."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from soubayes import SoULogisticRegression, SoUPoissonRegression
from soubayes.sparse.designs.standardise import column_units
from soubayes.sparse.dial import DialPoint
from soubayes.sparse.likelihoods.bernoulli import Bernoulli
from soubayes.sparse.rows import family, passes
from soubayes.sparse.rows.dial import fit_rows_at
from soubayes.sparse.rows.passes import RowProblem, rows_in_memory
from soubayes.sparse.rows.starts import fit_held_by_products


@pytest.fixture
def nothing_dense(monkeypatch):
    """Every scipy-sparse X counts as large."""
    for module in (passes, family):
        monkeypatch.setattr(module, "SPARSE_BYTES", 0)


def words(n=300, p=60, seed=0):
    rng = np.random.default_rng(seed)
    X = (rng.uniform(size=(n, p)) < np.linspace(0.03, 0.4, p)).astype(float)
    eta = X[:, -1] * 3.0 - X[:, -2] * 3.0 + X[:, -3] * 2.0 - 0.5
    return sp.csr_array(X), (eta + rng.logistic(size=n) > 0).astype(int)


def test_a_sure_point_by_products_is_the_one_by_factorisations(nothing_dense):
    X, y = words()
    model = SoULogisticRegression()
    model.n_features_in_ = X.shape[1]
    plan = model._family().settings.plan(X.shape[1])
    units = column_units(X, np.ones(300), True)
    order = np.arange(X.shape[1])
    for held in (0.01, 1.0):
        fits = []
        for given, fit in ((X, fit_held_by_products), (X.toarray(), fit_rows_at)):
            design = rows_in_memory(given, units, order, True)
            problem = RowProblem(Bernoulli(), design, y.astype(float), np.ones(300))
            fits.append(fit(problem, plan.model, DialPoint.sure(held)))
        np.testing.assert_allclose(fits[0].posterior.mean, fits[1].posterior.mean, atol=2e-3)
        assert fits[0].converged


def test_large_sparse_rows_are_chosen_by_prediction(nothing_dense):
    X, y = words()
    model = SoULogisticRegression(random_state=0).fit(X, y)
    assert list(model.candidates_["candidate"]) == ["sparse", "sure 0.01", "sure 0.1", "sure 1"]
    dense = LogisticRegression(C=0.3, max_iter=1000).fit(X, y)
    new, truth = words(2000, seed=1)
    ours, peer = (np.log(m.predict_proba(new))[np.arange(2000), truth] for m in (model, dense))
    assert ours.mean() > peer.mean() - 0.01
    assert set(np.flatnonzero(model.selected_[0])) >= {58, 59}


def test_a_path_by_products_ends_where_that_of_a_dense_x_does(nothing_dense):
    X, y = words()
    settings = {"confidence_coef": 12.0, "confidence_local": 1e-6}
    sparse = SoULogisticRegression(**settings).fit(X, y)
    dense = SoULogisticRegression(**settings).fit(X.toarray(), y)
    np.testing.assert_array_equal(sparse.selected_, dense.selected_)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-4)


def test_counts_of_large_sparse_rows(nothing_dense):
    X, _ = words(p=20)
    rng = np.random.default_rng(2)
    y = rng.poisson(np.exp(1.0 + X.toarray()[:, -1]))
    model = SoUPoissonRegression().fit(X, y)
    assert model.selected_[-1]

"""A likelihood, a scale prior and a grouping that the library does not have, wherever rows live.

The classes are those of docs/guide/extending.md, executed from the page itself.

Covers generalized and groups.
"""

import itertools
import re
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from scipy import integrate, optimize, stats

from soubayes import RowLikelihood, Scale, SoUGeneralizedRegression
from soubayes.sparse.scales.priors import Exponential, HalfCauchy

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "extending.md"


@pytest.fixture(scope="module")
def page():
    """The names that the page defines."""
    names = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf8"), re.S):
        exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_each_extension_is_shorter_than_60_lines():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf8"), re.S)
    assert len(blocks) == 5
    assert all(code.count("\n") < 60 for code in blocks)


def make(kind, page):
    """The estimator with one extension, at a confidence where it selects."""
    given = {"confidence_coef": 4.0, "confidence_local": 1e-3, "tol": 1e-11}
    if kind == "prior":
        given["prior"] = page["InverseGamma"]()
    if kind == "groups":
        given["feature_groups"] = np.arange(12) // 2
    likelihood = {"nuisance": "Gamma"}.get(kind, "Exact")
    return SoUGeneralizedRegression(page[likelihood](), **given)


def data(n=150, p=12):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.7)
    return X, rng.exponential(np.exp(0.5 + X[:, 0] - 0.8 * X[:, 3]))


@pytest.mark.parametrize("kind", ["likelihood", "nuisance", "prior", "groups"])
def test_every_home_of_the_rows_gives_the_same_fit(kind, page):
    X, y = data()
    dense = make(kind, page).fit(X, y)
    assert dense.converged_
    assert dense.selected_[0]
    assert dense.selected_[3]
    if kind != "prior":  # an inverse-gamma prior keeps every scale above 0
        assert dense.selected_.sum() < 9
    assert np.all(np.diff(dense.objective_) <= 0.0)
    blocks = [(X[i : i + 40], y[i : i + 40]) for i in range(0, 150, 40)]
    others = {
        "sparse": make(kind, page).fit(sp.csr_array(X), y),
        "blocks": make(kind, page).fit(blocks),
        "dask": make(kind, page).fit(da.from_array(X, (60, 12)), da.from_array(y, 60)),
    }
    for name, other in others.items():
        np.testing.assert_array_equal(other.selected_, dense.selected_, err_msg=name)
        np.testing.assert_allclose(other.coef_, dense.coef_, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(other.predict(X[:4]), dense.predict(X[:4]), rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        *itertools.product(["likelihood", "prior", "groups"], [np.asarray, sp.csr_array]),
        ("nuisance", np.asarray),
    ],
)
def test_more_columns_than_rows(kind, form, page):
    n, p = (40, 400) if kind == "prior" else (30, 150)
    X, y = data(n, p)
    model = make(kind, page)
    if kind == "groups":
        model.set_params(feature_groups=np.arange(p) // 2)
    model.set_params(tol=1e-7).fit(form(X), y)
    assert model.converged_
    assert 0 < model.selected_.sum() < (p if kind == "prior" else n)
    assert np.all(np.diff(model.objective_) <= 0.0)
    if kind == "groups":
        pairs = model.selected_.reshape(-1, 2)
        np.testing.assert_array_equal(pairs[:, 0], pairs[:, 1])


def test_quadrature_and_closed_form_agree(page):
    mean, variance, y = np.array([0.3, -1.0]), np.array([0.5, 2.0]), np.array([0.2, 3.0])
    by_nodes = page["Waiting"]().terms(mean, variance, y)
    closed = page["Exact"]().terms(mean, variance, y)
    for one, two in zip(by_nodes, closed, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9)
    density = page["Exact"]().log_density(mean, variance, y)
    for i in range(2):
        eta = stats.norm(mean[i], np.sqrt(variance[i]))

        def joint(e, i=i, eta=eta):
            return eta.pdf(e) * np.exp(-e - y[i] * np.exp(-e))

        value, _ = integrate.quad(joint, -12, 12)
        assert density[i] == pytest.approx(np.log(value), rel=1e-5)


@pytest.mark.parametrize("wide", [False, True])
def test_the_shape_of_gamma_regression_is_the_best_one(wide, page):
    """q(k) minimises J at the fitted q(beta): any other is worse by gamma KL(other || q)."""
    X, y = data(40, 300) if wide else data()
    model = make("nuisance", page)
    if wide:
        model.set_params(confidence_local=1.0)  # nothing is dropped: systems of n x n
    model.fit(X, y)
    assert model.converged_
    assert np.all(np.diff(model.objective_) <= 1e-9 * abs(model.objective_[-1]))
    fitted = model.likelihood_
    spread = [part[0] for part in model._predictors(X)[0]]

    def share(likelihood):
        return likelihood.terms(*spread, y).loss.sum() + likelihood.kl

    for move in (-0.5, 0.2):
        other = fitted.q * np.exp(move * np.log(fitted.k))
        other = type(fitted)(other / other.sum())
        kl = other.q @ np.log(np.maximum(other.q, 1e-300) / np.maximum(fitted.q, 1e-300))
        assert share(other) - share(fitted) == pytest.approx(kl, rel=0.05, abs=1e-3)
    # the data are exponential: shape 1
    if not wide:
        assert fitted.q @ fitted.k == pytest.approx(1.0, abs=0.3)
    total = share(fitted) + sum(
        model.kl_[name] * gamma
        for name, gamma in [
            ("coef", model.confidence_coef),
            ("local", model.confidence_local),
            ("global", 1.0),
            ("intercept", 1.0),
        ]
    )
    assert total == pytest.approx(model.objective_[-1], rel=1e-5)
    assert model.kl_["shape"] == fitted.kl


def test_defaults_of_a_scale_prior_are_the_minimum(page):
    """Best ratio, best shape and the joint fit, against direct minimisation of J."""
    prior = page["InverseGamma"](2.0, 0.3)
    weights = (0.5, 0.2, 0.1)
    q = prior.fit(*weights)

    def value(x):
        return float(prior.objective(Scale(np.exp(x[0]), np.exp(x[1])), *weights))

    found = optimize.minimize(value, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9})
    assert float(prior.objective(q, *weights)) <= found.fun + 1e-9
    # conjugate: q = Inv-Gamma(shape + A/confidence, scale + E/confidence)
    assert float(q.shape) == pytest.approx(2.0 + 0.5 / 0.1, rel=1e-4)
    assert float(q.shape * q.ratio) == pytest.approx(0.3 + 0.2 / 0.1, rel=1e-4)


@pytest.mark.parametrize("prior", [Exponential(10.0), HalfCauchy()])
def test_general_defaults_equal_the_closed_forms(prior):
    """What a new prior inherits gives what the two priors of the library have in closed form."""

    class Plain(type(prior)):
        from soubayes.sparse.scales.base import ScalePrior as _Base

        best_ratio, best_shape, fit = _Base.best_ratio, _Base.best_shape, _Base.fit

    plain = Plain(**vars(prior))
    for A, E, gamma in ((0.5, 0.2, 0.1), (1.0, 3.0, 1.0), (0.5, 1e-3, 0.01)):
        own, general = prior.fit(A, E, gamma), plain.fit(A, E, gamma)
        assert plain.objective(general, A, E, gamma) == pytest.approx(
            float(prior.objective(own, A, E, gamma)), abs=1e-8
        )
        np.testing.assert_allclose(general.ratio, own.ratio, rtol=1e-4)


def test_wrong_extensions_are_explained(page):
    X, y = data()
    with pytest.raises(TypeError, match="subclass of RowLikelihood"):
        SoUGeneralizedRegression("poisson").fit(X, y)
    with pytest.raises(TypeError, match=r"pass an instance, Waiting\(\)"):
        SoUGeneralizedRegression(page["Waiting"]).fit(X, y)
    with pytest.raises(ValueError, match="y holds text: it must hold numbers"):
        SoUGeneralizedRegression(page["Waiting"]()).fit(X, np.full(len(y), "red"))
    with pytest.raises(ValueError, match="Broken gives a loss that is not a finite number"):
        SoUGeneralizedRegression(Broken()).fit(X, y)
    with pytest.raises(ValueError, match="not above 0"):
        make("likelihood", page).fit(X, y - 1.0)
    with pytest.raises(TypeError, match="ScalePrior"):
        make("likelihood", page).set_params(prior=InverseError).fit(X, y)
    with pytest.raises(ValueError, match="3 labels, but X has 12 columns"):
        make("likelihood", page).set_params(feature_groups=[1, 2, 3]).fit(X, y)
    blocks = {"a": {"columns": [0], "confidence": 2.0}}
    with pytest.raises(ValueError, match="more than one feature block"):
        make("groups", page).set_params(feature_blocks=blocks).fit(X, y)


class Broken(RowLikelihood):
    """Its loss is nowhere a number."""

    def derivatives(self, eta, y):
        return np.nan * eta, eta, eta

    def predict(self, mean, variance):
        return mean


class InverseError:
    """Not a scale prior."""

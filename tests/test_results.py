"""How results show themselves, and the export to ArviZ, by what the user has installed."""

import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import soubayes
from soubayes import results


def installed(monkeypatch, number):
    def version(name):
        assert name == "arviz"
        if number is None:
            raise PackageNotFoundError(name)
        return number

    monkeypatch.setattr(results, "version", version)


@pytest.mark.parametrize("number", [None, "1.0.0", "1.2.0rc1"])
def test_a_datatree_without_arviz_or_with_a_new_one(monkeypatch, number):
    installed(monkeypatch, number)
    data = results.to_inference_data({"mu": np.arange(3.0)}, engine="exact")
    assert type(data).__name__ == "DataTree"
    assert data.posterior["mu"].dims == ("chain", "draw")
    assert data.posterior.attrs["engine"] == "exact"
    statistics = pytest.importorskip("arviz_stats")
    assert len(statistics.summary(results.to_inference_data({"mu": np.arange(9.0)}))) == 1


def test_the_object_of_an_old_arviz(monkeypatch):
    installed(monkeypatch, "0.23.4")
    made = []

    def from_dict(posterior):
        made.append(posterior)
        return SimpleNamespace(posterior=SimpleNamespace(attrs={}))

    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(from_dict=from_dict))
    data = results.to_inference_data({"mu": np.arange(3.0)}, value=2.0)
    assert made[0]["mu"].shape == (1, 3)
    assert data.posterior.attrs == {"value": 2.0}


def make_results():
    """A result of every kind that is cheap to make."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    model = soubayes.Model(
        [
            soubayes.Block("scale <b>", stats.expon()),
            soubayes.Block("mean", lambda scale: stats.norm(0, scale)),
        ],
        loss=lambda scale, mean: 0.5 * (2.0 - mean) ** 2,
    )
    posterior = soubayes.solve_exact(model, {"scale <b>": 0.1})
    linear = soubayes.SoULinearRegression(inclusion=True).fit(X, X[:, 0] + rng.normal(size=60))
    update = soubayes.conjugate_update("normal", [1.0, 2.0], mean=0, sd=1, noise_sd=1)
    table = pd.DataFrame({"gamma": [0.1, 1.0], "score": [-1.2, -1.0], "standard_error": 0.1})
    return {
        "model": model,
        "block": model.blocks[1],
        "modules": soubayes.Model(model.blocks, {"mean": model.loss}),
        "posterior": posterior,
        "objective": soubayes.Objective({"mu": 2.0}, 1.0, {"mu": 1.5}, {"mu": 1.0}),
        "update": update,
        "supports": linear.supports_,
        "sparsity": linear.sparsity_,
        "selection": soubayes.Selection(table, {"gamma": 1.0}, None, "best"),
        "summary": linear.summary(),
        "sets": linear.supports_.credible_sets(),
        "path": linear.sparse_.path_,
        "estimator": linear,
    }


NAMES = (
    "model", "block", "modules", "posterior", "objective", "update", "supports",
    "sparsity", "selection", "summary", "sets", "path", "estimator",
)  # fmt: skip


@pytest.fixture(scope="module")
def shown():
    found = make_results()
    assert set(NAMES) == set(found)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_results_show_themselves_without_addresses(name, shown):
    """As text and in a notebook; names are text there, not HTML."""
    found = shown[name]
    assert " at 0x" not in repr(found)
    assert "scale <b>" not in found._repr_html_()
    if name in ("posterior", "supports", "objective", "selection", "model", "summary"):
        assert "<table" in found._repr_html_()


def test_every_result_shows_itself_in_a_notebook(shown):
    """All public classes but descriptions of models, networks and losses, and a warning."""
    described = {
        "Conv", "Discrete", "EventTree", "ForwardKL", "GaussianBlock",
        "GaussianModel", "Pool", "QuadraticLoss", "QuadratureWarning", "Renyi", "Residual",
        "RowLikelihood", "RowTerms", "Scale", "ScalePrior", "SoUELBO",
    }  # fmt: skip
    public = {name: getattr(soubayes, name) for name in soubayes.__all__}
    silent = {
        name
        for name, each in public.items()
        if isinstance(each, type) and not hasattr(each, "_repr_html_")
    }
    assert silent == described
    assert " at 0x" not in repr(shown["estimator"].mixtures_)


def test_a_model_prints_its_priors_and_what_its_loss_reads(shown):
    assert repr(shown["model"]).splitlines() == [
        "Model(loss: function of scale, mean)",
        "    block             prior",
        "scale <b>           expon()",
        "     mean function of scale",
    ]
    assert repr(shown["modules"]).startswith("Model(loss: {mean: function of scale, mean})")
    assert repr(shown["block"]) == "Block('mean', function of scale)"


def test_no_column_of_a_summary_is_cut_off(shown):
    """Nor of a part of it, on a terminal of 40 characters."""
    for table in (shown["summary"], shown["summary"].query("selected"), shown["sets"]):
        with pd.option_context("display.width", 40, "display.max_columns", 0):
            assert all(name in repr(table) for name in table)
            assert "..." not in repr(table)
            assert all(f">{name}<" in table._repr_html_() for name in table)

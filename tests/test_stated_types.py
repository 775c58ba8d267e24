"""Docstrings keep their word: what is stated as a type is what a small fit gives.

Every attribute, and every result of a function or method, of every public name. A class of which
nothing is made here, and a type that `holds` does not know, fail.
"""

import dataclasses
import importlib
import inspect
import re
import sys
from functools import cache
from numbers import Integral, Real
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpydoc.docscrape import ClassDoc, FunctionDoc
from scipy import stats
from sklearn.base import BaseEstimator

import soubayes

sys.path.append(str(Path(__file__).parents[1] / "docs"))
methods = importlib.import_module("docstring_rules").methods

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
Y = X[:, 0] - X[:, 1] + 0.3 * RNG.normal(size=60)
BINARY, THREE = (Y > 0).astype(int), np.digitize(Y, [-0.7, 0.7])
COUNTS = np.round(np.exp(Y))
TIMES = BINARY > 0, np.exp(Y)
FRAME = pd.DataFrame(
    {"x": [1.0, None, 3.0], "kind": ["a", "b", "c"], "day": ["2026-01-02", None, "2026-03-04"]}
)

# ---- what a stated type means -------------------------------------------------------------------

ARRAY = re.compile(
    r"ndarray(?: of (?P<kind>bool|int|float|str))?"
    r"(?:,? of (?:shape (?P<shapes>\(.*\))|the shape of ``(?P<like>\w+)``|the same shape))?"
)
SEVERAL = re.compile(r"(.*), or (?:a )?list of (?:them|distributions)")
PLAIN = {
    "float": lambda v: isinstance(v, Real) and not isinstance(v, bool | np.bool_ | Integral),
    "int": lambda v: isinstance(v, Integral) and not isinstance(v, bool),
    "bool": lambda v: isinstance(v, bool | np.bool_),
    "str": lambda v: isinstance(v, str),
    "None": lambda v: v is None,
    "object": lambda v: True,
    "callable": callable,
    "estimator": lambda v: hasattr(v, "get_params"),
    "distribution": lambda v: hasattr(v, "mean") and hasattr(v, "ppf"),
    "distributions": lambda v: hasattr(v, "mean") and hasattr(v, "ppf"),
    "frozen scipy.stats distribution": lambda v: hasattr(v, "dist"),
    "ndarray of matplotlib.axes.Axes": lambda v: all(type(one).__name__ == "Axes" for one in v),
    "pandas.DataFrame": lambda v: isinstance(v, pd.DataFrame),
}
KINDS = {"bool": "b", "int": "iu", "float": "f", "str": "UO"}
CONTAINERS = {"list": list, "tuple": tuple, "set": set, "sequence": (list, tuple)}


def holds(stated: str, value, owner=None) -> bool:
    """Whether a value is of the type that numpydoc states in words."""
    optional = re.search(r", (optional|default=.*)$", stated)
    stated = stated[: optional.start()] if optional else stated
    if optional and value is None:
        return True
    if stated.startswith("array-like"):
        return isinstance(value, list | tuple | np.ndarray | Real)
    if (found := ARRAY.fullmatch(stated)) is not None:
        return is_array(found, value, owner)
    if (
        found := re.fullmatch(r"(.*), or (?:a )?list of (?:them|distributions)", stated)
    ) is not None:
        each = value if isinstance(value, list) else [value]
        return all(holds(found[1], one, owner) for one in each)
    if " or " in stated:
        return any(holds(part, value, owner) for part in re.split(r",? or |, ", stated))
    if (found := re.fullmatch(r"(?:dict|mapping) of (\w+) to (.*)", stated)) is not None:
        keys, values = ({} if not isinstance(value, dict) else value).items(), found[2]
        inside = all(holds(found[1], k) and holds(values, v, owner) for k, v in keys)
        return isinstance(value, dict) and inside
    if (found := re.fullmatch(r"(list|tuple|set|sequence) of (.*)", stated)) is not None:
        kind = CONTAINERS[found[1]]
        return isinstance(value, kind) and all(holds(found[2], one, owner) for one in value)
    if stated in PLAIN:
        return PLAIN[stated](value)
    if stated in ("dict", "mapping", "list", "tuple"):
        return isinstance(value, {"dict": dict, "mapping": dict}.get(stated) or CONTAINERS[stated])
    return any(kind.__name__ == stated.rpartition(".")[2] for kind in type(value).__mro__)


def is_array(found: re.Match, value, owner) -> bool:
    if not isinstance(value, np.ndarray):
        return False
    if found["kind"] and value.dtype.kind not in KINDS[found["kind"]]:
        return False
    if found["like"]:
        return value.shape == np.shape(getattr(owner, found["like"]))
    shapes = re.findall(r"\(([^)]*)\)", found["shapes"] or "")
    return not shapes or any(fits_shape(shape, value.shape) for shape in shapes)


SIZES = {"p": 4, "targets": 2, "n_classes": (2, 3), "outputs": 2, "units": 30, "n": None}


def fits_shape(stated: str, shape: tuple[int, ...]) -> bool:
    sizes = [part.strip() for part in stated.split(",") if part.strip()]
    return len(sizes) == len(shape) and all(
        (wanted := int(size) if size.isdigit() else SIZES.get(size)) is None
        or there in np.atleast_1d(wanted)
        for size, there in zip(sizes, shape, strict=True)
    )


@pytest.mark.parametrize(
    ("stated", "value", "right"),
    [
        ("float", 1.0, True),
        ("float", np.float64(1.0), True),
        ("float", 1, False),
        ("int", True, False),
        ("ndarray", pd.DataFrame(), False),
        ("tuple of str", np.array(["a"]), False),
        ("ndarray of shape (p,) or (targets, p)", np.zeros(3), False),
        ("ndarray of shape (p,) or (targets, p)", np.zeros((2, 4)), True),
        ("dict of str to float", {"a": 1.0}, True),
        ("dict of str to float", {"a": np.ones(1)}, False),
        ("pandas.DataFrame, or a list of them", [pd.DataFrame(), pd.DataFrame()], True),
        ("pandas.DataFrame, or a list of them", [1], False),
        ("str or None", None, True),
    ],
)
def test_the_rule_itself(stated, value, right):
    assert holds(stated, value) == right


# ---- one of everything --------------------------------------------------------------------------


def normal(y=None):
    import numpyro
    import numpyro.distributions as dist

    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    x = numpyro.sample("x", dist.Normal(mu, 1.0).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x.sum(), 1.0), obs=y)


class Exponential(soubayes.RowLikelihood):
    def derivatives(self, eta, y):
        ratio = y * np.exp(-eta)
        return eta + ratio, 1.0 - ratio, ratio

    def predict(self, mean, variance):
        return np.exp(mean + variance / 2.0)


SMALL = {"hidden": (4,), "epochs": 3, "batch_size": 30, "random_state": 0}
TREE = {("u", "l"): 1, ("u", "r"): 1, ("d", "l"): 2}


def act(first, second):
    return float(second == "l")


@cache
def exact():
    model = soubayes.Model(
        [soubayes.Block("mu", stats.norm(0, 1))], loss=lambda mu: (mu - 2) ** 2 / 2
    )
    block = soubayes.GaussianBlock("mu", [0.0, 0.0], 1.0)
    loss = soubayes.QuadraticLoss.least_squares(X[:, :2], Y, noise_variance=1.0)
    gaussian = soubayes.GaussianModel([block], loss)
    return model, block, loss, gaussian


@cache
def fitted():
    return soubayes.fit(normal, 2.0, num_draws=50, restarts=1)


@cache
def draws():
    return {"mu": RNG.normal(size=2000), "x": RNG.normal(size=(2000, 2))}


def with_sparse(model):
    """A mixture of candidates, and its sparse point."""
    return [model, model.sparse_]


@cache
def made(name: str) -> list:
    """A few objects of a public class."""
    kind = getattr(soubayes, name)
    makers = {
        "Block": lambda: list(exact()[0].blocks),
        "Model": lambda: [exact()[0]],
        "Discrete": lambda: [kind(["a", "b"], [0.5, 0.5])],
        "GaussianBlock": lambda: [exact()[1]],
        "GaussianModel": lambda: [exact()[3]],
        "QuadraticLoss": lambda: [exact()[2]],
        "ExactPosterior": lambda: [
            soubayes.solve_exact(exact()[0]),
            soubayes.solve_gaussian(exact()[3]),
        ],
        "Objective": lambda: [soubayes.objective(exact()[0], {"mu": stats.norm(1, 0.5)})],
        "ConjugateUpdate": lambda: [
            soubayes.conjugate_update("normal", Y, confidence=0.5, mean=0.0, sd=1.0, noise_sd=1.0)
        ],
        "EventTree": lambda: [kind(TREE, stages=("first", "second"))],
        "SoULinearRegression": lambda: [
            kind(inclusion=True).fit(X, Y),
            kind(choice="path", inclusion=True).fit(X, np.c_[Y, X[:, 2]]),
        ],
        "SoULogisticRegression": lambda: [
            kind(inclusion=True).fit(X, BINARY),
            kind(choice="path", confidence_coef="auto").fit(X, THREE),
        ],
        "Supports": lambda: [
            one.supports_
            for one in (
                *made("SoULinearRegression"),
                soubayes.SoULinearRegression(
                    choice="path", inclusion=True, feature_groups=["a", "a", "b", "c"]
                ).fit(X, Y),
            )
        ],
        "SoUNormalMeans": lambda: [kind().fit(RNG.normal(size=(30, 3)))],
        "SoUGeneralizedRegression": lambda: [
            kind(Exponential(), inclusion=True).fit(X, np.exp(Y)),
            kind(Exponential(), choice="path").fit(X, np.exp(Y)),
        ],
        "SoUCoxRegression": lambda: [
            kind(inclusion=True).fit(X, TIMES),
            kind(choice="path", priors={"baseline_mass": 1.0}).fit(X, TIMES),
        ],
        "SoUPoissonRegression": lambda: with_sparse(kind(inclusion=True).fit(X, COUNTS)),
        "SoUNegativeBinomialRegression": lambda: with_sparse(kind(inclusion=True).fit(X, COUNTS)),
        "SoUOrdinalRegression": lambda: with_sparse(kind(inclusion=True).fit(X, THREE)),
        "SoUGammaRegression": lambda: with_sparse(kind(inclusion=True).fit(X, np.exp(Y))),
        "SoUNetRegressor": lambda: [
            kind(**SMALL).fit(X, Y),
            kind(**SMALL, validation_fraction=0.2).fit(X, np.c_[Y, X[:, 2]]),
        ],
        "SoUNetClassifier": lambda: [kind(**SMALL).fit(X, THREE)],
        "SoUNetEnsemble": lambda: [
            kind(soubayes.SoUNetRegressor(**SMALL), confidences=(0.1, 1.0)).fit(X, Y),
            kind(soubayes.SoUNetClassifier(**SMALL), confidences=(0.1, 1.0)).fit(X, THREE),
        ],
        "SoUPosterior": lambda: [fitted()],
        "MixturePosterior": lambda: [kind(np.array([0.5, 0.5]), (fitted(), fitted()))],
        "NestedPosterior": lambda: [
            soubayes.sample_sou(
                normal,
                2.0,
                confidence={},
                num_draws=50,
                particles=32,
                inner_particles=16,
                temperatures=4,
            )
        ],
        "PosteriorFamily": lambda: [
            soubayes.fit_family(
                normal, 2.0, confidence={"mu": (0.5, 2.0)}, steps=200, tol=0.1, num_draws=256
            )
        ],
        "Quality": lambda: [fitted().quality],
        "Diagnosis": lambda: [soubayes.diagnose(fitted())],
        "Reweighted": lambda: [soubayes.reweight(draws(), normal, 2.0, confidence={"mu": 0.9})],
        "ReweightedFamily": lambda: [
            soubayes.reweight_family(draws(), normal, 2.0, confidence={"mu": (0.8, 1.2)})
        ],
        "Sensitivity": lambda: [soubayes.sensitivity(draws(), normal, 2.0)],
        "Selection": lambda: [
            soubayes.select_confidence(
                soubayes.SoULinearRegression(), (X, Y), {"confidence_coef": [1.0, 4.0]}, cv=2
            )
        ],
        "RowLikelihood": lambda: [Exponential()],
        "RowTerms": lambda: [Exponential().terms(Y, np.ones(60), np.exp(Y))],
        "Scale": lambda: [kind(np.array([2.0, 3.0]), np.array([0.5, 1.0]))],
        "ScalePrior": lambda: [
            importlib.import_module("soubayes.sparse.scales.priors").Exponential(10.0)
        ],
        "TableEncoder": lambda: [kind(dates=("day",)).fit(FRAME)],
        "Conv": lambda: [kind(3, 2)],
        "Pool": lambda: [kind(2)],
        "Residual": lambda: [kind()],
        "Renyi": lambda: [kind(0.5)],
        "ForwardKL": lambda: [kind()],
        "SoUELBO": lambda: [kind({"mu": 0.5})],
        "QuadratureWarning": lambda: [kind("text")],
    }
    return makers[name]()


CLASSES = [name for name in soubayes.__all__ if inspect.isclass(getattr(soubayes, name))]


# arguments of methods, by name or by class and name
ARGUMENTS = {
    **dict.fromkeys(
        ("predict", "predict_proba", "predict_log_proba", "decision_function", "uncertainty"), (X,)
    ),
    **dict.fromkeys(("sample_functions", "predict_interval"), (X,)),
    **dict.fromkeys(("mean", "sd", "mean_se", "sd_se", "marginal"), ("mu",)),
    **dict.fromkeys(("value", "worst_case", "solve"), (act,)),
    **dict.fromkeys(("MixturePosterior.sample", "NestedPosterior.sample"), (3,)),
    **dict.fromkeys(("ExactPosterior.sample", "Reweighted.sample", "SoUPosterior.sample"), (3,)),
    **dict.fromkeys(("SoUPosterior.predictive", "MixturePosterior.predictive"), (None,)),
    "SoUPosterior.log_likelihood": (2.0,),
    **dict.fromkeys(("TableEncoder.transform", "gaps", "unseen"), (FRAME,)),
    **dict.fromkeys(("PosteriorFamily.at", "ReweightedFamily.at"), ({"mu": 0.8},)),
    **dict.fromkeys(("PosteriorFamily.path", "ReweightedFamily.path"), ("mu", 2)),
    **dict.fromkeys(("ReweightedFamily.curve", "ReweightedFamily.plot_curve"), ("mu", "mu", 2)),
    "PosteriorFamily.choose": (2.0,),
    "quantile": ("mu", 0.5),
    "rank": ({"a": act},),
    "fit": None,  # made
    "partial_fit": (X, Y),
    "at": (1.0,),
    "load": None,
    "log_density": (X, Y),
    "SoUNetClassifier.log_density": (X, THREE),
    "SoUNetEnsemble.log_density": (X, THREE),
    "SoUNetEnsemble.score": (X, THREE),
    **{
        f"SoU{family}Regression.{name}": (X, y)
        for family, y in {
            "Generalized": np.exp(Y),
            "Gamma": np.exp(Y),
            "Poisson": COUNTS,
            "NegativeBinomial": COUNTS,
        }.items()
        for name in ("log_density", "log_score", "score")
    },
    "noise": (Y,),
    "cdf": (np.exp(Y), Y),
    "predict_variance": (Y, np.ones(60)),
    "predict_cdf": (np.exp(Y), Y, np.ones(60)),
    "deviance": (np.exp(Y), np.ones(60)),
    "centre": (1.0, 60.0),
    "plot_predictive": None,  # of networks of one or two columns
    **{
        f"SoUCoxRegression.{name}": (X, TIMES)
        for name in ("fit", "fit_transform", "score", "log_score", "integrated_brier_score")
    },
    "SoUCoxRegression.check_hazards": (X, TIMES),
    "SoUCoxRegression.schoenfeld_residuals": (X, TIMES),
    **dict.fromkeys(("predict_survival_function", "predict_cumulative_hazard"), (X,)),
    "Scale.at": (np.array([1.0, 2.0]),),
    "Scale.take": (np.array([0]),),
    "least_squares": (X, Y, 1.0),
    "check": (Y,),
    "terms": (Y, np.ones(60), np.exp(Y)),
    "RowLikelihood.log_density": (Y, np.ones(60), np.exp(Y)),
    "RowLikelihood.predict": (Y, np.ones(60)),
    "plug_in": (Y, np.exp(Y)),
    "derivatives": (Y, np.exp(Y)),
    "statistics": (Y, np.ones(60), np.exp(Y)),
    "updated": None,  # of likelihoods with nuisance parameters
    # of estimators with terms (tests/sparse/estimators/test_terms.py)
    **dict.fromkeys(("term_effects", "variance_components")),
    "SoUELBO.terms": None,  # inside a program of JAX
    "SoUELBO.loss_with_mutable_state": None,
    "ScalePrior.kl": (soubayes.Scale(np.array([2.0]), np.array([0.5])),),
    "ScalePrior.kl_slope": (soubayes.Scale(np.array([2.0]), np.array([0.5])),),
    **dict.fromkeys(("ScalePrior.fit",), (np.array([1.0]), np.array([1.0]), np.array([1.0]))),
    "ScalePrior.best_shape": (np.array([1.0]), np.array([1.0]), np.array([1.0])),
    "ScalePrior.best_ratio": (np.array([2.0]), *(np.array([1.0]) for _ in range(3))),
    **dict.fromkeys(
        ("ScalePrior.coordinate_step", "ScalePrior.objective"),
        (soubayes.Scale(np.array([2.0]), np.array([0.5])), *(np.array([1.0]) for _ in range(3))),
    ),
}
# objects of which a method does not make sense
CANNOT = {
    "SoULinearRegression.partial_fit": lambda one: one.coef_.ndim == 2,
}


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    yield
    plt.close("all")


@pytest.mark.parametrize("name", CLASSES)
def test_attributes_and_results_are_of_the_type_that_is_stated(name):
    kind = getattr(soubayes, name)
    assert all(isinstance(one, kind) for one in made(name))
    wrong = list(wrong_attributes(kind, made(name)))
    for method, function in methods(kind):
        if returns := FunctionDoc(function)["Returns"]:
            wrong += wrong_results(name, method, returns)
    assert wrong == []


def wrong_attributes(kind, objects):
    """Those of plain data are its parameters. Each is there after one of the fits."""
    doc = ClassDoc(kind)
    told = [entry for entry in doc["Attributes"] if entry.type]
    data = dataclasses.is_dataclass(kind) and not issubclass(kind, BaseEstimator)
    if data or hasattr(kind, "_fields"):
        told += doc["Parameters"]
    for entry in told:
        values = [(one, getattr(one, entry.name)) for one in objects if hasattr(one, entry.name)]
        if not values:
            yield f"no {entry.name}"
        for one, value in values:
            if not holds(entry.type, value, one):
                yield f"{entry.name} : {entry.type}, but it is a {type(value)} {value!r:.60}"


def wrong_results(name, method, returns):
    arguments = ARGUMENTS.get(f"{name}.{method}", ARGUMENTS.get(method, ()))
    able = [one for one in made(name) if not CANNOT.get(f"{name}.{method}", lambda _: False)(one)]
    able = [one for one in able if hasattr(one, method)]  # what depends on a setting
    if not able:
        yield f"no object to call {method} of"
    for one in able if arguments is not None else ():
        value = getattr(one, method)(*arguments)
        several = isinstance(value, tuple) and len(returns) == len(value)
        for entry, part in zip(returns, value if several else [value], strict=several):
            if not holds(entry.type, part, one):
                yield f"{method}: {entry.type}, but it is a {type(part)} {part!r:.60}"


# ---- functions ----------------------------------------------------------------------------------


def results():
    """A call of every public function."""
    tree = made("EventTree")[0]
    linear = made("SoULinearRegression")[0]
    model, _, _, gaussian = exact()
    update = {"confidence": 0.5, "mean": 0.0, "sd": 1.0, "noise_sd": 1.0}
    return {
        "stan_log_priors": lambda: soubayes.stan_log_priors(
            "parameters { real x; } model { x ~ normal(0, 1); }"
        ),
        "solve_exact": lambda: made("ExactPosterior")[0],
        "solve_gaussian": lambda: soubayes.solve_gaussian(gaussian),
        "objective": lambda: made("Objective")[0],
        "conjugate_update": lambda: soubayes.conjugate_update("normal", Y, **update),
        "confidence_path": lambda: soubayes.confidence_path(model, "mu", [0.5, 1.0]),
        "confidence_for_kl": lambda: soubayes.confidence_for_kl(model, {"mu": 0.1}),
        "plot_event_tree": lambda: soubayes.plot_event_tree(tree, act),
        "plot_prior_vs_confidence": soubayes.plot_prior_vs_confidence,
        "plot_coefficients": lambda: soubayes.plot_coefficients(linear),
        "plot_path": lambda: soubayes.plot_path(linear),
        "plot_shrinkage": lambda: soubayes.plot_shrinkage(linear),
        "plot_hazards": lambda: soubayes.plot_hazards(made("SoUCoxRegression")[0], X, TIMES, 0),
        "plot_confidences": lambda: soubayes.plot_confidences(linear),
        "plot_credible_sets": lambda: soubayes.plot_credible_sets(linear),
        "horseshoe_gibbs": lambda: soubayes.horseshoe_gibbs(X, Y, draws=20, warmup=10, chains=1),
    }


# functions that `made` calls, and the class of what they return
MAKERS = {
    "fit": "SoUPosterior",
    "diagnose": "Diagnosis",
    "fit_family": "PosteriorFamily",
    "sample_sou": "NestedPosterior",
    "reweight": "Reweighted",
    "reweight_family": "ReweightedFamily",
    "sensitivity": "Sensitivity",
    "select_confidence": "Selection",
}
# files, data and terms have tests of their own; losses and calibration run in their doctests
ELSEWHERE = {
    "from_formula",
    "plot_terms",
    "load_model",
    "save_model",
    "simulation_based_calibration",
} | {f"{name}_loss" for name in ("beta", "gamma", "hinge", "huber", "quantile")}


def test_results_of_functions_are_of_the_type_that_is_stated():
    functions = set(soubayes.__all__) - set(CLASSES) - ELSEWHERE
    calls = results()
    assert functions == {*calls, *MAKERS}
    for name, kind in MAKERS.items():
        assert FunctionDoc(getattr(soubayes, name))["Returns"][0].type == kind
    for name, call in calls.items():
        value = call()
        (entry,) = FunctionDoc(getattr(soubayes, name))["Returns"]
        assert holds(entry.type, value), f"{name}: {entry.type}, but it is a {type(value)}"

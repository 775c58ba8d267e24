"""The parameters that sparse estimators share: their defaults, their descriptions, their checks.

A class marked by `estimator` has the parameters that it and its bases annotate. Its docstring says
only what is special: descriptions of shared parameters and attributes come from the classes here.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from soubayes._docstrings import fill_docstrings
from soubayes._types import FeatureBlocks, FeatureGroups, Folds
from soubayes.confidence import check_choice, check_confidence, check_gamma, shown
from soubayes.data.rows import checks_rows
from soubayes.sparse.choice.folds import check_folds
from soubayes.sparse.estimators.terms import with_terms
from soubayes.sparse.scales.base import ScalePrior
from soubayes.sparse.scales.priors import make_prior

Made = TypeVar("Made")

# parameters in the order of use: the response, what is fitted, how it is chosen, confidences and
# priors, then how it is computed
ORDER = (
    "self", "likelihood", "levels", "noise", "degrees_of_freedom", "shape", "dispersion", "ties",
    "multi_class", "terms", "feature_groups", "feature_blocks", "fit_intercept", "choice",
    "inclusion", "confidence_coef", "confidence_local", "confidence", "prior", "priors", "bound",
    "cv", "random_state", "n_jobs", "solver", "max_iter", "tol", "verbose",
)  # fmt: skip
# numbers of priors that users may change, with their defaults
PRIOR_NUMBERS: dict[str, float | None] = {
    "rate_local": 10.0, "rate_global": 10.0, "intercept_variance": 10.0, "noise_shape": 1e-3,
    "noise_scale": None, "baseline_mass": 0.0,
}  # fmt: skip

# parameters of methods
METHOD_PARAMETERS = """
X : array-like or sparse matrix of shape (n, p), or Dask collection
    The rows.
y : array-like of shape (n,)
    Their targets.
sample_weight : array-like of shape (n,), optional
    A weight of 2 counts a row twice.
groups : array-like of shape (n,), optional
    Which rows belong together, such as those of one patient. Folds hold out whole groups.
offset : array-like of shape (n,), optional
    Known parts of the linear predictors; 0 if left out.
exposure : array-like of shape (n,), optional
    Exposures of the rows; 1 if left out.
"""


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def estimator(cls: type[Made]) -> type[Made]:
    """Make ``__init__`` from the annotations, as a dataclass does, and complete the docstrings.

    Methods check the rows that they are given.
    """
    made: Any = dataclass(kw_only=True, eq=False, repr=False)(cls)
    signature = inspect.signature(made.__init__)
    last = len(ORDER)
    given = sorted(
        signature.parameters.values(),
        key=lambda one: ORDER.index(one.name) if one.name in ORDER else last,
    )
    made.__init__.__signature__ = signature.replace(parameters=given)
    return with_terms(checks_rows(fill_docstrings(METHOD_PARAMETERS)(made)))


@estimator
class SparseParameters:
    r"""What every sparse estimator has.

    Parameters
    ----------
    confidence_coef : "auto" or float, default="auto"
        Confidence in the prior of the coefficients (paper: :math:`\gamma_\beta`), the threshold of
        the selection. ``"auto"`` leaves it to ``choice``. With a number nothing is chosen by
        prediction.
    confidence_local : "auto" or float, default="auto"
        Confidence in the prior of the local scales (:math:`\gamma_\tau`). A small value makes a
        coefficient either free or zero. ``"auto"`` leaves it to ``choice``; without a choice it is
        1e-6. If it is at least half of ``confidence_coef``, no column is dropped.
    confidence : mapping of str to float, optional
        Confidence in the priors of the other blocks by their names in ``kl_``, 1 where left out:
        ``"global"``, the global scale (:math:`\gamma_\nu`), and ``"intercept"``.
    prior : {"exponential", "horseshoe"} or ScalePrior, default="exponential"
        Prior of the scales: exponential on their squares, half-Cauchy, or one of your own.
    priors : mapping of str to number, optional
        Numbers of the priors: the rates of exponential priors of squared scales, ``"rate_local"``
        (10) and ``"rate_global"`` (10); ``"global"``, the prior of the global scale alone (as
        ``prior``); and ``"intercept_variance"`` (10) of the normal prior of the intercept at the
        mean of X.
    max_iter : int, default=500
        Largest number of steps for each confidence.
    tol : float, default=1e-7
        The solver stops when J falls by less than this in relative terms.
    verbose : int, default=0
        1 writes a line for each point of the path to stderr.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".
    """

    confidence_coef: float | str = "auto"
    confidence_local: float | str = "auto"
    confidence: Mapping[str, float] | None = None
    prior: str | ScalePrior = "exponential"
    priors: Mapping[str, Any] | None = None
    max_iter: int = 500
    tol: float = 1e-7
    verbose: int = 0


@estimator
class ColumnParameters:
    """What estimators of a regression on columns have.

    Parameters
    ----------
    choice : {"prediction", "path"}, default="prediction"
        How confidences are chosen. ``"prediction"`` weighs fits between dense and sparse by their
        log densities of held-out rows and predicts from their mixture. ``"path"`` follows
        ``confidence_coef`` from 1 upwards, chooses a point by an information criterion and refits
        its columns at confidence 1.
    cv : "auto", int, splitter, list of (train, test) or None, default="auto"
        Folds of ``choice="prediction"``. ``"auto"`` is 5 folds or more. None means the path alone.
    random_state : int or None, default=0
        Seed of the shuffle of the folds.
    feature_blocks : mapping of str to mapping, optional
        Groups of columns with a prior of their own, for example ``{"clinical": {"columns": ["age",
        "sex"], "prior": "normal", "variance": 10.0, "confidence": 1.0}}``. Columns with a normal
        prior are never dropped; their variance is in units of 1 / var(x). ``"prior": "sparse"``
        gives a block its own ``confidence`` and ``confidence_local``.
    feature_groups : sequence of labels or mapping, optional
        Columns that are kept or dropped together, such as the dummies of a category: one label for
        each column, or a mapping such as ``{"shelf": ["good", "bad"]}``. They share a local scale.
    terms : str, sequence of str or None, default=None
        What the columns of X mean: ``"curves"`` (every number may be absent, straight or curved),
        ``"pairs"`` (and pairs of columns that the data ask for), or a list of terms such as
        ``["s(age)", "sex", "s(dose):sex", "(1 | site)", "offset(log_time)"]``. None: every column
        of X is a number that enters as it is.
    inclusion : bool, default=False
        Also compute the posterior over supports, ``supports_``: inclusion probabilities, credible
        sets and discoveries.
    n_jobs : int or None, default=None
        Number of jobs over the folds: threads, or processes where a fold takes more than two
        seconds. Results do not depend on it.

    Attributes
    ----------
    sparse_ : estimator
        The sparse point, an estimator of the same class that keeps only the selected columns; this
        estimator itself if nothing was chosen by prediction.
    supports_ : Supports
        The posterior over supports (``inclusion=True``).
    candidates_ : pandas.DataFrame
        Candidates of a choice by prediction, with their held-out scores and weights.
    out_of_fold_ : pandas.DataFrame
        Held-out predictions of the training rows: ``y``, ``mean``, ``sd`` and ``fold``.
    sparsity_ : object
        What it costs to keep only the selected columns; its text is a sentence.
    """

    choice: str = "prediction"
    cv: Folds | None = "auto"
    random_state: int | None = 0
    feature_blocks: FeatureBlocks | None = None
    feature_groups: FeatureGroups | None = None
    terms: str | Sequence[str] | None = None
    inclusion: bool = False
    n_jobs: int | None = None


@estimator
class InterceptParameters:
    r"""What estimators with an intercept have.

    Parameters
    ----------
    fit_intercept : bool, default=True
        Whether the model has an intercept.

    Attributes
    ----------
    intercept_ : float
        Posterior mean of the intercept.
    intercept_sd_ : float
        Posterior standard deviation of the intercept.
    """

    fit_intercept: bool = True


def check_shared(estimator: Any) -> None:
    """What every sparse estimator has: confidences, priors, the solver and its limits."""
    for name in ("confidence_coef", "confidence_local"):
        value = getattr(estimator, name)
        if not isinstance(value, str):
            check_gamma(name.removeprefix("confidence_"), value, allow_inf=False)
        elif value != "auto":
            raise ValueError(
                f"{name} is {shown(value)}, but it must be 'auto' or a number greater than 0."
            )
    for name, gamma in check_confidence(estimator.confidence, estimator._blocks).items():
        check_gamma(name, gamma, allow_inf=False)
    priors = estimator.priors
    if priors is not None and not isinstance(priors, Mapping):
        raise TypeError(f"priors is {shown(priors)}, but it must be a mapping, {{name: number}}.")
    for name, value in (priors or {}).items():
        if name not in estimator._numbers:
            known = ", ".join(map(repr, estimator._numbers))
            raise ValueError(f"priors names {shown(name)}, but the numbers here are {known}.")
        if name == "global":
            make_prior(value, 1.0)
        elif not (name == "baseline_mass" and value == 0.0):
            check_number(name, value)
    make_prior(estimator.prior, 1.0)
    check_choice("solver", estimator.solver, (estimator._path_solver, "coordinate"))
    check_positive(estimator, "tol", "max_iter")


def check_choosing(estimator: Any) -> None:
    """How confidences are chosen."""
    check_choice("choice", estimator.choice, ("prediction", "path"))
    check_folds(estimator.cv, "auto", None)
    seed = estimator.random_state
    if seed is not None and not isinstance(seed, Integral | np.random.RandomState):
        raise TypeError(
            f"random_state is {shown(seed)}, but it must be an int, a RandomState or None."
        )
    if isinstance(seed, Integral) and not 0 <= int(seed) < 2**32:
        raise ValueError(f"random_state is {seed}, but it must lie between 0 and 2**32 - 1.")


def check_positive(estimator: Any, *names: str) -> None:
    """Every named parameter must be a finite number above 0."""
    for name in names:
        check_number(name, getattr(estimator, name))


def check_number(name: str, value: Any) -> None:
    """A finite number above 0."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise TypeError(f"{name} is {shown(value)}, but it must be a number greater than 0.")
    if not 0.0 < float(value) < np.inf:
        raise ValueError(f"{name} is {value}, but it must be a number greater than 0.")


def trust(estimator: Any, block: str) -> float:
    """The confidence in the prior of a block."""
    return float((estimator.confidence or {}).get(block, 1.0))


def prior_number(estimator: Any, name: str) -> float | None:
    """A number of a prior, as given or its default."""
    value = (estimator.priors or {}).get(name, PRIOR_NUMBERS[name])
    return None if value is None else float(value)


def shared_settings(estimator: Any, sparse_local: float) -> dict[str, Any]:
    """The settings that both families have; ``sparse_local`` is the path's own gamma_tau."""
    auto, local = estimator.confidence_coef == "auto", estimator.confidence_local
    top = (estimator.priors or {}).get("global", estimator.prior)
    number: Any = partial(prior_number, estimator)
    return {
        "coef": None if auto else float(estimator.confidence_coef),
        "local": sparse_local if local == "auto" else float(local),
        "top": trust(estimator, "global"),
        "local_prior": make_prior(estimator.prior, number("rate_local")),
        "top_prior": make_prior(top, number("rate_global")),
        "solver": estimator.solver,
        "tol": float(estimator.tol),
        "max_iter": int(estimator.max_iter),
        "verbose": int(estimator.verbose),
    }


def intercept_prior(estimator: Any) -> tuple[float, float] | None:
    """Variance and confidence of the prior of the intercept; None: there is none."""
    if not estimator.fit_intercept:
        return None
    variance: Any = prior_number(estimator, "intercept_variance")
    return variance, trust(estimator, "intercept")


def noise_settings(estimator: Any) -> dict[str, Any]:
    """The settings of the prior of the noise variance."""
    return {
        "noise_shape": prior_number(estimator, "noise_shape"),
        "noise_scale": prior_number(estimator, "noise_scale"),
        "noise_confidence": trust(estimator, "noise"),
    }

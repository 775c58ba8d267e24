"""The parameters that sparse estimators share: their defaults, their descriptions, their checks.

A class marked by `estimator` has the parameters that it and its bases annotate. Its docstring says
only what is special: descriptions of shared parameters and attributes come from the classes here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from soubayes._docstrings import fill_docstrings
from soubayes._types import FeatureBlocks, FeatureGroups, Folds
from soubayes.confidence import check_choice, check_gamma, shown
from soubayes.data.rows import checks_rows
from soubayes.sparse.choice.folds import check_folds
from soubayes.sparse.estimators.terms import with_terms
from soubayes.sparse.scales.base import ScalePrior
from soubayes.sparse.scales.priors import make_prior

Made = TypeVar("Made")

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
    made = fill_docstrings(METHOD_PARAMETERS)(dataclass(kw_only=True, eq=False, repr=False)(cls))
    return with_terms(checks_rows(made))


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
    confidence_global : float, default=1.0
        Confidence in the prior of the global scale (:math:`\gamma_\nu`).
    prior : {"exponential", "horseshoe"} or ScalePrior, default="exponential"
        Prior of the scales: exponential on their squares, half-Cauchy, or one of your own.
    rate_local : float, default=10.0
        Rate of the exponential prior of the local scales.
    rate_global : float, default=10.0
        Rate of the exponential prior of the global scale.
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
    confidence_global: float = 1.0
    prior: str | ScalePrior = "exponential"
    rate_local: float = 10.0
    rate_global: float = 10.0
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
    confidence_intercept : float, default=1.0
        Confidence in the prior of the intercept (:math:`\gamma_\alpha`).
    intercept_variance : float, default=10.0
        Variance of the normal prior of the intercept at the mean of X.
    fit_intercept : bool, default=True
        Whether the model has an intercept.

    Attributes
    ----------
    intercept_ : float
        Posterior mean of the intercept.
    intercept_sd_ : float
        Posterior standard deviation of the intercept.
    """

    confidence_intercept: float = 1.0
    intercept_variance: float = 10.0
    fit_intercept: bool = True


@estimator
class NoiseParameters:
    r"""What estimators of numbers with noise have.

    Parameters
    ----------
    confidence_noise : float, default=1.0
        Confidence in the prior of the noise variance (:math:`\gamma_\sigma`).
    noise_shape : float, default=0.001
        Shape of the inverse-gamma prior of the noise variance. The paper uses 3.
    noise_scale : float or None, default=None
        Scale of that prior, in units of y squared. None means 1e-6 times the variance of y. The
        paper uses 2.

    Attributes
    ----------
    noise_variance_ : float
        Estimated noise variance.
    """

    confidence_noise: float = 1.0
    noise_shape: float = 1e-3
    noise_scale: float | None = None


def check_shared(estimator: Any) -> None:
    """What every sparse estimator has: confidences, priors, the solver and its limits."""
    check_confidences(estimator, "confidence_global")
    for name in ("confidence_coef", "confidence_local"):
        value = getattr(estimator, name)
        if not isinstance(value, str):
            check_confidences(estimator, name)
        elif value != "auto":
            raise ValueError(
                f"{name} is {shown(value)}, but it must be 'auto' or a number greater than 0."
            )
    make_prior(estimator.prior, 1.0)
    check_choice("solver", estimator.solver, (estimator._path_solver, "coordinate"))
    check_positive(estimator, "rate_local", "rate_global", "tol", "max_iter")


def check_intercept(estimator: Any) -> None:
    """The prior of an intercept, if there is one."""
    if estimator.fit_intercept:
        check_positive(estimator, "intercept_variance")
        check_confidences(estimator, "confidence_intercept")


def check_noise(estimator: Any) -> None:
    """The prior of the noise variance."""
    check_confidences(estimator, "confidence_noise")
    check_positive(estimator, "noise_shape")
    if estimator.noise_scale is not None:
        check_positive(estimator, "noise_scale")


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


def check_confidences(estimator: Any, *names: str) -> None:
    """Every named parameter must be a finite confidence above 0."""
    for name in names:
        check_gamma(name.removeprefix("confidence_"), getattr(estimator, name), allow_inf=False)


def check_positive(estimator: Any, *names: str) -> None:
    """Every named parameter must be a finite number above 0."""
    for name in names:
        value = getattr(estimator, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} is {shown(value)}, but it must be a number greater than 0.")
        if not 0.0 < float(value) < np.inf:
            raise ValueError(f"{name} is {value}, but it must be a number greater than 0.")


def shared_settings(estimator: Any, sparse_local: float) -> dict[str, Any]:
    """The settings that both families have; ``sparse_local`` is the path's own gamma_tau."""
    auto, local = estimator.confidence_coef == "auto", estimator.confidence_local
    top = getattr(estimator, "prior_global", None) or estimator.prior
    return {
        "coef": None if auto else float(estimator.confidence_coef),
        "local": sparse_local if local == "auto" else float(local),
        "top": float(estimator.confidence_global),
        "local_prior": make_prior(estimator.prior, float(estimator.rate_local)),
        "top_prior": make_prior(top, float(estimator.rate_global)),
        "solver": estimator.solver,
        "tol": float(estimator.tol),
        "max_iter": int(estimator.max_iter),
        "verbose": int(estimator.verbose),
    }


def intercept_prior(estimator: Any) -> tuple[float, float] | None:
    """Variance and confidence of the prior of the intercept; None: there is none."""
    if not estimator.fit_intercept:
        return None
    return float(estimator.intercept_variance), float(estimator.confidence_intercept)

"""Bayesian inference with a confidence for every source of uncertainty.

Every public name lives here and is imported when first used, so ``import soubayes`` loads
neither JAX nor matplotlib. A name that needs an extra says which one when it is missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from soubayes._optional import explain_missing_extra

if TYPE_CHECKING:
    from soubayes.blackbox.diagnostics import Diagnosis as Diagnosis
    from soubayes.blackbox.diagnostics import diagnose as diagnose
    from soubayes.blackbox.diagnostics import (
        simulation_based_calibration as simulation_based_calibration,
    )
    from soubayes.blackbox.divergences import ForwardKL as ForwardKL
    from soubayes.blackbox.divergences import Renyi as Renyi
    from soubayes.blackbox.elbo import SoUELBO as SoUELBO
    from soubayes.blackbox.family import PosteriorFamily as PosteriorFamily
    from soubayes.blackbox.family import fit_family as fit_family
    from soubayes.blackbox.losses import beta_loss as beta_loss
    from soubayes.blackbox.losses import gamma_loss as gamma_loss
    from soubayes.blackbox.losses import hinge_loss as hinge_loss
    from soubayes.blackbox.losses import huber_loss as huber_loss
    from soubayes.blackbox.losses import quantile_loss as quantile_loss
    from soubayes.blackbox.mixture import MixturePosterior as MixturePosterior
    from soubayes.blackbox.nested import NestedPosterior as NestedPosterior
    from soubayes.blackbox.nested import sample_sou as sample_sou
    from soubayes.blackbox.posterior import SoUPosterior as SoUPosterior
    from soubayes.blackbox.variational import fit as fit
    from soubayes.blackbox.verdict import Quality as Quality
    from soubayes.data.encoding import TableEncoder as TableEncoder
    from soubayes.draws.reweight import Reweighted as Reweighted
    from soubayes.draws.reweight import ReweightedFamily as ReweightedFamily
    from soubayes.draws.reweight import reweight as reweight
    from soubayes.draws.reweight import reweight_family as reweight_family
    from soubayes.draws.sensitivity import Sensitivity as Sensitivity
    from soubayes.draws.sensitivity import sensitivity as sensitivity
    from soubayes.draws.stan import stan_log_priors as stan_log_priors
    from soubayes.exact.conjugate import ConjugateUpdate as ConjugateUpdate
    from soubayes.exact.conjugate import conjugate_update as conjugate_update
    from soubayes.exact.decision import EventTree as EventTree
    from soubayes.exact.gaussian import GaussianBlock as GaussianBlock
    from soubayes.exact.gaussian import GaussianModel as GaussianModel
    from soubayes.exact.gaussian import QuadraticLoss as QuadraticLoss
    from soubayes.exact.gaussian import solve_gaussian as solve_gaussian
    from soubayes.exact.model import Block as Block
    from soubayes.exact.model import Discrete as Discrete
    from soubayes.exact.model import Model as Model
    from soubayes.exact.objective import Objective as Objective
    from soubayes.exact.objective import objective as objective
    from soubayes.exact.paths import confidence_for_kl as confidence_for_kl
    from soubayes.exact.paths import confidence_path as confidence_path
    from soubayes.exact.posterior import ExactPosterior as ExactPosterior
    from soubayes.exact.solve import QuadratureWarning as QuadratureWarning
    from soubayes.exact.solve import solve_exact as solve_exact
    from soubayes.horseshoe import horseshoe_gibbs as horseshoe_gibbs
    from soubayes.model_files import load_model as load_model
    from soubayes.model_files import save_model as save_model
    from soubayes.networks.classifier import SoUNetClassifier as SoUNetClassifier
    from soubayes.networks.ensemble import SoUNetEnsemble as SoUNetEnsemble
    from soubayes.networks.regressor import SoUNetRegressor as SoUNetRegressor
    from soubayes.networks.structure import Conv as Conv
    from soubayes.networks.structure import Pool as Pool
    from soubayes.networks.structure import Residual as Residual
    from soubayes.plots.estimators import plot_coefficients as plot_coefficients
    from soubayes.plots.estimators import plot_confidences as plot_confidences
    from soubayes.plots.estimators import plot_credible_sets as plot_credible_sets
    from soubayes.plots.estimators import plot_hazards as plot_hazards
    from soubayes.plots.estimators import plot_path as plot_path
    from soubayes.plots.estimators import plot_shrinkage as plot_shrinkage
    from soubayes.plots.posteriors import plot_event_tree as plot_event_tree
    from soubayes.plots.posteriors import plot_prior_vs_confidence as plot_prior_vs_confidence
    from soubayes.plots.terms import plot_terms as plot_terms
    from soubayes.select import Selection as Selection
    from soubayes.select import select_confidence as select_confidence
    from soubayes.sparse.estimators.cox import SoUCoxRegression as SoUCoxRegression
    from soubayes.sparse.estimators.gamma import SoUGammaRegression as SoUGammaRegression
    from soubayes.sparse.estimators.generalized import (
        SoUGeneralizedRegression as SoUGeneralizedRegression,
    )
    from soubayes.sparse.estimators.linear import SoULinearRegression as SoULinearRegression
    from soubayes.sparse.estimators.logistic import SoULogisticRegression as SoULogisticRegression
    from soubayes.sparse.estimators.negative_binomial import (
        SoUNegativeBinomialRegression as SoUNegativeBinomialRegression,
    )
    from soubayes.sparse.estimators.normal_means import SoUNormalMeans as SoUNormalMeans
    from soubayes.sparse.estimators.ordinal import SoUOrdinalRegression as SoUOrdinalRegression
    from soubayes.sparse.estimators.poisson import SoUPoissonRegression as SoUPoissonRegression
    from soubayes.sparse.inclusion.view import Supports as Supports
    from soubayes.sparse.likelihoods.base import RowLikelihood as RowLikelihood
    from soubayes.sparse.likelihoods.base import RowTerms as RowTerms
    from soubayes.sparse.scales.base import Scale as Scale
    from soubayes.sparse.scales.base import ScalePrior as ScalePrior
    from soubayes.terms.formula import from_formula as from_formula

__version__ = "0.1.0"

# module -> the public names it holds; the imports above say the same to type checkers
_PUBLIC = {
    "data.encoding": ["TableEncoder"],
    "blackbox.diagnostics": ["Diagnosis", "diagnose", "simulation_based_calibration"],
    "blackbox.divergences": ["ForwardKL", "Renyi"],
    "blackbox.elbo": ["SoUELBO"],
    "blackbox.family": ["PosteriorFamily", "fit_family"],
    "blackbox.variational": ["fit"],
    "blackbox.verdict": ["Quality"],
    "blackbox.losses": ["beta_loss", "gamma_loss", "hinge_loss", "huber_loss", "quantile_loss"],
    "blackbox.nested": ["NestedPosterior", "sample_sou"],
    "blackbox.posterior": ["SoUPosterior"],
    "blackbox.mixture": ["MixturePosterior"],
    "draws.reweight": ["Reweighted", "ReweightedFamily", "reweight", "reweight_family"],
    "draws.sensitivity": ["Sensitivity", "sensitivity"],
    "draws.stan": ["stan_log_priors"],
    "networks.ensemble": ["SoUNetEnsemble"],
    "networks.regressor": ["SoUNetRegressor"],
    "networks.classifier": ["SoUNetClassifier"],
    "networks.structure": ["Conv", "Pool", "Residual"],
    "exact.conjugate": ["ConjugateUpdate", "conjugate_update"],
    "exact.decision": ["EventTree"],
    "exact.gaussian": ["GaussianBlock", "GaussianModel", "QuadraticLoss", "solve_gaussian"],
    "exact.model": ["Block", "Discrete", "Model"],
    "exact.objective": ["Objective", "objective"],
    "exact.paths": ["confidence_for_kl", "confidence_path"],
    "exact.posterior": ["ExactPosterior"],
    "exact.solve": ["QuadratureWarning", "solve_exact"],
    "plots.posteriors": ["plot_event_tree", "plot_prior_vs_confidence"],
    "select": ["Selection", "select_confidence"],
    "sparse.likelihoods.base": ["RowLikelihood", "RowTerms"],
    "sparse.inclusion.view": ["Supports"],
    "sparse.scales.base": ["Scale", "ScalePrior"],
    "horseshoe": ["horseshoe_gibbs"],
    "sparse.estimators.cox": ["SoUCoxRegression"],
    "sparse.estimators.generalized": ["SoUGeneralizedRegression"],
    "sparse.estimators.linear": ["SoULinearRegression"],
    "sparse.estimators.logistic": ["SoULogisticRegression"],
    "sparse.estimators.normal_means": ["SoUNormalMeans"],
    "sparse.estimators.gamma": ["SoUGammaRegression"],
    "sparse.estimators.negative_binomial": ["SoUNegativeBinomialRegression"],
    "sparse.estimators.ordinal": ["SoUOrdinalRegression"],
    "sparse.estimators.poisson": ["SoUPoissonRegression"],
    "model_files": ["load_model", "save_model"],
    "plots.estimators": [
        "plot_coefficients",
        "plot_confidences",
        "plot_credible_sets",
        "plot_hazards",
        "plot_path",
        "plot_shrinkage",
    ],
    "plots.terms": ["plot_terms"],
    "terms.formula": ["from_formula"],
}
_HOME = {name: f"soubayes.{module}" for module, names in _PUBLIC.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'soubayes' has no attribute {name!r}")
    with explain_missing_extra(name):
        value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

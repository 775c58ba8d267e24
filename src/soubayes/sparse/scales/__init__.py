"""Scale priors: q(tau^2), q(nu^2), and which columns share a tau."""

from soubayes.confidence import shown
from soubayes.sparse.scales.base import Scale, ScalePrior
from soubayes.sparse.scales.exponential import Exponential
from soubayes.sparse.scales.groups import Groups
from soubayes.sparse.scales.half_cauchy import HalfCauchy

__all__ = ["Exponential", "Groups", "HalfCauchy", "Scale", "ScalePrior", "make_prior"]


def make_prior(prior: str | ScalePrior, rate: float) -> ScalePrior:
    """The prior called "exponential" (with this rate) or "horseshoe", or the prior given.

    >>> make_prior("exponential", 10.0)
    Exponential(rate=10.0)
    """
    if isinstance(prior, ScalePrior):
        return prior
    if prior == "exponential":
        return Exponential(rate)
    if prior == "horseshoe":
        return HalfCauchy()
    message = f"prior is {shown(prior)}, but it must be 'exponential', 'horseshoe' or a ScalePrior."
    raise ValueError(message) if isinstance(prior, str) else TypeError(message)

"""What the coefficients cost: the share of J that all solvers have in common."""

import numpy as np

from soubayes.sparse.solvers.model import ColumnModel, ScaleCosts

Array = np.ndarray


def coefficient_kl(
    precision: Array, second_moment: Array, log_prior: Array, log_variance: Array
) -> Array:
    """Nats of every coefficient: [d_j E[beta_j^2] - 1 + E[log prior variance] - log variance]/2.

    The ``log_variance`` of the columns of a source sum to log|its conditional covariance|.
    """
    return 0.5 * (precision * second_moment - 1.0 + log_prior - log_variance)


def log_prior_variance(model: ColumnModel, scales: ScaleCosts) -> Array:
    """E[log prior variance] of every coefficient: of N(0, variance), or of N(0, tau^2 nu^2)."""
    own = model.each_tau(scales.log_local) + scales.log_top
    if model.all_sparse:
        return own
    return np.where(model.sparse, own, np.log(np.where(model.sparse, 1.0, model.variance)))


def source_costs(model: ColumnModel, nats: Array) -> dict[str, float]:
    """The sum over the columns of every source."""
    return {name: float(nats[columns].sum()) for name, columns in model.sources}

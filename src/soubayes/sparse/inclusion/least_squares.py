"""The posterior over supports of a linear regression."""

import numpy as np

from soubayes.sparse.designs.base import LeastSquares
from soubayes.sparse.designs.gram import Gram
from soubayes.sparse.designs.wide import Wide
from soubayes.sparse.inclusion.product import fit_product
from soubayes.sparse.inclusion.quadratics import ColumnQuadratic, GramQuadratic, Quadratic
from soubayes.sparse.inclusion.supports import SupportPosterior
from soubayes.sparse.likelihoods.gaussian import NoisePrior
from soubayes.sparse.solvers.path import LeastSquaresSolution

Array = np.ndarray


def linear_supports(
    design: LeastSquares, fit: LeastSquaresSolution, y_scale: float, x_scale: Array
) -> SupportPosterior:
    """Of a standardised design; the sweeps start from the columns that a fit has selected.

    Columns with a normal prior of their own are in every support.
    """
    noise, model = fit.noise.variance, fit.model
    data = quadratic_of(design, model.noise, model.intercept_variance is not None)
    selected = np.flatnonzero(fit.selected)
    always = np.nan_to_num(model.variance, nan=0.0) / noise
    found = fit_product(data, (selected, fit.coef[selected] ** 2 / noise), always=always)
    return SupportPosterior.of(found, y_scale / x_scale, x_scale)


def quadratic_of(design: LeastSquares, noise: NoisePrior, intercept: bool) -> Quadratic:
    """The same loss, with the noise's prior as 2 shape more observations of it."""
    degrees = design.n - intercept + 2.0 * noise.shape
    if isinstance(design, Gram):
        data: Quadratic = GramQuadratic(design.gram, design.scores, design.yy, design.n, degrees)
    elif isinstance(design, Wide):
        data = ColumnQuadratic(design.columns, design.y, design.n, degrees)
    else:
        raise TypeError(f"a {type(design).__name__} has no posterior over supports.")
    data.yy += 2.0 * noise.scale
    return data

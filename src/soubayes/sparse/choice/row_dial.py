"""The dial of row-wise models: its points, and the fit at one of them."""

from typing import NamedTuple

from soubayes.sparse.choice.dial import LOOSE, DialPoint, at_point
from soubayes.sparse.posterior import Posterior
from soubayes.sparse.solvers.majorise import Prior, minimise
from soubayes.sparse.solvers.row_evidence import row_evidence
from soubayes.sparse.solvers.row_problem import RowProblem
from soubayes.sparse.solvers.row_state import RowModel

ROW_DIAL = (
    DialPoint("exponential", 1.0, 1.0),
    DialPoint("exponential", 0.1, 0.1),
    DialPoint("exponential", 0.01, 0.1),
    DialPoint("exponential", 0.003, 3.0),
    DialPoint("exponential", 0.001, 1.0),
    DialPoint("horseshoe", 1.0, 1.0),
)


class RowFitAt(NamedTuple):
    """A point of a row-wise problem: q(beta, alpha), standardised, the intercept last."""

    posterior: Posterior
    effective: float
    n_iter: int
    converged: bool


def fit_rows_at(problem: RowProblem, model: RowModel, point: DialPoint) -> RowFitAt:
    """The fit of a row-wise problem at one point."""
    sparse = model.sparse
    model = at_point(model, point)
    prior = Prior(model.scales, model.groups, point.coef)
    evidence = row_evidence(problem, point.coef, sparse, 1.0 / model.variance[~sparse])
    found = minimise(evidence, prior, tol=LOOSE)
    effective = float(model.groups.each(found.variance) @ found.evidence.explained)
    posterior = found.evidence.state.posterior()
    return RowFitAt(posterior, effective, len(found.history), found.converged)

"""Algorithm 1 of the paper, corrected: every factor in turn at its minimum of the joint J.

Its tau steps solve b and a in turn, so a grows by about 1/2 a sweep when the confidence in tau is
small: it takes of the order of gamma_b/gamma_t sweeps to converge there. J never rises.
"""

from collections.abc import Callable

import numpy as np

from soubayes.sparse.least_squares.designs import LeastSquares
from soubayes.sparse.least_squares.state import (
    DROPPED,
    LeastSquaresModel,
    LeastSquaresSolution,
    Noise,
    objective_value,
    restricted,
)
from soubayes.sparse.scales.base import Scale


def solve_coordinate(
    design: LeastSquares,
    model: LeastSquaresModel,
    *,
    tol: float,
    max_iter: int,
    report: Callable[[str], None] = lambda text: None,
) -> LeastSquaresSolution:
    """Sweep until J falls by less than ``tol`` nats.

    Starts at the noise variance of y and E[1/tau_j^2] = E[1/nu^2] = 1 with shapes 2: a start far
    from that (E[1/tau^2] of 1,000, say) collapses to zero, and so the start is part of the method.
    """
    sparse, gamma, scales = model.sparse, model.confidence, model.scales
    n, ones = design.n, np.ones(model.groups.n_groups)
    tau, nu = Scale(2.0 * ones, ones), Scale(np.asarray(2.0), np.asarray(1.0))
    counted = float(gamma[sparse].sum()) if model.scaled else 0.0
    confidence = model.noise.confidence
    shape = model.noise.shape + (n + counted) / (2.0 * confidence)
    noise = Noise(shape, max(design.yy / n, 1e-300))
    history: list[float] = []
    while True:
        v = noise.variance
        w = gamma * v / np.where(sparse, 1.0, model.variance)
        precision = model.groups.each(tau.mean_inverse * nu.mean_inverse)
        w[sparse] = gamma[sparse] * precision * (1.0 if model.scaled else v)
        ridge = design.ridge(w)
        parts = model.nested(restricted(design, w, ridge))
        ridge = ridge._replace(variance=model.variances(parts) / gamma)
        log_dets = model.log_determinants(parts)
        value = objective_value(model, n, ridge, w, scales.costs(tau, nu), noise, log_dets)
        history.append(value.value)
        converged = len(history) > 1 and history[-2] - history[-1] < tol
        report(f"sweep {len(history) - 1}: J = {value.value:.8g}")
        if converged or len(history) > max_iter:
            break
        second = gamma * v * ridge.variance + ridge.mean**2  # E[beta_j^2]
        energy = (gamma * second / v if model.scaled else gamma * second)[sparse]
        tau, nu = scales.coordinate_step(tau, nu, model.groups.total(energy))
        # supplement C.4.2, b_sigma: E|y - X beta|^2 and the intercept's n s_alpha^2
        rest = ridge.rss + v * float(gamma @ (1.0 - w * ridge.variance))
        rest += n * model.intercept_spread(n, v)
        if model.scaled:
            prior = model.groups.each(tau.mean_inverse * nu.mean_inverse)
            rest += float(gamma[sparse] @ (second[sparse] * prior))
        noise = Noise(shape, (model.noise.scale + rest / (2.0 * confidence)) / shape)
    selected = w < DROPPED * np.maximum(1.0 / ridge.variance - w, 1e-12 * n)
    selected |= ~sparse
    return LeastSquaresSolution(
        w=w,
        coef=np.where(selected, ridge.mean, 0.0),
        variance=ridge.variance,
        selected=selected,
        noise=noise,
        model=model,
        tau=tau,
        nu=nu,
        value=value,
        history=np.array(history),
        n_iter=len(history) - 1,
        converged=converged,
    )

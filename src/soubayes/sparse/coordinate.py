"""Algorithm 1 of the paper, corrected: every factor in turn at its minimum of the joint J.

Its tau steps solve b and a in turn, so a grows by about 1/2 a sweep when the confidence in tau is
small: it takes of the order of gamma_b/gamma_t sweeps to converge there. J never rises.
"""

from collections.abc import Callable

import numpy as np

from soubayes.sparse.designs import Design
from soubayes.sparse.objective import (
    Model,
    Noise,
    evaluate,
    intercept_spread,
    source_log_dets,
    source_variances,
)
from soubayes.sparse.path import DROPPED, Solution
from soubayes.sparse.scales import Scale, algorithm_1_step


def solve_coordinate(
    design: Design,
    model: Model,
    *,
    tol: float,
    max_iter: int,
    report: Callable[[str], None] = lambda text: None,
) -> Solution:
    """Sweep until J falls by less than ``tol`` nats.

    Starts at the noise variance of y and E[1/tau_j^2] = E[1/nu^2] = 1 with shapes 2: a start far
    from that (E[1/tau^2] of 1,000, say) collapses to zero, and so the start is part of the method.
    """
    sparse, gamma = model.sparse, model.gamma
    n, ones = design.n, np.ones(int(model.sparse.sum()))
    tau, nu = Scale(2.0 * ones, ones), Scale(np.asarray(2.0), np.asarray(1.0))
    counted = float(gamma[sparse].sum()) if model.scaled else 0.0
    shape = model.noise_shape + (n + counted) / (2.0 * model.noise)
    noise = Noise(shape, max(design.yy / n, 1e-300))
    history: list[float] = []
    done: tuple | None = None  # the last complete sweep, so that Ctrl-C leaves a usable state
    converged = False
    try:
        while not converged and len(history) <= max_iter:
            v = noise.variance
            w = gamma * v / np.where(sparse, 1.0, model.variance)
            precision = tau.mean_inverse * nu.mean_inverse
            w[sparse] = gamma[sparse] * precision * (1.0 if model.scaled else v)
            ridge = design.ridge(w)
            ridge = ridge._replace(variance=source_variances(design, model, w, ridge))
            log_dets = source_log_dets(design, model, w, ridge)
            value = evaluate(model, n, ridge, w, tau, nu, noise, log_dets)
            history.append(value.value)
            done = (w, ridge, tau, nu, noise, value)
            converged = len(history) > 1 and history[-2] - history[-1] < tol
            report(f"sweep {len(history) - 1}: J = {value.value:.8g}")
            second = gamma * v * ridge.variance + ridge.mean**2  # E[beta_j^2]
            energy = (second / v if model.scaled else second)[sparse]
            half = 0.5 * gamma[sparse]
            tau = algorithm_1_step(
                model.local_prior, tau, half, half * energy * nu.mean_inverse, model.local[sparse]
            )
            pull = half @ (energy * tau.mean_inverse)
            nu = algorithm_1_step(model.top_prior, nu, half.sum(), pull, model.top)
            rest = ridge.rss + v * float(gamma @ (1.0 - w * ridge.variance))
            rest += n * intercept_spread(model, n, v)
            if model.scaled:
                prior = tau.mean_inverse * nu.mean_inverse
                rest += 2.0 * float(half @ (second[sparse] * prior))
            noise = Noise(shape, (model.noise_scale + rest / (2.0 * model.noise)) / shape)
    except KeyboardInterrupt:
        pass
    if done is None:
        raise KeyboardInterrupt("stopped before the first sweep")
    w, ridge, tau, nu, noise, value = done
    selected = w < DROPPED * np.maximum(1.0 / ridge.variance - w, 1e-12 * n)
    selected |= ~sparse
    return Solution(
        w,
        np.where(selected, ridge.mean, 0.0),
        ridge.variance,
        selected,
        tau,
        nu,
        noise,
        model,
        value,
        np.array(history),
        len(history) - 1,
        converged,
    )

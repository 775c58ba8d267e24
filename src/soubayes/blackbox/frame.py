"""Coordinates at the posterior's scale: the best Gaussian, block after block, by Newton's method.

With theta the unconstrained coordinates of all blocks and

    U(theta) = L - sum_k gamma_k log pi_k(theta_k | theta_<k)

J of a Gaussian q is E_q[U] - sum_k gamma_k H(q_k | theta_<k). By the theorems of Bonnet and Price
its derivatives by mean and covariance are E_q[grad U] and E_q[hess U] / 2, so at the minimum the
first is zero, and the covariance is the one that a quadratic U with the Hessian E_q[hess U] has
(Theorem 1 for Gaussians: Schur complements from the last block to the first). Iterating these two
conditions is a natural-gradient method (Khan and Rue 2023). It knows no units, and with draws that
shrink to a point it is Newton's method for the mode (Laplace).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, eigh, solve_triangular
from scipy.optimize import minimize
from scipy.stats import norm, qmc

FRAME_STEPS = 100
FEW, MANY = 32, 128  # draws while far from the minimum, and to end with
LEAST_CURVATURE = 0.2  # of the present one in a step: a variance grows at most five times
MOST_CURVATURE = 1e8  # of the present one in a step: more is lost in rounding
TOL = 1e-4  # nats
DIAGONAL_ROUNDS = 10  # of L-BFGS, each with new units
PROBE = 1e-3  # of the unit of a point, for a difference of gradients
MOST_LOG_SD = 7.0  # by which a round may change a log sd
GROWTH = 1e8  # of a standard deviation, in one run: the integral has no end there


class FrameBlocks(NamedTuple):
    """Where the coordinates of each block are, in order, and its confidence (0 for a point)."""

    places: tuple[np.ndarray, ...]
    gammas: tuple[float, ...]
    joint: str  # "chain": given all earlier blocks; "block": within blocks; "none": coordinates


class Gaussian(NamedTuple):
    """A Gaussian over all coordinates: mean + root e, with the mean Hessian of U under it.

    A vector as root, and as curvature, is a diagonal.
    """

    mean: np.ndarray
    root: np.ndarray
    value: float  # J
    curvature: np.ndarray
    converged: bool
    endless: np.ndarray  # a direction in which the variance grew without end, or nothing


def best_gaussian(
    moments: Callable,
    mean: np.ndarray,
    sd: np.ndarray,
    blocks: FrameBlocks,
    record: Callable[[tuple[float, float]], None],
) -> Gaussian | None:
    """The Gaussian of least J, from a start; None if U is not finite around it.

    ``moments(mean, root, noise)`` has U at every draw, and the means of its gradient and Hessian.
    ``record`` is called with J and the length of every step. J on common draws never rises.
    """
    weights = np.zeros(len(mean))
    for place, gamma in zip(blocks.places, blocks.gammas, strict=True):
        weights[place] = gamma if gamma > 0 else 1.0
    at: Gaussian | None = None
    curvature = np.diag(weights / sd**2)
    for count in (FEW, MANY):
        noise = mirrored_noise(count, len(mean))
        try:
            at = _descend(moments, mean, curvature, blocks, noise, record)
        except LinAlgError:  # a curvature that rounding has made indefinite: another start
            return None
        if at is None or at.endless.size:
            return at
        mean, curvature = at.mean, at.curvature
    return at


def _descend(
    moments: Callable,
    mean: np.ndarray,
    curvature: np.ndarray,
    blocks: FrameBlocks,
    noise: np.ndarray,
    record: Callable[[tuple[float, float]], None],
) -> Gaussian | None:
    """Damped steps towards the two conditions, on fixed draws."""
    root = root_of(curvature, blocks)
    value, gradient, hessian = _look(moments, mean, root, noise, blocks)
    if not np.isfinite(value):
        return None
    first = np.sqrt(np.diag(np.linalg.inv(curvature)))
    rate, idle = 1.0, 0
    for _ in range(FRAME_STEPS):
        wanted, least = _bounded(hessian, curvature)
        while True:
            new_curvature = (1 - rate) * curvature + rate * wanted
            factor = cho_factor(new_curvature, lower=True)
            new_mean = mean - rate * cho_solve(factor, gradient)
            new_root = root_of(new_curvature, blocks)
            found = _look(moments, new_mean, new_root, noise, blocks)
            if found[0] < value:
                break
            rate /= 4.0
            if rate < 1e-4:
                return Gaussian(mean, root, value, curvature, True, np.empty(0))
        gained, (value, gradient, hessian) = value - found[0], found
        mean, root, curvature = new_mean, new_root, new_curvature
        record((value, rate))
        rate = min(1.0, 3.0 * rate)
        spread = np.sqrt(np.diag(np.linalg.inv(curvature)))
        if least <= LEAST_CURVATURE and np.any(spread > GROWTH * first * (1 + abs(mean))):
            direction = np.linalg.eigh(curvature)[1][:, 0]
            return Gaussian(mean, root, value, curvature, False, direction)
        idle = idle + 1 if gained < TOL else 0
        if idle == 2:
            return Gaussian(mean, root, value, curvature, True, np.empty(0))
    return Gaussian(mean, root, value, curvature, False, np.empty(0))


def best_diagonal(
    slopes: Callable,
    mean: np.ndarray,
    sd: np.ndarray,
    blocks: FrameBlocks,
    record: Callable[[tuple[float, float]], None],
) -> Gaussian | None:
    """The Gaussian of independent coordinates of least J; None if U is not finite around it.

    For many coordinates, where Hessians cost too much. ``slopes(places)`` has U and its gradient
    at every row. L-BFGS on fixed mirrored draws finds means and log sds (Giordano et al. 2024); it
    knows units, so it begins again with the sds that it has found as units.
    """
    gammas = np.zeros(len(mean))
    for place, gamma in zip(blocks.places, blocks.gammas, strict=True):
        gammas[place] = gamma
    every = mirrored_noise(FEW, len(mean))
    noise, probes = np.where(gammas > 0, every, 0.0), np.where(gammas > 0, 0.0, every)
    value, converged = np.inf, False
    for _ in range(DIAGONAL_ROUNDS):
        origin, unit = mean, sd

        def objective(x: np.ndarray, origin: Any = origin, unit: Any = unit) -> tuple[float, Any]:
            shift, log_sd = np.split(x, 2)
            wide = unit * np.exp(log_sd)
            energies, gradients = slopes(origin + unit * shift + noise * wide)
            total = float(np.mean(energies) - gammas @ log_sd)
            if not (np.isfinite(total) and np.all(np.isfinite(gradients))):
                return 1e100, np.zeros(len(x))
            by_scale = np.mean(gradients * noise, axis=0) * wide - gammas
            return total, np.concatenate([unit * np.mean(gradients, axis=0), by_scale])

        start = objective(np.zeros(2 * len(mean)))[0]
        if start >= 1e100:
            return None
        found = minimize(
            objective,
            np.zeros(2 * len(mean)),
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, None)] * len(mean) + [(-MOST_LOG_SD, MOST_LOG_SD)] * len(mean),
            options={"maxiter": FRAME_STEPS, "maxcor": 20, "ftol": 1e-12, "gtol": 1e-6},
        )
        shift, log_sd = np.split(found.x, 2)
        mean, sd = origin + unit * shift, unit * np.exp(log_sd)
        entropy = gammas @ (np.log(sd) + 0.5 * np.log(2 * np.pi * np.e))
        value = float(found.fun + gammas @ log_sd - entropy)
        record((value, 1.0))
        if not np.all(gammas > 0):  # a point has no sd; its unit is that of its curvature
            near = PROBE * sd
            bent = np.mean(slopes(mean + near * probes)[1] * probes, axis=0) / near
            unit = 1 / np.sqrt(np.maximum(abs(bent), 1e-300))
            sd = np.where(gammas > 0, sd, np.clip(unit, sd * np.exp(-MOST_LOG_SD), 1e3 * sd))
        converged = start - found.fun < TOL
        if converged:
            break
    curvature = np.where(gammas > 0, gammas, 1.0) / sd**2
    root = np.where(gammas > 0, sd, 0.0)
    return Gaussian(mean, root, value, curvature, converged, np.empty(0))


def _look(
    moments: Callable, mean: np.ndarray, root: np.ndarray, noise: np.ndarray, blocks: FrameBlocks
) -> tuple[float, np.ndarray, np.ndarray]:
    # always as many draws at once, so one program is compiled
    parts = [moments(mean, root, noise[i : i + FEW]) for i in range(0, len(noise), FEW)]
    energies, gradient, hessian = (np.mean(part, axis=0) for part in zip(*parts, strict=True))
    if not (np.all(np.isfinite(energies)) and np.all(np.isfinite(hessian))):
        return np.inf, gradient, hessian
    entropy = sum(
        gamma * (np.log(np.diag(root)[place]) + 0.5 * np.log(2 * np.pi * np.e)).sum()
        for place, gamma in zip(blocks.places, blocks.gammas, strict=True)
        if gamma > 0
    )
    return float(energies.mean() - entropy), gradient, 0.5 * (hessian + hessian.T)


def _bounded(hessian: np.ndarray, curvature: np.ndarray) -> tuple[np.ndarray, float]:
    """The Hessian, with at least a share of the present curvature in every direction."""
    root = cholesky(curvature, lower=True)
    half = solve_triangular(root, hessian, lower=True)
    values, vectors = eigh(solve_triangular(root, half.T, lower=True))
    turned = root @ vectors
    kept = (turned * np.clip(values, LEAST_CURVATURE, MOST_CURVATURE)) @ turned.T
    return 0.5 * (kept + kept.T), float(values[0])


def root_of(curvature: np.ndarray, blocks: FrameBlocks) -> np.ndarray:
    """The root of the covariance of the best q for a quadratic U with this Hessian.

    Rows of a point are 0. In a chain u_k = -A^-1 B u_<k + sqrt(gamma_k) A^-1/2 e_k, where A and B
    are the blocks (k, k) and (k, <k) of the Schur complement that is left once the later blocks are
    integrated out.
    """
    size = len(curvature)
    root = np.zeros((size, size))
    if blocks.joint == "none":
        for place, gamma in zip(blocks.places, blocks.gammas, strict=True):
            root[place, place] = np.sqrt(gamma / np.diag(curvature)[place])
        return root
    left = curvature.copy()
    given: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for k in range(len(blocks.places) - 1, -1, -1):
        place, gamma = blocks.places[k], blocks.gammas[k]
        before = _before(blocks, k)
        if gamma > 0:
            # the lower factor of the inverse: A = U U' with U upper, so A^-1 = U^-T U^-1
            upper = cholesky(left[np.ix_(place, place)][::-1, ::-1], lower=True)[::-1, ::-1]
            inner = solve_triangular(upper, np.eye(len(place))).T
            root[np.ix_(place, place)] = np.sqrt(gamma) * inner
            if blocks.joint == "chain":
                follow = -inner @ (inner.T @ left[np.ix_(place, before)])
                left[np.ix_(before, before)] += left[np.ix_(before, place)] @ follow
                given.append((place, before, follow))
    for place, before, follow in reversed(given):
        root[np.ix_(place, before)] = follow @ root[np.ix_(before, before)]
    return root


def _before(blocks: FrameBlocks, k: int) -> np.ndarray:
    """Coordinates of the earlier blocks that vary."""
    parts = [p for p, g in zip(blocks.places[:k], blocks.gammas[:k], strict=True) if g > 0]
    return np.concatenate(parts) if parts else np.empty(0, int)


def mirrored_noise(count: int, size: int) -> np.ndarray:
    """Standard normal draws in mirrored pairs, spread evenly (scrambled Sobol points)."""
    points = qmc.Sobol(size, seed=0).random(count // 2)
    half = norm.ppf(np.clip(points, 1e-6, 1 - 1e-6))
    return np.concatenate([half, -half])

"""The last, deterministic phase of a fit: Newton's method on one fixed set of mirrored draws.

With the draws fixed, J is a smooth function of the guide's parameters (Giordano et al. 2024), and a
damped Newton method can follow slopes that the noise of fresh draws hides. The case in point is a
coefficient that vanishes as the confidence in its scale does: J falls like the scale itself, so
gradient steps in the log of the scale slow down for ever, and Newton's take off a constant factor.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.primitives import Messenger
from scipy.linalg import LinAlgError, cho_factor, cho_solve

POLISH_STEPS = 200
MOST_PARAMETERS = 2000  # the Hessian is dense
MOST_DAMPING = 1e12


class Polished(NamedTuple):
    """Where Newton's method ended, and if no step there promises a gain of tol."""

    params: Any
    converged: bool


def newton(
    value_and_gradient: Callable,
    hessian: Callable,
    params: Any,
    units: Any,
    tol: float,
    report: Callable[[int, float, float], None],
) -> Polished:
    """Minimise by Newton steps, damped until they keep what they promise (Levenberg-Marquardt).

    The damping is never less than ``tol``: a direction in which one unit of the parameters changes
    the objective by less is left alone, since Newton's step along it would be far and worthless.
    """
    flat, unravel = ravel_pytree(params)
    scale = np.asarray(
        ravel_pytree(jax.tree.map(lambda u, p: jnp.broadcast_to(u, p.shape), units, params))[0]
    )
    x, damping = flat, max(1e-2, tol)
    value, gradient = _at(value_and_gradient, params)
    for step in range(POLISH_STEPS):
        curvature = np.asarray(hessian(unravel(x)))
        curvature = 0.5 * (curvature + curvature.T)
        if not np.all(np.isfinite(curvature)):
            return Polished(unravel(x), False)
        while True:
            try:
                factor = cho_factor(curvature + np.diag(damping / scale**2))
            except LinAlgError:
                damping *= 4.0
                continue
            move = -cho_solve(factor, gradient)
            promised = -float(gradient @ move + 0.5 * move @ curvature @ move)
            new_value, new_gradient = _at(value_and_gradient, unravel(x + move))
            kept = (value - new_value) / promised if promised > 0 else -1.0
            if kept > 1e-3 and np.all(np.isfinite(new_gradient)):
                break
            if promised < tol or damping > MOST_DAMPING:  # nothing left, or only rounding
                return Polished(unravel(x), promised < tol)
            damping *= 4.0
        x, value, gradient = x + move, new_value, new_gradient
        report(step + 1, value, promised)
        if promised < tol and damping <= 1.0:
            return Polished(unravel(x), True)
        damping = max(damping / 8.0, tol) if kept > 0.75 else damping * (1 + (kept < 0.25))
    return Polished(unravel(x), False)


class mirrored(Messenger):
    """Reflects every normal draw about its location if ``sign`` is -1.

    A pair of draws with signs 1 and -1 has the guide's mean exactly, so the means of blocks
    do not inherit the error of a finite set of draws. Wraps a guide that is already seeded.
    """

    def __init__(self, fn: Callable, sign: Any, free: frozenset[str]) -> None:
        super().__init__(fn)
        self.sign, self.free = sign, free

    def process_message(self, msg: Any) -> None:
        if msg["type"] != "sample" or msg["is_observed"] or msg["value"] is not None:
            return
        value = msg["fn"](**msg["kwargs"])
        try:
            msg["value"] = _reflect(msg["fn"], value, self.sign)
        except NotImplementedError:
            if msg["name"] not in self.free:  # the prior's draws do not move with the parameters
                raise ValueError(
                    "polish needs draws that are smooth in the guide's parameters, but "
                    f"{msg['name']!r} is drawn from {type(msg['fn']).__name__}. Use normals or "
                    "transformed normals (the built-in guides do), or leave polish=0."
                ) from None
            msg["value"] = value


def _reflect(fn: Any, value: Any, sign: Any) -> Any:
    if isinstance(fn, dist.Delta):
        return value
    if isinstance(fn, dist.Normal | dist.MultivariateNormal | dist.LowRankMultivariateNormal):
        return fn.loc + sign * (value - fn.loc)
    if isinstance(fn, dist.ExpandedDistribution | dist.Independent | dist.MaskedDistribution):
        return _reflect(fn.base_dist, value, sign)
    if isinstance(fn, dist.TransformedDistribution):
        for transform in reversed(fn.transforms):
            value = transform.inv(value)
        value = _reflect(fn.base_dist, value, sign)
        for transform in fn.transforms:
            value = transform(value)
        return value
    raise NotImplementedError


def _at(value_and_gradient: Callable, params: Any) -> tuple[float, np.ndarray]:
    value, gradient = value_and_gradient(params)
    return float(value), np.asarray(ravel_pytree(gradient)[0])

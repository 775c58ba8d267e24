"""What the flow guide adds to the conditional one: a spline for every coordinate, and a network.

A block is loc(c) + scale(c) L s(e), with e standard normal, s a monotone spline for every
coordinate, and c the earlier blocks. The conditional guide is the case s(e) = e with loc affine
in c and scale constant, or following the prior. A chain, the states of a scan, is
loc(c) + (I - B(c))^-1 scale(c) L s(e), where B carries every state over to the next one: given the
parameters such states are Markov, and how strongly they hang together depends on the parameters.
NumPyro's own flows cannot be conditioned on other sites.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import stop_gradient
from jax.scipy.linalg import solve_triangular
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform

SPLINE_BINS = 8
END = 5.0  # beyond this many standard deviations the spline is the identity
LEAST_BIN = 1e-3  # of a bin's share, and of a slope
FLOW_HIDDEN = 16
FAMILY_HIDDEN, SMALL_BLOCK = 32, 4  # units where confidences are context: cheap for few coordinates
MOST_LOG_SCALE = 4.0
MOST_BENT = 20  # coordinates of a block: computing splines for every draw is most of the cost


class Spline(Transform):
    """Rational quadratic splines (Durkan et al. 2019), one for each coordinate of a vector.

    ``shape`` has a row of 3 * SPLINE_BINS - 1 free numbers for each coordinate; zeros are the
    identity.
    """

    domain = constraints.real_vector
    codomain = constraints.real_vector

    def __init__(self, shape: Any) -> None:
        self.shape = shape

    def __call__(self, x: Any) -> Any:
        left, bottom, width, height, low, high = self._bin(x, of_values=False)
        slope = height / width
        t = jnp.clip((x - left) / width, 0.0, 1.0)
        rise = slope * t**2 + low * t * (1 - t)
        y = bottom + height * rise / (slope + (high + low - 2 * slope) * t * (1 - t))
        return jnp.where(jnp.abs(x) < END, y, x)

    def _inverse(self, y: Any) -> Any:
        left, bottom, width, height, low, high = self._bin(y, of_values=True)
        slope = height / width
        above = jnp.clip(y - bottom, 0.0, height)
        bend = above * (high + low - 2 * slope)
        a, b, c = height * (slope - low) + bend, height * low - bend, -slope * above
        root = jnp.sqrt(jnp.maximum(b**2 - 4 * a * c, 1e-30))
        x = left + width * 2 * c / (-b - root)
        return jnp.where(jnp.abs(y) < END, x, y)

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        left, _, width, height, low, high = self._bin(x, of_values=False)
        slope = height / width
        t = jnp.clip((x - left) / width, 0.0, 1.0)
        top = high * t**2 + 2 * slope * t * (1 - t) + low * (1 - t) ** 2
        bottom = slope + (high + low - 2 * slope) * t * (1 - t)
        each = 2 * jnp.log(slope) + jnp.log(top) - 2 * jnp.log(bottom)
        return jnp.sum(jnp.where(jnp.abs(x) < END, each, 0.0), axis=-1)

    def _bin(self, at: Any, of_values: bool) -> list[Any]:
        """Left end, value there, width, height and both slopes of the bin that holds ``at``."""
        widths, heights = (self.shape[:, i * SPLINE_BINS : (i + 1) * SPLINE_BINS] for i in (0, 1))
        widths, heights = (2 * END * _shares(free) for free in (widths, heights))
        x = jnp.cumsum(widths, axis=1) - widths - END
        y = jnp.cumsum(heights, axis=1) - heights - END
        # softplus, moved so that 0 is the slope 1
        inner = LEAST_BIN + jax.nn.softplus(
            self.shape[:, 2 * SPLINE_BINS :] + np.log(np.expm1(1 - LEAST_BIN))
        )
        ends = jnp.ones_like(inner[:, :1])
        low, high = (jnp.concatenate(parts, axis=1) for parts in ([ends, inner], [inner, ends]))
        knots = y if of_values else x
        index = jnp.sum(at[..., None] >= knots[:, 1:], axis=-1)
        here = jax.nn.one_hot(index, SPLINE_BINS, dtype=at.dtype)
        return [jnp.sum(here * each, axis=-1) for each in (x, y, widths, heights, low, high)]

    def tree_flatten(self) -> Any:
        return (self.shape,), (("shape",), {})


class Affine(Transform):
    """x -> loc + (I - B)^-1 A R S L x, with A = diag exp ahead, S = diag exp log_scale, diag L = 1.

    One factor after the other: of the matrices only diagonals depend on the context, so those with
    ``lower`` (strictly, L - I) and ``root`` (R, a constant; None for I) are the same for all draws,
    and no matrix is made for each of them.
    """

    domain = constraints.real_vector
    codomain = constraints.real_vector

    def __init__(
        self,
        loc: Any,
        lower: Any,
        log_scale: Any,
        root: Any,
        ahead: Any,
        carry: Any = None,
        step: int = 1,
    ) -> None:
        self.loc, self.lower, self.log_scale, self.ahead = loc, lower, log_scale, ahead
        self.root = None if root is None else stop_gradient(root)
        self.carry, self.step = carry, step  # of B, as in `carried`

    def chained(self, carry: Any, step: int) -> "Affine":
        """The same with every state of a chain carried over to the next one."""
        return Affine(self.loc, self.lower, self.log_scale, self.root, self.ahead, carry, step)

    def tril(self) -> Any:
        """The matrix of the map without a chain."""
        tril = jnp.exp(self.log_scale)[:, None] * (
            jnp.tril(self.lower, -1) + jnp.eye(len(self.loc))
        )
        return jnp.exp(self.ahead)[:, None] * (tril if self.root is None else self.root @ tril)

    def __call__(self, x: Any) -> Any:
        y = jnp.exp(self.log_scale) * (x + x @ jnp.tril(self.lower, -1).T)
        y = jnp.exp(self.ahead) * (y if self.root is None else y @ self.root.T)
        if self.carry is not None:
            y = carried(y.T, self.carry, self.step).T
        return self.loc + y

    def _inverse(self, y: Any) -> Any:
        y = y - self.loc
        if self.carry is not None:
            back = self.carry[self.step :] * y[..., : -self.step]
            y = y.at[..., self.step :].add(-back)
        y = jnp.exp(-self.ahead) * y
        if self.root is not None:
            y = solve_triangular(self.root, y.T, lower=True).T
        y = jnp.exp(-self.log_scale) * y
        return solve_triangular(self.lower, y.T, lower=True, unit_diagonal=True).T

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        each = self.log_scale + self.ahead
        if self.root is not None:
            each = each + jnp.log(jnp.diagonal(self.root))
        return jnp.broadcast_to(jnp.sum(each), jnp.shape(x)[:-1])

    def tree_flatten(self) -> Any:
        names = ("loc", "lower", "log_scale", "root", "ahead", "carry")
        return tuple(getattr(self, name) for name in names), (names, {"step": self.step})


def initial_flow(
    key: np.random.Generator, size: int, context: int, *, chain: bool, bends: bool = False
) -> dict[str, Any]:
    """Parameters of a flow that is the identity, by the end of their names.

    With ``bends`` the splines of a small block, too, depend on the context.
    """
    params: dict[str, Any] = {"spline": np.zeros((size, 3 * SPLINE_BINS - 1))}
    if chain:
        params["carry"] = np.zeros(size)
    if context:
        outputs = 2 + (chain or bends) + (bends and size <= MOST_BENT) * (3 * SPLINE_BINS - 1)
        hidden = FAMILY_HIDDEN if bends and size <= SMALL_BLOCK else FLOW_HIDDEN
        params["hidden"] = key.normal(size=(hidden, context + 1)) / np.sqrt(context + 1)
        params["out"] = np.zeros((outputs * size, hidden))
    return params


class Outputs(NamedTuple):
    """What a network of the earlier blocks changes; the last two may be empty."""

    shift: Any  # in sds of every coordinate
    log_scale: Any
    further: Any  # of the carry of a chain, or of the share of the prior that is followed
    spline: Any


def network(hidden: Any, out: Any, context: Any, size: int) -> Outputs:
    """One hidden layer."""
    inside = jnp.tanh(hidden @ jnp.concatenate([context, jnp.ones(1)]))
    made = out @ inside
    ends = [size, 2 * size, min(3 * size, made.size)]  # JAX refuses ends beyond the end
    shift, log_scale, further, spline = jnp.split(made, ends)
    log_scale = MOST_LOG_SCALE * jnp.tanh(log_scale / MOST_LOG_SCALE)
    return Outputs(shift, log_scale, further, jnp.reshape(spline, (-1, 3 * SPLINE_BINS - 1)))


def carried(x: Any, carry: Any, step: int) -> Any:
    """(I - B)^-1 x, with ``carry`` on the diagonal of B that is ``step`` below the main one.

    (I - B)^-1 is the product of I + B, I + B^2, I + B^4, ..., and each power has one diagonal.
    """
    while step < len(carry):
        x = x.at[step:].add((carry[step:] * x[:-step].T).T)
        carry = carry.at[:step].set(0.0)
        carry = carry.at[step:].multiply(carry[:-step])
        step *= 2
    return x


def chain_start(params: Mapping[str, Any], steps: Mapping[str, int]) -> dict[str, Any]:
    """A fitted conditional guide as a flow, the states of every chain carried over.

    ``steps`` has the number of coordinates of one step for every chain. The covariance stays what
    it is.
    """
    started = dict(params)
    for name, step in steps.items():
        lower = params.get(f"{name}:lower")
        if lower is None or step >= len(lower):
            continue
        scale = np.exp(np.ravel(params[f"{name}:log_scale"]))
        carry, rest = split_chain(scale[:, None] * (np.tril(lower, -1) + np.eye(len(scale))), step)
        started[f"{name}:carry"] = carry
        started[f"{name}:lower"] = np.tril(rest / scale[:, None], -1)
    return started


def split_chain(tril: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """L as (I - B)^-1 times the rest, which is diagonal if the chain is Markov; the carry of B."""
    carry = np.zeros(len(tril))
    rest = tril.copy()
    if step < len(tril):
        inverse = np.linalg.inv(tril)
        carry[step:] = -np.diagonal(inverse, -step) / np.diagonal(inverse)[step:]
        rest[step:] -= carry[step:, None] * tril[:-step]
    return carry, rest


def _shares(free: Any) -> Any:
    return LEAST_BIN + (1 - SPLINE_BINS * LEAST_BIN) * jax.nn.softmax(free, axis=1)

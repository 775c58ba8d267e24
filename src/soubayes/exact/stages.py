"""A model as one-dimensional stages: what the exact engine walks through.

A block of d dimensions becomes d stages with the block's confidence, each coordinate given the
earlier ones; equal confidences on adjacent stages are one tempered block, so nothing changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import expit, log_expit
from scipy.stats import norm

from soubayes.exact.model import Block, Discrete, Model, check_distribution, is_normal_vector


@dataclass(frozen=True, eq=False)
class Stage:
    """One coordinate of one block."""

    block: Block
    part: int  # which coordinate of the block
    parts: int  # how many the block has
    grid: np.ndarray | None

    @property
    def name(self) -> str:
        return self.block.name


def make_stages(
    model: Model, grid: Mapping[str, Any] | None = None
) -> tuple[list[Stage], list[np.ndarray]]:
    """The stages of a model and their priors' medians, with priors and grid checked there."""
    grid = dict(grid or {})
    unknown = sorted(set(grid) - set(model.names))
    if unknown:
        raise ValueError(f"grid names {unknown}, but the blocks are {list(model.names)}.")
    stages: list[Stage] = []
    medians: list[np.ndarray] = []
    for block in model.blocks:
        parts = count_parts(block, stages, medians)
        given = grid.get(block.name)
        nodes = [None] * parts if given is None else [given] if parts == 1 else list(given)
        if len(nodes) != parts:
            raise ValueError(f"grid of block {block.name!r} needs {parts} arrays of nodes.")
        for part in range(parts):
            stage = Stage(block, part, parts, check_grid(nodes[part], block.name))
            medians.append(median_at(stage, stages, medians))
            stages.append(stage)
    return stages, medians


def median_at(stage: Stage, earlier: Sequence[Stage], context: Sequence[np.ndarray]) -> np.ndarray:
    """The prior's median at one point of the earlier stages, or why there is none."""
    median = conditional(stage, earlier, context).median()
    if median.dtype.kind == "f" and not np.isfinite(median).all():
        where = f" when {describe(earlier, context)}" if context else ""
        raise ValueError(
            f"prior of block {stage.name!r} is not a proper distribution{where}: its median is "
            f"{median[0]}. Check its parameters; improper priors are not allowed, nor those with "
            "half of their mass beyond the largest float (use a proper one that is less wide, or a "
            "small confidence)."
        )
    return median


def describe(stages: Sequence[Stage], context: Sequence[np.ndarray]) -> str:
    """mu = 0.5, tau = 2: one point of the stages in words."""
    pairs = ((stage.name, values[0]) for stage, values in zip(stages, context, strict=False))
    return ", ".join(
        f"{name} = {value:.6g}" if np.issubdtype(type(value), np.number) else f"{name} = {value}"
        for name, value in pairs
    )


def check_grid(nodes: Any, name: str) -> np.ndarray | None:
    if nodes is None:
        return None
    nodes = np.asarray(nodes)
    if nodes.ndim != 1 or len(nodes) < 1 or len(np.unique(nodes)) < len(nodes):
        raise ValueError(f"grid of block {name!r} must be a list of distinct nodes.")
    if nodes.dtype.kind in "fiu" and not np.isfinite(nodes).all():
        raise ValueError(f"grid of block {name!r} holds NaN or inf; nodes must be finite.")
    return np.sort(nodes)


def block_values(
    stages: Sequence[Stage], context: Sequence[np.ndarray], axes: int = 0
) -> list[np.ndarray]:
    """Flat stage values as one array a block, with ``axes`` further axes of length 1."""
    values: list[np.ndarray] = []
    at = 0
    while at < len(context):
        parts = stages[at].parts
        if at + parts > len(context):
            break  # the block is not complete yet
        columns = [c.reshape(c.shape + (1,) * axes) for c in context[at : at + parts]]
        values.append(columns[0] if parts == 1 else np.stack(columns, axis=-1))
        at += parts
    return values


def count_parts(block: Block, stages: Sequence[Stage], medians: Sequence[np.ndarray]) -> int:
    prior = block.prior
    if block.is_conditional:
        try:
            prior = prior(*block_values(stages, medians, axes=1))
        except Exception as error:  # the caller's function may raise anything
            earlier = list(dict.fromkeys(stage.name for stage in stages))
            raise ValueError(
                f"prior of block {block.name!r} failed when called with the earlier blocks "
                f"{earlier} (in this order, as arrays): {error}"
            ) from error
        check_distribution(prior, block.name)
    if is_normal_vector(prior):
        return len(prior.mean)
    return len(prior) if isinstance(prior, tuple | list) else 1


def conditional(
    stage: Stage, earlier: Sequence[Stage], context: Sequence[np.ndarray]
) -> "FinitePrior | Conditional":
    """The prior of a stage given flat values of the earlier ones, all rows at once."""
    rows = len(context[0]) if context else 1
    prior = stage.block.prior
    with np.errstate(all="ignore"):
        if stage.block.is_conditional:
            prior = prior(*block_values(earlier, context, axes=1))
        if is_normal_vector(prior):
            prior = normal_coordinate(prior, context[len(context) - stage.part :], stage.name)
        elif isinstance(prior, tuple | list):
            prior = prior[stage.part]
    if isinstance(prior, Discrete):
        weights = np.asarray(prior.weights)
        weights = np.broadcast_to(weights.reshape(-1, weights.shape[-1]), (rows, weights.shape[-1]))
        return FinitePrior(stage.name, np.asarray(prior.values), weights)
    return Conditional(stage.name, prior, rows)


def log_prior(
    stage: Stage, earlier: Sequence[Stage], context: Sequence[np.ndarray], theta: np.ndarray
) -> np.ndarray:
    """log pi(theta_k | theta_<k), a density or a mass, at flat points."""
    prior = conditional(stage, earlier, context)
    if isinstance(prior, FinitePrior):
        order = np.argsort(prior.values)
        at = order[np.minimum(np.searchsorted(prior.values[order], theta), len(order) - 1)]
        weights = np.broadcast_to(prior.weights, (len(theta), len(order)))
        found = prior.values[at] == theta
        return np.where(found, np.log(weights[np.arange(len(theta)), at]), -np.inf)
    rows = np.arange(len(theta)) if context else np.zeros(len(theta), dtype=int)
    return prior.log_density(rows, theta[:, None])[:, 0]


def normal_coordinate(prior: Any, before: Sequence[np.ndarray], name: str) -> Any:
    """Coordinate i of a multivariate normal given the coordinates before it."""
    i = len(before)
    try:
        root = np.linalg.cholesky(prior.cov)
    except np.linalg.LinAlgError as error:
        raise ValueError(f"covariance of block {name!r} must be positive definite.") from error
    mean = prior.mean[i]
    if i:
        shift = np.stack([b - m for b, m in zip(before, prior.mean, strict=False)])
        mean = (mean + root[i, :i] @ solve_triangular(root[:i, :i], shift, lower=True))[:, None]
    return norm(mean, root[i, i])


class FinitePrior(NamedTuple):
    """A finite conditional prior: the same values in every row, their weights (rows, m)."""

    name: str
    values: np.ndarray
    weights: np.ndarray

    def median(self) -> np.ndarray:
        return self.values[self.weights[:1].argmax(axis=1)]


class Conditional:
    """A scipy distribution whose parameters have one row for every earlier point."""

    def __init__(self, name: str, prior: Any, rows: int) -> None:
        self.name, self.prior, self.rows = name, prior, rows
        self.is_discrete = not hasattr(prior, "logpdf")

    def quantile(self, p: float) -> np.ndarray:
        """(rows,) quantiles; NaN where the parameters are impossible."""
        with np.errstate(all="ignore"):
            return np.broadcast_to(self.prior.ppf(p), (self.rows, 1))[:, 0].astype(float)

    def median(self) -> np.ndarray:
        return self.quantile(0.5)

    def support(self) -> tuple[np.ndarray, np.ndarray]:
        low, high = (np.broadcast_to(end, (self.rows, 1))[:, 0] for end in self.prior.support())
        return low, high

    def log_density(self, rows: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """Log density or mass at theta of shape (len(rows), m)."""

        def pick(parameter: Any) -> Any:
            per_row = np.ndim(parameter) == 2 and len(parameter) == self.rows
            return parameter[rows] if per_row else parameter

        with np.errstate(all="ignore"):
            if hasattr(self.prior, "dist"):  # scipy's frozen distributions
                family = self.prior.dist
                density = family.logpmf if self.is_discrete else family.logpdf
                keywords = {name: pick(value) for name, value in self.prior.kwds.items()}
                return density(theta, *map(pick, self.prior.args), **keywords)
            if len(rows) == self.rows and (rows == np.arange(self.rows)).all():
                return (self.prior.logpmf if self.is_discrete else self.prior.logpdf)(theta)
            raise TypeError(
                f"prior of block {self.name!r} is {self.prior!r}; a conditional prior must be a "
                "frozen scipy.stats distribution or soubayes.Discrete."
            )


class Coordinate:
    """A monotone map from the line y to a prior's support: identity, log or logit."""

    def __init__(self, low: np.ndarray, high: np.ndarray, name: str) -> None:
        self.low, self.high = low, high
        bounded = bool(np.isfinite(low).any()), bool(np.isfinite(high).any())
        if bounded != (np.isfinite(low).all(), np.isfinite(high).all()):
            raise ValueError(
                f"support of the prior of block {name!r} is bounded for some values of the earlier "
                "blocks and unbounded for others. Use a prior of one kind."
            )
        self.bounded = bounded

    def line_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """How far a search on y can go, one of each for a row.

        theta must not reach an end of its support, where a density may be infinite, and exp(y) must
        be a number.
        """
        most = np.full(len(self.low), 700.0 if any(self.bounded) else np.inf)
        low, high = -most, most
        with np.errstate(all="ignore"):  # spacing: from one float to the next
            both = self.bounded == (True, True)
            width = self.high - self.low if both else np.ones(len(self.low))
            if self.bounded[0]:
                low = np.maximum(low, np.log(np.spacing(np.abs(self.low)) / width))
            if self.bounded[1]:  # scipy asks how far theta is from the lower end, if there is one
                largest = np.maximum(np.abs(self.high), width if both else 0.0)
                high = np.minimum(high, -np.log(np.spacing(largest) / width))
        return low, high

    def theta(self, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
        low, high = self.low[rows, None], self.high[rows, None]
        match self.bounded:
            case (True, True):
                up, down = (high - low) * expit(y), (high - low) * expit(-y)
                return np.where(y < 0, low + up, high - down)
            case (True, False):
                return low + np.exp(y)
            case (False, True):
                return high - np.exp(-y)
        return y

    def log_slope(self, rows: np.ndarray, y: np.ndarray) -> np.ndarray | float:
        match self.bounded:
            case (True, True):
                width = (self.high - self.low)[rows, None]
                return np.log(width) + log_expit(y) + log_expit(-y)
            case (True, False):
                return y
            case (False, True):
                return -y
        return 0.0

    def line(self, theta: np.ndarray) -> np.ndarray:
        """y of theta, one for each row."""
        with np.errstate(all="ignore"):
            match self.bounded:
                case (True, True):
                    return np.log(theta - self.low) - np.log(self.high - theta)
                case (True, False):
                    return np.log(theta - self.low)
                case (False, True):
                    return -np.log(self.high - theta)
        return theta

"""What the exact engines return: one surface over nodes or over Gaussians."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from soubayes._types import DataTree, Distribution, Number, Seed
from soubayes.exact.nodes import Engine, Placed
from soubayes.exact.stages import Stage, block_values
from soubayes.exact.tree import Solution, soft_minimum
from soubayes.feedback import check_minimises, reduced
from soubayes.results import Printable, Shown, WholeTable, to_inference_data


class ExactPosterior(Printable, ABC):
    r"""The SoU posterior of a small model, with its value and what each block cost.

    Attributes
    ----------
    confidence : dict of str to float
        The confidence of each block.
    value : float
        J(q), not divided by n: its minimum, unless feedback between modules was reduced.
    expected_loss : float
        The expected loss under the posterior.
    kl : dict of str to float
        What it cost each block to leave its prior, in nats.
    eta : dict of str to float
        The feedback of each block to the earlier ones: 1 unless it was reduced.
    names : tuple of str
        The blocks, in order.

    Notes
    -----
    :func:`soubayes.solve_exact` and :func:`soubayes.solve_gaussian` return it. ``value`` is
    :math:`V_0` of Theorem 1 of [1]_, and ``kl`` holds :math:`E_q\,\mathrm{KL}(q(\theta_k \mid
    \theta_{<k}) \| \pi(\theta_k \mid \theta_{<k}))`. With all confidences 1 and a log likelihood as
    loss, ``value`` is minus the log evidence.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from scipy import stats
    >>> from soubayes import Block, Model, solve_exact
    >>> model = Model([Block("mu", stats.norm(0, 1))], loss=lambda mu: (mu - 2) ** 2 / 2)
    >>> posterior = solve_exact(model)
    >>> isinstance(posterior, ExactPosterior)
    True
    >>> print(posterior.summary().round(4).to_string(index=False))
    block  confidence  mean     sd   lower  upper     kl
       mu         1.0   1.0 0.7071 -0.1631 2.1631 0.5966
    """

    confidence: dict[str, float]
    value: float
    expected_loss: float
    kl: dict[str, float]

    @property
    def eta(self) -> dict[str, float]:
        """The feedback of each block to the earlier ones."""
        return dict.fromkeys(self.confidence, 1.0)

    @property
    def names(self) -> tuple[str, ...]:
        """The blocks, in order."""
        return tuple(self.confidence)

    @abstractmethod
    def marginal(self, name: str) -> Distribution | list[Distribution]:
        """The posterior of one block.

        Parameters
        ----------
        name : str
            The block.

        Returns
        -------
        marginal : distribution, or list of distributions
            An object with the methods ``mean()``, ``std()``, ``ppf(p)``, ``cdf(x)`` and ``pdf(x)``.
            For a block of several dimensions a list with one for each coordinate.
        """

    @abstractmethod
    def sample(self, n: int, random_state: Seed = 0) -> dict[str, np.ndarray]:
        """Independent draws from the posterior.

        Parameters
        ----------
        n : int
            The number of draws.
        random_state : int, Generator or None, default=0
            The seed of the draws.

        Returns
        -------
        draws : dict of str to ndarray
            For each block an array whose first axis has length n.
        """

    @abstractmethod
    def mean(self, name: str) -> Number:
        """Posterior mean of a block.

        Parameters
        ----------
        name : str
            The block.

        Returns
        -------
        mean : float or ndarray
            An array for a block of several dimensions.
        """

    @abstractmethod
    def sd(self, name: str) -> Number:
        """Posterior standard deviation of a block.

        Parameters
        ----------
        name : str
            The block.

        Returns
        -------
        sd : float or ndarray
            An array for a block of several dimensions.
        """

    @abstractmethod
    def quantile(self, name: str, p: ArrayLike) -> Number:
        """Posterior quantiles of a block.

        Parameters
        ----------
        name : str
            The block.
        p : float or array-like
            Probabilities between 0 and 1.

        Returns
        -------
        quantile : float or ndarray
            For a block of several dimensions the coordinates are on the last axis.
        """

    def sensitivity(self) -> dict[str, float]:
        """How the value moves with each confidence.

        Returns
        -------
        slopes : dict of str to float
            The derivative of ``value`` by each confidence, which equals ``kl``.

        Raises
        ------
        ValueError
            If feedback between modules was cut or reduced: such a posterior does not minimise J.
        """
        check_minimises(self.eta)
        return dict(self.kl)

    def summary(self) -> pd.DataFrame:
        """Summarise the posterior in a table.

        Returns
        -------
        table : pandas.DataFrame
            One row for each coordinate: mean, sd, central 90 % interval, and the KL of its block.
        """
        rows: list[tuple[Any, ...]] = []
        for name in self.names:
            try:
                mean, sd = np.atleast_1d(self.mean(name)), np.atleast_1d(self.sd(name))
                interval = np.reshape(self.quantile(name, [0.05, 0.95]), (2, -1))
            except TypeError:  # labels have no mean
                mean, sd, interval = np.array([np.nan]), np.array([np.nan]), np.full((2, 1), np.nan)
            for i in range(len(mean)):
                label = name if len(mean) == 1 else f"{name}[{i}]"
                gamma, kl = self.confidence[name], self.kl[name]
                rows.append((label, gamma, mean[i], sd[i], interval[0, i], interval[1, i], kl))
        titles = ("block", "confidence", "mean", "sd", "lower", "upper", "kl")
        return WholeTable(rows, columns=list(titles))

    def to_arviz(self, draws: int = 1000, random_state: Seed = 0) -> DataTree:
        """Export draws to ArviZ (extra ``plot``).

        Parameters
        ----------
        draws : int, default=1000
            The number of draws.
        random_state : int, Generator or None, default=0
            The seed of the draws.

        Returns
        -------
        data : xarray.DataTree
            The draws as one chain of the group ``posterior``, with ``value`` and the KLs as
            attributes.
        """
        attributes: dict[str, Any] = {f"kl_{name}": kl for name, kl in self.kl.items()}
        drawn = self.sample(draws, random_state)
        return to_inference_data(
            drawn, engine="exact", value=self.value, expected_loss=self.expected_loss, **attributes
        )

    def _shown(self) -> Shown:
        head = f"value {self.value:.6g}, expected loss {self.expected_loss:.6g}{reduced(self.eta)}"
        return [f"{type(self).__name__}({head})", self.summary()]


class NodePosterior(ExactPosterior):
    """The posterior on a tree of nodes, from :func:`soubayes.solve_exact`."""

    def __init__(
        self,
        confidence: Mapping[str, float],
        engine: Engine,
        tree: Sequence[Placed],
        solution: Solution,
    ) -> None:
        self.confidence = dict(confidence)
        self.value = solution.value
        self.expected_loss = solution.expected_loss
        self.kl = dict.fromkeys(self.confidence, 0.0)
        for stage, kl in zip(engine.stages, solution.kl, strict=True):
            self.kl[stage.name] += kl
        self._engine, self._tree, self._solution = engine, tree, solution

    @property
    def eta(self) -> dict[str, float]:
        """The feedback of each block to the earlier ones."""
        heard = self._engine.feedback
        return super().eta if heard is None else dict(heard.eta)

    def marginal(self, name: str) -> Distribution | list[Distribution]:
        found = self._marginals(name)
        return found[0] if len(found) == 1 else list(found)

    def _marginals(self, name: str) -> list["Marginal"]:
        return [self._marginal(k) for k in self._stages(name)]

    def mean(self, name: str) -> Number:
        return self._each(name, lambda marginal: marginal.mean())

    def sd(self, name: str) -> Number:
        return self._each(name, lambda marginal: marginal.std())

    def quantile(self, name: str, p: ArrayLike) -> Number:
        return self._each(name, lambda marginal: marginal.ppf(p))

    def sample(self, n: int, random_state: Seed = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(random_state)
        engine = self._engine.with_tolerance(max(self._engine.tolerance, 1e-5))
        context: list[np.ndarray] = []
        for k, _ in enumerate(engine.stages):
            with np.errstate(all="ignore"):
                draws = [
                    draw_exact(engine, k, [c[i : i + 4096] for c in context], min(4096, n - i), rng)
                    for i in range(0, n, 4096)
                ]
            context.append(np.concatenate(draws) if draws else np.zeros(0))
        values = block_values(engine.stages, context)
        return dict(zip(self.names, values, strict=True))

    def levels(self) -> list[tuple[Stage, Placed, np.ndarray]]:
        """Every stage with its nodes and their posterior probabilities."""
        return list(zip(self._engine.stages, self._tree, self._solution.probability, strict=True))

    def _stages(self, name: str) -> list[int]:
        if name not in self.confidence:
            raise ValueError(f"no block {name!r}; the blocks are {list(self.confidence)}.")
        return [k for k, stage in enumerate(self._engine.stages) if stage.name == name]

    def _marginal(self, k: int) -> "Marginal":
        placed, solution = self._tree[k], self._solution
        reach = solution.probability[k - 1] if k else np.ones(1)
        if placed.is_discrete:
            return Marginal.discrete(placed.theta, solution.probability[k])
        row, edges, cdf = conditional_cdf(placed, solution.log_conditional[k])
        inside = np.flatnonzero(row[1:] == row[:-1])
        mass = np.diff(cdf)[inside] * reach[row[inside]]
        exact = Marginal.discrete(placed.theta, solution.probability[k])
        return Marginal.continuous(
            edges[inside], edges[inside + 1], mass, exact.mean(), exact.std()
        )

    def _each(self, name: str, what: Any) -> Any:
        parts = [what(marginal) for marginal in self._marginals(name)]
        return parts[0] if len(parts) == 1 else np.stack(parts, axis=-1)


class Marginal:
    """One block's posterior, with the methods of a ``scipy.stats`` distribution.

    >>> coin = Marginal.discrete(np.array([0.0, 1.0]), np.array([0.25, 0.75]))
    >>> coin.mean(), float(coin.pmf(1.0)), float(coin.ppf(0.2))
    (0.75, 0.75, 0.0)
    """

    def __init__(self, points: np.ndarray, cdf: np.ndarray, **known: Any) -> None:
        self.points, self._cdf = points, cdf
        self.is_discrete: bool = known["is_discrete"]
        self._mean, self._std, self._density = known["mean"], known["std"], known["density"]

    @classmethod
    def discrete(cls, points: np.ndarray, mass: np.ndarray) -> "Marginal":
        """Point masses; equal points are merged."""
        values, where = np.unique(points, return_inverse=True)
        mass = np.bincount(where, mass / mass.sum(), len(values))
        mean = std = None
        if values.dtype.kind in "fiub":
            mean = float(mass @ values)
            std = float(np.sqrt(mass @ (values - mean) ** 2))
        known = {"is_discrete": True, "mean": mean, "std": std, "density": mass}
        return cls(values, np.cumsum(mass), **known)

    @classmethod
    def continuous(
        cls, low: np.ndarray, high: np.ndarray, mass: np.ndarray, mean: float, std: float
    ) -> "Marginal":
        """A mixture of uniform pieces: its density steps up and down at their ends."""
        use = (mass > 0) & (high > low)
        low, high, mass = low[use], high[use], mass[use] / mass[use].sum()
        points, step = np.concatenate([low, high]), mass / (high - low)
        order = np.argsort(points, kind="stable")
        points = points[order]
        density = np.maximum(np.cumsum(np.concatenate([step, -step])[order]), 0.0)
        cdf = np.append(0.0, np.cumsum(density[:-1] * np.diff(points)))
        known = {"is_discrete": False, "mean": mean, "std": std, "density": density}
        return cls(points, cdf / cdf[-1], **known)

    def mean(self) -> float:
        """Posterior mean."""
        return self._number(self._mean)

    def std(self) -> float:
        """Posterior standard deviation."""
        return self._number(self._std)

    def cdf(self, x: ArrayLike) -> Any:
        """Posterior probability of at most x."""
        if self.is_discrete:
            return np.append(0.0, self._cdf)[np.searchsorted(self.points, x, side="right")]
        return np.interp(np.asarray(x), self.points, self._cdf, 0.0, 1.0)

    def ppf(self, p: ArrayLike) -> Any:
        """Posterior quantiles."""
        if self.is_discrete:
            at = np.searchsorted(self._cdf, np.asarray(p) * (1 - 1e-15), side="left")
            return self.points[np.minimum(at, len(self.points) - 1)]
        return np.interp(np.asarray(p), self._cdf, self.points)

    def pdf(self, x: ArrayLike) -> Any:
        """Posterior density of a continuous block."""
        if self.is_discrete:
            raise TypeError("a discrete block has no density; use pmf.")
        at = np.searchsorted(self.points, np.asarray(x, dtype=float), side="right")
        return np.concatenate([[0.0], self._density[:-1], [0.0]])[at]

    def pmf(self, x: ArrayLike) -> Any:
        """Posterior probability of the values of a discrete block."""
        if not self.is_discrete:
            raise TypeError("a continuous block has no probability mass; use pdf.")
        at = np.minimum(np.searchsorted(self.points, x), len(self.points) - 1)
        return np.where(self.points[at] == x, self._density[at], 0.0)[()]

    def _number(self, value: float | None) -> float:
        if value is None:
            raise TypeError(f"labels such as {self.points[0]!s} have no mean or sd; use pmf.")
        return value


def draw_exact(
    engine: Engine,
    k: int,
    context: Sequence[np.ndarray],
    n: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """One draw of stage k for every row of the earlier draws (n draws if it is the first)."""
    placed = engine.place(k, context)
    log_q = soft_minimum(placed.value, placed.level, engine.gammas[k])[1]
    row = np.arange(n) if context else np.zeros(n, dtype=int)
    u = rng.uniform(size=n)
    if placed.is_discrete:
        parent = placed.level.parent
        starts = np.flatnonzero(np.diff(parent, prepend=-1))
        cumulative = np.cumsum(np.exp(log_q))
        before = (cumulative - np.exp(log_q))[starts]
        last = np.append(starts[1:], len(parent)) - 1
        wanted = before + u * (cumulative[last] - before) if context else u * cumulative[-1]
        at = np.searchsorted(cumulative, wanted, side="left")
        return placed.theta[np.clip(at, starts[row], last[row])]
    table_row, edges, cdf = conditional_cdf(placed, log_q)
    return np.interp(row + u, table_row + cdf, edges)


def conditional_cdf(placed: Placed, log_q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(row, theta, cdf) on a finer table: cubic Hermite between nodes, whose slope is known."""
    fine = int(np.clip(1_000_000 // len(placed.theta), 4, 32))
    row, theta = placed.level.parent, placed.theta
    mass = np.exp(log_q)
    density = np.exp(log_q - placed.level.log_weight + placed.log_density)
    same_left = np.append(False, row[1:] == row[:-1])
    same_right = np.append(same_left[1:], False)

    def shifted(by: int) -> np.ndarray:  # mass of a neighbour in the same row
        return np.where(np.roll(row, by) == row, np.roll(mass, by), 0.0)

    cumulative = np.cumsum(mass)
    starts = np.flatnonzero(~same_left)
    before = (cumulative - mass)[starts][row]
    # half of the own cell, and two Euler-Maclaurin terms of a trapezoid rule cut at a node
    first = (shifted(-1) - shifted(1)) / 2
    third = (shifted(-2) - shifted(2)) / 2 - 2 * first
    at_node = cumulative - before - mass / 2 - first / 12 + third * (11 / 720)
    cells = np.flatnonzero(same_right)
    gap = theta[cells + 1] - theta[cells]
    s = np.arange(fine) / fine
    h00, h10, h01, h11 = (
        (1 + 2 * s) * (1 - s) ** 2,
        s * (1 - s) ** 2,
        s**2 * (3 - 2 * s),
        s**2 * (s - 1),
    )
    inner = (
        np.multiply.outer(at_node[cells], h00)
        + np.multiply.outer(gap * density[cells], h10)
        + np.multiply.outer(at_node[cells + 1], h01)
        + np.multiply.outer(gap * density[cells + 1], h11)
    )
    inner = np.clip(inner, at_node[cells, None], at_node[cells + 1, None])
    ends = np.flatnonzero(~same_right)
    table_row = np.concatenate([np.repeat(row[cells], fine), row[ends]])
    points = np.concatenate([(theta[cells, None] + gap[:, None] * s).ravel(), theta[ends]])
    cdf = np.concatenate([inner.ravel(), at_node[ends]])
    order = np.lexsort((points, table_row))
    table_row, points, cdf = table_row[order], points[order], np.clip(cdf[order], 0.0, 1.0)
    return table_row, points, np.maximum.accumulate(table_row + cdf) - table_row

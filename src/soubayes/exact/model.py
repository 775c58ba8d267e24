"""Blocks and models: an ordered sequence of conditional priors, and a loss."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from soubayes.results import Printable, Shown, in_words


@dataclass(frozen=True, eq=False)
class Discrete:
    """A finite distribution over numbers or labels.

    Parameters
    ----------
    values : array-like of shape (m,)
        The values: numbers, or labels such as strings.
    weights : array-like of shape (m,) or (..., m)
        Nonnegative weights, which are normalised here. In a conditional prior the leading axes have
        one entry for each element of the earlier blocks.

    Notes
    -----
    The prior probability of ``values[i]`` is ``weights[i] / weights.sum()``. The exact engine
    replaces the integrals of Theorem 1 of [1]_ by sums over these values.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> Discrete([0, 1], [1, 3]).weights
    array([0.25, 0.75])
    """

    values: ArrayLike
    weights: ArrayLike

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        weights = np.asarray(self.weights, dtype=float)
        if values.ndim != 1 or weights.ndim == 0 or weights.shape[-1] != len(values):
            raise ValueError(
                f"Discrete has values of shape {values.shape} and weights of shape "
                f"{weights.shape}; give a list of m values and m weights (last axis)."
            )
        if not (weights >= 0).all() or not (weights.sum(axis=-1) > 0).all():
            raise ValueError(
                "weights of Discrete must be nonnegative numbers with a positive sum; "
                f"smallest given: {weights.min()}, sums: {np.unique(weights.sum(axis=-1))[:3]}."
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "weights", weights / weights.sum(axis=-1, keepdims=True))


@dataclass(frozen=True, repr=False)
class Block(Printable):
    r"""One source of uncertainty: a name, and its prior given the earlier blocks.

    Parameters
    ----------
    name : str
        How confidences and results refer to the block.
    prior : frozen scipy.stats distribution, Discrete, tuple of these, or callable
        The prior of the block. A tuple, or a frozen ``multivariate_normal``, makes a block of
        several dimensions. A function of the earlier blocks that returns any of these makes a
        conditional prior.

    Notes
    -----
    A block is the factor :math:`\pi(\theta_k \mid \theta_{<k})` of the prior (section 3 of [1]_).
    The order of the blocks is part of the model.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from scipy import stats
    >>> Block("mu", stats.norm(0, 10)).name
    'mu'
    >>> Block("effect", lambda mu: stats.norm(mu, 1)).is_conditional
    True
    """

    name: str
    prior: Any

    def _shown(self) -> Shown:
        return [f"Block({self.name!r}, {in_words(self.prior)})"]

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"a block's name must be a nonempty string, not {self.name!r}.")
        if isinstance(self.prior, stats.rv_continuous | stats.rv_discrete):
            raise TypeError(
                f"prior of block {self.name!r} is the family {self.prior.name!r}; give it "
                f"parameters, for instance stats.{self.prior.name}(...)."
            )
        if not self.is_conditional:
            check_distribution(self.prior, self.name)

    @property
    def is_conditional(self) -> bool:
        """Whether the prior is a function of the earlier blocks."""
        return callable(self.prior) and not is_distribution(self.prior)


@dataclass(frozen=True, repr=False)
class Model(Printable):
    r"""An ordered sequence of blocks and a loss.

    Parameters
    ----------
    blocks : sequence of Block
        The blocks :math:`\theta_1, \dots, \theta_K`. The prior of a block may depend on earlier
        blocks.
    loss : callable, or mapping of str to callable
        The loss :math:`L(\theta_1, \dots, \theta_K)`, for example minus the log likelihood. It is
        called with one array for each block, in order; the arrays broadcast against each other and
        the result has one loss for each element. Put data on an extra last axis: ``((y - mu[...,
        None]) ** 2 / 2).sum(axis=-1)``. A block of d dimensions arrives with a last axis of length
        d. A loss of ``inf`` marks an impossible value. A mapping ``{block: f}`` gives the loss by
        module: f is called with that block and the earlier ones, and the loss is the sum. The
        attribute is then that sum, a function of all blocks.

    Notes
    -----
    The model defines the objective of eq. 5 of [1]_, not divided by n,

    .. math::

        J(q) = E_q[L(\theta)] + \sum_k \gamma_k
            E_q \mathrm{KL}\big(q(\theta_k \mid \theta_{<k}) \| \pi(\theta_k \mid \theta_{<k})\big).

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from scipy import stats
    >>> model = Model(
    ...     [Block("mu", stats.norm(0, 10)), Block("effect", lambda mu: stats.norm(mu, 1))],
    ...     loss=lambda mu, effect: (effect - 3.0) ** 2 / 2,
    ... )
    >>> model.names
    ('mu', 'effect')
    """

    blocks: Sequence[Block]
    loss: Callable[..., ArrayLike] | Mapping[str, Callable[..., ArrayLike]]

    def _shown(self) -> Shown:
        priors = [in_words(block.prior) for block in self.blocks]
        table = pd.DataFrame({"block": self.names, "prior": priors})
        loss = self.loss.modules if isinstance(self.loss, ModuleLoss) else self.loss
        return [f"Model(loss: {in_words(loss)})", table]

    def __post_init__(self) -> None:
        blocks = tuple(self.blocks)
        if not blocks or not all(isinstance(block, Block) for block in blocks):
            raise TypeError("a Model needs at least one Block, and only Blocks.")
        names = [block.name for block in blocks]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise ValueError(f"block names must differ, but {sorted(repeated)} occur twice.")
        if blocks[0].is_conditional:
            raise TypeError(
                f"prior of the first block, {names[0]!r}, is a function, but there is no earlier "
                "block it could depend on. Give it a distribution."
            )
        if isinstance(self.loss, Mapping):
            object.__setattr__(self, "loss", ModuleLoss(dict(self.loss), tuple(names)))
        elif not callable(self.loss):
            raise TypeError(
                f"loss must be a function of {names}, or a mapping of blocks to functions, not "
                f"{self.loss!r}."
            )
        object.__setattr__(self, "blocks", blocks)

    @property
    def names(self) -> tuple[str, ...]:
        """The blocks' names, in order."""
        return tuple(block.name for block in self.blocks)


@dataclass(frozen=True)
class ModuleLoss:
    """A loss that is a sum over modules, each a function of a block and the earlier ones."""

    modules: dict[str, Callable[..., ArrayLike]]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        unknown = [name for name in self.modules if name not in self.names]
        if unknown or not self.modules:
            raise ValueError(
                f"loss names {unknown}, but the blocks are {list(self.names)}. Name the block that "
                "each module of data informs last."
            )
        for name, module in self.modules.items():
            if not callable(module):
                raise TypeError(f"loss of {name!r} must be a function, not {module!r}.")

    def __call__(self, *values: Any) -> Any:
        return sum(self.of(name, values) for name in self.modules)

    def of(self, name: str, values: Sequence[Any]) -> Any:
        """The loss of one module, given at least its block and the earlier ones."""
        return np.asarray(self.modules[name](*values[: self.names.index(name) + 1]), dtype=float)


def is_distribution(prior: Any) -> bool:
    """Whether a prior is one of the forms the exact engine takes."""
    if isinstance(prior, tuple | list):
        return all(is_distribution(part) for part in prior) and len(prior) > 0
    density = hasattr(prior, "logpdf") or hasattr(prior, "logpmf")
    return isinstance(prior, Discrete) or is_normal_vector(prior) or (density and has_ppf(prior))


def is_normal_vector(prior: Any) -> bool:
    """Whether a prior is a frozen multivariate normal."""
    return isinstance(prior, type(stats.multivariate_normal([0.0])))


def has_ppf(prior: Any) -> bool:
    """Whether a distribution can say where its mass lies."""
    return hasattr(prior, "ppf") and hasattr(prior, "support")


def check_distribution(prior: Any, name: str) -> Any:
    """The prior itself, or an error that says what a prior can be."""
    if not is_distribution(prior):
        raise TypeError(
            f"prior of block {name!r} is {prior!r}, but it must be a frozen scipy.stats "
            "distribution such as stats.norm(0, 1), soubayes.Discrete(values, weights), a tuple "
            "of these, a frozen stats.multivariate_normal, or a function of the earlier blocks "
            "that returns one."
        )
    return prior

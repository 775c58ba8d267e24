"""Posterior draws with what is known at each: prior of every block, likelihood, coordinates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from soubayes.blackbox.grouping import block_of
from soubayes.draws.crossed import Crossed
from soubayes.draws.forms import GROUPS
from soubayes.draws.parents import check_order

MOST_RHAT = 1.1
MOST_DIVERGENT = 0.01
FEWEST_DRAWS = 400
MOST_PLACES = 3  # coordinates in which draws have near neighbours
MOST_UNEXPLAINED = 0.5  # of the variance of the log likelihood, between near neighbours


@dataclass(frozen=True)
class Draws:
    """Draws of all chains, one after the other, with blocks in the order of the model.

    ``values`` has coordinates on the real line, (draw, coordinate), and ``log_jacobian`` is what
    takes the log density of a block to them; ``log_prior`` is the density of a block as it was
    given, given the earlier blocks; ``quantities`` are the draws as they were given, (draw, ...);
    ``given`` are the latent ones among them by block, (draw, coordinate);
    ``crossed`` is known if the data depend on the first block only through the later ones;
    ``flat`` are blocks whose prior has no density, but for a constant.
    """

    names: tuple[str, ...]
    values: dict[str, np.ndarray]
    log_prior: dict[str, np.ndarray]
    log_jacobian: dict[str, np.ndarray]
    log_likelihood: np.ndarray
    discrete: frozenset[str]
    quantities: dict[str, np.ndarray]
    given: dict[str, np.ndarray]
    chains: int
    crossed: Crossed | None = None
    flat: frozenset[str] = frozenset()

    @property
    def length(self) -> int:
        """Draws of one chain."""
        return len(self.log_likelihood) // self.chains

    def chained(self, x: np.ndarray) -> np.ndarray:
        """One number for each draw, as (chain, draw)."""
        return x.reshape(self.chains, self.length)


def from_arviz(
    data: Any,
    order: Sequence[str] | None,
    groups: Mapping[str, Iterable[str]],
    sites: Sequence[str] | None = None,
) -> Draws:
    """The draws of an ArviZ object with the groups posterior, log_prior and log_likelihood.

    ``order`` are blocks; ``sites`` are variables in an order that a model has given.
    """
    parts: dict[str, Any] = {name: getattr(data, name, None) for name in GROUPS}
    if parts["posterior"] is None:
        raise ValueError(
            f"draws is a {type(data).__name__} without the group 'posterior'. Give an ArviZ "
            "object (of a file: what xarray.open_datatree returns), or samples of a NumPyro model "
            "with the model and its arguments."
        )
    for name, part in parts.items():
        if part is None or not len(part.data_vars):
            raise ValueError(
                f"the draws have no group {name!r}, or nothing in it. "
                "Pass the model as well, of PyMC, Bambi or NumPyro (with its arguments); for Stan "
                "paste the lines that soubayes.stan_log_priors writes into the program."
            )
    arrays = {
        group: {str(name): chains_first(part[name]) for name in part.data_vars}
        for group, part in parts.items()
    }
    check_statistics(data)
    posterior, prior = arrays["posterior"], arrays["log_prior"]
    missing = [name for name in prior if name not in posterior]
    if missing and len(prior) == 1:
        raise ValueError(
            f"log_prior has {missing} alone, which is not a variable of the posterior: it seems to "
            "be the sum of all priors, as lprior of brms is. Each prior is needed on its own, "
            "because the question is which of them matters. Pass the model of PyMC or Bambi; for "
            "Stan and brms soubayes.stan_log_priors writes the lines to paste into the program."
        )
    if missing:
        raise ValueError(f"log_prior has {missing}, which the posterior does not have.")
    chains, length = _shape(arrays)
    values, log_prior, log_jacobian, discrete = {}, {}, {}, set()
    for name, density in prior.items():
        flat = posterior[name].reshape(chains * length, -1)
        log_prior[name] = density.reshape(chains * length, -1).sum(axis=1)
        if np.issubdtype(flat.dtype, np.integer) or flat.dtype == bool:
            discrete.add(name)
            values[name], log_jacobian[name] = flat, np.zeros(chains * length)
            continue
        columns = [_to_the_line(column) for column in flat.T.astype(float)]
        values[name] = np.stack([column for column, _ in columns], axis=1)
        log_jacobian[name] = np.sum([jacobian for _, jacobian in columns], axis=0)
    likelihood = arrays["log_likelihood"].values()
    total = sum(each.reshape(chains * length, -1).sum(axis=1) for each in likelihood)
    quantities = {n: x.reshape((chains * length, *x.shape[2:])) for n, x in posterior.items()}
    known = (values, log_prior, log_jacobian, np.asarray(total, float))
    owner = block_of(list(prior), groups)
    if sites is not None:
        order = list(dict.fromkeys(owner[name] for name in sites if name in owner))
    draws = joined(*known, discrete, quantities, chains, groups, order)
    without = [name for name in posterior if name not in prior]
    _check_complete(draws, without)
    given = {name: posterior[name].reshape(chains * length, -1) for name in without}
    check_order({name: draws.given[name] for name in draws.names}, draws.log_prior, given)
    return draws


def chains_first(variable: Any) -> np.ndarray:
    """The values of a variable of an ArviZ object, as (chain, draw, ...)."""
    if {"chain", "draw"} <= set(getattr(variable, "dims", ())):
        variable = variable.transpose("chain", "draw", ...)
    return np.asarray(variable.values)


def _shape(arrays: dict[str, dict[str, np.ndarray]]) -> tuple[int, int]:
    """Chains and draws in a chain, which all variables share."""
    shapes = {
        (group, name): values.shape[:2]
        for group, variables in arrays.items()
        for name, values in variables.items()
    }
    (first, shape), *others = shapes.items()
    for which, other in others:
        if other != shape or len(shape) != 2:
            raise ValueError(
                f"{which[1]!r} in {which[0]!r} begins with the shape {other}, and {first[1]!r} in "
                f"{first[0]!r} with {shape}: all must begin with the same (chain, draw)."
            )
    return shape[0], shape[1]


def joined(
    values: dict[str, np.ndarray],
    log_prior: dict[str, np.ndarray],
    log_jacobian: dict[str, np.ndarray],
    log_likelihood: np.ndarray,
    discrete: Iterable[str],
    quantities: dict[str, np.ndarray],
    chains: int,
    groups: Mapping[str, Iterable[str]],
    order: Sequence[str] | None,
) -> Draws:
    """Sites put together into blocks, checked."""
    owner = block_of(list(values), groups)
    names = tuple(dict.fromkeys(owner.values()))
    order = [order] if isinstance(order, str) else order
    if order is None and len(names) > 1:
        raise ValueError(
            f"the draws have the blocks {sorted(names)} in no particular order, and the answer "
            "depends on it: give order= with the blocks of the model, outermost first."
        )
    if order is not None and sorted(order) != sorted(names):
        raise ValueError(
            f"order is {list(order)}, but the blocks are {sorted(names)}. Name each of them once."
        )
    names = names if order is None else tuple(order)
    sites = {block: [name for name in owner if owner[name] == block] for block in names}
    kinds = {block: {name in discrete for name in members} for block, members in sites.items()}
    mixed = [block for block, kind in kinds.items() if len(kind) > 1]
    if mixed:
        raise ValueError(f"block {mixed[0]!r} has discrete and continuous sites; separate them.")
    flat = {name: quantities[name].reshape(len(log_likelihood), -1) for name in owner}
    draws = Draws(
        names,
        {block: np.concatenate([values[n] for n in group], 1) for block, group in sites.items()},
        {block: np.sum([log_prior[n] for n in group], 0) for block, group in sites.items()},
        {block: np.sum([log_jacobian[n] for n in group], 0) for block, group in sites.items()},
        log_likelihood,
        frozenset(block for block, kind in kinds.items() if kind == {True}),
        quantities,
        {block: np.concatenate([flat[n] for n in group], 1) for block, group in sites.items()},
        chains,
    )
    _check_constants(values, quantities, discrete)
    _check(draws)
    constant = [n for n, x in log_prior.items() if n not in discrete and np.ptp(x) == 0]
    return replace(draws, flat=frozenset(owner[name] for name in constant))


def check_divergences(diverging: np.ndarray) -> None:
    """Refuse draws of a sampler that often lost its way."""
    share = float(np.mean(diverging))
    if share > MOST_DIVERGENT:
        raise ValueError(
            f"{share:.1%} of the transitions diverged, so the draws miss a part of the posterior. "
            "Sample again with a higher target acceptance or another parametrisation."
        )


def check_statistics(data: Any) -> None:
    """Refuse an ArviZ object whose sampler often lost its way."""
    statistics = getattr(data, "sample_stats", None)
    if statistics is not None and "diverging" in statistics:
        check_divergences(np.asarray(statistics["diverging"].values))


def rhat(chains: np.ndarray) -> float:
    """Split R-hat of (chain, draw)."""
    half = chains.shape[1] // 2
    parts = np.concatenate([chains[:, :half], chains[:, half : 2 * half]])
    within = parts.var(axis=1, ddof=1).mean()
    between = half * parts.mean(axis=1).var(ddof=1)
    return float(np.sqrt(((half - 1) / half * within + between / half) / within))


def _check(draws: Draws) -> None:
    n = len(draws.log_likelihood)
    if n < FEWEST_DRAWS:
        raise ValueError(f"there are {n} draws, and densities need at least {FEWEST_DRAWS}.")
    known = {**draws.log_prior, "the likelihood": draws.log_likelihood}
    for name, numbers in {**known, **draws.values}.items():
        if not np.all(np.isfinite(numbers)):
            raise ValueError(
                f"{name!r} has draws, or log densities at draws, that are not finite. Check that "
                "the draws, the model and the data belong together."
            )
    for i, name in enumerate(draws.names):
        if name in draws.discrete:
            before = [b for b in draws.names[:i] if b not in draws.discrete]
            if before and i < len(draws.names) - 1:
                raise ValueError(
                    f"{name!r} is discrete and comes after the continuous {before[-1]!r}, and no "
                    "density of it can be estimated there. Sum it out of the model."
                )
            continue
        for column in draws.values[name].T:
            if (found := rhat(draws.chained(column))) > MOST_RHAT:
                raise ValueError(
                    f"the chains do not agree about {name!r} (R-hat {found:.2f}). Run them longer, "
                    "or drop the chain that is stuck."
                )


def _check_constants(
    values: dict[str, np.ndarray], quantities: dict[str, np.ndarray], discrete: Iterable[str]
) -> None:
    """Refuse sites that do not vary, as given: their coordinates may vary with earlier sites."""
    for name in set(values) - set(discrete):
        given = quantities[name].reshape(len(values[name]), -1)
        if given.shape[1] != values[name].shape[1]:
            given = values[name]  # a matrix or a simplex, with entries that are fixed
        for column in given.T:
            if np.ptp(column) <= 1e-12 * (1 + abs(column[0])):
                raise ValueError(
                    f"the draws of {name!r} are constant ({column[0]:.6g}), so there is no "
                    "posterior to speak of. Leave it out, or check the sampler."
                )


def _check_complete(draws: Draws, without: Sequence[str]) -> None:
    """Refuse draws of a model of which a latent variable is in the posterior but has no prior.

    The likelihood is then no function of the blocks: it differs between draws that are next to each
    other. In many dimensions no two draws are, and this cannot be seen.
    """
    places = np.concatenate(list(draws.values.values()), axis=1).astype(float)
    if not without or places.shape[1] > MOST_PLACES:
        return
    # a draw that was repeated is no neighbour
    each = np.unique(np.column_stack([places, draws.log_likelihood]), axis=0)
    places, likelihood = each[:, :-1], each[:, -1]
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(places, rowvar=False)))
    white = places @ vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1] + 1e-300))
    near = cKDTree(white).query(white, k=2)[1]
    near = np.where(near[:, 0] == np.arange(len(near)), near[:, 1], near[:, 0])
    unexplained = np.mean((likelihood - likelihood[near]) ** 2) / 2
    if unexplained > MOST_UNEXPLAINED * np.var(likelihood):
        raise ValueError(
            f"the likelihood does not follow from {list(draws.names)}, so log_prior lacks a "
            f"latent variable of the model; {list(without)} of the posterior are not in it. Give "
            "the log_prior of all of them that are not computed from others (in PyMC "
            "pm.compute_log_prior without var_names)."
        )


def _to_the_line(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A coordinate on the real line, and the log of what its density has to be multiplied by.

    The bounds of a variable are not known here, and any smooth map is correct. Draws that are all
    positive are taken to their logs, draws between 0 and 1 to their logits, so a density that
    ends at a bound has no edge.
    """
    if np.all(x > 0) and np.all(x < 1):
        return np.log(x) - np.log1p(-x), np.log(x) + np.log1p(-x)
    return (np.log(x), np.log(x)) if np.all(x > 0) else (x, np.zeros(len(x)))

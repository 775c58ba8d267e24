"""The backward recursion of Theorem 1 on a tree of nodes: the one law behind every exact result.

A tree is a list of levels, one for each stage. A level's nodes are flat arrays sorted by parent:
a conditional is a run of neighbours, and every step is a segmented reduction.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Level(NamedTuple):
    """The nodes of one stage: which earlier node each belongs to, and its prior weight."""

    parent: np.ndarray  # (nodes,), sorted; every earlier node has at least one child
    log_weight: np.ndarray  # (nodes,), log of the prior mass at the node given its parent


class Solution(NamedTuple):
    """What the recursion gives: the value, and the minimising distribution node by node."""

    value: float
    expected_loss: float
    kl: list[float]  # one for each stage, in nats
    values: list[np.ndarray]  # V_k at the nodes of every level
    log_conditional: list[np.ndarray]  # log q_k(node | parent)
    probability: list[np.ndarray]  # q(theta_<=k) of every node


def solve_tree(
    levels: Sequence[Level],
    loss: np.ndarray,
    gammas: Sequence[float],
    known: Mapping[int, np.ndarray] | None = None,
) -> Solution:
    """Minimise E_q[loss] + sum_k gamma_k E_q KL(q_k || pi_k) over the distributions on a tree.

    Theorem 1: V_K = L, V_{k-1} = -gamma_k log sum exp(-V_k / gamma_k) pi_k, and
    q_k = exp((V_{k-1} - V_k) / gamma_k) pi_k. At gamma_k = inf: V_{k-1} = E_pi V_k, q_k = pi_k.
    ``known`` has V_k at the nodes of some levels, if it is not what the recursion gives.

    >>> toss = Level(np.array([0, 0]), np.log([0.5, 0.5]))
    >>> round(solve_tree([toss], np.array([0.0, 1.0]), [1.0]).value, 6)
    0.379885
    """
    values, log_conditional, divergence = [np.asarray(loss, dtype=float)], [], []
    for k in range(len(levels) - 1, -1, -1):
        value, log_q, kl = soft_minimum(values[-1], levels[k], gammas[k])
        values.append((known or {}).get(k - 1, value))
        log_conditional.append(log_q)
        divergence.append(kl)
    probability, kls = [np.ones(1)], []
    for level, log_q, kl in zip(levels, log_conditional[::-1], divergence[::-1], strict=True):
        reach = probability[-1]
        kls.append(float(expectation_terms(reach, kl).sum()))
        probability.append(reach[level.parent] * np.exp(log_q))
    return Solution(
        float(values[-1][0]),
        float(expectation_terms(probability[-1], values[0]).sum()),
        kls,
        values[-2::-1],
        log_conditional[::-1],
        probability[1:],
    )


def soft_minimum(
    values: np.ndarray, level: Level, gamma: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One step of the recursion: V of every parent, log q of every node, KL of every parent."""
    parent, log_weight = level
    starts = np.flatnonzero(np.diff(parent, prepend=-1))
    if np.isinf(gamma):
        mean = np.add.reduceat(expectation_terms(np.exp(log_weight), values), starts)
        return mean, log_weight, np.zeros(len(starts))
    floor = np.minimum.reduceat(values, starts)
    floor = np.where(np.isfinite(floor), floor, 0.0)
    exponent = -(values - floor[parent]) / gamma  # <= 0
    log_z = log_normaliser(exponent, log_weight, parent, starts)
    alive = np.isfinite(log_z)
    log_q = np.where(alive[parent], log_weight + exponent - log_z[parent], log_weight)
    log_ratio = exponent - np.where(alive, log_z, 0.0)[parent]  # log q_k / pi_k
    kl = np.add.reduceat(expectation_terms(np.exp(log_q), log_ratio), starts)
    kl = np.where(alive, np.maximum(kl, 0.0), 0.0)
    return np.where(alive, floor - gamma * log_z, np.inf), log_q, kl


def expectation_terms(probability: np.ndarray, values: np.ndarray) -> np.ndarray:
    """probability * value with 0 * inf = 0: an infinite loss may have no mass."""
    return np.multiply(probability, values, out=np.zeros(len(values)), where=probability > 0)


def log_normaliser(
    exponent: np.ndarray, log_weight: np.ndarray, parent: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """log sum of weight * exp(exponent) in every segment; -inf where a segment has no mass.

    When gamma is large the sum is 1 - (something tiny), and V = -gamma log(sum) would magnify its
    rounding; there the sum is taken as log1p of its distance from the total weight.
    """
    term = exponent + log_weight
    top = np.maximum.reduceat(term, starts)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        direct = shift + np.log(np.add.reduceat(np.exp(term - shift[parent]), starts))
    weight = np.exp(log_weight)
    total = np.add.reduceat(weight, starts)
    loss_of_mass = np.add.reduceat(weight * np.expm1(exponent), starts)
    near = loss_of_mass > -0.5 * total
    total = np.where(near, total, 1.0)
    total = np.where(np.abs(total - 1.0) < 1e-12, 1.0, total)
    ratio = np.where(near, loss_of_mass, 0.0) / total
    return np.where(near, np.log1p(ratio) + np.log(total), direct)

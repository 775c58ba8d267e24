"""Multiplier preferences and event trees against direct minimisation."""

import numpy as np
import pytest
from scipy.optimize import minimize

from soubayes import EventTree


def kl(p, q):
    return float(np.sum(p * np.log(p / q)))


def direct_minimum(cost, size, seeds=3):
    """The least cost over the simplex, by a general optimiser."""
    best = np.inf
    for seed in range(seeds):
        start = np.random.default_rng(seed).normal(size=size)

        def of_logits(x):
            p = np.exp(x - np.logaddexp.reduce(x))
            return cost(np.maximum(p, 1e-300))

        best = min(best, minimize(of_logits, start, tol=1e-12).fun)
    return best


QUARTERS = {("u", "l"): 0.2, ("u", "r"): 0.3, ("d", "l"): 0.4, ("d", "r"): 0.1}
UTILITY = {("u", "l"): -1.0, ("u", "r"): 1.0, ("d", "l"): -2.0, ("d", "r"): 3.0}


def parts(p):
    p = np.reshape(p, (2, 2))
    first = p.sum(axis=1)
    return first, p / first[:, None]


def test_event_tree_minimises_its_one_step_objective():
    tree = EventTree(QUARTERS, stages=("first", "second"))
    q, u = np.array(list(QUARTERS.values())), np.array(list(UTILITY.values()))
    q1, q2 = parts(q)

    def cost(p, gamma=(0.5, 2.0)):
        p1, p2 = parts(p)
        inner = sum(p1[i] * kl(p2[i], q2[i]) for i in range(2))
        return p @ u + gamma[0] * kl(p1, q1) + gamma[1] * inner

    confidence = {"first": 0.5, "second": 2.0}
    assert tree.value(UTILITY, confidence) == pytest.approx(direct_minimum(cost, 4), abs=1e-6)
    worst = tree.worst_case(UTILITY, confidence)
    assert cost(np.array([worst[path] for path in QUARTERS])) == pytest.approx(
        tree.value(UTILITY, confidence)
    )


def test_the_printed_equation_is_another_problem():
    """eq:dynamic_MP as printed: KLs of whole remaining paths given G_k, k = 1..K.

    G_1 knows the first step, so its KL is over the second; G_2 knows everything and costs nothing.
    The first stage is never penalised, and gamma_2 never used.
    """
    q, u = np.array(list(QUARTERS.values())), np.array(list(UTILITY.values()))
    q2 = parts(q)[1]

    def printed(p, gamma=0.5):
        p1, p2 = parts(p)
        return p @ u + gamma * sum(p1[i] * kl(p2[i], q2[i]) for i in range(2))

    by_search = direct_minimum(printed, 4)
    branches = -0.5 * np.log((q2 * np.exp(-u.reshape(2, 2) / 0.5)).sum(axis=1))
    assert by_search == pytest.approx(branches.min(), abs=1e-4)
    tree = EventTree(QUARTERS, stages=("first", "second"))
    assert tree.value(UTILITY, {"first": 0.5, "second": 2.0}) > by_search + 0.3


def test_ragged_trees_zero_weights_and_ranking():
    tree = EventTree(
        {("a", 1): 2.0, ("a", 2): 2.0, ("b", 1): 4.0, ("c", 1): 0.0}, stages=("where", "what")
    )
    assert tree.nodes[0] == [("a",), ("b",)]
    acts = {"safe": lambda where, what: 0.4, "bet": lambda where, what: float(what == 1)}
    trusting, doubting = {"where": np.inf, "what": np.inf}, {"where": 0.1, "what": 0.1}
    assert list(tree.rank(acts, trusting)["act"]) == ["bet", "safe"]
    assert list(tree.rank(acts, doubting)["act"]) == ["safe", "bet"]
    assert tree.rank(acts, doubting)["expected_utility"][1] == pytest.approx(0.75)
    assert tree.value(acts["safe"], doubting) == pytest.approx(0.4)


def test_bad_input_is_explained():
    tree = EventTree(QUARTERS, stages=("first", "second"))
    with pytest.raises(ValueError, match="'third'"):
        tree.value(UTILITY, {"third": 1.0})
    with pytest.raises(ValueError, match="no utility for the path"):
        tree.value({("u", "l"): 1.0})
    with pytest.raises(ValueError, match="finite number"):
        tree.value(lambda a, b: np.nan)
    with pytest.raises(ValueError, match="one step for each of the stages"):
        EventTree({("u",): 1.0}, stages=("first", "second"))
    with pytest.raises(ValueError, match="nonnegative"):
        EventTree({("u",): -1.0}, stages=("first",))

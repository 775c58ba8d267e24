"""The recursion of Theorem 1 on a ragged tree, against direct sums and perturbed distributions."""

import numpy as np
import pytest

from soubayes.exact.tree import Level, solve_tree

# three nodes; then two, one and three children
FIRST = np.array([0.2, 0.5, 0.3])
SECOND = [np.array([0.4, 0.6]), np.array([1.0]), np.array([0.1, 0.2, 0.7])]
LOSS = [np.array([1.0, 3.0]), np.array([0.5]), np.array([2.0, -1.0, 4.0])]
LEVELS = [
    Level(np.zeros(3, int), np.log(FIRST)),
    Level(np.array([0, 0, 1, 2, 2, 2]), np.log(np.concatenate(SECOND))),
]


def objective(q_first, q_second, gammas):
    def kl(q, p):
        return float(np.sum(q * np.log(q / p)))

    loss = sum(q * (s @ l) for q, s, l in zip(q_first, q_second, LOSS, strict=True))
    inner = sum(q * kl(s, p) for q, s, p in zip(q_first, q_second, SECOND, strict=True))
    return loss + gammas[0] * kl(q_first, FIRST) + gammas[1] * inner


@pytest.mark.parametrize("gammas", [(1.0, 1.0), (0.1, 3.0), (5.0, 0.02)])
def test_the_value_is_the_direct_sum_and_the_least(gammas):
    g, h = gammas
    inner = np.array([-h * np.log(p @ np.exp(-l / h)) for p, l in zip(SECOND, LOSS, strict=True)])
    solution = solve_tree(LEVELS, np.concatenate(LOSS), gammas)
    assert solution.value == pytest.approx(-g * np.log(FIRST @ np.exp(-inner / g)))
    q_first = np.exp(solution.log_conditional[0])
    q_second = np.split(np.exp(solution.log_conditional[1]), [2, 3])
    assert objective(q_first, q_second, gammas) == pytest.approx(solution.value)
    costs = solution.expected_loss + np.dot(gammas, solution.kl)
    assert costs == pytest.approx(solution.value)
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = q_first * rng.uniform(0.5, 2.0, 3)
        others = [q * rng.uniform(0.5, 2.0, len(q)) for q in q_second]
        worse = objective(other / other.sum(), [q / q.sum() for q in others], gammas)
        assert worse >= solution.value - 1e-12


def test_a_loss_without_mass_may_be_infinite_and_inf_keeps_the_prior():
    loss = np.concatenate(LOSS)
    loss[1] = np.inf
    solution = solve_tree(LEVELS, loss, (1.0, 1.0))
    assert np.isfinite(solution.value)
    assert solution.probability[1][1] == 0.0
    kept = solve_tree(LEVELS, np.concatenate(LOSS), (np.inf, np.inf))
    assert kept.value == pytest.approx(objective(FIRST, SECOND, (1.0, 1.0)))
    assert kept.kl == [0.0, 0.0]

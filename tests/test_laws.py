"""The laws that hold for every model, on random discrete trees and random Gaussian blocks.

Each law is a statement about V, KL or q* as the confidences vary; nothing here knows how an engine
works.
"""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from soubayes import (
    Block,
    Discrete,
    GaussianBlock,
    GaussianModel,
    Model,
    QuadraticLoss,
    objective,
    solve_exact,
    solve_gaussian,
)

LAWS = settings(
    max_examples=30,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],  # a failing model is small already; shrinking it only takes time
    suppress_health_check=list(HealthCheck),
)
gammas = st.floats(-3.0, 3.0).map(lambda x: float(10.0**x))
triples = st.tuples(gammas, gammas, gammas)
seeds = st.integers(0, 10_000)
NAMES = ("a", "b", "c")


class Case(NamedTuple):
    """A random model with the function that solves it."""

    model: object
    solve: object

    def __call__(self, *gamma):
        return self.solve(self.model, dict(zip(self.model.names, gamma, strict=True)))


class Tree(NamedTuple):
    """A random three-stage tree, kept as arrays so that the laws can be recomputed."""

    first: np.ndarray  # (2,)
    second: np.ndarray  # (2, 3)
    third: np.ndarray  # (2, 3, 2)
    loss: np.ndarray  # (2, 3, 2)

    @property
    def model(self):
        return Model(
            [
                Block("a", Discrete(np.arange(2), self.first)),
                Block("b", lambda a: Discrete(np.arange(3), self.second[a])),
                Block("c", lambda a, b: Discrete(np.arange(2), self.third[a, b])),
            ],
            lambda a, b, c: self.loss[a, b, c],
        )


def random_tree(seed):
    rng = np.random.default_rng(seed)
    return Tree(
        rng.dirichlet(np.ones(2)),
        rng.dirichlet(np.ones(3), size=2),
        rng.dirichlet(np.ones(2), size=(2, 3)),
        rng.normal(0, 2, size=(2, 3, 2)),
    )


def random_gaussian(seed, dims=(2, 1, 3)):
    rng = np.random.default_rng(seed)
    blocks, before = [], 0
    for name, d in zip(NAMES, dims, strict=True):
        root = rng.normal(size=(d, d + 1))
        coef = rng.normal(0, 0.7, size=(d, before)) if before else None
        blocks.append(GaussianBlock(name, rng.normal(size=d), root @ root.T / d, coef))
        before += d
    X, y = rng.normal(size=(8, before)), rng.normal(0, 2, size=8)
    return GaussianModel(blocks, QuadraticLoss.least_squares(X, y, noise_variance=1.5))


@st.composite
def cases(draw):
    seed = draw(seeds)
    if draw(st.booleans()):
        return Case(random_tree(seed).model, solve_exact)
    return Case(random_gaussian(seed), solve_gaussian)


@LAWS
@given(seeds)
def test_unit_confidences_give_bayes_and_the_evidence_on_trees(seed):
    tree = random_tree(seed)
    joint = tree.first[:, None, None] * tree.second[..., None] * tree.third
    evidence = (joint * np.exp(-tree.loss)).sum()
    posterior = solve_exact(tree.model)
    assert posterior.value == pytest.approx(-np.log(evidence), abs=1e-10)
    bayes = joint * np.exp(-tree.loss) / evidence
    assert posterior.marginal("b").pmf(np.arange(3)) == pytest.approx(bayes.sum(axis=(0, 2)))
    assert posterior.marginal("c").pmf(1) == pytest.approx(bayes[..., 1].sum())


def stacked_prior(model):
    """Joint mean and covariance of the blocks, by substituting each into the next."""
    size = len(model.loss.vector)
    mean, cov, n = np.zeros(size), np.zeros((size, size)), 0
    for block in model.blocks:
        d = len(block.mean)
        A = np.zeros((d, n)) if block.coef is None else block.coef
        here, old = slice(n, n + d), slice(0, n)
        mean[here] = block.mean + A @ mean[old]
        cov[here, old] = A @ cov[old, old]
        cov[old, here] = cov[here, old].T
        cov[here, here] = A @ cov[old, old] @ A.T + block.cov
        n += d
    return mean, cov


@LAWS
@given(seeds, gammas)
def test_equal_confidences_are_one_tempered_block_and_one_is_bayes(seed, gamma):
    model = random_gaussian(seed)
    prior_mean, prior_cov = stacked_prior(model)
    loss = model.loss
    posterior = solve_gaussian(model, dict.fromkeys(NAMES, gamma))
    precision = np.linalg.inv(prior_cov) + loss.matrix / gamma
    mean = np.linalg.solve(precision, np.linalg.solve(prior_cov, prior_mean) + loss.vector / gamma)
    assert posterior.joint_mean == pytest.approx(mean, rel=1e-6, abs=1e-6)
    assert posterior.joint_cov == pytest.approx(np.linalg.inv(precision), rel=1e-5, abs=1e-7)
    at = loss.matrix @ mean / 2 @ mean - loss.vector @ mean + loss.constant
    moved = mean - prior_mean
    log_z = (
        -at / gamma
        - moved @ np.linalg.solve(prior_cov, moved) / 2
        - (np.linalg.slogdet(prior_cov)[1] + np.linalg.slogdet(precision)[1]) / 2
    )
    assert posterior.value == pytest.approx(-gamma * log_z, rel=1e-6, abs=1e-6)


@LAWS
@given(seeds, gammas, gammas)
def test_equal_confidences_on_adjacent_blocks_are_one_block(seed, shared, last):
    tree = random_tree(seed)
    apart = solve_exact(tree.model, {"a": shared, "b": shared, "c": last})
    joint = (tree.first[:, None] * tree.second).ravel()
    together = Model(
        [
            Block("ab", Discrete(np.arange(6), joint)),
            Block("c", lambda ab: Discrete(np.arange(2), tree.third.reshape(6, 2)[ab])),
        ],
        lambda ab, c: tree.loss.reshape(6, 2)[ab, c],
    )
    merged = solve_exact(together, {"ab": shared, "c": last})
    assert merged.value == pytest.approx(apart.value, rel=1e-9, abs=1e-9)
    assert merged.kl["ab"] == pytest.approx(apart.kl["a"] + apart.kl["b"], rel=1e-6, abs=1e-9)
    assert merged.kl["c"] == pytest.approx(apart.kl["c"], rel=1e-6, abs=1e-9)


@LAWS
@given(seeds, gammas, gammas)
def test_equal_confidences_on_adjacent_gaussian_blocks_are_one_block(seed, shared, last):
    model = random_gaussian(seed)
    apart = solve_gaussian(model, {"a": shared, "b": shared, "c": last})
    mean, cov = stacked_prior(model)
    joint = GaussianBlock("ab", mean[:3], cov[:3, :3])
    together = GaussianModel([joint, model.blocks[2]], model.loss)
    merged = solve_gaussian(together, {"ab": shared, "c": last})
    assert merged.value == pytest.approx(apart.value, rel=1e-8, abs=1e-8)
    assert merged.kl["ab"] == pytest.approx(apart.kl["a"] + apart.kl["b"], rel=1e-6, abs=1e-8)
    assert merged.kl["c"] == pytest.approx(apart.kl["c"], rel=1e-6, abs=1e-8)
    assert merged.joint_cov == pytest.approx(apart.joint_cov, rel=1e-6, abs=1e-8)


@LAWS
@given(cases(), triples)
def test_sensitivity_is_the_derivative_of_the_value(case, gamma):
    posterior = case(*gamma)
    for k, name in enumerate(NAMES):
        step = 1e-4 * gamma[k]
        up, down = (case(*gamma[:k], gamma[k] + s, *gamma[k + 1 :]).value for s in (step, -step))
        derivative = (up - down) / (2 * step)
        noise = 1e-13 * (1 + abs(posterior.value)) / step
        assert posterior.sensitivity()[name] == pytest.approx(
            derivative, rel=1e-4, abs=noise + 1e-9
        )


@LAWS
@given(cases(), gammas, gammas, gammas, st.floats(1.01, 100.0), st.integers(0, 2))
def test_value_rises_with_every_confidence_and_is_concave(case, a, b, c, factor, k):
    low = [a, b, c]
    high = [g * factor if i == k else g for i, g in enumerate(low)]
    middle = [(x + y) / 2 for x, y in zip(low, high, strict=True)]
    v_low, v_middle, v_high = (case(*g).value for g in (low, middle, high))
    slack = 1e-9 * (1 + abs(v_high))
    assert v_low <= v_high + slack
    assert v_middle >= (v_low + v_high) / 2 - slack


@LAWS
@given(cases(), triples)
def test_the_parts_add_up(case, gamma):
    posterior = case(*gamma)
    cost = sum(g * posterior.kl[name] for g, name in zip(gamma, NAMES, strict=True))
    assert posterior.expected_loss + cost == pytest.approx(posterior.value, rel=1e-8, abs=1e-8)
    assert all(kl >= 0 for kl in posterior.kl.values())


@LAWS
@given(seeds, seeds, triples)
def test_no_other_distribution_has_a_lower_objective(seed, other, gamma):
    tree, q = random_tree(seed), random_tree(other)
    confidence = dict(zip(NAMES, gamma, strict=True))
    best = solve_exact(tree.model, confidence)
    any_q = {block.name: block.prior for block in q.model.blocks}
    j = objective(tree.model, any_q, confidence)
    assert j.value >= best.value - 1e-9
    at_best = objective(tree.model, best, confidence)
    assert at_best.value == pytest.approx(best.value, rel=1e-9, abs=1e-9)
    # Donsker-Varadhan block by block: the gap is the gamma-weighted KL from q*
    joint = q.first[:, None, None] * q.second[..., None] * q.third
    v2 = -gamma[2] * logsumexp(-tree.loss / gamma[2], b=tree.third, axis=2)
    v1 = -gamma[1] * logsumexp(-v2 / gamma[1], b=tree.second, axis=1)
    log_star = [
        np.log(tree.first) + (best.value - v1) / gamma[0],
        np.log(tree.second) + (v1[:, None] - v2) / gamma[1],
        np.log(tree.third) + (v2[..., None] - tree.loss) / gamma[2],
    ]
    gap = gamma[0] * (q.first * (np.log(q.first) - log_star[0])).sum()
    gap += gamma[1] * (joint * (np.log(q.second) - log_star[1])[..., None]).sum()
    gap += gamma[2] * (joint * (np.log(q.third) - log_star[2])).sum()
    assert j.value - best.value == pytest.approx(gap, rel=1e-6, abs=1e-7)


@LAWS
@given(seeds, seeds, triples)
def test_no_other_gaussian_has_a_lower_objective(seed, other, gamma):
    model, q = random_gaussian(seed), random_gaussian(other)
    best = solve_gaussian(model, dict(zip(NAMES, gamma, strict=True)))
    mean, cov = stacked_prior(q)
    loss = model.loss
    j = loss.matrix @ mean @ mean / 2 - loss.vector @ mean + loss.constant
    j += np.trace(loss.matrix @ cov) / 2
    n = 0
    for g, prior, mine in zip(gamma, model.blocks, q.blocks, strict=True):
        d = len(prior.mean)
        slope = mine.coef - prior.coef if n else np.zeros((d, 0))
        shift = mine.mean - prior.mean + slope @ mean[:n]
        second = mine.cov + np.outer(shift, shift) + slope @ cov[:n, :n] @ slope.T
        log_ratio = np.linalg.slogdet(prior.cov)[1] - np.linalg.slogdet(mine.cov)[1]
        j += g * (np.trace(np.linalg.solve(prior.cov, second)) - d + log_ratio) / 2
        n += d
    assert j >= best.value - 1e-8 * (1 + abs(best.value))


@LAWS
@given(cases())
def test_infinite_confidence_is_the_prior_and_the_limit(case):
    fixed = case(np.inf, np.inf, np.inf)
    assert fixed.kl == dict.fromkeys(NAMES, 0.0)
    assert fixed.value == pytest.approx(fixed.expected_loss, rel=1e-10)
    assert case(1e9, 1e9, 1e9).value == pytest.approx(fixed.value, rel=1e-5)
    for k, name in enumerate(NAMES):
        one = [1.0, 1.0, 1.0]
        one[k] = np.inf
        alone = case(*one)
        one[k] = 1e8
        assert alone.kl[name] == 0.0
        assert case(*one).value == pytest.approx(alone.value, rel=1e-5, abs=1e-5)


@LAWS
@given(cases())
def test_vanishing_confidence_minimises_the_loss(case):
    posterior = case(1e-9, 1e-9, 1e-9)
    if isinstance(case.model, GaussianModel):
        loss = case.model.loss
        best = np.linalg.lstsq(loss.matrix, loss.vector, rcond=None)[0]
        least = loss.constant - loss.vector @ best / 2
        assert posterior.joint_mean == pytest.approx(best, rel=1e-3, abs=1e-3)
    else:
        least = min(
            float(case.model.loss(a, b, c)) for a in range(2) for b in range(3) for c in range(2)
        )
    assert posterior.expected_loss == pytest.approx(least, abs=1e-5)
    assert sum(1e-9 * kl for kl in posterior.kl.values()) < 1e-6


@LAWS
@given(seeds, st.tuples(gammas, gammas))
def test_independent_blocks_with_an_additive_loss_solve_separately(seed, gamma):
    rng = np.random.default_rng(seed)
    priors, losses = rng.dirichlet(np.ones(4), size=2), rng.normal(0, 3, size=(2, 4))
    values = np.arange(4)

    def block(k, name):
        return Block(name, Discrete(values, priors[k]))

    both = solve_exact(
        Model([block(0, "a"), block(1, "b")], lambda a, b: losses[0][a] + losses[1][b]),
        {"a": gamma[0], "b": gamma[1]},
    )
    alone = [
        solve_exact(Model([block(k, n)], lambda x, k=k: losses[k][x]), {n: gamma[k]})
        for k, n in enumerate("ab")
    ]
    assert both.value == pytest.approx(alone[0].value + alone[1].value, abs=1e-9)
    for k, name in enumerate("ab"):
        assert both.kl[name] == pytest.approx(alone[k].kl[name], abs=1e-9)
        gibbs = priors[k] * np.exp(-(losses[k] - losses[k].min()) / gamma[k])
        assert both.marginal(name).pmf(values) == pytest.approx(gibbs / gibbs.sum(), abs=1e-9)


def test_gaussian_blocks_with_an_additive_loss_solve_separately():
    blocks = [GaussianBlock("a", [0.3], 2.0), GaussianBlock("b", [-1.0, 0.0], [1.0, 3.0])]
    losses = [QuadraticLoss([[2.0]], [1.0]), QuadraticLoss([[1.0, 0.4], [0.4, 2.0]], [0.5, -2.0])]
    Q = np.zeros((3, 3))
    Q[:1, :1], Q[1:, 1:] = losses[0].matrix, losses[1].matrix
    joint = QuadraticLoss(Q, np.concatenate([losses[0].vector, losses[1].vector]))
    confidence = {"a": 0.3, "b": 4.0}
    both = solve_gaussian(GaussianModel(blocks, joint), confidence)
    alone = [
        solve_gaussian(GaussianModel([b], loss), {b.name: confidence[b.name]})
        for b, loss in zip(blocks, losses, strict=True)
    ]
    assert both.value == pytest.approx(sum(p.value for p in alone))
    assert both.joint_cov[0, 1:] == pytest.approx(0.0)
    assert both.kl == pytest.approx({**alone[0].kl, **alone[1].kl})
    assert both.mean("b") == pytest.approx(alone[1].mean("b"))

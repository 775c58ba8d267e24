"""The Gaussian engine against known answers, against quadrature, and on bad input."""

import numpy as np
import pytest
from scipy import stats

from scenarios import SCENARIOS, normal_mean
from soubayes import (
    Block,
    GaussianBlock,
    GaussianModel,
    Model,
    QuadraticLoss,
    solve_exact,
    solve_gaussian,
)

GAUSSIAN = [scenario for scenario in SCENARIOS if scenario.gaussian is not None]


@pytest.mark.parametrize("scenario", GAUSSIAN, ids=lambda s: s.name)
def test_known_answers(scenario):
    posterior = solve_gaussian(scenario.gaussian, scenario.confidence)
    assert posterior.value == pytest.approx(scenario.value)
    assert posterior.expected_loss == pytest.approx(scenario.expected_loss)
    assert posterior.kl == pytest.approx(scenario.kl)
    for name in scenario.model.names:
        assert posterior.mean(name) == pytest.approx(scenario.mean[name])
        assert posterior.sd(name) == pytest.approx(scenario.sd[name])


@pytest.mark.parametrize("gammas", [(0.1, 3, 0.5), (np.inf, 0.2, 2)])
def test_three_blocks_agree_with_quadrature(gammas):
    rng = np.random.default_rng(3)
    root = rng.normal(size=(3, 3))
    loss = QuadraticLoss(root @ root.T / 2, rng.normal(size=3), 0.7)
    gaussian = GaussianModel(
        [
            GaussianBlock("a", [0.3], 1.5),
            GaussianBlock("b", [0.0], 0.5, coef=[[1.0]]),
            GaussianBlock("c", [-0.2], 1.0, coef=[[0.5, -1.0]]),
        ],
        loss,
    )

    def quadratic(a, b, c):
        x = np.stack([a, b, c], axis=-1)
        return 0.5 * ((x @ loss.matrix) * x).sum(axis=-1) - x @ loss.vector + loss.constant

    nodes = Model(
        [
            Block("a", stats.norm(0.3, np.sqrt(1.5))),
            Block("b", lambda a: stats.norm(a, np.sqrt(0.5))),
            Block("c", lambda a, b: stats.norm(-0.2 + 0.5 * a - b, 1.0)),
        ],
        quadratic,
    )
    confidence = dict(zip("abc", gammas, strict=True))
    closed = solve_gaussian(gaussian, confidence)
    numeric = solve_exact(nodes, confidence, tolerance=1e-7)
    assert numeric.value == pytest.approx(closed.value, abs=1e-7)
    assert numeric.expected_loss == pytest.approx(closed.expected_loss, abs=1e-6)
    for name in "abc":
        assert numeric.kl[name] == pytest.approx(closed.kl[name], rel=1e-5, abs=1e-7)
        assert numeric.mean(name) == pytest.approx(closed.mean(name), abs=1e-6)
        assert numeric.sd(name) == pytest.approx(closed.sd(name), rel=1e-6)


def test_no_blockwise_normal_has_a_lower_objective():
    """J of random independent normals, by its formula, is above V and equals it at q*."""
    rng = np.random.default_rng(0)
    model = normal_mean(1.0).gaussian
    gamma = 0.6
    best = solve_gaussian(model, {"mu": gamma})

    def j(mean, var):
        Q, b = model.loss.matrix[0, 0], model.loss.vector[0]
        expected = 0.5 * Q * (mean**2 + var) - b * mean + model.loss.constant
        prior_mean, prior_var = model.blocks[0].mean[0], model.blocks[0].cov[0, 0]
        ratio = var / prior_var
        kl = 0.5 * ((mean - prior_mean) ** 2 / prior_var + ratio - 1 - np.log(ratio))
        return expected + gamma * kl

    assert j(best.mean("mu"), best.sd("mu") ** 2) == pytest.approx(best.value)
    others = [j(m, v) for m, v in zip(rng.normal(1, 2, 50), rng.exponential(1, 50), strict=True)]
    assert min(others) >= best.value


def test_extreme_confidences_and_large_dimensions():
    rng = np.random.default_rng(1)
    d, n = 30, 40
    X, y = rng.normal(size=(n, 2 * d)), rng.normal(size=n)
    A = rng.normal(0, 0.1, size=(d, d))
    model = GaussianModel(
        [GaussianBlock("a", np.zeros(d), 1.0), GaussianBlock("b", np.zeros(d), 2.0, coef=A)],
        QuadraticLoss.least_squares(X, y, 1.0),
    )
    for gamma in (1e-9, 1e6, 1e12):
        posterior = solve_gaussian(model, {"a": gamma, "b": gamma})
        assert np.isfinite(posterior.value)
        parts = posterior.expected_loss + gamma * sum(posterior.kl.values())
        assert parts == pytest.approx(posterior.value, rel=1e-6)
    prior = solve_gaussian(model, {"a": np.inf, "b": np.inf})
    assert solve_gaussian(model, {"a": 1e12, "b": 1e12}).value == pytest.approx(prior.value)
    assert prior.joint_cov[d:, :d] == pytest.approx(A)


def test_a_singular_prior_pins_its_directions():
    cov = np.array([[1.0, 1.0], [1.0, 1.0]])  # the two coordinates are equal
    model = GaussianModel(
        [GaussianBlock("b", [0.0, 0.0], cov)], QuadraticLoss(np.eye(2), [1.0, 3.0])
    )
    posterior = solve_gaussian(model)
    assert posterior.mean("b") == pytest.approx([4 / 3, 4 / 3])
    draws = posterior.sample(100, 0)["b"]
    assert draws[:, 0] == pytest.approx(draws[:, 1])


def test_samples_marginals_and_arviz():
    model = GaussianModel(
        [GaussianBlock("a", [1.0], 2.0), GaussianBlock("b", [0.0, 1.0], 1.0, coef=[[1.0], [0.5]])],
        QuadraticLoss(np.diag([0.0, 1.0, 2.0]), [0.0, 1.0, -1.0]),
    )
    posterior = solve_gaussian(model, {"b": 0.3})
    draws = posterior.sample(20_000, random_state=0)
    stacked = np.column_stack([draws["a"], draws["b"]])
    assert stacked.mean(axis=0) == pytest.approx(posterior.joint_mean, abs=0.05)
    assert np.cov(stacked.T) == pytest.approx(posterior.joint_cov, abs=0.08)
    assert posterior.quantile("a", 0.5) == pytest.approx(posterior.mean("a"))
    assert posterior.quantile("b", [0.1, 0.9]).shape == (2, 2)
    assert posterior.marginal("a").std() == pytest.approx(posterior.sd("a"))
    each = posterior.marginal("b")
    assert [one.mean() for one in each] == pytest.approx(posterior.mean("b"))
    assert [one.std() for one in each] == pytest.approx(posterior.sd("b"))
    assert posterior.to_arviz(draws=10).posterior["b"].shape == (1, 10, 2)
    assert list(posterior.summary()["block"]) == ["a", "b[0]", "b[1]"]


def test_bad_input_is_explained():
    block = GaussianBlock("a", [0.0], 1.0)
    with pytest.raises(ValueError, match="no minimiser"):
        solve_gaussian(GaussianModel([block], QuadraticLoss([[-2.0]], [0.0])))
    assert np.isfinite(
        solve_gaussian(GaussianModel([block], QuadraticLoss([[-2.0]], [0.0])), {"a": 3.0}).value
    )
    bad = GaussianBlock("a", [0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]])
    indefinite = GaussianModel([bad], QuadraticLoss(np.eye(2), [0.0, 0.0]))
    with pytest.raises(ValueError, match="negative eigenvalue"):
        solve_gaussian(indefinite)
    with pytest.raises(ValueError, match="NaN"):
        GaussianBlock("a", [np.nan], 1.0)
    with pytest.raises(ValueError, match="check the data"):
        QuadraticLoss.least_squares([[1.0]], [np.nan], 1.0)
    with pytest.raises(ValueError, match="columns"):
        GaussianModel([GaussianBlock("a", [0.0], 1.0, coef=[[1.0]])], QuadraticLoss([[1.0]], [0.0]))
    with pytest.raises(ValueError, match="dimensions"):
        GaussianModel([block], QuadraticLoss(np.eye(2), [0.0, 0.0]))
    with pytest.raises(ValueError, match="'zeta'"):
        solve_gaussian(GaussianModel([block], QuadraticLoss([[1.0]], [0.0])), {"zeta": 1.0})

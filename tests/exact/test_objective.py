"""J(q), its parts and M - H, against closed forms and Monte Carlo."""

import numpy as np
import pytest
from scipy import stats

from scenarios import SCENARIOS, normal_mean
from soubayes import Block, Discrete, Model, objective, solve_exact


def test_parts_of_a_normal_q():
    known = normal_mean(1.0)
    prior = known.data
    q = stats.norm(0.8, 0.4)
    j = objective(known.model, {"mu": q}, {"mu": 2.5})
    y, s2 = prior["y"], prior["noise_sd"] ** 2
    loss = ((y - 0.8) ** 2).sum() / (2 * s2) + len(y) * 0.16 / (2 * s2)
    loss += len(y) / 2 * np.log(2 * np.pi * s2)
    assert j.expected_loss == pytest.approx(loss)
    cross = 0.5 * np.log(2 * np.pi * 4) + ((0.8 - 0.5) ** 2 + 0.16) / 8
    assert j.cross_entropy["mu"] == pytest.approx(cross)
    assert j.entropy["mu"] == pytest.approx(q.entropy())
    assert j.kl["mu"] == pytest.approx(cross - q.entropy())
    assert j.value == pytest.approx(loss + 2.5 * (cross - q.entropy()))
    assert j.location == pytest.approx(loss + 2.5 * cross)
    assert j.dispersion == pytest.approx(2.5 * q.entropy())


def test_conditional_q_against_monte_carlo():
    model = Model(
        [Block("a", stats.gamma(2)), Block("b", lambda a: stats.norm(0, a))],
        lambda a, b: np.abs(b - 1) + a,
    )
    q = {"a": stats.gamma(3, scale=0.5), "b": lambda a: stats.norm(0.5 * a, 0.7)}
    confidence = {"a": 0.4, "b": 3.0}
    j = objective(model, q, confidence)
    rng = np.random.default_rng(0)
    a = q["a"].rvs(200_000, random_state=rng)
    b = rng.normal(0.5 * a, 0.7)
    kl_a = q["a"].logpdf(a) - stats.gamma(2).logpdf(a)
    kl_b = stats.norm(0.5 * a, 0.7).logpdf(b) - stats.norm(0, a).logpdf(b)
    draws = np.abs(b - 1) + a + 0.4 * kl_a + 3.0 * kl_b
    assert j.value == pytest.approx(draws.mean(), abs=4 * draws.std() / np.sqrt(len(draws)))
    assert j.kl["b"] == pytest.approx(kl_b.mean(), abs=4 * kl_b.std() / np.sqrt(len(draws)))
    assert j.location - j.dispersion == pytest.approx(j.value)
    assert j.value >= solve_exact(model, confidence).value


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_at_the_posterior_it_is_the_value_and_m_minus_h(scenario):
    posterior = solve_exact(scenario.model, scenario.confidence)
    j = objective(scenario.model, posterior, scenario.confidence)
    assert j.value == pytest.approx(scenario.value, abs=1e-7)
    assert j.location - j.dispersion == pytest.approx(scenario.value, abs=1e-7)
    assert j.kl == pytest.approx(scenario.kl, abs=1e-7)


def test_the_prior_costs_nothing_at_any_confidence():
    known = normal_mean(1.0)
    prior = known.model.blocks[0].prior
    j = objective(known.model, {"mu": prior}, {"mu": np.inf})
    assert j.value == pytest.approx(j.expected_loss)
    elsewhere = objective(known.model, {"mu": stats.norm(3, 1)}, {"mu": np.inf})
    assert elsewhere.value == np.inf


def test_q_outside_the_prior_costs_infinity_and_wrong_kinds_are_explained():
    model = Model([Block("s", stats.expon())], lambda s: s)
    assert objective(model, {"s": stats.norm(1, 1)}).value == np.inf
    with pytest.raises(ValueError, match="q of block 's' is discrete"):
        objective(model, {"s": Discrete([1.0, 2.0], [0.5, 0.5])})
    with pytest.raises(ValueError, match="q names"):
        objective(model, {"t": stats.expon()})

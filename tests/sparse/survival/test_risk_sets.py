"""Sums over risk sets, and the partial loss with its derivatives, by brute force: risk_sets."""

import numpy as np
import pytest

from soubayes.sparse.survival.risk_sets import (
    BaselinePrior,
    PartialLoss,
    RiskSets,
    baseline_kl,
    subjects,
)


def example(seed=0, n=40, tied=True, late=True, strata=2):
    rng = np.random.default_rng(seed)
    stop = rng.exponential(size=n) + 0.2
    stop = np.ceil(5.0 * stop) / 5.0 if tied else stop
    start = stop * rng.uniform(-0.5, 0.9, size=n) if late else -np.inf
    stratum = rng.integers(strata, size=n)
    y = subjects(stop, rng.uniform(size=n) < 0.7, start, stratum)
    return y, rng.uniform(0.5, 2.0, size=n), rng.normal(size=(n, 3)), rng


def jumps(y, weight, ties):
    """(weighted events, share of every subject in the exposure) of every jump, one by one."""
    for stratum in np.unique(y["stratum"]):
        inside = y["stratum"] == stratum
        for t in np.unique(y["stop"][inside & y["event"]]):
            risk = inside & (y["start"] < t) & (t <= y["stop"])
            dead = inside & y["event"] & (y["stop"] == t)
            if ties == "breslow":
                yield t, weight[dead].sum(), risk.astype(float)
                continue
            d = dead.sum()
            for l in range(d):
                yield t, weight[dead].mean(), risk - dead * (l / d)


def loss(eta, y, weight, ties, extra=0.0, pulls=None):
    total = -(weight * y["event"]) @ eta
    for k, (_, count, share) in enumerate(jumps(y, weight, ties)):
        pull = 0.0 if pulls is None else pulls[k]
        total += (count + pull) * np.log(extra + (share * weight) @ np.exp(eta))
    return total


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("late", [True, False])
def test_sums_and_their_transpose_are_those_of_the_definition(ties, late):
    y, weight, X, rng = example(late=late)
    sets = RiskSets.of(y, weight, ties)
    found = list(jumps(y, weight, ties))
    A = np.array([share for _, _, share in found])
    np.testing.assert_allclose(sets.time, [t for t, _, _ in found])
    np.testing.assert_allclose(sets.deaths, [count for _, count, _ in found])
    np.testing.assert_allclose(sets.sums(X), A @ X, atol=1e-12)
    np.testing.assert_allclose(sets.sums(X[:, 0]), A @ X[:, 0], atol=1e-12)
    values = rng.normal(size=(len(A), 2))
    np.testing.assert_allclose(sets.spread(values), A.T @ values, atol=1e-12)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("mass", [0.0, 0.7])
def test_loss_and_derivatives(ties, mass):
    y, weight, X, rng = example(seed=1)
    prior = BaselinePrior(mass, 0.4, 1.5)
    sets = RiskSets.of(y, weight, ties, prior)
    beta = rng.normal(size=3)

    def value(b):
        return loss(X @ b, y, weight, ties, sets.ghost, sets.pull)

    at, zero = PartialLoss.at(sets, X @ beta), PartialLoss.at(sets, 0.0 * X[:, 0])
    assert at.loss - zero.loss == pytest.approx(value(beta) - value(0.0 * beta), rel=1e-10)
    steps = 1e-5 * np.eye(3)
    slope = [(value(beta + s) - value(beta - s)) / 2e-5 for s in steps]
    np.testing.assert_allclose(-X.T @ at.score, slope, rtol=1e-6, atol=1e-6)

    def slopes(b):
        return -X.T @ PartialLoss.at(sets, X @ b).score

    H = np.array([(slopes(beta + s) - slopes(beta - s)) / 2e-5 for s in steps])
    np.testing.assert_allclose(at.curvature(X), H, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(X.T @ at.second() @ X, H, rtol=1e-5, atol=1e-6)
    np.linalg.cholesky(at.curvature(X))


def test_without_ties_efron_is_breslow():
    y, weight, X, _ = example(tied=False)
    one, two = (PartialLoss.at(RiskSets.of(y, weight, t), X[:, 0]) for t in ("efron", "breslow"))
    assert one.loss == two.loss
    np.testing.assert_array_equal(one.score, two.score)


def test_a_weight_of_two_is_the_subject_twice():
    """With Breslow's ties; Efron's weights are means over the tied subjects."""
    y, _, X, _ = example()
    weight = np.where(np.arange(len(y)) < 10, 2.0, 1.0)
    twice = np.append(np.arange(len(y)), np.arange(10))
    one = PartialLoss.at(RiskSets.of(y, weight, "breslow"), X[:, 0])
    two = PartialLoss.at(RiskSets.of(y[twice], np.ones(len(twice)), "breslow"), X[twice, 0])
    assert one.loss == pytest.approx(two.loss, rel=1e-12)


def test_the_block_of_the_baseline_is_integrated_exactly():
    """V = -gamma log of the integral of (likelihood)^(1/gamma) under the gamma prior, by nodes."""
    y, _, X, _ = example(strata=1)
    eta, gamma, mass, rate = X[:, 0], 1.7, 0.8, 0.6
    prior, ones = BaselinePrior(mass, rate, gamma), np.ones(len(y))
    sets = RiskSets.of(y, ones, "breslow", prior)
    at = PartialLoss.at(sets, eta)

    def by_nodes(eta):
        from scipy.integrate import quad
        from scipy.stats import gamma as gamma_density

        total, before = 0.0, 0.0
        for t, d, share in jumps(y, ones, "breslow"):
            a, S = mass * rate * (t - before), share @ np.exp(eta)
            q = gamma_density(a, scale=1.0 / mass)

            # substitute h = u^(1/a): the prior's density has a pole at 0
            def f(u, a=a, S=S, d=d, q=q):
                h = u ** (1.0 / a)
                weight = np.exp(q.logpdf(h) + (1.0 / a - 1.0) * np.log(u) - np.log(a))
                return h ** (d / gamma) * np.exp(-h * S / gamma) * weight

            total -= gamma * np.log(quad(f, 0.0, 40.0**a, epsabs=0, epsrel=1e-10, limit=500)[0])
            before = t
        return total - y["event"] @ eta

    assert at.loss == pytest.approx(by_nodes(eta), rel=1e-6)


def test_kl_of_the_baseline_by_draws():
    y, weight, X, rng = example(strata=1)
    prior = BaselinePrior(2.0, 0.6, 1.3)
    at = PartialLoss.at(RiskSets.of(y, weight, "breslow", prior), X[:, 0])
    from scipy.stats import gamma

    total = 0.0
    a = at.sets.pull / prior.confidence
    for j in range(len(a)):
        shape = a[j] + at.sets.deaths[j] / prior.confidence
        rate = at.exposure[j] * np.exp(at.top) / prior.confidence
        q, p = gamma(shape, scale=1.0 / rate), gamma(a[j], scale=1.0 / prior.mass)
        h = q.rvs(4000, random_state=rng)
        total += np.mean(q.logpdf(h) - p.logpdf(h))
    assert baseline_kl(at) == pytest.approx(total, rel=0.01)
    assert baseline_kl(PartialLoss.at(RiskSets.of(y, weight), X[:, 0])) == 0.0


@pytest.mark.parametrize("late", [True, False])
def test_predictors_that_order_the_events_in_time(late):
    y, weight, *_ = example(tied=False, late=late)
    sets, eta = RiskSets.of(y, weight), -y["stop"]
    assert sets.ordered_by(eta)
    far, farther = (PartialLoss.at(sets, c * eta).loss for c in (5.0, 50.0))
    assert farther < far  # no maximum along this direction
    assert not sets.ordered_by(-eta)
    assert not sets.ordered_by(np.zeros(len(y)))
    event = np.flatnonzero(y["event"])
    middle = event[np.argsort(y["stop"][event])[len(event) // 2]]
    assert not sets.ordered_by(np.where(np.arange(len(y)) == middle, -100.0, eta))
    prior = BaselinePrior(1.0, 0.5, 1.0)  # subjects of predictor 0 in every risk set
    assert not RiskSets.of(y, weight, prior=prior).ordered_by(eta)

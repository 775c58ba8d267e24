"""SoUELBO against NumPyro's ELBO, against formulas by hand, and on guides it must refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import random
from numpyro.distributions.kl import kl_divergence
from numpyro.handlers import seed, trace
from numpyro.infer import SVI, TraceMeanField_ELBO
from numpyro.infer.autoguide import (
    AutoBNAFNormal,
    AutoDiagonalNormal,
    AutoIAFNormal,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)

from soubayes import SoUELBO

Y = jnp.linspace(-1.0, 2.0, 12)


def grouped(y):
    """Constrained, plated and subsampled sites, and a KL that no closed form covers."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    with numpyro.plate("rows", 12, subsample_size=6):
        effect = numpyro.sample("effect", dist.Normal(mu, scale))
        numpyro.sample("y", dist.Normal(effect, 0.5), obs=numpyro.subsample(y, event_dim=0))


def pair(y):
    a = numpyro.sample("a", dist.Normal(0.0, 2.0))
    b = numpyro.sample("b", dist.Normal(a, 1.0))
    numpyro.sample("y", dist.Normal(b, 0.5), obs=y)


def conditional(y):
    a = numpyro.sample("a", dist.Normal(0.3, 0.8))
    numpyro.sample("b", dist.Normal(0.2 + 0.5 * a, 0.6))


def backwards(y):
    b = numpyro.sample("b", dist.Normal(0.2, 0.6))
    numpyro.sample("a", dist.Normal(0.3 + 0.5 * b, 0.8))


def params_of(guide, *args):
    sites = trace(seed(guide, 0)).get_trace(*args)
    params = {n: s["value"] for n, s in sites.items() if s["type"] == "param"}
    return jax.tree.map(lambda x: 1.1 * x, params)


def mean_terms(elbo, guide, n=4096, model=pair):
    each = jax.jit(jax.vmap(lambda key: elbo.terms(key, {}, model, guide, 1.5)))
    return each(random.split(random.key(1), n))


@pytest.mark.parametrize("num_particles", [1, 3])
def test_all_ones_is_numpyros_loss_and_gradient(num_particles):
    params = {"p": jnp.array([-0.3, -0.5]), "q": jnp.array([0.2, 0.4]), "r": jnp.array(0.7)}

    def guide(y):
        p = {name: numpyro.param(name, value) for name, value in params.items()}
        positive = dist.transforms.ExpTransform()
        base = dist.Normal(p["p"][0], jnp.exp(p["p"][1]))
        numpyro.sample("scale", dist.TransformedDistribution(base, positive))
        numpyro.sample("mu", dist.Normal(p["q"][0], p["q"][1]))
        with numpyro.plate("rows", 12, subsample_size=6):
            rows = numpyro.subsample(y, event_dim=0)
            numpyro.sample("effect", dist.Normal(p["r"] * rows, 0.4))

    def loss_and_gradient(elbo):
        objective = lambda p: elbo.loss(random.key(3), p, grouped, guide, Y)  # noqa: E731
        return jax.jit(jax.value_and_grad(objective))(params)

    ours = loss_and_gradient(SoUELBO(num_particles=num_particles))
    numpyros = loss_and_gradient(TraceMeanField_ELBO(num_particles=num_particles))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-6), ours, numpyros)


def test_terms_match_formulas_by_hand():
    """E KL of a conditional guide: q(b|a) = N(.2 + a/2, .6) against N(a, 1), a ~ N(.3, .8)."""
    kl_a = np.log(2 / 0.8) + (0.8**2 + 0.3**2) / (2 * 4) - 0.5
    shift = np.array([0.2 - 0.5 * 0.3, 0.5 * 0.8])  # mean and sd of .2 + a/2 - a
    kl_b = -np.log(0.6) + (0.6**2 + shift @ shift) / 2 - 0.5
    b_mean, b_var = 0.2 + 0.15, 0.36 + 0.25 * 0.64
    loss = 0.5 * np.log(2 * np.pi * 0.25) + ((1.5 - b_mean) ** 2 + b_var) / 0.5
    for analytic in (True, False):
        terms = mean_terms(SoUELBO({"a": 0.5, "b": 3.0}, analytic=analytic), conditional)
        for estimate, exact in [(terms.loss, loss), (terms.kl["a"], kl_a), (terms.kl["b"], kl_b)]:
            error = np.std(estimate) / np.sqrt(len(estimate))
            assert abs(np.mean(estimate) - exact) < 4 * error + 1e-5
        weighted = terms.loss + 0.5 * terms.kl["a"] + 3.0 * terms.kl["b"]
        np.testing.assert_allclose(terms.objective, weighted, rtol=1e-5, atol=1e-6)


def test_a_group_drawn_in_another_order_keeps_its_joint_kl():
    """Site-by-site closed forms would be wrong here, so the block falls back on Monte Carlo."""
    terms = mean_terms(SoUELBO({"both": 2.0}, groups={"both": ["a", "b"]}), backwards)
    mean = np.array([0.4, 0.2])  # of (a, b) under the guide
    cov = np.array([[0.64 + 0.25 * 0.36, 0.5 * 0.36], [0.5 * 0.36, 0.36]])
    prior = np.array([[4.0, 4.0], [4.0, 5.0]])
    precision = np.linalg.inv(prior)
    log_dets = np.linalg.slogdet(prior)[1] - np.linalg.slogdet(cov)[1]
    joint = 0.5 * (np.trace(precision @ cov) + mean @ precision @ mean - 2 + log_dets)
    estimate = np.asarray(terms.kl["both"])
    assert abs(estimate.mean() - joint) < 4 * estimate.std() / np.sqrt(len(estimate))


def test_subsampling_is_unbiased_for_the_full_plate():
    def model(y, size):
        mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
        with numpyro.plate("rows", 12, subsample_size=size):
            effect = numpyro.sample("effect", dist.Normal(mu, 1.0))
            numpyro.sample("y", dist.Normal(effect, 0.5), obs=numpyro.subsample(y, event_dim=0))

    def guide(y, size):
        numpyro.sample("mu", dist.Normal(0.1, 0.4))
        with numpyro.plate("rows", 12, subsample_size=size):
            rows = numpyro.subsample(y, event_dim=0)
            numpyro.sample("effect", dist.Normal(0.8 * rows, 0.3))

    elbo = SoUELBO({"effect": 0.3, "mu": 2.0})
    values = []
    for size in (4, 12):
        run = jax.jit(jax.vmap(lambda k, size=size: elbo.loss(k, {}, model, guide, Y, size)))
        values.append(np.asarray(run(random.split(random.key(5), 8192))))
    error = np.sqrt(sum(v.var() / len(v) for v in values))
    assert abs(values[0].mean() - values[1].mean()) < 4 * error
    assert values[0].std() > values[1].std()


def test_changing_confidence_values_compiles_nothing_new():
    guide = AutoNormal(pair)
    params = params_of(guide, 1.5)
    traced = []

    @jax.jit
    def step(params, confidence):
        traced.append(1)
        elbo = SoUELBO(confidence, num_particles=2)
        return jax.value_and_grad(lambda p: elbo.loss(random.key(0), p, pair, guide, 1.5))(params)

    one = step(params, {"a": jnp.array(1.0), "b": jnp.array(1.0)})
    two = step(params, {"a": jnp.array(0.1), "b": jnp.array(1.0)})
    assert len(traced) == 1
    assert one[0] != two[0]


def test_static_zero_and_inf_are_structure():
    def point(y):
        numpyro.sample("a", dist.Delta(numpyro.param("at", 0.7)))

    terms = mean_terms(SoUELBO({"a": 0.0, "b": float("inf")}), point, n=4096)
    np.testing.assert_allclose(terms.objective, terms.loss, rtol=1e-6)
    b = np.asarray(terms.values["b"])  # from its prior given a = 0.7
    assert abs(b.mean() - 0.7) < 4 / 64
    assert abs(b.std() - 1.0) < 4 / np.sqrt(2 * 4096)


@pytest.mark.parametrize(
    "kind",
    [
        AutoMultivariateNormal,
        AutoIAFNormal,
        *(
            pytest.param(kind, marks=pytest.mark.slow)  # the same again, and slow to compile
            for kind in (AutoDiagonalNormal, AutoLowRankMultivariateNormal, AutoBNAFNormal)
        ),
    ],
)
def test_a_joint_guide_is_refused_until_its_sites_are_one_block(kind):
    guide = kind(pair)
    params = params_of(guide, 1.5)
    with pytest.raises(ValueError, match=r"together through '_auto_latent'.*groups=.*AutoNormal"):
        SoUELBO({"a": 0.5}).loss(random.key(0), params, pair, guide, 1.5)
    one_block = SoUELBO({"all": 1.0}, groups={"all": ["a", "b"]})
    ours = one_block.loss(random.key(0), params, pair, guide, 1.5)
    numpyros = TraceMeanField_ELBO().loss(random.key(0), params, pair, guide, 1.5)
    np.testing.assert_allclose(ours, numpyros, rtol=1e-6)


def test_numpyros_own_kls_are_left_alone():
    """What this library adds must not change other people's TraceMeanField_ELBO."""
    with pytest.raises(NotImplementedError):
        kl_divergence(dist.InverseGamma(3.0, 2.0), dist.Exponential(1.0))
    vector = dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2))
    with pytest.raises(NotImplementedError):
        kl_divergence(vector, dist.Normal(jnp.zeros(2), 1.0).to_event(1))


def test_entropies_take_noise_out_of_kls():
    """KL(log-normal || exponential) by hand; a correlated normal against independent ones."""

    def model(y):
        scale = numpyro.sample("scale", dist.Exponential(2.0))
        b = numpyro.sample("b", dist.Normal(jnp.array([0.5, 0.0]), scale).to_event(1))
        numpyro.sample("y", dist.Normal(b.sum(), 0.5), obs=y)

    tril = np.array([[0.5, 0.0], [-0.3, 0.4]])

    def guide(y, spread=0.3):
        base = dist.Normal(0.2, spread)
        numpyro.sample("scale", dist.TransformedDistribution(base, dist.transforms.ExpTransform()))
        numpyro.sample("b", dist.MultivariateNormal(jnp.ones(2), scale_tril=jnp.asarray(tril)))

    plain = mean_terms(SoUELBO(), guide, model=model)
    less = mean_terms(SoUELBO(entropy=True), guide, model=model)
    by_hand = {}
    entropy = 0.5 * np.log(2 * np.pi * np.e * 0.09) + 0.2
    by_hand["scale"] = -entropy - np.log(2.0) + 2.0 * np.exp(0.2 + 0.045)
    second = (tril**2).sum() + (0.5**2 + 1.0**2)  # E|b - prior mean|^2
    entropy = np.log(2 * np.pi * np.e) + np.log(0.5 * 0.4)
    by_hand["b"] = -entropy + np.log(2 * np.pi) + 2 * 0.2 + 0.5 * second * np.exp(-0.4 + 0.18)
    for block, exact in by_hand.items():
        for terms in (plain, less):
            error = np.std(terms.kl[block]) / np.sqrt(4096)
            assert abs(np.mean(terms.kl[block]) - exact) < 4 * error
        assert np.std(less.kl[block]) < 0.8 * np.std(plain.kl[block])

    def sharp(y):  # a standard deviation that rounding loses
        guide(y, spread=1e-12)

    lost = mean_terms(SoUELBO(entropy=True), sharp, n=64, model=model)
    entropy = 0.5 * np.log(2 * np.pi * np.e * 1e-24) + 0.2
    exact = -entropy - np.log(2.0) + 2.0 * np.exp(0.2)
    np.testing.assert_allclose(lost.kl["scale"], exact, rtol=1e-5)


def test_a_guide_against_the_models_order_is_refused():
    with pytest.raises(ValueError, match="draws 'a' given 'b', but the model has block 'a' before"):
        SoUELBO().loss(random.key(0), {}, pair, backwards, 1.5)


def test_a_group_whose_prior_needs_a_later_block_is_refused():
    def model(y):
        a = numpyro.sample("a", dist.Normal(0.0, 1.0))
        b = numpyro.sample("b", dist.Normal(0.0, 1.0))
        c = numpyro.sample("c", dist.Normal(b if y > 1 else a, 1.0))
        numpyro.sample("y", dist.Normal(c + b, 1.0), obs=y)

    def guide(y):
        for name in "abc":
            numpyro.sample(name, dist.Normal(0.0, 1.0))

    elbo = SoUELBO(groups={"ac": ["a", "c"]})
    with pytest.raises(ValueError, match="comes before 'b', but the prior of 'c' depends on 'b'"):
        elbo.loss(random.key(0), {}, model, guide, 1.5)
    assert np.isfinite(elbo.loss(random.key(0), {}, model, guide, 0.5))


def extra(y):
    conditional(y)
    numpyro.sample("c", dist.Normal(0.0, 1.0))


def useless(y):
    conditional(y)
    numpyro.sample("c", dist.Normal(0.0, 1.0), infer={"is_auxiliary": True})


def half(y):
    numpyro.sample("a", dist.Normal(0.0, 1.0))


@pytest.mark.parametrize(
    ("settings", "guide", "message"),
    [
        ({"confidence": {"c": 1.0}}, conditional, "'c', but the model's blocks are 'a', 'b'"),
        ({"confidence": {"c": jnp.array(1.0)}}, conditional, "'c', but the model's blocks"),
        ({"confidence": {"y": 1.0}}, conditional, "'y', which is observed"),
        ({"confidence": {"a": -1.0}}, conditional, "'a' is -1.0, but it must be"),
        ({"confidence": {"a": float("nan")}}, conditional, "'a' is nan, but it must be"),
        ({"groups": {"g": ["a", "c"]}}, conditional, "'c' in 'g', but the latent sites"),
        ({"groups": {"g": ["a"], "h": ["a"]}}, conditional, "'a' in both 'g' and 'h'"),
        ({"divergence": {"c": None}}, conditional, "divergence names 'c'"),
        ({"divergence": {"g": None}, "groups": {"g": ["a", "b"]}}, conditional, "only KL adds up"),
        ({}, half, "does not sample 'b'"),
        ({}, extra, "samples 'c', which the model does not have"),
        ({}, useless, "'c' feeds no site"),
    ],
)
def test_errors_say_what_to_do(settings, guide, message):
    with pytest.raises(ValueError, match=message):
        SoUELBO(**settings).loss(random.key(0), {}, pair, guide, 1.5)


def test_a_model_without_latent_sites_is_an_error():
    def nothing(y):
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)

    with pytest.raises(ValueError, match="no latent sample site"):
        SoUELBO().loss(random.key(0), {}, nothing, lambda y: None, 1.0)


def test_svi_takes_it_with_mutable_state():
    def counting(y):
        state = numpyro.primitives.mutable("calls", {"count": jnp.array(0)})
        state["count"] = state["count"] + 1
        pair(y)

    svi = SVI(counting, AutoNormal(pair), numpyro.optim.Adam(0.01), SoUELBO({"a": 0.5}))
    state = svi.init(random.key(0), 1.5)
    before = int(state.mutable_state["calls"]["count"])
    state, loss = svi.update(state, 1.5)
    assert np.isfinite(loss)
    assert int(state.mutable_state["calls"]["count"]) == before + 1

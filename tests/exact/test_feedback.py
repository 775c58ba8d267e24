"""Feedback between modules against sums by hand, closed forms and laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from soubayes import Block, Discrete, Model, solve_exact

KINDS = ("power", "smi")
ETAS = (0.0, 0.3, 0.7)


def soft(values, prior, gamma, axis=-1):
    """-gamma log of the mean of exp(-values / gamma)."""
    return -gamma * np.log(np.sum(prior * np.exp(-values / gamma), axis=axis))


def tilted(values, prior, gamma):
    q = prior * np.exp(-values / gamma)
    return q / q.sum(axis=-1, keepdims=True)


def hand_on(values, prior, gamma, eta, kind):
    if kind == "power":
        return eta * soft(values, prior, gamma)
    return soft(eta * values, prior, gamma)


A, B, C = np.array([-1.0, 0.0, 2.0]), np.array([0.0, 1.0]), np.array([-0.5, 0.5, 1.5, 3.0])
PRIOR_A, PRIOR_B = np.array([0.2, 0.5, 0.3]), np.array([[0.1, 0.9], [0.5, 0.5], [0.7, 0.3]])
PRIOR_C = np.array([0.4, 0.3, 0.2, 0.1])
LOSSES = {
    "a": lambda a: (a - 0.4) ** 2,
    "b": lambda a, b: (a + b - 2.0) ** 2 / 2,
    "c": lambda a, b, c: (a * b + c - 1.0) ** 2 + c,
}


def three_blocks():
    prior_b = lambda a: Discrete(B, PRIOR_B[np.searchsorted(A, a[..., 0])])  # noqa: E731
    blocks = [
        Block("a", Discrete(A, PRIOR_A)),
        Block("b", prior_b),
        Block("c", Discrete(C, PRIOR_C)),
    ]
    return Model(blocks, LOSSES)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("eta", [(0.0, 0.0), (0.3, 1.0), (1.0, 0.3), (0.6, 0.2), (0.0, 0.5)])
def test_three_blocks_by_sums(eta, kind):
    gamma = {"a": 0.7, "b": 1.6, "c": 0.9}
    a, b, c = A[:, None, None], B[None, :, None], C
    u_c = LOSSES["c"](a, b, c)
    u_b = LOSSES["b"](A[:, None], B) + hand_on(u_c, PRIOR_C, gamma["c"], eta[1], kind)
    u_a = LOSSES["a"](A) + hand_on(u_b, PRIOR_B, gamma["b"], eta[0], kind)
    q_a = tilted(u_a, PRIOR_A, gamma["a"])
    q_b = q_a[:, None] * tilted(u_b, PRIOR_B, gamma["b"])
    q_c = q_b[..., None] * tilted(u_c, PRIOR_C, gamma["c"])
    found = solve_exact(three_blocks(), gamma, eta=dict(zip("bc", eta, strict=True)), feedback=kind)
    assert found.mean("a") == pytest.approx(q_a @ A, abs=1e-10)
    assert found.mean("b") == pytest.approx(q_b.sum(axis=0) @ B, abs=1e-10)
    assert found.mean("c") == pytest.approx(q_c.sum(axis=(0, 1)) @ C, abs=1e-10)
    kl_b = np.sum(q_b * np.log(tilted(u_b, PRIOR_B, gamma["b"]) / PRIOR_B))
    assert found.kl["b"] == pytest.approx(kl_b, abs=1e-10)
    total = LOSSES["a"](a) + LOSSES["b"](a, b) + LOSSES["c"](a, b, c)
    assert found.expected_loss == pytest.approx(np.sum(q_c * total), abs=1e-10)
    parts = found.expected_loss + sum(gamma[name] * kl for name, kl in found.kl.items())
    assert found.value == pytest.approx(parts, abs=1e-12)


GRID = np.linspace(-6.0, 6.0, 161)
WEIGHTS = np.append(np.diff(GRID), 0) / 2 + np.append(0, np.diff(GRID)) / 2
TWO = Model(
    [Block("a", stats.norm(0, 1)), Block("b", lambda a: stats.norm(0.5 * a, 0.8))],
    {"a": lambda a: (a - 1) ** 2 / 2, "b": lambda a, b: np.log(1 + (a + b**2 - 3.0) ** 2)},
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("eta", ETAS)
def test_two_continuous_blocks_on_a_grid(eta, kind):
    gamma = {"a": 0.8, "b": 1.5}
    prior_a = stats.norm(0, 1).pdf(GRID) * WEIGHTS
    prior_b = stats.norm(0.5 * GRID[:, None], 0.8).pdf(GRID) * WEIGHTS
    u_b = np.log(1 + (GRID[:, None] + GRID**2 - 3.0) ** 2)
    u_a = (GRID - 1) ** 2 / 2 + hand_on(u_b, prior_b, gamma["b"], eta, kind)
    q_a = tilted(u_a, prior_a, gamma["a"])
    mean_b = q_a @ (tilted(u_b, prior_b, gamma["b"]) @ GRID)
    on_grid = solve_exact(
        TWO, gamma, {"a": GRID, "b": GRID}, eta={"b": eta}, feedback=kind, tolerance=0.1
    )
    assert on_grid.mean("a") == pytest.approx(q_a @ GRID, abs=1e-8)
    assert on_grid.mean("b") == pytest.approx(mean_b, abs=1e-8)
    automatic = solve_exact(TWO, gamma, eta={"b": eta}, feedback=kind)
    assert automatic.mean("a") == pytest.approx(q_a @ GRID, abs=1e-6)
    assert automatic.mean("b") == pytest.approx(mean_b, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_full_feedback_is_the_posterior_without_modules(kind):
    whole = Model(TWO.blocks, lambda a, b: TWO.loss(a, b))
    gamma = {"a": 0.8, "b": 1.5}
    plain, full = solve_exact(whole, gamma), solve_exact(TWO, gamma, eta={"b": 1.0}, feedback=kind)
    almost = solve_exact(TWO, gamma, eta={"b": 1 - 1e-13}, feedback=kind)  # the other code path
    for name in ("a", "b"):
        assert full.mean(name) == pytest.approx(plain.mean(name), rel=1e-10)
        assert full.kl[name] == pytest.approx(plain.kl[name], rel=1e-10)
        assert almost.sd(name) == pytest.approx(plain.sd(name), rel=1e-7)
    assert full.value == pytest.approx(plain.value, rel=1e-10)
    assert almost.value == pytest.approx(plain.value, rel=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("eta", ETAS)
def test_the_linear_gaussian_case_in_closed_form(eta, kind):
    """a ~ N(0, 1), b ~ N(0, t); x ~ N(a, 1), y ~ N(a + b, s): W_b is a parabola around y."""
    t, s, x, y = 0.3, 0.5, 1.0, 4.0
    gamma = {"a": 0.7, "b": 1.4}
    model = Model(
        [Block("a", stats.norm(0, 1)), Block("b", stats.norm(0, np.sqrt(t)))],
        {"a": lambda a: (a - x) ** 2 / 2, "b": lambda a, b: (a + b - y) ** 2 / (2 * s)},
    )
    if kind == "power":
        weight = eta * gamma["b"] / (s * gamma["b"] + t)
    else:
        weight = gamma["b"] / (s * gamma["b"] / eta + t) if eta else 0.0
    precision = 1 + (1 + weight) / gamma["a"]
    mean = (x + weight * y) / gamma["a"] / precision
    found = solve_exact(model, gamma, eta={"b": eta}, feedback=kind)
    assert found.mean("a") == pytest.approx(mean, rel=1e-7)
    assert found.sd("a") == pytest.approx(precision**-0.5, rel=1e-6)
    share = t / (t + s * gamma["b"])  # b given a does not know eta
    assert found.mean("b") == pytest.approx(share * (y - mean), rel=1e-6)


def test_the_two_kinds_differ_between_the_ends():
    """With y ~ N(a + b, 1) and b ~ N(0, 9), the weight of y is 0.03 (power) and 0.081 (smi)."""
    model = Model(
        [Block("a", stats.norm(0, 1)), Block("b", stats.norm(0, 3))],
        {"b": lambda a, b: (a + b - 10.0) ** 2 / 2},
    )
    power, smi = (solve_exact(model, eta={"b": 0.3}, feedback=kind).mean("a") for kind in KINDS)
    assert power == pytest.approx(10 * 0.03 / 1.03, rel=1e-6)
    weight = 1 / (1 / 0.3 + 9)
    assert smi == pytest.approx(10 * weight / (1 + weight), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_of_two_dimensions_is_one_module(kind):
    first, second = Discrete([0.0, 1.0], [0.3, 0.7]), Discrete([-1.0, 1.0, 2.0], [0.2, 0.5, 0.3])
    model = Model(
        [Block("a", Discrete(A, PRIOR_A)), Block("b", (first, second))],
        {"b": lambda a, b: (a + b[..., 0] * b[..., 1] - 1.0) ** 2},
    )
    prior = np.outer([0.3, 0.7], [0.2, 0.5, 0.3]).ravel()
    product = np.outer([0.0, 1.0], [-1.0, 1.0, 2.0]).ravel()
    u_b = (A[:, None] + product - 1.0) ** 2
    q_a = tilted(hand_on(u_b, prior, 0.6, 0.4, kind), PRIOR_A, 1.0)
    found = solve_exact(model, {"b": 0.6}, eta={"b": 0.4}, feedback=kind)
    assert found.mean("a") == pytest.approx(q_a @ A, abs=1e-10)


def test_a_weight_multiplies_the_loss_of_a_module():
    scaled = Model(
        TWO.blocks, {**TWO.loss.modules, "b": lambda a, b: 0.25 * TWO.loss.of("b", (a, b))}
    )
    for settings_ in ({}, {"eta": {"b": 0.5}}):
        left = solve_exact(TWO, weight={"b": 0.25}, **settings_)
        right = solve_exact(scaled, **settings_)
        assert left.mean("a") == pytest.approx(right.mean("a"), rel=1e-7)
        assert left.value == pytest.approx(right.value, rel=1e-7)


gammas = st.floats(0.2, 5.0)


@settings(max_examples=15, deadline=None)
@given(gammas, gammas, st.floats(0.0, 1.0), st.sampled_from(KINDS))
def test_laws(gamma_a, gamma_b, eta, kind):
    gamma = {"a": gamma_a, "b": gamma_b}
    heard = {"eta": {"b": eta}, "feedback": kind}
    first, second = Block("a", Discrete(A, PRIOR_A)), Block("b", Discrete(B, [0.4, 0.6]))
    of_b = lambda a, b: (b - 0.2) ** 2 + 0 * a  # noqa: E731
    # W_b is constant, so a does not move; and eta has no effect at all
    apart = Model([first, second], {"a": LOSSES["a"], "b": of_b})
    reduced, full = solve_exact(apart, gamma, **heard), solve_exact(apart, gamma)
    assert reduced.mean("a") == pytest.approx(full.mean("a"), abs=1e-10)
    assert reduced.mean("b") == pytest.approx(full.mean("b"), abs=1e-10)
    # q of the last block given the others never depends on eta, and no q has a J below V
    joined = Model([first, second], {"a": LOSSES["a"], "b": LOSSES["b"]})
    reduced, full = solve_exact(joined, gamma, **heard), solve_exact(joined, gamma)
    ours, theirs = (p._solution.log_conditional[1] for p in (reduced, full))
    np.testing.assert_allclose(ours, theirs, atol=1e-10)
    assert reduced.value >= full.value - 1e-10


def test_draws_and_reports():
    found = solve_exact(TWO, eta={"b": 0.0})
    drawn = found.sample(20_000, random_state=0)
    assert drawn["a"].mean() == pytest.approx(found.mean("a"), abs=0.02)
    assert drawn["b"].mean() == pytest.approx(found.mean("b"), abs=0.03)
    assert found.eta == {"a": 1.0, "b": 0.0}
    assert "feedback {'b': 0.0}" in repr(found)
    with pytest.raises(ValueError, match="does not minimise J"):
        found.sensitivity()
    assert solve_exact(TWO).eta == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"eta": {"b": 1.5}}, "eta of 'b' is 1.5, but it must lie between 0"),
        ({"eta": {"b": -0.1}}, "eta of 'b' is -0.1"),
        ({"eta": {"b": float("nan")}}, "eta of 'b' is nan"),
        ({"eta": {"z": 0.5}}, "eta names 'z', but the model's blocks are 'a', 'b'"),
        ({"eta": {"a": 0.5}}, "eta names 'a', the first block"),
        ({"eta": {"b": 0.5}, "feedback": "cut"}, "feedback is 'cut', but it must be 'power' or"),
        ({"weight": {"b": -1.0}}, "weight of 'b' is -1.0"),
        ({"confidence": {"z": 0.5}}, "confidence names 'z'"),
    ],
)
def test_bad_settings(settings_, message):
    with pytest.raises(ValueError, match=message):
        solve_exact(TWO, **settings_)


def test_bad_losses():
    blocks = TWO.blocks
    with pytest.raises(ValueError, match=r"loss names \['z'\], but the blocks are"):
        Model(blocks, {"z": lambda a: a})
    with pytest.raises(TypeError, match="loss of 'a' must be a function, not 3"):
        Model(blocks, {"a": 3})
    with pytest.raises(ValueError, match=r"loss of 'a' failed: .*the blocks \['a'\]"):
        solve_exact(Model(blocks, {"a": lambda a, b: a + b}))
    with pytest.raises(ValueError, match="eta and weight need a loss by module"):
        solve_exact(Model(blocks, lambda a, b: a**2 + b**2), eta={"b": 0.5})
    with pytest.raises(TypeError, match=r"eta is 0.5, but it must be a mapping"):
        solve_exact(TWO, eta=0.5)

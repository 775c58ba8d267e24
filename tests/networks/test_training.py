"""The compiled step: finite gradients, one compilation a shape, repeatable and divisible work."""

import jax
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import cross_val_score

from soubayes import SoUNetRegressor
from soubayes.networks import program, state, training
from soubayes.networks.feeding import Chunk, data_mesh
from soubayes.networks.layers import Drawn, draw_noise, forward
from soubayes.networks.likelihoods import gaussian_loss, noise_prior
from soubayes.networks.structure import Spec

# trainings of a few epochs learn little
pytestmark = pytest.mark.filterwarnings("ignore::soubayes.networks.held_out.LittleLearntWarning")
NONE = np.arange(0)  # inputs of a gated layer where there is none
PAPER = {"confidence_weights": 1.0, "skip": False, "prune_inputs": False}
SETTINGS = {"hidden": (6, 5), "epochs": 12, "batch_size": 25, "random_state": 0, **PAPER}


def curve(n=100, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-4, 4, (n, 1))
    return X, np.sin(X[:, 0]) + 0.2 * rng.normal(size=n)


def problem(n=100, local=1e-9):
    confidence = {"weights": 1.0, "local": local, "global": 1.0, "noise": 1.0}
    return state.TrainingProblem(
        np.float32(n),
        {name: np.float32(value) for name, value in confidence.items()},
        noise_prior(1.0, np.array([0.01]), n, 1.0),
        np.float32(0.002),
        np.float32(10.0),
        np.float32(0.05),
    )


def batch(n=100, weight=1.0):
    X, y = curve(n)
    weights = np.broadcast_to(np.float32(weight), n)
    return Chunk(X.astype(np.float32), y[:, None].astype(np.float32), weights)


def test_gradients_are_finite_at_confidence_1e_9_in_float32():
    spec = Spec((1, 6, 5, 1))

    @jax.jit
    @jax.value_and_grad
    def j(params):
        noise = draw_noise(spec, params["layers"], 100, jax.random.key(0))
        return program.batch_objective(
            spec, params, NONE, batch(), noise, np.float32(1.0), problem()
        )[0]

    for extreme in (-30.0, 0.0, 20.0):
        run = state.start(spec, problem(), seed=0)
        for layer in run.params["layers"][:-1]:
            layer["local_mean"] = np.full_like(layer["local_mean"], extreme)
            layer["local_log_sd"] = np.full_like(layer["local_log_sd"], -40.0)
        value, slope = j(run.params)
        leaves = jax.tree.leaves(slope)
        assert np.isfinite(value)
        assert all(np.isfinite(leaf).all() and leaf.dtype == np.float32 for leaf in leaves)


def test_no_scale_gets_a_wider_posterior_than_its_prior():
    # one draw of a dead unit's scale with a standard deviation of e^3 destroys a network
    spec = Spec((1, 6, 5, 1))
    run = state.start(spec, problem(), seed=0)
    for layer in run.params["layers"]:
        layer |= {k: np.full_like(v, 3.0) for k, v in layer.items() if k.endswith("_log_sd")}
    order, keys, times = np.arange(100)[None, None], np.ones((1, 1, 2), np.uint32), np.ones((1, 1))
    params, *_ = program.scan_chunk(
        spec, data_mesh(100), run.params, run.moments, NONE, batch(),
        order, keys, times.astype(np.float32), problem(),
    )  # fmt: skip
    for layer in params["layers"]:
        widths = [v for k, v in layer.items() if k.endswith("_log_sd")]
        assert widths
        assert max(float(v.max()) for v in widths) == pytest.approx(np.log(np.pi))


def test_objective_is_the_loss_plus_every_block_times_its_confidence():
    spec = Spec((1, 4, 1))
    params = state.start(spec, problem(20), seed=1).params
    prob = problem(20, local=0.3)
    kl = jax.jit(program.block_kl, static_argnums=0)(spec, params, prob)
    noise = draw_noise(spec, params["layers"], 20, jax.random.key(3))
    now = noise, np.float32(0.5)
    objective = jax.jit(program.batch_objective, static_argnums=0)
    j, loss = objective(spec, params, NONE, batch(20), *now, prob)
    by_hand = (
        float(loss)
        + sum((0.3 if name == "local" else 1.0) * float(value) for name, value in kl.items()) / 20
    )
    assert float(j) == pytest.approx(by_hand, rel=1e-5)
    half = np.repeat([0.0, 2.0], 10)  # the second half of the rows alone
    _, weighted = objective(spec, params, NONE, batch(20, half.astype(np.float32)), *now, prob)
    outputs = forward(spec, NONE, batch(20).X, Drawn(spec, params["layers"], noise))
    losses = gaussian_loss(outputs, batch(20).y, params["noise"], prob.noise)
    assert float(weighted) == pytest.approx(float(losses[10:].mean()), rel=1e-5)


def test_one_compilation_a_shape(monkeypatch):
    traces = []
    original = program.batch_objective

    def counted(spec, params, *rest):
        traces.append(params["layers"][0]["mean"].shape)
        return original(spec, params, *rest)

    monkeypatch.setattr(program, "batch_objective", counted)
    X, y = curve()
    settings = {**SETTINGS, "hidden": (7,), "compact": False}
    SoUNetRegressor(**settings).fit(X, y)
    SoUNetRegressor(**{**settings, "confidence_local": 1.0, "learning_rate": 0.01}).fit(X, y)
    assert traces == [(2, 7)]


def test_same_seed_same_result_and_another_seed_another():
    X, y = curve()
    first, again, other = (
        SoUNetRegressor(**{**SETTINGS, "random_state": seed}).fit(X, y).predict(X)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3


def test_epochs_of_one_call_are_the_epochs_of_many(monkeypatch):
    X, y = curve()
    together = SoUNetRegressor(**SETTINGS).fit(X, y)
    monkeypatch.setattr(state, "BLOCK_STEPS", 1)
    apart = SoUNetRegressor(**SETTINGS).fit(X, y)
    np.testing.assert_allclose(
        together.history_["objective"], apart.history_["objective"], rtol=1e-4
    )
    np.testing.assert_array_equal(together.history_["epoch"], np.arange(1, 13))


@pytest.fixture
def interrupt(monkeypatch):
    """A function that lets the next trainings run that many epochs and then presses Ctrl-C."""
    original = training.scan_chunk
    monkeypatch.setattr(state, "BLOCK_STEPS", 1)

    def after(epochs):
        left = iter(range(epochs))

        def interrupted(*arguments):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return original(*arguments)

        monkeypatch.setattr(training, "scan_chunk", interrupted)

    return after


def test_ctrl_c_is_raised_and_the_last_epoch_is_kept(interrupt, tmp_path):
    X, y = curve()
    interrupt(5)
    net = SoUNetRegressor(**SETTINGS, checkpoint=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        net.fit(X, y)
    assert (net.n_iter_, net.finished_, len(net.history_)) == (5, False, 5)
    assert np.isfinite(net.predict(X)).all()
    interrupt(7)  # as many as are left: the checkpoint holds all five
    net.fit(X, y)
    interrupt(12)
    whole = SoUNetRegressor(**SETTINGS).fit(X, y)
    assert net.finished_
    np.testing.assert_array_equal(net.predict(X), whole.predict(X))


def test_ctrl_c_before_the_first_epoch_leaves_no_fit(interrupt):
    X, y = curve()
    interrupt(12)
    net = SoUNetRegressor(**SETTINGS).fit(X, y)
    interrupt(0)
    with pytest.raises(KeyboardInterrupt):
        net.fit(1000 * X, y)
    with pytest.raises(NotFittedError):
        net.predict(X)


def test_ctrl_c_ends_a_cross_validation(interrupt):
    interrupt(20)
    with pytest.raises(KeyboardInterrupt):
        cross_val_score(SoUNetRegressor(**SETTINGS), *curve(200), cv=2)


def test_a_diverging_training_stops_at_the_last_finite_epoch():
    X, y = curve()
    settings = {**SETTINGS, "learning_rate": 1e4, "compact": False}
    with pytest.warns(ConvergenceWarning, match="Lower learning_rate"):
        net = SoUNetRegressor(**settings).fit(X, y)
    assert not net.finished_


def test_a_checkpoint_of_another_training_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "BLOCK_STEPS", 1)
    X, y = curve()
    settings = {**SETTINGS, "epochs": 2, "checkpoint": tmp_path}
    SoUNetRegressor(**settings).fit(X, y)
    again = SoUNetRegressor(**settings).fit(X, y)  # finished: nothing is left to do
    assert again.n_iter_ == 2
    with pytest.raises(ValueError, match="other settings or other data"):
        SoUNetRegressor(**settings).fit(X, y + 1)
    with pytest.raises(ValueError, match="other settings or other data"):
        SoUNetRegressor(**{**settings, "epochs": 3}).fit(X, y)


DEEP = Spec((30, 6, 5, 1))


def half_dead_run():
    """Layer 1: units 1 and 3 know nothing; layer 2: no unit knows anything."""
    run = state.start(DEEP, problem(), seed=0)
    for layer, dead in zip(run.params["layers"], ([1, 3], range(5)), strict=False):
        layer["mean"][:, list(dead)] = 0.0
    return run


def plan(spec=DEEP, free_scales=True):
    stages = (state.PathStage(0, 10, 1.0),)
    schedule = state.Schedule(stages, 100, 100, True, data_mesh(100), free_scales=free_scales)
    return state.TrainingPlan(spec, problem(), schedule, None, None)


def test_compaction_cuts_parameters_and_moments_alike():
    run = training.compact(plan(), half_dead_run(), rows_left=0)
    assert [units.tolist()[:4] for units in run.kept.units] == [[0, 2, 4, 5], [0]]
    shapes = jax.tree.map(np.shape, run.params)
    assert shapes["layers"][1]["mean"] == (5, 1)  # never empty
    assert shapes == jax.tree.map(np.shape, run.moments.mu)
    assert shapes == jax.tree.map(np.shape, run.moments.nu)


def test_compaction_waits_until_it_pays():
    run = half_dead_run()
    assert training.compact(plan(), run, rows_left=1000) is run
    assert len(training.compact(plan(), run, rows_left=10**9).kept.units[0]) == 4


@pytest.mark.parametrize("weight", [3.0, 0.0])
def test_a_unit_that_knows_little_stays_where_the_predictions_need_it(weight):
    spec = Spec((1, 2, 1))
    run = state.start(spec, problem(), seed=0)
    first, last = run.params["layers"]
    first["mean"][:] = [[5.0, 1.0], [0.0, 0.0]]
    first["log_sd"][:] = [[-5.0, 0.0], [-5.0, 0.0]]
    known = np.log((1 + 1 + 0 + 1) / 2)  # two incoming weights, N(1, 1) and N(0, 1)
    assert training.information(first)[1] == pytest.approx(known, rel=1e-5)
    last["mean"][:, 0] = [0.0, weight, 0.0]
    X = np.linspace(-1, 1, 100, dtype=np.float32)[:, None]
    outputs = training.forward_weights(
        training.Network(spec, run.params["layers"], run.kept),
        training.mean_weights(run.params["layers"]),
        X,
    )
    rows = Chunk(X, outputs, np.ones(100, np.float32))
    run = run._replace(epoch=1, rows=[{}])
    handed = training.handed_over(plan(spec), run, 0, rows)
    assert handed.kept.units[0].tolist() == ([0, 1] if weight else [0])
    assert run.ends[0].kept is handed.kept


def test_scales_that_pay_for_their_place_die_only_by_the_papers_rule():
    run = half_dead_run()
    assert training.compact(plan(free_scales=False), run, rows_left=0) is run
    run.params["layers"][0]["local_mean"][2] = -15.0  # E[tau nu] = e^-7.5 < 1e-3
    run.params["layers"][0]["local_mean"][4] = -13.5  # e^-6.75 > 1e-3
    cut = training.compact(plan(free_scales=False), run, rows_left=0)
    assert cut.kept.units[0].tolist() == [0, 1, 3, 4, 5]

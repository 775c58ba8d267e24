"""The default: the confidence by held-out loss, calibrated probabilities, honest warnings."""

import copy
import pickle

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.datasets import load_wine, make_friedman1
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from soubayes import SoUNetClassifier, SoUNetRegressor
from soubayes.networks import choosing, path, state, training
from soubayes.networks.held_out import (
    TEMPERATURE_SD,
    LittleLearntWarning,
    fitted_temperature,
    tempered_probability,
)

SMALL = {"hidden": (8,), "epochs": 60, "batch_size": 40, "random_state": 0}


@pytest.fixture(scope="module")
def wine():
    return train_test_split(*load_wine(return_X_y=True), test_size=0.3, random_state=7)


@pytest.fixture(scope="module")
def net(wine):
    return SoUNetClassifier(**SMALL).fit(wine[0], wine[2])


def held_out_rows(net, X, y):
    """As the estimator holds them out: by its seed, as many of every label."""
    source = net._source(X, y, None)
    _, rows = net._hold_out(source, path.held_out_part(len(X)), net._rng_seed)
    return rows


def test_the_default_chooses_by_rows_that_it_holds_out(net, wine):
    X, y = wine[0], wine[2]
    rows = held_out_rows(net, X, y)
    assert len(rows.X) == round(0.3 * len(X))
    shares = np.bincount(rows.y) / len(rows.y) - np.bincount(y) / len(y)
    assert np.abs(shares).max() < 0.02
    other = [c for i, c in enumerate(net.path_["confidence"]) if i != net._chosen]
    for c in other:  # these have not seen the rows since
        losses = -net.at(c).log_density(rows.X, rows.y)
        at = net.path_["confidence"].tolist().index(c)
        assert net.path_["validation_loss"][at] == pytest.approx(losses.mean(), rel=1e-4)
    assert net.path_["validation_loss"].min() > -1e-9
    assert net.path_["chosen"].sum() == 1
    assert net.finished_


def test_one_target_as_a_column_is_held_out_as_a_vector_is():
    X, y = make_friedman1(60, 5, random_state=0)
    net = SoUNetRegressor()
    flat, column = (
        net._hold_out(net._source(X, target, None), 0.3, 0)[1] for target in (y, y[:, None])
    )
    np.testing.assert_array_equal(flat.X, column.X)
    spread = np.sort(np.searchsorted(np.sort(y), flat.y))
    assert np.diff(spread).max() <= 4  # a third of every quantile


def test_the_chosen_network_is_trained_on_all_rows_at_the_end(net, wine):
    """Its training is the one that the confidence, given as a number, makes on the same rows."""
    number = float(net.path_["confidence"].iloc[net._chosen])
    half = SoUNetClassifier(**SMALL | {"epochs": 30}, confidence_weights=number, learning_rate=0.01)
    alone = half.fit(wine[0], wine[2])
    first, second = (m.predict_proba(wine[1], mode="draws") for m in (net, alone))
    np.testing.assert_allclose(first, second, atol=1e-3)
    assert net.n_iter_ == 5 * 30
    assert net.value_ == pytest.approx(alone.value_, rel=1e-4)


def test_the_network_is_not_worse_than_logistic_regression(wine):
    X, X_new, y, y_new = wine
    scale = X.mean(axis=0), X.std(axis=0)
    Z, Z_new = ((x - scale[0]) / scale[1] for x in (X, X_new))
    net = SoUNetClassifier((20,), random_state=0, epochs=600).fit(X, y)
    rows = np.arange(len(y_new))
    linear = LogisticRegression().fit(Z, y).predict_proba(Z_new)[rows, y_new]
    assert -np.log(net.predict_proba(X_new)[rows, y_new]).mean() < -np.log(linear).mean() + 0.02


def test_few_rows_choose_the_more_regularised_of_two_that_they_cannot_tell_apart():
    rng = np.random.default_rng(0)
    low = rng.normal(1.0, 0.5, 400)
    near, far = low + rng.normal(0.01, 0.3, 400), low + rng.normal(0.1, 0.3, 400)
    near += 0.01 - (near - low).mean()
    ones = np.ones(400)
    assert path.best_confidence([low, near, far], [0.1, 0.3, 1.0], ones) == 1
    assert path.best_confidence([low, far], [0.1, 1.0], ones) == 0
    assert path.best_confidence([near, low], [0.03, 0.1], ones) == 1
    many = [np.repeat(x, 100) for x in (low, near)]  # the same differences, of 100 times the rows
    assert path.best_confidence(many, [0.1, 0.3], np.ones(40_000)) == 0


def test_a_second_look_holds_out_as_many_other_rows(net, wine):
    X, y = wine[0], wine[2]
    data = copy.copy(net)._take_in(X, y, None, None, None, None)
    other = choosing._other_rows(net, data)
    first, second, trained = (
        set(map(tuple, rows))
        for rows in (data.held_out.X, other.held_out.X, X[other.source.weight > 0])
    )
    assert len(first) == len(second) == round(0.3 * len(X))
    assert not first & second
    assert trained == set(map(tuple, X)) - second
    assert other.weight == len(trained)


def test_a_low_confidence_must_be_better_on_both_held_out_parts(net, wine, monkeypatch):
    data = copy.copy(net)._take_in(wine[0], wine[2], None, None, None, None)
    net = copy.copy(net)
    m, highest = len(data.held_out.X), len(net.path_) - 1
    worse = np.where(np.arange(m) % 2, 1.0, -0.5)  # 2 standard errors, of rows in doubt
    first, second, asked = [np.zeros(m), worse], [np.zeros(m), worse], []
    monkeypatch.setattr(choosing, "_losses", lambda *arguments: first)
    monkeypatch.setattr(choosing, "_losses_again", lambda *given: asked.append(given) or second)
    net._use(0)
    assert choosing.confirmed(net, data) == 0
    second = [np.zeros(m), -worse]
    assert choosing.confirmed(net, data) == highest
    assert asked[-1][2] == [net.path_["confidence"][0], 1.0]
    second = None  # diverged
    assert choosing.confirmed(net, data) == 0
    asked.clear()
    first = [np.zeros(m), np.ones(m) + 0.1 * worse]  # no doubt
    assert choosing.confirmed(net, data) == 0
    net._use(highest)
    assert choosing.confirmed(net, data) == highest
    assert not asked


def test_temperature_has_the_lowest_penalised_loss():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 80)
    codes = rng.integers(3, size=80)
    weight = rng.uniform(0.5, 2, 80)

    def loss(log_t):
        q = p ** np.exp(-log_t)
        q = q[np.arange(80), codes] / q.sum(axis=1)
        return -(weight @ np.log(q)) + (log_t / TEMPERATURE_SD) ** 2 / 2

    best = minimize_scalar(loss, bounds=(-2, 2), method="bounded").x
    assert fitted_temperature(p, codes, weight) == pytest.approx(np.exp(best), rel=1e-3)
    np.testing.assert_allclose(tempered_probability(p, 1.0), p)
    assert fitted_temperature(p[:0], codes[:0], weight[:0]) == pytest.approx(1.0, abs=1e-3)


def test_a_network_that_learns_nothing_says_so():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)
    with pytest.warns(LittleLearntWarning, match="held-out rows .* a constant"):
        SoUNetRegressor((8,), confidence_weights=1e-6, epochs=400, random_state=0).fit(
            X[:100], y[:100], X_val=X[100:], y_val=y[100:]
        )
    with pytest.warns(LittleLearntWarning, match="hidden layer 1 kept one unit"):
        SoUNetRegressor((8,), confidence_weights=3.0, skip=False, epochs=400, random_state=0).fit(
            X, y
        )
    with pytest.warns(LittleLearntWarning, match="every hidden layer kept one unit"):
        SoUNetRegressor((8,), confidence_weights=3.0, skip=True, epochs=400, random_state=0).fit(
            X, y
        )


def test_a_network_that_is_worse_than_a_linear_model_says_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 20))
    y = X @ rng.normal(size=20) + 0.1 * rng.normal(size=300)
    settings = {"skip": False, "epochs": 40, "confidence_weights": 0.1, "random_state": 0}
    for prune in (False, True):  # a setting that is on already is not recommended
        with pytest.warns(LittleLearntWarning, match="a linear model") as said:
            SoUNetRegressor((8,), prune_inputs=prune, **settings, validation_fraction=0.3).fit(X, y)
        assert ("prune_inputs=True" in str(said[0].message)) != prune


@pytest.mark.slow
def test_small_wide_tables_drop_columns_by_themselves():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 60))
    y = X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=120)
    net = SoUNetRegressor((8,), random_state=0).fit(X, y)
    assert net._prunes
    assert {0, 1} <= set(net.selected_inputs_)
    assert len(net.selected_inputs_) < 60
    tall = SoUNetRegressor((8,), epochs=1, confidence_weights=1.0).fit(X[:, :20], y)
    assert not tall._prunes
    assert tall._skips


def test_early_stopping_keeps_the_best_epoch():
    X, y = make_friedman1(150, 5, noise=1.0, random_state=1)
    net = SoUNetRegressor(
        (30,), confidence_weights=1e-4, early_stopping=True, epochs=300, random_state=0
    ).fit(X, y)
    scores = net.history_["validation_rmse"]
    assert net.n_iter_ == len(scores) < 300
    assert np.argmin(scores) == len(scores) - 1
    with pytest.raises(ValueError, match="only the training of one confidence stops early"):
        SoUNetRegressor(early_stopping=True).fit(X, y)


def test_warm_start_goes_on_from_the_last_network():
    X, y = make_friedman1(100, 5, noise=1.0, random_state=1)
    settings = {**SMALL, "confidence_weights": 0.1, "epochs": 30}
    net = SoUNetRegressor(**settings, warm_start=True).fit(X, y)
    before = net.expected_loss_
    again = net.set_params(epochs=60).fit(X, y)
    assert again.expected_loss_ < before
    cold = SoUNetRegressor(**settings).fit(X, y)
    assert net.history_["loss"].iloc[0] < cold.history_["loss"].iloc[0]
    with pytest.raises(ValueError, match="warm_start=True, but the network"):
        net.set_params(hidden=(3, 3)).fit(X, y)


def test_a_finished_checkpoint_is_trained_further(tmp_path, monkeypatch):
    X, y = make_friedman1(100, 5, noise=1.0, random_state=1)
    settings = {**SMALL, "confidence_weights": 0.1, "epochs": 30, "random_state": 0}
    in_memory = SoUNetRegressor(**settings, warm_start=True).fit(X, y)
    first = in_memory.predict(X)
    more = in_memory.set_params(epochs=10).fit(X, y).predict(X)
    SoUNetRegressor(**settings, checkpoint=tmp_path).fit(X, y)
    settings |= {"checkpoint": tmp_path, "warm_start": True, "epochs": 10}
    monkeypatch.setattr(state, "BLOCK_STEPS", 1)  # one epoch a call
    original, calls = training.scan_chunk, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(training, "scan_chunk", dies)
    killed = SoUNetRegressor(**settings)
    with pytest.raises(KeyboardInterrupt):
        killed.fit(X, y)
    monkeypatch.setattr(training, "scan_chunk", original)
    other = clone(killed).fit(X, y)  # another process: the killed call is resumed
    assert other.n_iter_ == 10
    np.testing.assert_allclose(other.predict(X), more, rtol=1e-4)
    third = clone(killed).fit(X, y).predict(X)  # and on from there
    np.testing.assert_allclose(third, in_memory.fit(X, y).predict(X), rtol=1e-4)
    assert len({round(float(p[0]), 4) for p in (first, more, third)}) == 3


@pytest.mark.slow
def test_a_warm_start_keeps_what_the_first_fit_decided(net, wine, tmp_path):
    X, y = wine[0], wine[2]
    net.save(tmp_path / "net")
    again = SoUNetClassifier.load(tmp_path / "net")
    before, temperature = again.path_["confidence"][again.path_["chosen"]].item(), net.temperature_
    again.set_params(warm_start=True, epochs=2, random_state=0).fit(X, y)
    assert again.path_["confidence"].tolist() == [before]
    assert again.temperature_ == temperature
    assert again.expected_loss_ / len(X) < 1.0
    again.set_params(early_stopping=True, confidence_weights=0.1).fit(X, y)
    assert "validation_loss" in again.history_


def test_class_weight_is_a_weight_of_rows(wine):
    X, y = wine[0], wine[2]
    fixed = {**SMALL, "confidence_weights": 1.0, "epochs": 20}
    weights = {0: 1.0, 1: 2.0, 2: 0.5}
    by_class = SoUNetClassifier(**fixed, class_weight=weights).fit(X, y)
    by_row = SoUNetClassifier(**fixed).fit(X, y, np.array([weights[label] for label in y]))
    np.testing.assert_allclose(by_class.predict_proba(X), by_row.predict_proba(X), atol=1e-6)
    balanced = SoUNetClassifier(**fixed, class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(balanced._class_shares, 1 / 3)


def test_draws_are_kept_for_the_next_call_and_not_pickled(net, wine):
    first = net.predict_proba(wine[1])
    kept = net._kept_draws[100]
    # float32: BLAS adds up the products of one row in another order than those of many
    np.testing.assert_allclose(net.predict_proba(wine[1][:1]), first[:1], rtol=1e-6)
    assert net._kept_draws[100] is kept
    again = pickle.loads(pickle.dumps(net))
    assert "_kept_draws" not in again.__dict__
    np.testing.assert_array_equal(again.predict_proba(wine[1]), first)


def test_an_interval_holds_its_share_of_the_predictive_draws():
    X, y = make_friedman1(100, 5, noise=1.0, random_state=1)
    net = SoUNetRegressor(**SMALL, confidence_weights=0.3).fit(X, np.column_stack([y, -y]))
    low, high = net.predict_interval(X[:5], 0.8)
    functions = net.sample_functions(X[:5], 100)
    noise = net.uncertainty(X[:5]).aleatoric
    rng = np.random.default_rng(0)
    new = functions[:, None] + noise * rng.normal(size=(100, 400, 5, 2))
    inside = ((new >= low) & (new <= high)).mean(axis=(0, 1))
    np.testing.assert_allclose(inside, 0.8, atol=0.02)


def test_in_a_wide_table_the_linear_part_must_show_that_it_predicts():
    """As many columns as rows fit any targets; there the skip connection is kept out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 60))
    bent, straight = X[:, 0] * X[:, 1], X @ rng.normal(size=60)
    for confidence in ("auto", 1.0):  # with rows held out to choose by, and without
        net = SoUNetRegressor((5,), epochs=2, confidence_weights=confidence)
        for y, skips in ((bent, False), (straight, True)):
            net._take_in(X, y, None, None, None, None)
            assert net._skips is skips
            assert net._prunes
    net._take_in(X[:, :10], bent, None, None, None, None)  # not wide
    assert net._skips

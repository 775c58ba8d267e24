"""Networks trained together are networks trained alone; mixtures, stacking and the ensemble."""

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LinearRegression

from soubayes import SoUNetClassifier, SoUNetEnsemble, SoUNetRegressor
from soubayes.networks import state, together
from soubayes.networks.held_out import fitted_temperature, tempered_probability
from soubayes.networks.mixtures import FACTORS, NormalMixture, stacking_weights
from soubayes.networks.storage import read, write
from soubayes.networks.together import fit_together

SETTINGS = {"hidden": (6,), "epochs": 12, "batch_size": 20, "learning_rate": 0.02, "skip": False}


def table(n=80, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + np.abs(X[:, 1]) + 0.3 * rng.normal(size=n)


def test_networks_trained_together_are_networks_trained_alone():
    X, y = table(82)
    folds = np.arange(80).reshape(4, 20)  # sizes of the ensemble below, whose program is compiled
    rest = [np.setdiff1d(np.arange(82), folds[[j, j - 3]]) for j in range(4)]

    def nets():
        return [
            [SoUNetRegressor(**SETTINGS, confidence_weights=c, random_state=i) for c in (0.1, 1.0)]
            for i in range(4)
        ]

    together = nets()
    fit_together(together, [(X[rows], y[rows], None) for rows in rest])
    for i, j in ((0, 0), (3, 1)):
        net, alone = together[i][j], nets()[i][j].fit(X[rest[i]], y[rest[i]])
        np.testing.assert_allclose(net.predict(X), alone.predict(X), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(
            net.history_["objective"], alone.history_["objective"], rtol=1e-4
        )
        assert net.architecture_ == alone.architecture_
        assert net.finished_


def test_a_diverging_ensemble_is_an_error():
    net = SoUNetRegressor(**{**SETTINGS, "learning_rate": 1e4})
    with pytest.raises(FloatingPointError, match="lower learning_rate"):
        SoUNetEnsemble(net, confidences=(0.1, 1.0), folds=4, random_state=0).fit(*table(82))


@pytest.fixture(scope="module")
def ensemble():
    net = SoUNetRegressor(**SETTINGS)
    return SoUNetEnsemble(net, confidences=(0.1, 1.0), folds=4, random_state=0).fit(*table(82))


def moments(nets, X):
    """Mean, variance within and variance between networks, of 100 draws of each."""
    draws = np.array([net.sample_functions(X, 100) for net in nets])
    noise = np.mean([net.uncertainty(X).aleatoric ** 2 for net in nets], axis=0)
    centres = draws.mean(axis=1)
    between = ((centres - centres.mean(axis=0)) ** 2).sum(axis=0) / (len(nets) - 1)
    return centres.mean(axis=0), noise + draws.var(axis=1).mean(axis=0), between


def test_every_row_is_held_out_by_the_networks_that_weigh_it(ensemble):
    """The weights again, from the networks and the folds that the seed draws."""
    X, y = table(82)
    order = np.random.RandomState(0).permutation(82)[:80].reshape(4, 20)
    pairs = [(0, 3), (0, 1), (1, 2), (2, 3)]  # network j has not seen folds j and j + 1
    densities = []
    for k in range(2):
        for factor in FACTORS:
            parts = []
            for fold, pair in zip(order, pairs, strict=True):
                mean, within, between = moments([ensemble.networks_[j][k] for j in pair], X[fold])
                parts.append(stats.norm.pdf(y[fold], mean, np.sqrt(factor * (within + between))))
            densities.append(np.concatenate(parts))
    weights = stacking_weights(np.log(densities), np.ones(80)).reshape(2, -1)
    np.testing.assert_allclose(ensemble.noise_weights_, weights, atol=5e-3)
    np.testing.assert_allclose(ensemble.path_["weight"], ensemble.noise_weights_.sum(axis=1))
    assert ensemble.noise_weights_.sum() == pytest.approx(1.0)
    assert ensemble.path_["confidence"].tolist() == [0.1, 1.0]


def test_networks_have_not_seen_two_folds(ensemble):
    """A network trained on the rows that are left ends where the ensemble's ended."""
    X, y = table(82)
    order = np.random.RandomState(0).permutation(82)[:80].reshape(4, 20)
    for j, other in ((0, 1), (3, 0)):
        rest = np.setdiff1d(np.arange(82), order[[j, other]])
        net = clone(ensemble.networks_[j][1]).fit(X[rest], y[rest])
        found = ensemble.networks_[j][1].predict(X)
        np.testing.assert_allclose(found, net.predict(X), rtol=1e-3, atol=1e-4)


def test_predictions_are_those_of_the_mixture(ensemble):
    X, y = table(10, seed=1)
    mean, sd = ensemble.predict(X, return_std=True)
    rng = np.random.default_rng(0)
    draws = []
    for k, weights in enumerate(ensemble.noise_weights_):
        centre, within, between = moments([path[k] for path in ensemble.networks_], X)
        for weight, factor in zip(weights, FACTORS, strict=True):
            variance = factor * (within + between)
            variance = np.maximum(variance - (1 / 2 - 1 / 4) * between, variance / 2)
            noise = rng.normal(size=(round(20_000 * weight), 10))
            draws.append(centre + np.sqrt(variance) * noise)
    draws = np.concatenate(draws)
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * error).all()
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=0.03)
    low, high = ensemble.predict_interval(X, coverage=0.8)
    inside = ((low <= draws) & (draws <= high)).mean(axis=0)
    np.testing.assert_allclose(inside, 0.8, atol=0.02)
    assert ensemble.log_density(X, y).shape == (10,)
    assert ensemble.score(*table(60, seed=2)) > 0.5


def test_density_and_quantiles_of_a_mixture():
    mixture = NormalMixture(
        np.array([[0.0], [3.0]]), np.array([[1.0], [4.0]]), np.array([0.25, 0.75])
    )
    y = np.array([1.3])
    density = 0.25 * stats.norm.pdf(y, 0, 1) + 0.75 * stats.norm.pdf(y, 3, 2)
    np.testing.assert_allclose(mixture.log_density(y), np.log(density))
    q = mixture.quantile(0.3)
    np.testing.assert_allclose(0.25 * stats.norm.cdf(q) + 0.75 * stats.norm.cdf(q, 3, 2), 0.3)


def test_stacking_maximises_the_log_score():
    rng = np.random.default_rng(0)
    log_density = rng.normal(size=(3, 40))
    counted = rng.integers(1, 4, size=40).astype(float)

    def loss(z):
        weights = np.exp(z) / np.exp(z).sum()
        return -(counted @ np.log(weights @ np.exp(log_density)))

    best = optimize.minimize(loss, np.zeros(3)).x
    np.testing.assert_allclose(
        stacking_weights(log_density, counted), np.exp(best) / np.exp(best).sum(), atol=1e-3
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"folds": 2}, "folds is 2"),
        ({"confidences": (0.0,)}, "'weights' is 0"),
        ({"confidences": ()}, "confidences is empty"),
    ],
)
def test_wrong_settings_are_named(settings, said):
    with pytest.raises(ValueError, match=said):
        SoUNetEnsemble(SoUNetRegressor(**SETTINGS), **settings).fit(*table())
    with pytest.raises(TypeError, match="estimator is a LinearRegression"):
        SoUNetEnsemble(LinearRegression()).fit(*table())
    with pytest.raises(ValueError, match="coverage is 2"):
        SoUNetEnsemble().predict_interval([[1.0]], coverage=2)


def labels(n=82, seed=0):
    X, y = table(n, seed)
    names = np.array(["ash", "oak", "yew"])[np.digitize(y, [0.3, 1.2])]
    names[0] = "elm"  # the only one
    return X, names


@pytest.fixture(scope="module")
def classes():
    net = SoUNetClassifier(**SETTINGS | {"epochs": 40})
    ensemble = SoUNetEnsemble(net, confidences=(0.1, 1.0), folds=4, random_state=0)
    return ensemble.fit(*labels())


def test_an_ensemble_for_classes_is_weighed_and_calibrated_by_rows_left_out(classes):
    X, y = labels()
    assert classes.classes_.tolist() == ["ash", "elm", "oak", "yew"]
    codes = np.searchsorted(classes.classes_, y)
    parts = classes._deal(codes, np.random.RandomState(0))
    assert 0 not in parts  # the only row of its class is in every training set
    shares = [np.bincount(codes[part], minlength=4) for part in parts]
    assert np.ptp(shares, axis=0).max() <= 1
    p, seen = np.zeros((2, *parts.shape, 4)), codes[parts.ravel()]
    for j, part in enumerate(parts):
        for k in range(2):
            nets = classes.networks_[j - 1][k], classes.networks_[j][k]
            p[k, j] = np.mean([net.predict_proba(X[part], mode="draws") for net in nets], axis=0)
    p = p.reshape(2, -1, 4)
    truth = p[:, np.arange(len(seen)), seen]
    weights = stacking_weights(np.log(truth), np.ones(len(seen)))
    np.testing.assert_allclose(classes.path_["weight"], weights, atol=2e-3)
    mixed = np.tensordot(classes.path_["weight"].to_numpy(), p, 1)
    wanted = fitted_temperature(mixed, seen, np.ones(len(seen)))
    assert classes.temperature_ == pytest.approx(wanted, rel=1e-6)
    new = labels(30, seed=1)[0]
    members = [
        np.mean([nets[k].predict_proba(new, mode="draws") for nets in classes.networks_], axis=0)
        for k in range(2)
    ]
    mixed = np.tensordot(classes.path_["weight"].to_numpy(), members, 1)
    expected = tempered_probability(mixed, classes.temperature_)
    np.testing.assert_allclose(classes.predict_proba(new), expected, rtol=1e-9)
    assert classes.score(*labels(60, seed=2)) > 0.5
    assert np.isneginf(classes.log_density(new[:1], ["never seen"]))
    assert is_classifier(classes)
    assert not hasattr(classes, "predict_interval")


@pytest.mark.slow
def test_layouts_are_weighed_as_confidences_are():
    settings = {"confidences": (0.3,), "folds": 3, "hidden": ((4,), (4, 3)), "random_state": 0}
    ensemble = SoUNetEnsemble(SoUNetRegressor(**SETTINGS), **settings).fit(*table(82))
    assert ensemble.path_["hidden"].tolist() == ["4", "4–3"]
    assert [len(net._network.layers) for net in ensemble.networks_[0]] == [2, 3]
    assert np.isnan(ensemble.path_["units_2"]).tolist() == [True, False]
    assert ensemble.path_["weight"].sum() == pytest.approx(1.0)


def test_several_outputs_share_the_weights():
    X, y = table(82)
    net, settings = SoUNetRegressor(**SETTINGS), {"confidences": (0.1, 1.0), "folds": 4}
    both = SoUNetEnsemble(net, **settings, random_state=0).fit(X, np.column_stack([y, 50 - 9 * y]))
    mean, sd = both.predict(X[:5], return_std=True)
    low, high = both.predict_interval(X[:5])
    assert mean.shape == sd.shape == low.shape == high.shape == (5, 2)
    assert ((low < mean) & (mean < high)).all()
    assert both.log_density(X, np.column_stack([y, 50 - 9 * y])).shape == (82,)


def test_files_of_an_ensemble(ensemble, classes, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X = table(20, seed=1)[0]
    for model in (ensemble, classes):
        model.save(tmp_path / "model")
        again = SoUNetEnsemble.load(tmp_path / "model")
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert {k: v for k, v in again.get_params(deep=False).items() if k != "estimator"} == {
            k: v for k, v in model.get_params(deep=False).items() if k != "estimator"
        }
        again.export_onnx(tmp_path / "model.onnx", mode="draws")
        session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
        found = session.run(None, {"X": X.astype(np.float32)})
        expected = model.predict_proba(X) if model is classes else model.predict(X)[:, None]
        np.testing.assert_allclose(found[0], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"use SoUNetEnsemble\.load"):
        SoUNetClassifier.load(tmp_path / "model")
    tree, info = read(tmp_path / "model")
    for odd in ({"folds": 3}, {"temperature": -1.0}, {"networks": []}, {"labels": None}):
        write(tmp_path / "odd", tree, {**info, **odd})
        with pytest.raises(ValueError, match="does not hold a network"):
            SoUNetEnsemble.load(tmp_path / "odd")


@pytest.mark.parametrize("seconds", [0.0, 1e9])  # after every call, or on Ctrl-C alone
def test_progress_and_checkpoints_of_an_ensemble(ensemble, tmp_path, monkeypatch, capsys, seconds):
    monkeypatch.setattr(together, "CHECKPOINT_SECONDS", seconds)
    monkeypatch.setattr(state, "BLOCK_STEPS", 6)  # three epochs a call
    settings = {"confidences": (0.1, 1.0), "folds": 4, "random_state": 0}
    net = SoUNetRegressor(**SETTINGS, checkpoint=tmp_path)
    original, calls = together.scan_together, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(together, "scan_together", dies)
    with pytest.raises(KeyboardInterrupt):
        SoUNetEnsemble(net, **settings, verbose=1).fit(*table(82))
    assert "epoch 3/12" in capsys.readouterr().err
    again = SoUNetEnsemble(net, **settings).fit(*table(82))
    assert len(calls) == 5  # of four calls two were done
    X = table(10, seed=1)[0]
    np.testing.assert_allclose(again.predict(X), ensemble.predict(X), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="other settings or other data"):
        SoUNetEnsemble(net, **settings | {"confidences": (0.2, 1.0)}).fit(*table(82))

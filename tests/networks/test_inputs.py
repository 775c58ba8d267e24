"""What people give to a network: few rows, constant columns, odd units and types, tables."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from soubayes import SoUNetClassifier, SoUNetEnsemble, SoUNetRegressor
from soubayes.data.encoding import TableEncoder

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X[:, 0] + 0.1 * RNG.normal(size=60)
SHORT = {"hidden": (5,), "epochs": 10}


@pytest.mark.parametrize("n", [2, 9])
def test_with_few_rows_nothing_is_held_out(n):
    net = SoUNetRegressor(**SHORT).fit(X[:n], Y[:n])
    assert net.path_["confidence"].tolist() == [1.0]
    assert np.isfinite(net.predict(X)).all()
    net = SoUNetClassifier(**SHORT).fit(X[:n], np.arange(n) % 2)
    assert net.path_["confidence"].tolist() == [1.0]
    assert net.finished_


def test_ten_rows_are_enough_to_choose_and_to_look_twice():
    assert len(SoUNetRegressor(**SHORT).fit(X[:10], Y[:10]).path_) == 4


@pytest.mark.parametrize("unit", [1e-200, 1e-3, 1e200])
def test_predictions_do_not_depend_on_the_unit_of_the_columns(unit):
    net, other = (SoUNetRegressor(**SHORT).fit(Z, Y) for Z in (X, X * unit))
    np.testing.assert_allclose(other.predict(X * unit), net.predict(X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("unit", [5e-8, 1.0, -3e8])
def test_a_constant_target_has_a_unit(unit):
    """Its size: 5e-8 in all rows was predicted as 0.08 with a standard deviation of 0.8."""
    mean, sd = SoUNetRegressor(**SHORT).fit(X, np.full(60, 1.0)).predict(X, return_std=True)
    net = SoUNetRegressor(**SHORT).fit(X, np.full(60, unit))
    other, other_sd = net.predict(X, return_std=True)
    np.testing.assert_allclose((other - unit) / abs(unit), mean - 1.0, atol=1e-6)
    np.testing.assert_allclose(other_sd, sd * abs(unit), rtol=1e-6)


def test_a_constant_column_has_a_unit():
    """New rows with another value of it are predicted alike in any unit."""
    constant, new = (np.column_stack([X, np.full(60, size)]) for size in (2.0, 2.1))
    units = np.array([1.0, 1.0, 1.0, 1e-6])
    net, other = (SoUNetRegressor(**SHORT).fit(constant * u, Y) for u in (1.0, units))
    np.testing.assert_allclose(other.predict(new * units), net.predict(new), rtol=1e-3, atol=1e-3)


def test_a_table_of_numbers_warns_of_nothing():
    """Warnings are errors here: scores inside of `fit` must not ask for the names of columns."""
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    labels = np.where(Y > 0, "yes", "no")
    net = SoUNetClassifier(**SHORT).fit(table, labels, X_val=table[:10], y_val=labels[:10])
    probable = net.classes_[net.predict_proba(table).argmax(axis=1)]
    assert net.predict(table).tolist() == probable.tolist()
    SoUNetRegressor(**SHORT).fit(table, Y).predict(table)


@pytest.mark.parametrize("kind", [SoUNetRegressor, SoUNetEnsemble])
def test_text_in_a_table_is_named_with_what_to_do(kind):
    table = pd.DataFrame({"size": X[:, 0], "colour": np.where(X[:, 1] > 0, "red", "blue")})
    with pytest.raises(ValueError, match=r"text in the column 'colour'.*TableEncoder"):
        kind().fit(table, Y)


def test_an_ensemble_of_classes_after_an_encoder(tmp_path):
    table = pd.DataFrame({"size": X[:, 0], "colour": np.where(X[:, 1] > 0, "red", "blue")})
    table.loc[3, "size"] = np.nan
    ensemble = SoUNetEnsemble(SoUNetClassifier(**SHORT), folds=3, confidences=(0.1, 1.0))
    model = make_pipeline(TableEncoder(), ensemble).fit(table, np.where(Y > 0, "yes", "no"))
    rows = model[0].transform(table)
    file = tmp_path / "ensemble.safetensors"
    model[-1].save(file)
    loaded = SoUNetEnsemble.load(file)
    assert repr(loaded) == repr(model[-1])
    np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(table))


def test_one_class_is_named():
    net = SoUNetClassifier(**SHORT)
    for model in (net, SoUNetEnsemble(net)):
        with pytest.raises(ValueError, match="y has one class, 'a', but"):
            model.fit(X, ["a"] * 60)

"""Ctrl-C ends a fit as it ends any other Python code: by `KeyboardInterrupt`."""

import _thread
import threading

import numpy as np
import pytest
from sklearn.model_selection import cross_val_score

from soubayes import SoULinearRegression, SoULogisticRegression, SoUNormalMeans

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 8))
WIDE = RNG.normal(size=(40, 320))
TARGET = X[:, 0] - X[:, 1] + 0.3 * RNG.normal(size=60)
CLASSES = np.digitize(TARGET, [-0.7, 0.7])

FITS = {
    "path": (SoULinearRegression(choice="path", verbose=1), X, TARGET),
    "path at a number": (SoULinearRegression(confidence_coef=4.0, verbose=1), X, TARGET),
    "wide path": (SoULinearRegression(choice="path", verbose=1), WIDE, WIDE[:, 0]),
    "sweeps": (SoULinearRegression(choice="path", solver="coordinate", verbose=1), X, TARGET),
    "means": (SoUNormalMeans(verbose=1), X, None),
    "newton": (SoULogisticRegression(confidence_coef=1.0, verbose=1), X, TARGET > 0),
    "newton path": (
        SoULogisticRegression(choice="path", confidence_coef="auto", verbose=1),
        X,
        TARGET > 0,
    ),
    "classes": (SoULogisticRegression(confidence_coef=1.0, verbose=1), X, CLASSES),
    "wide newton": (SoULogisticRegression(confidence_coef=1.0, verbose=1), WIDE, WIDE[:, 0] > 0),
    "logistic sweeps": (
        SoULogisticRegression(
            confidence_coef=1.0,
            confidence_local=1.0,
            solver="coordinate",
            bound="jaakkola",
            verbose=1,
        ),
        X,
        TARGET > 0,
    ),
}


@pytest.mark.parametrize("when", [1, 2])
@pytest.mark.parametrize("name", FITS)
def test_every_solver_raises_at_every_step(name, when, monkeypatch):
    """The line that ``verbose`` prints at every step is where the interrupt arrives."""
    estimator, features, target = FITS[name]
    lines = []

    def interrupt(*args, **options):
        lines.append(args)
        if len(lines) == when:
            raise KeyboardInterrupt

    monkeypatch.setattr("builtins.print", interrupt)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(features, target)
    assert len(lines) == when


def test_cross_validation_raises_and_returns_no_scores(monkeypatch):
    monkeypatch.setattr("builtins.print", lambda *args, **options: _raise())
    with pytest.raises(KeyboardInterrupt):
        cross_val_score(SoULinearRegression(choice="path", verbose=1), X, TARGET, cv=3)


def _raise():
    raise KeyboardInterrupt


def test_a_signal_in_the_middle_of_a_step():
    """A long fit and the interrupt of a terminal, whatever the solver is doing when it comes."""
    model = SoULinearRegression(choice="path", solver="coordinate", max_iter=10**5, tol=1e-300)
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, TARGET)
    timer.join()
    assert not hasattr(model, "coef_")

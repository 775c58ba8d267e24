"""What held-out rows say: the temperature of probabilities, and whether anything was learnt."""

import warnings
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

from soubayes.networks.feeding import ArraySource
from soubayes.networks.path import PAIRED, mean_and_error

TEMPERATURE_SD = 0.3  # prior standard deviation of log T: a few dozen rows should not move it far
WIDEST_LOG_TEMPERATURE = 2.0
CLEAR = 2.0  # standard errors that the loss of a network lies above that of a linear model
FEWEST_ROWS = 20  # held-out rows that can tell whether anything was learnt
LINEAR_HELD_OUT = 0.3  # part of the rows that a linear model is tried on where none is held out
LINEAR_NUMBERS = 5e6  # rows times columns times outputs up to which a linear model is fitted beside


def tempered_probability(probability: np.ndarray, temperature: float) -> np.ndarray:
    """p^(1/T), normalised.

    >>> tempered_probability(np.array([[0.8, 0.2]]), 0.5).round(3)
    array([[0.941, 0.059]])
    """
    logs = np.log(np.maximum(probability, 1e-30)) / temperature
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def fitted_temperature(probability: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> float:
    """The T of the lowest log loss of rows, with a normal prior on log T.

    Without a prior a few rows that are all predicted well would give T = 0.

    >>> p = np.repeat([[0.9, 0.1]], 1000, axis=0)  # of which 70 % have the first label
    >>> T = fitted_temperature(p, np.arange(1000) % 10 // 7, np.ones(1000))
    >>> round(float(tempered_probability(p, T)[0, 0]), 2)
    0.71
    """
    rows = np.arange(len(codes))

    def loss(log_temperature: float) -> float:
        p = tempered_probability(probability, np.exp(log_temperature))[rows, codes]
        prior = (log_temperature / TEMPERATURE_SD) ** 2 / 2
        return float(-(weight * np.log(np.maximum(p, 1e-30))).sum() + prior)

    ends = (-WIDEST_LOG_TEMPERATURE, WIDEST_LOG_TEMPERATURE)
    return float(np.exp(minimize_scalar(loss, bounds=ends, method="bounded").x))


class LittleLearntWarning(UserWarning):
    """A network predicts no better than a constant or a linear model, or lost its units."""


def complaints(net: Any, data: Any) -> list[str]:
    """What to tell of a network that learnt little, and what to try; nothing of others."""
    said = []
    units = net.architecture_.final[1:-1]
    if net.compact and net._free_scales and 1 in units:
        if not net._skips:
            said.append(
                f"hidden layer {units.index(1) + 1} kept one unit: at this confidence the network "
                "is almost a function of one number. A lower confidence_weights keeps more units."
            )
        elif all(count == 1 for count in units):
            said.append(
                "every hidden layer kept one unit: at this confidence the network is a linear "
                "model plus a function of one number. A lower confidence_weights keeps more units; "
                "if the held-out loss does not fall, a linear model is enough."
            )
    if data.held_out is None or len(data.held_out.X) < FEWEST_ROWS:
        return said
    rows = _known(net, data.held_out)
    if len(rows.X) < FEWEST_ROWS:
        return said
    own = net._losses(rows.X, rows.y)
    for name, losses in (
        ("a constant", net._constant_losses(rows)),
        ("a linear model", linear_losses(net, data, rows)),
    ):
        if losses is None:
            continue
        (gap,), (error,) = mean_and_error([own - losses], rows.weight)
        if gap > (0 if name == "a constant" else CLEAR * error):
            mine, theirs = (float(np.average(x, weights=rows.weight)) for x in (own, losses))
            prune = "" if net._prunes else "prune_inputs=True where few columns matter, "
            said.append(
                f"on {len(rows.X)} held-out rows the loss of the network is {mine:.3g} and that of "
                f"{name} {theirs:.3g}: it learnt nothing beyond it. Try more rows, {prune}"
                "another confidence_weights, or the sparse estimators."
            )
            break
    return said


def linear_predicts(net: Any, data: Any) -> bool:
    """Whether a linear model of the training rows beats a constant on rows that are held out.

    Where no rows are held out, a part of the rows takes their place for this one question.
    """
    if data.held_out is None:
        if not isinstance(data.source, ArraySource) or data.rows < FEWEST_ROWS:
            return False
        rest, rows = net._hold_out(data.source, LINEAR_HELD_OUT, data.seed)
        data = data._replace(source=rest, held_out=rows)
    rows = _known(net, data.held_out)
    losses = linear_losses(net, data, rows, calibrated=True) if len(rows.X) else None
    if losses is None:
        return False
    (gap,), (error,) = mean_and_error([losses - net._constant_losses(rows)], rows.weight)
    return bool(gap < -PAIRED * error)


def _known(net: Any, rows: Any) -> Any:
    """The rows without labels that were never seen."""
    seen = net._encode_y(rows.y) >= 0 if net._CLASSES else slice(None)
    return type(rows)(*(part[seen] for part in rows))


def linear_losses(net: Any, data: Any, rows: Any, *, calibrated: bool = False) -> np.ndarray | None:
    """Losses of a linear model of the same training rows; None where it would take long.

    The variance of a regression is that of the training rows, as in a network, or `calibrated`:
    with many columns the residuals of the training rows say nothing about other rows.
    """
    source = data.source
    if not isinstance(source, ArraySource) or source.streamed or not len(net._x_scaler.shift.shape):
        return None
    if data.rows * net.n_features_in_ * net._n_outputs > LINEAR_NUMBERS:
        return None
    X, y, weight = source[slice(None) if source.rows is None else source.rows]
    X, target = net._x_scaler(X), net._encode_y(y)
    new = net._x_scaler(rows.X)
    if net._CLASSES:
        with warnings.catch_warnings():  # close to the end is good enough for a comparison
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(max_iter=200).fit(X, target, weight)
        p = np.full((len(new), net._n_outputs), 1e-12)
        p[:, model.classes_] = model.predict_proba(new)
        return -np.log(p[np.arange(len(new)), net._encode_y(rows.y)])
    ridge = Ridge().fit(X, target, weight)
    fitted, predicted = (ridge.predict(x).reshape(len(x), -1) for x in (X, new))
    squares = (predicted - net._encode_y(rows.y)) ** 2
    errors = (squares, rows.weight) if calibrated else ((fitted - target) ** 2, weight)
    variance = np.maximum(np.average(errors[0], axis=0, weights=errors[1]), 1e-12)
    return net._log_scale() + (squares / variance + np.log(2 * np.pi * variance)).sum(axis=1) / 2

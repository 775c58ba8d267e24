"""Networks of several confidences, averaged with weights and noise by rows that they never saw."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from soubayes._types import Estimator, State
from soubayes.confidence import check_gamma
from soubayes.data.streams import check_masks
from soubayes.networks.base import fit_together
from soubayes.networks.estimators import SoUNetRegressor
from soubayes.networks.feeding import check_weight, minibatches
from soubayes.networks.mixtures import NormalMixture, interval_tails, stacking_weights
from soubayes.networks.path import CONFIDENCES, ROUND

BATCH, EPOCHS, STEPS = 100, 1000, 8000  # of the default network; whichever is less
FACTORS = 2.0 ** np.arange(-4, 9)  # what may multiply the variance of an average of networks
UNSEEN = 2  # networks that have not seen a row of the training data
_LEAST_WEIGHT = 1e-3  # components of less weight are left out
_ROWS = 4096  # whose components are held at once


class Average(NamedTuple):
    """The average of several networks of one confidence, at every row."""

    mean: np.ndarray
    within: np.ndarray  # noise and posterior variance of a network, averaged
    between: np.ndarray  # variance between the networks

    def variance(self, factor: float) -> np.ndarray:
        """Of a component: all parts of the uncertainty, times a factor."""
        return factor * (self.within + self.between)


class SoUNetEnsemble(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """Regression by networks of several confidences, trained on folds and averaged.

    The rows are dealt into folds, and network j is trained without the folds j and j + 1. So every
    row is predicted by the average of two networks that have not seen it. For the confidences k in
    the weights and for factors a of the variance, these averages are the components N(mean_k(x),
    a (noise_k + posterior variance_k(x) + variance between networks_k(x))) of a mixture, whose
    weights have the largest log score on the rows (stacking). Several factors make tails that may
    be heavy. All networks are trained in one compiled program: small ones spend their time on
    calls and on random numbers, not on arithmetic. Those of a fold share their random numbers.

    Parameters
    ----------
    estimator : SoUNetRegressor or None
        The network. None is ``SoUNetRegressor((50,), learning_rate=0.01)`` with 1,000 epochs, or
        fewer where these would be more than 8,000 steps.
    confidences : sequence of float
        Confidences in the weights, one network of each in every fold (see `SoUNetRegressor`): 1 is
        Bayes' rule, smaller ones give larger networks that follow the data more closely.
    folds : int
        The number of folds, and of networks of each confidence. When the number of rows is not a
        multiple of it, the rows left over are in every training set.
    random_state : int, RandomState or None
        Decides the folds and the networks.

    Attributes
    ----------
    networks_ : list of list of SoUNetRegressor
        The fitted networks: for every fold a list, one a confidence.
    path_ : pandas.DataFrame
        A row a confidence: its weight, the mean factor of its variance, and the mean number of
        units of every layer.
    noise_weights_ : ndarray
        Weights of the mixture: a row a confidence, a column a factor 1/16, 1/8, ..., 256.

    Notes
    -----
    Averaging networks is not a new objective: each minimises eq. 5 of the paper on its own rows.

    A prediction averages all K networks of a confidence, whose squared error is smaller than that
    of an average of two by (1/2 - 1/K) times the variance between networks (Krogh and Vedelsby).
    This is taken from the variance of a component, of which at least half is left.

    References
    ----------
    Krogh and Vedelsby (1995), Neural network ensembles, cross validation, and active learning,
    Advances in Neural Information Processing Systems 7.

    Yao, Vehtari, Simpson and Gelman (2018), Using stacking to average Bayesian predictive
    distributions, Bayesian Analysis 13.

    Examples
    --------
    >>> import numpy as np
    >>> from soubayes import SoUNetEnsemble, SoUNetRegressor
    >>> X = np.linspace(-4, 4, 90)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.2 * np.random.default_rng(0).normal(size=90)
    >>> net = SoUNetRegressor((10,), epochs=20, learning_rate=0.02)
    >>> ensemble = SoUNetEnsemble(net, folds=3, random_state=0).fit(X, y)
    >>> low, high = ensemble.predict_interval([[1.5]])
    >>> bool(low[0] < ensemble.predict([[1.5]])[0] < high[0])
    True
    """

    def __init__(
        self,
        estimator: Estimator | None = None,
        *,
        confidences: Sequence[float] = CONFIDENCES,
        folds: int = 8,
        random_state: State = None,
    ) -> None:
        self.estimator = estimator
        self.confidences = confidences
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Train without two folds each, at each confidence; weigh by the rows left out.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            The columns are standardised inside.
        y : array-like of shape (rows,)
            The targets.
        sample_weight : array-like of shape (rows,) or None
            What multiplies the loss of every row; rows of weight 0 are left out.

        Returns
        -------
        SoUNetEnsemble
            The fitted estimator itself.
        """
        check_masks(X=X, y=y, sample_weight=sample_weight)
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=True, ensure_min_samples=6)
        weight = check_weight(sample_weight, X)
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        confidences = self._confidences()
        if not UNSEEN < self.folds <= len(X) // 2:
            raise ValueError(
                f"folds is {self.folds}, but it must be between 3 and half of the {len(X)} rows."
            )
        rng = check_random_state(self.random_state)
        size = len(X) // self.folds
        parts = rng.permutation(len(X))[: self.folds * size].reshape(self.folds, size)
        template = self._template(len(X) - UNSEEN * size)
        unseen = [np.concatenate([parts[j], parts[j - self.folds + 1]]) for j in range(self.folds)]
        seeds = rng.randint(2**31 - 1, size=self.folds).tolist()
        nets = [
            [
                clone(template).set_params(confidence_weights=c, random_state=seed)
                for c in confidences
            ]
            for seed in seeds
        ]
        rest = [np.setdiff1d(np.arange(len(X)), rows) for rows in unseen]
        fit_together(nets, [(X[rows], y[rows], weight[rows]) for rows in rest])
        self.networks_ = nets
        held_out = [
            [_average(pair, X[part]) for pair in zip(*self._without(j), strict=True)]
            for j, part in enumerate(parts)
        ]
        rows = parts.ravel()
        self._weigh(y[rows], weight[rows], [_joined(k) for k in zip(*held_out, strict=True)])
        return self

    def _confidences(self) -> list[float]:
        values = [check_gamma("weights", c, allow_inf=False) for c in self.confidences]
        if not values:
            raise ValueError("confidences is empty, but at least one confidence is needed.")
        return values

    def _without(self, fold: int) -> list[list[Any]]:
        """The networks, by confidence, that were trained without a fold."""
        return [self.networks_[fold - 1], self.networks_[fold]]

    def _template(self, rows: int) -> Any:
        if self.estimator is not None:
            if not isinstance(self.estimator, SoUNetRegressor):
                raise TypeError(
                    f"estimator is a {type(self.estimator).__name__}, but an ensemble is made of "
                    "SoUNetRegressor."
                )
            return self.estimator
        steps, _ = minibatches(rows, BATCH)
        epochs = ROUND * -(-min(EPOCHS, STEPS // steps) // ROUND)
        return SoUNetRegressor((50,), epochs=epochs, batch_size=BATCH, learning_rate=0.01)

    def predict(
        self, X: ArrayLike, *, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The mean of the mixture; with `return_std` also its standard deviation.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            Rows to predict.
        return_std : bool
            Whether to return the standard deviation too.

        Returns
        -------
        ndarray or tuple of ndarray
            Means of the rows, or means and standard deviations.
        """

        def moments(mixture: NormalMixture) -> np.ndarray:
            mean = mixture.weight @ mixture.mean
            spread = mixture.weight @ ((mixture.mean - mean) ** 2 + mixture.variance)
            return np.stack([mean, np.sqrt(spread)], axis=1)

        mean, sd = self._by_rows(X, moments).T
        return (mean, sd) if return_std else mean

    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds y with this probability.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            Rows to predict.
        coverage : float
            The probability, between 0 and 1.

        Returns
        -------
        tuple of ndarray
            Lower and upper ends, one of each for every row.
        """
        tails = interval_tails(coverage)

        def ends(mixture: NormalMixture) -> np.ndarray:
            return np.stack([mixture.quantile(level) for level in tails], axis=1)

        low, high = self._by_rows(X, ends).T
        return low, high

    def log_density(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """log p(y | x) of every row.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            Rows to predict.
        y : array-like of shape (rows,)
            Their targets.

        Returns
        -------
        ndarray
            The logarithm of the predictive density.
        """
        targets = iter(np.array_split(np.asarray(y, float), _pieces(len(np.asarray(y)))))
        return self._by_rows(X, lambda mixture: mixture.log_density(next(targets)))

    def _weigh(self, y: np.ndarray, weight: np.ndarray, held_out: list[Average]) -> None:
        """Weights of confidences and factors, from averages of networks that have not seen y."""
        logs = [
            _component(average.mean, average.variance(factor), 1.0).log_density(y)
            for average in held_out
            for factor in FACTORS
        ]
        weights = stacking_weights(np.array(logs), weight)
        weights = np.where(weights < _LEAST_WEIGHT, 0.0, weights)
        self.noise_weights_ = (weights / weights.sum()).reshape(len(held_out), len(FACTORS))
        total = self.noise_weights_.sum(axis=1)
        sizes = np.array([[m.architecture_.final for m in path] for path in self.networks_])
        units = sizes.mean(axis=0)[:, 1:-1].T
        columns = {
            "confidence": [m.confidence_weights for m in self.networks_[0]],
            "weight": total,
            "noise_factor": self.noise_weights_ @ FACTORS / np.where(total > 0, total, np.nan),
            **{f"units_{i}": column for i, column in enumerate(units, start=1)},
        }
        self.path_ = pd.DataFrame(columns)

    def _by_rows(self, X: Any, of: Any) -> np.ndarray:
        """A function of the mixture, applied to a few rows at a time."""
        check_is_fitted(self)
        check_masks(X=X)
        X = validate_data(self, X, reset=False, dtype="numeric")
        return np.concatenate(
            [of(self._mixture(part)) for part in np.array_split(X, _pieces(len(X)))]
        )

    def _mixture(self, X: np.ndarray) -> NormalMixture:
        spared = 1 / UNSEEN - 1 / len(self.networks_)
        parts = []
        for members, weights in zip(
            zip(*self.networks_, strict=True), self.noise_weights_, strict=True
        ):
            if not weights.any():
                continue
            average = _average(members, X)
            for weight, factor in zip(weights, FACTORS, strict=True):
                variance = average.variance(factor)
                variance = np.maximum(variance - spared * average.between, variance / 2)
                if weight > 0:
                    parts.append(_component(average.mean, variance, weight))
        return NormalMixture(*map(np.concatenate, zip(*parts, strict=True)))


def _average(nets: Sequence[Any], X: np.ndarray) -> Average:
    """The average of networks at the rows of X."""
    means, deviations = zip(*(net._moments(X, 100, "draws") for net in nets), strict=True)
    noise = np.mean([net._noise_variance() for net in nets])
    within = noise + np.square(deviations).mean(axis=0)
    return Average(np.mean(means, axis=0), within, np.var(means, axis=0, ddof=1))


def _joined(averages: Sequence[Average]) -> Average:
    """Averages of several sets of rows, one after the other."""
    return Average(*map(np.concatenate, zip(*averages, strict=True)))


def _component(mean: np.ndarray, variance: np.ndarray, weight: float) -> NormalMixture:
    return NormalMixture(mean[None], variance[None], np.array([weight]))


def _pieces(rows: int) -> int:
    return max(1, -(-rows // _ROWS))

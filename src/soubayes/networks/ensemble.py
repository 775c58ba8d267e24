"""Networks of several confidences, averaged with weights and noise by rows that they never saw."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp, ndtr
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from soubayes.confidence import check_gamma
from soubayes.networks.base import fit_together
from soubayes.networks.estimators import SoUNetRegressor
from soubayes.networks.feeding import check_weight, minibatches
from soubayes.networks.path import CONFIDENCES, ROUND
from soubayes.results import Table

BATCH, EPOCHS, STEPS = 100, 1000, 8000  # of the default network; whichever is less
FACTORS = 2.0 ** np.arange(-4, 9)  # what may multiply the noise variance of a network
LEAST_NOISE = 0.3  # of a component's noise variance that the correction of an average leaves
_LEAST_WEIGHT = 1e-3  # components of less weight are left out
_HALVINGS, _STEPS_OF_EM = 60, 2000
_ROWS = 256  # whose components are held at once


class Mixture(NamedTuple):
    """Normal components of the predictive distribution of every row."""

    mean: np.ndarray  # (components, rows)
    variance: np.ndarray  # of the noise, likewise
    weight: np.ndarray  # (components,), with sum 1

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """log p(y) of every row."""
        squares = (y - self.mean) ** 2 / self.variance
        logs = -(squares + np.log(2 * np.pi * self.variance)) / 2
        return logsumexp(logs, axis=0, b=self.weight[:, None])

    def quantile(self, level: float) -> np.ndarray:
        """The quantile of every row, by bisection."""
        sd = np.sqrt(self.variance)
        low, high = (self.mean - 40 * sd).min(axis=0), (self.mean + 40 * sd).max(axis=0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = self.weight @ ndtr((middle - self.mean) / sd) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2


class SoUNetEnsemble(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """Regression by networks of several confidences, trained on folds and averaged.

    The rows are split into folds. For every confidence in the weights a network is trained without
    each fold in turn, so every row is predicted by networks that have not seen it. These
    predictions decide the weights of a mixture over the confidences k and over factors a of their
    noise variance: sum_ka w_ka p_ka has the largest log score (stacking). Several factors make the
    noise a scale mixture, so that tails may be heavy. All networks are trained in one compiled
    program: small ones spend their time on calls, not on arithmetic.

    Parameters
    ----------
    estimator : the network; None is ``SoUNetRegressor((50,), learning_rate=0.01)`` with 1,000
        epochs, or fewer where these would be more than 8,000 steps.
    confidences : of its weights (see `SoUNetRegressor`): 1 is Bayes' rule, smaller ones give larger
        networks that follow the data more closely.
    folds : the number of folds; fewer rows than folds that are left over are in every training set.
    random_state : as in scikit-learn; decides folds and networks.

    Attributes
    ----------
    networks_ : for every fold a list of fitted networks, one a confidence.
    path_ : a Table with a row a confidence: weight, mean factor of the noise variance, and mean
        number of units of every layer.
    noise_weights_ : weights of the mixture, a row a confidence, a column a factor of ``FACTORS``.

    Notes
    -----
    Averaging networks is not a new objective: each minimises eq. 5 of the paper on its own rows.

    The noise is learned from errors of single networks on rows they have not seen. With v(x) the
    variance of the K networks of a confidence at x, the squared error of their average is smaller
    by (1 - 1/K) v(x) (Krogh and Vedelsby). So the networks are moved towards their average until
    their spread is the variance of an average, v(x) / K, and v(x) is taken from the noise variance,
    of which at least 0.3 is left.

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
    >>> ensemble = SoUNetEnsemble(net, folds=2, random_state=0).fit(X, y)
    >>> low, high = ensemble.predict_interval([[1.5]])
    >>> bool(low[0] < ensemble.predict([[1.5]])[0] < high[0])
    True
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        confidences: Sequence[float] = CONFIDENCES,
        folds: int = 5,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.confidences = confidences
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Train without each fold at each confidence; weights and noise by the rows left out."""
        X, y = validate_data(self, X, y, dtype="numeric", y_numeric=True, ensure_min_samples=4)
        weight = check_weight(sample_weight, X)
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        confidences = [check_gamma("weights", c, allow_inf=False) for c in self.confidences]
        if not 2 <= self.folds <= len(X) // 2:
            raise ValueError(
                f"folds is {self.folds}, but it must be between 2 and half of the {len(X)} rows."
            )
        rng = check_random_state(self.random_state)
        size = len(X) // self.folds
        parts = rng.permutation(len(X))[: self.folds * size].reshape(self.folds, size)
        template = self._template(len(X) - size)
        cases = [(fold, confidence) for fold in parts for confidence in confidences]
        nets = [
            clone(template).set_params(
                confidence_weights=confidence, random_state=rng.randint(2**31 - 1)
            )
            for _, confidence in cases
        ]
        rest = [np.setdiff1d(np.arange(len(X)), fold) for fold, _ in cases]
        fit_together(nets, [(X[rows], y[rows], weight[rows]) for rows in rest])
        count = len(confidences)
        self.networks_ = [nets[i : i + count] for i in range(0, len(nets), count)]
        held_out = [
            (fold, [_components(net, X[fold]) for net in members])
            for fold, members in zip(parts, self.networks_, strict=True)
        ]
        self._weigh(y, weight, held_out)
        return self

    def _template(self, rows: int) -> Any:
        if self.estimator is not None:
            return self.estimator
        steps, _ = minibatches(rows, BATCH)
        epochs = ROUND * -(-min(EPOCHS, STEPS // steps) // ROUND)
        return SoUNetRegressor((50,), epochs=epochs, batch_size=BATCH, learning_rate=0.01)

    def predict(self, X: ArrayLike, *, return_std: bool = False) -> Any:
        """The mean of the mixture; with `return_std` also its standard deviation."""

        def moments(mixture: Mixture) -> np.ndarray:
            mean = mixture.weight @ mixture.mean
            spread = mixture.weight @ ((mixture.mean - mean) ** 2 + mixture.variance)
            return np.stack([mean, np.sqrt(spread)], axis=1)

        mean, sd = self._by_rows(X, moments).T
        return (mean, sd) if return_std else mean

    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds y with this probability."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage is {coverage}, but it must be between 0 and 1.")
        tails = (1 - coverage) / 2, (1 + coverage) / 2

        def ends(mixture: Mixture) -> np.ndarray:
            return np.stack([mixture.quantile(level) for level in tails], axis=1)

        low, high = self._by_rows(X, ends).T
        return low, high

    def log_density(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """log p(y | x) of every row."""
        targets = iter(np.array_split(np.asarray(y, float), _pieces(len(np.asarray(y)))))
        return self._by_rows(X, lambda mixture: mixture.log_density(next(targets)))

    def _weigh(
        self, y: np.ndarray, weight: np.ndarray, held_out: list[tuple[np.ndarray, list[Mixture]]]
    ) -> None:
        """Weights of confidences and noise factors, from rows that no network has seen."""
        counted = weight[np.concatenate([rows for rows, _ in held_out])]
        count = len(self.networks_[0])
        logs = [
            np.concatenate([_scaled(parts[k], f).log_density(y[rows]) for rows, parts in held_out])
            for k in range(count)
            for f in FACTORS
        ]
        weights = stacking_weights(np.array(logs), counted)
        weights = np.where(weights < _LEAST_WEIGHT, 0.0, weights)
        self.noise_weights_ = (weights / weights.sum()).reshape(count, len(FACTORS))
        total = self.noise_weights_.sum(axis=1)
        sizes = np.array([[m.architecture_.final for m in path] for path in self.networks_])
        units = sizes.mean(axis=0)[:, 1:-1].T
        self.path_ = Table(
            confidence=[m.confidence_weights for m in self.networks_[0]],
            weight=total,
            noise_factor=self.noise_weights_ @ FACTORS / np.where(total > 0, total, np.nan),
            **{f"units_{i}": column for i, column in enumerate(units, start=1)},
        )

    def _by_rows(self, X: Any, of: Any) -> np.ndarray:
        """A function of the mixture, applied to a few rows at a time."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype="numeric")
        return np.concatenate(
            [of(self._mixture(part)) for part in np.array_split(X, _pieces(len(X)))]
        )

    def _mixture(self, X: np.ndarray) -> Mixture:
        parts = []
        folds = len(self.networks_)
        for k, weights in enumerate(self.noise_weights_):
            if not weights.any():
                continue
            members = [_components(path[k], X) for path in self.networks_]
            members, excess = _as_average(members)
            for weight, factor in zip(weights, FACTORS, strict=True):
                for member in members if weight > 0 else ():
                    wide = _scaled(member, factor)
                    variance = np.maximum(wide.variance - excess, LEAST_NOISE * wide.variance)
                    parts.append(Mixture(wide.mean, variance, wide.weight * weight / folds))
        return Mixture(*map(np.concatenate, zip(*parts, strict=True)))


def _as_average(members: list[Mixture]) -> tuple[list[Mixture], np.ndarray]:
    """The networks with the spread of their average, and what this takes from the noise."""
    centres = np.array([member.weight @ member.mean for member in members])
    away = (centres - centres.mean(axis=0)) * (1 - 1 / np.sqrt(len(members) - 1))
    moved = [m._replace(mean=m.mean - a) for m, a in zip(members, away, strict=True)]
    return moved, centres.var(axis=0, ddof=1)


def _pieces(rows: int) -> int:
    return max(1, -(-rows // _ROWS))


def stacking_weights(log_density: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The mixture weights of the largest log score, given log p_k(y_i) and weights of the rows.

    The score is concave in the weights; expectation–maximisation climbs it.

    >>> stacking_weights(np.log([[0.9, 0.9, 0.1], [0.1, 0.1, 0.9]]), np.ones(3)).round(3)
    array([0.708, 0.292])
    """
    density = np.exp(log_density - log_density.max(axis=0))
    weights = np.full(len(density), 1 / len(density))
    for _ in range(_STEPS_OF_EM):
        share = weights[:, None] * density
        weights = (share / share.sum(axis=0)) @ counted / counted.sum()
    return weights


def _components(net: Any, X: np.ndarray, n_draws: int = 100) -> Mixture:
    """Posterior draws of one network as equal components."""
    mean = net.sample_functions(X, n_draws)
    variance = np.full_like(mean, float(net._noise_variance()))
    return Mixture(mean, variance, np.full(n_draws, 1 / n_draws))


def _scaled(mixture: Mixture, factor: float) -> Mixture:
    return mixture._replace(variance=mixture.variance * factor)

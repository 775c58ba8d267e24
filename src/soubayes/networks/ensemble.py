"""Networks of several confidences, averaged with weights and noise by rows that they never saw."""

import os
from collections.abc import Sequence
from dataclasses import field
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from soubayes._types import Estimator, State
from soubayes.confidence import check_gamma
from soubayes.data.rows import check_labels, check_masks
from soubayes.networks import mixtures
from soubayes.networks.classifier import SoUNetClassifier, check_classes
from soubayes.networks.feeding import check_weight, minibatches
from soubayes.networks.files import Parts, SavedModel, ensemble_parts, read_ensemble
from soubayes.networks.held_out import tempered_probability
from soubayes.networks.mixtures import FACTORS, UNSEEN, NormalMixture, interval_tails
from soubayes.networks.path import DIAL_CONFIDENCES, ROUND
from soubayes.networks.regressor import SoUNetRegressor
from soubayes.networks.settings import network_estimator
from soubayes.networks.together import fit_together

ENSEMBLE_BATCH = 100  # of the default network
ENSEMBLE_EPOCHS, ENSEMBLE_STEPS = 1000, 8000  # of the default network; whichever is less
CLASS_STEPS = 2000  # of a classifier without epochs of its own
_ROWS = 4096  # whose components are held at once


def _for_classes(ensemble: Any) -> bool:
    return isinstance(ensemble.estimator, SoUNetClassifier)


def _for_numbers(ensemble: Any) -> bool:
    return not _for_classes(ensemble)


@network_estimator
class SoUNetEnsemble(SavedModel, MetaEstimatorMixin, BaseEstimator):
    """Networks of several confidences, trained on folds and averaged; for numbers or classes.

    The rows are dealt into folds, and network j is trained without the folds j and j + 1. So every
    row is predicted by the average of two networks that have not seen it. These predictions decide
    how much each confidence (and each layout of hidden layers) weighs: the weights of a mixture
    that have the largest log score on the rows (stacking).

    The components of a regression are N(mean_k(x), a (noise_k + posterior variance_k(x) + variance
    between networks_k(x))) for several factors a, which makes tails that may be heavy. Those of a
    classifier are class probabilities, and the mixture has a temperature.

    All networks of a layout are trained in one compiled program: small ones spend their time on
    calls and on random numbers, not on arithmetic. Those of a fold share their random numbers.

    Parameters
    ----------
    estimator : SoUNetRegressor, SoUNetClassifier or None, default=None
        The network. A classifier makes an ensemble for classes. None is
        ``SoUNetRegressor((50,), learning_rate=0.01, skip=False, prune_inputs=False)`` with 1,000
        epochs, or fewer where these would be more than 8,000 steps.
    hidden : sequence of tuple, optional
        Layouts of hidden layers to choose among, such as ``((50,), (50, 50))``: the held-out rows
        weigh them as they weigh the confidences. By default the estimator's own.
    confidences : sequence of float, default=(0.03, 0.1, 0.3, 1.0)
        Confidences in the weights, one network of each in every fold (see `SoUNetRegressor`): 1 is
        Bayes' rule, smaller ones give larger networks that follow the data more closely.
    folds : int, default=8
        The number of folds, and of networks of each kind. When the number of rows is not a multiple
        of it, the rows left over are in every training set, and so are the rows of classes with
        fewer rows than folds.
    random_state : int, RandomState or None, default=0
        Decides the folds and the networks.
    verbose : int, default=0
        1 shows progress. That of the estimator does the same.
    checkpoint : str or path-like, optional
        A folder. A training that was killed continues from it to the same result. That of the
        estimator does the same.

    Attributes
    ----------
    networks_ : list of list of estimator
        The fitted networks: for every fold a list, one for each row of ``path_``.
    path_ : pandas.DataFrame
        A row for each layout and confidence: its weight, the mean number of units of every layer
        and, of a regression, the mean factor of its variance.
    noise_weights_ : ndarray
        Of a regression, the weights of the mixture: a row for each row of ``path_``, a column for
        each factor 1/16, 1/8, ..., 256.
    classes_ : ndarray
        The labels of a classifier.
    temperature_ : float
        Of a classifier: what the probabilities of the mixture are calibrated with.

    Notes
    -----
    Averaging networks is not a new objective: each minimises eq. 5 of the paper on its own rows.

    A prediction averages all K networks of a kind, whose squared error is smaller than that of an
    average of two by (1/2 - 1/K) times the variance between networks (Krogh and Vedelsby). This is
    taken from the variance of a component, of which at least half is left.

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

    estimator: Estimator | None = field(default=None, kw_only=False)
    hidden: Sequence[tuple[Any, ...]] | None = None
    confidences: Sequence[float] = DIAL_CONFIDENCES
    folds: int = 8
    random_state: State = 0
    verbose: int = 0
    checkpoint: str | os.PathLike[str] | None = None

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Train without two folds each, at each confidence; weigh by the rows left out.

        Parameters
        ----------
        X : array-like of shape (rows, columns)
            The columns are standardised inside.
        y : array-like of shape (rows,) or (rows, outputs)
            The targets, or the labels.
        sample_weight : array-like of shape (rows,) or None
            What multiplies the loss of every row; rows of weight 0 are left out.

        Returns
        -------
        SoUNetEnsemble
            The fitted estimator itself.
        """
        kinds = self._kinds()
        check_masks(X=X, y=y, sample_weight=sample_weight)
        X, y = validate_data(
            self, X, y, dtype="numeric", multi_output=True, y_numeric=not self._CLASSES,
            ensure_min_samples=6,
        )  # fmt: skip
        weight = check_weight(sample_weight, X)
        X, y, weight = X[weight > 0], y[weight > 0], weight[weight > 0]
        if self._CLASSES:
            check_labels(y)
            self.classes_, y = np.unique(column_or_1d(y), return_inverse=True)
            check_classes(self.classes_)
        if not UNSEEN < self.folds <= len(X) // 2:
            raise ValueError(
                f"folds is {self.folds}, but it must be between 3 and half of the {len(X)} rows."
            )
        rng = check_random_state(self.random_state)
        parts = self._deal(y, rng)
        template = self._template(len(X) - UNSEEN * parts.shape[1])
        unseen = [np.concatenate([parts[j], parts[j - self.folds + 1]]) for j in range(self.folds)]
        seeds = rng.randint(2**31 - 1, size=self.folds).tolist()
        rest = [np.setdiff1d(np.arange(len(X)), rows) for rows in unseen]
        data = [(X[rows], y[rows], weight[rows]) for rows in rest]
        folder = self.checkpoint if self.checkpoint is not None else template.checkpoint
        self.networks_: list[list[Any]] = [[] for _ in seeds]
        for number, layout in enumerate(dict.fromkeys(hidden for hidden, _ in kinds)):
            nets = [
                [
                    clone(template).set_params(
                        **({} if layout is None else {"hidden": layout}),
                        confidence_weights=c, random_state=seed, checkpoint=None,
                    )
                    for hidden, c in kinds
                    if hidden == layout
                ]
                for seed in seeds
            ]  # fmt: skip
            place = None if folder is None else Path(folder) / f"layout_{number}"
            fit_together(nets, data, verbose=self.verbose or template.verbose, folder=place)
            for all_nets, group in zip(self.networks_, nets, strict=True):
                all_nets += group
        self._flat_y = y.ndim == 1
        self._n_outputs = len(self.classes_) if self._CLASSES else int(np.prod(y.shape[1:]))
        rows = parts.ravel()
        if self._CLASSES:
            scored = mixtures.held_out(self.networks_, X, parts, mixtures.probabilities)
            weights, self.temperature_ = mixtures.stacked_weights(scored, y[rows], weight[rows])
        else:
            scored = mixtures.held_out(self.networks_, X, parts, mixtures.average)
            weights = mixtures.noise_weights(scored, y[rows], weight[rows])
        self._report(weights)
        return self

    @property
    def _CLASSES(self) -> bool:
        return _for_classes(self)

    def _kinds(self) -> list[tuple[Any, float]]:
        """Layouts of hidden layers, None for the estimator's own, and confidences."""
        if not isinstance(self.estimator, SoUNetRegressor | SoUNetClassifier | None):
            raise TypeError(
                f"estimator is a {type(self.estimator).__name__}, but an ensemble is made of "
                "SoUNetRegressor or SoUNetClassifier."
            )
        values = [check_gamma("weights", c, allow_inf=False) for c in self.confidences]
        if not values:
            raise ValueError("confidences is empty, but at least one confidence is needed.")
        layouts = [None] if self.hidden is None else [tuple(layout) for layout in self.hidden]
        if not layouts:
            raise ValueError("hidden is empty, but at least one layout of layers is needed.")
        return list(product(layouts, values))

    def _deal(self, y: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
        """Rows of every fold, equally many; of classes the same share in each."""
        order = rng.permutation(len(y))
        if self._CLASSES:
            order = order[np.argsort(y[order], kind="stable")]
            order = order[np.bincount(y)[y[order]] >= self.folds]
        size = len(order) // self.folds
        if not size:
            raise ValueError(
                f"folds is {self.folds}, but no class has as many rows. Use fewer folds."
            )
        if self._CLASSES:
            return order[: self.folds * size].reshape(size, self.folds).T
        return order[: self.folds * size].reshape(self.folds, size)

    def _template(self, rows: int) -> Any:
        steps, _ = minibatches(rows, ENSEMBLE_BATCH)
        if self.estimator is None:
            epochs = ROUND * -(-min(ENSEMBLE_EPOCHS, ENSEMBLE_STEPS // steps) // ROUND)
            return SoUNetRegressor(
                (50,), epochs=epochs, batch_size=ENSEMBLE_BATCH, learning_rate=0.01, skip=False,
                prune_inputs=False,
            )  # fmt: skip
        template = clone(self.estimator)
        if template.epochs is None and self._CLASSES:
            template.set_params(epochs=ROUND * ceil(CLASS_STEPS / steps / ROUND))
        return template

    def predict(
        self, X: ArrayLike, *, return_std: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """The mean of the mixture, or the most probable label.

        Parameters
        ----------
        return_std : bool
            Whether to return the standard deviation too; of a regression only.

        Returns
        -------
        ndarray or tuple of ndarray
            Means of the rows or labels, or means and standard deviations.
        """
        if self._CLASSES:
            return self.classes_[self.predict_proba(X).argmax(axis=1)]

        def moments(mixture: NormalMixture) -> np.ndarray:
            mean = np.tensordot(mixture.weight, mixture.mean, 1)
            squares = (mixture.mean - mean) ** 2 + mixture.variance
            return np.stack([mean, np.sqrt(np.tensordot(mixture.weight, squares, 1))], axis=1)

        found = self._by_rows(X, moments)
        mean, sd = self._shaped(found[:, 0]), self._shaped(found[:, 1])
        return (mean, sd) if return_std else mean

    @available_if(_for_classes)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Calibrated probabilities of the classes.

        Parameters
        ----------
        X : array-like
            The rows.

        Returns
        -------
        ndarray of shape (rows, classes)
            The columns are in the order of ``classes_``.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype="numeric")
        p = sum(
            weight * mixtures.probabilities(members, rows)
            for members, weight in zip(
                zip(*self.networks_, strict=True), self.path_["weight"], strict=True
            )
            if weight > 0
        )
        return tempered_probability(np.asarray(p), self.temperature_)

    @available_if(_for_numbers)
    def predict_interval(
        self, X: ArrayLike, coverage: float = 0.9
    ) -> tuple[np.ndarray, np.ndarray]:
        """The central interval that holds y with this probability.

        Parameters
        ----------
        X : array-like
            The rows.
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

        found = self._by_rows(X, ends)
        return self._shaped(found[:, 0]), self._shaped(found[:, 1])

    def log_density(self, X: ArrayLike, y: ArrayLike) -> np.ndarray:
        """log p(y | x) of every row.

        Returns
        -------
        ndarray
            The logarithm of the predictive density, summed over outputs, or of the probability.
        """
        y = np.asarray(y)
        if self._CLASSES:
            codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
            p = self.predict_proba(X)[np.arange(len(codes)), codes]
            with np.errstate(divide="ignore"):
                return np.log(np.where(self.classes_[codes] == y, p, 0.0))
        targets = iter(np.array_split(y.astype(float).reshape(len(y), -1), _pieces(len(y))))
        return self._by_rows(X, lambda mixture: mixture.log_density(next(targets)))

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R² of the mean, or the share of right labels.

        Parameters
        ----------
        sample_weight : array-like of shape (rows,) or None
            Weights of the rows.

        Returns
        -------
        float
            The score; higher is better.
        """
        measure = accuracy_score if self._CLASSES else r2_score
        return float(measure(y, self.predict(X), sample_weight=sample_weight))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "path_")

    def _parts(self) -> Parts:
        return ensemble_parts(self)

    @classmethod
    def _of_parts(cls, tree: dict[str, Any], info: dict[str, Any]) -> Self:
        kind = SoUNetClassifier if info["classes"] else SoUNetRegressor
        return read_ensemble(cls, kind, tree, info)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier" if self._CLASSES else "regressor"
        tags.target_tags.required = True
        if self._CLASSES:
            tags.classifier_tags = ClassifierTags()
        else:
            tags.regressor_tags = RegressorTags()
            tags.target_tags.multi_output = True
        return tags

    def _members(self) -> list[tuple[Any, float]]:
        """Networks and their weights in a prediction."""
        weights = self.path_["weight"] / len(self.networks_)
        return [
            (net, w)
            for nets in self.networks_
            for net, w in zip(nets, weights, strict=True)
            if w > 0
        ]

    def _exported_temperature(self, mode: str) -> float:
        return self.temperature_ if self._CLASSES else 1.0

    @property
    def _row_shape(self) -> tuple[int, ...]:
        return (self.n_features_in_,)

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        return values[:, 0] if self._flat_y else values

    def _report(self, weights: np.ndarray) -> None:
        """The table of the networks, from the weights of the mixture."""
        nets = self.networks_[0]
        table: dict[str, Any] = {}
        if self.hidden is not None:
            table["hidden"] = ["–".join(map(str, net._hidden)) for net in nets]
        table["confidence"] = [net.confidence_weights for net in nets]
        table["weight"] = weights
        if not self._CLASSES:
            self.noise_weights_ = weights
            table["weight"] = total = weights.sum(axis=1)
            table["noise_factor"] = weights @ FACTORS / np.where(total > 0, total, np.nan)
        self.path_ = pd.DataFrame(table | self._units())

    def _units(self) -> dict[str, np.ndarray]:
        """The mean number of units of every hidden layer; NaN where a layout has fewer layers."""
        sizes = [
            np.mean([net.architecture_.final[1:-1] for net in nets], axis=0)
            for nets in zip(*self.networks_, strict=True)
        ]
        depth = max(map(len, sizes))
        padded = np.array([[*size, *[np.nan] * (depth - len(size))] for size in sizes])
        return {f"units_{i}": column for i, column in enumerate(padded.T, start=1)}

    def _by_rows(self, X: Any, of: Any) -> np.ndarray:
        """A function of the mixture, applied to a few rows at a time."""
        check_is_fitted(self)
        check_masks(X=X)
        X = validate_data(self, X, reset=False, dtype="numeric")
        return np.concatenate(
            [
                of(mixtures.mixture(self.networks_, self.noise_weights_, part))
                for part in np.array_split(X, _pieces(len(X)))
            ]
        )


def _pieces(rows: int) -> int:
    return max(1, -(-rows // _ROWS))

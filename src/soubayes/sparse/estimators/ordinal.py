"""Sparse Bayesian regression of ordered classes as a scikit-learn estimator."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri
from sklearn.base import ClassifierMixin

from soubayes._types import Label, Matrix
from soubayes._warnings import warn
from soubayes.confidence import shown
from soubayes.data.rows import block_by_block, check_labels, row_weights
from soubayes.sparse.designs.moments import GatherPlan
from soubayes.sparse.estimators.parameters import estimator, prior_number, trust
from soubayes.sparse.estimators.response import ResponseEstimator
from soubayes.sparse.likelihoods.ordinal import LEAST, Cuts, Ordinal
from soubayes.sparse.posterior import Mixture

Array = np.ndarray


@estimator
class SoUOrdinalRegression(ClassifierMixin, ResponseEstimator):
    r"""Sparse Bayesian regression of classes in order.

    Columns that do not matter are dropped, and probabilities average over the posterior. By default
    the confidences are chosen by prediction. Columns are standardised inside; coefficients are
    reported in the units of X. A positive coefficient makes higher classes more probable.

    Parameters
    ----------
    levels : sequence of labels, optional
        The classes in order, for example ``["low", "middle", "high"]``; a class without rows has
        the probability that the prior of the cut points gives it. Left out, the order is that
        of an ordered pandas categorical or a polars Enum, or else the sorted order of the labels.
        Three or more text labels are then taken in alphabetical order with a warning. Rows that
        come in blocks need it.
    confidence : mapping of str to float, optional
        Confidence in the priors of the other blocks by their names in ``kl_``, 1 where left out:
        ``"global"``, the global scale (:math:`\gamma_\nu`), and ``"cuts"``, the cut
        points.
    priors : mapping of str to number, optional
        As in :class:`SoULogisticRegression`; ``"intercept_variance"`` is that of the first cut
        point (above a class with rows). The logarithms of the gaps have the prior N(0, 2²).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels in their order.
    cuts_ : ndarray
        The cut points, one less than classes: P(y <= class k) = expit(cut_k - x'coef), averaged
        over the mixture. They take the place of an intercept.
    intercept_ : float
        Minus the predictor at the mean of X: the cut points are those of centred columns.
    intercept_sd_ : float
        Its posterior standard deviation.
    out_of_fold_ : pandas.DataFrame
        Held-out predictions of the training rows, as numbers of the classes from 0: ``y``,
        ``mean``, ``sd`` and ``fold``.

    See Also
    --------
    SoULogisticRegression : Classes without an order.

    Notes
    -----
    The model of section 4.3 of [1]_ with cumulative logits,

    .. math::

        P(y \le k) = \sigma(c_k - x'\beta), \quad c_0 < c_1 < \dots, \quad
        \beta_j \sim N(0, \tau_j^2 \nu^2), \qquad
        J(q) = E_q[-\log p(y \mid \cdot)] + \sum_k \gamma_k \mathrm{KL}_k .

    The first cut point and the logarithms of the gaps are a source of uncertainty of their own
    with a normal q. With two classes the model is that of :class:`SoULogisticRegression`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 10))
    >>> eta = 1.5 * X[:, 0] - X[:, 1] + rng.logistic(size=300)
    >>> y = np.array(["low", "middle", "high"])[np.digitize(eta, [-1.0, 1.0])]
    >>> model = SoUOrdinalRegression(levels=["low", "middle", "high"]).fit(X, y)
    >>> np.flatnonzero(model.selected_), model.predict(X[:2])
    (array([0, 1]), array(['middle', 'low'], dtype='<U6'))
    """

    levels: Sequence[Label] | None = None
    fit_intercept = True  # the cut points are the intercept
    _blocks = ("global", "cuts")

    def _screening_target(self, y: Any) -> Array:
        values = np.asarray(y)
        return np.stack([values == label for label in np.unique(values)[1:]], axis=1).astype(float)

    def _look_at(self, X: Any, y: Any) -> None:
        self._order = _categories(y) if self.levels is None else list(self.levels)
        if self._order is None and isinstance(X, np.memmap) and y is not None:
            self._order = np.unique(np.asarray(y)).tolist()  # the rows come in blocks, y does not

    def _fit_memory(
        self, X: Any, y: Array, sample_weight: Any, groups: Any = None, offset: Any = None
    ) -> Self:
        check_labels(y)
        weight = row_weights(sample_weight, X.shape[0])
        there = np.unique(y[weight > 0])
        if self._order is None and len(there) > 2 and isinstance(there[0], str):
            warn(
                f"y has text labels without an order, which are taken alphabetically: "
                f"{shown(there.tolist())}. Pass levels, the labels from the lowest to the highest "
                "class, or an ordered categorical as y."
            )
        self._set_classes(there if self._order is None else self._order, there)
        numbers = self._read(y[weight > 0]).astype(int)
        self._shares: Array = np.bincount(numbers, weight[weight > 0], len(self.classes_))
        return super()._fit_memory(X, y, sample_weight, groups, offset)

    def _plan(self) -> GatherPlan:
        if self._order is None:
            raise ValueError(
                "X comes in blocks, of which none holds all classes: pass levels, the classes in "
                "order."
            )
        self._set_classes(self._order, np.asarray(self._order))
        self._shares = np.ones(len(self.classes_))  # a start, which the passes correct
        return super()._plan()

    def _set_classes(self, order: Any, there: Array) -> None:
        """The classes in order: those of ``levels`` all, others only if they have a row."""
        known = np.asarray(order)
        if len(np.unique(known)) < len(known):
            raise ValueError(f"levels are {shown(order)}, but a level is listed twice.")
        new = sorted(set(there.tolist()) - set(known.tolist()), key=str)
        if new:
            raise ValueError(
                f"y has the class {shown(new[0])}, which is not among the levels "
                f"{shown(known.tolist())}: add it in its place."
            )
        if (
            known.dtype.kind in "iuf"
            and not (np.diff(known) > 0).all() | (np.diff(known) < 0).all()
        ):
            raise ValueError(
                f"levels are {shown(known.tolist())}, which are numbers out of order: list them "
                "from the lowest to the highest."
            )
        self.classes_ = known[np.isin(known, there)] if self.levels is None else known
        if len(there) < 2:
            given = f"the one class {there[0]}" if len(there) else "no class"
            raise ValueError(
                f"y has {given}, but a classifier needs rows of at least two classes; "
                "use stratified folds if this is a cross-validation."
            )

    def _read(self, values: Array) -> Array:
        """Labels as the numbers of their classes."""
        place = {label: i for i, label in enumerate(self.classes_.tolist())}
        try:
            return np.array([place[label] for label in np.asarray(values).tolist()], float)
        except KeyError as error:
            raise ValueError(
                f"y has the class {error.args[0]!r}, but the model knows "
                f"{shown(self.classes_.tolist())}."
            ) from None

    def _likelihood(self) -> Ordinal:
        variance: Any = prior_number(self, "intercept_variance")
        return Ordinal(Cuts.of(self._shares, variance), trust(self, "cuts"))

    def _report_mixtures(self, mixtures: list[Mixture]) -> None:
        super()._report_mixtures(mixtures)
        weighted = [(q.weight, self._of(q.likelihood).cut_mean) for q in mixtures[0].components]
        self.cuts_ = np.asarray(sum(weight * cut for weight, cut in weighted)) - self.intercept_

    @block_by_block
    def predict(self, X: Matrix, offset: ArrayLike | None = None) -> Array:
        """Predict the most probable class.

        Returns
        -------
        labels : ndarray of shape (n,)
            The predicted labels.
        """
        best = np.argmax(self._probabilities(X, offset), axis=1)
        return self.classes_[best]

    @block_by_block
    def predict_proba(self, X: Matrix, offset: ArrayLike | None = None) -> Array:
        """Probabilities of the classes, averaged over the posterior.

        Returns
        -------
        probability : ndarray of shape (n, n_classes)
            The columns are in the order of ``classes_``.
        """
        return self._probabilities(X, offset)

    @block_by_block
    def predict_log_proba(self, X: Matrix, offset: ArrayLike | None = None) -> Array:
        """Logarithms of the probabilities.

        Returns
        -------
        log_probability : ndarray of shape (n, n_classes)
            Logarithms of :meth:`predict_proba`.
        """
        return np.log(self._probabilities(X, offset))

    def _probabilities(self, X: Matrix, offset: ArrayLike | None) -> Array:
        predictive = self._predictive(X, offset)
        chance = predictive.average(Ordinal.probabilities)
        if predictive.widen == 1.0:
            return chance
        below = ndtr(
            ndtri(np.cumsum(chance, axis=1)[:, :-1].clip(0.0, 1.0)) / np.sqrt(predictive.widen)
        )
        recalibrated = np.diff(below, axis=1, prepend=0.0, append=1.0).clip(LEAST)
        return recalibrated / recalibrated.sum(axis=1, keepdims=True)


def _categories(y: Any) -> list[Any] | None:
    """The order of an ordered pandas categorical or of a polars Enum; None: it has none."""
    kind: Any = getattr(y, "dtype", None)
    ordered = getattr(kind, "ordered", False) or type(kind).__name__ == "Enum"
    return list(kind.categories) if ordered else None

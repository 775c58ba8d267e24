"""Sparse Bayesian logistic regression as a scikit-learn estimator (section 4.3)."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logsumexp
from sklearn.base import ClassifierMixin

from soubayes._types import Matrix, Rows, Targets
from soubayes.confidence import check_choice, shown
from soubayes.data.rows import RowSource, block_by_block, check_labels
from soubayes.sparse.constants import LARGE, SOFTMAX_CLASSES, SOFTMAX_NUMBERS
from soubayes.sparse.designs.moments import Gathered, GatherPlan
from soubayes.sparse.designs.standardise import as_dense, row_slices
from soubayes.sparse.estimators.base import FeatureSelection, RowwiseEstimator
from soubayes.sparse.estimators.parameters import (
    InterceptParameters,
    estimator,
    intercept_prior,
)
from soubayes.sparse.likelihoods.base import RowLikelihood
from soubayes.sparse.likelihoods.bernoulli import (
    Bernoulli,
    JaakkolaBernoulli,
    average_log_odds,
    mean_probability,
    probability_sd,
)
from soubayes.sparse.likelihoods.softmax import Softmax
from soubayes.sparse.posterior import Mixture, centred
from soubayes.sparse.rows.classes import NEARER, ClassMixture
from soubayes.sparse.rows.family import ClassFamily, SoftmaxFamily
from soubayes.sparse.rows.streams import StreamedTarget

Array = np.ndarray


_BOUNDS: dict[str | None, type[RowLikelihood]] = {None: Bernoulli, "jaakkola": JaakkolaBernoulli}


@estimator
class SoULogisticRegression(
    FeatureSelection, ClassifierMixin, InterceptParameters, RowwiseEstimator
):
    r"""Sparse Bayesian logistic regression with a confidence for every source of uncertainty.

    Columns that do not matter are dropped, and probabilities average over the posterior. By default
    the confidences are chosen by prediction. Several classes are one softmax model, or fitted one
    against the rest (``multi_class``). Columns are standardised inside; coefficients are reported
    in the units of X.

    Parameters
    ----------
    choice : {"prediction", "path"}, default="prediction"
        How confidences are chosen. ``"prediction"`` weighs fits between dense and sparse by their
        scores on held-out rows and predicts from their mixture; from 10,000 rows on
        the scores are estimated without holding rows out. ``"path"`` follows ``confidence_coef``
        from 1 upwards, chooses a point for each class by an information criterion and refits its
        columns at confidence 1.
    cv : "auto", int, splitter, list of (train, test) or None, default="auto"
        Folds of ``choice="prediction"``. ``"auto"`` is 5 stratified folds, of which only one is
        held out from 2,000 rows on. None means the path alone.
    prior : {"exponential", "horseshoe"}, default="exponential"
        Prior of the scales: exponential on their squares, or half-Cauchy.
    bound : "jaakkola" or None, default=None
        None computes the expected loss exactly (to 1e-8). ``"jaakkola"`` uses the upper bound of
        Jaakkola and Jordan [2]_, as the paper does; its posterior is too narrow.
    multi_class : {"auto", "ovr", "multinomial"}, default="auto"
        More than two classes: ``"ovr"`` fits each against the rest, as the paper does, with columns
        of its own. ``"multinomial"`` is one softmax model of all classes: a column is kept or
        dropped for all of them, coefficients sum to 0 over the classes, and probabilities need no
        normalisation. It needs the rows in memory. ``"auto"`` is ``"multinomial"``, which predicts
        better, below 10,000 rows, up to 20 classes and up to 2 million numbers in
        rows x columns x (classes - 1), and ``"ovr"`` beyond and with ``bound`` or
        ``solver="coordinate"``.
    solver : {"newton", "coordinate"}, default="newton"
        ``"coordinate"`` is Algorithm 1 of the paper. It has the same fixed points, needs
        ``bound="jaakkola"``, and is slow when ``confidence_local`` is small.
    n_jobs : int or None, default=None
        Number of jobs over the folds and classes: threads, or processes for folds that take more
        than two seconds. Results do not depend on it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    coef_ : ndarray of shape (1, p) or (n_classes, p)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    intercept_sd_ : ndarray of shape (1,) or (n_classes,)
    global_scale_ : ndarray of shape (1,) or (n_classes,)
    effective_parameters_ : ndarray of shape (1,) or (n_classes,)
    confidence_coef_ : ndarray of shape (1,) or (n_classes,)
    odds_power_ : ndarray of shape (1,) or (n_classes,)
        Recalibration of predictions: the odds of the mixture are raised to this power, fitted to
        held-out rows; 1 without held-out rows. Coefficients do not include it.
    covariance_ : ndarray of shape (p, p) or (n_classes, p, p)
    kl_ : dict of str to float, or a list of them
    objective_ : ndarray, or a list of them
    path_ : pandas.DataFrame, or a list of them
    path_coef_ : pandas.DataFrame, or a list of them
    path_coef_sd_ : pandas.DataFrame, or a list of them
    path_refit_coef_ : pandas.DataFrame, or a list of them
        The coefficients of every point's columns at confidence 1, which the score is of.
    candidates_ : pandas.DataFrame, or a list of them
    out_of_fold_ : pandas.DataFrame, or a list of them
    sparsity_ : object, or a list of them

    See Also
    --------
    SoULinearRegression : The same for numbers.
    SoUGeneralizedRegression : The same for a likelihood of your own.

    Notes
    -----
    The model (section 4.3 and supplement A.3 of [1]_) and its objective (supplement C.4.3) are

    .. math::

        y \sim \mathrm{Bernoulli}(\sigma(\alpha + x'\beta)), \quad
        \beta_j \sim N(0, \tau_j^2 \nu^2), \qquad
        J(q) = E_q[-\log p(y \mid \cdot)] + \sum_k \gamma_k \mathrm{KL}_k .

    For a small :math:`\gamma_\tau` column j stays exactly when
    :math:`z_j^2 = q_j^2 / s_j > \gamma_\beta`, with :math:`q_j` its score and :math:`s_j` its
    information, both with the other coefficients adjusted.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".
    .. [2] T. Jaakkola and M. I. Jordan (2000), "Bayesian parameter estimation via variational
       methods", Statistics and Computing 10.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 20))
    >>> y = np.where(X[:, 0] - X[:, 1] + rng.logistic(size=400) / 2 > 0, "yes", "no")
    >>> model = SoULogisticRegression().fit(X, y)
    >>> np.flatnonzero(model.selected_[0])
    array([0, 1])
    >>> model.predict_proba(X[:2]).round(1)
    array([[0.3, 0.7],
           [0.9, 0.1]])
    """

    prior: str = "exponential"
    bound: str | None = None
    multi_class: str = "auto"
    solver: str = "newton"
    _stratified = True

    def fit(
        self,
        X: Rows,
        y: Targets | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p), Dask collection, path or iterable
            The rows; float32 stays float32. Data that do not fit in memory: a Dask array or
            dataframe, the path of a ``.npy`` or parquet file, or an iterable of (X, y) or (X, y,
            weight) blocks that can be iterated again, as every step does.
        y : array-like of shape (n,), or str, optional
            Labels of any type; the name of the label column for a parquet file. Left out for an
            iterable of blocks.

        Returns
        -------
        self : SoULogisticRegression
            The fitted estimator.
        """
        self._check_parameters()
        return self._fit_source(X, y, sample_weight, groups)

    def _plan(self) -> GatherPlan:
        many = self._chooses() or self.multi_class != "ovr"
        return GatherPlan(None, keep=LARGE if many else 0)

    def _fit_gathered(self, rows: RowSource, gathered: Gathered) -> Self:
        if self.multi_class == "multinomial":
            raise ValueError(
                "multi_class='multinomial' needs the rows in memory, but X is streamed; use "
                "multi_class='ovr', or pass arrays."
            )
        self._set_classes(np.unique(list(gathered.classes)))
        targets = [
            StreamedTarget(partial(one_against_rest, label), gathered.classes[label.tolist()])
            for label in self._target_names()
        ]
        family = self._family()
        return self._fit_design(family, family.streamed(rows, gathered, targets))

    def _fit_memory(
        self, X: Any, y: Array, sample_weight: Any, groups: Any = None, offset: Any = None
    ) -> Self:
        """From rows: the sparse point, then the choice among candidates."""
        check_labels(y)
        X, weight, y, groups = self._weigh(X, sample_weight, y, groups)
        self._set_classes(np.unique(y))
        if not self._single and self._is_softmax(X):
            index = np.searchsorted(self.classes_, y)
            order = np.argsort(-np.bincount(index, weight, len(self.classes_)), kind="stable")
            rank = np.argsort(order)
            place, settings = rank[index], self._row_settings(intercept_prior(self))
            softmax = SoftmaxFamily(Softmax(len(rank)), settings, rank, place)
            return self._fit_family(softmax, X, [place], weight, y, groups)
        targets = [one_against_rest(label, y) for label in self._target_names()]
        return self._fit_family(self._family(), X, targets, weight, y, groups)

    def _screening_target(self, y: Any) -> Array:
        values = np.asarray(y)
        return np.stack([values == label for label in np.unique(values)[1:]], axis=1).astype(float)

    def _is_softmax(self, X: Any) -> bool:
        """Whether several classes are one model."""
        if self.multi_class != "auto":
            return self.multi_class == "multinomial"
        n, p = X.shape
        further = len(self.classes_) - 1
        few = n * p * further <= SOFTMAX_NUMBERS and further < SOFTMAX_CLASSES
        # streams of LARGE rows are not gathered, and the container must not decide the model
        return few and n < LARGE and self.bound is None and self.solver == "newton"

    @property
    def _classes(self) -> ClassMixture | None:
        """What one model of all classes predicts from; None where each class has its own."""
        return ClassMixture.of(self.mixtures_)

    @block_by_block
    def decision_function(self, X: Matrix) -> Array:
        """Log odds of the averaged probabilities.

        Returns
        -------
        log_odds : ndarray of shape (n,) or (n, n_classes)
            Of each class against the rest for several classes.
        """
        odds = self._log_odds(self._checked(X))
        return odds[:, 0] if self._single else odds

    @block_by_block
    def predict(self, X: Matrix) -> Array:
        """Predict the class of highest averaged probability.

        Returns
        -------
        labels : ndarray of shape (n,)
            The predicted labels.
        """
        odds = self.decision_function(X)
        index = (odds > 0).astype(int) if self._single else np.argmax(odds, axis=1)
        return self.classes_[index]

    @block_by_block
    def predict_proba(self, X: Matrix, return_std: bool = False) -> Array | tuple[Array, Array]:
        r"""Probabilities of the classes, averaged over the posterior.

        Parameters
        ----------
        return_std : bool, default=False
            Also return the posterior standard deviation of the probabilities.

        Returns
        -------
        probability : ndarray of shape (n, n_classes)
            The columns are in the order of ``classes_``.
        sd : ndarray of shape (n, n_classes)
            Only with ``return_std=True``; before recalibration.

        Notes
        -----
        The average :math:`E_q[\sigma(\alpha + x'\beta)]` is computed with a mixture of eight
        probits, with an error below 3e-9. Several classes are normalised to sum to 1; those of one
        softmax model are averaged over fixed nodes and sum to 1 by themselves. When the
        confidences were chosen by prediction, the probabilities are those of the mixture,
        recalibrated on held-out rows.
        """
        X = self._checked(X)
        p = np.exp(self._log_proba(X))
        if not return_std:
            return p
        if self._classes is not None:
            return p, self._by_class_rows(X, self._classes.sd)
        sd = self._probability_sd(X)
        if self._single:
            return p, np.column_stack([sd[:, 0], sd[:, 0]])
        # delta method for p_k = a_k / sum_j a_j of independent a_j; of a row that no class claims
        # (a small sum) it exceeds the largest sd that a number in [0, 1] of mean p_k can have
        total = expit(self._log_odds(X)).sum(axis=1, keepdims=True)
        square = (sd / np.maximum(total, 1e-7)) ** 2
        others = square.sum(axis=1, keepdims=True) - square
        return p, np.sqrt(np.minimum((1 - p) ** 2 * square + p**2 * others, p * (1 - p)))

    @block_by_block
    def predict_log_proba(self, X: Matrix) -> Array:
        """Logarithms of the probabilities, accurate where these are small.

        Returns
        -------
        log_probability : ndarray of shape (n, n_classes)
            Logarithms of :meth:`predict_proba`.
        """
        return self._log_proba(self._checked(X))

    def _by_class_rows(self, X: Any, work: Callable[[Array], Array]) -> Array:
        """``work`` of the mixture of all classes on all rows, a block at a time."""
        first = self.mixtures_[0]
        blocks = (as_dense(X[rows]) for rows in row_slices(X))
        return np.concatenate([work(centred(block, self._x_mean, first)) for block in blocks])

    def _log_proba(self, X: Any) -> Array:
        if self._classes is not None:
            return self._by_class_rows(X, self._classes.log_proba)
        odds = self._log_odds(X)
        log_p = -np.logaddexp(0.0, -odds)
        if self._single:
            return np.column_stack([-np.logaddexp(0.0, odds[:, 0]), log_p[:, 0]])
        shift = log_p.max(axis=1, keepdims=True)
        return log_p - shift - np.log(np.exp(log_p - shift).sum(axis=1, keepdims=True))

    def _log_odds(self, X: Any) -> Array:
        """Of every class against the rest, recalibrated, (n, targets)."""
        if self._classes is not None:
            log_p = self._log_proba(X)
            rest = [logsumexp(np.delete(log_p, k, axis=1), axis=1) for k in range(log_p.shape[1])]
            return log_p - np.stack(rest, axis=1)
        return np.stack(
            [
                mixture.power * average_log_odds(means, variances, mixture.weights)
                for mixture, (means, variances) in zip(
                    self.mixtures_, self._predictors(X), strict=True
                )
            ],
            axis=1,
        )

    def _each(self, mixture: Mixture, rows: Array) -> Array:
        return _nearer(super()._each, mixture, rows)

    def _probability_sd(self, X: Any) -> Array:
        """Of the posterior: sure points count with their uncertainty at confidence 1."""

        def work(mixture: Mixture, rows: Array) -> Array:
            return _nearer(lambda m, x: np.stack(m.predictors(x)), mixture, rows)

        sds = []
        for mixture, (means, variances) in zip(self.mixtures_, self._by_rows(X, work), strict=True):
            p, sd = mean_probability(means, variances), probability_sd(means, variances)
            square = mixture.weights @ (p * p + sd * sd) - (mixture.weights @ p) ** 2
            sds.append(np.sqrt(np.maximum(square, 0.0)))
        return np.stack(sds, axis=1)

    def _family(self) -> ClassFamily:
        return ClassFamily(_BOUNDS[self.bound](), self._row_settings(intercept_prior(self)))

    def _check_parameters(self) -> None:
        check_choice("bound", self.bound, tuple(_BOUNDS))
        super()._check_parameters()
        self._check_multi_class()
        if self.solver == "coordinate" and not _BOUNDS[self.bound].majorises:
            raise ValueError(
                "solver='coordinate' is Algorithm 1 of the paper, which needs its bound: pass "
                "bound='jaakkola' as well, or use solver='newton'."
            )

    def _check_multi_class(self) -> None:
        check_choice("multi_class", self.multi_class, ("auto", "ovr", "multinomial"))
        if self.multi_class != "multinomial":
            return
        for name, value in (("bound", None), ("solver", "newton")):
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} is {shown(getattr(self, name))}, but multi_class='multinomial' has "
                    f"only {name}={value!r}; use multi_class='ovr' for other values."
                )

    def _draws(self, n: int, rng: np.random.Generator) -> dict[str, list[Array]]:
        """Of several classes at once together."""
        if self._classes is None:
            return super()._draws(n, rng)
        p, whole = len(self._x_mean), self._classes.sample(n, rng)
        coef = [whole[:, k, :p] for k in range(whole.shape[1])]
        draws = {"coef": coef}
        if whole.shape[2] > p:
            draws["intercept"] = [
                whole[:, k, p] - class_coef @ self._x_mean for k, class_coef in enumerate(coef)
            ]
        return draws

    def _report_mixtures(self, mixtures: list[Mixture]) -> None:
        super()._report_mixtures(mixtures)
        self.odds_power_ = self._by_target([mixture.power for mixture in mixtures])

    def _set_classes(self, classes: Array) -> None:
        self.classes_ = classes
        self._single = len(classes) == 2
        if len(classes) < 2:
            given = f"the one class {classes[0]}" if len(classes) else "no row of positive weight"
            raise ValueError(
                f"y has {given}, but a classifier needs rows of at least two classes; "
                "use stratified folds if this is a cross-validation."
            )

    def _target_names(self) -> list[Any]:
        """The classes that are fitted against the rest."""
        return list(self.classes_[1:] if self._single else self.classes_)

    @property
    def _flat(self) -> bool:
        """With a leading axis also for two classes, as scikit-learn's LogisticRegression."""
        return False


def _nearer(work: Callable[[Mixture, Array], Array], mixture: Mixture, rows: Array) -> Array:
    """Rows that overflow are brought nearer, where their probabilities have their limits.

    Far out the probability is Phi(mean/sd), which does not depend on the distance.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        values = work(mixture, rows)
        finite = np.isfinite(values).all(axis=(0, 1))
        return values if finite.all() else np.where(finite, values, work(mixture, NEARER * rows))


def one_against_rest(label: Any, y: Array) -> Array:
    """1 for the rows of a class, 0 for the others."""
    return (y == label).astype(float)

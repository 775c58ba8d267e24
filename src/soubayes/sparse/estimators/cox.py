"""Sparse Cox regression of survival times."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import validate_data

from soubayes._docstrings import fill_docstrings
from soubayes._types import Matrix
from soubayes._warnings import warn
from soubayes.confidence import check_choice, shown
from soubayes.results import LEVEL, check_level
from soubayes.sparse.choice.folds import check_groups
from soubayes.sparse.constants import FOLDS, SEPARATED_EFFECT
from soubayes.sparse.designs.standardise import as_dense, row_slices
from soubayes.sparse.estimators.base import FeatureSelection, RowwiseEstimator
from soubayes.sparse.estimators.parameters import (
    check_choosing,
    check_shared,
    estimator,
    prior_number,
    trust,
)
from soubayes.sparse.posterior import LowRankPosterior, Mixture, Posterior
from soubayes.sparse.survival.family import SurvivalFamily, with_hazard
from soubayes.sparse.survival.hazard import DRAWS, BaselineDraws, relative_risk
from soubayes.sparse.survival.measures import (
    CLOCKS,
    KaplanMeier,
    Schoenfeld,
    brier_scores,
    concordance,
    schoenfeld,
    time_trends,
)
from soubayes.sparse.survival.responses import read_survival, read_training, with_strata
from soubayes.sparse.survival.risk_sets import BaselinePrior, PartialLoss, RiskSets

Array = np.ndarray
Survival = Any  # structured array, DataFrame or tuple


# parameters of the methods
_PARAMETERS = """
X : array-like or sparse matrix of shape (n, p)
    The rows.
y : structured array, DataFrame or tuple
    Their times and events.
times : array-like, optional
    The times; by default the distinct times of events (at most 1,000).
level : float, optional
    Level of pointwise bands; None: the curves alone.
strata : array-like of shape (n,), optional
    The strata of the rows, if the model was fitted with strata.
"""


@estimator
@fill_docstrings(_PARAMETERS)
class SoUCoxRegression(FeatureSelection, RowwiseEstimator):
    r"""Sparse Bayesian Cox regression of survival times.

    Parameters
    ----------
    confidence : mapping of str to float, optional
        Confidence in the priors of the other blocks by their names in ``kl_``, 1 where left out:
        ``"global"``, the global scale (:math:`\gamma_\nu`), and ``"baseline"``, the baseline hazard
        (:math:`\gamma_h`), which is the last block: bands of survival curves widen with its square
        root.
    priors : mapping of str to number, optional
        Numbers of the priors: the rates of exponential priors of squared scales, ``"rate_local"``
        (10) and ``"rate_global"`` (10), and ``"baseline_mass"`` (0), the weight of the prior guess
        of the baseline hazard, in subjects. The guess is a constant hazard, the number of events
        over the total time at risk. With 0 the coefficients see Cox's partial likelihood.
    ties : {"efron", "breslow"}, default="efron"
        What events at the same time mean.
    choice : {"prediction", "path"}, default="prediction"
        How confidences are chosen, as in :class:`SoULogisticRegression`. Held-out rows are scored
        by their log density under a hazard that is constant between quantiles of the event times.
    cv : "auto", int, splitter, list of (train, test) or None, default="auto"
        Folds of ``choice="prediction"``. ``"auto"`` is 5 folds with equal shares of events. None
        means the path alone.
    random_state : int or None, default=0
        Seed of the shuffle of the folds and of the draws behind survival curves.
    feature_blocks : mapping of str to mapping, optional
        Groups of columns with a prior of their own, as in :class:`SoULogisticRegression`. Columns
        with a normal prior, such as clinical ones beside genes, are never dropped.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        Posterior means of the log hazard ratios, exactly 0 only where no candidate keeps a column.
    out_of_fold_ : pandas.DataFrame
        Held-out predictions of the training rows: ``time``, ``event``, ``mean`` (the log risk)
        and ``fold``.
    cv_partial_likelihood_ : float
        Log partial likelihood for each event at the held-out log risks.
    event_times_ : ndarray
        The distinct times of events.
    strata_ : ndarray
        Labels of the strata.
    kl_ : dict of str to float
        What it cost each block to leave its prior, in nats; the baseline hazard only if its
        ``"baseline_mass"`` is not 0.
    objective_ : ndarray
        J after every expansion of the loss at the reported confidence.

    See Also
    --------
    SoULogisticRegression : The same for classes.
    SoUGeneralizedRegression : The same for a likelihood of your own.

    Notes
    -----
    The hazard of a subject is :math:`h_0(t) \exp(x'\beta)`. The baseline hazard jumps at the times
    of events by :math:`h_j \sim \mathrm{Gamma}(a_j, c)` [2]_, and is the last block of the model of
    [1]_, so its factor given the coefficients is exact and hands on

    .. math::

        V(\beta) = -\sum_i d_i \eta_i
            + \sum_j (d_j + \gamma_h a_j) \log(\gamma_h c + S_j), \qquad
        S_j = \sum_{i \in R_j} e^{\eta_i} ,

    Cox's partial likelihood as :math:`c \to 0`. The posterior of the coefficients is normal with
    the full curvature of V.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".
    .. [2] J. D. Kalbfleisch (1978), "Non-parametric Bayesian analysis of survival time data",
       Journal of the Royal Statistical Society B 40.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 20))
    >>> time = rng.exponential(np.exp(-X[:, 0] + X[:, 1]))
    >>> event, time = time < 2.0, np.minimum(time, 2.0)
    >>> model = SoUCoxRegression().fit(X, (event, time))
    >>> np.flatnonzero(model.selected_)
    array([0, 1])
    >>> model.predict_survival_function(X[:2], times=[0.5, 1.0]).round(2).to_numpy()
    array([[0.48, 0.85],
           [0.25, 0.74]])
    """

    fit_intercept = False
    _stratified = True

    ties: str = "efron"
    _blocks = ("global", "baseline")
    _numbers = ("rate_local", "rate_global", "global", "baseline_mass")

    def fit(
        self,
        X: Matrix,
        y: Survival,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        y : structured array, DataFrame or tuple
            Times and events: scikit-survival's structured array, a DataFrame with the columns
            ``event`` and ``time`` (or ``start``, ``stop`` and ``event`` with late entry), or a
            tuple in this order.
        sample_weight : array-like of shape (n,), optional
            Frequencies: a weight of 2 counts a subject twice, also in the standard deviations. A
            repeated row is a tie as well, which a weight is not, so with ``ties="efron"`` the two
            differ slightly.
        strata : array-like of shape (n,), optional
            A label for each row. Every stratum has a baseline hazard of its own.

        Returns
        -------
        self : SoUCoxRegression
            The fitted estimator.
        """
        self._check_parameters()
        self._single = True
        records = read_training(y)
        X = validate_data(
            self, X, accept_sparse=["csr"], dtype=[np.float64, np.float32], ensure_min_samples=2
        )
        check_consistent_length(X, records)
        records, labels = with_strata(records, strata)
        beside = records, check_groups(groups, X)
        X, weight, records, held_together = self._weigh(X, sample_weight, *beside)
        if not records["event"].any():
            raise ValueError("all rows with a positive weight are censored; give some event one.")
        family = self._family(records, weight)
        # a fold needs events; censored rows are shared out too, but few of them limit no folds
        event = records["event"]
        shared = event.astype(int) if (~event).sum() >= FOLDS else np.ones(len(event), int)
        self._fit_family(family, X, [records], weight, shared, held_together)
        sets = RiskSets.of(records, weight, family.ties, family.prior)
        ordered = family.ordered(X, self.sparse_.coef_, sets)
        for fitted in {id(self): self, id(self.sparse_): self.sparse_}.values():
            fitted.converged_ &= not ordered
            fitted._add_baseline(X, sets, labels)
        self._warn_separated(ordered)
        if "out_of_fold_" in self.__dict__:
            self._describe_folds(sets)
        return self

    def _screening_target(self, y: Any) -> Array:
        """Martingale residuals without columns: the event less the cumulative hazard."""
        records = read_training(y)
        order = np.argsort(records["stop"], kind="stable")
        event, at_risk = records["event"][order], np.arange(len(records), 0, -1)
        hazard = np.empty(len(records))
        hazard[order] = np.cumsum(event / at_risk)
        return (records["event"] - hazard)[:, None]

    def _check_parameters(self) -> None:
        check_choosing(self)
        check_shared(self)
        check_choice("ties", self.ties, ("efron", "breslow"))

    def _family(self, y: Array, weight: Array) -> SurvivalFamily:
        exposure = float(weight @ (y["stop"] - np.maximum(y["start"], 0.0)))
        rate = float(weight @ y["event"]) / exposure
        mass: Any = prior_number(self, "baseline_mass")
        prior = BaselinePrior(mass, rate, trust(self, "baseline"))
        return SurvivalFamily(self._row_settings(None), self.ties, prior)

    def _add_baseline(self, X: Any, sets: RiskSets, labels: Array) -> None:
        """What survival curves, scores and the Brier score need of the fitted rows."""
        mixture = self.mixtures_[0]
        parts = tuple(
            with_hazard(component, X, self._x_mean, sets.y, sets.weight)
            for component in mixture.components
        )
        self.mixtures_ = [replace(mixture, components=parts)]
        self.strata_ = labels
        self.event_times_ = np.unique(sets.time)
        seed = self.random_state if isinstance(self.random_state, int) else 0
        eta = np.concatenate(list(self._drawn_predictors(X, seed)))
        self._baseline = BaselineDraws.of(sets, eta, len(labels), seed)
        self._censoring = KaplanMeier.of(sets.y, sets.weight, censoring=True)

    def _drawn_coefficients(self, seed: int) -> Array:
        """(draws, p): the same for the same seed, whatever the order of the columns."""
        mixture = self.mixtures_[0]
        order = np.argsort(mixture.mean / self._coef_units[0], kind="stable")
        parts = tuple(
            replace(component, posterior=_ordered(component.posterior, order))
            for component in mixture.components
        )
        draws, _ = replace(mixture, components=parts).sample(DRAWS, np.random.default_rng(seed))
        return draws[:, np.argsort(order)]

    def curve_draws(self) -> tuple[BaselineDraws, Array]:
        """Return the draws that survival curves are averages of.

        Returns
        -------
        baseline : BaselineDraws
            Draws of the cumulative baseline hazards.
        coef : ndarray of shape (draws, p)
            Draws of the coefficients.
        """
        return self._baseline, self._drawn_coefficients(self._baseline.seed)

    def _drawn_predictors(self, X: Any, seed: int) -> Iterator[Array]:
        """Blocks of rows: predictors at the draws of the coefficients that are behind curves."""
        coef = self._drawn_coefficients(seed)
        for rows in row_slices(X):
            yield (as_dense(X[rows]) - self._x_mean) @ coef.T

    def _describe_folds(self, sets: RiskSets) -> None:
        """Held-out log risks beside times and events, and their partial likelihood."""
        held = self.out_of_fold_
        seen = held["fold"].to_numpy() >= 0
        self.out_of_fold_ = pd.DataFrame(
            {
                "time": sets.y["stop"],
                "event": sets.y["event"],
                "mean": held["mean"],
                "fold": held["fold"],
            }
        )
        if sets.y["event"][seen].any():
            held_out = RiskSets.of(sets.y[seen], sets.weight[seen], self.ties)
            risk = held["mean"].to_numpy()[seen]
            loss = PartialLoss.at(held_out, risk).loss
            self.cv_partial_likelihood_ = -loss / float(held_out.deaths.sum())

    def predict(self, X: Matrix) -> Array:
        """Predict the log risk, relative to a subject with average columns.

        Returns
        -------
        log_risk : ndarray of shape (n,)
            The posterior mean of the log hazard ratio to the average of the training rows.
        """
        return self._by_rows(self._checked(X), _log_risk)[0]

    def predict_survival_function(
        self,
        X: Matrix,
        times: ArrayLike | None = None,
        level: float | None = None,
        strata: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Predict survival curves.

        Returns
        -------
        curves : pandas.DataFrame
            One row for each time and one column for each row of X: the probability to survive
            beyond the time, averaged over the posterior. With ``level`` there are three columns
            for each row: ``estimate``, ``lower`` and ``upper``.

        Notes
        -----
        Bands come from draws of the coefficients, then of the baseline hazard given them.
        """
        return self._curves(self._checked(X), times, level, strata, _survival)

    def predict_cumulative_hazard(
        self,
        X: Matrix,
        times: ArrayLike | None = None,
        level: float | None = None,
        strata: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Predict cumulative hazards.

        Returns
        -------
        curves : pandas.DataFrame
            As of :meth:`predict_survival_function`: the posterior mean of the cumulative hazard.
        """
        return self._curves(self._checked(X), times, level, strata, np.asarray)

    def _curves(
        self,
        X: Any,
        times: Any,
        level: float | None,
        strata: Any,
        of: Callable[[Array], Array],
    ) -> pd.DataFrame:
        """A table of averages and quantiles of a function of the cumulative hazards."""
        if level is not None:
            check_level("level", level)
        grid = self._times(times)
        columns = pd.RangeIndex(X.shape[0])
        if level is not None:
            columns = pd.MultiIndex.from_product([columns, ["estimate", "lower", "upper"]])
        lines = self._lines(X, grid, strata, of, level)
        index = pd.Index(grid, name="time")
        return pd.DataFrame(lines.reshape(-1, len(grid)).T, index=index, columns=columns)

    def _lines(
        self,
        X: Any,
        grid: Array,
        strata: Any,
        of: Callable[[Array], Array],
        level: float | None = None,
    ) -> Array:
        """(rows, 1 or 3, times) of `BaselineDraws.curves`."""
        blank = read_survival((np.ones(X.shape[0], bool), np.ones(X.shape[0])))
        stratum = with_strata(blank, strata, self.strata_)[0]["stratum"]
        risks = map(relative_risk, self._drawn_predictors(X, self._baseline.seed))
        return self._baseline.curves(of, risks, stratum, grid, level)

    def _times(self, times: Any) -> Array:
        if times is None:
            return np.unique(np.concatenate(self._baseline.times))
        try:
            grid = np.atleast_1d(np.asarray(times, float))
        except (TypeError, ValueError):
            grid = np.array([np.nan])
        if grid.ndim != 1 or not np.isfinite(grid).all():
            raise ValueError(f"times is {shown(times)}, but it must be a list of finite numbers.")
        return grid

    def _records(self, X: Any, y: Any, strata: Any) -> Array:
        records = read_survival(y)
        check_consistent_length(X, records)
        return with_strata(records, strata, self.strata_)[0]

    def score(self, X: Matrix, y: Survival, strata: ArrayLike | None = None) -> float:
        """Harrell's concordance index of the predicted log risks.

        Parameters
        ----------
        strata : array-like of shape (n,), optional
            The strata of the rows; pairs are compared within a stratum.

        Returns
        -------
        concordance : float
            The share of comparable pairs in which the earlier event has the higher risk.
        """
        risk = self.predict(X)
        return concordance(self._records(X, y, strata), risk)

    def log_score(self, X: Matrix, y: Survival, strata: ArrayLike | None = None) -> float:
        """Log partial likelihood of new rows for each event, at the predicted log risks.

        Returns
        -------
        log_score : float
            The larger, the better.
        """
        risk, records = self.predict(X), self._records(X, y, strata)
        if not records["event"].any():
            raise ValueError("all rows of y are censored: the partial likelihood needs an event.")
        sets = RiskSets.of(records, np.ones(len(records)), self.ties)
        return -PartialLoss.at(sets, risk).loss / float(sets.deaths.sum())

    def integrated_brier_score(
        self,
        X: Matrix,
        y: Survival,
        times: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ) -> float:
        """Brier score of the survival curves, averaged over time.

        Parameters
        ----------
        times : array-like, optional
            Between which times the score is averaged; by default 50 between the 10 % and the 90 %
            quantile of the times of y.

        Returns
        -------
        score : float
            The smaller, the better. Censoring is weighted by the Kaplan-Meier estimate of the
            training rows.
        """
        X, records = self._checked(X), self._records(X, y, strata)
        low, high = np.quantile(records["stop"], [0.1, 0.9])
        grid = np.linspace(low, high, 50) if times is None else self._times(times)
        curves = self._lines(X, grid, strata, _survival)[:, 0]
        total = brier_scores(records, curves, grid, self._censoring)
        if len(grid) == 1:
            return float(total[0])
        return float(np.trapezoid(total, grid) / (grid[-1] - grid[0]))

    def summary(
        self, level: float = LEVEL, intervals: str = "posterior", exponentiate: bool = False
    ) -> pd.DataFrame:
        """Summarise the coefficients in a table.

        Parameters
        ----------
        exponentiate : bool, default=False
            Hazard ratios in place of their logarithms: ``estimate``, ``median``, ``lower`` and
            ``upper`` are exponentials, and the standard deviation, ``sd_log``, stays that of the
            logarithm.

        Returns
        -------
        table : pandas.DataFrame
            As of :meth:`SoULogisticRegression.summary`.
        """
        table = super().summary(level, intervals)
        if not exponentiate:
            return table
        for name in ("estimate", "median", "lower", "upper"):
            table[name] = np.exp(table[name])
        return table.rename(columns={"sd": "sd_log"})

    def schoenfeld_residuals(
        self,
        X: Matrix,
        y: Survival,
        strata: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        clock: str = "km",
    ) -> Schoenfeld:
        """Compute scaled Schoenfeld residuals of the selected columns in the training rows.

        Parameters
        ----------
        clock : {"km", "rank", "log", "identity"}, default="km"
            The transform of time.

        Returns
        -------
        residuals : Schoenfeld
            ``clock``, the transformed time of every event, and ``scaled``, (events, columns).
        """
        check_choice("clock", clock, CLOCKS)
        X, records = self._checked(X), self._records(X, y, strata)
        weight = np.ones(len(records)) if sample_weight is None else np.asarray(sample_weight)
        keep, point = self._get_support_mask(), self.sparse_
        if not keep.any():
            raise ValueError("no column is selected, so there are no effects to check.")
        inside = as_dense(X[:, np.flatnonzero(keep)]) - self._x_mean[keep]
        sets = RiskSets.of(records, weight.astype(float), self.ties)
        return schoenfeld(sets, inside, point.coef_[keep], clock)

    def check_hazards(
        self,
        X: Matrix,
        y: Survival,
        strata: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        clock: str = "km",
    ) -> pd.DataFrame:
        """Test whether the hazards of the selected columns are proportional in the training rows.

        Parameters
        ----------
        clock : {"km", "rank", "log", "identity"}, default="km"
            The transform of time that residuals are compared with.

        Returns
        -------
        table : pandas.DataFrame
            For each selected column: the ``correlation`` of its scaled Schoenfeld residuals with
            the clock, the ``chi2`` statistic of Grambsch and Therneau (1994) with one degree of
            freedom, and its ``p_value``. A small one says that the effect changes with time.
        """
        residuals = self.schoenfeld_residuals(X, y, strata, sample_weight, clock)
        keep = self._get_support_mask()
        rho, statistic, p_value = time_trends(residuals, self.sparse_.coef_[keep])
        return pd.DataFrame(
            {"correlation": rho, "chi2": statistic, "p_value": p_value},
            index=pd.Index(self._feature_names()[keep], name="feature"),
        )

    def _warn_unconverged(self) -> None:
        """At the end of `fit`, where the risk sets are known."""

    def _warn_separated(self, ordered: bool) -> None:
        """Separated data are the usual reason why a fit does not converge."""
        size = float(np.abs(self.sparse_.coef_ / self._coef_units[0]).max())
        if not ordered and (self.converged_ or size < SEPARATED_EFFECT):
            return super()._warn_unconverged()
        return warn(
            "SoUCoxRegression: a combination of columns orders the times of events, so the partial "
            "likelihood has no maximum and the coefficients are only known to be large. Check that "
            "no column was computed from the times; give these columns a normal prior with "
            "feature_blocks, or raise confidence_coef.",
            ConvergenceWarning,
        )

    def _report_mixtures(self, mixtures: list[Mixture]) -> None:
        super()._report_mixtures(mixtures)
        del self.intercept_, self.intercept_sd_  # a constant changes nothing

    def _target_names(self) -> list[str]:
        return ["y"]


def _ordered(posterior: Posterior, order: Array) -> Posterior:
    """With the columns in this order, in a form from which draws depend on nothing else."""
    moved = posterior.moved(order, np.ones(len(order)))
    if not isinstance(moved, LowRankPosterior) or len(moved.inverse) < len(order):
        return moved  # rows of wide data do not depend on the order of columns
    covariance = np.diag(moved.diagonal) - moved.half.T @ moved.half
    every = np.arange(len(order))
    return Posterior(moved.mean, moved.variance, every, covariance, moved.scale)


def _survival(hazard: Array) -> Array:
    return np.exp(-hazard)


def _log_risk(mixture: Mixture, rows: Array) -> Array:
    return mixture.weights @ mixture.predictors(rows)[0]

"""Reports of a posterior: tables, draws, export to ArviZ, and the explorer page."""

import os
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from soubayes._files import atomic_path
from soubayes._types import DataTree, Matrix, Seed
from soubayes.confidence import check_choice
from soubayes.results import LEVEL, WholeTable, check_level, to_inference_data
from soubayes.sparse.blocks import GroupLabels
from soubayes.sparse.estimators.term_reports import (
    NO_UNITS,
    component_table,
    term_effects,
    term_table,
)
from soubayes.sparse.inclusion.view import Supports
from soubayes.sparse.intervals.estimates import ColumnEstimates
from soubayes.sparse.intervals.fab import fab_intervals
from soubayes.sparse.posterior import Mixture

Array = np.ndarray


class FitReport(NamedTuple):
    """What pages and plots need of a fit beside its attributes.

    Attributes
    ----------
    features : ndarray of shape (p,)
        Names of the columns.
    means : ndarray of shape (p,)
        Means of the columns, at which predictors are centred.
    units : ndarray of shape (targets, p)
        Coefficients of a column of which one standard deviation changes the predictor by one unit.
    targets : list
        Names of the targets or classes.
    single : bool
        Whether attributes of one target are not in a list.
    grouped : bool
        Whether columns share a scale.
    classes : object or None
        The posterior of all classes of a softmax model together.
    """

    features: Array
    means: Array
    units: Array
    targets: list[Any]
    single: bool
    grouped: bool
    classes: Any = None

    def each(self, values: Any) -> list[Any]:
        """An attribute as a list, one entry for each target."""
        return [values] if self.single else list(values)


class PosteriorReports:
    """What an estimator says about its posterior, once it is fitted."""

    mixtures_: list[Mixture]
    selected_: Array
    supports_: Supports
    _single: bool
    _x_mean: Array
    _coef_units: Array
    _unpulled: list[ColumnEstimates] | None  # made of the rows; None: they cannot be

    def _group_labels(self) -> GroupLabels | None:
        raise NotImplementedError

    def _target_names(self) -> list[Any]:
        raise NotImplementedError

    def _feature_names(self) -> Array:
        raise NotImplementedError

    def report(self) -> FitReport:
        """Names, units and shapes of the fit, which pages and plots are made of.

        Returns
        -------
        report : FitReport
            Of the posterior that predictions are made from.
        """
        check_is_fitted(self)
        classes = getattr(self, "_classes", None)
        names, targets = self._feature_names(), self._target_names()
        grouped = self._group_labels() is not None
        return FitReport(
            names, self._x_mean, self._coef_units, targets, self._single, grouped, classes
        )

    def summary(self, level: float = LEVEL, intervals: str = "posterior") -> pd.DataFrame:
        """Summarise the coefficients in a table.

        Parameters
        ----------
        level : float, default=0.9
            Level of the intervals.
        intervals : {"posterior", "frequentist"}, default="posterior"
            ``"frequentist"``: intervals that contain the true coefficient as often as ``level``
            says whatever its size, also a weak one.

        Returns
        -------
        table : pandas.DataFrame
            One row for each column of X: ``estimate`` (the mean, equal to ``coef_``), ``sd``,
            ``median``, ``lower`` and ``upper`` of the posterior that predictions are made from,
            which the header names. ``selected`` says whether the sparse point keeps the column.
            With ``terms`` there is a row for each term: its ``kind`` (absent, straight, curved,
            factor, unit, pair), its coefficient if it has one column, ``effect_sd``, the standard
            deviation of its effect over the rows, ``unit_sd``, that between units, and its
            ``effective`` columns.
            After a fit with ``inclusion=True`` there are also ``inclusion``, the probability that
            the column carries an effect, and ``set``, the number of its credible set (0: in none).
            With ``intervals="frequentist"`` the columns are ``estimate``, which no prior pulls to
            0, its standard error ``se``, ``lower``, ``upper`` and ``selected``; the header says
            how far the coverage is guaranteed. The interval of a column that the data do not
            determine, such as one of two copies, is infinite.

        Notes
        -----
        Intervals are central. They are those of a mixture of Student's t distributions where the
        noise is estimated. They do not include the recalibration of predictions (``inflation_``,
        ``odds_power_``). The sparse point and the supports have summaries of their own:
        ``sparse_.summary()`` and ``supports_.summary()``.

        Frequentist intervals are those of [1]_: of all tests of a value the one whose acceptance is
        least likely under a sparse prior, which is fitted to the other columns. For most columns
        they are shorter than those of least squares, for a few a little longer. They are exact for
        linear regression with normal noise and more rows than columns, hold in large samples for
        likelihoods of rows, and are empirical for p >= n.

        References
        ----------
        .. [1] P. Hoff and C. Yu (2019), "Exact adaptive confidence intervals for linear regression
           coefficients", Electronic Journal of Statistics 13.
        """
        check_is_fitted(self)
        check_level("level", level)
        check_choice("intervals", intervals, ("posterior", "frequentist"))
        if "_inner" in self.__dict__:
            if intervals == "frequentist":
                raise ValueError(
                    "intervals='frequentist' are of columns, but this fit has terms: use the "
                    "posterior's, or fit the columns without terms."
                )
            return term_table(self, level)
        if intervals == "frequentist":
            return self._frequentist(level)
        p, names = len(self._x_mean), self._feature_names()
        ends = np.array([0.5 - level / 2.0, 0.5, 0.5 + level / 2.0])
        frames = []
        for t, mixture in enumerate(self.mixtures_):
            lower, median, upper = mixture.coefficient_quantiles(ends, p)
            frame = pd.DataFrame(
                {
                    "estimate": mixture.mean[:p],
                    "sd": mixture.sd[:p],
                    "median": median,
                    "lower": lower,
                    "upper": upper,
                    "selected": np.atleast_2d(self.selected_)[t],
                },
                index=pd.Index(names, name="feature"),
            )
            if "supports_" in self.__dict__:
                frame["inclusion"] = self.supports_.posteriors[t].probability
                frame["set"] = self.supports_.posteriors[t].set_numbers()
            frames.append(frame)
        chosen = "_sparse_point" in self.__dict__
        given = "sparse point, intervals take its columns as given"
        return self._joined(frames, "full model" if chosen else given)

    def _frequentist(self, level: float) -> pd.DataFrame:
        """ColumnEstimates of all columns, with intervals that cover at every size."""
        frames = []
        for t, given in enumerate(each := self._unpulled_estimates()):
            lower, upper = fab_intervals(given, level)
            frame = pd.DataFrame(
                {"estimate": given.value, "se": given.se, "lower": lower, "upper": upper},
                index=pd.Index(self._feature_names(), name="feature"),
            )
            frame["selected"] = np.atleast_2d(self.selected_)[t]
            frames.append(frame)
        return self._joined(frames, each[0].kind)

    def _joined(self, frames: list[pd.DataFrame], header: str) -> pd.DataFrame:
        """One table of all targets."""
        table = WholeTable(frames[0])
        if not self._single:
            table = WholeTable(pd.concat(frames, keys=self._target_names(), names=["target"]))
        table.columns.name = header
        return table

    def _unpulled_estimates(self) -> list[ColumnEstimates]:
        """Of all columns and every target, which no prior pulls to 0."""
        if (kept := self.__dict__.get("_unpulled")) is not None:
            return list(kept)
        name = type(self).__name__
        raise ValueError(f"this {name} has no frequentist intervals: {self._without_estimates()}.")

    def _without_estimates(self) -> str:
        """Why no such estimates were kept."""
        if "_unpulled" not in self.__dict__:
            return "a sparse point keeps no statistics, so call summary of the fit itself"
        return "they need rows in memory and a likelihood of rows with one predictor"

    @property
    def terms_(self) -> dict[str, pd.DataFrame]:
        """The effects of all terms of the first target, with 90 % bands (`term_effects`)."""
        if "_inner" not in self.__dict__:
            raise AttributeError("there are no terms")  # `__getattr__` says what to do
        return self.term_effects()

    def term_effects(self, level: float = LEVEL, target: int = 0) -> dict[str, pd.DataFrame]:
        """Effects of the terms over the ranges of their columns.

        Parameters
        ----------
        level : float, default=0.9
            Level of the bands.
        target : int, default=0
            Which target, or which class against the rest.

        Returns
        -------
        effects : dict of str to pandas.DataFrame
            Of every term a table: the values of its columns, ``estimate``, ``lower`` and ``upper``
            of its effect on the linear predictor, less its mean over the rows of the fit.

        Notes
        -----
        A band covers the curve at its level on average over x, not at each x. It averages over the
        candidates. In linear regression the band of a term that the sparse point has as a straight
        line also has the curvature that the data do not rule out; elsewhere a curve that all
        candidates dropped has no width. A column called estimate, lower or upper has ``_value``
        behind its name.
        """
        check_is_fitted(self)
        check_level("level", level)
        if "_inner" not in self.__dict__:
            raise ValueError("there are no terms: fit the estimator with terms, such as 'curves'.")
        return term_effects(self, level, target)

    def variance_components(self, level: float = LEVEL, target: int = 0) -> pd.DataFrame:
        """Standard deviations between units and of the noise.

        Parameters
        ----------
        level : float, default=0.9
            Level of the intervals.
        target : int, default=0
            Which target, or which class against the rest.

        Returns
        -------
        table : pandas.DataFrame
            A row for each unit and slope, and one for the noise: ``sd``, ``lower``, ``upper``,
            ``share`` of the variance (for an intercept beside noise the intraclass correlation),
            and ``p_value`` of the hypothesis that there is no variance between units.

        Notes
        -----
        ``sd`` is the estimate by restricted maximum likelihood (REML). In linear regression whose
        other terms are required, intervals are those of the posterior under a flat prior of the
        standard deviation between units, over which predictions are integrated as well. The p-value
        is that of the restricted likelihood ratio, half a chi-squared with one degree of freedom
        and half a point at 0. Elsewhere there are estimates alone (NaN).
        """
        check_is_fitted(self)
        check_level("level", level)
        if "_inner" not in self.__dict__:
            raise ValueError(NO_UNITS)
        return component_table(self, level, target)

    def sample(self, n: int = 1, random_state: Seed = 0) -> dict[str, Array]:
        """Draw from the posterior.

        Parameters
        ----------
        n : int, default=1
            The number of independent draws.
        random_state : int, Generator or None, default=0
            The seed of the draws.

        Returns
        -------
        draws : dict of str to ndarray
            One array for each block; its first axis has length n.
        """
        check_is_fitted(self)
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        return {
            name: np.stack(parts, axis=1) if not self._single else parts[0]
            for name, parts in self._draws(int(n), rng).items()
        }

    def to_arviz(self, draws: int = 1000, random_state: Seed = 0) -> DataTree:
        """Export posterior draws to ArviZ (extra ``plot``).

        Parameters
        ----------
        draws : int, default=1000
            The number of draws.
        random_state : int, Generator or None, default=0
            The seed of the draws.

        Returns
        -------
        data : xarray.DataTree
            The draws as one chain of the group ``posterior``; coefficients have the names of the
            columns as coordinates.
        """
        several = [] if self._single else ["target"]
        dims = {"coef": [*several, "feature"], "intercept": several, "noise_variance": several}
        coords: dict[str, Any] = {"feature": list(map(str, self._feature_names()))}
        if several:
            coords["target"] = list(map(str, self._target_names()))
        arrays = self.sample(draws, random_state)
        return to_inference_data(arrays, coords=coords, dims=dims, model=type(self).__name__)

    def to_html(
        self, path: str | os.PathLike[str], title: str = "", X: Matrix | None = None
    ) -> None:
        """Write the explorer of this fit: one HTML file that needs no server and no network.

        Parameters
        ----------
        path : path-like
            The file to write.
        title : str
            The title of the page; empty: the name of the estimator.
        X : array-like of shape (n, p), optional
            Rows to start from under "What if". The page holds up to 100 of them.

        Notes
        -----
        The page shows the mixture, the sparse point, every point of the path and every candidate:
        coefficients with intervals, a table, and the Python code. Under "What if" it predicts a
        row that is entered. It also has charts of the held-out predictions. Needs Jinja2 (extra
        ``cli``).

        Examples
        --------
        >>> import pathlib, tempfile
        >>> from soubayes import SoULinearRegression
        >>> from soubayes.datasets import experiment1
        >>> data = experiment1(55, 50, 10)
        >>> page = pathlib.Path(tempfile.mkdtemp()) / "page.html"
        >>> SoULinearRegression(choice="path").fit(data.X, data.y).to_html(page)
        >>> page.stat().st_size < 1e6
        True
        """
        from soubayes.pages.explorer import explorer_page

        text = explorer_page(self, title=title, X=X)
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def _draws(self, n: int, rng: np.random.Generator) -> dict[str, list[Array]]:
        """Draws of every block, a list with one array for each target."""
        p = len(self._x_mean)
        draws: dict[str, list[Array]] = {"coef": []}
        for mixture in self.mixtures_:
            whole, noise = mixture.sample(n, rng)
            draws["coef"].append(whole[:, :p])
            if whole.shape[1] > p:
                centre = whole[:, p] - whole[:, :p] @ self._x_mean
                draws.setdefault("intercept", []).append(centre)
            if mixture.noise:
                draws.setdefault("noise_variance", []).append(noise)
        return draws

"""What the sparse estimators share: the contract with scikit-learn and with the reader."""

import os
import warnings
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from soubayes._files import atomic_path
from soubayes._types import DataTree, Seed
from soubayes.confidence import check_gamma, shown
from soubayes.results import to_inference_data
from soubayes.sparse.choice.mixture import Mixture
from soubayes.sparse.posterior import Posterior

Array = np.ndarray


class PathPoints(NamedTuple):
    """The path of one target in the user's units, a row for each point."""

    columns: dict[str, Any]  # name -> a number for each point
    coef: Array  # (points, p) 0 where dropped
    coef_sd: Array  # (points, p) NaN where dropped or not known
    refit_coef: Array | None = None  # (points, p) at confidence 1, if the path chose its point


class SparseEstimator(BaseEstimator):
    """Posterior reports and draws of a fitted sparse model.

    A subclass's fit sets ``posteriors_`` (one `Posterior` of the coefficients a target, in the
    user's units) and ``mixtures_`` (what it predicts from, one component unless confidences were
    chosen by prediction), ``intercept_``, ``intercept_sd_``, ``selected_`` and, for intervals,
    ``_degrees_of_freedom()``. Arrays have a leading target axis only if ``_single`` is False.
    """

    _single: bool
    _x_mean: Array
    posteriors_: list[Posterior]
    mixtures_: list[Mixture]
    selected_: Array

    @property
    def covariance_(self) -> Array:
        """The posterior covariance of all coefficients, p x p (targets x p x p if several).

        Of a mixture: within plus between its components.
        """
        check_is_fitted(self)
        p = len(self.posteriors_[0].mean)
        return self._squeeze([mixture.covariance()[:p, :p] for mixture in self.mixtures_])

    def summary(self, level: float = 0.9) -> pd.DataFrame:
        """Summarise the coefficients in a table.

        Parameters
        ----------
        level : float, default=0.9
            Level of the intervals.

        Returns
        -------
        table : pandas.DataFrame
            One row for each column of X, with ``estimate``, ``sd``, ``lower``, ``upper`` and
            ``selected``. After a fit with ``inclusion=True`` also ``inclusion``, the probability
            that the column carries an effect, and ``set``, the number of its 95 % credible set (0:
            in none).

        Notes
        -----
        Estimates are those of the sparse point, which keeps only the selected columns, also when
        the confidences were chosen by prediction. ``sparsity_`` and ``table.attrs["sparsity"]`` say
        what that costs. Intervals are Student's, with the degrees of freedom of the noise where
        there are any. They take the selection as given, and a dropped coefficient has none (NaN).
        With ``inclusion=True`` they average over supports, and dropped coefficients have them too.
        """
        check_is_fitted(self)
        if not 0.0 < level < 1.0:
            raise ValueError(f"level is {level}, but it must lie between 0 and 1.")
        names = self._feature_names()
        frames = []
        for t, q in enumerate(self.posteriors_):
            selected = np.atleast_2d(self.selected_)[t]
            lower, upper = (np.where(selected, end, np.nan) for end in self._interval(level, t))
            more: dict[str, Array] = {}
            if hasattr(self, "support_posteriors_"):
                supports = self.support_posteriors_[t]
                lower, upper = supports.interval(level)
                more = {"inclusion": supports.probability, "set": supports.set_numbers()}
            frames.append(
                pd.DataFrame(
                    {
                        "estimate": q.mean,
                        "sd": q.sd,
                        "lower": lower,
                        "upper": upper,
                        "selected": selected,
                        **more,
                    },
                    index=pd.Index(names, name="feature"),
                )
            )
        table = frames[0]
        if not self._single:
            table = pd.concat(frames, keys=self._target_names(), names=["target"])
        if hasattr(self, "sparsity_"):
            table.attrs["sparsity"] = self.sparsity_
        return table

    def sample(self, n: int = 1, random_state: Seed = None) -> dict[str, Array]:
        """Draw from the posterior.

        Parameters
        ----------
        n : int, default=1
            The number of independent draws.
        random_state : int, Generator or None, default=None
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

    def to_arviz(self, draws: int = 1000, random_state: Seed = None) -> DataTree:
        """Export posterior draws to ArviZ (extra ``plot``).

        Parameters
        ----------
        draws : int, default=1000
            The number of draws.
        random_state : int, Generator or None, default=None
            The seed of the draws.

        Returns
        -------
        data : xarray.DataTree
            The draws as one chain of the group ``posterior``.
        """
        return to_inference_data(self.sample(draws, random_state), model=type(self).__name__)

    def to_html(self, path: str | os.PathLike[str], title: str = "") -> None:
        """Write the explorer of this fit: one HTML file that needs no server and no network.

        Parameters
        ----------
        path : path-like
            The file to write.
        title : str
            The title of the page; empty: the name of the estimator.

        Notes
        -----
        The page has a slider for the confidence along ``path_``, one for the candidates of a choice
        by prediction, charts of the held-out predictions, a table of the columns that were ever
        selected, and the Python code of every point. Needs Jinja2 (extra ``cli``).

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

        text = explorer_page(self, title=title)
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def _check_numbers(self) -> None:
        """A result that is not finite is an error, never a fit."""
        for name in ("coef_", "coef_sd_", "intercept_", "intercept_sd_", "noise_variance_"):
            if not np.isfinite(getattr(self, name, 0.0)).all():
                raise ValueError(
                    f"{type(self).__name__} found a {name} that is not finite, because the data or "
                    "the weights are too extreme for float64; divide them by constants."
                )

    def _interval(self, level: float, target: int) -> tuple[Array, Array]:
        """The central interval of every coefficient's factor of q, dropped ones too."""
        q = self.posteriors_[target]
        width = stats.t.ppf(0.5 + level / 2.0, self._degrees_of_freedom()[target]) * q.sd
        return q.mean - width, q.mean + width

    def _draws(self, n: int, rng: np.random.Generator) -> dict[str, list[Array]]:
        """Draws of every block, a list with one array a target: a component, then its q."""
        p = len(self.posteriors_[0].mean)
        draws: dict[str, list[Array]] = {"coef": []}
        for mixture in self.mixtures_:
            whole, noise = mixture.sample(n, rng)
            draws["coef"].append(whole[:, :p])
            if whole.shape[1] > p:
                centre = whole[:, p] - whole[:, :p] @ self._x_mean
                draws.setdefault("intercept", []).append(centre)
            if mixture.components[0].noise:
                draws.setdefault("noise_variance", []).append(noise)
        return draws

    def _degrees_of_freedom(self) -> Array:
        """Of the intervals, one a target; infinite if the noise is known."""
        return np.full(len(self.posteriors_), np.inf)

    def _target_names(self) -> list[Any]:
        return list(range(len(self.posteriors_)))

    def _feature_names(self) -> Array:
        names = getattr(self, "feature_names_in_", None)
        return (
            names if names is not None else np.array([f"x{i}" for i in range(self.n_features_in_)])
        )

    def _set_paths(self, paths: list[PathPoints]) -> None:
        """``path_`` and the coefficients along it: frames, or lists of them if several targets."""
        names = pd.Index(self._feature_names().tolist())
        frames: dict[str, list[pd.DataFrame]] = {
            "path_": [pd.DataFrame(path.columns) for path in paths],
            "path_coef_": [pd.DataFrame(path.coef, columns=names) for path in paths],
            "path_coef_sd_": [pd.DataFrame(path.coef_sd, columns=names) for path in paths],
            "path_refit_coef_": [
                pd.DataFrame(path.refit_coef, columns=names)
                for path in paths
                if path.refit_coef is not None
            ],
        }
        for name, found in frames.items():
            self.__dict__.pop(name, None)
            if len(found) == len(paths):
                setattr(self, name, found[0] if self._single else found)

    def _squeeze(self, parts: list[Any]) -> Any:
        """One target: its value; several: an array (or list of dicts) with a target axis."""
        if self._single:
            return parts[0]
        return parts if isinstance(parts[0], dict) else np.stack(parts)


class FeatureSelection(SelectorMixin):
    """``transform`` and ``get_support`` keep the columns selected for any target."""

    def _get_support_mask(self) -> Array:
        check_is_fitted(self)
        return np.any(np.atleast_2d(self.selected_), axis=0)


def check_confidences(estimator: Any, *names: str) -> None:
    """Every named parameter must be a finite confidence above 0."""
    for name in names:
        check_gamma(name.removeprefix("confidence_"), getattr(estimator, name), allow_inf=False)


def check_confidence_coef(value: Any) -> None:
    """The confidence in the coefficients: a finite number above 0, or the word "auto"."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(
                f"confidence_coef is {shown(value)}, but it must be 'auto' or a number greater "
                "than 0."
            )
    else:
        check_gamma("coef", value, allow_inf=False)


def check_positive(estimator: Any, *names: str) -> None:
    """Every named parameter must be a finite number above 0."""
    for name in names:
        value = getattr(estimator, name)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise TypeError(f"{name} is {shown(value)}, but it must be a number greater than 0.")
        if not 0.0 < float(value) < np.inf:
            raise ValueError(f"{name} is {value}, but it must be a number greater than 0.")


def check_choice(name: str, value: Any, allowed: tuple[str | None, ...]) -> None:
    """A parameter that is one of a few words."""
    if value not in allowed:
        raise ValueError(
            f"{name} is {shown(value)}, but it must be one of {', '.join(map(repr, allowed))}."
        )


def chosen_row(gamma: ArrayLike, reported: float) -> Array:
    """Which row of a path is the reported one.

    >>> chosen_row([1.0, 1.5, 2.0], 1.5)
    array([False,  True, False])
    """
    distance = np.abs(np.asarray(gamma, float) - reported)
    return np.arange(len(distance)) == np.argmin(distance)


def set_columns(estimator: Any, count: int, names: Array | None) -> None:
    """What scikit-learn's ``validate_data`` sets, for X that it does not see whole."""
    estimator.n_features_in_ = count
    if names is not None and all(isinstance(name, str) for name in names):
        estimator.feature_names_in_ = names
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def row_slices(X: Any) -> list[slice]:
    """Rows of X in blocks that stay small when they are made dense, however many columns."""
    step = max(1, min(4096, 2**19 // max(X.shape[1], 1)))
    return [slice(begin, begin + step) for begin in range(0, X.shape[0], step)]


def as_dense(X: Any) -> Array:
    """A float64 array of the rows, also of a scipy-sparse X."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, float)


def warn_unconverged(estimator: Any, what: str, advice: str) -> None:
    """The ConvergenceWarning that says what to do."""
    warnings.warn(f"{type(estimator).__name__}: {what}. {advice}", ConvergenceWarning, stacklevel=3)

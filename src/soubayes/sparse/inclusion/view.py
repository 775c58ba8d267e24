"""The posterior over supports as a user sees it: names, tables, one object for all targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from soubayes.results import LEVEL, Printable, Shown, WholeTable, check_level
from soubayes.sparse.constants import PRESENCE, PURITY, SET_LEVEL
from soubayes.sparse.inclusion.supports import CredibleSet, SupportPosterior

Array = np.ndarray


@dataclass(frozen=True, repr=False)
class Supports(Printable):
    r"""The posterior over supports of a fit with ``inclusion=True``.

    Parameters
    ----------
    posteriors : list
        What is known about each target.
    features : ndarray
        Names of the columns.
    targets : list
        Names of the targets.
    single : bool
        Whether there is one target, without an axis of its own.
    groups : list of str, optional
        Names of the groups, if ``feature_groups`` were given.

    Attributes
    ----------
    inclusion : ndarray of shape (p,) or (targets, p)
        Probability of each column to carry an effect; that of its group, if there are groups.
    group_inclusion : ndarray of shape (groups,) or (targets, groups)
        Probability of each group to carry an effect, in the order of ``groups``.
    complete : float or ndarray of shape (targets,)
        Probability that there are no effects beyond those of the credible sets.
    converged : bool
        Whether the probabilities have settled.

    Notes
    -----
    Columns carry effects independently with an unknown probability, and an effect has a normal
    prior of unknown variance. The posterior over which columns carry one is approximated by a
    product of single effects [1]_.

    References
    ----------
    .. [1] G. Wang, A. Sarkar, P. Carbonetto and M. Stephens (2020), "A simple new approach to
       variable selection in regression, with application to genetic fine mapping", Journal of the
       Royal Statistical Society B 82.

    Examples
    --------
    >>> from soubayes import SoULinearRegression
    >>> from soubayes.datasets import experiment1
    >>> data = experiment1(55, 50, 10)
    >>> model = SoULinearRegression(choice="path", inclusion=True).fit(data.X, data.y)
    >>> bool(model.supports_.inclusion[:10].min() > 0.5)
    True
    """

    posteriors: list[SupportPosterior]
    features: Array
    targets: list[Any]
    single: bool
    groups: list[str] | None = None

    @property
    def group_inclusion(self) -> Array:
        """Probability of each group to carry an effect, in the order of ``groups``."""
        if self.groups is None:
            raise AttributeError(
                "there are no groups: pass feature_groups to the estimator, or use inclusion."
            )
        return self._each([one.probability[one.first_of_groups] for one in self.posteriors])

    @property
    def inclusion(self) -> Array:
        """Probability of each column to carry an effect."""
        return self._each([one.probability for one in self.posteriors])

    @property
    def complete(self) -> Any:
        """Probability that there are no effects beyond those of the credible sets."""
        return self._each([one.held for one in self.posteriors])

    @property
    def converged(self) -> bool:
        """Whether the probabilities have settled."""
        return all(one.converged for one in self.posteriors)

    def summary(self, level: float = LEVEL) -> pd.DataFrame:
        """Summarise the coefficients, averaged over supports.

        Parameters
        ----------
        level : float, default=0.9
            Level of the intervals.

        Returns
        -------
        table : pandas.DataFrame
            One row for each column of X: ``estimate`` (the mean), ``sd``, ``median``, ``lower``,
            ``upper``, ``inclusion`` and ``set``. A coefficient is 0 with the probability that its
            column carries no effect, so its mean may lie outside a central interval.
        """
        check_level("level", level)
        ends = np.array([0.5 - level / 2.0, 0.5, 0.5 + level / 2.0])
        frames = []
        for one in self.posteriors:
            lower, median, upper = one.quantiles(ends)
            frames.append(
                pd.DataFrame(
                    {
                        "estimate": one.mean,
                        "sd": one.coefficient_sd,
                        "median": median,
                        "lower": lower,
                        "upper": upper,
                        "inclusion": one.probability,
                        "set": one.set_numbers(),
                    },
                    index=pd.Index(self.features, name="feature"),
                )
            )
        table = self._joined(frames)
        table.columns.name = "supports"
        return table

    def credible_sets(
        self, level: float = SET_LEVEL, *, purity: float = PURITY, presence: float = PRESENCE
    ) -> pd.DataFrame:
        """Sets of columns of which one carries an effect.

        Parameters
        ----------
        level : float, default=0.95
            Probability with which a set holds its effect, given that the effect is there.
        purity : float, default=0.5
            Sets in which two columns have a smaller correlation are left out.
        presence : float, default=0.9
            Effects that are less probable than this have no set, so pure noise has none.

        Returns
        -------
        sets : pandas.DataFrame
            One row for each set: ``features`` (the likeliest first) and their ``weights``;
            ``probability`` that one of them carries the effect; ``purity``; the ``effect`` of one
            standard deviation of the column, averaged over the set, with its interval ``lower`` to
            ``upper`` of this level. If columns are in groups, a set is one of groups, by their
            names, and their correlation is the first canonical one; a group of several columns has
            no single effect (NaN). With several targets the index has
            the target and the number of the set.
        """
        check_level("level", level)
        check_level("presence", presence)
        if not 0.0 <= purity <= 1.0:
            raise ValueError(
                f"purity is {purity}, but it must be between 0 and 1: it is compared with absolute "
                "correlations."
            )
        return self._joined(
            [self._frame(one.credible_sets(level, purity, presence)) for one in self.posteriors]
        )

    def discoveries(self, fdr: float = 0.1) -> Array:
        """Columns with an effect, at a false discovery rate.

        Parameters
        ----------
        fdr : float, default=0.1
            Largest expected share of reported columns without an effect.

        Returns
        -------
        mask : ndarray of bool
            The largest such set of columns, of the shape of ``inclusion``. Groups are found whole,
            and the rate is that of groups.
        """
        check_level("fdr", fdr)
        return self._each([one.discoveries(fdr) for one in self.posteriors])

    def _frame(self, found: Sequence[CredibleSet]) -> pd.DataFrame:
        rows = [
            {
                "features": self._members(one),
                "weights": one.weights.round(4).tolist(),
                "probability": one.probability,
                "purity": one.purity,
                "effect": one.effect,
                "lower": one.lower,
                "upper": one.upper,
            }
            for one in found
        ]
        index = pd.RangeIndex(1, len(found) + 1, name="set")
        return pd.DataFrame(rows, columns=list(_SET_COLUMNS), index=index)

    def _members(self, one: CredibleSet) -> list[str]:
        """The columns of a set, or its groups."""
        if one.groups is not None and self.groups is not None:
            return [self.groups[g] for g in one.groups]
        return [str(name) for name in self.features[one.columns]]

    def _each(self, values: Sequence[Any]) -> Any:
        return values[0] if self.single else np.stack(values)

    def _joined(self, frames: list[pd.DataFrame]) -> pd.DataFrame:
        if len(frames) == 1:
            return WholeTable(frames[0])
        return WholeTable(pd.concat(frames, keys=self.targets, names=["target"]))

    def _shown(self) -> Shown:
        sets = self.credible_sets().drop(columns="weights").reset_index()
        count = f"{len(self.features)} columns, {len(sets)} credible sets"
        return [f"Supports({count})", *([sets] if len(sets) else []), self.summary().reset_index()]


_SET_COLUMNS = ("features", "weights", "probability", "purity", "effect", "lower", "upper")

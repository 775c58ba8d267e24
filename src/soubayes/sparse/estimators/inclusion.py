"""Which columns carry an effect: the reports of an estimator that was fitted with inclusion."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from soubayes.sparse.estimators.base import SparseEstimator, warn_unconverged
from soubayes.sparse.inclusion.supports import SupportPosterior

Array = np.ndarray


class InclusionReports(SparseEstimator):
    """Credible sets and discoveries from the posterior over supports of every target.

    A subclass's fit calls `_set_supports` if its parameter ``inclusion`` is True.
    """

    support_posteriors_: list[SupportPosterior]

    def credible_sets(
        self, level: float = 0.95, *, purity: float = 0.5, presence: float = 0.9
    ) -> pd.DataFrame:
        """Sets of columns of which one carries an effect.

        Parameters
        ----------
        level : float, default=0.95
            Probability with which a set holds its effect, given that the effect is there.
        purity : float, default=0.5
            Sets in which two columns have a smaller correlation are left out.
        presence : float, default=0.9
            Effects that are less probable than this have no set, so that pure noise has none.

        Returns
        -------
        sets : pandas.DataFrame
            One row for each set: ``features`` (the likeliest first) and their ``weights``;
            ``probability`` that one of them carries the effect; ``purity``; the ``effect`` of one
            standard deviation of the column, averaged over the set, with its interval ``lower`` to
            ``upper`` of this level. With several targets the index has the target and the number of
            the set.
        """
        posteriors = self._supports()
        check_level("level", level)
        check_level("presence", presence)
        if not 0.0 <= purity <= 1.0:
            raise ValueError(f"purity is {purity}, but a correlation lies in [0, 1], signs apart.")
        names = self._feature_names()
        frames = [
            pd.DataFrame(
                [
                    {
                        "features": [str(name) for name in names[one.columns]],
                        "weights": one.weights.round(4).tolist(),
                        "probability": one.probability,
                        "purity": one.purity,
                        "effect": one.effect,
                        "lower": one.lower,
                        "upper": one.upper,
                    }
                    for one in found
                ],
                columns=list(_SET_COLUMNS),
                index=pd.RangeIndex(1, len(found) + 1, name="set"),
            )
            for found in (each.credible_sets(level, purity, presence) for each in posteriors)
        ]
        if len(frames) == 1:
            return frames[0]
        return pd.concat(frames, keys=self._target_names(), names=["target"])

    def discoveries(self, fdr: float = 0.1) -> Array:
        """Columns with an effect, at a false discovery rate.

        Parameters
        ----------
        fdr : float, default=0.1
            Largest expected share of reported columns without an effect.

        Returns
        -------
        mask : ndarray of bool
            The largest such set of columns, of the shape of ``inclusion_``.
        """
        posteriors = self._supports()
        check_level("fdr", fdr)
        found = np.stack([each.discoveries(fdr) for each in posteriors])
        return found.reshape(self.inclusion_.shape)

    def _supports(self) -> list[SupportPosterior]:
        check_is_fitted(self)
        if not hasattr(self, "support_posteriors_"):
            raise AttributeError(
                f"this {type(self).__name__} has no posterior over supports; fit it with "
                "inclusion=True."
            )
        return self.support_posteriors_

    def _set_supports(self, posteriors: Sequence[SupportPosterior]) -> None:
        self.support_posteriors_ = list(posteriors)
        probability = np.stack([each.probability for each in posteriors])
        self.inclusion_ = self._as_reported(probability)
        self.mass_held_ = self._as_reported(np.array([each.held for each in posteriors]))
        if not all(each.converged for each in posteriors):
            warn_unconverged(
                self,
                "the posterior over supports did not settle",
                "Its probabilities may still be off by more than 0.001.",
            )

    def _as_reported(self, values: Array) -> Any:
        """A number or array a target, shaped as this estimator reports them."""
        return values[0] if self._single else values

    def _forget_supports(self) -> None:
        for name in ("support_posteriors_", "inclusion_", "mass_held_"):
            self.__dict__.pop(name, None)


_SET_COLUMNS = ("features", "weights", "probability", "purity", "effect", "lower", "upper")


def check_level(name: str, value: float) -> None:
    """A probability between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} is {value}, but it must lie between 0 and 1.")

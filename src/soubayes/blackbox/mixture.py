"""Posteriors at several confidences, mixed by how well each predicts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from soubayes._types import DataTree, Number, Seed
from soubayes.blackbox.posterior import SoUPosterior
from soubayes.results import coordinates, printed, to_inference_data


@dataclass(frozen=True, repr=False)
class MixturePosterior:
    """Fits of one model at several confidences, with weights.

    Parameters
    ----------
    weights : ndarray
        Weights of the components.
    components : tuple of SoUPosterior
        The fits.

    See Also
    --------
    select_confidence : Makes it with ``rule="mixture"``.

    Notes
    -----
    A mixture minimises no J, so that value and KLs belong to its components. A variance is the one
    within the components plus the one between their means. The weights are powers of what the
    components give to held-out rows, as in [1]_.

    References
    ----------
    .. [1] Y. Yao, A. Vehtari, D. Simpson and A. Gelman (2018), "Using stacking to average Bayesian
       predictive distributions", Bayesian Analysis 13.

    Examples
    --------
    >>> from soubayes import MixturePosterior
    >>> MixturePosterior.sample.__name__
    'sample'
    """

    weights: np.ndarray
    components: tuple[SoUPosterior, ...]

    def mean(self, name: str) -> Number:
        """Posterior mean of a site.

        Parameters
        ----------
        name : str
            The site.

        Returns
        -------
        mean : float or ndarray
            An array of the shape of the site.
        """
        return self._average(lambda each: each.mean(name))

    def sd(self, name: str) -> Number:
        """Posterior standard deviation of a site, coordinate by coordinate.

        Parameters
        ----------
        name : str
            The site.

        Returns
        -------
        sd : float or ndarray
            An array of the shape of the site.
        """
        mean = self.mean(name)
        return np.sqrt(
            self._average(lambda each: each.sd(name) ** 2 + (each.mean(name) - mean) ** 2)
        )

    def quantile(self, name: str, p: ArrayLike) -> Number:
        """Posterior quantiles of a site, coordinate by coordinate.

        Parameters
        ----------
        name : str
            The site.
        p : float or array-like
            Probabilities between 0 and 1.

        Returns
        -------
        quantile : float or ndarray
            The quantiles on the first axes, the coordinates of the site on the last.
        """
        parts = [each._values(name) for each in self.components]
        share = [np.full(len(x), w / len(x)) for x, w in zip(parts, self.weights, strict=True)]
        return np.quantile(
            np.concatenate(parts),
            np.asarray(p, float),
            axis=0,
            weights=np.concatenate(share),
            method="inverted_cdf",
        )

    def sample(self, n: int, random_state: Seed = 0) -> dict[str, np.ndarray]:
        """Draw from the mixture: a component, then one of its draws.

        Parameters
        ----------
        n : int
            The number of draws.
        random_state : int or Generator, default=0
            The seed.

        Returns
        -------
        draws : dict of str to ndarray
            Draws of every site.
        """
        return self._drawn(n, random_state, lambda each, m: each.sample(m, random_state))

    def predictive(
        self, *args: Any, n: int = 1000, random_state: Seed = 0, **kwargs: Any
    ) -> dict[str, np.ndarray]:
        """Draw from the posterior predictive distribution.

        Parameters
        ----------
        *args : object
            Arguments of the model, with None where the observed values were.
        n : int, default=1000
            The number of draws.
        random_state : int or Generator, default=0
            The seed.
        **kwargs : object
            Keyword arguments of the model.

        Returns
        -------
        draws : dict of str to ndarray
            Draws of every site that the model samples.
        """
        return self._drawn(
            n,
            random_state,
            lambda each, m: each.predictive(*args, n=m, random_state=random_state, **kwargs),
        )

    def to_arviz(self, draws: int = 1000, random_state: Seed = 0) -> DataTree:
        """Export draws to ArviZ (extra ``plot``).

        Parameters
        ----------
        draws : int, default=1000
            The number of draws.
        random_state : int or Generator, default=0
            The seed.

        Returns
        -------
        data : xarray.DataTree
            The draws as one chain of the group ``posterior``.
        """
        return to_inference_data(self.sample(draws, random_state), engine="MixturePosterior")

    def summary(self) -> pd.DataFrame:
        """Summarise the mixture in a table.

        Returns
        -------
        table : pandas.DataFrame
            One row for each coordinate: mean, sd, central 90 % interval.
        """
        rows = []
        for name, values in self.components[0].draws.items():
            low, high = np.reshape(self.quantile(name, [0.05, 0.95]), (2, -1))
            parts = zip(np.ravel(self.mean(name)), np.ravel(self.sd(name)), low, high, strict=True)
            labels = coordinates(name, values.shape[1:])
            rows += [(label, *part) for label, part in zip(labels, parts, strict=True)]
        titles = ("quantity", "mean", "sd", "lower", "upper")
        return pd.DataFrame(rows, columns=list(titles))

    def __repr__(self) -> str:
        points = zip(self.weights, self.components, strict=True)
        head = ", ".join(f"{w:.2f} of {each.confidence}" for w, each in points)
        return f"MixturePosterior({head})\n{printed(self.summary())}"

    def _average(self, of: Callable[[SoUPosterior], Any]) -> Any:
        return sum(w * of(each) for w, each in zip(self.weights, self.components, strict=True))

    def _drawn(self, n: int, random_state: Seed, draw: Callable) -> dict[str, np.ndarray]:
        if n < 1:
            raise ValueError(f"n is {n}, but it must be at least 1.")
        rng = np.random.default_rng(random_state)
        chosen = rng.choice(len(self.weights), size=n, p=self.weights)
        counts = np.bincount(chosen, minlength=len(self.weights))
        parts = [draw(each, int(m)) for each, m in zip(self.components, counts, strict=True) if m]
        order = rng.permutation(n)
        return {name: np.concatenate([p[name] for p in parts])[order] for name in parts[0]}

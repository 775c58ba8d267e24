"""Posteriors at several confidences, mixed by how well each predicts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from soubayes._docstrings import fill_docstrings
from soubayes._types import Seed
from soubayes.blackbox.arguments import ARGUMENTS
from soubayes.blackbox.posterior import SoUPosterior
from soubayes.results import Shown
from soubayes.weighted import WeightedDraws


@fill_docstrings(ARGUMENTS)
@dataclass(frozen=True, repr=False)
class MixturePosterior(WeightedDraws):
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
    A mixture does not minimise J, so value and KLs belong to its components. A variance is the one
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

    def sample(self, n: int, random_state: Seed = 0) -> dict[str, np.ndarray]:
        """Draw from the mixture: a component, then one of its draws."""
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

    def _shown(self) -> Shown:
        points = zip(self.weights, self.components, strict=True)
        head = ", ".join(f"{w:.2f} of {each.confidence}" for w, each in points)
        return [f"MixturePosterior({head})", self.summary()]

    def _weighted(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        parts = [each._values(name) for each in self.components]
        shares = [np.full(len(x), w / len(x)) for x, w in zip(parts, self.weights, strict=True)]
        return np.concatenate(parts), np.concatenate(shares)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: values.shape[1:] for name, values in self.components[0].draws.items()}

    def _drawn(self, n: int, random_state: Seed, draw: Callable) -> dict[str, np.ndarray]:
        if n < 1:
            raise ValueError(f"n is {n}, but it must be at least 1.")
        rng = np.random.default_rng(random_state)
        chosen = rng.choice(len(self.weights), size=n, p=self.weights)
        counts = np.bincount(chosen, minlength=len(self.weights))
        parts = [draw(each, int(m)) for each, m in zip(self.components, counts, strict=True) if m]
        order = rng.permutation(n)
        return {name: np.concatenate([p[name] for p in parts])[order] for name in parts[0]}

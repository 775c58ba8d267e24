"""Posteriors as a function of the confidences: ranges, tables and the page with sliders."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from soubayes._docstrings import fill_docstrings
from soubayes._files import atomic_path
from soubayes.confidence import check_gamma, check_mapping
from soubayes.results import Printable, Shown, coordinates

FAMILY_POINTS = 9  # of a range, for tables and choices


class Look(NamedTuple):
    """What a family says at one set of confidences."""

    posterior: Any  # with mean, sd, quantile
    value: float
    kl: dict[str, float]
    verdict: str


@fill_docstrings()
@dataclass(frozen=True, repr=False)
class ConfidenceFamily(Printable, ABC):
    """What families of posteriors share.

    Parameters
    ----------
    ranges : dict of str to tuple of float
        The range of the confidence of each block that has one.
    confidence : dict of str to float
        The confidence of every block; the middle of the range for blocks that have one.
    """

    ranges: dict[str, tuple[float, float]]
    confidence: dict[str, float]

    def _shown(self) -> Shown:
        words = ", ".join(f"{b} in [{low:g}, {high:g}]" for b, (low, high) in self.ranges.items())
        return [f"{type(self).__name__}({words})"]

    @abstractmethod
    def at(self, confidence: Mapping[str, float] | None = None) -> Any:
        """The posterior at one set of confidences.

        Parameters
        ----------
        confidence : mapping of str to float, optional
            Confidences inside the ranges. A block that is not named has confidence 1 if that lies
            in its range, and the middle of the range otherwise.
        """

    @abstractmethod
    def _look(self, gammas: dict[str, float]) -> Look | None:
        """The posterior at confidences of all blocks; None where it is not known."""

    @abstractmethod
    def _weighted(self, posterior: Any, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Draws of a quantity, (draw, ...), and their weights."""

    @abstractmethod
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every quantity."""

    def path(self, name: str, points: int | Sequence[float] = FAMILY_POINTS) -> pd.DataFrame:
        """Follow the confidence of one block through its range.

        Parameters
        ----------
        name : str
            The block.
        points : int or sequence of float, default=9
            The confidences, or how many, evenly spaced in the logarithm.

        Returns
        -------
        table : pandas.DataFrame
            A row for each confidence: the verdict, value, KL of each block, and mean, sd and
            central 90 % interval of each quantity.
        """
        if name not in self.ranges:
            raise ValueError(f"no range for {name!r}; the ranges are {list(self.ranges)}.")
        rows = []
        for gamma in range_points(self.ranges[name], points):
            look = self._look(self._inside({name: gamma}))
            row: dict[str, Any] = {"confidence": gamma}
            if look is not None:
                row |= {"verdict": look.verdict, "value": look.value}
                row |= {f"kl_{block}": kl for block, kl in look.kl.items()}
                for site, shape in self._shapes().items():
                    low, high = (look.posterior.quantile(site, p) for p in (0.05, 0.95))
                    parts = {"mean": look.posterior.mean(site), "sd": look.posterior.sd(site)}
                    for title, numbers in {**parts, "lower": low, "upper": high}.items():
                        labels = coordinates(f"{title}_{site}", shape)
                        row |= dict(zip(labels, np.ravel(numbers), strict=True))
            rows.append(row)
        return pd.DataFrame(rows)

    def to_html(
        self,
        path: str | os.PathLike[str],
        quantities: Sequence[str] | None = None,
        title: str = "",
    ) -> None:
        """Write a page with a slider for each confidence that has a range (extra ``cli``).

        Parameters
        ----------
        path : str or path-like
            The file. It needs no other file and no network.
        quantities : sequence of str, optional
            What to show: names of sites, or of their coordinates such as ``"theta[0]"``. By default
            the first 24 coordinates.
        title : str, default=""
            The title of the page.
        """
        from soubayes.pages.confidences import confidences_page

        page = confidences_page(self, quantities, title)
        with atomic_path(path) as temporary:
            temporary.write_text(page, encoding="utf-8")

    def _inside(self, given: Mapping[str, float]) -> dict[str, float]:
        """The confidences of all blocks: 1 where nothing is given and 1 is in the range."""
        gammas = dict(self.confidence)
        for block, (low, high) in self.ranges.items():
            gammas[block] = 1.0 if low <= 1.0 <= high else gammas[block]
        for block, gamma in (check_mapping(given) or {}).items():
            if block not in gammas:
                raise ValueError(f"no block {block!r}; the blocks are {list(gammas)}.")
            low, high = self.ranges.get(block, (gammas[block],) * 2)
            if not low * (1 - 1e-9) <= check_gamma(block, gamma) <= high * (1 + 1e-9):
                covers = f"covers [{low:g}, {high:g}]. Give a wider range"
                if block not in self.ranges:
                    covers = f"holds it at {low:g}. Give it a range"
                raise ValueError(
                    f"confidence of {block!r} is {gamma}, but the family {covers}, or use "
                    "soubayes.fit."
                )
            gammas[block] = float(gamma)
        return gammas


def range_points(limits: tuple[float, float], points: int | Sequence[float]) -> list[float]:
    """Confidences of a range, evenly spaced in the logarithm, or those that were given."""
    if not isinstance(points, int):
        return [float(x) for x in points]
    if points < 1:
        raise ValueError(f"points is {points}, but it must be at least 1.")
    return [float(x) for x in np.geomspace(*limits, points)]


def check_ranges(confidence: Any, instead: str) -> dict[str, tuple[float, float]]:
    """The ranges among what was given for confidences; ``instead`` is for numbers alone."""
    check_mapping(confidence)
    ranges = {}
    for block, given in (confidence or {}).items():
        if np.ndim(given) == 0:
            check_gamma(block, given, allow_inf=False)
            continue
        real = len(given) == 2 and all(isinstance(x, Real) for x in given)
        ends = [float(x) for x in given] if real else [0.0, 0.0]
        if not 0 < ends[0] < ends[1] < np.inf:
            raise ValueError(
                f"range of {block!r} is {tuple(given)}, but it must be (low, high) with 0 < low < "
                "high and both finite."
            )
        ranges[block] = (ends[0], ends[1])
    if not ranges:
        raise ValueError(
            f"confidence is {confidence}, but a family needs a range (low, high) for at least one "
            f"block. For single numbers use {instead}."
        )
    return ranges


def middle_of(
    confidence: Mapping[str, Any], ranges: Mapping[str, tuple[float, float]]
) -> dict[str, float]:
    """The given confidences, with the middle of every range."""
    return {**confidence, **{b: float(np.sqrt(low * high)) for b, (low, high) in ranges.items()}}

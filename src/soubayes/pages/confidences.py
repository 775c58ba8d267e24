"""The page of a family of posteriors: a slider for each confidence, and what moves with it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from soubayes.families import ConfidenceFamily, Look
from soubayes.pages import number, render
from soubayes.results import coordinates

POINTS = (25, 11, 6, 4)  # of each range, for one to four of them
STOPS = 80  # of a slider
MOST_SHOWN = 24  # quantities, unless they are named
MOST_BYTES = 2_000_000
PLACES_CHECKED = 8  # places between the points of the grid where the interpolation is compared
Z = np.linspace(-2.8, 2.8, 41)  # normal scores of the quantiles by which a marginal is drawn
FEW_DRAWS = 5  # at each end, whose quantiles are not used
SMOOTH = 0.25  # bandwidth of these quantiles, in normal scores


class Numbers(NamedTuple):
    """What the page shows at one set of confidences; the quantities are rows."""

    value: float
    kl: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    curve: np.ndarray  # quantiles at the scores Z
    verdict: str


def confidences_page(
    family: ConfidenceFamily, quantities: Sequence[str] | None, title: str = ""
) -> str:
    """The page as one HTML file."""
    if len(family.ranges) > len(POINTS):
        raise ValueError(
            f"the family has ranges for {list(family.ranges)}, and a page has room for "
            f"{len(POINTS)} sliders. Make a family with fewer ranges."
        )
    wanted, left = _wanted(family._shapes(), quantities)
    axes = [_axis(limits, POINTS[len(family.ranges) - 1]) for limits in family.ranges.values()]
    start = family._inside({})
    places = [dict(zip(family.ranges, place, strict=True)) for place in product(*axes)]
    found = [_numbers(family, family._look(family._inside(place)), wanted) for place in places]
    reference = _numbers(family, family._look(start), wanted)
    if reference is None:
        raise ValueError(f"the family has no posterior at {start}, so there is nothing to show.")
    blocks = list(start)
    data = {
        "blocks": blocks,
        "sliders": [
            {"block": b, "grid": _rounded(np.log(axis)), "stops": _stops(limits, start[b])}
            for (b, limits), axis in zip(family.ranges.items(), axes, strict=True)
        ],
        "start": {block: number(gamma) for block, gamma in start.items()},
        "is_bayes": set(start.values()) == {1.0},
        "quantities": [label for label, _, _ in wanted],
        "scores": _rounded(Z, 4),
        "places": [_shown(each) for each in found],
        "reference": _shown(reference),
        "relative": reference.verdict == "",  # of draws the value is known up to its value there
    }
    checks = _interpolation_error(family, axes, found, wanted)
    page = render(
        "confidences.html",
        "to_html",
        title=title or "The posterior as a function of the confidences",
        data=data,
        from_draws=reference.verdict == "",
        grid_size=len(places),
        left_out=left,
        checks=checks,
    )
    if len(page.encode()) > MOST_BYTES:
        raise ValueError(
            f"the page would have {len(page.encode()) / 1e6:.1f} MB with {len(wanted)} quantities, "
            f"more than {MOST_BYTES / 1e6:.0f}. Name fewer with quantities=."
        )
    return page


def _wanted(
    shapes: Mapping[str, tuple[int, ...]], quantities: Sequence[str] | None
) -> tuple[list[tuple[str, str, int]], int]:
    """Label, site and coordinate of everything to show, and how many are left out."""
    every = [
        (label, name, i)
        for name, shape in shapes.items()
        for i, label in enumerate(coordinates(name, shape))
    ]
    if quantities is None:
        return every[:MOST_SHOWN], max(0, len(every) - MOST_SHOWN)
    names = [quantities] if isinstance(quantities, str) else list(quantities)
    chosen = []
    for wanted in names:
        own = [each for each in every if wanted in each[:2]]
        if not own:
            raise ValueError(f"no quantity {wanted!r}; there are {list(shapes)}.")
        chosen += [each for each in own if each not in chosen]
    if not chosen:
        raise ValueError("quantities is empty; name one, or leave it out.")
    return chosen, 0


def _axis(limits: tuple[float, float], count: int) -> np.ndarray:
    """Points of a range, evenly spaced in the logarithm, with 1 among them if it is inside."""
    axis = np.geomspace(*limits, count)
    if limits[0] < 1.0 < limits[1]:
        nearest = int(np.argmin(abs(np.log(axis[1:-1])))) + 1
        axis[nearest] = 1.0
    return axis


def _stops(limits: tuple[float, float], start: float) -> list[float | None]:
    """Positions of a slider, the start among them."""
    return _rounded(np.unique(np.append(np.geomspace(*limits, STOPS), start)), 6)


def _numbers(
    family: ConfidenceFamily, look: Look | None, wanted: Sequence[tuple[str, str, int]]
) -> Numbers | None:
    if look is None:
        return None
    draws: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    mean, sd, curve = [], [], []
    for _, name, i in wanted:
        if name not in draws:
            values, weights = family._weighted(look.posterior, name)
            draws[name] = values.reshape(len(values), -1).astype(float), weights
        x, weights = draws[name][0][:, i], draws[name][1]
        centre = weights @ x
        mean.append(centre)
        sd.append(np.sqrt(weights @ (x - centre) ** 2))
        curve.append(smooth_quantiles(x, weights))
    kl = np.array([look.kl[block] for block in family.confidence])
    return Numbers(look.value, kl, np.array(mean), np.array(sd), np.array(curve), look.verdict)


def smooth_quantiles(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Quantiles of weighted draws at the normal scores Z, smoothed over the scores.

    A quantile is a linear function of the score where the draws are normal, so smoothing them has
    less bias than smoothing a density.

    >>> normal = norm.ppf((np.arange(4000) + 0.5) / 4000)
    >>> bool(np.max(abs(smooth_quantiles(normal, np.full(4000, 1 / 4000)) - Z)) < 0.05)
    True
    """
    order = np.argsort(x)
    below = np.cumsum(weights[order]) - 0.5 * weights[order]
    fine = np.linspace(Z[0] - 1, Z[-1] + 1, 400)
    q = np.interp(norm.cdf(fine), below, x[order])
    # beyond the scores of the outermost draws the line goes on
    near = (fine > norm.ppf(below[FEW_DRAWS])) & (fine < norm.ppf(below[-FEW_DRAWS]))
    kernel = np.exp(-0.5 * ((Z[:, None] - fine[near]) / SMOOTH) ** 2)
    # a local line: no bias at the ends
    centred = fine[near] - Z[:, None]
    s0, s1, s2 = ((kernel * centred**p).sum(axis=1) for p in range(3))
    smooth = (kernel * (s2[:, None] - s1[:, None] * centred)) @ q[near] / (s0 * s2 - s1**2)
    return np.maximum.accumulate(smooth)


def _interpolation_error(
    family: ConfidenceFamily,
    axes: Sequence[np.ndarray],
    found: Sequence[Numbers | None],
    wanted: Sequence[tuple[str, str, int]],
) -> dict[str, float] | None:
    """The largest differences to posteriors at places between the points; None without any."""
    rng = np.random.default_rng(0)
    worst = {"places": 0.0, "mean": 0.0, "sd": 0.0, "kl": 0.0, "value": 0.0}
    for _ in range(PLACES_CHECKED):
        logs = np.array([rng.uniform(np.log(axis[0]), np.log(axis[-1])) for axis in axes])
        place = dict(zip(family.ranges, np.exp(logs), strict=True))
        direct = _numbers(family, family._look(family._inside(place)), wanted)
        between = interpolated(axes, found, logs)
        if direct is None or between is None:
            continue
        worst["places"] += 1
        gaps = {
            "mean": np.max(abs(between.mean - direct.mean) / direct.sd),
            "sd": np.max(abs(between.sd / direct.sd - 1)),
            "kl": np.nanmax(abs(between.kl - direct.kl), initial=0.0),
            "value": abs(between.value - direct.value),
        }
        worst = {name: max(gaps.get(name, 0.0), largest) for name, largest in worst.items()}
    return {name: float(gap) for name, gap in worst.items()} if worst["places"] else None


def interpolated(
    axes: Sequence[np.ndarray], found: Sequence[Numbers | None], logs: np.ndarray
) -> Numbers | None:
    """The numbers at log confidences, as the page computes them; None where a corner is missing.

    Linear in the log confidences, of positive sds and KLs the logarithm.
    """
    corners = [(found[index], weight) for index, weight in _corners(axes, logs) if weight > 0]
    known = [(each, weight) for each, weight in corners if each is not None]
    if len(known) < len(corners):
        return None

    def mixed(name: str) -> Any:
        return sum(weight * getattr(each, name) for each, weight in known)

    def scaled(name: str) -> Any:
        parts = np.stack([getattr(each, name) for each, _ in known])
        weights = np.array([weight for _, weight in known])
        with np.errstate(all="ignore"):
            logged = np.exp(weights @ np.log(parts))
        return np.where(np.all(parts > 0, axis=0), logged, weights @ parts)

    return Numbers(
        mixed("value"),
        scaled("kl"),
        mixed("mean"),
        scaled("sd"),
        mixed("curve"),
        known[0][0].verdict,
    )


def _corners(axes: Sequence[np.ndarray], logs: np.ndarray) -> Iterator[tuple[int, float]]:
    """Index and weight of the corners of the cell that holds a place."""
    sides = []
    for axis, x in zip(axes, logs, strict=True):
        places = np.log(axis)
        k = int(np.clip(np.searchsorted(places, x) - 1, 0, len(axis) - 2))
        share = float(np.clip((x - places[k]) / (places[k + 1] - places[k]), 0.0, 1.0))
        sides.append(((k, 1 - share), (k + 1, share)))
    shape = tuple(len(axis) for axis in axes)
    for corner in product(*sides):
        index = int(np.ravel_multi_index(tuple(k for k, _ in corner), shape))
        yield index, float(np.prod([weight for _, weight in corner]))


def _shown(numbers: Numbers | None) -> dict[str, Any] | None:
    if numbers is None:
        return None
    return {
        "value": number(numbers.value),
        "kl": _rounded(numbers.kl, 5),
        "mean": _rounded(numbers.mean, 5),
        "sd": _rounded(numbers.sd, 5),
        "curve": [_rounded(row, 4) for row in numbers.curve],
        "verdict": numbers.verdict,
    }


def _rounded(values: Any, digits: int = 9) -> list[float | None]:
    found = [number(float(value)) for value in np.asarray(values, float)]
    return [x if x is None else float(f"{x:.{digits}g}") for x in found]

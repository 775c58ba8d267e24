"""Nodes for many one-dimensional integrals at once, placed where each integrand has its mass.

Every row is an integral of exp(g) over a line coordinate y. ``place_nodes`` scans the line,
narrows in on the mass (which may be 1e-6 of the prior's width when a confidence is tiny), lays a
trapezoid rule on a stretched coordinate y = centre + width * sinh(t), halves its step until
the integral stops changing, and hands rows that converge slowly (kinks, jumps, far modes) to
adaptive Gauss-Kronrod panels.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np

# (rows, y of shape (rows, m)) -> g and the value V at these points, both (rows, m)
Evaluate = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


class Nodes(NamedTuple):
    """Flat quadrature nodes sorted by row and position, and what is known about every row."""

    row: np.ndarray
    y: np.ndarray
    log_step: np.ndarray  # log quadrature weight in y
    value: np.ndarray
    error: np.ndarray  # (rows,) estimated relative error where the tolerance was not reached
    at_edge: np.ndarray  # (rows,) mass reaches the end of the searched line
    empty: np.ndarray  # (rows,) no mass was found


class Line(NamedTuple):
    """Where to search in every row: a centre, a scale, and the ends of the line."""

    centre: np.ndarray
    scale: np.ndarray
    low: np.ndarray | float
    high: np.ndarray | float


FIRST_NODES = 33  # 8 divides FIRST_NODES - 1: coarser rules are subsets
MOST_NODES = 129
MOST_ROUNDS = 60


def place_nodes(
    evaluate: Evaluate, line: Line, tolerance: float, noise: float = 0.0, scan: int = 33
) -> Nodes:
    """Nodes and weights that integrate exp(g) in every row to a relative ``tolerance``.

    Rounding in V moves g by about ``noise * |V|``, and rounding of the nodes themselves moves it
    by their spacing over the width of the mass; no row is asked for more than that allows.
    """
    depth = 12.0 - np.log(tolerance)  # points this far below the peak carry no mass that matters
    found = locate(evaluate, line, depth, noise, scan)
    rows = np.flatnonzero(~found.empty)
    error = np.zeros(len(found.empty))
    parts = []
    if len(rows):
        goal = np.maximum(tolerance, 512 * np.spacing(np.abs(found.centre)) / found.width)
        smooth, rough = trapezoid(evaluate, found, rows, depth, goal, noise)
        parts += smooth
        if len(rough):
            parts.append(panels(evaluate, found, rough, goal, noise, error))
    dead = np.flatnonzero(found.empty)
    if len(dead):  # one node without weight keeps the tree regular
        nothing = np.full(len(dead), -np.inf)
        parts.append((dead, found.centre[dead], nothing, np.full(len(dead), np.inf)))
    row, y, log_step, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((y, row))
    return Nodes(
        row[order], y[order], log_step[order], value[order], error, found.at_edge, found.empty
    )


class Located(NamedTuple):
    """The stretch of line with mass in every row."""

    centre: np.ndarray
    width: np.ndarray
    low: np.ndarray  # where g should have fallen by ``depth``
    high: np.ndarray
    lowest: np.ndarray  # where it certainly has
    highest: np.ndarray
    at_edge: np.ndarray
    empty: np.ndarray


def locate(evaluate: Evaluate, line: Line, depth: float, noise: float, scan: int) -> Located:
    """Scan, then zoom until several points lie within ``depth`` of the peak of g."""
    count = len(line.centre)
    reach = 14.0  # sinh(14) = 6e5 scales either side
    end = np.clip(
        line.centre[:, None] + line.scale[:, None] * np.sinh(np.array([-reach, reach])),
        np.broadcast_to(line.low, count)[:, None],
        np.broadcast_to(line.high, count)[:, None],
    )
    ends = np.arcsinh((end - line.centre[:, None]) / line.scale[:, None])
    fractions = np.linspace(0.0, 1.0, scan)
    steps = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * fractions
    y = line.centre[:, None] + line.scale[:, None] * np.sinh(steps)
    y[:, [0, -1]] = end  # not a rounding error inside: `summarise` asks whether mass is there
    g, value = evaluate(np.arange(count), y)
    empty = np.asarray(~np.isfinite(g).any(axis=1))
    result = Located(
        line.centre.copy(),
        line.scale.copy(),
        end[:, 0].copy(),
        end[:, 1].copy(),
        end[:, 0].copy(),
        end[:, 1].copy(),
        np.zeros(count, dtype=bool),
        empty,
    )
    rows = np.flatnonzero(~empty)
    y, g, value = y[rows], g[rows], value[rows]
    for _ in range(MOST_ROUNDS):
        if not len(rows):
            break
        mode, spread = predict_peak(y, g)
        floor = g.max(axis=1) - depth
        kept = g > floor[:, None]
        first = np.maximum(kept.argmax(axis=1) - 1, 0)
        last = np.minimum(kept[:, ::-1].argmax(axis=1) * -1 + y.shape[1], y.shape[1] - 1)
        here = np.arange(len(rows))
        low, high = y[here, first], y[here, last]
        narrow = high - low <= 64 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
        within = (y[:, :-1] >= low[:, None]) & (y[:, 1:] <= high[:, None])
        widest = np.where(within, np.diff(y, axis=1), 0.0).max(axis=1)
        even = widest <= (high - low) / 5  # else a mode may hide between two points
        lost = noise * value_at_peak(g, value) > 0.1  # V is so large that its rounding shapes g
        done = (even & (kept.sum(axis=1) >= 7)) | narrow | lost
        if done.any():
            summarise(result, rows[done], y[done], g[done], floor[done])
        rows, low, high, mode, spread = (a[~done] for a in (rows, low, high, mode, spread))
        if not len(rows):
            break
        y = np.concatenate(
            [
                low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, 7),
                np.clip(mode[:, None] + spread[:, None] * PROBES, low[:, None], high[:, None]),
            ],
            axis=1,
        )
        y.sort(axis=1)
        g, value = evaluate(rows, y)
    else:
        summarise(result, rows, y, g, g.max(axis=1) - depth)
    return result


# in predicted widths from the predicted peak: near it, and far out in case the prediction is rough
PROBES = np.array([1.0, 2.5, 4.0, 6.0, 8.5, 13.0, 1e2, 1e4, 1e7])
PROBES = np.concatenate([-PROBES[::-1], [0.0], PROBES])


def predict_peak(y: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Place and width of the peak of g, from a parabola through its three top points."""
    here = np.arange(len(y))
    top = np.clip(g.argmax(axis=1), 1, y.shape[1] - 2)
    left, middle, right = (y[here, top + step] for step in (-1, 0, 1))
    with np.errstate(all="ignore"):
        up = (g[here, top] - g[here, top - 1]) / (middle - left)
        down = (g[here, top + 1] - g[here, top]) / (right - middle)
        curvature = 2.0 * (down - up) / (right - left)
        mode = middle - (up + 0.5 * curvature * (middle - left)) / curvature
        spread = 1.0 / np.sqrt(-curvature)
        good = (curvature < 0) & (mode >= left) & (mode <= right)
    at = y[here, g.argmax(axis=1)]
    return np.where(good, mode, at), np.where(good, spread, (right - left) / 16.0)


def summarise(
    result: Located, rows: np.ndarray, y: np.ndarray, g: np.ndarray, floor: np.ndarray
) -> None:
    """Centre, width and ends of the mass, taking g as linear between the points."""
    here = np.arange(len(rows))
    gap = np.diff(y, axis=1)
    peak = g.max(axis=1, keepdims=True)
    with np.errstate(all="ignore"):
        a, b = np.exp(g[:, :-1] - peak), np.exp(g[:, 1:] - peak)
        difference = g[:, 1:] - g[:, :-1]
        mass = gap * np.where(np.abs(difference) > 1e-6, (b - a) / difference, (a + b) / 2)
    mass = np.where(np.isfinite(mass), mass, 0.0)
    cumulative = np.concatenate([np.zeros((len(rows), 1)), mass.cumsum(axis=1)], axis=1)
    cumulative /= np.maximum(cumulative[:, -1:], np.finfo(float).tiny)

    def quantile(p: float) -> np.ndarray:
        i = np.clip((cumulative < p).sum(axis=1), 1, y.shape[1] - 1)
        c0, c1 = cumulative[here, i - 1], cumulative[here, i]
        share = np.clip((p - c0) / np.where(c1 > c0, c1 - c0, 1.0), 0.0, 1.0)
        return y[here, i - 1] + share * (y[here, i] - y[here, i - 1])

    kept = g > floor[:, None]
    first = kept.argmax(axis=1)
    last = y.shape[1] - 1 - kept[:, ::-1].argmax(axis=1)
    outer_low, outer_high = np.maximum(first - 1, 0), np.minimum(last + 1, y.shape[1] - 1)
    # an end in y of the whole line that still carries weight: the search could go no further
    edge = ((first == 0) & (y[here, 0] <= result.low[rows])) | (
        (last == y.shape[1] - 1) & (y[here, -1] >= result.high[rows])
    )
    centre = quantile(0.5)
    width = 2.0 * (quantile(0.9) - quantile(0.1))
    result.centre[rows] = centre
    result.width[rows] = np.maximum(width, 8 * np.spacing(np.abs(centre)))
    result.low[rows] = cross(y, g, floor, first, outer_low, here)
    result.high[rows] = cross(y, g, floor, last, outer_high, here)
    result.lowest[rows], result.highest[rows] = y[here, outer_low], y[here, outer_high]
    result.at_edge[rows] = edge


def cross(
    y: np.ndarray,
    g: np.ndarray,
    floor: np.ndarray,
    inner: np.ndarray,
    outer: np.ndarray,
    here: np.ndarray,
) -> np.ndarray:
    """Where g falls to the floor between a kept point and its outer neighbour.

    Interpolates in sqrt(peak - g): exact for normal tails, generous for heavier ones.
    """
    peak = g.max(axis=1)
    drop_in, drop_out = (np.sqrt(peak - g[here, at]) for at in (inner, outer))
    share = np.ones(len(y))
    falls = np.isfinite(drop_out) & (drop_out > drop_in)
    np.divide(np.sqrt(peak - floor) - drop_in, drop_out - drop_in, out=share, where=falls)
    share = np.clip(share, 0.0, 1.0)
    return y[here, inner] + share * (y[here, outer] - y[here, inner])


def trapezoid(
    evaluate: Evaluate,
    found: Located,
    rows: np.ndarray,
    depth: float,
    goal: np.ndarray,
    noise: float,
) -> tuple[list[tuple[np.ndarray, ...]], np.ndarray]:
    """Trapezoid rules with halved steps; returns finished nodes and the rows left over."""
    finished = []

    def first_rule(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        t = stretch_ends(found, rows)
        t = t[:, :1] + (t[:, 1:] - t[:, :1]) * np.linspace(0.0, 1.0, FIRST_NODES)
        return t, *evaluate_stretched(evaluate, found, rows, t)

    t, g, value = first_rule(rows)
    too_high = g[:, [0, -1]] > (g.max(axis=1) - depth + 4.0)[:, None]
    short = np.flatnonzero(too_high.any(axis=1))  # steeper tails than expected, or waves
    if len(short):
        low, high = rows[too_high[:, 0]], rows[too_high[:, 1]]
        found.low[low], found.high[high] = found.lowest[low], found.highest[high]
        t[short], g[short], value[short] = first_rule(rows[short])
    while True:
        estimate = trapezoid_error(t, g)
        possible = np.maximum(goal[rows], noise * value_at_peak(g, value))
        done = (estimate <= possible) | (possible > 1e-2)  # rounding rules: no rule does better
        if done.any():
            finished.append(
                flatten(found, rows[done], t[done], trapezoid_steps(t[done]), value[done])
            )
        rows, t, g, value = (a[~done] for a in (rows, t, g, value))
        if not len(rows) or t.shape[1] >= MOST_NODES:
            return finished, rows
        middle = (t[:, 1:] + t[:, :-1]) / 2
        new_g, new_value = evaluate_stretched(evaluate, found, rows, middle)
        t, g, value = (
            interleave(old, new) for old, new in ((t, middle), (g, new_g), (value, new_value))
        )


def trapezoid_error(t: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Relative error of the mass and of two moments, from rules with 2, 4 and 8 times the step.

    For an analytic integrand every halving squares the error (at least), and the rule's own error
    is the square of the last change; that is believed only when two halvings in a row show it.
    Otherwise (a kink, a jump) the estimate is 4 times the change.
    """
    density = np.exp(g - g.max(axis=1, keepdims=True))
    u = (t - t[:, :1]) / (t[:, -1:] - t[:, :1])
    moments = density[..., None] * np.stack([np.ones_like(u), u, u**2], axis=-1)
    rules = [step * moments[:, ::step].sum(axis=1) for step in (1, 2, 4, 8)]  # ends carry no mass
    last, before, first = (
        (np.abs(fine - coarse) / rules[0][:, :1]).max(axis=1) for fine, coarse in pairwise(rules)
    )
    analytic = (last <= before**2) & (before <= first**2) & (last < 1e-3)
    return np.where(analytic, last**2, 4 * last)


def value_at_peak(g: np.ndarray, value: np.ndarray) -> np.ndarray:
    at_peak = np.abs(value[np.arange(len(g)), g.argmax(axis=1)])
    return np.where(np.isfinite(at_peak), at_peak, 0.0)


def trapezoid_steps(t: np.ndarray) -> np.ndarray:
    step = np.diff(t, axis=1)
    zero = np.zeros((len(t), 1))
    return (np.concatenate([step, zero], axis=1) + np.concatenate([zero, step], axis=1)) / 2


def panels(
    evaluate: Evaluate,
    found: Located,
    rows: np.ndarray,
    goal: np.ndarray,
    noise: float,
    error: np.ndarray,
) -> tuple[np.ndarray, ...]:
    """Adaptive Gauss-Kronrod panels: halve those whose error matters, in all rows at once."""
    ends = stretch_ends(found, rows)
    cuts = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * np.linspace(0.0, 1.0, 9)
    owner = np.repeat(np.arange(len(rows)), 8)
    low, high = cuts[:, :-1].ravel(), cuts[:, 1:].ravel()
    peak, largest = np.full(len(rows), -np.inf), np.zeros(len(rows))
    kept: list[tuple[np.ndarray, ...]] = []
    for rounds in range(MOST_ROUNDS):
        t = (low + high)[:, None] / 2 + (high - low)[:, None] / 2 * KRONROD_NODES
        g, value = evaluate_stretched(evaluate, found, rows[owner], t)
        kept.append((owner, low, high, t, g, value))
        owner, low, high, t, g, value = (np.concatenate(a) for a in zip(*kept, strict=True))
        np.maximum.at(peak, owner, g.max(axis=1))
        np.maximum.at(largest, owner, value_at_peak(g, value))
        density = np.exp(g - peak[owner, None]) * ((high - low)[:, None] / 2)
        integral = density @ KRONROD_WEIGHTS
        raw = np.abs(integral - density[:, 1::2] @ GAUSS_WEIGHTS)
        around = np.abs(density - (integral / 2)[:, None]) @ KRONROD_WEIGHTS
        with np.errstate(all="ignore"):  # QUADPACK's estimate of the Kronrod rule's own error
            scaled = around * np.minimum(1.0, (200.0 * raw / around) ** 1.5)
        wrong = np.where(around > 0, scaled, raw) + unseen(owner, low, high, density)
        total = np.bincount(owner, integral, len(rows))
        badness = np.bincount(owner, wrong, len(rows)) / total
        count = np.bincount(owner, minlength=len(rows))
        too_thin = high - low <= 1e3 * np.spacing(np.maximum(np.abs(low), np.abs(high)))
        wanted = np.maximum(goal[rows], noise * largest)
        split = (
            (badness > wanted)[owner] & (wrong > 0.5 * (wanted * total / count)[owner]) & ~too_thin
        )
        if not split.any() or len(owner) > 200 * len(rows) or rounds == MOST_ROUNDS - 1:
            break
        kept = [tuple(a[~split] for a in (owner, low, high, t, g, value))]
        middle = (low[split] + high[split]) / 2
        owner = np.concatenate([owner[split], owner[split]])
        low, high = np.concatenate([low[split], middle]), np.concatenate([middle, high[split]])
    error[rows] = np.where(badness > wanted, badness, 0.0)
    steps = (high - low)[:, None] / 2 * KRONROD_WEIGHTS
    return flatten(found, rows[owner], t, steps, value)


def unseen(owner: np.ndarray, low: np.ndarray, high: np.ndarray, density: np.ndarray) -> np.ndarray:
    """The error of a kink between the end of a panel and its first node, which no rule sees.

    Neighbours then disagree about the density at their common end, and the error is at most that
    difference times the distance of the end from the nodes. Kinks are often there: the median,
    where panels meet, is near the kink of an absolute loss.
    """
    order = np.lexsort((low, owner))
    meet = owner[order[:-1]] == owner[order[1:]]
    left, right = order[:-1][meet], order[1:][meet]
    share = (1.0 - KRONROD_NODES[-1]) / 2.0  # of a panel, before its first node
    size = (high - low) / 2.0  # the density is given times this
    apart = np.abs(density[left] @ AT_HIGH / size[left] - density[right] @ AT_LOW / size[right])
    error = np.zeros(len(owner))
    np.maximum.at(error, left, 2.0 * share * apart * size[left])
    np.maximum.at(error, right, 2.0 * share * apart * size[right])
    return error


def stretch_ends(found: Located, rows: np.ndarray) -> np.ndarray:
    ends = np.stack([found.low[rows], found.high[rows]], axis=1)
    return np.arcsinh((ends - found.centre[rows, None]) / found.width[rows, None])


def evaluate_stretched(
    evaluate: Evaluate, found: Located, rows: np.ndarray, t: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    width = found.width[rows, None]
    g, value = evaluate(rows, found.centre[rows, None] + width * np.sinh(t))
    return g + np.log(width * np.cosh(t)), value


def flatten(
    found: Located, rows: np.ndarray, t: np.ndarray, steps: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, ...]:
    """(row, y, log step in y, value) of nodes given on the stretched coordinate."""
    width = found.width[rows, None]
    y = found.centre[rows, None] + width * np.sinh(t)
    log_step = np.log(steps) + np.log(width * np.cosh(t))
    return np.repeat(rows, t.shape[1]), y.ravel(), log_step.ravel(), value.ravel()


def interleave(old: np.ndarray, new: np.ndarray) -> np.ndarray:
    both = np.empty((old.shape[0], old.shape[1] + new.shape[1]))
    both[:, ::2], both[:, 1::2] = old, new
    return both


def mirror(half: list[float], sign: float) -> np.ndarray:
    return np.array([sign * x for x in half[:-1]] + half[::-1])


# Gauss-Kronrod (7, 15) pair, QUADPACK qk15
KRONROD_NODES = mirror(
    [
        0.991455371120812639206854697526329,
        0.949107912342758524526189684047851,
        0.864864423359769072789712788640926,
        0.741531185599394439863864773280788,
        0.586087235467691130294144258280003,
        0.405845151377397166906606412076961,
        0.207784955007898467600689403773245,
        0.000000000000000000000000000000000,
    ],
    -1.0,
)
KRONROD_WEIGHTS = mirror(
    [
        0.022935322010529224963732008058970,
        0.063092092629978553290700663189204,
        0.104790010322250183839876322541518,
        0.140653259715525918745189590510238,
        0.169004726639267902826583426598550,
        0.190350578064785409913256402421014,
        0.204432940075298892414161999234649,
        0.209482141084727828012999174891714,
    ],
    1.0,
)
GAUSS_WEIGHTS = mirror(
    [
        0.129484966168869693270611432679082,
        0.279705391489276667901467771423780,
        0.381830050505118944950369775488975,
        0.417959183673469387755102040816327,
    ],
    1.0,
)
# the density at the ends of a panel from its values at the nodes (Lagrange)
AT_HIGH = np.array(
    [
        np.prod((1.0 - np.delete(KRONROD_NODES, i)) / (x - np.delete(KRONROD_NODES, i)))
        for i, x in enumerate(KRONROD_NODES)
    ]
)
AT_LOW = AT_HIGH[::-1]

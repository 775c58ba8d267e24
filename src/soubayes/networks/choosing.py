"""A second look at a low confidence: is it better than the highest one on other held-out rows too?

With few rows the lowest of four held-out losses is often luck. The network of a low confidence is
also the one that can predict much worse than the linear model.
"""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from soubayes.networks import path
from soubayes.networks.feeding import ArraySource, Chunk
from soubayes.networks.plan import make_plan

DECISIVE = 4.0  # standard errors between two held-out losses that need no second look


def confirmed(net: Any, data: Any) -> int:
    """The place in the path of the confidence to use: the chosen one, or the highest one.

    Both are trained again without other rows. The chosen one stays if it is clearly better on the
    rows of both looks, by the rule of the first look.
    """
    chosen, source, rows = net._chosen, data.source, data.held_out
    highest = int(np.argmax(net.path_["confidence"]))
    separate = isinstance(source, ArraySource) and data.rows < path.SEPARATE_ROWS
    if chosen == highest or net.confidence_weights != "auto" or not separate or source.streamed:
        return chosen
    places = [chosen, highest]
    first = _losses(net, places, rows)
    (gap,), (error,) = path.mean_and_error([first[1] - first[0]], rows.weight)
    if gap > DECISIVE * error:
        return chosen
    other = _other_rows(net, data)
    values = [float(net.path_["confidence"].iloc[place]) for place in places]
    second = _losses_again(net, other, values)
    if second is None:  # diverged: the first look decides
        return chosen
    pooled = [np.concatenate(parts) for parts in zip(first, second, strict=True)]
    weight = np.concatenate([rows.weight, other.held_out.weight])
    return places[path.best_confidence(pooled, values, weight)]


def _losses(net: Any, places: list[int], rows: Chunk) -> list[np.ndarray]:
    """Losses of rows by networks of the path; 0 for a label that was never seen."""
    used, found = net._chosen, []
    for place in places:
        net._use(place)
        losses = net._losses(rows.X, rows.y)
        found.append(np.where(np.isfinite(losses), losses, 0.0))
    net._use(used)
    return found


def _other_rows(net: Any, data: Any) -> Any:
    """The data with as many other rows held out."""
    whole = data.whole
    every = np.arange(len(whole.X)) if whole.rows is None else whole.rows
    trained = replace(whole, rows=np.flatnonzero(data.source.weight))
    part = len(data.held_out.X) / len(trained.rows)
    rest, held_out = net._hold_out(trained, part, data.seed)
    source = replace(whole, rows=np.setdiff1d(every, np.setdiff1d(trained.rows, rest.rows)))
    weight = data.weight + float(data.held_out.weight.sum()) - float(held_out.weight.sum())
    return data._replace(source=source.weighed_out(whole), held_out=held_out, weight=weight)


def _losses_again(net: Any, data: Any, values: list[float]) -> list[np.ndarray] | None:
    """Losses of the held-out rows by networks that are trained for it; None if they diverge."""
    twin = copy.copy(net)
    folder = None if net.checkpoint is None else Path(net.checkpoint) / "second_look"
    plan = make_plan(twin, data, values, folder=folder)
    run = twin._train(plan)
    if not twin.finished_:
        return None
    twin._set_run(plan.spec, run, values, data.held_out)
    return _losses(twin, [0, 1], data.held_out)

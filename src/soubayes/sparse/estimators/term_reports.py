"""What a reader sees of a fit with terms: a table, effects with bands, and a sentence."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import chi2

from soubayes.results import WholeTable
from soubayes.terms.expansion import NEW, Slopes, TermBlock, TermColumns
from soubayes.terms.table import Table

Array = np.ndarray

CURVE_POINTS = 101  # of a curve over the range of its column
PAIR_POINTS = 25  # of each column of a pair
MOST_LISTED = 8  # terms that the sentence names


def term_table(estimator: Any, level: float) -> pd.DataFrame:
    """A row for each term of a fit, for each target."""
    inner, terms = estimator._inner, estimator._expansion
    p, ends = len(terms.names), np.array([0.5 - level / 2.0, 0.5 + level / 2.0])
    fitted = inner.__dict__.get("_fitted_scales", (inner.mixtures_, None))[0]
    frames = []
    for t, mixture in enumerate(inner.mixtures_):
        lower, upper = mixture.coefficient_quantiles(ends, p)
        mean, sd = mixture.mean[:p], mixture.sd[:p]
        effective = 1.0 - np.atleast_2d(inner.sparse_.shrinkage_)[t]
        rows: list[dict[str, Any]] = []
        for name, blocks in by_term(terms).items():
            columns = np.concatenate([np.arange(where.start, where.stop) for _, where in blocks])
            if blocks[0][0].level > 1 and not mean[columns].any():
                continue  # a pair that was screened, and is in no candidate with a weight
            row: dict[str, Any] = {"term": name, "kind": kind_of(inner, blocks, t)}
            first, where = blocks[0]
            alone = where.start if first.kind != "curved" and len(first.names) == 1 else None
            for key, values in (("estimate", mean), ("sd", sd), ("lower", lower), ("upper", upper)):
                row[key] = np.nan if alone is None else float(values[alone])
            row["effect_sd"] = float(estimator._term_sd[t][name])
            row["unit_sd"] = _between_units(fitted[t], blocks)
            row["effective"] = float(np.clip(effective[columns], 0.0, None).sum())
            row["selected"] = bool(np.atleast_2d(inner.selected_)[t][columns].any())
            if "supports_" in inner.__dict__:
                row["inclusion"] = inner.supports_.posteriors[t].probability[columns].max()
            rows.append(row)
        frame = pd.DataFrame(rows).set_index("term")
        if frame["unit_sd"].isna().all():
            frame = frame.drop(columns="unit_sd")
        frames.append(frame)
    table = WholeTable(frames[0])
    if not inner._single:
        table = WholeTable(pd.concat(frames, keys=inner._target_names(), names=["target"]))
    chosen = "_sparse_point" in inner.__dict__
    table.columns.name = "full model" if chosen else "sparse point, given its terms"
    return table


def component_table(estimator: Any, level: float, target: int) -> pd.DataFrame:
    """Standard deviations between units and of the noise, with intervals where they are known."""
    inner, mixture = estimator._inner, estimator._inner.mixtures_[target]
    blocks = zip(estimator._expansion.blocks, estimator._expansion.slices(), strict=True)
    units = [(block, where.stop - 1) for block, where in blocks if block.kind in ("unit", "slope")]
    if not units:
        raise ValueError("there are no units: fit the estimator with terms like '(1 | unit)'.")
    fitted, ratios = inner.__dict__.get("_fitted_scales", (inner.mixtures_, None))
    rows = []
    for k, column in enumerate(column for _, column in units):
        each = np.array([_prior_sd(part, column) for part in mixture.components])
        ends = np.full(2, np.nan)
        p = np.nan
        if ratios is not None:
            ends = _weighted(each, mixture.weights, [0.5 - level / 2.0, 0.5 + level / 2.0])
            ratio = ratios[target][k]
            p = 0.5 * float(chi2.sf(ratio, 1)) if ratio > 0.0 else 1.0
        sd = _fitted_sd(fitted[target], column)
        rows.append({"sd": sd, "lower": ends[0], "upper": ends[1], "p_value": p})
    names = [block.term for block, _ in units]
    if mixture.noise:
        names.append("noise")
        rows.append({"sd": float(np.sqrt(fitted[target].noise))})
    frame = pd.DataFrame(rows, index=pd.Index(names, name="component"))
    frame.insert(3, "share", frame["sd"] ** 2 / (frame["sd"] ** 2).sum())
    return WholeTable(frame)


def _prior_sd(part: Any, column: int) -> float:
    """Of a component the standard deviation of a unit without rows."""
    return float(part.posterior.sd[column] / np.sqrt(part.dispersion))


def _fitted_sd(mixture: Any, column: int) -> float:
    """The same of a mixture, by its mean variance."""
    each = np.array([_prior_sd(part, column) for part in mixture.components])
    return float(np.sqrt(mixture.weights @ each**2))


def _weighted(values: Array, weights: Array, levels: Sequence[float]) -> Array:
    """Quantiles of numbers with weights, between them by straight lines."""
    order = np.argsort(values)
    return np.interp(levels, np.cumsum(weights[order]) - 0.5 * weights[order], values[order])


def term_effects(estimator: Any, level: float, target: int) -> dict[str, pd.DataFrame]:
    """Of every term its effect over the range of its columns, less its mean over the rows."""
    inner, terms = estimator._inner, estimator._expansion
    mixture = inner.mixtures_[target]
    ends = np.array([0.5 - level / 2.0, 0.5 + level / 2.0])
    effects_of_terms = {}
    for name, blocks in by_term(terms).items():
        grid = _grid(terms, [block for block, _ in blocks])
        Z = terms.transform(_table(terms, grid))
        rows = np.zeros((len(Z), len(mixture.mean)))
        for _, where in blocks:
            rows[:, where] = (Z - inner._x_mean)[:, where]
        lower, upper = mixture.predictor_quantiles(rows, ends).T
        columns = {"estimate": rows @ mixture.mean, "lower": lower, "upper": upper}
        effects_of_terms[name] = grid.assign(**columns)
    return effects_of_terms


def kinds(estimator: Any, target: int = 0) -> dict[str, str]:
    """Of every term what the sparse point makes of it: absent, straight, curved, ..."""
    inner, terms = estimator._inner, estimator._expansion
    return {name: kind_of(inner, blocks, target) for name, blocks in by_term(terms).items()}


def sentence(kind: dict[str, str]) -> str:
    """The terms that are kept, in words.

    >>> sentence({"s(age)": "curved", "s(dose)": "straight", "sex": "factor", "s(x)": "absent"})
    'age curved, dose straight, sex; 1 other adds nothing'
    """
    kept = [name for name, what in kind.items() if what != "absent"]
    words = []
    for name in kept[:MOST_LISTED]:
        plain = name[2:-1] if name.startswith("s(") and name.count("(") == 1 else name
        words.append(f"{plain} {kind[name]}" if kind[name] in ("curved", "straight") else name)
    if len(kept) > MOST_LISTED:
        words.append(f"{len(kept) - MOST_LISTED} more")
    rest = len(kind) - len(kept)
    others = f"{rest} {'other adds' if rest == 1 else 'others add'} nothing"
    if not kept:
        return "no term adds anything"
    return ", ".join(words) + (f"; {others}" if rest else "")


def by_term(terms: TermColumns) -> dict[str, list[tuple[TermBlock, slice]]]:
    """The blocks of every term with their columns."""
    columns_of_terms: dict[str, list[tuple[TermBlock, slice]]] = {}
    for block, where in zip(terms.blocks, terms.slices(), strict=True):
        columns_of_terms.setdefault(block.term, []).append((block, where))
    return columns_of_terms


def effect_sds(estimator: Any, Z: Array, weight: Array | None) -> list[dict[str, float]]:
    """Of every target and term the standard deviation of its effect over the rows."""
    share = np.full(len(Z), 1.0 / len(Z)) if weight is None else weight / weight.sum()
    sds_of_targets = []
    for mixture in estimator._inner.mixtures_:
        mean, sds_of_terms = mixture.mean, {}
        for name, blocks in by_term(estimator._expansion).items():
            effect = np.sum([Z[:, where] @ mean[where] for _, where in blocks], axis=0)
            sds_of_terms[name] = float(np.sqrt(share @ (effect - share @ effect) ** 2))
        sds_of_targets.append(sds_of_terms)
    return sds_of_targets


def kind_of(inner: Any, blocks: Sequence[tuple[TermBlock, slice]], target: int) -> str:
    """What the sparse point makes of a term."""
    selected = np.atleast_2d(inner.selected_)[target]
    kept = [block.kind for block, where in blocks if selected[where].any()]
    if not kept:
        return "absent"
    return "curved" if "curved" in kept else kept[0]


def _between_units(mixture: Any, blocks: Sequence[tuple[TermBlock, slice]]) -> float:
    """The standard deviation between units: that of the effect of a unit without rows."""
    block, where = blocks[0]
    return _fitted_sd(mixture, where.stop - 1) if block.kind in ("unit", "slope") else np.nan


def _grid(terms: TermColumns, blocks: Sequence[TermBlock]) -> pd.DataFrame:
    """Values of the columns of a term at which it is shown."""
    names = list(dict.fromkeys(name for block in blocks for name in terms.reads(block)))
    grids: list[Array] = []
    for name in names:
        levels = _levels(terms, name)
        if levels is not None:
            units = any(block.kind in ("unit", "slope") for block in blocks)
            grids.append(np.array([*levels, *[NEW] * units], dtype=object))
        else:
            low, high = float(terms.grids[name][0]), float(terms.grids[name][-1])
            grids.append(np.linspace(low, high, CURVE_POINTS if len(names) == 1 else PAIR_POINTS))
    piece = blocks[0].piece
    if isinstance(piece, Slopes):  # the slope of every unit: one step of the column from its centre
        grids[names.index(piece.column)] = np.array([piece.centre + 1.0])
    mesh = np.meshgrid(*grids, indexing="ij")
    return pd.DataFrame({name: values.ravel() for name, values in zip(names, mesh, strict=True)})


def _table(terms: TermColumns, grid: pd.DataFrame) -> Table:
    """Rows with these values and, elsewhere, any that the terms can read."""
    columns: dict[str, Array] = {}
    for name in terms.needed:
        levels = _levels(terms, name)
        if name in grid:
            columns[name] = grid[name].to_numpy()
        elif levels is not None:
            columns[name] = np.full(len(grid), levels[0], dtype=object)
        else:
            columns[name] = np.full(len(grid), terms.grids[name][len(terms.grids[name]) // 2])
    return Table(columns, len(grid), True)


def _levels(terms: TermColumns, name: str) -> list[str] | None:
    return terms.levels.get(name)

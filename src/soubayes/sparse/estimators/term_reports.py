"""What a reader sees of a fit with terms: a table, effects with bands, and a sentence."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.stats import chi2

from soubayes.results import WholeTable
from soubayes.sparse.designs.standardise import as_dense
from soubayes.sparse.designs.units import CentredRows
from soubayes.terms.expansion import NEW, Slopes, TermBlock, TermColumns, unit_column
from soubayes.terms.table import Table

Array = np.ndarray

CURVE_POINTS = 101  # of a curve over the range of its column
PAIR_POINTS = 25  # of each column of a pair
NO_UNITS = "there are no units: fit the estimator with terms like '(1 | unit)'."
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
            row["unit_sd"] = np.nan
            if first.kind in ("unit", "slope"):
                row["unit_sd"] = BetweenUnits.of(terms, first).fitted_sd(fitted[t])
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
    units = [block for block, _ in blocks if block.kind in ("unit", "slope")]
    if not units:
        raise ValueError(NO_UNITS)
    fitted, ratios = inner.__dict__.get("_fitted_scales", (inner.mixtures_, None))
    rows: list[dict[str, float]] = []
    for k, block in enumerate(units):
        between = BetweenUnits.of(estimator._expansion, block)
        each = np.array([between.sd(part) for part in mixture.components])
        ends = np.full(2, np.nan)
        p = np.nan
        if ratios is not None:
            ends = _weighted(each, mixture.weights, [0.5 - level / 2.0, 0.5 + level / 2.0])
            p = between.p_value(ratios[target][k])
        row = {"sd": between.fitted_sd(fitted[target]), "lower": ends[0], "upper": ends[1]}
        if estimator._expansion.correlated:
            row["correlation"] = between.correlation(fitted[target])
        rows.append({**row, "p_value": p})
    names = [block.term for block in units]
    if mixture.noise:
        names.append("noise")
        rows.append({"sd": float(np.sqrt(fitted[target].noise))})
    frame = pd.DataFrame(rows, index=pd.Index(names, name="component"))
    variance = frame["sd"] ** 2
    frame.insert(3, "share", variance / variance.sum())
    return WholeTable(frame)


class BetweenUnits(NamedTuple):
    """Where the variance of a unit's intercepts or slopes is read.

    That is the variance of a unit without rows. Intercepts that are correlated with slopes are
    those at 0: their variance is T_00 = v + c^2 T_11, v being that at the centre c.
    """

    column: int  # the effect of a unit without rows
    slope: int = -1  # that of its slope, for intercepts that are correlated with it
    centre: float = 0.0
    correlated: bool = False  # slopes that are correlated with the intercepts

    @classmethod
    def of(cls, terms: TermColumns, block: TermBlock) -> "BetweenUnits":
        """Of a block of intercepts or slopes."""
        last = dict(zip((id(b) for b in terms.blocks), terms.slices(), strict=True))
        column = last[id(block)].stop - 1
        if isinstance(block.piece, Slopes):
            return cls(column, correlated=block.piece.correlated)
        for k in terms.correlated:
            piece = terms.blocks[k].piece
            if isinstance(piece, Slopes) and piece.unit.column == unit_column(block):
                return cls(column, terms.slices()[k].stop - 1, piece.centre)
        return cls(column)

    def sd(self, part: Any) -> float:
        """Of a component."""
        variance = part.posterior.sd[self.column] ** 2
        if self.slope >= 0:
            variance += (self.centre * part.posterior.sd[self.slope]) ** 2
        return float(np.sqrt(variance / part.dispersion))

    def fitted_sd(self, mixture: Any) -> float:
        """Of a mixture, by its mean variance."""
        each = np.array([self.sd(part) for part in mixture.components])
        return float(np.sqrt(mixture.weights @ each**2))

    def correlation(self, mixture: Any) -> float:
        """Of intercepts at 0 with their slopes: T_01 = -c T_11."""
        if self.slope < 0:
            return np.nan
        slope, sd = BetweenUnits(self.slope).fitted_sd(mixture), self.fitted_sd(mixture)
        return -self.centre * slope / sd if sd > 0.0 else np.nan

    def p_value(self, ratio: float) -> float:
        """Of no variance, from twice the log likelihood ratio [Self and Liang 1987].

        A correlation is one more parameter; the one of intercepts is not tested, which are not
        those at the centre.
        """
        if self.slope >= 0:
            return np.nan
        degrees = (0.0, 1.0) if not self.correlated else (1.0, 2.0)
        above = [float(chi2.sf(ratio, d)) if d else float(ratio <= 0.0) for d in degrees]
        return 0.5 * sum(above) if ratio > 0.0 else 1.0


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
        here = np.zeros(len(inner._x_mean))
        for _, where in blocks:
            here[where] = 1.0
        rows = CentredRows(Z @ sp.diags_array(here), inner._x_mean * here, ones=False)
        given = rows if sp.issparse(Z) else rows.dense(len(mixture.mean))
        more = _left_out(inner, target, blocks, Z)
        lower, upper = mixture.predictor_quantiles(given, ends, more).T
        estimate = rows.times(mixture.mean[None, : len(here)])[0]
        columns = {"estimate": estimate, "lower": lower, "upper": upper}
        # a column of X that is called so
        taken = {column: f"{column}_value" for column in columns if column in grid}
        effects_of_terms[name] = grid.rename(columns=taken).assign(**columns)
    return effects_of_terms


def _left_out(
    inner: Any, target: int, blocks: Sequence[tuple[TermBlock, slice]], Z: Any
) -> tuple[Array, Array] | None:
    """What a curved part that is called straight adds to means and variances of its effect.

    (components, rows); nothing in components that have the curved part, or if the term is absent.
    """
    known = inner.__dict__.get("_left_out") or []
    selected = np.atleast_2d(inner.selected_)[target]
    if not known or not any(selected[where].any() for _, where in blocks):
        return None
    starts = {where.start for block, where in blocks if block.kind == "curved"}
    for one in known[target]:
        if int(one.columns[0]) in starts:
            rows = as_dense(Z[:, one.columns]) - inner._x_mean[one.columns]
            mixture = inner.mixtures_[target]
            absent = np.array([
                not component.posterior.mean[one.columns].any() for component in mixture.components
            ])[:, None]  # fmt: skip
            spread = np.einsum("ij,ij->i", rows @ one.covariance, rows)
            return absent * (rows @ one.mean), absent * spread
    return None


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
    share = np.full(Z.shape[0], 1.0 / Z.shape[0]) if weight is None else weight / weight.sum()
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

"""`soubayes fit` and `explore`: a sparse regression or classification of a table, and its pages."""

import warnings
from math import isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import r2_score
from sklearn.pipeline import Pipeline, make_pipeline

from soubayes._files import atomic_path
from soubayes._optional import require
from soubayes.data.tabular import Problem, TableEncoder
from soubayes.levels import LEVEL
from soubayes.pages import png_address, render

MIXED = (
    "Medians and intervals ({level}) are those of the mixture of fits that predictions are "
    "made from, in the units of the data. The interval of a column with a weak effect may miss it."
)
ALONE = (
    "Medians and intervals ({level}) are those of the sparse fit, in the units of the data. "
    "They leave out the uncertainty of the selection."
)
MOST_CELLS = 2**24  # rows times columns up to which credible sets are found


class Fitted(NamedTuple):
    """A pipeline from raw columns to predictions, what it selected, and how well it predicts."""

    pipeline: Pipeline
    summary: Any  # a row for each selected coefficient: feature, class, median, lower, upper
    n_features: int
    score: str
    level: float

    @property
    def estimator(self) -> Any:
        """The sparse estimator at the end of the pipeline."""
        return self.pipeline[-1]


def estimator_for(problem: Problem) -> Any:
    """The estimator of a problem's task: the one place that knows which target has which."""
    import soubayes

    names = {
        "regression": "SoULinearRegression",
        "classification": "SoULogisticRegression",
        "survival": "SoUCoxRegression",
    }
    cells = len(problem.y) * problem.X.shape[1]
    groups = TableEncoder(problem.dates).fit(problem.X).groups() or None
    kind = getattr(soubayes, names[problem.task])
    return kind(inclusion=cells <= MOST_CELLS, feature_groups=groups)


def fit_table(problem: Problem, level: float = LEVEL) -> Fitted:
    """Fit the model of the problem's task; the folds that choose its confidences also score it."""
    from soubayes.sparse.choice.folds import ChoiceWarning

    estimator = estimator_for(problem)
    pipeline = make_pipeline(TableEncoder(problem.dates), estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChoiceWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        pipeline.fit(problem.X, problem.y)
    score = _held_out_score(estimator, problem)
    classes = list(getattr(pipeline, "classes_", []))
    if len(classes) == 2:
        score = f"Estimates are for the log odds of {classes[1]}. {score}"
    return Fitted(pipeline, *_selected(pipeline[-1], level), score, level)


def _held_out_score(estimator: Any, problem: Problem) -> str:
    """R² or accuracy of the held-out predictions, and what the selected columns alone would do."""
    if not hasattr(estimator, "candidates_"):
        return "Too few rows for a cross-validated score."
    if problem.task == "survival":
        return _held_out_concordance(estimator)
    if not hasattr(estimator, "out_of_fold_"):  # large tables: their rows were not kept
        spread = float(np.std(np.asarray(problem.y, float)))
        error = float(estimator.candidates_["mixture_error"][0])
        return f"Cross-validated R²: {1.0 - (error / spread) ** 2:.3f}. {estimator.sparsity_}"
    tables = estimator.out_of_fold_
    several = isinstance(tables, list)
    fold = (tables[0] if several else tables)["fold"]
    held, folds = fold >= 0, f"{int(fold.max()) + 1} folds"
    if problem.task == "regression":
        score = float(r2_score(tables["y"][held], tables["mean"][held]))
        return f"Cross-validated R² ({folds}): {score:.3f}. {estimator.sparsity_}"
    if several:
        chance, truth = (np.stack([t[k][held] for t in tables], axis=1) for k in ("mean", "y"))
        score = float(np.mean(chance.argmax(axis=1) == truth.argmax(axis=1)))
        return f"Cross-validated accuracy ({folds}): {score:.3f}."
    score = float(np.mean((tables["mean"][held] > 0.5) == (tables["y"][held] > 0.5)))
    return f"Cross-validated accuracy ({folds}): {score:.3f}. {estimator.sparsity_}"


def _held_out_concordance(estimator: Any) -> str:
    """Concordance of the held-out log risks."""
    from soubayes.sparse.survival.measures import concordance
    from soubayes.sparse.survival.responses import read_survival

    said = "Estimates are for the log hazard ratio."
    table = getattr(estimator, "out_of_fold_", None)
    if table is None:
        return f"{said} {estimator.sparsity_}"
    table = table[table["fold"] >= 0]
    y = read_survival((table["event"].to_numpy(), table["time"].to_numpy()))
    score, folds = concordance(y, table["mean"].to_numpy()), int(table["fold"].max()) + 1
    return f"{said} Cross-validated concordance ({folds} folds): {score:.3f}. {estimator.sparsity_}"


def write_fit(fitted: Fitted, problem: Problem, target: str, out: Path) -> list[Path]:
    """Write ``model.soubayes``, ``summary.csv`` and ``summary.html`` into ``out``."""
    from soubayes import save_model

    model, table, page = (out / name for name in ("model.soubayes", "summary.csv", "summary.html"))
    save_model(fitted.pipeline, model)
    with atomic_path(table) as temporary:
        _all_coefficients(fitted.estimator, fitted.level).to_csv(temporary, index=False)
    with atomic_path(page) as temporary:
        temporary.write_text(summary_page(fitted, problem, target), encoding="utf-8")
    return [model, table, page]


def write_explorer(
    fitted: Fitted,
    problem: Problem,
    file: Path,
    target: str,
    reading: dict[str, str],
    read: str,
    out: Path,
) -> Path:
    """Write the explorer of a table's fit.

    ``reading`` are the options of `read_table`, ``read`` is how `pose_problem` was called.
    """
    unusual = [f", {name}={value!r}" for name, value in reading.items() if value != "auto"]
    given = repr(str(file)) + ")" + "".join(unusual)
    from soubayes.pages.explorer import explorer_page

    code = (
        "from pathlib import Path\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from soubayes.data.tabular import TableEncoder, pose_problem, read_table\n\n"
        f"problem = pose_problem(read_table(Path({given}), {read})\n"
        "model = make_pipeline(TableEncoder(problem.dates), {estimator})\n"
        "model.fit(problem.X, problem.y)\n"
    )
    said = str(getattr(fitted.estimator, "sparsity_", ""))  # the page says it for every target
    score = fitted.score.removesuffix(said).strip()
    text = explorer_page(
        fitted.estimator,
        title=f"{target}: explorer of a sparse {problem.task}",
        notes=[f"{len(problem.y)} rows of {file.name}. {score}", *problem.notes],
        code=code,
        fitted="model[-1]",
    )
    with atomic_path(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return out


def summary_page(fitted: Fitted, problem: Problem, target: str) -> str:
    """The selected features with their intervals, what was done to the columns, and the path."""
    columns, rows = summary_cells(fitted)
    chosen = f"{len(rows)} of {fitted.n_features} coefficients selected. {fitted.score}"
    path = _picture(_path_figure(fitted), "Path", "Coefficients along the path in the confidence.")
    return render(
        "fit.html",
        "soubayes fit",
        title=f"{target}: sparse {problem.task}",
        says=f"{len(problem.y)} rows. {chosen}",
        notes=problem.notes,
        columns=columns,
        rows=rows,
        caution=caution(fitted),
        sets=_credible_sets(fitted),
        pictures=[*_dial(fitted), path],
    )


def caution(fitted: Fitted) -> str:
    """Which posterior the intervals are of."""
    text = MIXED if hasattr(fitted.estimator, "candidates_") else ALONE
    return text.format(level=percent(fitted.level))


def _picture(figure: Any, title: str, note: str) -> dict[str, str]:
    return {"title": title, "note": note, "address": png_address(figure)}


def _credible_sets(fitted: Fitted) -> dict[str, Any] | None:
    """Which columns could take each other's place, a row for each set."""
    from soubayes.sparse.inclusion.supports import PRESENCE

    if not hasattr(fitted.estimator, "supports_"):
        return None
    least = f"{PRESENCE:.0%}"
    frame = fitted.estimator.supports_.credible_sets().reset_index()
    said = (
        "One column of each set carries an effect, with the probability shown; the columns of a "
        f"set look alike. Effects that are less than {least} probable have no set. The effect is "
        "that of one standard deviation of the column."
    )
    if fitted.estimator.supports_.groups is not None:
        said = (
            "Each column or category carries an effect, with the probability shown. Effects that "
            f"are less than {least} probable are not listed. The effect is that of one standard "
            "deviation of the column; a category with several columns has one for each of them."
        )
    if not len(frame):
        said = f"No column or group of columns carries an effect that is {least} probable."
    names = [name for name in ("target",) if name in frame]
    rows = [
        [
            ", ".join(row["features"]),
            *(str(row[name]) for name in names),
            f"{row['probability']:.3f}",
            "" if isnan(row["purity"]) else f"{row['purity']:.2f}",
            ""
            if isnan(row["effect"])
            else f"{row['effect']:.4g} ({row['lower']:.4g} to {row['upper']:.4g})",
        ]
        for _, row in frame.iterrows()
    ]
    return {
        "says": said,
        "settled": fitted.estimator.supports_.converged,
        "columns": ["columns", *names, "probability", "least correlation", "effect of one sd"],
        "rows": rows,
    }


def _dial(fitted: Fitted) -> list[dict[str, str]]:
    """The picture of the candidates, if confidences were chosen by prediction."""
    from soubayes import plot_confidences

    if not hasattr(fitted.estimator, "candidates_"):
        return []
    matplotlib = require("matplotlib.figure", "soubayes fit")
    figure = matplotlib.Figure((7, 4), layout="constrained")
    plot_confidences(fitted.estimator, ax=figure.subplots())
    said = "Held-out score of every candidate; labels are its confidences and its weight."
    return [_picture(figure, "Choice of the confidences", said)]


def _path_figure(fitted: Fitted) -> Any:
    """The path of the coefficients, a panel for each class where there are several."""
    from soubayes import plot_path

    titles = {0: ""}
    if "class" in fitted.summary:
        chosen = set(fitted.summary["class"])
        titles = {t: str(k) for t, k in enumerate(fitted.estimator.classes_) if k in chosen}
    titles = titles or {0: "nothing selected"}
    height = 4 if len(titles) == 1 else 2.6 * len(titles)
    matplotlib = require("matplotlib.figure", "soubayes fit")
    figure = matplotlib.Figure((7, height), layout="constrained")
    panels = figure.subplots(len(titles), 1, squeeze=False)[:, 0]
    for axis, (target, title) in zip(panels, titles.items(), strict=True):
        plot_path(fitted.estimator, target=target, ax=axis)
        axis.set_title(title, parse_math=False)
        for text in axis.get_legend().get_texts() if axis.get_legend() else ():
            text.set_parse_math(False)  # names of columns: a $ in them is a $
    return figure


def summary_cells(fitted: Fitted) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of the table of selected coefficients, as text."""
    frame = fitted.summary
    names = [name for name in ("feature", "class") if name in frame]
    columns = [*names, "median", f"{percent(fitted.level)} interval"]
    rows = [
        [
            *(str(row[name]) for name in names),
            f"{row['median']:.4g}",
            f"{row['lower']:.4g} to {row['upper']:.4g}",
        ]
        for _, row in frame.iterrows()
    ]
    return columns, rows


def percent(level: float) -> str:
    """A level as people write it.

    >>> percent(0.9), percent(0.975)
    ('90%', '97.5%')
    """
    return f"{100.0 * level:g}%"


def _all_coefficients(estimator: Any, level: float) -> Any:
    return estimator.summary(level=level).reset_index().rename(columns={"target": "class"})


def _selected(estimator: Any, level: float) -> tuple[Any, int]:
    """Selected coefficients, the clearest first, and how many there were to select from."""
    frame = _all_coefficients(estimator, level)
    chosen = frame[frame["selected"]]
    clearest = np.argsort(-(chosen["estimate"].abs() / chosen["sd"]).to_numpy(), kind="stable")
    return chosen.iloc[clearest], len(frame)

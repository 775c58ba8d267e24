"""`soubayes fit`: a sparse regression or classification of a table, its model file and its page."""

from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline

from soubayes import _page
from soubayes._files import atomic_path
from soubayes._optional import require
from soubayes.tabular import Problem, TableEncoder

LEVEL = 0.9


class Fitted(NamedTuple):
    """A pipeline from raw columns to predictions, what it selected, and how well it predicts."""

    pipeline: Pipeline
    summary: Any  # a row a selected coefficient: feature, class, estimate, lower, upper
    n_features: int
    score: str

    @property
    def estimator(self) -> Any:
        """The sparse estimator at the end of the pipeline."""
        return self.pipeline[-1]


def fit_table(problem: Problem) -> Fitted:
    """Fit the sparse model of the problem's task, with a cross-validated score where rows allow."""
    import soubayes

    choice = {"regression": "SoULinearRegression", "classification": "SoULogisticRegression"}
    estimator = getattr(soubayes, choice[problem.task])(confidence_coef="auto")
    pipeline = make_pipeline(TableEncoder(), estimator)
    score = _cross_validated(pipeline, problem)
    pipeline.fit(problem.X, problem.y)
    classes = list(getattr(pipeline, "classes_", []))
    if len(classes) == 2:
        score = f"Estimates are for the log odds of {classes[1]}. {score}"
    return Fitted(pipeline, *_selected(pipeline[-1]), score)


def write_fit(fitted: Fitted, problem: Problem, target: str, out: Path) -> list[Path]:
    """Write ``model.skops`` and ``summary.html`` into ``out``."""
    from soubayes import save_model

    model, summary = out / "model.skops", out / "summary.html"
    save_model(fitted.pipeline, model)
    with atomic_path(summary) as temporary:
        temporary.write_text(summary_page(fitted, problem, target), encoding="utf-8")
    return [model, summary]


def summary_page(fitted: Fitted, problem: Problem, target: str) -> str:
    """The selected features with their intervals, what was done to the columns, and the path."""
    columns, rows = summary_cells(fitted)
    notes = "".join(f"<li>{escape(note)}</li>" for note in problem.notes)
    chosen = f"{len(rows)} of {fitted.n_features} coefficients selected. {fitted.score}"
    return _page.page(
        f"{target}: sparse {problem.task}",
        f"<p>{len(problem.y)} rows. {escape(chosen)}</p><ul>{notes}</ul>",
        _page.table(columns, [[row[0], *map(escape, row[1:])] for row in rows]),
        f"<p>Intervals hold {LEVEL:.0%} of the posterior, in the units of the data, given what was "
        "selected.</p>",
        _page.picture(
            _path_figure(fitted), "Path", "Coefficients along the path in the confidence."
        ),
    )


def _path_figure(fitted: Fitted) -> Any:
    """The path of the coefficients, a panel a class where there are several."""
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
        axis.set_title(title)
    return figure


def summary_cells(fitted: Fitted) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of the table of selected coefficients, as text."""
    frame = fitted.summary
    names = [name for name in ("feature", "class") if name in frame]
    columns = [*names, "estimate", f"{LEVEL:.0%} interval"]
    rows = [
        [
            *(str(row[name]) for name in names),
            f"{row['estimate']:.4g}",
            f"{row['lower']:.4g} to {row['upper']:.4g}",
        ]
        for _, row in frame.iterrows()
    ]
    return columns, rows


def _selected(estimator: Any) -> tuple[Any, int]:
    """Selected coefficients, the clearest first, and how many there were to select from."""
    frame = estimator.summary(level=LEVEL).reset_index().rename(columns={"target": "class"})
    chosen = frame[frame["selected"]]
    clearest = np.argsort(-(chosen["estimate"].abs() / chosen["sd"]).to_numpy(), kind="stable")
    return chosen.iloc[clearest], len(frame)


def _cross_validated(pipeline: Pipeline, problem: Problem) -> str:
    rows = len(problem.y)
    if problem.task == "classification":
        rows = min(np.unique(problem.y, return_counts=True)[1])
    folds = 5 if rows >= 5 else 0
    if not folds or len(problem.y) < 20:
        return "Too few rows for a cross-validated score."
    scores = cross_val_score(pipeline, problem.X, problem.y, cv=folds)
    name = "R²" if problem.task == "regression" else "accuracy"
    return f"Cross-validated {name} (5 folds): {scores.mean():.3f}."

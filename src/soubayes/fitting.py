"""`soubayes fit`: the sparse model of a table, and the files that describe it."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import d2_tweedie_score, r2_score
from sklearn.pipeline import Pipeline, make_pipeline

from soubayes._files import atomic_path
from soubayes.data.encoding import TableEncoder
from soubayes.data.names import FIT_FILES
from soubayes.data.tabular import Problem
from soubayes.data.writing import write_table
from soubayes.levels import LEVEL

MIXED = (
    "Medians and intervals ({level}) are those of the mixture of fits that predictions are "
    "made from, in the units of the data. For weak effects an interval contains the true value "
    "less often than that."
)
ALONE = (
    "Medians and intervals ({level}) are those of the sparse fit, in the units of the data. "
    "They leave out the uncertainty of the selection."
)
KIND_OF_MODEL = {
    "robust": "robust regression",
    "positive": "regression of positive numbers",
    "counts": "regression of counts",
    "ordered": "regression of ordered classes",
}
OF_TERMS = (
    "Effect is how much the effect of a term varies over the rows (standard deviation), effective "
    "how many columns the term is worth. summary.csv has intervals ({level}), which leave out the "
    "choice of the terms."
)
KNOWN_UNITS = (
    "Held-out rows are new rows of known units: the score does not say how well rows of new units "
    "are predicted."
)
MOST_ROWS = 100  # of the table that its page holds
MOST_CELLS = 2**24  # rows times columns up to which credible sets are found


class Fitted(NamedTuple):
    """A pipeline from raw columns to predictions, what it selected, and how well it predicts."""

    pipeline: Pipeline
    summary: Any  # a row for each selected coefficient (feature, median, ...) or for each term
    n_features: int
    score: str
    level: float
    remarks: tuple[str, ...] = ()

    @property
    def estimator(self) -> Any:
        """The sparse estimator at the end of the pipeline."""
        return self.pipeline[-1]


def estimator_for(problem: Problem) -> Any:
    """The estimator of a problem's task: the one place that knows which target has which."""
    import soubayes

    names = {
        "regression": "SoULinearRegression",
        "robust": "SoULinearRegression",
        "positive": "SoUGammaRegression",
        "counts": "SoUNegativeBinomialRegression",
        "classification": "SoULogisticRegression",
        "ordered": "SoUOrdinalRegression",
        "survival": "SoUCoxRegression",
    }
    own: dict[str, dict[str, Any]] = {
        "robust": {"noise": "student"},
        "ordered": {"levels": problem.levels},
    }
    if problem.terms is not None:
        return getattr(soubayes, names[problem.task])(
            terms=problem.terms, **own.get(problem.task, {})
        )
    cells = len(problem.y) * problem.X.shape[1]
    groups = TableEncoder(problem.dates).fit(problem.X).groups() or None
    kind = getattr(soubayes, names[problem.task])
    few = cells <= MOST_CELLS
    return kind(inclusion=few, feature_groups=groups, **own.get(problem.task, {}))


def fit_table(problem: Problem, level: float = LEVEL) -> Fitted:
    """Fit the model of the problem's task; the folds that choose its confidences also score it."""
    from soubayes.sparse.choice.folds import ChoiceWarning
    from soubayes.sparse.estimators.terms import RowFoldsWarning, UnitWarning

    estimator = estimator_for(problem)
    encoder = TableEncoder(problem.dates, indicators=problem.terms is None)
    pipeline = make_pipeline(encoder, estimator)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnitWarning)
        warnings.simplefilter("ignore", ChoiceWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        pipeline.fit(problem.X, problem.y, **_exposed(pipeline, problem))
    remarks = []
    for warning in caught:
        if issubclass(warning.category, UnitWarning):
            folds = issubclass(warning.category, RowFoldsWarning)
            remarks.append(KNOWN_UNITS if folds else str(warning.message))
        else:
            warnings.warn(warning.message, stacklevel=2)
    score = _held_out_score(estimator, problem)
    classes = list(getattr(pipeline, "classes_", []))
    if len(classes) == 2:
        score = f"Estimates are for the log odds of {classes[1]}. {score}"
    return Fitted(pipeline, *_selected(pipeline[-1], level), score, level, tuple(remarks))


def _exposed(pipeline: Pipeline, problem: Problem) -> dict[str, Any]:
    """The exposure as an argument of the last step."""
    if problem.exposure is None:
        return {}
    return {f"{pipeline.steps[-1][0]}__exposure": problem.exposure}


def _held_out_score(estimator: Any, problem: Problem) -> str:
    """How well held-out rows are predicted, and what the selected columns alone would do."""
    if not hasattr(estimator, "candidates_") and problem.terms:
        return "Nothing was to be chosen, or rows are too few: no cross-validated score."
    if not hasattr(estimator, "candidates_"):
        return "Too few rows for a cross-validated score."
    if problem.task == "survival":
        return _held_out_concordance(estimator)
    mean = "Estimates are for the logarithm of the mean. "
    order = "Estimates are for the log odds of a higher class. "
    said = {"counts": mean, "positive": mean, "ordered": order}.get(problem.task, "")
    tables, sparsity = getattr(estimator, "out_of_fold_", None), estimator.sparsity_
    if isinstance(sparsity, list):  # one for each class
        sparsity = ""
    if tables is None and problem.task == "regression":  # many rows, of which only moments are kept
        error = float(estimator.candidates_["mixture_error"][0]) / float(np.std(problem.y))
        return f"Cross-validated R²: {1.0 - error**2:.3f}. {sparsity}"
    if tables is None:
        return f"{said}{sparsity}".strip()
    several = isinstance(tables, list)
    fold = (tables[0] if several else tables)["fold"]
    held, folds = fold >= 0, f"{int(fold.max()) + 1} folds"
    if several:
        chance, truth = (np.stack([t[k][held] for t in tables], axis=1) for k in ("mean", "y"))
        measure, score = "accuracy", np.mean(chance.argmax(axis=1) == truth.argmax(axis=1))
    else:
        mean, truth = tables["mean"][held], tables["y"][held]
        if problem.task in ("regression", "robust"):
            measure, score = "R²", r2_score(truth, mean)
        elif problem.task in ("counts", "positive"):
            power = 1 if problem.task == "counts" else 2
            measure, score = "deviance explained", d2_tweedie_score(truth, mean, power=power)
        elif problem.task == "ordered":
            measure, score = "R² of the number of the class", r2_score(truth, mean)
        else:
            measure, score = "accuracy", np.mean((mean > 0.5) == (truth > 0.5))
    return f"{said}Cross-validated {measure} ({folds}): {score:.3f}. {sparsity}".strip()


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


class TableSource(NamedTuple):
    """Where a table came from: its file, the target, and the options of the command."""

    file: Path
    target: str
    reading: dict[str, Any]  # of `read_table`
    settings: dict[str, Any]  # of `pose_problem`

    @property
    def code(self) -> str:
        """Python that reads the file and fits ``{estimator}``."""
        read = _arguments({k: v for k, v in self.reading.items() if v != "auto"})
        posed = _arguments({k: v for k, v in self.settings.items() if v and v != "auto"})
        step = "model.steps[-1][0] + '__exposure': problem.exposure"
        exposed = f", **{{{step}}}" if "exposure" in self.settings else ""
        return (
            "from pathlib import Path\n"
            "from sklearn.pipeline import make_pipeline\n"
            "from soubayes import TableEncoder\n"
            "from soubayes.data.reading import read_table\n"
            "from soubayes.data.tabular import pose_problem\n\n"
            f"table = read_table(Path({str(self.file)!r}){read})\n"
            f"problem = pose_problem(table, {self.target!r}{posed})\n"
            "model = make_pipeline(TableEncoder(problem.dates), {estimator})\n"
            f"model.fit(problem.X, problem.y{exposed})\n"
        )


def _arguments(given: dict[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in given.items())


def write_fit(fitted: Fitted, problem: Problem, source: TableSource, out: Path) -> list[Path]:
    """Write ``model.soubayes``, ``summary.csv`` and ``summary.html`` into ``out``."""
    from soubayes import save_model

    model, table, page = (out / name for name in FIT_FILES)
    save_model(fitted.pipeline, model)
    write_table(_all_coefficients(fitted.estimator, fitted.level), table)
    with atomic_path(page) as temporary:
        temporary.write_text(fit_page(fitted, problem, source), encoding="utf-8")
    return [model, table, page]


def fit_page(fitted: Fitted, problem: Problem, source: TableSource) -> str:
    """The explorer of a table's fit, with what was done to the columns."""
    from soubayes.pages.explorer import explorer_page
    from soubayes.pages.terms import terms_page

    if problem.terms is not None:
        title = f"{source.target}: {KIND_OF_MODEL.get(problem.task, problem.task)} with terms"
        rows = f"{len(problem.y)} rows of {source.file.name}. {selection(fitted)}"
        notes = [rows, *fitted.remarks, caution(fitted), *problem.notes]
        return terms_page(fitted.estimator, title, notes, summary_cells(fitted), fitted.level)
    said = str(getattr(fitted.estimator, "sparsity_", ""))  # the page says it for every target
    rows = fitted.pipeline[:-1].transform(problem.X.head(MOST_ROWS))
    rows.index = rows.index + 1 if rows.index.dtype.kind in "iu" else rows.index
    return explorer_page(
        fitted.estimator,
        title=f"{source.target}: sparse {KIND_OF_MODEL.get(problem.task, problem.task)}",
        notes=[
            f"{len(problem.y)} rows of {source.file.name}. {selection(fitted).removesuffix(said)}",
            caution(fitted),
            *problem.notes,
            f"The page holds the first {len(rows)} rows of the table, for What if.",
        ],
        code=source.code,
        fitted="model[-1]",
        level=fitted.level,
        X=rows,
        categories=_categories(fitted.pipeline[0]),
    )


def _categories(encoder: TableEncoder) -> dict[str, dict[str, str]]:
    """The values of every category, and the column of 0 and 1 of each; the reference has none."""
    columns = {source: feature for feature, source in encoder.features_.items()}
    return {
        name: {str(level): columns.get((name, level), "") for level in levels}
        for name, levels in encoder.levels_.items()
    }


def selection(fitted: Fitted) -> str:
    """How many coefficients were selected, and how well the fit predicts."""
    if "kind" in fitted.summary:
        names = fitted.summary.loc[fitted.summary["selected"], "term"]
        return f"{names.nunique()} of {fitted.n_features} terms selected. {fitted.score}"
    chosen = f"{len(fitted.summary)} of {fitted.n_features} coefficients selected."
    return f"{chosen} {fitted.score}"


def caution(fitted: Fitted) -> str:
    """Which posterior the intervals are of."""
    if "kind" in fitted.summary:
        return OF_TERMS.format(level=percent(fitted.level))
    text = MIXED if hasattr(fitted.estimator, "candidates_") else ALONE
    return text.format(level=percent(fitted.level))


def summary_cells(fitted: Fitted) -> tuple[list[str], list[list[str]]]:
    """The columns and rows of the table of selected coefficients, as text."""
    frame = fitted.summary
    if "kind" in frame:
        names = [name for name in ("term", "class", "kind") if name in frame]
        shown = [
            [
                *(str(row[name]) for name in names),
                f"{row['effect_sd']:.4g}",
                f"{row['effective']:.1f}",
                "yes" if row["selected"] else "no",
            ]
            for _, row in frame.iterrows()
        ]
        return [*names, "effect", "effective", "selected"], shown
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
    if "kind" in frame:  # of terms
        largest = frame.sort_values("effect_sd", ascending=False, kind="stable")
        return largest, frame["term"].nunique()
    chosen = frame[frame["selected"]]
    clearest = np.argsort(-(chosen["estimate"].abs() / chosen["sd"]).to_numpy(), kind="stable")
    return chosen.iloc[clearest], len(frame)

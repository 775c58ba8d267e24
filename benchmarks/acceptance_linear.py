"""What the linear estimators are held to, as the tables of docs/development/linear.md.

    python -m paper reproduce table1 tableS1 tableS2 --full --out results
    python benchmarks/acceptance_linear.py rows.jsonl results         # compute the rest, report
    python benchmarks/acceptance_linear.py rows.jsonl results report  # only the tables

The paper's 31 designs come from the stored rows of `python -m paper reproduce`. The rest is
computed here: three designs that no setting was chosen on, and predictive intervals in Table 1's
designs. Every data set is a line of the file, so a run can be stopped and resumed. Settings were
chosen on seeds 0-99; seeds from 1000 on were used for reporting only.
"""

import json
import sys
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy import stats
from sklearn.exceptions import ConvergenceWarning

from paper.printed import printed_number, printed_rows
from paper.storage import Row, Store
from soubayes import SoULinearRegression, datasets

TABLES = {"table1": "Exp. 1", "tableS1": "Exp. 2", "tableS2": "Exp. 3"}
HELD_OUT = {
    "held out: AR(0.7) columns, 105, 100, 20": datasets.correlated_design,
    "held out: 100, 200, 10": datasets.wide_design,
    "held out: signals 0.5, 105, 100, 10": datasets.weak_design,
}
METHODS = {
    "sou": {},
    "sou_coordinate": {"solver": "coordinate", "max_iter": 300},
    "gl": {"solver": "coordinate", "confidence_local": 1.0, "max_iter": 300},
}
FIRST_SEED, MOST, PREDICTIVE = 1000, 100, 20  # data sets; for predictive intervals alone


def main() -> None:
    path, folder = Path(sys.argv[1]), sys.argv[2]
    if "report" not in sys.argv:
        compute(path)
    lines = defaultdict(list)
    for line in read(path):
        lines[line["design"], line["method"]].append(line)
    report(Store(folder), lines)


def compute(path: Path) -> None:
    """Append the missing lines, the default solver first, seed by seed."""
    done = {tuple(line[k] for k in ("design", "method", "seed")) for line in read(path)}
    seeds = range(FIRST_SEED, FIRST_SEED + MOST)
    tasks = [(name, "sou", seed, make, ()) for seed in seeds for name, make in HELD_OUT.items()]
    tasks += [
        (title("table1", row), "sou", seed, datasets.experiment1, tuple(row.values()))
        for seed in seeds[:PREDICTIVE]
        for row in printed_rows("table1")
    ]
    tasks += [
        (name, method, seed, make, ())
        for seed in seeds
        for name, make in HELD_OUT.items()
        for method in ("sou_coordinate", "gl")
    ]
    with path.open("a") as file:
        for name, method, seed, make, args in tasks:
            if (name, method, seed) not in done:
                measured = measure(make(*args, random_state=seed), METHODS[method], seed)
                line = {"design": name, "method": method, "seed": seed, **measured}
                file.write(json.dumps(line) + "\n")
                file.flush()


def measure(data: datasets.Regression, settings: dict, seed: int) -> dict:
    """One fit: error, sparsity, coverage of coefficients and of new observations."""
    model = SoULinearRegression(choice="path", fit_intercept=False, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(data.X, data.y)
    nulls = data.coef == 0
    table = model.summary(level=0.9)
    inside = (table["lower"] <= data.coef) & (data.coef <= table["upper"]) & table["selected"]
    X = new_rows(data, seed)
    mean, std = model.predict(X, return_std=True)
    width = stats.t.ppf(0.95, model._degrees_of_freedom()[0]) * std
    y = X @ data.coef + np.random.default_rng([91, seed]).standard_normal(len(X))
    return {
        "rmse": datasets.prediction_rmse(model.coef_, data.coef),
        "oracle": datasets.prediction_rmse(datasets.oracle_coef(data), data.coef),
        "below_1e-3": float(np.mean(np.abs(model.coef_[nulls]) < 1e-3)),
        "coverage": float(inside[~nulls].mean()),
        "predicted": float(np.mean(np.abs(y - mean) <= width)),
        "converged": bool(model.converged_),
    }


def new_rows(data: datasets.Regression, seed: int) -> np.ndarray:
    """50 rows from the distribution of the training rows."""
    p = data.X.shape[1]
    noise = np.random.default_rng([90, seed]).standard_normal((50, p))
    if np.mean(data.X[:, :-1] * data.X[:, 1:]) < 0.35:  # independent columns
        return noise
    for j in range(1, p):
        noise[:, j] = 0.7 * noise[:, j - 1] + np.sqrt(1 - 0.49) * noise[:, j]
    return noise


def report(store: Store, lines: dict[tuple[str, str], list[dict]]) -> None:
    """One Markdown table, then what is counted over its rows."""
    print(
        "| design | data sets | paper: RMSE, null | path: RMSE (allowed), null | oracle | coverage "
        "| predictive | Algorithm 1: RMSE, null | GL: RMSE |\n" + "| --- " * 9 + "|"
    )
    missed, no_worse, count, far = [], 0, 0, []
    for table in TABLES:
        stored = [row for row in store.rows(table) if not row.error]
        for row in printed_rows(table):
            parts = {m: of(stored, m, row) for m in ["oracle", *METHODS]}
            ours = parts["sou"]
            if not ours:
                continue
            name, count = title(table, row), count + 1
            error, slack = mean(ours, "rmse"), margin(ours)
            paper = printed_number(table, row, "sou", "rmse") or np.nan
            null = printed_number(table, row, "sou", "below_1e-3") or np.nan
            no_worse += error <= paper
            if error > paper + slack or mean(ours, "below_1e-3") < null - 0.01:
                missed.append(name)
            if table == "table1":
                far += [r["rmse"] > 2 * o["rmse"] for r, o in both(ours, parts["oracle"])]
            show(name, f"{paper:.2f}, {null:.2f}", f" ({paper + slack:.3f})", parts, lines)
    for name in HELD_OUT:
        parts = {m: {line["seed"]: line for line in lines[name, m]} for m in METHODS}
        parts["oracle"] = {s: {"rmse": r["oracle"]} for s, r in parts["sou"].items()}
        show(name, "", "", parts, lines)
    print(f"\n{count} rows, misses: {missed}; no higher than printed in {no_worse}.")
    print(f"Experiment 1 data sets above twice the oracle: {sum(far)} of {len(far)}.")
    found = [line for (_, method), part in lines.items() if method == "sou" for line in part]
    print(f"Path fits that did not converge here: {sum(not r['converged'] for r in found)}.")


def show(name: str, paper: str, allowed: str, parts: dict, lines: dict) -> None:
    ours, other, gl = (parts[m] for m in METHODS)
    new = {line["seed"]: line for line in lines[name, "sou"]}
    cells = [
        name,
        str(len(ours)),
        paper,
        f"{mean(ours, 'rmse'):.3f}{allowed}, {mean(ours, 'below_1e-3'):.3f}",
        f"{mean(parts['oracle'], 'rmse'):.3f}",
        f"{mean(ours, 'coverage'):.2f}",
        f"{mean(new, 'predicted'):.2f}" if new else "",
        f"{mean(other, 'rmse'):.2f}, {mean(other, 'below_1e-3'):.2f}" if other else "",
        f"{mean(gl, 'rmse'):.2f}" if gl else "",
    ]
    for place, part in ((-2, other), (-1, gl)):
        if part and len(part) < len(ours):
            cells[place] += f" (on {len(part)})"
    print("| " + " | ".join(cells) + " |")


def of(stored: list[Row], method: str, row: dict) -> dict[int, dict]:
    """Results by seed of a method on a design, with the settings used here."""
    wanted = {**row, "method": method, **METHODS.get(method, {})}
    return {r.seed: r.result for r in stored if {**r.parameters, **wanted} == r.parameters}


def both(one: dict[int, dict], other: dict[int, dict]) -> list[tuple[dict, dict]]:
    return [(one[seed], other[seed]) for seed in one if seed in other]


def mean(part: dict[int, dict], what: str) -> float:
    return float(np.mean([row[what] for row in part.values()])) if part else np.nan


def margin(part: dict[int, dict]) -> float:
    """2 sqrt(2) Monte Carlo standard errors of the mean RMSE."""
    error = np.array([row["rmse"] for row in part.values()])
    return float(2 * np.sqrt(2) * error.std(ddof=1) / np.sqrt(len(error)))


def title(table: str, row: dict) -> str:
    if "signal_share" in row:
        return f"{TABLES[table]}, rho = {row['signal_share']}"
    return f"{TABLES[table]} " + ", ".join(str(value) for value in row.values())


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()

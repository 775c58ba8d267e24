"""The default SoUNetClassifier on ten tables beside an MLP, LightGBM and logistic regression.

    python benchmarks/network_tables.py fit ROWS.jsonl 200 201 202   # splits, a row for each fit
    python benchmarks/network_tables.py show ROWS.jsonl              # what the rows say
    python benchmarks/network_tables.py uci                          # an MLP on the UCI splits
    python benchmarks/network_tables.py times                        # what a default fit costs
    python benchmarks/network_tables.py mnist                        # 10,000 images, three seeds

A split is a seed: 70 % of the rows train, stratified by class. Categories are dummies, rows with
missing values are left out. A run that was stopped continues where it was. Without LightGBM in the
environment its columns are left out. Tables are read from SOUBAYES_DATA/tables.
"""

import json
import os
import sys
import time
import warnings
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from paper.mnist import load_mnist
from paper.uci import TABLES as UCI_TABLES
from paper.uci import load_table
from soubayes import SoUNetClassifier

FILES = {  # file and target; without a header the target is the last column
    "OJ": ("ISLR_OJ.csv", "Purchase"),
    "spam7": ("DAAG_spam7.csv", "yesno"),
    "Arrests": ("carData_Arrests.csv", "released"),
    "banknote": ("banknote_authentication.csv", None),
    "haberman": ("haberman.csv", None),
    "penguins": ("palmerpenguins_penguins.csv", "species"),
    "BEPS": ("carData_BEPS.csv", "vote"),
}
OURS = {"digits": load_digits, "breast cancer": load_breast_cancer, "wine": load_wine}
BINS = 10


def main(command: str, file: str = "", *rest: str) -> None:
    """Fit what is missing, or show what there is."""
    rows = Path(file)
    whole = {"uci": uci, "times": times, "mnist": mnist}
    if command in whole:
        print(whole[command]().to_string())
    elif command == "fit":
        fit(rows, [int(word) for word in rest if word.isdigit()], [w for w in rest if w in TABLES])
    else:
        print(show(pd.read_json(rows, lines=True)).to_string())


def fit(file: Path, splits: list[int], names: list[str]) -> None:
    """Append a row for every table and split that the file does not have."""
    known = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(row["table"], row["split"]) for row in known}
    for split in splits:
        for name in names or TABLES:
            if (name, split) not in done:
                row = {"table": name, "split": split, **compare(*load(name), split)}
                with file.open("a") as handle:
                    handle.write(json.dumps(row) + "\n")


def uci() -> pd.DataFrame:
    """RMSE of an MLP 50–50 with early stopping on the published splits, X and y standardised."""
    found = {}
    for name in UCI_TABLES:
        X, y, splits = load_table(name)
        errors = []
        for seed, test in enumerate(splits):
            train = np.setdiff1d(np.arange(len(y)), test)
            mlp = MLPRegressor(
                hidden_layer_sizes=(50, 50), early_stopping=True, max_iter=2000, random_state=seed
            )
            model = TransformedTargetRegressor(
                make_pipeline(StandardScaler(), mlp), transformer=StandardScaler()
            ).fit(X[train], y[train])
            errors.append(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2)))
        found[name] = {
            "rmse": np.mean(errors),
            "error": np.std(errors, ddof=1) / len(errors) ** 0.5,
        }
    return pd.DataFrame(found).T.round(3)


def times(split: int = 0) -> pd.DataFrame:
    """CPU seconds of a default fit over those of a training at its first confidence.

    With compilation, and again when everything is compiled. Also milliseconds to predict a row.
    """
    rows = {}
    for name in TABLES:
        X, y = load(name)
        parts = train_test_split(X, y, test_size=0.3, stratify=y, random_state=split)
        seconds, one = np.zeros((2, 2)), 0.0
        for i, confidence in enumerate(("auto", 0.03)):
            jax.clear_caches()
            net = SoUNetClassifier(confidence_weights=confidence, random_state=split)
            for j in range(2):
                began = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    net.fit(parts[0], parts[2])
                seconds[i, j] = time.process_time() - began
            if confidence == "auto":
                net.predict_proba(parts[1][:1])  # draws are kept from here on
                began = time.process_time()
                for row in parts[1][:50]:
                    net.predict_proba(row[None])
                one = 1e3 * (time.process_time() - began) / 50
        ratio, warm = seconds[0] / seconds[1]
        rows[name] = {"default": seconds[0, 0], "ratio": ratio, "compiled ratio": warm, "ms": one}
    return pd.DataFrame(rows).T.round(2)


def mnist() -> pd.DataFrame:
    """A default fit to 10,000 images that the seed draws, on the test images."""
    data, rows = load_mnist(), {}
    for seed in range(3):
        drawn = np.random.default_rng(seed).choice(len(data.y_train), 10_000, replace=False)
        began = time.process_time()
        net = SoUNetClassifier(random_state=seed).fit(data.X_train[drawn], data.y_train[drawn])
        seconds, p = time.process_time() - began, net.predict_proba(data.X_test)
        rows[seed] = {
            "accuracy": (p.argmax(axis=1) == data.y_test).mean(),
            "log loss": -np.log(p[np.arange(len(p)), data.y_test]).mean(),
            "ece": calibration_error(p, data.y_test),
            "seconds": seconds,
        }
    return pd.DataFrame(rows).T.round(4)


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns and labels of a table."""
    if name in OURS:
        return OURS[name](return_X_y=True)
    path, target = FILES[name]
    file = Path(os.environ["SOUBAYES_DATA"]) / "tables" / path
    table = pd.read_csv(file, header=None if target is None else 0)
    table = table.drop(columns="rownames", errors="ignore").dropna()
    y = table.pop(table.columns[-1] if target is None else target)
    return pd.get_dummies(table, drop_first=True).to_numpy(float), y.to_numpy()


def compare(X: np.ndarray, y: np.ndarray, split: int) -> dict[str, float]:
    """Log loss of every model on the test rows of a split; accuracy and ECE of ours."""
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.3, stratify=y, random_state=split
    )
    found: dict[str, float] = {"rows": len(X_train), "columns": X.shape[1]}
    codes = np.searchsorted(np.unique(y), y_test)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, model in _models(split).items():
            began = time.process_time()
            p = model.fit(X_train, y_train).predict_proba(X_test)
            found[f"seconds_{name}"] = time.process_time() - began
            truth = p[np.arange(len(p)), codes]
            found[f"loss_{name}"] = float(-np.log(np.maximum(truth, 1e-15)).mean())
            if name == "soubayes":
                found |= {
                    "accuracy": float(np.mean(p.argmax(axis=1) == codes)),
                    "ece": calibration_error(p, codes),
                    "ece_limit": error_limit(p),
                    "confidence": float(model.path_["confidence"][model.path_["chosen"]].iloc[0]),
                    "temperature": model.temperature_,
                    "units": str(model.architecture_.final[1:-1]),
                }
    return found


def calibration_error(p: np.ndarray, codes: np.ndarray) -> float:
    """Expected calibration error of the most probable class, with ten bins of one width."""
    return _error(p.max(axis=1), p.argmax(axis=1) == codes)


def error_limit(p: np.ndarray, draws: int = 500) -> float:
    """The 95 % point of the error of labels drawn from the predicted probabilities."""
    rng = np.random.default_rng(0)
    top = p.max(axis=1)
    return float(np.quantile([_error(top, rng.random(len(p)) < top) for _ in range(draws)], 0.95))


def _error(top: np.ndarray, right: np.ndarray) -> float:
    place = np.minimum((top * BINS).astype(int), BINS - 1)
    gaps = np.bincount(place, right.astype(float) - top, BINS)
    return float(np.abs(gaps).sum() / len(top))


def show(rows: pd.DataFrame) -> pd.DataFrame:
    """Means by table, and what is asked of them."""
    rows = rows.assign(below=rows["ece"] <= rows["ece_limit"])
    table = rows.drop(columns=["split", "units"]).groupby("table").mean()
    table["below"] = rows.groupby("table")["below"].sum()
    peers = [n for n in table if n.startswith("loss_") and n != "loss_soubayes"]
    for name in peers:
        table[name.replace("loss", "minus")] = table["loss_soubayes"] - table[name]
    table["minus_best"] = table["loss_soubayes"] - table[peers].min(axis=1)
    near = (table["minus_MLP"] <= 0.01) & (table["minus_logistic"] <= 0.01)
    print(f"within .01 of MLP and logistic: {near.sum()} of {len(near)}")
    print(f"mean difference to the best peer: {table['minus_best'].mean():+.4f}")
    print(f"largest difference to logistic: {table['minus_logistic'].max():+.4f}")
    print(f"ECE below its limit: {rows['below'].sum()} of {len(rows)} fits")
    return table.round(3)


def _models(split: int) -> dict[str, object]:
    scaled = StandardScaler
    models = {
        "soubayes": SoUNetClassifier(random_state=split),
        "MLP": make_pipeline(
            scaled(),
            MLPClassifier((200, 200), early_stopping=True, max_iter=500, random_state=split),
        ),
        "logistic": make_pipeline(scaled(), LogisticRegression(max_iter=5000)),
    }
    try:
        from lightgbm import LGBMClassifier
    except ImportError:
        return models
    return models | {"LightGBM": LGBMClassifier(n_jobs=1, verbose=-1, random_state=split)}


TABLES = [*FILES, *OURS]

if __name__ == "__main__":
    main(*sys.argv[1:])

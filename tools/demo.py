"""`make demo`: a real table, its summary beside Lasso and ridge, two pages to open."""

import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LassoCV, RidgeCV
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from paper.commands import paper_app
from soubayes import SoULinearRegression

OUT = Path("results")


def main() -> None:
    """Print, write, and say which files to open."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    noise = np.random.default_rng(0).normal(size=(len(X), 20))
    X[[f"noise {j}" for j in range(20)]] = noise
    print(f"Diabetes progression: {len(X)} patients, 10 columns and 20 of pure noise.\n")
    model = SoULinearRegression(inclusion=True).fit(X, y)
    summary = model.summary()
    print(summary[summary["selected"]].round(3).to_string(), "\n")
    print(f"{model.sparsity_}\n")
    compare(X, y)
    explorer = OUT / "explorer.html"
    model.to_html(explorer, title="Diabetes progression: explorer", X=X)
    print("\nTable 1 of the paper at quick size:")
    for words in (["reproduce", "table1", "--quick", "--jobs", "2"], ["report"]):
        folder = ["--out", str(OUT)] if words[0] == "reproduce" else [str(OUT)]
        paper_app([*words, *folder], standalone_mode=False)
    print("\nOpen these two files in a browser:")
    print(f"  {explorer.resolve()}   sliders for the confidences of this fit")
    print(f"  {(OUT / 'report.html').resolve()}   Table 1 beside the paper's numbers")


def compare(X, y) -> None:
    """Errors on held-out rows, and how many of the 20 columns of noise each method uses."""
    peers = {
        "soubayes": SoULinearRegression(),
        "Lasso, cross-validated": make_pipeline(StandardScaler(), LassoCV()),
        "ridge, cross-validated": make_pipeline(
            StandardScaler(), RidgeCV(alphas=np.geomspace(0.1, 1e4, 60))
        ),
    }
    folds = KFold(5, shuffle=True, random_state=0)
    print(f"{'':24}{'held-out RMSE':>14}{'columns of noise used':>24}")
    for name, peer in peers.items():
        predicted = cross_val_predict(peer, X, y, cv=folds)
        peer.fit(X, y)
        last = peer if name == "soubayes" else peer[-1]
        used = last.selected_ if name == "soubayes" else last.coef_ != 0
        error = root_mean_squared_error(y, predicted)
        print(f"{name:24}{error:>14.2f}{int(used[10:].sum()):>16} of 20")


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*convergence.*")
        main()

"""Spam messages, binary words in at least five of them, as a scipy-sparse X: log loss and time.

    SOUBAYES_DATA=... python benchmarks/sparse_text.py [splits]

Each split holds out a fifth of the messages. Peers are L2- and L1-penalised logistic regression
with C by 5-fold cross-validation. Seconds are CPU seconds of one run.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, train_test_split

from soubayes import SoULogisticRegression

GRID = {"C": np.logspace(-2, 3, 11)}


def methods() -> dict[str, Callable[[], Any]]:
    def searched(**settings: Any) -> Any:
        return GridSearchCV(
            LogisticRegression(max_iter=2000, **settings), GRID, scoring="neg_log_loss"
        )

    return {
        "soubayes": SoULogisticRegression,
        "L2": searched,
        "L1": lambda: searched(l1_ratio=1.0, solver="liblinear"),
    }


def main() -> None:
    path = Path(os.environ["SOUBAYES_DATA"]) / "tables" / "sms.tsv"
    lines = [line.split("\t", 1) for line in path.read_text(encoding="utf-8").splitlines()]
    labels, texts = np.array([line[0] for line in lines]), [line[1] for line in lines]
    for split in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        train, test = train_test_split(
            np.arange(len(labels)), test_size=0.2, random_state=split, stratify=labels
        )
        words = CountVectorizer(binary=True, min_df=5, dtype=np.float64)
        X, new = (words.fit_transform([texts[i] for i in train]), [texts[i] for i in test])
        for name, make in methods().items():
            start = time.process_time()
            model = make().fit(X, labels[train])
            seconds = time.process_time() - start
            loss = log_loss(labels[test], model.predict_proba(words.transform(new)))
            print(f"{split} {X.shape} {name:9s} log loss {loss:.4f} {seconds:6.2f} s", flush=True)


if __name__ == "__main__":
    main()

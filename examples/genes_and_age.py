"""Which of 2,000 genes matter beside age and sex? A sparse classifier that leaves the two alone.

Draws the confidence path and prints the selected columns with their uncertainty.
"""

import numpy as np
import pandas as pd

from soubayes import SoULogisticRegression, plot_path

rng = np.random.default_rng(0)
n, p = 150, 2000
genes = rng.normal(size=(n, 10)) @ rng.normal(size=(10, p)) + 2.0 * rng.normal(size=(n, p))
X = pd.DataFrame(genes, columns=[f"gene{j}" for j in range(p)])
X["age"], X["sex"] = rng.normal(60, 10, n), rng.integers(0, 2, n)
odds = 0.6 * genes[:, 3] - 0.6 * genes[:, 40] + 0.08 * (X["age"] - 60)
y = np.where(odds + rng.logistic(size=n) > 0, "ill", "healthy")

model = SoULogisticRegression(
    confidence_coef="auto",
    feature_blocks={"clinical": {"columns": ["age", "sex"], "prior": "normal", "variance": 10.0}},
).fit(X, y)

table = model.summary()
print(table[table["selected"]].round(3))
mean, sd = model.predict_proba(X[:3], return_std=True)
print("\nprobability of", model.classes_[1], "with its posterior standard deviation:")
for m, s in zip(mean[:, 1], sd[:, 1], strict=True):
    print(f"  {m:.2f} +- {s:.2f}")
ax = plot_path(model)
ax.set_title("Columns leave as the confidence in the coefficients rises")
ax.figure.savefig("genes_and_age.png", dpi=150)
print("\nwrote genes_and_age.png")

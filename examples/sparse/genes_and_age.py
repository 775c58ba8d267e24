"""
2,000 genes beside age and sex
==============================

Which genes predict an illness, when age and sex must stay in the model? A *feature block* gives the
two clinical columns an ordinary normal prior. They are never dropped, while the genes are selected.
The data are simulated.
"""

import matplotlib.pyplot as plt
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

# %%
# The predicted probability averages over the posterior. Its standard deviation says how far the
# coefficients leave it open.

mean, sd = model.predict_proba(X[:3], return_std=True)
for m, s in zip(mean[:, 1], sd[:, 1], strict=True):
    print(f"probability of illness: {m:.2f} ± {s:.2f}")

# %%
# Genes leave the model as the confidence in the coefficients rises.

ax = plot_path(model)
ax.figure.set_size_inches(7, 4)
plt.show()

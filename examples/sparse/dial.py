"""
One dial from dense to sparse
=============================

The confidences are a dial between ridge regression and a few columns. Held-out rows decide where
it should stand. Two simulated data sets of the same size: in one five columns carry the signal, in
the other every column carries a little.
"""

import matplotlib.pyplot as plt
import numpy as np

from soubayes import SoULinearRegression, plot_confidences

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 60))
few = np.zeros(60)
few[:5] = 1.0
many = 0.3 * rng.normal(size=60)
signals = {"five columns carry the signal": few, "every column carries a little": many}

figure, axes = plt.subplots(2, 1, figsize=(7, 7), layout="constrained")
for ax, (title, coef) in zip(axes, signals.items(), strict=True):
    y = X @ coef + rng.normal(size=120)
    model = SoULinearRegression().fit(X, y)
    print(f"{title}: {model.sparsity_}")
    plot_confidences(model, ax=ax)
    ax.set_title(title)
plt.show()

# %%
# Every mark is a candidate, from sparse (top) to dense (bottom). Its place is the score on
# held-out rows, its size the weight in the mixture that predicts.

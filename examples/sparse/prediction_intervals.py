"""
Intervals that hold what they promise
=====================================

The predictive distribution of a regression should contain 90 % of new observations in its 90 %
interval. Checked by cross-validation on the diabetes data, with squares and products of the
columns.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import KFold
from sklearn.preprocessing import PolynomialFeatures

from soubayes import SoULinearRegression

X, y = load_diabetes(return_X_y=True)
X = PolynomialFeatures(2, include_bias=False).fit_transform(X)
levels = np.array([0.5, 0.7, 0.8, 0.9, 0.95])
probabilities = np.concatenate([(1 - levels) / 2, [0.5], (1 + levels[::-1]) / 2])

quantiles = np.zeros((len(y), len(probabilities)))
for train, test in KFold(4, shuffle=True, random_state=0).split(X):
    model = SoULinearRegression(cv=5).fit(X[train], y[train])
    quantiles[test] = model.predict(X[test], quantiles=probabilities)
inside = (quantiles[:, :5] < y[:, None]) & (y[:, None] < quantiles[:, :5:-1])
for level, share in zip(levels, inside.mean(axis=0), strict=True):
    print(f"{level:.0%} intervals contain {share:.1%} of the held-out patients")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot([0.4, 1], [0.4, 1], color="0.7")
left.plot(levels, inside.mean(axis=0), "o")
left.set(xlabel="level of the interval", ylabel="share of held-out rows inside")
order = np.argsort(quantiles[:, 5])
right.fill_between(np.arange(len(y)), quantiles[order, 3], quantiles[order, -4], alpha=0.3)
right.plot(quantiles[order, 5], label="median")
right.plot(y[order], "k.", ms=3, label="held-out patients")
right.set(xlabel="patients, by predicted median", ylabel="disease progression")
right.legend()
plt.show()

"""
A small table: an ensemble of networks
======================================

For a table with a few hundred rows, an ensemble of small networks with several confidences is more
accurate than one network. Its intervals are wider where the networks differ.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor

from soubayes import SoULinearRegression, SoUNetEnsemble, SoUNetRegressor

X, y = make_friedman1(600, n_features=8, noise=1.0, random_state=0)
train, test = slice(0, 300), slice(300, None)

net = SoUNetRegressor((30,), epochs=400, learning_rate=0.01)
ensemble = SoUNetEnsemble(net, folds=3, random_state=0).fit(X[train], y[train])
print(ensemble.path_.round(3).to_string(index=False))
methods = {
    "linear regression": SoULinearRegression(cv=5).fit(X[train], y[train]),
    "random forest": RandomForestRegressor(random_state=0).fit(X[train], y[train]),
    "ensemble of networks": ensemble,
}
for name, method in methods.items():
    rmse = np.sqrt(np.mean((method.predict(X[test]) - y[test]) ** 2))
    print(f"{name:22s} test RMSE {rmse:.2f} (the noise is 1)")

# %%
low, high = ensemble.predict_interval(X[test], coverage=0.9)
inside = (low < y[test]) & (y[test] < high)
print(f"90 % intervals contain {inside.mean():.0%} of the test rows")

figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
mean = ensemble.predict(X[test])
ax.errorbar(mean, y[test], xerr=[mean - low, high - mean], fmt=".", color="C0", ecolor="0.8")
ax.plot([0, 28], [0, 28], color="0.4", lw=1)
ax.set(xlabel="prediction with 90 % interval", ylabel="observed")
plt.show()

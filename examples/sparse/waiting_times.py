"""
A likelihood of your own: waiting times
=======================================

Exponential regression: the mean waiting time is exp(eta). The likelihood is a class with the loss
of a row, its two derivatives, and the mean of y. Selection, intervals and large data then work as
for the built-in models.
"""

import matplotlib.pyplot as plt
import numpy as np

from soubayes import RowLikelihood, SoUGeneralizedRegression, plot_path


class Waiting(RowLikelihood):
    def derivatives(self, eta, y):
        ratio = y * np.exp(-eta)
        return eta + ratio, 1.0 - ratio, ratio

    def predict(self, mean, variance):
        return np.exp(mean + variance / 2.0)


rng = np.random.default_rng(0)
X = rng.normal(size=(300, 30))
y = rng.exponential(np.exp(1.0 + X[:, 0] - 0.7 * X[:, 1] + 0.4 * X[:, 2]))

model = SoUGeneralizedRegression(Waiting(), confidence_coef="auto").fit(X, y)
print(model.summary().query("selected").round(2))

# %%
# Left: the coefficients along the path. Right: observed against predicted waiting times.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot_path(model, ax=left)
right.loglog(model.predict(X), y, ".", ms=4)
right.loglog([0.05, 50], [0.05, 50], color="0.6", lw=1)
right.set(xlabel="predicted mean", ylabel="observed time")
plt.show()

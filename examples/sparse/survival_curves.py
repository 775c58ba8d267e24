"""
Survival curves with bands
==========================

Which of 40 measurements change the hazard, and what do they mean for two patients? The data are
simulated: two measurements matter, and a third of the patients are censored.
"""

import matplotlib.pyplot as plt
import numpy as np

from soubayes import SoUCoxRegression

rng = np.random.default_rng(1)
n, p = 200, 40
X = rng.normal(size=(n, p))
years = rng.weibull(1.2, n) * 4.0 * np.exp(-0.8 * X[:, 0] + 0.6 * X[:, 1])
followed = rng.uniform(1.0, 10.0, n)
event, time = years <= followed, np.minimum(years, followed)

model = SoUCoxRegression().fit(X, (event, time))
print(model.sparse_.summary(exponentiate=True).query("selected").round(2))

# %%
# A patient with a high risk beside one with a low risk. Bands hold the uncertainty of the
# coefficients and of the baseline hazard.

order = np.argsort(model.predict(X))
curves = model.predict_survival_function(X[order[[10, -10]]], level=0.9)
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for patient, name in ((0, "low risk"), (1, "high risk")):
    part = curves[patient]
    ax.step(part.index, part["estimate"], where="post", label=name)
    ax.fill_between(part.index, part["lower"], part["upper"], step="post", alpha=0.2)
ax.set(xlabel="years", ylabel="probability to survive", ylim=(0, 1))
ax.legend()
plt.show()

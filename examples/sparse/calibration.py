"""
Probabilities that can be believed
==================================

A classifier is calibrated if 70 % of the cases to which it gives a probability of 0.7 are positive.
Logistic regression without a penalty is not, with 60 columns and 200 rows: it is far too sure.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibrationDisplay
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss

from soubayes import SoULogisticRegression

rng = np.random.default_rng(1)
X = rng.normal(size=(4200, 60))
odds = X[:, :6] @ np.array([1.5, -1.5, 1.0, -1.0, 0.5, -0.5])
y = (odds + rng.logistic(size=4200) > 0).astype(int)
train, test = slice(0, 200), slice(200, None)

methods = {
    "no penalty": LogisticRegression(C=np.inf, max_iter=1000),
    "L2, cross-validated": LogisticRegressionCV(
        Cs=10, l1_ratios=(0.0,), scoring="neg_log_loss", use_legacy_attributes=False
    ),
    "soubayes": SoULogisticRegression(),
}
figure, ax = plt.subplots(figsize=(6, 6), layout="constrained")
for name, method in methods.items():
    method.fit(X[train], y[train])
    probability = method.predict_proba(X[test])
    print(f"{name:20s} log loss {log_loss(y[test], probability):.3f}")
    CalibrationDisplay.from_predictions(
        y[test], probability[:, 1], n_bins=12, strategy="quantile", name=name, ax=ax
    )
ax.set(xlabel="predicted probability", ylabel="share of positive cases")
plt.show()

# %%
# The mean of the posterior probability is closer to one half than the probability at the mean
# coefficients, and the mixture is recalibrated on held-out rows.

print("columns kept:", np.flatnonzero(methods["soubayes"].selected_[0]))

"""
Which of 100 columns matter?
============================

A regression with 105 rows, 100 columns and 10 true effects. The fit selects columns, gives every
selected coefficient an interval, and needs no tuning.
"""

import matplotlib.pyplot as plt
import numpy as np

from soubayes import SoULinearRegression, plot_path, plot_shrinkage
from soubayes.datasets import experiment1

data = experiment1(105, 100, 10, random_state=1)  # 10 effects of sizes 1 to 10
model = SoULinearRegression(choice="path").fit(data.X, data.y)

table = model.summary(level=0.9)
print(table[table["selected"]].round(2))
print(f"true effects: {np.flatnonzero(data.coef)}")
print(f"noise standard deviation: {model.noise_variance_**0.5:.2f} (true value 1)")

# %%
# Left: the coefficients along the path. Columns without an effect leave first; the dashed line is
# the point that was chosen. Right: how much each coefficient is shrunk.

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot_path(model, ax=left)
plot_shrinkage(model, ax=right)
plt.show()

"""
Which of these correlated columns?
==================================

In genetic data neighbouring columns are nearly copies of each other. A single selected column is
then arbitrary. A *credible set* is the honest answer: one of its columns carries the effect, with a
probability of 95 %.
"""

import matplotlib.pyplot as plt
import numpy as np

from soubayes import SoULinearRegression, plot_credible_sets

rng = np.random.default_rng(3)
n, p = 400, 300
columns = []
while len(columns) < p:  # stretches of columns in which neighbours are alike
    z = rng.normal(size=n)
    for _ in range(int(rng.integers(5, 30))):
        z = 0.995 * z + np.sqrt(1 - 0.995**2) * rng.normal(size=n)
        columns.append((z > 0.3).astype(float) + (z > 1.2))
X = np.column_stack(columns[:p])
y = 0.45 * X[:, 60] - 0.4 * X[:, 210] + rng.normal(size=n)  # columns 60 and 210 have an effect

model = SoULinearRegression(choice="path", inclusion=True).fit(X, y)
for number, row in model.supports_.credible_sets(level=0.95).iterrows():
    print(f"set {number}: {', '.join(row['features'])}")
    print(f"  probability {row['probability']:.3f}, smallest correlation {row['purity']:.2f}")
    print(f"  effect of one sd: {row['effect']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})")

# %%
# The height of a point is the probability that its column carries an effect. No single column of
# the larger set is probable, but the set as a whole is.

figure = plot_credible_sets(model).figure
figure.set_size_inches(7.5, 3.5)
plt.show()

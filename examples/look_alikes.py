"""Credible sets of genotype-like columns: which variants could carry the effect?

Run with ``python examples/look_alikes.py``; writes ``look_alikes.png``.
"""

import numpy as np

from soubayes import SoULinearRegression, plot_credible_sets

rng = np.random.default_rng(3)
n, p = 400, 300
columns = []
while len(columns) < p:  # blocks of columns, neighbours alike
    z = rng.normal(size=n)
    for _ in range(int(rng.integers(5, 30))):
        z = 0.995 * z + np.sqrt(1 - 0.995**2) * rng.normal(size=n)
        columns.append((z > 0.3).astype(float) + (z > 1.2))
X = np.column_stack(columns[:p])
y = 0.45 * X[:, 60] - 0.4 * X[:, 210] + rng.normal(size=n)

model = SoULinearRegression(choice="path", inclusion=True).fit(X, y)
sets = model.credible_sets()
for number, row in sets.iterrows():
    print(f"set {number}: {', '.join(row['features'])}")
    print(f"  probability {row['probability']:.3f}, smallest correlation {row['purity']:.2f}")
    print(f"  effect of one sd {row['effect']:.2f} ({row['lower']:.2f} to {row['upper']:.2f})")

figure = plot_credible_sets(model).figure
figure.set_size_inches(7.5, 3.2)
figure.savefig("look_alikes.png", dpi=110)

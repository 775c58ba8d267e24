"""
A network that finds its own size
=================================

A network with two layers of 50 units learns a sine curve. Units that it does not need switch
themselves off and are removed during training. The prediction comes with its uncertainty, which
grows where there are no data.
"""

import matplotlib.pyplot as plt
import numpy as np

from soubayes import SoUNetRegressor

rng = np.random.default_rng(0)
X = rng.uniform(-4, 4, (300, 1))
y = np.sin(X[:, 0]) + 0.2 * rng.normal(size=300)

net = SoUNetRegressor(
    (50, 50), confidence_weights=1.0, skip=False, epochs=1000, learning_rate=0.005, random_state=0
).fit(X, y)
print(net.architecture_, "| active units", net.active_units_)

# %%
# ``uncertainty`` separates the noise of the data (aleatoric) from what the network does not know
# (epistemic).

grid = np.linspace(-6, 6, 200)[:, None]  # beyond the data on both sides
parts = net.uncertainty(grid)
inside = np.abs(grid[:, 0]) < 4
print(f"noise: {parts.aleatoric[0]:.3f} (true value 0.2)")
print(f"epistemic: {parts.epistemic[inside].mean():.3f} inside the data, ", end="")
print(f"{parts.epistemic[~inside].mean():.3f} outside")

figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
net.plot_predictive(grid, ax=axes[0])
axes[0].plot(X[:, 0], y, ".", color="black", ms=3)
net.plot_architecture(ax=axes[1])
plt.show()

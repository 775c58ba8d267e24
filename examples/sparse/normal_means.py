"""
Which of 500 means are not zero?
================================

500 units with four replicates each; 25 of them have a mean of 2, all others 0. Shrinkage alone
pulls every mean a little. A low confidence in the local scales keeps or drops each unit.
"""

import matplotlib.pyplot as plt
import numpy as np

from soubayes import SoUNormalMeans

rng = np.random.default_rng(0)
truth = np.zeros(500)
truth[:25] = 2.0
Y = truth[:, None] + rng.normal(size=(500, 4))

sparse = SoUNormalMeans().fit(Y)
shrunk = SoUNormalMeans(confidence_local=1.0, confidence_coef=1.0).fit(Y)
for name, model in {"sparse": sparse, "all confidences 1": shrunk}.items():
    rmse = np.sqrt(np.mean((model.coef_ - truth) ** 2))
    print(f"{name:18s} RMSE {rmse:.3f}")
print(f"{'row means':18s} RMSE {np.sqrt(np.mean((Y.mean(axis=1) - truth) ** 2)):.3f}")
kept = sparse.selected_
print(f"{kept[:25].sum()} of 25 units found, {kept[25:].sum()} of 475 kept by mistake")

# %%
# The estimate against the mean of the replicates. At confidence 1 every mean is shrunk by about the
# same factor; the sparse fit has a threshold.

figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True, layout="constrained")
for ax, model, title in zip(
    axes, (shrunk, sparse), ("all confidences 1", "low local confidence"), strict=True
):
    ax.plot([-2, 4], [-2, 4], color="0.8", lw=1)
    ax.scatter(Y.mean(axis=1)[25:], model.coef_[25:], s=8, color="0.5", label="true mean 0")
    ax.scatter(Y.mean(axis=1)[:25], model.coef_[:25], s=12, color="C3", label="true mean 2")
    ax.set(title=title, xlabel="mean of the replicates")
axes[0].set_ylabel("estimate")
axes[0].legend()
plt.show()

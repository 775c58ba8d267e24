"""
Half a million rows, read once
==============================

Rows arrive in blocks that are never in memory together. One pass gives the same fit as all rows at
once, cross-validated choice of the confidences included.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from soubayes import SoULinearRegression

coef = np.zeros(50)
coef[:10] = 0.1 * 0.6 ** np.arange(10)  # small effects, which many rows can find


def blocks(rows):
    for seed in range(rows // 10_000):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(10_000, 50)).astype(np.float32)
        yield X, X @ coef + rng.normal(size=10_000)


sizes, found = [20_000, 100_000, 500_000], []
for rows in sizes:
    started = time.process_time()
    model = SoULinearRegression().fit(blocks(rows))
    found.append(model.summary(level=0.9))
    seconds = time.process_time() - started
    print(f"{rows:7,d} rows: {int(found[-1]['selected'].sum()):2d} columns, {seconds:.1f} s")

# %%
# With more rows smaller effects are found, and the intervals become shorter.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.5), sharey=True, layout="constrained")
for ax, rows, table in zip(axes, sizes, found, strict=True):
    kept = np.flatnonzero(table["selected"])
    estimate = table["estimate"].to_numpy()[kept]
    half = (table["upper"] - table["lower"]).to_numpy()[kept] / 2
    ax.errorbar(kept, estimate, half, fmt="o", ms=4, capsize=2)
    ax.plot(coef[:12], "k_", ms=10, label="true effect")
    ax.set(title=f"{rows:,} rows", xlabel="column")
axes[0].set_ylabel("coefficient, 90 % interval")
axes[0].legend()
plt.show()

"""
Which measurements of a tumour?
===============================

The breast cancer data of scikit-learn have 30 measurements of cell nuclei: ten quantities, each as
a mean, a standard error and a worst value. Many of them are nearly the same number. Credible sets
say which of them the data can tell apart.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from soubayes import SoULogisticRegression

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
model = SoULogisticRegression(choice="path", inclusion=True).fit(X, y)

for number, row in model.supports_.credible_sets(level=0.9).iterrows():
    print(f"set {number}: {', '.join(row['features'])}")
    print(f"  probability {row['probability']:.2f}, smallest correlation {row['purity']:.2f}")

# %%
# Left: correlations above 0.9 join the measurements of size (radius, perimeter, area). Right: the
# probability that each measurement carries an effect. Columns that share their information share
# the probability.

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 6), layout="constrained")
image = left.imshow(np.abs(np.corrcoef(X.T)), cmap="Blues", vmin=0, vmax=1)
figure.colorbar(image, ax=left, label="absolute correlation", shrink=0.6)
left.set(xlabel="column", ylabel="column")
inclusion = model.supports_.inclusion[0]
order = np.argsort(inclusion)
right.barh(np.arange(30), inclusion[order], color="C0")
right.set_yticks(np.arange(30), X.columns[order], fontsize=8)
right.set(xlabel="probability of an effect", xlim=(0, 1))
plt.show()

"""
Which pixels tell an 8 from a 3?
================================

The small digits of scikit-learn have 8 x 8 pixels. A sparse classifier keeps the pixels that it
needs to tell two digits apart.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from soubayes import SoULogisticRegression

X, y = load_digits(return_X_y=True)
pairs = [(3, 8), (1, 7), (4, 9)]
figure, axes = plt.subplots(2, 3, figsize=(8, 5.5), layout="constrained")
for (first, second), column in zip(pairs, axes.T, strict=True):
    rows = np.isin(y, (first, second))
    X_train, X_test, y_train, y_test = train_test_split(X[rows], y[rows], random_state=0)
    model = SoULogisticRegression(choice="path").fit(X_train, y_train)
    kept = int(model.selected_.sum())
    print(f"{first} or {second}: {kept} of 64 pixels, accuracy {model.score(X_test, y_test):.3f}")
    means = [X_train[y_train == digit].mean(axis=0) for digit in (first, second)]
    column[0].imshow((means[1] - means[0]).reshape(8, 8), cmap="RdBu_r", vmin=-16, vmax=16)
    column[0].set_title(f"mean {second} minus mean {first}", fontsize=10)
    effect = (model.coef_[0] * X_train.std(axis=0)).reshape(8, 8)
    limit = np.abs(effect).max()
    column[1].imshow(effect, cmap="RdBu_r", vmin=-limit, vmax=limit)
    column[1].set_title(f"{kept} pixels decide", fontsize=10)
for ax in axes.flat:
    ax.set(xticks=[], yticks=[])
plt.show()

# %%
# Red pixels speak for the second digit, blue ones for the first. White pixels are not used at all.

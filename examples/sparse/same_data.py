"""
Lasso, ARD, horseshoe and soubayes on the same data
===================================================

The diabetes data of scikit-learn with all squares and products of its columns: 442 patients and 65
columns. Half of the patients train four methods and the other half tests them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import ARDRegression, LassoCV
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from soubayes import SoULinearRegression, horseshoe_gibbs

X, y = load_diabetes(return_X_y=True, as_frame=True)
products = PolynomialFeatures(2, include_bias=False)
X = StandardScaler().fit_transform(products.fit_transform(X))
names = products.get_feature_names_out()
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
centre, spread = y_train.mean(), y_train.std()
z = (y_train - centre) / spread

draws = horseshoe_gibbs(X_train - X_train.mean(axis=0), z, draws=500, chains=2, random_state=0)
horseshoe = draws.posterior["coef"].mean(("chain", "draw")).values
sparse = SoULinearRegression(choice="path").fit(X_train, z)
mixture = SoULinearRegression().fit(X_train, z)
coefficients = {
    "Lasso, cross-validated": LassoCV(max_iter=50_000).fit(X_train, z).coef_,
    "ARD": ARDRegression().fit(X_train, z).coef_,
    "horseshoe, posterior mean": horseshoe,
    "soubayes, sparse point": sparse.coef_,
    "soubayes, default mixture": mixture.coef_,
}
for title, coef in coefficients.items():
    error = y_test - centre - spread * (X_test - X_train.mean(axis=0)) @ coef
    rmse, kept = np.sqrt(np.mean(error**2)), np.sum(np.abs(coef) > 1e-3)
    print(f"{title:26s} test RMSE {rmse:5.1f}, {kept:2d} coefficients above 0.001")

# %%
# The horseshoe shrinks coefficients but keeps all of them. ARD and the Lasso drop some. The sparse
# point of soubayes keeps five, at a small cost in prediction. The default mixture of soubayes adds
# what denser fits predict.

figure, axes = plt.subplots(5, 1, figsize=(8, 8), sharex=True, sharey=True, layout="constrained")
for ax, (title, coef) in zip(axes, coefficients.items(), strict=True):
    ax.stem(coef, basefmt=" ", markerfmt=".")
    ax.axhline(0, color="0.7", lw=0.8)
    ax.set_title(title, loc="left", fontsize=10)
strongest = np.argsort(-np.abs(sparse.coef_))[:6]
axes[-1].set_xticks(strongest, names[strongest], rotation=90, fontsize=8)
axes[2].set_ylabel("standardised coefficient")
plt.show()

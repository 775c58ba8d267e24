"""Which of 100 columns matter? Select, read the uncertainty, and look along the path."""

import matplotlib.pyplot as plt

from soubayes import SoULinearRegression, plot_path, plot_shrinkage
from soubayes.datasets import experiment1

data = experiment1(105, 100, 10, random_state=1)  # 10 signals of size 1 to 10
model = SoULinearRegression().fit(data.X, data.y)

table = model.summary(level=0.9)
print(table[table["selected"]].round(2))
print(f"noise sd {model.noise_variance_**0.5:.2f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
plot_path(model, ax=left)
plot_shrinkage(model, ax=right)
figure.savefig("sparse_regression.png", dpi=120)

"""
The frontier of a network
=========================

One training gives a family of networks, from accurate to small. The dial is the confidence in the
prior of the weights. The small digits of scikit-learn, 8 x 8 pixels, with inputs pruned as well.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from soubayes import SoUNetClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
net = SoUNetClassifier(
    (50,),
    confidence_weights=(0.03, 0.1, 0.3, 1.0, 3.0),
    prune_inputs=True,
    input_shape=(8, 8, 1),
    epochs=60,
    learning_rate=0.01,
    random_state=0,
)
net.fit(X_train, y_train, X_val=X_test, y_val=y_test)

for confidence in net.path_["confidence"]:
    small = net.at(confidence)
    size = small.architecture_
    print(
        f"confidence {confidence:4.2f}: {size}, {size.multiply_adds[1]:,d} multiply-adds, ", end=""
    )
    print(f"test accuracy {small.score(X_test, y_test):.3f}")

# %%
# Left: loss against size, one point for each confidence. Right: the pixels that the chosen network
# reads, by the size of their weights.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
net.plot_path(ax=left)
net.plot_inputs(ax=right)
plt.show()

"""Images of digits for the experiments: MNIST, a part of it, or the small set of scikit-learn."""

import numpy as np

from paper.mnist import MNIST, load_mnist


def load_digits_data(name: str, train: int | None, seed: int) -> MNIST:
    """MNIST, or ``train`` of its training images drawn by ``seed``; "digits" is 1,797 of 8 x 8.

    The small set comes with scikit-learn and serves the toy size, which must not download.

    >>> load_digits_data("digits", None, 0).X_train.shape
    (1500, 64)
    """
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return MNIST(X[: train or 1500], y[: train or 1500], X[1500:], y[1500:])
    data = load_mnist()
    if train is None:
        return data
    rows = np.sort(np.random.default_rng(seed).permutation(len(data.y_train))[:train])
    return data._replace(X_train=data.X_train[rows], y_train=data.y_train[rows])

"""The sentence on what the selected columns alone cost."""

import numpy as np
import pytest

from soubayes import SoULinearRegression
from soubayes.sparse.choice.sparsity import Sparsity


@pytest.mark.parametrize(
    ("error", "other", "said"),
    [
        (1.0, 1.0, "as well as all columns."),
        (1.004, 1.0, "as well as all columns."),
        (1.5, 1.0, "50% worse than all columns (RMSE 1.5 against 1)."),
        (0.8, 1.0, "20% better than all columns (RMSE 0.8 against 1)."),
        # a ratio to a number near 0 says little, so only the two numbers are given
        (0.03, 0.001, "worse than all columns (RMSE 0.03 against 0.001)."),
    ],
)
def test_the_sentence_says_how_much_is_lost(error, other, said):
    sentence = str(Sparsity(2, 1_500, error, other, "RMSE")).replace("\n", " ")
    assert sentence == f"2 of 1,500 columns; alone they predict held-out rows {said}"


def test_the_error_is_that_of_the_held_out_predictions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6))
    y = X[:, 0] + rng.normal(size=80)
    model = SoULinearRegression().fit(X, y)
    held = model.out_of_fold_
    expected = np.sqrt(np.mean((held["y"] - held["mean"]) ** 2))
    assert model.sparsity_.error_all == pytest.approx(expected)
    assert model.sparsity_.selected == model.selected_.sum()

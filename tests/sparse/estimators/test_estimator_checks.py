"""scikit-learn's own contract."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from soubayes import SoULinearRegression, SoUNormalMeans


@pytest.mark.filterwarnings("ignore:No features were selected")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        SoULinearRegression(choice="path"),
        SoULinearRegression(choice="path", solver="coordinate", confidence_local=1.0, max_iter=3),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@parametrize_with_checks([SoUNormalMeans()])
def test_scikit_learn_checks_of_normal_means(estimator, check):
    check(estimator)

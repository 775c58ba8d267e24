"""scikit-learn's own contract."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from soubayes import SoULinearRegression, SoULogisticRegression, SoUNormalMeans


@pytest.mark.filterwarnings("ignore:No features were selected")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        SoULinearRegression(choice="path"),
        SoULinearRegression(choice="path", solver="coordinate", confidence_local=1.0, max_iter=3),
        SoULogisticRegression(choice="path", multi_class="multinomial"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


REPEATED = "folds make rows distinguishable: a row that is repeated is in several folds"


def with_folds(estimator):
    """The two checks of repeated rows against weights hold with cv=None (above)."""
    return {
        "check_sample_weight_equivalence_on_dense_data": REPEATED,
        "check_sample_weight_equivalence_on_sparse_data": REPEATED,
    }


@pytest.mark.filterwarnings("ignore:No features were selected")
@pytest.mark.filterwarnings("ignore::soubayes.sparse.choice.folds.ChoiceWarning")
@parametrize_with_checks([SoULinearRegression(cv=2)], expected_failed_checks=with_folds)
def test_scikit_learn_checks_with_folds(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:No features were selected")
@pytest.mark.filterwarnings("ignore::soubayes.sparse.choice.folds.ChoiceWarning")
@parametrize_with_checks(
    [SoULogisticRegression(cv=2), SoULogisticRegression(cv=2, multi_class="multinomial")],
    expected_failed_checks=with_folds,
)
def test_scikit_learn_checks_of_a_classifier_with_folds(estimator, check):
    check(estimator)


@parametrize_with_checks([SoUNormalMeans()])
def test_scikit_learn_checks_of_normal_means(estimator, check):
    check(estimator)

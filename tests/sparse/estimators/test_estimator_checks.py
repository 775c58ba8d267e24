"""scikit-learn's own contract."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from soubayes import (
    SoUGammaRegression,
    SoULinearRegression,
    SoULogisticRegression,
    SoUNegativeBinomialRegression,
    SoUNormalMeans,
    SoUOrdinalRegression,
    SoUPoissonRegression,
)


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


def by_nodes(estimator):
    """The rows of these checks are separated, and J is flat there."""
    close = "averages over nodes: the two fits agree to 1e-6, the check asks for 1e-7"
    return {
        "check_sample_weight_equivalence_on_dense_data": close,
        "check_sample_weight_equivalence_on_sparse_data": close,
    }


@pytest.mark.filterwarnings("ignore:No features were selected")
@parametrize_with_checks(
    [SoULogisticRegression(choice="path", multi_class="multinomial")],
    expected_failed_checks=by_nodes,
)
def test_scikit_learn_checks_of_several_classes(estimator, check):
    check(estimator)


def without_partial_fit(estimator):
    """Student noise reads the rows again."""
    why = "partial_fit is refused: the weight of a row depends on the fit"
    return dict.fromkeys(
        (
            "check_fit_score_takes_y",
            "check_n_features_in_after_fitting",
            "check_estimators_partial_fit_n_features",
        ),
        why,
    )


@pytest.mark.filterwarnings("ignore:No features were selected")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [SoULinearRegression(choice="path", noise="student")],
    expected_failed_checks=without_partial_fit,
)
def test_scikit_learn_checks_of_student_noise(estimator, check):
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


def rounded(y):
    """Whole numbers, where there are real ones."""
    if y is None or np.asarray(y).dtype.kind not in "iuf":
        return y
    return np.round(np.asarray(y)).astype(float)


class Rounded:
    """scikit-learn's targets are not counts: here they become whole numbers."""

    def fit(self, X, y=None, sample_weight=None):
        return super().fit(X, rounded(y), sample_weight)

    def score(self, X, y, sample_weight=None):
        return super().score(X, rounded(y), sample_weight)


class RoundedPoisson(Rounded, SoUPoissonRegression):
    pass


class RoundedNegativeBinomial(Rounded, SoUNegativeBinomialRegression):
    pass


FAST = {"choice": "path", "confidence_coef": 2.0, "max_iter": 50, "tol": 1e-6}


def with_families(estimator):
    """Checks whose data are not of the family."""
    transformer = ("data_not_an_array", "general", "preserve_dtypes", "n_iter")
    zeros = {f"check_transformer_{name}": "its y holds zeros" for name in transformer}
    unordered = {"check_classifiers_train": "its classes have no order"}
    return {"SoUGammaRegression": zeros, "SoUOrdinalRegression": unordered}.get(
        type(estimator).__name__, {}
    )


@pytest.mark.filterwarnings("ignore:No features were selected")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([RoundedPoisson(**FAST)])
def test_scikit_learn_checks_of_counts(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:No features were selected")
@pytest.mark.filterwarnings("ignore:y has text labels without an order")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        RoundedNegativeBinomial(**FAST),
        SoUGammaRegression(**FAST),
        SoUOrdinalRegression(**FAST),
    ],
    expected_failed_checks=with_families,
)
def test_scikit_learn_checks_of_families(estimator, check):
    check(estimator)

"""scikit-learn's own contract, run on small networks."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from soubayes import SoUNetClassifier, SoUNetRegressor

# some of the checks' targets are noise
pytestmark = pytest.mark.filterwarnings("ignore::soubayes.networks.held_out.LittleLearntWarning")
SMALL = {"hidden": (8,), "epochs": 100, "batch_size": 20, "learning_rate": 0.02}


SHUFFLED = "minibatches of repeated rows are not those of weighted rows"
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": SHUFFLED,
}


@pytest.mark.slow
@parametrize_with_checks(
    [SoUNetRegressor(**SMALL), SoUNetClassifier(**SMALL)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_estimator_checks(estimator, check):
    check(estimator)

"""The sparse estimators give the numbers that were recorded before their parts were moved."""

import numpy as np
import pytest

from sparse_fixture import CASES, fit, numbers, recorded

RECORDED = recorded()


def test_every_case_is_recorded():
    assert set(RECORDED) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_same_numbers(name):
    case = CASES[name]
    found = numbers(fit(case))
    assert found.keys() == RECORDED[name].keys()
    for quantity, before in RECORDED[name].items():
        limits = (case.close_value, 0.0) if quantity == "J" else (case.close, case.close)
        np.testing.assert_allclose(found[quantity], before, *limits, err_msg=quantity)

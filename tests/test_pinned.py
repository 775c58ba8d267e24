"""Default fits of every family give the numbers that were recorded."""

import pytest

from pinned import cases, gaps, measured, recorded

CASES = cases()
RECORDED = recorded()


def test_every_case_is_recorded():
    assert set(RECORDED) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_same_numbers(name):
    gap = gaps(measured(CASES[name]), RECORDED[name])
    moved = {quantity: value for quantity, value in gap.items() if value > CASES[name].limit}
    assert not moved, "in units of each number or its posterior sd"

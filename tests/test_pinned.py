"""Default fits of every family give the numbers that were recorded, on any processor."""

from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

from pinned import TIGHT, by_kernel, cases, gaps, measured, recorded

CASES = cases()
RECORDED = recorded()


def test_every_case_is_recorded():
    assert set(RECORDED) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_same_numbers(name):
    gap = gaps(measured(CASES[name]), RECORDED[name])
    moved = {quantity: value for quantity, value in gap.items() if value > TIGHT}
    assert not moved, "in units of each number or its posterior sd"


# one of each family, and those whose digits once hung on whether rounding made J rise
TRIED = [
    *("linear: default", "binary: default", "softmax: groups of rows", "poisson: wide"),
    *("negative binomial: path", "gamma: inclusion", "gamma: stream", "ordinal: path", "cox: wide"),
]


def test_same_numbers_under_two_kernels(tmp_path):
    if "openblas" not in {each.get("internal_api") for each in threadpool_info()}:
        pytest.skip("NumPy's linear algebra is not OpenBLAS here")
    processor = Path("/proc/cpuinfo")
    if not processor.exists() or "avx512bw" not in processor.read_text():
        pytest.skip("the kernel SkylakeX needs a processor with AVX-512")
    haswell, skylake = by_kernel(tmp_path, *TRIED)
    for name in TRIED:
        gap = gaps(skylake[name], haswell[name])
        assert max(gap.values()) <= TIGHT, (name, gap)

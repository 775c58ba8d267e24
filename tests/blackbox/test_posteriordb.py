"""The default fit on eight posteriors of posteriordb, where their data are at hand."""

import importlib.util
import os
import warnings
from pathlib import Path

import pytest

from soubayes import fit

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "posteriordb.py"


@pytest.mark.slow
@pytest.mark.skipif(
    "SOUBAYES_DATA" not in os.environ, reason="the data of posteriordb are not at hand"
)
def test_the_verdict_is_right_on_posteriordb():
    """Trusted and right on at least seven, not to be used at most once, never trusted if wrong."""
    spec = importlib.util.spec_from_file_location("posteriordb", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = Path(os.environ["SOUBAYES_DATA"]) / "posteriordb"
    right, useless = 0, 0
    for case in module.posteriors(folder):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a fit that is not trusted may warn
            posterior = fit(case.model, *case.args)
        draws = case.named(posterior.sample(20_000, random_state=5))
        found = module.errors(draws, module.reference(folder, case.name))
        shift, low, high = (found[k] for k in ("mean_error", "least_ratio", "largest_ratio"))
        if posterior.verdict == "trusted":
            assert shift < 0.15, case.name
            assert low > 0.85, case.name
            assert high < 1.15, case.name
            right += shift < 0.10 and low > 0.93 and high < 1.07
        useless += posterior.verdict == "not to be used"
    assert right >= 7
    assert useless <= 1

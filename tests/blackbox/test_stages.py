"""Reduced feedback as a sequence of ordinary problems: the exact engine solves both."""

from types import SimpleNamespace

import numpy as np
import pytest

from soubayes import Block, Discrete, Model, solve_exact
from soubayes.blackbox.stages import FeedbackStage, _of_kept, feedback_stages
from soubayes.blackbox.verdict import guide_log_weights, quality
from soubayes.feedback import check_feedback

A, B, C = np.array([-1.0, 0.0, 2.0]), np.array([0.0, 1.0]), np.array([-0.5, 0.5, 1.5])
LOSSES = {
    "a": lambda a: (a - 0.4) ** 2,
    "b": lambda a, b: (a + b - 2.0) ** 2 / 2,
    "c": lambda a, b, c: (a * b + c - 1.0) ** 2 + c,
}
MODEL = Model(
    [
        Block("a", Discrete(A, [0.2, 0.5, 0.3])),
        Block("b", Discrete(B, [0.4, 0.6])),
        Block("c", Discrete(C, [0.5, 0.3, 0.2])),
    ],
    LOSSES,
)
GAMMA = {"a": 0.7, "b": 1.6, "c": 0.9}


@pytest.mark.parametrize("kind", ["power", "smi"])
@pytest.mark.parametrize(
    "eta", [(0.0, 0.0), (0.3, 1.0), (1.0, 0.3), (0.6, 0.25), (0.0, 0.5), (0.1, 0.1), (1.0, 1.0)]
)
def test_every_stage_gives_the_conditionals_of_its_blocks(eta, kind):
    eta = dict(zip("bc", eta, strict=True))
    weight = {"b": 0.5}
    wanted = solve_exact(MODEL, GAMMA, eta=eta, feedback=kind, weight=weight)
    stages = feedback_stages(GAMMA, check_feedback(eta, kind, weight, "abc"))
    assert [block for stage in stages for block in stage.kept] == ["a", "b", "c"]
    for stage in stages:
        # dropped blocks have no weight, and stay at their prior
        weights = {name: stage.weight.get(name, 0.0) for name in "abc"}
        confidence = {name: stage.confidence.get(name, np.inf) for name in "abc"}
        found = solve_exact(MODEL, confidence, weight=weights)
        for name in stage.kept:
            k = "abc".index(name)
            ours, theirs = (p._solution.log_conditional[k] for p in (found, wanted))
            np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_how_many_fits_are_needed():
    def count(eta, kind):
        return len(feedback_stages(GAMMA, check_feedback(eta, kind, None, "abc")))

    assert count({"b": 0.5, "c": 0.3}, "power") == 1  # one function is minimised
    assert count({"b": 0.0}, "power") == 2
    assert count({"b": 0.0, "c": 0.0}, "power") == 3
    assert count({"b": 0.5}, "smi") == 2
    assert count({"c": 0.05}, "power") == 2  # too little weight for one tolerance


def test_a_first_stage_is_judged_on_the_blocks_it_gives():
    """A later block, fitted again afterwards, is far off here; its confidence is 0.03."""
    a, b = np.random.default_rng(0).normal(size=(2, 4000))
    gammas, owner = {"a": 1.0, "b": 0.03}, {"a": "a", "b": "b"}
    fitted = SimpleNamespace(
        integrand=0.01 * a + 0.03 * (2.0 * b), draws={"a": a, "b": b}, owner=owner
    )
    stage = FeedbackStage(("a",), (), (), {}, gammas)
    both = quality(guide_log_weights(fitted.integrand, fitted.draws, owner, gammas), fitted.draws)
    assert both.verdict == "not to be used"
    assert _of_kept(fitted, stage).verdict == "trusted"

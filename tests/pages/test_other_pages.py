"""The page of a fit, the report and "Prior width or confidence?" in a real browser."""

import numpy as np
import pandas as pd
import pytest

from soubayes.data.tabular import pose_problem
from soubayes.exact.conjugate import conjugate_update
from soubayes.fitting import fit_table, summary_page
from soubayes.pages import prior_or_confidence
from soubayes.paper.report import write_report
from soubayes.paper.runner import run
from soubayes.paper.storage import Store
from test_cli import soubayes


def number(tab, name):
    return float(tab.inner_text(f"#{name}").replace("−", "-"))


def test_prior_or_confidence(tmp_path, visit, check_page):
    path = tmp_path / "prior.html"
    path.write_text(prior_or_confidence())
    check_page(path)
    tab = visit(path)
    # the page begins with N(-2, 0.7²), three observations of mean 2, a prior 10^0.6 times as wide
    for which, sd, gamma in (("bayes", 0.7, 1.0), ("wide", 0.7 * 10**0.6, 1.0), ("low", 0.7, 0.1)):
        found = conjugate_update("normal", [2, 2, 2], confidence=gamma, mean=-2, sd=sd, noise_sd=1)
        assert number(tab, f"{which}-mean") == pytest.approx(found.posterior.mean(), abs=6e-4)
        assert number(tab, f"{which}-sd") == pytest.approx(found.posterior.std(), abs=6e-4)
    tab.click("#match")
    assert number(tab, "wide-mean") == pytest.approx(number(tab, "low-mean"), abs=0.01)
    tab.focus("#gamma")
    tab.keyboard.press("End")
    assert tab.get_attribute("#gamma", "aria-valuetext") == "10"
    assert number(tab, "low-sd") > number(tab, "bayes-sd")


def test_page_of_a_fit(tmp_path, check_page):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 4)), columns=["a", "b", "<i>c</i>", "d"])
    frame["y"] = frame["a"] - frame["<i>c</i>"] + 0.1 * rng.normal(size=60)
    problem = pose_problem(frame, "y")
    path = tmp_path / "fit.html"
    path.write_text(summary_page(fit_table(problem), problem, "y"))
    check_page(path)


def test_report(tmp_path, check_page):
    from soubayes.paper import experiments

    run(experiments()["fig1"], "toy", Store(tmp_path))
    check_page(write_report(tmp_path))


def test_explore_from_the_command_line(tmp_path, monkeypatch, visit):
    """The code on the page reads the same file, and gives the reported columns."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 5)), columns=list("abcde"))
    frame["kind"] = np.where(frame["a"] + 0.3 * rng.normal(size=60) > 0, "yes", "no")
    frame["group"] = rng.choice(["north", "south"], 60)
    monkeypatch.chdir(tmp_path)
    frame.to_csv("table.csv", index=False)
    result = soubayes("explore", "table.csv", "--target", "kind", "--drop", "e")
    assert result.exit_code == 0, result.output
    assert "Wrote explorer.html" in result.stdout
    tab = visit(tmp_path / "explorer.html")
    assert "60 rows of table.csv. Estimates are for the log odds of yes." in tab.inner_text("main")
    space: dict = {}
    exec(tab.inner_text("#code"), space)
    tab.check("input[value=sparse]")
    names = space["model"][-1].feature_names_in_[space["model"][-1].selected_[0]]
    assert set(tab.locator("#table tbody th").all_inner_texts()) == {"(intercept)", *names}
    assert "there is no file" in soubayes("explore", "no.csv", "--target", "y").stderr

"""The page of a table, the report and "Prior width or confidence?" in a real browser."""

import numpy as np
import pandas as pd
import pytest

from paper.report import write_report
from paper.runner import run
from paper.storage import Store
from soubayes.exact.conjugate import conjugate_update
from soubayes.pages import prior_or_confidence
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


def test_report(tmp_path, check_page):
    from paper import experiments

    run(experiments()["fig1"], "toy", Store(tmp_path))
    check_page(write_report(tmp_path))


def test_the_page_of_a_table(tmp_path, monkeypatch, visit, check_page):
    """The code on the page reads the same file, and gives the reported columns."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 5)), columns=["a", "b", "<i>c</i>", "d", "e"])
    frame["kind"] = np.where(frame["a"] + 0.3 * rng.normal(size=60) > 0, "yes", "no")
    frame["group"] = rng.choice(["north", "south", "east"], 60)
    monkeypatch.chdir(tmp_path)
    frame.to_csv("table.csv", index=False)
    given = ("table.csv", "--target", "kind", "--drop", "e")
    result = soubayes("fit", *given)
    assert result.exit_code == 0, result.output
    page = tmp_path / "table-kind" / "summary.html"
    assert "Open table-kind/summary.html in a browser" in result.stdout
    check_page(page)
    tab = visit(page)
    assert "60 rows of table.csv. " in tab.inner_text("main")
    assert "Estimates are for the log odds of yes." in tab.inner_text("main")
    tab.check("input[value=sparse]")
    space: dict = {}
    exec(tab.inner_text("#code"), space)
    model = space["model"]
    names = model[-1].feature_names_in_[model[-1].selected_[0]]
    assert set(tab.locator("#table tbody th").all_inner_texts()) == {"(intercept)", *names}
    tab.select_option("#row", label="row 3")
    tab.check("#digits")
    for group in (frame["group"][2], "north", "south", "east"):  # a category is chosen by its name
        tab.locator("#shares select").select_option(group)
        shown = tab.locator("#prediction td[data-label=probability]").all_inner_texts()
        expected = model.predict_proba(frame.iloc[[2]].assign(group=group))[0]
        assert [float(text) for text in shown] == pytest.approx(expected, abs=1e-6)
    tab.select_option("#row", label="mean of the data")
    assert tab.locator("#shares select option:checked").inner_text() == "average"
    assert "there is no file" in soubayes("fit", "no.csv", "--target", "y").stderr

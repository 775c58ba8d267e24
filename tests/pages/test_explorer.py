"""The explorer in a real browser: its numbers are those of the fit, at every position."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

from soubayes import SoULinearRegression, SoULogisticRegression
from soubayes.pages.explorer import explorer_data, explorer_page

# the table as it stands on the page, by column name
READ = """() => Object.fromEntries([...document.querySelectorAll("#table tbody tr")].map((row) => [
    row.querySelector("th").textContent,
    [...row.querySelectorAll("td")].map((cell) => cell.textContent),
]))"""
SET = """([id, value]) => { const slider = document.getElementById(id); slider.value = value;
    slider.dispatchEvent(new Event("input", { bubbles: true })); }"""


def value(text):
    return np.nan if text == "–" else float(text.replace("−", "-"))


def show_everything(tab):
    tab.check("#digits")
    tab.check("#dropped")
    if tab.is_visible("#more"):
        tab.click("#more")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 12)) * np.geomspace(0.01, 100, 12)
    return X, X[:, :4] @ [300.0, -90.0, 40.0, 9.0] + 3.0 * rng.normal(size=120)


@pytest.fixture(scope="module")
def linear(data):
    X, y = data
    names = ["<script>alert(1)</script>", "</script><b>", *(f"column {j}" for j in range(10))]
    return SoULinearRegression(inclusion=True).fit(pd.DataFrame(X, columns=names), y)


@pytest.fixture(scope="module")
def classes(data):
    X, y = data
    return SoULogisticRegression().fit(X, np.digitize(y, [-2.0, 2.0]))


@pytest.fixture
def page(tmp_path, linear):
    linear.to_html(tmp_path / "page.html")
    return tmp_path / "page.html"


def test_every_position_of_the_path_shows_the_numbers_of_path_(page, linear, visit):
    """By keyboard, from the first point to the last: gamma, support, coefficients, intercept."""
    tab = visit(page)
    show_everything(tab)
    point, names = linear.sparse_, linear.feature_names_in_
    path, coef, sd = point.path_, point.path_coef_.to_numpy(), point.path_coef_sd_.to_numpy()
    selected = coef != 0
    tab.focus("#confidence")
    tab.keyboard.press("Home")
    for k in range(len(path)):
        shown = tab.evaluate(READ)
        for j, name in enumerate(names):
            if not selected[:, j].any():
                assert name not in shown
                continue
            estimate, lower, upper = map(value, shown[name][:3])
            assert estimate == pytest.approx(coef[k, j], rel=1e-6, abs=1e-12)
            assert np.isnan(lower) == ~selected[k, j]
            if selected[k, j]:
                assert (lower + upper) / 2 == pytest.approx(estimate, rel=1e-6)
                ratio = (upper - lower) / 2 / sd[k, j]
                assert 1.645 < ratio < 1.70  # Student's quantile at 90 %
        said = tab.inner_text("#now")
        assert f"{path['n_selected'][k]} of 12 columns" in said
        assert f"confidence {path['gamma'][k]:.4g}," in tab.get_attribute(
            "#confidence", "aria-valuetext"
        )
        assert f"path_.loc[{k}]" in tab.inner_text("#code")
        tab.keyboard.press("ArrowRight")
    assert tab.is_checked("input[value=path]")


def test_every_position_of_the_dial_shows_its_part_of_the_mixture(page, linear, visit):
    tab = visit(page)
    show_everything(tab)
    parts = linear.mixtures_[0].components
    labels = [tab.evaluate(SET, ["candidate", 0])]
    for k in range(int(tab.get_attribute("#candidate", "max")) + 1):
        tab.evaluate(SET, ["candidate", k])
        labels.append(tab.inner_text("#candidate-shown"))
        own = [part for part in parts if labels[-1] in (part.candidate, "mixture")]
        shown = tab.evaluate(READ)
        if not own:
            assert "left behind" in tab.inner_text("#now")
            continue
        mean = sum(p.weight * p.posterior.mean for p in own) / sum(p.weight for p in own)
        for j, name in enumerate(linear.feature_names_in_):
            if name in shown:
                assert value(shown[name][0]) == pytest.approx(mean[j], rel=1e-6, abs=1e-12)
    assert set(labels[1:-1]) == set(linear.candidates_["candidate"])
    assert labels[-1] == "mixture"


def test_the_sparse_point_is_its_summary(page, linear, visit):
    tab = visit(page)
    show_everything(tab)
    shown, summary = tab.evaluate(READ), linear.sparse_.summary()
    summary["inclusion"] = linear.summary()["inclusion"]
    for name in shown:
        row = summary.loc[name]
        assert value(shown[name][0]) == pytest.approx(row["estimate"], rel=1e-6)
        assert value(shown[name][1]) == pytest.approx(row["lower"], rel=1e-6, abs=1e-9)
        assert value(shown[name][-1]) == pytest.approx(row["inclusion"], rel=1e-6)
    assert tab.inner_text("#sparsity") == str(linear.sparsity_)


def test_names_are_text_and_the_table_sorts_and_filters(page, visit):
    tab = visit(page)
    tab.check("#dropped")
    assert "<script>alert(1)</script>" in tab.evaluate(READ)
    assert tab.evaluate("document.scripts.length") == 2
    header = "#table thead th[data-key=name]"
    tab.focus(f"{header} button")
    tab.keyboard.press("Enter")
    assert tab.get_attribute(header, "aria-sort") == "ascending"
    names = tab.locator("#table tbody th").all_inner_texts()
    tab.keyboard.press("Enter")
    assert tab.locator("#table tbody th").all_inner_texts() == names[::-1]
    tab.fill("#filter", "COLUMN 1")
    assert set(tab.locator("#table tbody th").all_inner_texts()) <= {"column 1"}
    tab.click("#copy")
    # not wait_for_function: it evaluates a string, which the page forbids
    tab.locator("#copied:text-is('Copied.')").wait_for(state="attached")


def test_page_is_readable_and_asks_the_network_for_nothing(page, check_page):
    check_page(page)
    text = page.read_text()
    assert "http" not in text.replace("http-equiv", "")
    assert "<script>alert" not in text


def test_classes_have_a_page_each(tmp_path, classes, check_page, visit):
    page = tmp_path / "classes.html"
    classes.to_html(page, title="Three classes")
    check_page(page)
    tab = visit(page)
    for t in range(3):
        tab.select_option("#target", str(t))
        show_everything(tab)
        path = classes.sparse_.path_[t]
        k = len(path) // 2
        tab.evaluate(SET, ["confidence", k])
        for name, cells in tab.evaluate(READ).items():
            expected = classes.sparse_.path_coef_[t].iloc[k, int(name[1:])]
            assert value(cells[0]) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_wide_data_keep_what_was_ever_selected(tmp_path, visit):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 5000))
    model = SoULinearRegression(choice="path").fit(X, 5.0 * X[:, 7] + rng.normal(size=60))
    page = tmp_path / "wide.html"
    model.to_html(page)
    assert page.stat().st_size < 1e6
    tab = visit(page)
    assert tab.is_visible("#nothing-held")
    assert not tab.is_visible("#candidate")
    show_everything(tab)
    assert len(tab.evaluate(READ)) == (model.path_coef_ != 0).any().sum() < 100
    tab.evaluate(SET, ["confidence", 0])
    shown = tab.evaluate(READ)
    assert value(shown["x7"][0]) == pytest.approx(model.path_coef_.iloc[0, 7], rel=1e-6)


def test_two_hundred_columns_stay_below_a_megabyte():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 200))
    model = SoULinearRegression(cv=2).fit(X, X[:, :9].sum(axis=1) + rng.normal(size=400))
    assert len(explorer_page(model).encode()) < 1e6


def fits(name):
    """Estimators and their data: one target, two classes, several classes."""
    if name == "breast cancer":
        X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        return SoULogisticRegression(choice="path", confidence_coef="auto"), X, y
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    if name == "diabetes":
        return SoULinearRegression(), X, y
    return SoULogisticRegression(choice="path"), X, np.digitize(y, [100.0, 200.0])


@pytest.mark.parametrize("name", ["breast cancer", "diabetes", "three classes"])
def test_the_python_of_every_point_of_a_path_gives_what_is_shown(name):
    model, X, y = fits(name)
    for t, target in enumerate(explorer_data(model.fit(X, y))["targets"]):
        path = target["path"]
        fit, _, _ = path["code"][0].rpartition("\npath = ")
        space = {"X": X, "y": y, "print": lambda *_, **__: None}
        if t == 0:
            exec(fit, space)  # the same for all points
            again = space["model"]
        space["model"] = again
        for k, code in enumerate(path["code"]):
            assert code.startswith(fit)
            exec(code.removeprefix(fit), space)
            coef, half = space["coef"], space["coef_sd"]
            selected = np.array([row[k] for row in path["selected"]], bool)
            shown = np.array([row[k] for row in path["coef"]], float)
            assert path["count"][k] == (coef != 0).sum() == selected.sum()
            assert set(coef.index[coef != 0]) == set(np.array(target["columns"])[selected])
            np.testing.assert_allclose(coef[target["columns"]], shown, rtol=1e-8)
            assert half[np.array(target["columns"])[selected]].notna().all()
            assert space["path"]["gamma"] == pytest.approx(path["gamma"][k])
            assert space["path"]["intercept"] == pytest.approx(path["intercept"][k])


def test_the_python_of_a_candidate_gives_that_candidate(data, linear):
    X, y = data
    target = explorer_data(linear)["targets"][0]
    space = {"X": pd.DataFrame(X, columns=linear.feature_names_in_), "y": y}
    dial = target["dial"]
    k = next(k for k, estimate in enumerate(dial["estimate"]) if estimate)
    exec(dial["code"][k], space)
    kept = [list(linear.feature_names_in_).index(name) for name in target["columns"]]
    np.testing.assert_allclose(space["coef"][kept], dial["estimate"][k], rtol=1e-6, atol=1e-12)


def test_calibration_of_held_out_rows(linear, classes):
    """Coverage by counting; in classes every row is in one bin."""
    held = linear.out_of_fold_
    seen = held["fold"] >= 0
    found = explorer_data(linear)["targets"][0]["held"]["calibration"]
    inside = np.abs(held["y"] - held["mean"])[seen] <= 1.6448536 * held["sd"][seen]
    assert found["observed"][found["expected"].index(0.9)] == pytest.approx(inside.mean())
    for t, table in enumerate(classes.out_of_fold_):
        seen = table["fold"] >= 0
        found = explorer_data(classes)["targets"][t]["held"]["calibration"]
        assert np.mean(found["observed"]) == pytest.approx(table["y"][seen].mean(), abs=1e-6)
        assert all(np.diff(found["expected"]) >= 0)


def test_without_jinja_the_extra_is_named(linear, tmp_path, monkeypatch):
    import sys

    from soubayes.pages import _environment

    _environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'soubayes\[cli\]'"):
        linear.to_html(tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()

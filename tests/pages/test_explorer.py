"""The explorer in a real browser: its numbers are those of the fit, at every position."""

from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.metrics import confusion_matrix

from soubayes import SoUCoxRegression, SoULinearRegression, SoULogisticRegression
from soubayes.pages.explorer import explorer_data, explorer_page

# the table as it stands on the page, by column name
READ = """() => Object.fromEntries([...document.querySelectorAll("#table tbody tr")].map((row) => [
    row.querySelector("th").textContent,
    [...row.querySelectorAll("td")].map((cell) => cell.textContent),
]))"""
INTERCEPT = "(intercept)"
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
    return SoULogisticRegression().fit(
        X, np.array(["low", "middle", "high"])[np.digitize(y, [-2, 2])]
    )


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
        assert value(shown.pop(INTERCEPT)[0]) == pytest.approx(path["intercept"][k], rel=1e-6)
        assert set(shown) == set(names)
        for j, name in enumerate(names):
            estimate, median, lower, upper = map(value, shown[name][:4])
            assert estimate == median == pytest.approx(coef[k, j], rel=1e-6, abs=1e-12)
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


def test_a_confidence_in_words_is_the_rule_of_the_path(tmp_path, visit):
    """Orthogonal columns: those whose |t| exceeds the number in the sentence stay."""
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.normal(size=(200, 30)))[0]
    X = (X - X.mean(axis=0)) * 200**0.5
    y = X @ (4.0 * rng.normal(size=30) / 200**0.5) + rng.normal(size=200)
    model = SoULinearRegression(choice="path").fit(X, y)
    page = tmp_path / "page.html"
    model.to_html(page)
    tab = visit(page)
    inverse = np.linalg.inv(X.T @ X)
    beta = inverse @ X.T @ (y - y.mean())
    for k, row in model.path_.iterrows():
        tab.evaluate(SET, ["confidence", k])
        said = tab.inner_text("#now")
        edge = float(said.split("exceeds ")[1].split(";")[0])
        t = np.abs(beta) / np.sqrt(row["noise_variance"] * np.diag(inverse))
        clear = np.abs(t - edge) > 0.05  # columns are orthogonal only up to their means
        kept = model.path_coef_.loc[k].to_numpy() != 0
        np.testing.assert_array_equal(kept[clear], t[clear] > edge)
        chance = float(said.split("probability ")[1].rstrip("."))
        assert chance == pytest.approx(2 * stats.t.sf(edge, row["degrees"]), rel=0.1)
    assert model.path_["n_selected"].nunique() > 5


def test_candidates_show_their_part_of_the_mixture(page, linear, visit):
    tab = visit(page)
    show_everything(tab)
    parts = linear.mixtures_[0].components
    labels = []
    for k in range(int(tab.get_attribute("#candidate", "max")) + 1):
        tab.evaluate(SET, ["candidate", k])
        labels.append(tab.inner_text("#candidate-shown"))
        own = [part for part in parts if part.candidate == labels[-1]]
        shown = tab.evaluate(READ)
        if not own:
            assert "left behind" in tab.inner_text("#now")
            continue
        mean = sum(p.weight * p.posterior.mean for p in own) / sum(p.weight for p in own)
        held = explorer_data(linear)["targets"][0]["columns"]
        for j, name in enumerate(linear.feature_names_in_):
            if name in held:
                assert value(shown[name][0]) == pytest.approx(mean[j], rel=1e-6, abs=1e-12)
    assert set(labels) == set(linear.candidates_["candidate"])


@pytest.mark.parametrize("mode", ["mixture", "sparse"])
def test_the_mixture_and_the_sparse_point_are_their_summaries(mode, page, linear, visit):
    """Every column of the data, also one that was never selected; the mixture is shown first."""
    tab = visit(page)
    assert tab.is_checked("input[value=mixture]")
    tab.check(f"input[value={mode}]")
    show_everything(tab)
    of = linear if mode == "mixture" else linear.sparse_
    shown, summary = tab.evaluate(READ), of.summary()
    ends = shown.pop(INTERCEPT)
    assert value(ends[0]) == pytest.approx(of.intercept_, rel=1e-6)
    spread = (value(ends[3]) - value(ends[2])) / 2 / of.intercept_sd_
    assert 1.55 < spread < 1.75
    summary["inclusion"] = linear.summary()["inclusion"]
    ever = set(explorer_data(linear)["targets"][0]["columns"])
    assert set(shown) == set(linear.feature_names_in_) > ever
    for name, cells in shown.items():
        row, near = summary.loc[name], {"rel": 1e-6 if name in ever else 1e-4}
        if mode == "mixture" or row["selected"]:
            numbers = [value(cell) for cell in cells[:4]]
            expected = row[["estimate", "median", "lower", "upper"]].tolist()
            assert numbers == pytest.approx(expected, **near, abs=1e-7 * abs(row["sd"]) + 1e-12)
            assert numbers[2] <= numbers[1] <= numbers[3]
        assert value(cells[-1]) == pytest.approx(row["inclusion"], rel=1e-4)
    assert tab.inner_text("#sparsity") == str(linear.sparsity_)


def test_names_are_text_and_the_table_sorts_and_filters(page, linear, visit):
    tab = visit(page)
    tab.check("input[value=sparse]")
    tab.check("#dropped")
    assert "<script>alert(1)</script>" in tab.evaluate(READ)
    assert tab.evaluate("document.scripts.length") == 2
    header = "#table thead th[data-key=name]"
    tab.focus(f"{header} button")
    tab.keyboard.press("Enter")
    assert tab.get_attribute(header, "aria-sort") == "ascending"
    names = tab.locator("#table tbody th").all_inner_texts()[1:]
    tab.keyboard.press("Enter")
    assert tab.locator("#table tbody th").all_inner_texts()[1:] == names[::-1]
    tab.uncheck("#dropped")
    never = np.setdiff1d(linear.feature_names_in_, explorer_data(linear)["targets"][0]["columns"])
    tab.fill("#filter", never[0].upper())
    assert list(tab.evaluate(READ)) == [never[0]]
    assert "never selected" in tab.inner_text("#never")
    tab.click("#copy")
    # not wait_for_function: it evaluates a string, which the page forbids
    tab.locator("#copied:text-is('Copied.')").wait_for(state="attached")


def test_the_table_and_the_charts_are_saved(page, linear, visit):
    tab = visit(page)
    tab.check("#dropped")
    with tab.expect_download() as saved:
        tab.focus("#save")
        tab.keyboard.press("Enter")
    table = pd.read_csv(saved.value.path(), index_col="column")
    assert saved.value.suggested_filename == "coefficients.csv"
    assert table.loc[INTERCEPT, "estimate"] == pytest.approx(linear.intercept_)
    names = [name.replace("=", "'=") for name in linear.feature_names_in_]
    np.testing.assert_allclose(table.loc[names, "estimate"], linear.coef_, rtol=1e-4, atol=1e-9)
    charts = [
        button.get_attribute("data-svg") for button in tab.locator("[data-svg]:visible").all()
    ]
    assert {"forest", "path", "errors", "inclusion", "held", "calibration"} <= set(charts)
    for name in charts:
        with tab.expect_download() as saved:
            tab.click(f"[data-svg={name}]")
        root = ElementTree.parse(saved.value.path()).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in ElementTree.tostring(root, "unicode")  # colours stand alone


def test_two_settings_are_pinned_and_a_link_holds_them(page, linear, visit):
    tab = visit(page)
    tab.focus("#pin-A")
    tab.keyboard.press("Enter")  # the mixture
    tab.evaluate(SET, ["confidence", 2])
    tab.click("#pin-B")
    tab.check("input[value=sparse]")
    tab.fill("#value-0", "0.25")
    first = tab.locator("#both-table tbody tr").first.locator("td").all_inner_texts()
    name = tab.locator("#both-table tbody th").first.inner_text()
    summary, path = linear.summary(), linear.sparse_.path_coef_
    assert value(first[0].split(" (")[0]) == pytest.approx(summary["median"][name], rel=1e-3)
    assert value(first[1].split(" (")[0]) == pytest.approx(path[name][2], rel=1e-3)
    assert "A: Mixture" in tab.inner_text("#says-A")
    address = tab.evaluate("location.hash")
    other = visit(page, width=400, scheme="dark")
    other.evaluate("(hash) => { location.hash = hash; }", address)
    other.locator("#both-card").wait_for(state="visible")
    for part in ("#says-A", "#says-B", "#now", "#prediction tbody tr", "#both-table tbody tr"):
        assert other.inner_text(part).split() == tab.inner_text(part).split()
    assert other.evaluate("document.documentElement.scrollWidth") <= 400
    assert other.input_value("#value-0") == "0.25"
    assert other.is_checked("input[value=sparse]")
    tab.click("#unpin")
    assert not tab.is_visible("#both-card")


def test_page_is_readable_and_asks_the_network_for_nothing(page, check_page):
    def open_all(tab):
        tab.click("summary")
        tab.click("#pin-A")
        tab.fill("#value-1", "0.5")

    check_page(page, open_all)
    text = page.read_text()
    assert "http" not in text.replace("http-equiv", "")
    assert text.index("How to read this page") < text.index("<svg")
    assert "<script>alert" not in text


def test_classes_have_a_page_each(tmp_path, classes, check_page, visit):
    page = tmp_path / "classes.html"
    classes.to_html(page, title="Three classes")
    check_page(page)
    tab = visit(page)
    for t, label in enumerate(classes.classes_):
        tab.select_option("#target", str(t))
        show_everything(tab)
        path = classes.sparse_.path_[t]
        k = len(path) // 2
        tab.evaluate(SET, ["confidence", k])
        shown = tab.evaluate(READ)
        shown.pop(INTERCEPT)
        for name, cells in shown.items():
            expected = classes.sparse_.path_coef_[t].iloc[k, int(name[1:])]
            assert value(cells[0]) == pytest.approx(expected, rel=1e-6, abs=1e-12)
        axis = tab.locator("#held text").all_text_contents()
        assert label in axis
        assert "other" in axis


def test_the_confusion_matrix_counts_held_out_rows(tmp_path, classes, visit):
    page = tmp_path / "classes.html"
    classes.to_html(page)
    tab = visit(page)
    tables = classes.out_of_fold_
    truth, said = (np.stack([each[k] for each in tables]).argmax(axis=0) for k in ("y", "mean"))
    held = tables[0]["fold"] >= 0
    expected = confusion_matrix(truth[held], said[held])
    rows = tab.locator("#confusion tbody tr").all()
    shown = [[int(cell) for cell in row.locator("td").all_inner_texts()] for row in rows]
    np.testing.assert_array_equal(shown, expected)
    assert tab.locator("#confusion tbody th").all_inner_texts() == list(classes.classes_)


def test_credible_sets_are_those_of_the_supports(page, linear, visit):
    tab = visit(page)
    sets = linear.supports_.credible_sets()
    rows = tab.locator("#sets tbody tr").all()
    assert len(rows) == len(sets) > 0
    for row, (_, expected) in zip(rows, sets.iterrows(), strict=True):
        assert row.locator("th").inner_text() == ", ".join(expected["features"])
        cells = [value(text) for text in row.locator("td").all_inner_texts()]
        assert cells == pytest.approx(
            expected[["probability", "purity", "effect", "lower", "upper"]].tolist(), rel=1e-3
        )


def test_never_selected_columns_of_wide_data_are_looked_up(tmp_path, visit):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 5000))
    model = SoULinearRegression(choice="path").fit(X, 5.0 * X[:, 7] + rng.normal(size=60))
    page = tmp_path / "wide.html"
    model.to_html(page)
    assert page.stat().st_size < 1e6
    tab = visit(page)
    assert tab.is_visible("#nothing-held")
    assert not tab.is_visible("#candidate")
    tab.check("#digits")
    tab.evaluate(SET, ["confidence", 0])
    shown = tab.evaluate(READ)
    assert len(shown) - 1 == (model.path_coef_.iloc[0] != 0).sum() < 100
    assert value(shown["x7"][0]) == pytest.approx(model.path_coef_.iloc[0, 7], rel=1e-6)
    never = np.flatnonzero((model.path_coef_ == 0).all())[-1]
    tab.fill("#filter", f"x{never}")
    assert tab.evaluate(READ)[f"x{never}"][0] == "0"


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


def test_candidates_that_no_parameters_describe_show_the_table_of_candidates():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 15))
    y = np.ones(200, bool), rng.exponential(np.exp(-2.0 * X[:, 0]))
    model = SoUCoxRegression(cv=3).fit(X, y)
    dial = explorer_data(model)["targets"][0]["dial"]
    left = [k for k, estimate in enumerate(dial["estimate"]) if not estimate]
    assert left  # the dense ones are far behind
    for k in left:
        assert dial["code"][k].endswith("print(model.candidates_)\n")
        assert 'choice="path"' not in dial["code"][k]


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

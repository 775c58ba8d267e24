"""SoUCoxRegression: limits, input, curves, reports; covers cox, rows, fitting, curves."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

from soubayes import Block, Model, SoUCoxRegression, load_model, save_model, solve_exact
from soubayes.sparse.choice.folds import ChoiceWarning
from soubayes.sparse.survival.hazard import PiecewiseHazard, relative_risk
from soubayes.sparse.survival.measures import KaplanMeier, brier_scores
from soubayes.sparse.survival.risk_sets import subjects

WIDE = {"all": {"columns": slice(None), "prior": "normal", "variance": 1e4}}


def simulated(n=150, p=3, seed=0, tied=False, beta=(0.8, -0.5)):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    time = rng.exponential(np.exp(-X[:, : len(beta)] @ np.array(beta)))
    end = rng.exponential(2.0, size=n)
    event, time = time <= end, np.minimum(time, end)
    return X, event, np.ceil(4.0 * time) / 4.0 if tied else time


def newton(X, event, time, ties, start=None, strata=None):
    """The maximum partial likelihood by its definition, one event at a time, with its Hessian."""
    n, p = X.shape
    start = np.full(n, -np.inf) if start is None else start
    strata = np.zeros(n) if strata is None else strata
    beta = np.zeros(p)
    for _ in range(30):
        slope, H, e = np.zeros(p), np.zeros((p, p)), np.exp(X @ beta)
        for s in np.unique(strata):
            for t in np.unique(time[event & (strata == s)]):
                risk = (strata == s) & (start < t) & (t <= time)
                dead = (strata == s) & event & (time == t)
                for l in range(dead.sum()):
                    part = l / dead.sum() if ties == "efron" else 0.0
                    w = e * (risk - part * dead)
                    mean = w @ X / w.sum()
                    slope += mean
                    H += (X * w[:, None]).T @ X / w.sum() - np.outer(mean, mean)
                slope -= X[dead].sum(axis=0)
        beta = beta - np.linalg.solve(H, slope)
    return beta, np.sqrt(np.diag(np.linalg.inv(H)))


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_wide_priors_give_the_partial_likelihood_estimate(ties):
    X, event, time = simulated(tied=True)
    beta, se = newton(X, event, time, ties)
    model = SoUCoxRegression(ties=ties, feature_blocks=WIDE).fit(X, (event, time))
    assert np.max(np.abs(model.coef_ - beta) / se) < 0.05
    np.testing.assert_allclose(model.coef_sd_, se, rtol=0.03)
    sure = {"all": {**WIDE["all"], "confidence": 1e-6}}
    model = SoUCoxRegression(ties=ties, feature_blocks=sure).fit(X, (event, time))
    np.testing.assert_allclose(model.coef_, beta, atol=1e-4)
    assert model.converged_


def test_late_entry_and_strata():
    X, event, time = simulated(n=200, tied=True)
    rng = np.random.default_rng(1)
    start = np.where(rng.uniform(size=200) < 0.5, 0.0, time * rng.uniform(size=200))
    strata = rng.integers(3, size=200)
    entry = np.where(start == 0.0, -np.inf, start)
    beta, _ = newton(X, event, time, "efron", entry, strata)
    sure = {"all": {**WIDE["all"], "confidence": 1e-6}}
    model = SoUCoxRegression(feature_blocks=sure)
    model.fit(X, (start, time, event), strata=np.array(["a", "b", "c"])[strata])
    np.testing.assert_allclose(model.coef_, beta, atol=1e-4)
    with pytest.raises(ValueError, match="fitted with strata"):
        model.predict_survival_function(X[:2])
    assert model.predict_survival_function(X[:2], strata=["a", "c"]).shape[1] == 2
    with pytest.raises(ValueError, match="not a stratum"):
        model.predict_survival_function(X[:2], strata=["a", "d"])


@pytest.mark.parametrize("gamma", [1.0, 3.0])
def test_one_column_is_the_exact_engine(gamma):
    X, event, time = simulated(n=80, p=1, seed=3, beta=(0.8,))
    x = X[:, 0] - X[:, 0].mean()

    def loss(beta):
        e = np.exp(beta[..., None] * x)
        total = sum(np.log(e[..., time >= t].sum(axis=-1)) for t in time[event])
        return total - beta * x[event].sum()

    prior = Block("beta", stats.norm(0.0, 2.0 / X.std()))  # that of the standardised column
    exact = solve_exact(Model([prior], loss=loss), {"beta": gamma})
    blocks = {"b": {"columns": [0], "prior": "normal", "variance": 4.0, "confidence": gamma}}
    model = SoUCoxRegression(feature_blocks=blocks).fit(X, (event, time))
    mean, spread = float(exact.mean("beta")), float(exact.sd("beta"))
    assert model.coef_[0] == pytest.approx(mean, abs=0.1 * spread)  # the mode, not the mean
    assert model.coef_sd_[0] == pytest.approx(spread, rel=0.03)
    # J is an upper bound of V but for the expansion
    assert model.objective_[-1] == pytest.approx(exact.value, abs=0.03)


def test_curves_are_breslows_estimator_for_known_coefficients():
    X, event, time = simulated(tied=True)
    sure = {"all": {**WIDE["all"], "confidence": 1e-9}}
    model = SoUCoxRegression(ties="breslow", feature_blocks=sure).fit(X, (event, time))
    grid = np.unique(time[event])
    risk = np.exp(X @ model.coef_)
    steps = [(event & (time == t)).sum() / risk[time >= t].sum() for t in grid]
    expected = np.cumsum(steps)[:, None] * risk[:4]
    found = model.predict_cumulative_hazard(X[:4])
    np.testing.assert_allclose(found.index, grid)
    np.testing.assert_allclose(found.to_numpy(), expected, rtol=1e-3)
    curves = model.predict_survival_function(X[:4], grid)
    np.testing.assert_allclose(curves.to_numpy(), np.exp(-expected), atol=2e-3)


def test_bands_widen_with_the_confidence_of_the_baseline_and_hold_the_curve():
    X, event, time = simulated()
    widths = []
    for gamma in (0.25, 1.0):
        model = SoUCoxRegression(confidence_coef=1.0, confidence={"baseline": gamma})
        curves = model.fit(X, (event, time)).predict_survival_function(X[:1], [0.5, 1.0], level=0.9)
        low, middle, high = (curves[0, name] for name in ("lower", "estimate", "upper"))
        assert (low < middle).all()
        assert (middle < high).all()
        widths.append((high - low).to_numpy())
    assert (widths[0] < widths[1]).all()


def test_a_prior_of_the_baseline_pulls_to_its_guess_and_is_counted():
    X, event, time = simulated()
    flat = SoUCoxRegression(confidence_coef=1.0, priors={"baseline_mass": 1e6}).fit(
        X, (event, time)
    )
    hazard = flat.predict_cumulative_hazard(X.mean(axis=0)[None], [0.5, 1.0]).to_numpy()[:, 0]
    rate = event.sum() / time.sum()
    np.testing.assert_allclose(hazard, rate * np.array([0.5, 1.0]), rtol=0.05)
    assert flat.kl_["baseline"] > 0.0
    assert "baseline" not in SoUCoxRegression(confidence_coef=1.0).fit(X, (event, time)).kl_


class Frame(dict):
    """What polars and others have in common with pandas: columns, and [] by name."""

    @property
    def columns(self):
        return list(self)


def test_y_in_every_form_gives_one_fit():
    X, event, time = simulated(n=60)
    record = np.empty(60, [("cens", bool), ("time", float)])
    record["cens"], record["time"] = event, time
    forms = [
        (event, time),
        record,
        pd.DataFrame({"time": time, "event": event.astype(int)}),
        pd.DataFrame({"start": np.zeros(60), "stop": time, "event": event}),
        pd.DataFrame({"months": time, "died": event}),
        pd.DataFrame({"relapse": event, "months": time}),
        Frame({"time": time, "event": event}),
    ]
    model = SoUCoxRegression(choice="path")
    fits = [clone(model).fit(X, y).coef_ for y in forms]
    for each in fits[1:]:
        np.testing.assert_allclose(each, fits[0], rtol=1e-10)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (([0, 0, 0], [1.0, 2.0, 3.0]), "all rows of y are censored"),
        (([1, 0, 1], [1.0, -2.0, 3.0]), "row 1 of y has the time -2"),
        (([1, 0, 1], [1.0, 0.0, 3.0]), "times must be greater than 0"),
        (([0.0, 3.0, 0.0], [1.0, 2.0, 3.0], [1, 1, 1]), "row 1 of y has start 3 and stop 2"),
        (([0, 1, 2], [1.0, 2.0, 3.0]), r"holds 3 values \(0, 1, 2\)"),
        (([1, 0, 1], [1.0, np.nan, 3.0]), "row 1 of y has the time nan"),
        (([1, 0], [1.0, 2.0, 3.0]), "2 events, but 3 times"),
        (np.array([1.0, 2.0, 3.0]), "y must be a structured array"),
        ((1, 2, 3, 4), "a tuple of 4"),
        (
            Frame(event=[1, 0, 1], time=[1.0, 2.0, 3.0], age=[40, 50, 60]),
            "columns event, time, age",
        ),
        (([1, 0, 1], np.array(["2020-01-02"] * 3, "M8[D]")), "holds dates or durations"),
    ],
)
def test_bad_input_is_one_sentence(y, message):
    with pytest.raises(ValueError, match=message):
        SoUCoxRegression().fit(np.arange(3.0)[:, None], y)


def test_bad_parameters():
    X, event, time = simulated(n=30)
    with pytest.raises(ValueError, match="row 1 has no stratum"):
        SoUCoxRegression().fit(X, (event, time), strata=["a", None, *"b" * 28])
    with pytest.raises(ValueError, match="ties is 'exact'"):
        SoUCoxRegression(ties="exact").fit(X, (event, time))
    with pytest.raises(ValueError, match="baseline_mass is -1"):
        SoUCoxRegression(priors={"baseline_mass": -1}).fit(X, (event, time))


def test_chosen_by_prediction_with_all_views(tmp_path):
    X, event, time = simulated(n=200, p=12)
    model = SoUCoxRegression(inclusion=True).fit(X, (event, time))
    assert np.flatnonzero(model.selected_).tolist() == [0, 1]
    assert model.candidates_["weight"].sum() == pytest.approx(1.0)
    assert set(model.out_of_fold_) == {"time", "event", "mean", "fold"}
    assert model.summary()["inclusion"].iloc[:2].min() > 0.99
    assert model.sparse_.selected_.sum() == 2
    assert np.all(np.diff(model.sparse_.objective_) <= 0.0)
    assert model.score(X, (event, time)) > 0.7
    assert model.log_score(X, (event, time)) > model.cv_partial_likelihood_
    ratios, plain = model.summary(exponentiate=True), model.summary()
    np.testing.assert_allclose(np.log(ratios["upper"]), plain["upper"])
    save_model(model, tmp_path / "model")
    again = load_model(tmp_path / "model")
    grid = [0.2, 0.7]
    pd.testing.assert_frame_equal(
        again.predict_survival_function(X[:3], grid, level=0.8),
        model.predict_survival_function(X[:3], grid, level=0.8),
    )
    np.testing.assert_array_equal(again.sparse_.predict(X), model.sparse_.predict(X))
    assert not hasattr(model, "intercept_")
    model.to_html(tmp_path / "page.html")
    assert "SoUCoxRegression(" in (tmp_path / "page.html").read_text()


def test_wide_data_and_blocks_that_stay():
    X, event, time = simulated(n=80, p=400)
    blocks = {"clinical": {"columns": [7, 8], "prior": "normal", "variance": 1.0}}
    model = SoUCoxRegression(feature_blocks=blocks, cv=2).fit(X, (event, time))
    point = model.sparse_
    assert {0, 7, 8} <= set(np.flatnonzero(point.selected_))
    assert point.selected_.sum() < 15
    assert np.all(np.diff(point.objective_) <= 0.0)
    assert np.isfinite(model.predict_survival_function(X[:2], [0.5]).to_numpy()).all()


def test_groups_are_kept_whole():
    X, event, time = simulated(n=200, p=10)
    model = SoUCoxRegression(feature_groups=np.arange(10) // 2, choice="path")
    kept = model.fit(X, (event, time)).selected_.reshape(5, 2)
    assert kept[0].all()
    assert (kept[:, 0] == kept[:, 1]).all()


def test_units_order_and_weights_do_not_matter():
    X, event, time = simulated(n=120, p=5)
    model = SoUCoxRegression(choice="path")
    base = model.fit(X, (event, time)).coef_
    scale = np.array([1e-3, 1.0, 1e3, 2.0, 1.0])
    again = clone(model).fit(X * scale + 5.0, (event, 1e3 * time)).coef_ * scale
    np.testing.assert_allclose(again, base, rtol=1e-5, atol=1e-7)
    rows = np.random.default_rng(0).permutation(120)
    again = clone(model).fit(X[rows], (event[rows], time[rows])).coef_
    np.testing.assert_allclose(again, base, rtol=1e-8, atol=1e-10)
    none = np.where(np.arange(150) < 120, 1.0, 0.0)
    more = np.vstack([X, X[:30] + 9.0]), np.append(event, event[:30]), np.append(time, time[:30])
    again = clone(model).fit(more[0], more[1:], sample_weight=none).coef_
    np.testing.assert_allclose(again, base, rtol=1e-8, atol=1e-10)


def test_curves_do_not_depend_on_the_order_or_units_of_columns():
    X, event, time = simulated(n=70, p=90)
    order = np.random.default_rng(1).permutation(90)
    grid, model = [0.3, 1.0], SoUCoxRegression(cv=2)
    base = model.fit(X, (event, time)).predict_survival_function(X[:4], grid, level=0.9)
    again = clone(model).fit(1e3 * X[:, order], (event, time))
    curves = again.predict_survival_function(1e3 * X[:4, order], grid, level=0.9)
    np.testing.assert_allclose(curves, base, atol=1e-8)


def test_a_selected_column_is_not_shrunken_with_the_dense_ones():
    """In wide data dense candidates alone exclude a strong effect; beside the sparse point not."""
    inside = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(120, 400))
        coef = np.append([0.8], rng.normal(size=399) * 0.03)  # one strong effect over faint ones
        y = np.ones(120, bool), rng.exponential(np.exp(-X @ coef))
        model = SoUCoxRegression().fit(X, y)
        assert model.selected_[0]
        for part in model.mixtures_[0].components:
            off, sd = 0.8 - part.posterior.mean[0], part.posterior.sd[0]
            if part.candidate.startswith("dense"):
                assert off > 3.0 * sd
            if part.candidate == "sparse + dense":
                assert abs(off) < 3.0 * sd
        first = model.summary().iloc[0]
        inside.append(first["lower"] < 0.8 < first["upper"])
    assert sum(inside) >= 2  # 90 % intervals


def test_scikit_learn_tools_take_it():
    X, event, time = simulated(n=90)
    y = pd.DataFrame({"event": event, "time": time})
    model = SoUCoxRegression(choice="path")
    assert cross_val_score(model, pd.DataFrame(X).add_prefix("x"), y, cv=3).mean() > 0.6
    fitted = model.fit(pd.DataFrame(X).add_prefix("x"), y)
    assert list(fitted.feature_names_in_) == ["x0", "x1", "x2"]
    assert fitted.get_params()["ties"] == "efron"


def test_residuals_find_an_effect_that_changes():
    rng = np.random.default_rng(0)
    n = 600
    X = rng.normal(size=(n, 3))
    # the effect of the first column is gone after time 0.5
    early = rng.exponential(np.exp(-1.5 * X[:, 0] - X[:, 1]))
    time = np.where(early < 0.3, early, 0.3 + rng.exponential(np.exp(-X[:, 1])))
    y = np.ones(n, bool), time
    model = SoUCoxRegression(choice="path").fit(X, y)
    table = model.check_hazards(X, y)
    assert table["p_value"].iloc[0] < 1e-6
    assert table["p_value"].iloc[1] > 1e-3
    found = model.schoenfeld_residuals(X, y)
    np.testing.assert_allclose(found.scaled.mean(axis=0), model.coef_, atol=0.03)


def test_brier_score_of_the_kaplan_meier_curve_is_that_of_its_definition():
    X, event, time = simulated(n=120)
    model = SoUCoxRegression(choice="path").fit(X, (event, time))
    records = model._records(X, (event, time), None)
    curve = KaplanMeier.of(records, np.ones(120))
    grid = np.array([0.3, 0.8])
    same = np.broadcast_to(curve.at(grid), (120, 2))
    found = brier_scores(records, same, grid, KaplanMeier.of(records, np.ones(120), True))
    # without censoring it is the variance of the indicator
    full = (np.ones(120, bool), time)
    all_seen = model._records(X, full, None)
    curve = KaplanMeier.of(all_seen, np.ones(120))
    alone = brier_scores(
        all_seen,
        np.broadcast_to(curve.at(grid), (120, 2)),
        grid,
        KaplanMeier.of(all_seen, np.ones(120), True),
    )
    share = np.array([(time > t).mean() for t in grid])
    np.testing.assert_allclose(alone, share * (1.0 - share), rtol=1e-12)
    assert model.integrated_brier_score(X, (event, time)) < found.max()


@pytest.mark.parametrize("settings", [{}, {"choice": "path"}])
@pytest.mark.parametrize("censored", [0.0, 0.5])
def test_a_column_that_orders_the_events_is_told(settings, censored):
    rng = np.random.default_rng(4)
    X, time = rng.normal(size=(80, 3)), rng.exponential(size=80)
    X[:, 0] = -np.argsort(np.argsort(time))
    y = rng.random(80) >= censored, time
    with pytest.warns(ConvergenceWarning, match="orders the times"):
        model = SoUCoxRegression(**settings).fit(X, y)
    assert not model.converged_
    assert not model.sparse_.converged_
    assert SoUCoxRegression(priors={"baseline_mass": 1.0}, **settings).fit(X, y).converged_


@pytest.mark.parametrize("settings", [{}, {"choice": "path"}])
@pytest.mark.parametrize("weighted", [False, True])
def test_two_rows_of_which_none_can_be_compared(settings, weighted):
    """The event comes after the censoring: the loss does not depend on the columns."""
    X = np.random.default_rng(0).normal(size=(6, 3))
    event, time = np.array([0, 1, 0, 1, 1, 1], bool), np.arange(1.0, 7.0)
    rows = np.arange(6) < 2
    given = {"sample_weight": rows.astype(float)} if weighted else {}
    if not weighted:
        X, event, time = X[rows], event[rows], time[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChoiceWarning)
        model = SoUCoxRegression(**settings).fit(X, (event, time), **given)
    np.testing.assert_array_equal(model.coef_, 0.0)
    assert not model.selected_.any()
    assert np.isfinite(model.coef_sd_).all()


@pytest.mark.parametrize("confidence", ["auto", 5.0])
def test_times_that_a_column_orders_give_finite_numbers_and_say_why(confidence):
    X = np.random.default_rng(0).normal(size=(80, 4))
    y = np.ones(80, bool), np.exp(-3.0 * X[:, 0]) + 1e-3
    with pytest.warns(ConvergenceWarning, match="orders the times"):
        model = SoUCoxRegression(confidence_coef=confidence).fit(X, y)
    assert np.isfinite(model.sparse_.objective_).all()
    assert 1.0 < model.coef_[0] < 1e4
    assert model.score(X, y) > 0.99
    calm = {"all": {"columns": slice(None), "prior": "normal", "variance": 1.0}}
    assert SoUCoxRegression(feature_blocks=calm).fit(X, y).converged_


def test_few_censored_rows_do_not_limit_the_folds():
    X, event, time = simulated(60)
    event = np.arange(60) != 3
    model = SoUCoxRegression().fit(X, (event, time))
    assert model.out_of_fold_["fold"].nunique() == 5
    with pytest.raises(ValueError, match="list of finite numbers"):
        model.predict_survival_function(X[:1], times=["soon"])
    with pytest.warns(ChoiceWarning, match="the event"):
        SoUCoxRegression().fit(X, (~event, time))


def test_log_risks_that_overflow_do_not_win_the_choice():
    """The gain of an event is bounded where no hazard could be fitted."""
    y = subjects(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]))
    far = PiecewiseHazard.of(y, np.ones(3), relative_risk(np.array([1e7, 0.0, 0.0])))
    near = PiecewiseHazard.of(y, np.ones(3), np.ones(3))
    loss = [h.derivatives(np.full(3, eta), y)[0].sum() for h, eta in ((far, 1e7), (near, 0.0))]
    assert loss[0] > loss[1] - 1.0


def test_one_strong_effect_among_many_columns_is_predicted():
    """Log risks that vary much are not those of a fit that ran off."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 500))
    y = np.ones(120, bool), rng.exponential(np.exp(-3.0 * X[:, 0]))
    model = SoUCoxRegression().fit(X[:90], (y[0][:90], y[1][:90]))
    assert np.corrcoef(model.predict(X[90:]), X[90:, 0])[0, 1] > 0.9
    assert np.std(model.predict(X[90:])) > 1.5


def test_a_confidence_that_keeps_too_much_of_wide_data_converges():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(80, 400))
    time = rng.exponential(np.exp(-X[:, :3].sum(axis=1)))
    model = SoUCoxRegression(confidence_coef=0.3).fit(X, (rng.random(80) < 0.7, time))
    assert model.converged_
    assert model.selected_.sum() < 56  # events


@pytest.mark.parametrize("size", [1e15, 1e207])
def test_a_time_beside_which_the_others_are_rounding_is_named(size):
    """Held-out rows are scored by hazard times time."""
    rng = np.random.default_rng(0)
    time = np.append(size, rng.exponential(size=39))
    with pytest.raises(ValueError, match=r"y has the value .* correct the time"):
        SoUCoxRegression().fit(rng.normal(size=(40, 2)), (np.ones(40), time))

"""expansion, table: terms learned from rows, and new rows with levels and gaps not seen before."""

import numpy as np
import pandas as pd
import pytest

from soubayes.terms.expansion import learn
from soubayes.terms.parsing import parse_terms
from soubayes.terms.table import as_table, levels


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.uniform(20, 70, 60),
            "dose": rng.gamma(2.0, size=60),
            "sex": ["m", "f"] * 30,
            "site": list("abcde") * 12,
        }
    )


def kinds(terms):
    return [(block.term, block.kind, len(block.names), block.level) for block in terms.blocks]


def test_blocks_of_explicit_terms(frame):
    terms = learn(parse_terms(["s(age, k=5)", "sex", "dose", "(dose || site)"]), as_table(frame))
    assert kinds(terms) == [
        ("s(age)", "straight", 1, 0),
        ("s(age)", "curved", 5, 0),
        ("sex", "factor", 1, 0),
        ("dose", "straight", 1, 0),
        ("(1 | site)", "unit", 6, 0),
        ("(0 + dose | site)", "slope", 6, 0),
    ]
    Z = terms.transform(as_table(frame))
    assert Z.shape == (60, len(terms.names))
    assert np.isfinite(Z).all()


def test_words_mean_all_other_columns(frame):
    terms = learn(parse_terms(["curves", "(1 | site)"]), as_table(frame))
    assert kinds(terms) == [
        ("s(age)", "straight", 1, 0),
        ("s(age)", "curved", 8, 1),
        ("s(dose)", "straight", 1, 0),
        ("s(dose)", "curved", 8, 1),
        ("sex", "factor", 1, 0),
        ("(1 | site)", "unit", 6, 0),
    ]


def test_a_pair_has_a_scale_for_each_combination_and_its_main_effects(frame):
    terms = learn(parse_terms(["s(age):s(dose)"]), as_table(frame))
    assert kinds(terms) == [
        ("s(age)", "straight", 1, 0),
        ("s(age)", "curved", 8, 0),
        ("s(dose)", "straight", 1, 0),
        ("s(dose)", "curved", 8, 0),
        ("s(age):s(dose)", "pair", 1, 0),
        ("s(age):s(dose)", "pair", 2, 0),
        ("s(age):s(dose)", "pair", 2, 0),
        ("s(age):s(dose)", "pair", 4, 0),
    ]
    Z = terms.transform(as_table(frame))
    age, dose = frame["age"], frame["dose"]
    product = (age - age.mean()) / age.std(ddof=0) * (dose - dose.mean()) / dose.std(ddof=0)
    np.testing.assert_allclose(Z[:, terms.slices()[4]][:, 0], product)


def test_an_unseen_level_has_no_effect_and_an_unseen_unit_is_uncertain(frame):
    terms = learn(parse_terms(["site", "(1 | site)"]), as_table(frame))
    Z = terms.transform(as_table(frame.assign(site="z")))
    factor, unit = terms.slices()
    assert not Z[:, factor].any()
    np.testing.assert_array_equal(Z[:, unit], np.tile([0, 0, 0, 0, 0, 1.0], (60, 1)))


def test_gaps_are_filled_as_they_were_at_the_fit(frame):
    frame.loc[3, "age"] = np.nan
    terms = learn(parse_terms(["s(age)", "sex"]), as_table(frame))
    gap, middle = frame.iloc[[3]], frame.iloc[[3]].assign(age=frame["age"].median())
    np.testing.assert_array_equal(terms.transform(as_table(gap)), terms.transform(as_table(middle)))
    missing = terms.transform(as_table(frame.iloc[[3]].assign(sex=None)))
    assert missing[0, -1] == 0.0  # no missing sex at the fit: no effect


def test_arrays_have_columns_by_place_and_offsets_add_up(frame):
    X = frame[["age", "dose"]].to_numpy()
    terms = learn(parse_terms(["x0", "offset(x1)"]), as_table(X))
    np.testing.assert_array_equal(terms.transform(as_table(X))[:, 0], X[:, 0])
    np.testing.assert_array_equal(terms.offset(as_table(X)), X[:, 1])


def test_permuting_rows_permutes_columns_of_nothing(frame):
    order = np.random.default_rng(1).permutation(60)
    wanted = parse_terms("curves")
    Z = learn(wanted, as_table(frame)).transform(as_table(frame))
    shuffled = frame.iloc[order].reset_index(drop=True)
    ours = learn(wanted, as_table(shuffled)).transform(as_table(shuffled))
    np.testing.assert_allclose(ours, Z[order], atol=1e-8)


def test_levels_are_ordered_by_frequency_and_missing_is_one():
    assert levels(np.array([2.0, 1.0, 2.0, np.nan])) == ["2", "1", "missing"]


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        (["s(sex)"], "holds text, but the term needs numbers"),
        (["s(weight)"], "no column 'weight': the columns of X are age, dose, sex, site"),
        (["s(flag)"], "at least 3 distinct values, but there are 2"),
        (["(1 | one)"], "has one level"),
        (["dates"], "holds dates"),
    ],
)
def test_bad_input_is_one_sentence(frame, terms, reason):
    given = frame.assign(flag=[0.0, 1.0] * 30, one="a")
    if terms == ["dates"]:
        given["dates"] = pd.Timestamp("2026-01-01")
    with pytest.raises(ValueError, match=reason):
        learn(parse_terms(terms), as_table(given))

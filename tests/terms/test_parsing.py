"""parsing and kinds: what a user writes, and how a term is written again."""

import pytest

from soubayes.terms.kinds import (
    Column,
    Factor,
    Offset,
    Pair,
    Periodic,
    Slope,
    Smooth,
    Unit,
    label,
    read_columns,
)
from soubayes.terms.parsing import parse_terms

READ = {
    "x": [Column("x")],
    "C(k)": [Factor("k")],
    "s(x)": [Smooth("x")],
    "s(x, k=4)": [Smooth("x", size=4)],
    's(m, bs="cc", period=(0.5, 12.5))': [Periodic("m", 0.5, 12.5)],
    "a:s(b)": [Pair(Column("a"), Smooth("b"))],
    "a*b": [Column("a"), Column("b"), Pair(Column("a"), Column("b"))],
    "(1 | site)": [Unit("site")],
    "(1|site)": [Unit("site")],
    "(x || site)": [Unit("site"), Slope("x", "site")],
    "(x | site)": [Unit("site"), Slope("x", "site", correlated=True)],
    "(0 + x | site)": [Slope("x", "site")],
    "offset(t)": [Offset("t")],
    "required(s(x))": [Smooth("x", required=True)],
    "`a b`": [Column("a b")],
    "s(`a:b`)": [Smooth("a:b")],
}


@pytest.mark.parametrize("text", READ)
def test_terms_are_read(text):
    assert list(parse_terms([text]).terms) == READ[text]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("log(x)", "log is not a known function"),
        ("s(x", "not the name of a column"),
        ("a:b:c", "a pair has two parts"),
        ("(x + z | site)", r"write \(x \+ z \|\| unit\)"),
        ("(x | x)", "no slope of itself"),
        ("s(x, bs='cr')", "must be 'cc'"),
        ("s(x, bs='cc')", "needs both"),
        ("s(x, sp=1)", "no option 'sp'"),
        ("s(x, k=0)", "k must be a whole number"),
        ("required((1 | site))", "cannot be required"),
        ("a b", "in backquotes"),
    ],
)
def test_a_typo_is_one_clear_sentence(text, reason):
    with pytest.raises(ValueError, match=reason) as error:
        parse_terms([text])
    assert repr(text) in str(error.value)


def test_words_and_lists():
    assert parse_terms("pairs") == ((), True, True)
    assert parse_terms(["curves", "(1 | site)"]) == ((Unit("site"),), True, False)
    assert parse_terms("x") == ((Column("x"),), False, False)
    for wrong, error in (([], ValueError), (3, TypeError), ([3], TypeError)):
        with pytest.raises(error, match="terms is"):
            parse_terms(wrong)


def test_labels_and_columns():
    terms = [Pair(Factor("sex"), Smooth("dose")), Unit("site"), Slope("x", "site"), Offset("t")]
    assert [label(term) for term in terms] == [
        "sex:s(dose)", "(1 | site)", "(0 + x | site)", "offset(t)"
    ]  # fmt: skip
    assert [read_columns(term) for term in terms] == [
        ("sex", "dose"), ("site",), ("x", "site"), ("t",)
    ]  # fmt: skip

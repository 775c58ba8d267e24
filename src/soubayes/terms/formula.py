"""``from_formula``: an estimator with terms from one line, as in R."""

import re
from typing import Any

import numpy as np

from soubayes._types import Estimator
from soubayes.terms.parsing import split_terms

RESPONSES = {"log": np.log, "log1p": np.log1p, "sqrt": np.sqrt}  # functions of the left-hand side


def from_formula(
    formula: str, data: Any, estimator: Estimator | None = None, **fit: Any
) -> Estimator:
    """Fit the terms of a formula to a data frame.

    Parameters
    ----------
    formula : str
        The response and the terms, such as ``"log(price) ~ s(carat) + clarity + (1 | shop)"``. The
        terms are those of ``terms=``; ``.`` means all other columns as curves. The response is a
        column, or ``log``, ``log1p`` or ``sqrt`` of one.
    data : DataFrame
        Columns by name, those of pandas or polars.
    estimator : estimator, optional
        A sparse estimator to fit, :class:`SoULinearRegression` if left out. Its ``terms`` are set.
    **fit : object
        Further arguments of its ``fit``, such as ``sample_weight``.

    Returns
    -------
    model : estimator
        The fitted estimator. New rows need the columns of the terms; other columns are ignored.

    Notes
    -----
    The formula is taken apart into the response and what ``terms=`` takes, in the notation of [1]_.

    References
    ----------
    .. [1] G. N. Wilkinson and C. E. Rogers (1973), "Symbolic description of factorial models for
       analysis of variance", Journal of the Royal Statistical Society C 22.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> frame = load_diabetes(as_frame=True).frame
    >>> model = from_formula("target ~ s(bmi) + s(bp) + C(sex) + s(s5)", frame)
    >>> list(model.summary().index)
    ['s(bmi)', 's(bp)', 'sex', 's(s5)']
    """
    from soubayes.sparse.estimators.linear import SoULinearRegression

    left, tilde, right = formula.partition("~")
    if not tilde or not left.strip() or not right.strip():
        raise ValueError(
            f"the formula {formula!r} must have a response and terms, as in 'y ~ s(x) + z'."
        )
    name, change = _response(left.strip(), formula)
    if name not in data.columns:
        raise ValueError(f"the formula names the response {name!r}, but data has no such column.")
    terms = ["curves" if term == "." else term for term in split_terms(right, "+")]
    response = np.asarray(data[name])
    if change is not None:
        with np.errstate(all="ignore"):
            response = RESPONSES[change](response.astype(float))
        if not np.isfinite(response).all():
            raise ValueError(f"{change}({name}) is not a finite number in every row.")
    columns = [column for column in data.columns if column != name]
    model = SoULinearRegression() if estimator is None else estimator
    fitted: Any = model.set_params(terms=terms)
    return fitted.fit(data[columns], response, **fit)


def _response(left: str, formula: str) -> tuple[str, str | None]:
    """The column on the left-hand side and the name of the function of it."""
    call = re.fullmatch(r"(\w+)\((.+)\)", left)
    name = (call[2] if call else left).strip().strip("`")
    if call and call[1] not in RESPONSES:
        raise ValueError(
            f"the response of {formula!r} is {left!r}, but only {', '.join(RESPONSES)} of a column "
            "are known: transform y yourself."
        )
    return name, call[1] if call else None

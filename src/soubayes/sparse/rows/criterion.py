"""Which support of a path of rows is reported: its price, its degrees of freedom, its residuals.

The score is a loss plus a price (`solve_rows` of `path.py`). Where the residuals contradict the
family the price is multiplied, and the intervals are wider.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack, solve_triangular

from soubayes.sparse.constants import CLEAR, COLUMN_OF_FEW, FULL_LEVERAGE, HOPELESS
from soubayes.sparse.dial import few_rows
from soubayes.sparse.likelihoods.base import Likelihood, offset_apart
from soubayes.sparse.rows.passes import RowProblem
from soubayes.sparse.rows.state import RowModel, RowState

Array = np.ndarray


def dispersion(problem: RowProblem, mean: Array) -> float:
    """phi at known coefficients and one standard error more, or 1 where the family explains it.

    Where a family does not say rightly how the variance of y follows from its mean, the variance of
    an estimate is H^-1 J H^-1 and not H^-1, with J the outer product of the slopes of the loss and
    H its curvature. For families of one mean and one variance the ratio J/H of a row is its squared
    Pearson residual, so the ratio of both is about the dispersion of a quasi-likelihood,

        phi = sum (y - mu)^2 / Var[y | mu] / (n - k).

    Where the family holds phi has the variance `residual_variance`/n. Where it does not, only the
    residuals say how well they tell phi, and a few of them often are most of it: phi alone would
    still be too small in most tables. Intervals are never narrower than those of the family.
    """
    work = partial(_residuals, likelihood=problem.likelihood, mean=mean)
    square, fourth, n = map(float, problem.total(work))
    left = n - len(mean)
    if not (left > 0.0 and np.isfinite(fourth)):
        return 1.0
    # Pearson's estimate: n - k residuals are free
    phi = square / left
    if phi <= 1.0 + CLEAR * float(np.sqrt(problem.likelihood.residual_variance / n)):
        return 1.0
    return phi + float(np.sqrt(max(fourth / n - (square / n) ** 2, 0.0) / left))


def price_factor(problem: RowProblem, mean: Array) -> float:
    """What multiplies the price of these columns, or 1 where the family explains the residuals.

    The loss of new rows exceeds that of the fitted rows by tr(J H^-1) on average [Takeuchi 1976],
    with J the outer product of the slopes of the loss and H its curvature: k, Akaike's count,
    where the family holds. With the leverages l and the Pearson residuals e of the rows it is
    sum(l e^2); here e/(1 - l), as of a fit without the row, since a column that was taken in for
    one row has its leverage there. The factor is sum(l e^2/(1 - l)^2)/sum(l), whose variance under
    the family is `residual_variance` sum(l^2)/sum(l)^2.
    """
    likelihood, mean = problem.likelihood, np.asarray(mean)
    (H,) = problem.total(partial(_information, likelihood=likelihood, mean=mean))
    root, failed = lapack.dpotrf(H, lower=1)
    if failed or not np.isfinite(root).all():  # some columns are not identified by these rows
        return 1.0
    work = partial(_leverages, likelihood=likelihood, mean=mean, root=root)
    left_out, leverage, square = map(float, problem.total(work))
    if not (leverage > 0.0 and np.isfinite(left_out)):
        return 1.0
    # Takeuchi's tr(J H^-1) over Akaike's k, both from the same leverages
    factor = left_out / leverage
    clear = CLEAR * np.sqrt(likelihood.residual_variance * square) / leverage
    return factor if factor > 1.0 + clear else 1.0


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def _pearson(Z: Array, y: Array, likelihood: Likelihood, mean: Array) -> tuple[Array, Array]:
    """Squared Pearson residuals, and the expected curvature mu^2/Var[y] under a log link."""
    base: Any = likelihood.plain
    y, offset = offset_apart(y)
    eta = Z.astype(float, copy=False) @ mean + offset + likelihood.shift
    mu, variance = base.predict(eta, np.zeros_like(eta)), base.noise(eta)
    return (y - mu) ** 2 / variance, mu**2 / variance


def _residuals(
    Z: Array, y: Array, weight: Array, likelihood: Likelihood, mean: Array
) -> tuple[Any, ...]:
    """Sums of the squared Pearson residuals, of their squares, and of the weights."""
    square, _ = _pearson(Z, y, likelihood, mean)
    with np.errstate(over="ignore"):
        return weight @ square, weight @ square**2, weight.sum()


def _information(
    Z: Array, y: Array, weight: Array, likelihood: Likelihood, mean: Array
) -> tuple[Any, ...]:
    """The expected curvature of the loss in the coefficients."""
    _, curvature = _pearson(Z, y, likelihood, mean)
    return (Z.T @ ((weight * curvature)[:, None] * Z),)


def _leverages(
    Z: Array, y: Array, weight: Array, likelihood: Likelihood, mean: Array, root: Array
) -> tuple[Any, ...]:
    """Sums of l e^2/(1 - l)^2, of the leverages l, and of their squares."""
    square, curvature = _pearson(Z, y, likelihood, mean)
    leverage = curvature * np.square(solve_triangular(root, Z.T, lower=True)).sum(axis=0)
    leverage = np.minimum(leverage, FULL_LEVERAGE)
    with np.errstate(over="ignore"):
        left_out = weight @ (leverage * square / (1.0 - leverage) ** 2)
    return left_out, weight @ leverage, weight @ leverage**2


def places_of(model: RowModel, free: Array) -> Array:
    """The number of the tau of every column that is searched, -1 of the others.

    Columns that share a tau are one place for a signal.
    """
    numbers = np.full(len(free), -1)
    numbers[model.sparse] = model.groups.number
    return np.where(model.searched_among(free), numbers, -1)


def searched(places: Array) -> int:
    """How many different places there are."""
    return len(np.unique(places[places >= 0]))


def support_price(n: float, searched: int, k: float, kept: int) -> float:
    """The share of the score that counts k degrees of freedom in so many places searched."""
    # 2 k log(p/e), the price of the search (`solve_rows`)
    price = 2.0 * max(np.log(max(searched, 1)) - 1.0, 0.0) * kept
    if n <= k + 1:
        return np.inf
    few = COLUMN_OF_FEW * few_rows(n - k) * kept if kept else 0.0
    return price + 2.0 * k * n / (n - k - 1.0) + few


class Counted(NamedTuple):
    """The places of a support, and the degrees of freedom that it takes."""

    place: Array  # (k,) of every active column, -1 where it was not searched
    numbers: Array  # the places
    sizes: Array  # their degrees of freedom

    @classmethod
    def of(cls, state: RowState, places: Array) -> "Counted":
        """A column alone takes one. One tau of m columns takes its effective ones and its own.

        At most m of them: with m = 1 it is the column.
        """
        place = places[state.active]
        kept = place >= 0
        numbers, index = np.unique(place[kept], return_inverse=True)
        variance = np.einsum("ij,ij->i", state.root, state.root)
        explained = 1.0 - np.minimum(state.precision[state.active] * variance, 1.0)
        effective = np.bincount(index, explained[kept], len(numbers))
        return cls(place, numbers, np.minimum(np.bincount(index), effective + 1.0))

    @property
    def total(self) -> float:
        """Of all columns."""
        return float((self.place < 0).sum() + self.sizes.sum())


def weakest(
    state: RowState, places: Array, price: Callable[[float, int], float]
) -> tuple[float, Array]:
    """By how much the score of a fit would fall without its weakest columns, and where they are.

    The score is twice the loss plus ``price(k, kept)`` of k degrees of freedom (`Counted`) in so
    many ``places``, of which -1 are never left out. One place leaves at a time, the one that raises
    the loss least: by half of m_g' (S_gg)^-1 m_g, and by 1/2 because the mean is shrunk
    (1 - 1/z^2).
    """
    S, m, counted = state.root @ state.root.T, state.mean.copy(), Counted.of(state, places)
    sets = [np.flatnonzero(counted.place == number) for number in counted.numbers]
    counts = np.array([len(columns) for columns in sets], int)
    k, kept = counted.total, len(sets)
    first = price(k, kept)
    if not np.isfinite(first):
        return 0.0, np.zeros(0, int)
    left, gone, rise = np.ones(kept, bool), [np.zeros(0, int)], 0.0
    best, drop = 0.0, 0
    while left.any():
        cost = np.full(len(sets), np.inf)
        for size in np.unique(counts[left]):
            some = np.flatnonzero(left & (counts == size))
            at = np.stack([sets[g] for g in some])
            inside = S[at[:, :, None], at[:, None, :]]
            cost[some] = (m[at] * np.linalg.solve(inside, m[at][..., None])[..., 0]).sum(axis=1)
        g = int(np.argmin(cost))
        j = sets[g]
        rise += float(cost[g]) + 1.0
        # the others, given that these are 0
        # conditioning a normal on b_j = 0: m - S_.j S_jj^-1 m_j, S - S_.j S_jj^-1 S_j.
        way = np.linalg.solve(S[np.ix_(j, j)], S[j]).T
        m, S = m - way @ m[j], S - way @ S[j]
        left[g], k, kept = False, k - float(counted.sizes[g]), kept - 1
        gone.append(j)
        fall = first - price(k, kept) - rise
        if fall > best:
            best, drop = fall, len(gone)
        elif fall < best - HOPELESS:
            break
    return best, np.sort(np.concatenate([np.zeros(0, int), *gone[:drop]]))

"""Where the draws of a block lie in its prior given the earlier blocks, as normal scores.

A score is standard normal if the block is drawn from its prior. By the law of total variance, data
from the prior predictive distribution then give its posterior mean the variance 1 - v, with v its
posterior variance. A mean that is further out than this is a conflict of prior and data, at any
level of a hierarchy (`surprise`).

For a normal prior the score is the slope of the log prior over the root of its curvature. Slope and
curvature of other priors follow from the log prior as a function of the block and its parents
(`soubayes.draws.functions`), by differences around the draws. The tail probability of a scalar
block needs no normal shape: with height h, slope s and curvature k of its density on the real line
it is 2 h / (s + sqrt(s^2 + 8 k / pi)), Mills's ratio where the prior is normal and exact where its
tail is exponential.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import expit, logit

from soubayes.draws.functions import MOST_PAIRED, LogPrior
from soubayes.draws.known import Draws
from soubayes.draws.parents import distinct_rows, find_parents

MOST_KNOWN = 0.95  # variance of a score above which the data say nothing of it
SHIFT = 0.2  # posterior sds, of differences
MOST_SHIFTED = 16000  # shifted draws, of all coordinates together
MOST_SCORED = 4000
FEWEST_SCORED = 100
FARTHEST_SCORE = 10.0  # prior sds; further out nothing is known of a density
JOINT_PRIOR = 0.1  # relative error below which an integral is the density of the earlier blocks
LEAST_BENT = 0.01  # of the median; what is less bent has no normal score
PLACES_COMPARED = 40  # draws at which lines are compared, and coordinates with each other


class Scores(NamedTuple):
    """Scores of some of the draws, and what they say of the prior at all of them.

    ``normal`` is (draw, coordinate); ``correlation`` is theirs under the prior; ``log_prior`` is
    known but for a constant, and normalised given the earlier blocks: a power of it has a constant
    factor alone.
    """

    normal: np.ndarray
    correlation: np.ndarray
    log_prior: np.ndarray


def prior_scores(draws: Draws, block: str) -> Scores | None:
    """The scores of a block; None for a discrete one, a flat prior or too few different draws."""
    # where no regression expresses a log prior its curvature may overflow: it is clipped or unused
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return _prior_scores(draws, block)


def _prior_scores(draws: Draws, block: str) -> Scores | None:
    if block in draws.discrete or block in draws.flat:
        return None
    place, log_prior = draws.values[block], draws.log_prior[block]
    standard = log_prior + draws.log_jacobian[block]
    if np.ptp(standard + 0.5 * (place**2).sum(axis=1)) < 1e-6:
        return Scores(place, np.eye(place.shape[1]), standard)
    earlier = draws.names[: draws.names.index(block)]
    values = {name: draws.given[name] for name in (*earlier, block)}
    rows = distinct_rows(values)
    if len(rows) < FEWEST_SCORED:
        return None
    few = {name: x[rows] for name, x in values.items()}
    parents = find_parents(few, log_prior[rows], [*earlier, block], block)
    arguments = [values[name] for name in (earlier if parents is None else parents)]
    size = place.shape[1]
    count = int(np.clip(MOST_SHIFTED // (2 * size), FEWEST_SCORED, MOST_SCORED))
    at = np.arange(0, len(log_prior), -(-len(log_prior) // count))
    shifted = _Shifted(values[block], arguments, log_prior, rows)
    shifted.choose_lines(at[:: -(-len(at) // PLACES_COMPARED)])
    around = shifted.around(at)
    if size == 1:
        normal = _tail_score(around.density[:, None], around.slope, around.curvature)
        normal = np.nan_to_num(normal)
        bent = np.maximum(around.curvature[:, 0], LEAST_BENT * np.median(around.curvature))
        if np.median(around.curvature) > 0:
            square = around.slope[:, 0] ** 2 / bent
            total = around.density + 0.5 * square - 0.5 * np.log(bent)
            _check_conditional(draws, block, at, total)
        return Scores(normal, np.eye(1), _normalised(log_prior, normal[:, 0] ** 2, at, arguments))
    least = LEAST_BENT * np.maximum(np.median(around.curvature, axis=0), 1e-12)
    normal = -around.slope / np.sqrt(np.maximum(around.curvature, least))
    normal = np.clip(np.nan_to_num(normal), -FARTHEST_SCORE, FARTHEST_SCORE)
    correlation = np.eye(size)
    if size <= MOST_PAIRED:
        measured = shifted.correlation(at[:: -(-len(at) // PLACES_COMPARED)])
        # a log prior that no regression expresses has no reliable curvature
        correlation = measured if np.all(abs(measured) <= 1 + 1e-6) else correlation
    square = np.einsum("ij,jk,ik->i", normal, np.linalg.pinv(correlation), normal)
    log_root = 0.5 * np.log(np.maximum(around.curvature, least)).sum(axis=1)
    _check_conditional(draws, block, at, around.density + 0.5 * square - log_root)
    return Scores(normal, correlation, _normalised(log_prior, square, at, arguments))


def _check_conditional(draws: Draws, block: str, at: np.ndarray, log_total: np.ndarray) -> None:
    """Refuse a joint log prior of the block and of all earlier ones.

    The integral of a conditional density is 1 whatever the earlier blocks are; that of a joint one,
    by Laplace's method, is the density of the earlier blocks.
    """
    earlier = draws.names[: draws.names.index(block)]
    log_prior = sum(
        (draws.log_prior[name] for name in earlier), np.zeros(len(draws.log_likelihood))
    )
    x, y = log_prior[at], log_total
    if np.ptp(x) == 0:
        return
    x, y = x - np.median(x), y - np.median(y)
    slope = float(x @ y / (x @ x))
    left = np.median(abs(y - slope * x)) / np.median(abs(y))
    if abs(slope - 1) < JOINT_PRIOR and left < JOINT_PRIOR:
        raise ValueError(
            f"the log prior of {block!r} is not that of {block!r} given the earlier blocks: its "
            f"integral over {block!r} is the prior of {list(earlier)}, so it is the joint log "
            "prior, such as lprior of brms. Give each block its own."
        )


class _Line(NamedTuple):
    """A coordinate of the real line, and the log of what a density on it is multiplied by."""

    to: Callable[[np.ndarray], np.ndarray]
    back: Callable[[np.ndarray], np.ndarray]
    log_jacobian: Callable[[np.ndarray], np.ndarray]


#: As given, for normal priors; the cube root, for gamma priors (Wilson and Hilferty 1931); the
#: logarithm; and the logit of what lies between 0 and 1.
GIVEN = _Line(lambda x: x, lambda y: y, np.zeros_like)
CUBE_ROOT = _Line(np.cbrt, lambda y: y**3, lambda y: np.log(3 * y**2))
LOG = _Line(np.log, np.exp, lambda y: y)
LOGIT = _Line(logit, expit, lambda y: -np.logaddexp(0, y) - np.logaddexp(0, -y))


class _Around(NamedTuple):
    """The log density of some draws, and its slope and curvature by each coordinate."""

    density: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


class _Shifted:
    """The log density of a block at draws of which coordinates are moved along a line."""

    def __init__(
        self, given: np.ndarray, parents: list[np.ndarray], log_prior: np.ndarray, rows: np.ndarray
    ) -> None:
        self._given, self._parents, self._log_prior = given.astype(float), parents, log_prior
        self._function = LogPrior([x[rows] for x in (self._given, *parents)], log_prior[rows])
        self._lines = [GIVEN] * given.shape[1]

    def choose_lines(self, at: np.ndarray) -> None:
        """For each coordinate the line on which the density is most like a normal one."""
        size = len(self._lines)
        asymmetry = {}
        for line in (GIVEN, CUBE_ROOT, LOG, LOGIT):
            able = [j for j in range(size) if line in _lines(self._given[:, j])]
            if not able:
                continue
            self._lines = [line if j in able else GIVEN for j in range(size)]
            one = np.eye(size)[able]
            moved = self._moved(at, np.concatenate([one, -one, 2 * one, -2 * one]))
            up, down, far, low = np.split(moved, 4, axis=1)
            third = np.median(abs(far - 2 * up + 2 * down - low), axis=0) / 2
            second = np.median(abs(up + down - 2 * self._density(at)[:, None]), axis=0)
            for j, skew in zip(able, third / np.maximum(second, 1e-300) ** 1.5, strict=True):
                asymmetry[j, line] = skew
        self._lines = [
            min(_lines(self._given[:, j]), key=lambda line: asymmetry[j, line] + 1e-6)
            for j in range(size)
        ]

    def around(self, at: np.ndarray) -> _Around:
        """Density, slope and curvature by central differences."""
        one = np.eye(len(self._lines))
        middle, steps = self._density(at), self._steps(at)
        up, down = np.split(self._moved(at, np.concatenate([one, -one])), 2, axis=1)
        curvature = -(up + down - 2 * middle[:, None]) / steps**2
        return _Around(middle, (up - down) / (2 * steps), curvature)

    def correlation(self, at: np.ndarray) -> np.ndarray:
        """Of the scores under the prior: the curvature scaled to ones on the diagonal."""
        size = len(self._lines)
        one, result = np.eye(size), np.eye(size)
        pairs = [(j, k) for j in range(size) for k in range(j)]
        both = self._moved(at, np.array([one[j] + one[k] for j, k in pairs]))
        up, middle = self._moved(at, one), self._density(at)
        root = self._steps(at) * np.sqrt(np.maximum(self.around(at).curvature, 1e-300))
        for column, (j, k) in enumerate(pairs):
            mixed = -(both[:, column] - up[:, j] - up[:, k] + middle)
            result[j, k] = result[k, j] = np.median(mixed / (root[:, j] * root[:, k]))
        return result

    def _places(self, at: np.ndarray) -> np.ndarray:
        columns = zip(self._lines, self._given[at].T, strict=True)
        return np.stack([line.to(x) for line, x in columns], axis=1)

    def _density(self, at: np.ndarray) -> np.ndarray:
        columns = zip(self._lines, self._places(at).T, strict=True)
        return self._log_prior[at] + sum(line.log_jacobian(y) for line, y in columns)

    def _steps(self, at: np.ndarray) -> np.ndarray:
        """(draw, coordinate): a share of the sd; shorter near an end of the support."""
        places = self._places(at)
        steps = np.broadcast_to(SHIFT * places.std(axis=0), places.shape).copy()
        for j, line in enumerate(self._lines):
            if line in (GIVEN, CUBE_ROOT):
                choices = _lines(self._given[:, j])
                room = np.minimum(places[:, j], 1 - places[:, j] if LOGIT in choices else np.inf)
                limit = 0.4 * room if len(choices) > 1 else np.inf
                steps[:, j] = np.minimum(steps[:, j], limit)
        return steps

    def _moved(self, at: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """(draw, move): the log density where the coordinates have moved by multiples of a step."""
        places = self._places(at) + moves[:, None] * self._steps(at)
        places = places.reshape(-1, places.shape[2])
        columns = list(zip(self._lines, places.T, strict=True))
        given = np.stack([line.back(y) for line, y in columns], axis=1)
        jacobian = sum(line.log_jacobian(y) for line, y in columns)
        blocks = [given, *(np.concatenate([x[at]] * len(moves)) for x in self._parents)]
        return (self._function(blocks) + jacobian).reshape(len(moves), -1).T


def _lines(given: np.ndarray) -> list[_Line]:
    """The lines on which draws of a coordinate can be placed."""
    if not np.all(given > 0):
        return [GIVEN]
    return [GIVEN, CUBE_ROOT, LOG, *([LOGIT] if np.all(given < 1) else [])]


def _tail_score(log_height: np.ndarray, slope: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """The normal score of a scalar with the height, slope and curvature of its density."""
    size = abs(slope)
    width = np.sqrt(size**2 + 8 / np.pi * np.maximum(curvature, 0.0))
    tail = 2 * np.exp(log_height) / np.maximum(size + width, 1e-300)
    return -np.sign(slope) * stats.norm.isf(np.clip(tail, 1e-300, 0.5))


def _normalised(
    log_prior: np.ndarray, square: np.ndarray, at: np.ndarray, parents: list[np.ndarray]
) -> np.ndarray:
    """The log prior without what depends on the earlier blocks alone, which is no power of it."""
    if not parents:
        return log_prior
    rest = log_prior[at] + 0.5 * square
    return log_prior - LogPrior([x[at] for x in parents], rest)(parents)


def surprise(scores: Scores | None) -> float:
    """How rarely data from the prior would take the scores' means as far out as they are.

    The smaller of two probabilities, doubled: of the sum of squares, whose distribution has the
    degrees of freedom that its variance asks for, and of the largest score.
    """
    if scores is None:
        return 1.0
    known = np.atleast_2d(np.cov(scores.normal, rowvar=False))
    heard = np.diag(known) < MOST_KNOWN
    if not heard.any():
        return 1.0
    variance = (scores.correlation - known)[np.ix_(heard, heard)]
    # where the data say little, the difference is small beside the sampling error of v
    error = np.sqrt(2 / len(scores.normal)) * np.diag(known)[heard]
    sd = np.sqrt(np.diag(variance) + error)
    z = scores.normal.mean(axis=0)[heard] / sd
    size = len(z)
    if size == 1:
        return float(2 * stats.norm.sf(abs(z[0])))
    freedom = size**2 / np.sum((variance / np.outer(sd, sd)) ** 2)
    total = stats.chi2.sf(np.sum(z**2) * freedom / size, freedom)
    largest = -np.expm1(size * np.log1p(-2 * stats.norm.sf(np.max(abs(z)))))
    return float(min(1.0, 2 * min(total, largest)))

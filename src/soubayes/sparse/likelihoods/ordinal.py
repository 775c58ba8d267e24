"""Classes in order: cumulative logits with estimated cut points."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, logit

from soubayes.sparse.constants import GAP_SD
from soubayes.sparse.likelihoods.base import Array, RowLikelihood, RowTerms, normal_rule
from soubayes.sparse.likelihoods.bernoulli import Bernoulli, mean_probability

STEPS = 8  # of an update of q(theta): the next update goes on from there
NODES, WEIGHTS = normal_rule(15)
LEAST = 1e-12  # of a class's probability, where the moments of two cuts disagree


@dataclass(frozen=True)
class Cuts:
    """q(theta) = N(mean, covariance): the cut ``anchor``, then the logarithms of the gaps.

    The prior is N(0, variance) for this cut and N(0, 2^2) for every log gap. The anchor is the cut
    above the lowest class with rows: were it one below, of which little is known, the others would
    be sums of two wide parts, and a normal q does not know that these make up for each other.
    """

    mean: Array  # (cuts,)
    covariance: Array  # (cuts, cuts)
    variance: float  # of the prior of the anchor
    anchor: int = 0

    @classmethod
    def of(cls, shares: Array, variance: float) -> Self:
        """About the cuts that give these shares of the classes."""
        share = (shares + 0.5) / np.sum(shares + 0.5)
        cut, anchor = logit(np.cumsum(share)[:-1]), int(np.flatnonzero(shares)[0])
        mean = np.append(cut[anchor], np.log(np.diff(cut)))
        return cls(mean, 0.01 * np.eye(len(mean)), variance, anchor)

    @property
    def sums(self) -> Array:
        """(cuts, theta): which parts, the anchor and the gaps, a cut is the sum of."""
        cut, gap = np.arange(len(self.mean))[:, None], np.arange(1, len(self.mean))
        above, below = (self.anchor < gap) & (gap <= cut), (cut < gap) & (gap <= self.anchor)
        return np.hstack([np.ones((len(cut), 1)), above * 1.0 - below])

    @property
    def prior_precision(self) -> Array:
        """Of every theta."""
        return np.append(1.0 / self.variance, np.full(len(self.mean) - 1, GAP_SD**-2))

    @property
    def kl(self) -> float:
        """KL(q || prior) in nats."""
        precision = self.prior_precision
        quadratic = precision @ (self.mean**2 + np.diag(self.covariance))
        log_det = float(np.linalg.slogdet(self.covariance)[1]) + float(np.log(precision).sum())
        return 0.5 * float(quadratic - len(self.mean) - log_det)

    def moments(self) -> tuple[Array, Array]:
        """Means and variances of the cuts, those of sums of a normal and lognormal variables."""
        size = np.exp(self.mean[1:] + 0.5 * np.diag(self.covariance)[1:])
        step = np.append(self.mean[0], size)
        unit = np.append(1.0, size)
        square = np.expm1(self.covariance)
        square[0, :], square[:, 0] = self.covariance[0, :], self.covariance[:, 0]
        square = square * unit * unit[:, None]
        sums = self.sums
        return sums @ step, np.einsum("kj,ji,ki->k", sums, square, sums)

    def gaps(self) -> Array:
        """E[-log(1 - exp(-gap))] of every gap."""
        sd = np.sqrt(np.diag(self.covariance)[1:])
        return _gap(self.mean[1:, None] + sd[:, None] * NODES)[0] @ WEIGHTS

    def best(self, slope: Array, bend: Array, counts: Array, confidence: float) -> Self:
        """The q that minimises the expectation of a quadratic form of the cuts plus the gaps.

        The form has this slope and curvature at the present means of the cuts; ``counts`` are the
        rows of the classes between two cuts. A Newton step on the mean and the covariance at a
        time, by the expected derivatives at 2 d points.
        """
        at, q, precision = self.moments()[0], self, self.prior_precision
        for _ in range(STEPS):
            gradient, hessian = _expected(q, at, slope, bend, counts)
            # in units of the prior; where the form is concave, q is at most as wide as the prior
            unit = np.sqrt(confidence * precision)
            values, vectors = np.linalg.eigh(hessian / np.outer(unit, unit))
            scaled = vectors * np.sqrt(1.0 + np.maximum(values, 0.0))
            root = unit[:, None] * scaled
            factor = cho_factor(root @ root.T)
            move = -cho_solve(factor, gradient + confidence * precision * q.mean)
            move *= min(1.0, 2.0 / max(float(np.abs(move).max()), 1e-300))
            new = confidence * cho_solve(factor, np.eye(len(move)))
            change = np.abs(move).max() + np.abs(new - q.covariance).max()
            q = replace(q, mean=q.mean + move, covariance=0.5 * (new + new.T))
            if change < 1e-7:
                break
        return q


class Ordinal(RowLikelihood):
    """y in {0, ..., K - 1} with P(y <= k) = sigma(c_k - eta) and cuts c_0 < ... < c_{K-2}.

    With f(u) = log(1 + exp(u)) minus the log probability of class k is

        f(eta - c_k) + f(c_{k-1} - eta) - log(1 - exp(c_{k-1} - c_k)),

    without the terms of cuts that do not exist. A cut is a sum of a normal and of lognormal
    variables; with the mean and variance of that sum, f is averaged as for two classes, where it is
    exact. The cuts take the place of the intercept.
    """

    intercept = False
    nuisance = "cuts"
    start_curvature = 0.25
    whole = True
    lowest = 0.0

    def __init__(self, cuts: Cuts, confidence: float = 1.0) -> None:
        self.cuts, self.confidence = cuts, confidence
        self.cut_mean, self.cut_variance = cuts.moments()
        self.gap_loss = np.concatenate([[0.0], cuts.gaps(), [0.0]])

    def derivatives(self, eta: Array, y: Array) -> tuple[Array, Array, Array]:
        """The loss averaged over the cuts, and its derivatives in eta."""
        shape = np.broadcast_shapes(np.shape(eta), np.shape(y))
        flat = (np.broadcast_to(values, shape).ravel() for values in (eta, y))
        parts = self._averaged(next(flat), np.zeros(()), next(flat))
        loss, slope, curvature = (values.reshape(shape) for values in parts)
        return loss, slope, curvature

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """The average over predictor and cuts."""
        loss, slope, curvature = self._averaged(mean, variance, y)
        return RowTerms(loss, -slope, curvature, curvature)

    def _averaged(self, mean: Array, variance: Array, y: Array) -> tuple[Array, Array, Array]:
        k = y.astype(int)
        loss, slope, curvature = self.gap_loss[k].copy(), np.zeros(len(k)), np.zeros(len(k))
        variance = np.broadcast_to(variance, mean.shape)
        for cut, rows, below in self._sides(k):
            value, share, bend = self._softplus(mean[rows], variance[rows], cut[rows])
            loss[rows] += value - (mean[rows] - self.cut_mean[cut[rows]] if below else 0.0)
            slope[rows] += share - float(below)
            curvature[rows] += bend
        return loss, slope, curvature

    def _sides(self, k: Array) -> list[tuple[Array, Array, bool]]:
        """The cut above and the cut below every row's class, and which rows have one."""
        last = len(self.cut_mean)
        return [(np.minimum(k, last - 1), k < last, False), (np.maximum(k - 1, 0), k > 0, True)]

    def _softplus(self, mean: Array, variance: Array, cut: Array) -> tuple[Array, Array, Array]:
        """E[f(eta - c)] and its first two derivatives in the mean of eta."""
        wide = variance + self.cut_variance[cut]
        loss, score, curvature, _ = Bernoulli().terms(mean - self.cut_mean[cut], wide, 0.0 * mean)
        return loss, -score, curvature

    def probabilities(self, mean: Array, variance: Array) -> Array:
        """(rows, classes) for predictors N(mean, variance)."""
        wide = variance[:, None] + self.cut_variance
        below = mean_probability(self.cut_mean - mean[:, None], wide)
        ends = np.zeros((len(mean), 1)), np.ones((len(mean), 1))
        chances = np.maximum(np.diff(np.hstack([ends[0], below, ends[1]]), axis=1), LEAST)
        return chances / chances.sum(axis=1, keepdims=True)

    def predict(self, mean: Array, variance: Array) -> Array:
        """The mean number of the class."""
        return self.probabilities(mean, variance) @ np.arange(len(self.cut_mean) + 1.0)

    def predict_variance(self, mean: Array, variance: Array) -> Array:
        """The variance of the number of the class."""
        chances, number = self.probabilities(mean, variance), np.arange(len(self.cut_mean) + 1.0)
        return chances @ number**2 - (chances @ number) ** 2

    def cdf(self, y: Array, eta: Array) -> Array:
        """P(Y <= y) at the mean cuts."""
        k = np.clip(np.floor(y), -1, len(self.cut_mean)).astype(int)
        cut = np.concatenate([[-np.inf], self.cut_mean, [np.inf]])
        return expit(cut[k + 1] - eta)

    def predict_cdf(self, y: Array, mean: Array, variance: Array) -> Array:
        """P(Y <= y), averaged over predictor and cuts."""
        below = np.cumsum(self.probabilities(mean, variance), axis=1)
        k = np.clip(np.floor(y), -1, len(self.cut_mean)).astype(int)
        return np.where(k < 0, 0.0, np.minimum(below[np.arange(len(k)), k], 1.0))

    _rough_cdf = predict_cdf

    def log_density(self, mean: Array, variance: Array, y: Array) -> Array:
        """The logarithm of the probability of the class."""
        return np.log(self.probabilities(mean, variance)[np.arange(len(y)), y.astype(int)])

    @property
    def kl(self) -> float:
        return self.cuts.kl

    def statistics(self, mean: Array, variance: Array, y: Array) -> tuple[Array, ...]:
        """Slope and curvature of the loss in every cut, and the rows of every class."""
        k, d = y.astype(int), len(self.cut_mean)
        slope, bend = np.zeros((d, len(k))), np.zeros((d, len(k)))
        for cut, rows, below in self._sides(k):
            _, share, curvature = self._softplus(mean[rows], variance[rows], cut[rows])
            place = cut[rows], np.flatnonzero(rows)
            slope[place] += float(below) - share
            bend[place] += curvature
        inner = [(k == j).astype(float) for j in range(1, d)]
        return (*slope, *bend, *inner)

    def updated(self, totals: tuple[float, ...]) -> Self:
        """With the best q of the cuts."""
        d, sums = len(self.cut_mean), np.array(totals)
        best = self.cuts.best(sums[:d], sums[d : 2 * d], sums[2 * d :], self.confidence)
        return type(self)(best, self.confidence)


def _gap(theta: Array) -> tuple[Array, Array, Array]:
    """-log(1 - exp(-exp(theta))) and its first two derivatives."""
    x = np.exp(np.clip(theta, -40.0, 6.0))
    less = -np.expm1(-x)  # 1 - exp(-x)
    ratio = x * np.exp(-x) / less
    return -np.log(less), -ratio, ratio * (x / less - 1.0)


def _expected(q: Cuts, at: Array, slope: Array, bend: Array, counts: Array) -> tuple[Array, Array]:
    """E[gradient] and E[Hessian] of what `Cuts.best` minimises, without the prior."""
    d = len(q.mean)
    root = np.linalg.cholesky(q.covariance + 1e-14 * np.eye(d)) * np.sqrt(d)
    points = q.mean + np.vstack([root.T, -root.T])
    step = np.hstack([np.ones((2 * d, 1)), np.exp(points[:, 1:])])
    cut = np.hstack([points[:, :1], step[:, 1:]]) @ q.sums.T
    above = (slope + bend * (cut - at)) @ q.sums  # over the cuts that hold this part
    _, first, second = _gap(points[:, 1:])
    gradient = (step * above).mean(axis=0)
    gradient[1:] += counts * first.mean(axis=0)
    jacobian = q.sums * step[:, None, :]
    hessian = np.einsum("mji,j,mjk->ik", jacobian, bend, jacobian) / len(points)
    diagonal = (step[:, 1:] * above[:, 1:]).mean(axis=0) + counts * second.mean(axis=0)
    hessian[np.arange(1, d), np.arange(1, d)] += diagonal
    return gradient, hessian

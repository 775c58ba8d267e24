r"""Who is at risk when, and the partial likelihood: sums over the risk sets in one pass.

A subject is at risk at time t if start < t <= stop. The baseline hazard jumps at the times of
events: once at each distinct time (Breslow), or d times where d subjects have an event together,
with exposures from which l/d of the subjects that have it are taken, l = 0, ..., d - 1 (Efron).
Sums over risk sets are differences of cumulative sums over subjects in order of time, so
nothing costs more than sorting.

The loss of Cox's model has the baseline hazard integrated out. Its increments h_j are the last
block. Their prior is Gamma(a_j, c), so q(h_j | beta) = Gamma(a_j + d_j/gamma_b, c + S_j/gamma_b) is
exact, with S_j the sum of exp(eta) over the risk set. What the block hands on is

    V(eta) = - sum_i d_i eta_i + sum_j (d_j + gamma_b a_j) log(gamma_b c + S_j) + constant:

Cox's partial likelihood with gamma_b c subjects of average risk (eta = 0) in
every risk set and gamma_b a_j events among them. As c goes to 0 it is the partial likelihood.

The second derivative in eta is diag(A) - sum_j w_j pi_j pi_j', with pi_j the shares of the subjects
in S_j, w_j = d_j + gamma_b a_j and A = sum_j w_j pi_j the expected events. In terms of columns X it
is X'AX minus the cross-products of the risk-set means: O(n k^2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, psi

Array = np.ndarray

# what is known of a subject; the stratum is a number from 0 on
SUBJECT = np.dtype([("start", float), ("stop", float), ("event", bool), ("stratum", int)])


def subjects(
    stop: Array, event: Array, start: Array | float = -np.inf, stratum: Array | int = 0
) -> Array:
    """One record for each subject; without ``start`` it is at risk from the beginning.

    >>> subjects(np.array([2.0]), np.array([True])).tolist()
    [(-inf, 2.0, True, 0)]
    """
    records = np.empty(len(stop), SUBJECT)
    records["start"], records["stop"], records["event"], records["stratum"] = (
        start,
        stop,
        event,
        stratum,
    )
    return records


class BaselinePrior(NamedTuple):
    """Independent gamma increments of the baseline hazard (Kalbfleisch 1978), and the confidence.

    The increment of an interval of length u is Gamma(mass * rate * u, mass): ``mass`` counts
    subjects of average risk, and 0 stands for the limit of an improper prior.
    """

    mass: float = 0.0  # c
    rate: float = 0.0  # of the prior guess, a constant hazard
    confidence: float = 1.0  # gamma_b


@dataclass(frozen=True)
class RiskSets:
    """Subjects with their weights, and the jumps of the baseline hazard, ordered by stratum, time.

    ``pull`` and ``ghost`` are what the prior of the baseline adds to the number of events of a jump
    and to its exposure: gamma_b a_j and gamma_b c.
    """

    y: Array  # (n,) of `SUBJECT`
    weight: Array  # (n,)
    time: Array  # (r,) of the jumps
    stratum: Array  # (r,)
    deaths: Array  # (r,) events, weighted
    share: Array  # (r,) l/d: the share of the tied subjects that is not at risk any more
    pull: Array  # (r,)
    ghost: float
    prior: BaselinePrior
    _first: Array  # (g,) the first jump of every distinct time
    _group: Array  # (r,) the distinct time of a jump
    _dead: Array  # subjects with an event, ordered by their time
    _own: Array  # the distinct time of each of these
    _stop: "_Ordered"
    _start: "_Ordered | None"  # None: everybody is at risk from the beginning

    @classmethod
    def of(
        cls, y: Array, weight: Array, ties: str = "efron", prior: BaselinePrior | None = None
    ) -> "RiskSets":
        """The risk sets of subjects; ``ties`` is "efron" or "breslow"."""
        prior = prior or BaselinePrior()
        dead = np.flatnonzero(y["event"])
        dead = dead[np.lexsort((y["stop"][dead], y["stratum"][dead]))]
        time, stratum = y["stop"][dead], y["stratum"][dead]
        new = np.append(True, (np.diff(time) != 0.0) | (np.diff(stratum) != 0))[: len(dead)]
        begin, jump = np.flatnonzero(new), np.cumsum(new) - 1
        total, count = np.bincount(jump, weight[dead]), np.bincount(jump)
        many = count if ties == "efron" else np.ones_like(count)
        group = np.repeat(np.arange(len(many)), many)
        first = np.cumsum(many) - many
        step = np.arange(len(group)) - first[group]
        at, of = time[begin], stratum[begin]
        gap = at - np.where(np.append(True, np.diff(of) != 0)[: len(of)], 0.0, np.roll(at, 1))
        a = prior.mass * prior.rate * gap / many
        late = bool(np.isfinite(y["start"]).any()) and bool(
            (y["start"] >= (at.min() if len(at) else np.inf)).any()
        )
        return cls(
            y=y,
            weight=weight,
            time=at[group],
            stratum=of[group],
            deaths=(total / many)[group],
            share=step / many[group],
            pull=prior.confidence * a[group],
            ghost=prior.confidence * prior.mass,
            prior=prior,
            _first=first,
            _group=group,
            _dead=dead,
            _own=jump,
            _stop=_Ordered.of(y["stop"], y["stratum"], at, of),
            _start=_Ordered.of(y["start"], y["stratum"], at, of) if late else None,
        )

    @property
    def count(self) -> Array:
        """d_j + gamma_b a_j."""
        return self.deaths + self.pull

    def sums(self, values: Array) -> Array:
        """The sum over the risk set of every jump of ``values`` (n,) or (n, k)."""
        total = self._stop.from_the_end(values)
        if self._start is not None:
            total = total - self._start.from_the_end(values)
        if self.share.any():
            tied = np.add.reduceat(values[self._dead], self._begins, axis=0)
            share = self.share.reshape(-1, *[1] * (values.ndim - 1))
            return total[self._group] - share * tied[self._group]
        return total[self._group]

    def spread(self, values: Array) -> Array:
        """The sum over the jumps at which a subject is at risk: the transpose of `sums`."""
        if not len(values):
            return np.zeros((len(self.y), *values.shape[1:]))
        sums = np.add.reduceat(values, self._first, axis=0)
        total = self._stop.up_to(sums)
        if self._start is not None:
            total = total - self._start.up_to(sums)
        if self.share.any():
            share = self.share.reshape(-1, *[1] * (values.ndim - 1))
            less = np.add.reduceat(share * values, self._first, axis=0)
            total[self._dead] -= less[self._own]
        return total

    def by_event(self, values: Array) -> tuple[Array, Array]:
        """The subjects with an event, ordered by time, and the mean over the jumps at its time."""
        many = np.bincount(self._group).reshape(-1, *[1] * (values.ndim - 1))
        return self._dead, (np.add.reduceat(values, self._first, axis=0) / many)[self._own]

    def ordered_by(self, eta: Array) -> bool:
        """Whether every event has the largest predictor of its risk set, which are not all equal.

        The partial likelihood then rises without end along ``eta``. Subjects that the baseline
        prior puts into every risk set give it a maximum.
        """
        y, differ = self.y, False
        if self.ghost > 0.0:
            return False
        for first in self._first:
            time = self.time[first]
            there = (y["stratum"] == self.stratum[first]) & (y["stop"] >= time)
            there &= y["start"] < time
            least = eta[there & y["event"] & (y["stop"] == time)].min()
            if eta[there].max() > least:
                return False
            differ |= bool(eta[there].min() < least)
        return differ

    @property
    def _begins(self) -> Array:
        return np.flatnonzero(np.append(True, np.diff(self._own) != 0)[: len(self._own)])


class _Ordered(NamedTuple):
    """Subjects by falling times within their stratum, and where the jumps are among them."""

    order: Array  # (n,)
    parts: Sequence[tuple[slice, slice]]  # of every stratum: its subjects in order, its jumps
    later: Array  # (g,) subjects of the stratum whose time is not before the jump
    place: Array  # (n,) jumps of the stratum that are not after the subject's time

    @classmethod
    def of(cls, time: Array, stratum: Array, jump: Array, of: Array) -> "_Ordered":
        order = np.lexsort((-time, stratum))
        labels = np.unique(stratum)
        begin = np.searchsorted(stratum[order], labels)
        end = np.searchsorted(stratum[order], labels, side="right")
        parts, count = [], np.zeros(len(jump), int)
        place = np.zeros(len(time), int)
        for label, b, e in zip(labels, begin, end, strict=True):
            jumps = slice(*np.searchsorted(of, [label, label + 1]))
            rows = order[b:e]
            count[jumps] = np.searchsorted(-time[rows], -jump[jumps], side="right")
            place[rows] = np.searchsorted(jump[jumps], time[rows], side="right")
            parts.append((slice(int(b), int(e)), jumps))
        return cls(order, parts, count, place)

    def from_the_end(self, values: Array) -> Array:
        """Of every jump: the sum over the subjects whose time is not before it.

        Positive numbers are only added up, the longest times first: small risk sets lose nothing.
        """
        sums = np.empty((len(self.later), *values.shape[1:]))
        for rows, jumps in self.parts:
            total = np.cumsum(values[self.order[rows]], axis=0)
            total = np.concatenate([np.zeros((1, *values.shape[1:])), total])
            sums[jumps] = total[self.later[jumps]]
        return sums

    def up_to(self, each: Array) -> Array:
        """Of every subject: the sum over the jumps of its stratum that are not after its time."""
        sums = np.empty((len(self.order), *each.shape[1:]))
        for rows, jumps in self.parts:
            total = np.cumsum(each[jumps], axis=0)
            total = np.concatenate([np.zeros((1, *each.shape[1:])), total])
            here = self.order[rows]
            sums[here] = total[self.place[here]]
        return sums


_LEAST = 1e-250  # of an exposure, relative to the largest risk


class PartialLoss(NamedTuple):
    """V at known predictors, with what its derivatives follow from."""

    sets: RiskSets
    loss: float
    risk: Array  # (n,) weight times exp(eta - top)
    exposure: Array  # (r,) gamma_b c + S_j in the same units
    expected: Array  # (n,) A
    top: float

    @classmethod
    def at(cls, sets: RiskSets, eta: Array) -> "PartialLoss":
        """V at these predictors."""
        top = float(eta.max())
        # only differences of log risks count: the largest exponential is 1
        risk = sets.weight * np.exp(eta - top)
        exposure = sets.sums(risk) + sets.ghost * np.exp(-top)
        lost = exposure < _LEAST  # a risk set is never empty: its log risks are too far below
        exposure = np.where(lost, _LEAST, exposure)
        count = sets.count
        deaths = sets.weight * sets.y["event"]
        # V = sum_j (d_j + gamma a_j) log(gamma c + S_j) - sum_i d_i eta_i
        loss = float(count @ (np.log(exposure) + top) - deaths @ eta) + _constant(sets)
        loss = np.inf if lost.any() else loss
        # A_i = w_i exp(eta_i) sum over the jumps at which i is at risk of count/exposure
        return cls(sets, loss, risk, exposure, risk * sets.spread(count / exposure), top)

    @property
    def score(self) -> Array:
        """Minus the slope in the predictors: events minus expected events."""
        return self.sets.weight * self.sets.y["event"] - self.expected

    def means(self, X: Array) -> Array:
        """(r, k) means of the columns in every risk set."""
        return self.sets.sums(self.risk[:, None] * X) / self.exposure[:, None]

    def curvature(self, X: Array) -> Array:
        """X'MX, with M the second derivative in the predictors."""
        # M = diag(A) - sum_j count_j r_j r_j', r_j the shares of the subjects in the exposure
        mean = self.means(X)
        rooted = X * np.sqrt(self.expected)[:, None]
        apart = mean * np.sqrt(self.sets.count)[:, None]
        return rooted.T @ rooted - apart.T @ apart

    def second(self) -> Array:
        """M itself, n x n."""
        share = self.sets.sums(np.diag(self.risk)) / self.exposure[:, None]
        apart = share * np.sqrt(self.sets.count)[:, None]
        return np.diag(self.expected) - apart.T @ apart


def _constant(sets: RiskSets) -> float:
    """What of V does not depend on the predictors; left out for an improper prior."""
    mass, gamma = sets.prior.mass, sets.prior.confidence
    if mass == 0.0:
        return 0.0
    a = sets.pull / gamma
    shape = a + sets.deaths / gamma
    # log of the integral of h^(a + d/gamma - 1) exp(-h (mass + ..)) of every jump
    log_integral = a * np.log(mass) + gammaln(shape) - gammaln(a) + shape * np.log(gamma)
    return -gamma * float(log_integral.sum())


def baseline_kl(at: PartialLoss) -> float:
    """KL(q(h | beta) || prior) of the increments at known predictors; 0 for an improper prior."""
    sets = at.sets
    mass, gamma = sets.prior.mass, sets.prior.confidence
    if mass == 0.0:
        return 0.0
    a = sets.pull / gamma
    shape = a + sets.deaths / gamma
    rate = at.exposure * np.exp(at.top) / gamma
    # KL of two gamma distributions, the terms of the shapes, then those of the rates
    nats = (shape - a) * psi(shape) - gammaln(shape) + gammaln(a)
    nats += a * np.log(rate / mass) + shape * (mass - rate) / rate
    return float(nats.sum())

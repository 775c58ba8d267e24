"""One verdict on a fit: trusted, rough, or not to be used.

By Theorem 1 the integrand of J is V + sum_k gamma_k log(q_k / p_k), with p the exact posterior. For
equal confidences it gives the log weights log(p / q) of the draws, and weighted means and standard
deviations beside the plain ones say how far off the fit is. For others the parts of the integrand
are separated to first order: what block k adds to the part that the earlier blocks explain, by a
regression, is gamma_k log(q_k / p_k), since E_q[log(q_k / p_k) | theta_<k] is of second order.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from soubayes._docstrings import fill_docstrings
from soubayes.pareto import pareto_smoothed
from soubayes.results import Printable, Shown

TRUSTED, ROUGH, USELESS = "trusted", "rough", "not to be used"
UNCHECKED = "not checked"
BADNESS = (TRUSTED, ROUGH, UNCHECKED, USELESS)
# The weights see less than all of an error, because they see what the draws reach. So the bounds
# lie within those of the verdict (0.10 and 0.25 sd). How they were chosen, and on what, is in
# docs/development/blackbox.md.
TRUSTED_MEAN, TRUSTED_SD = 0.07, 0.06
ROUGH_MEAN, ROUGH_SD = 0.18, 0.25
MOST_TAIL = 2.5  # times its share: funnels whose neck a fit does not reach had 2.8 and 3.1
MOST_KHAT = 0.7  # Vehtari et al. 2024
MOST_EFFECTIVE, LEAST_EFFECTIVE = 0.6, 0.1  # share of the draws
MOST_UNEQUAL = 30.0  # confidences beyond which a small one is taken for larger
PER_FEATURE = 20  # draws for each feature of a regression
MOST_NATS = 600.0  # by which a weight may lie below the largest: e^-600 is a number
MOST_QUANTITIES = 2000  # more than these are not looked at one by one


@fill_docstrings()
@dataclass(frozen=True, repr=False)
class Quality(Printable):
    """How far a fit is from the exact posterior, estimated from weights on fresh draws.

    Parameters
    ----------
    verdict : str
        ``"trusted"``: means within 0.10 posterior standard deviations of the exact ones;
        ``"rough"``: within 0.25; or ``"not to be used"``.
    reason : str
        What decided.
    mean_error : float
        The largest error of a mean, in posterior standard deviations.
    least_sd : float
        The smallest ratio of a standard deviation to the exact one.
    largest_sd : float
        The largest such ratio.
    khat : float
        PSIS k-hat of the weights. ``-inf`` if all are equal, as for an exact guide.
    effective : float
        The effective share of the draws under the weights.
    spread : float
        Standard deviation of the log weights, in nats; 0 at the exact answer.
    tail : float
        The largest ratio, over the tails of all quantities, of the weight of a tail that has 1 % of
        the draws to 1 %. If it is large there is more beyond.

    Notes
    -----
    The weights follow from Theorem 1 of [1]_, to first order if confidences differ. They see what
    the draws reach. A mode that the fit leaves out is seen only if another start has found it.

    Examples
    --------
    >>> Quality("trusted", "an example", 0.01, 0.99, 1.0, 0.2, 0.99, 0.1, 1.1).verdict
    'trusted'
    """

    verdict: str
    reason: str
    mean_error: float
    least_sd: float
    largest_sd: float
    khat: float
    effective: float
    spread: float
    tail: float

    def _shown(self) -> Shown:
        trusted = [TRUSTED_MEAN, np.exp(-TRUSTED_SD), np.exp(TRUSTED_SD), MOST_KHAT, MOST_EFFECTIVE]
        rough = [ROUGH_MEAN, np.exp(-ROUGH_SD), np.exp(ROUGH_SD), 1.0, LEAST_EFFECTIVE]
        nan = float("nan")
        limits = {"trusted": [*trusted, nan, MOST_TAIL], "rough": [*rough, nan, nan]}
        names = [name for name, value in vars(self).items() if isinstance(value, float)]
        table = pd.DataFrame({"": names, "here": [vars(self)[n] for n in names], **limits})
        words = (
            "Of k-hat and the effective share one is enough for trusted; the spread has no limit."
        )
        return [f"Quality({self.verdict}: {self.reason})", table, words]


def guide_log_weights(
    integrand: np.ndarray,
    draws: Mapping[str, np.ndarray],
    owner: Mapping[str, str],
    gammas: Mapping[str, float],
) -> np.ndarray:
    """log(p / q) at every draw and a constant; exact for equal confidences, else of first order."""
    free = [block for block in dict.fromkeys(owner.values()) if gammas[block] > 0]
    values = {gammas[block] for block in free}
    if len(values) <= 1:
        gamma = values.pop() if values else 1.0
        return np.zeros(len(integrand)) if np.isinf(gamma) else -integrand / gamma
    n = len(integrand)
    largest = max(gamma for gamma in values if np.isfinite(gamma))
    columns: list[np.ndarray] = []
    total, before = np.zeros(n), np.full(n, integrand.mean())
    for block in free:
        columns += [draws[s].reshape(n, -1) for s in owner if owner[s] == block]
        now = _explained(integrand, np.hstack(columns))
        # a block kept at its prior is exact; noise of a regression must not be blown up by a
        # confidence that is far smaller than the others
        total -= (now - before) / max(gammas[block], largest / MOST_UNEQUAL)
        before = now
    return total - (integrand - before) / largest  # what no regression attributes to a block


def _explained(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The part of y that a quadratic function of x explains, or as much of one as n allows."""
    n = len(y)
    z = np.clip((x - x.mean(axis=0)) / np.maximum(x.std(axis=0), 1e-300), -4, 4)
    parts = [np.ones((n, 1)), z]
    if 1 + 2 * z.shape[1] <= n // PER_FEATURE:
        parts.append(z**2)
    i, j = np.triu_indices(z.shape[1], 1)
    if 1 + 2 * z.shape[1] + len(i) <= n // PER_FEATURE:
        parts.append(z[:, i] * z[:, j])
    features = np.hstack(parts)
    if features.shape[1] > n // PER_FEATURE:
        features = features[:, : n // PER_FEATURE]
    # features of clipped standard scores are of one size, so their Gram matrix has the digits
    values, vectors = np.linalg.eigh(features.T @ features)
    kept = values > 1e-12 * values[-1]
    scores = features @ vectors[:, kept]
    return scores @ ((scores.T @ y) / values[kept])


def quality(log_w: np.ndarray, draws: Mapping[str, np.ndarray]) -> Quality:
    """The verdict from log weights of draws, and of quantities at them."""
    with np.errstate(all="ignore"):  # numbers that overflow are not to be used, and say so
        return _quality(log_w, draws)


def _quality(log_w: np.ndarray, draws: Mapping[str, np.ndarray]) -> Quality:
    weights, khat = pareto_smoothed(np.clip(log_w, log_w.max() - MOST_NATS, None))
    n = len(log_w)
    columns = [x.reshape(n, -1) for x in draws.values()]
    x = np.concatenate(columns, axis=1)[:, :MOST_QUANTITIES].astype(float)
    x = x[:, np.ptp(x, axis=0) > 0]
    effective = float(1 / np.sum(weights**2) / n)
    spread = float(np.std(np.clip(log_w, -1e100, 1e100)))
    if not x.shape[1]:
        return Quality(TRUSTED, "nothing varies", 0.0, 1.0, 1.0, khat, effective, spread, 1.0)
    sd = x.std(axis=0)
    seen = np.isfinite(sd) & (sd > 0)  # what overflows, or is a point to rounding, has no sd
    if not seen.any():
        return unchecked("no quantity has a standard deviation that is a number")
    centred = (x[:, seen] - x[:, seen].mean(axis=0)) / sd[seen]
    mean = weights @ centred
    variance = weights @ (centred - mean) ** 2
    sd = np.sqrt(variance)
    uneven = weights - 1 / n  # errors of differences, for common draws
    noise = np.sqrt(uneven**2 @ centred**2) / sd
    noise_sd = np.sqrt(uneven**2 @ (centred**2 - 1) ** 2) / (2 * variance)
    shift = _beyond(mean / sd, noise)
    stretch = _beyond(np.log(1 / sd), noise_sd)
    worst = float(abs(shift).max())
    least, largest = float(np.exp(stretch.min())), float(np.exp(stretch.max()))
    tail = _heaviest_tail(weights, centred)
    verdict, reason = decide(worst, least, largest, khat, effective, tail)
    return Quality(verdict, reason, worst, least, largest, khat, effective, spread, tail)


def _heaviest_tail(weights: np.ndarray, x: np.ndarray) -> float:
    """The largest weight of a tail with 1 % of the draws, over 1 %."""
    count = max(1, len(x) // 100)
    order = np.argsort(x, axis=0)
    ends = np.stack([weights[order[:count]].sum(axis=0), weights[order[-count:]].sum(axis=0)])
    return float(ends.max() * len(x) / count)


def unchecked(reason: str) -> Quality:
    """No verdict, where no weights are known."""
    return Quality(UNCHECKED, reason, *(float("nan"),) * 7)


def _beyond(estimate: np.ndarray, error: np.ndarray) -> np.ndarray:
    """An estimate with its squared error taken off: of many with noise the largest is too large."""
    return np.sign(estimate) * np.sqrt(np.maximum(estimate**2 - error**2, 0.0))


def decide(
    mean_error: float,
    least_sd: float,
    largest_sd: float,
    khat: float,
    effective: float,
    tail: float,
) -> tuple[str, str]:
    """The verdict, and in words what it rests on."""
    words = f"means within {mean_error:.2f} sd, sds {least_sd:.2f} to {largest_sd:.2f} of exact"
    reach = f"k-hat {khat:.2f}, {effective:.0%} of the draws effective"
    if tail > MOST_TAIL:
        reach += f", a tail {tail:.1f} times as heavy"
    off = max(abs(np.log(least_sd)), abs(np.log(largest_sd)))
    # a tail that carries little of the weight does no harm, whatever its shape
    if khat > MOST_KHAT and effective < MOST_EFFECTIVE:
        usable = khat <= 1.0 and effective >= LEAST_EFFECTIVE
    else:
        usable = effective >= LEAST_EFFECTIVE
    if (
        usable
        and mean_error <= TRUSTED_MEAN
        and tail <= MOST_TAIL
        and off <= TRUSTED_SD
        and (khat <= MOST_KHAT or effective >= MOST_EFFECTIVE)
    ):
        return TRUSTED, words
    if usable and mean_error <= ROUGH_MEAN and off <= ROUGH_SD:
        return ROUGH, f"{words}, {reach}"
    return USELESS, f"{words}, {reach}"

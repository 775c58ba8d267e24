"""A family of confidences beside the exact engine, or beside single fits, at twenty places.

`python benchmarks/confidences.py ROWS` trains `fit_family` on four models of benchmarks/guides.py
and appends a row for each place to the file ROWS: the largest error of a mean in posterior sds, the
smallest and largest ratio of sds, the largest error of a KL in nats and its share of the KL, the
verdict, and the seconds of `at`. A row without a place has the CPU seconds of training and of one
fit, and the difference between the slope of V and the KL. Rows that the file has are not computed
again. `--models` chooses models, `--places` how many places, `--seed` which; `... ROWS --table`
prints what the rows say.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import stats

from guides import STATES, Rows, cases, exact_process, hierarchy, kalman
from soubayes import Block, Model, fit, fit_family, solve_exact
from soubayes.blackbox.program import compiled

STEP = 0.1  # of a log confidence, for the slope of V
DRAWS = 16_384  # for comparisons: with the 4,096 of a fit, noise of a KL is up to 0.04 nats


class Question(NamedTuple):
    """The ranges of a family, and what knows the answer: (confidences) -> an exact posterior."""

    ranges: dict[str, tuple[float, float]]
    exact: Callable | None  # None: single fits


def exact_autoregression(y: np.ndarray, gamma: float) -> Any:
    """The parameters of the AR(1) process, its states integrated by the Kalman filter."""

    def loss(phi, q, s):
        phi, q, s = np.broadcast_arrays(phi, q, s)
        return -kalman(y, phi, q, s)[0]

    priors = [
        Block("phi", stats.uniform(-1, 2)),
        Block("q", stats.halfnorm()),
        Block("s", stats.halfnorm()),
    ]
    return solve_exact(Model(priors, loss), {"q": gamma}, tolerance=1e-3)


def questions() -> dict[str, Question]:
    found = cases()
    effect, error = found["eight schools, centred"].args

    def schools(gammas: dict[str, float]) -> Any:
        others = {"tau": gammas["tau"]}
        return hierarchy(effect, error, 20.0, stats.halfnorm(scale=10.0), gammas["theta"], others)

    return {
        "eight schools, centred": Question({"tau": (0.1, 10.0), "theta": (0.3, 3.0)}, schools),
        "hierarchical logistic": Question({"tau": (0.1, 10.0), "level": (0.3, 3.0)}, None),
        "GP regression": Question(
            {"length": (0.1, 10.0)},
            lambda gammas: exact_process(*found["GP regression"].args, gammas["length"]),
        ),
        STATES: Question(
            {"q": (0.3, 3.0)}, lambda gammas: exact_autoregression(*found[STATES].args, gammas["q"])
        ),
    }


def compare(found: Any, answer: Any) -> dict[str, float]:
    """Errors of a posterior of the family; blocks that the answer has integrated are left out."""
    names = [name for name in answer.confidence if name in found.draws]
    shift = [np.max(abs(found.mean(n) - answer.mean(n)) / answer.sd(n)) for n in names]
    ratio = np.concatenate([np.ravel(found.sd(n) / answer.sd(n)) for n in names])
    gap = {n: abs(found.kl[n] - answer.kl[n]) for n in names}
    worst = max(names, key=lambda n: min(gap[n] / 0.05, gap[n] / (0.05 * answer.kl[n])))
    return {
        "mean_error": float(max(shift)),
        "least_ratio": float(ratio.min()),
        "largest_ratio": float(ratio.max()),
        "kl_error": gap[worst],
        "kl_share": gap[worst] / answer.kl[worst],
    }


def seconds_of(work: Callable) -> tuple[Any, float]:
    compiled.cache_clear()
    jax.clear_caches()
    start = time.process_time()
    return work(), time.process_time() - start


def slope_error(family: Any, place: dict[str, float]) -> float:
    """The largest gap between dV / dgamma and the KL, in nats or as a share if that is less."""
    kl, errors = family.at(place).kl, []
    for block, gamma in place.items():
        ends = [gamma * np.exp(sign * STEP) for sign in (-1, 1)]
        low, high = (family.at({**place, block: end}).value for end in ends)
        gap = abs((high - low) / (ends[1] - ends[0]) - kl[block])
        errors.append(min(gap, gap / kl[block]))
    return float(max(errors))


def measure(name: str, question: Question, places: int, seed: int, rows: Rows) -> None:
    case = cases()[name]
    family, training = seconds_of(
        lambda: fit_family(case.model, *case.args, confidence=question.ranges)
    )
    rng = np.random.default_rng(seed)
    drawn = [
        {b: float(np.exp(rng.uniform(*np.log(r)))) for b, r in question.ranges.items()}
        for _ in range(places)
    ]
    family.at(drawn[0])  # compiles
    if rows.find(model=name, place=None) is None:
        steep = max(slope_error(family, _inner(place, question)) for place in drawn[:5])
        _, single = seconds_of(lambda: fit(case.model, *case.args))
        found = {"training": training, "single": single, "slope_error": steep}
        rows.add({"model": name, "place": None, **found})
        family.at(drawn[0])  # compiles again
    settings = replace(family._request.settings, num_draws=DRAWS)
    careful = replace(family, _request=family._request._replace(settings=settings))
    for place in drawn:
        if rows.find(model=name, place=place):
            continue
        start = time.process_time()
        family.at(place)
        row = {"model": name, "place": place, "at": time.process_time() - start}
        found = careful.at(place)
        if question.exact is not None:
            answer = question.exact(place)
        else:
            # as many draws for a gradient as the family has: with fewer J is higher than its own
            answer = fit(
                case.model,
                *case.args,
                confidence=place,
                num_particles=64,
                learning_rate=0.02,
                num_draws=DRAWS,
            )
            row["fit"] = answer.verdict
        rows.add({**row, **compare(found, answer), "verdict": found.verdict})


def _inner(place: dict[str, float], question: Question) -> dict[str, float]:
    """A place moved inside its ranges, so differences can be taken around it."""
    ends = {
        b: (low * np.exp(STEP), high / np.exp(STEP)) for b, (low, high) in question.ranges.items()
    }
    return {b: float(np.clip(x, *ends[b])) for b, x in place.items()}


def table(rows: list[dict]) -> None:
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        places = [row for row in own if row["place"]]
        whole = [row for row in own if row["place"] is None]
        right = [
            row["mean_error"] < 0.1
            and row["least_ratio"] > 0.9
            and row["largest_ratio"] < 1.1
            and min(row["kl_error"], row["kl_share"]) < 0.05
            for row in places
        ]
        low, high = min(r["least_ratio"] for r in places), max(r["largest_ratio"] for r in places)
        took = np.median([row["at"] for row in places])
        print(
            f"{name}: {sum(right)} of {len(places)} right; worst mean "
            f"{max(r['mean_error'] for r in places):.2f}, sds {low:.2f}–{high:.2f}, worst KL "
            f"{max(min(r['kl_error'], r['kl_share']) for r in places):.3f}; trusted "
            f"{sum(r['verdict'] == 'trusted' for r in places)}; at {took:.3f} s"
        )
        for row in whole:
            print("  " + ", ".join(f"{k} {v:.3g}" for k, v in row.items() if isinstance(v, float)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rows", type=Path, help="where rows are kept")
    parser.add_argument("--models", nargs="*", default=[], help="parts of names of models")
    parser.add_argument("--places", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--table", action="store_true", help="print what the rows say")
    given = parser.parse_args()
    rows = Rows(given.rows)
    if given.table:
        table(rows.rows)
        return
    for name, question in questions().items():
        if not given.models or any(part in name for part in given.models):
            measure(name, question, given.places, given.seed, rows)


if __name__ == "__main__":
    main()

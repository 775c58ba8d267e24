"""Time of `sensitivity_from_draws`: 10 blocks, 4 chains of 1,000 draws, after import."""

import time
from types import SimpleNamespace

import numpy as np
from scipy import stats

from soubayes import reweight, sensitivity_from_draws

BLOCKS = [f"x{i}" for i in range(10)]


def chain(seed: int) -> SimpleNamespace:
    """A Markov chain of ten scalar blocks, the last one observed: draws of its posterior."""
    rng = np.random.default_rng(seed)
    prior = np.minimum.outer(np.arange(1, 11), np.arange(1, 11)).astype(float)
    gain = prior[:, -1] / (prior[-1, -1] + 0.25)
    root = np.linalg.cholesky(prior - np.outer(gain, prior[-1]))
    draws = 3.0 * gain + rng.normal(size=(4000, 10)) @ root.T
    before = np.column_stack([np.zeros(4000), draws[:, :-1]])
    log_prior = stats.norm(before, 1.0).logpdf(draws)

    def group(values: dict) -> dict:
        shaped = {n: SimpleNamespace(values=v.reshape(4, 1000)) for n, v in values.items()}
        return _Group(shaped)

    return SimpleNamespace(
        posterior=group(dict(zip(BLOCKS, draws.T, strict=True))),
        log_prior=group(dict(zip(BLOCKS, log_prior.T, strict=True))),
        log_likelihood=group({"y": stats.norm(draws[:, -1], 0.5).logpdf(3.0)}),
    )


class _Group(dict):
    @property
    def data_vars(self) -> dict:
        return self


if __name__ == "__main__":
    for seed in range(3):
        data = chain(seed)
        wall, cpu = time.perf_counter(), time.process_time()
        found = sensitivity_from_draws(data, order=BLOCKS)
        took = time.perf_counter() - wall, time.process_time() - cpu
        print(f"{len(found.derivatives)} rows in {took[0]:.2f} s ({took[1]:.2f} s of CPU)")
        cpu = time.process_time()
        answer = reweight(data, confidence={"x3": 0.8}, order=BLOCKS)
        print(f"reweight: {time.process_time() - cpu:.2f} s of CPU, k-hat {answer.khat:.2f}")

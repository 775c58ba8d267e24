"""A short run of NUTS beside a fit, where the user asks for one."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

from soubayes.blackbox.verdict import Quality, decide

LENGTH = 500  # draws, after as many of warm-up


def beside_nuts(
    draws: Mapping[str, np.ndarray], model: Callable, args: tuple, kwargs: dict, key: Any
) -> Quality:
    """The verdict on draws of a fit from draws of NUTS, with the error of both taken off."""
    sampler = MCMC(NUTS(model), num_warmup=LENGTH, num_samples=LENGTH, progress_bar=False)
    sampler.run(key, *args, **kwargs)
    found = {name: np.asarray(x) for name, x in sampler.get_samples().items()}
    shift, stretch, share = [0.0], [0.0], [1.0]
    for name, values in found.items():
        ours = draws[name]
        size = np.ravel(effective_sample_size(values[None]))
        mean, sd = np.ravel(values.mean(axis=0)), np.ravel(values.std(axis=0))
        error = 1 / size + 1 / len(ours)
        off = (np.ravel(ours.mean(axis=0)) - mean) / sd
        log_ratio = np.log(np.ravel(ours.std(axis=0)) / sd)
        shift += list(np.sqrt(np.maximum(off**2 - error, 0.0)))
        stretch += list(np.sign(log_ratio) * np.sqrt(np.maximum(log_ratio**2 - error, 0.0)))
        share += list(np.minimum(size / LENGTH, 1.0))
    worst, least, largest = max(shift), np.exp(min(stretch)), np.exp(max(stretch))
    verdict, reason = decide(worst, float(least), float(largest), 0.0, 1.0, 1.0)
    reason = f"beside {LENGTH} draws of NUTS: {reason}"
    nan = float("nan")
    return Quality(
        verdict,
        reason,
        float(worst),
        float(least),
        float(largest),
        nan,
        float(min(share)),
        nan,
        nan,
    )

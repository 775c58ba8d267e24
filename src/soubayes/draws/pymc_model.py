"""Draws of a PyMC or Bambi model, with the log prior of every free variable and the likelihood."""

from typing import Any

import numpy as np

from soubayes.draws.known import chains_first


def is_pymc(model: Any) -> bool:
    """Whether this is a model of PyMC or of Bambi."""
    return hasattr(model, "free_RVs") or _is_bambi(model)


def pymc_groups(data: Any, model: Any) -> tuple[dict[str, dict[str, np.ndarray]], list[str]]:
    """posterior, log_prior and log_likelihood as arrays (chain, draw, ...), and the blocks' order.

    A variable of PyMC is made after its parents, so the free variables are in an order that fits.
    Potentials are a part of the likelihood.
    """
    bambi = model if _is_bambi(model) else None
    if bambi is not None:
        if bambi.backend is None:
            bambi.build()
        model = bambi.backend.model
    dims = {name: x for name, x in model.named_vars_to_dims.items() if all(x)}
    posterior = {
        str(name): chains_first(x.transpose("chain", "draw", *dims.get(str(name), ()), ...))
        for name, x in data.posterior.data_vars.items()
    }
    if bambi is not None:
        posterior = _as_sampled(bambi, posterior)
    names = [str(variable.name) for variable in model.free_RVs]
    missing = [name for name in names if name not in posterior]
    if missing:
        raise ValueError(
            f"the draws lack {missing}, free variables of the model; they have {list(posterior)}. "
            "Sample again without var_names, and for a Bambi model with omit_offsets=False."
        )
    logs = _log_densities(model, names, posterior)
    groups = {
        "posterior": posterior,
        "log_prior": {name: logs[..., i] for i, name in enumerate(names)},
        "log_likelihood": {"loss": logs[..., -1]},
    }
    return groups, names


def _is_bambi(model: Any) -> bool:
    return hasattr(model, "backend") and hasattr(model, "formula")


def _log_densities(model: Any, names: list[str], posterior: dict[str, np.ndarray]) -> np.ndarray:
    """(chain, draw, variable): the log density of each free variable, then of all data."""
    from pymc.model.transform.conditioning import remove_value_transforms

    plain = remove_value_transforms(model)  # draws are not transformed
    free = plain.logp(vars=list(plain.free_RVs), sum=False, jacobian=False)
    observed = [*plain.observed_RVs, *plain.potentials]
    data = plain.logp(vars=observed, sum=False, jacobian=False)
    outs = [*(term.sum() for term in free), sum(term.sum() for term in data)]
    function = plain.compile_fn(
        outs, inputs=plain.value_vars, point_fn=False, on_unused_input="ignore"
    )
    inputs = [posterior[str(plain.values_to_rvs[value].name)] for value in plain.value_vars]
    inputs = [x.astype(v.dtype) for x, v in zip(inputs, plain.value_vars, strict=True)]
    chains, draws = inputs[0].shape[:2]
    logs = np.array(
        [[function(*(x[c, d] for x in inputs)) for d in range(draws)] for c in range(chains)]
    )
    order = [str(variable.name) for variable in plain.free_RVs]
    return logs[..., [*(order.index(name) for name in names), -1]]


def _as_sampled(model: Any, posterior: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The draws of the variables that Bambi's PyMC model has.

    Bambi reports the intercept of the columns as they are, and samples that of centred columns; it
    drops the standardised effects of groups, which are the effects over their sd.
    """
    posterior = dict(posterior)
    for part in model.backend.distributional_components.values():
        terms, columns = part.component.common_terms, part.design_matrix_without_intercept
        intercept = part.component.intercept_term
        if intercept and terms and model.center_predictors:
            names = [_name(term) for term in terms.values()]
            size = np.shape(posterior[names[0]])[:2]
            coefs = np.concatenate([posterior[name].reshape(*size, -1) for name in names], axis=-1)
            name = _name(intercept)
            posterior[name] = posterior[name] + coefs @ np.mean(columns, axis=0)
    for variable in model.backend.model.free_RVs:
        name = str(variable.name)
        effect = name.removesuffix("_offset")
        if name not in posterior and effect in posterior and f"{effect}_sigma" in posterior:
            sd = posterior[f"{effect}_sigma"]
            effects = posterior[effect]
            ones = (1,) * (effects.ndim - sd.ndim)  # broadcast as PyMC does, draw by draw
            posterior[name] = effects / sd.reshape(*sd.shape[:2], *ones, *sd.shape[2:])
    return posterior


def _name(term: Any) -> str:
    """The name of a term in the draws."""
    return str(term.alias or term.name)

"""The order of the blocks, from names, from a PyMC model or from a Stan program."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from soubayes.blackbox.grouping import block_of


def block_order(order: Any, sites: Sequence[str], groups: Mapping[str, Iterable[str]]) -> list[str]:
    """Blocks, outermost first.

    A list of names is taken as it is. Of a PyMC model the free variables are in the order in which
    they were made, and of a Stan program (its text, or the path of its file) the parameters in the
    order of their declarations; those without a prior among ``sites`` are left out.
    """
    if isinstance(order, Path):
        order = order.read_text()
    if hasattr(order, "free_RVs"):
        names = [str(variable.name) for variable in order.free_RVs]
    elif isinstance(order, str) and re.search(r"\bparameters\s*\{", order):
        names = stan_parameters(order)
    else:
        return [order] if isinstance(order, str) else list(order)
    owner = block_of(list(sites), groups)
    return list(dict.fromkeys(owner[name] for name in names if name in owner))


def stan_parameters(program: str) -> list[str]:
    """Names of the parameters of a Stan program, as they are declared.

    >>> stan_parameters("parameters { real<lower=0> tau; array[3] real mu; vector[8] z; }")
    ['tau', 'mu', 'z']
    """
    text = re.sub(r"/\*.*?\*/", "", program, flags=re.DOTALL)
    text = re.sub(r"//[^\n]*", "", text)
    found = re.search(
        r"(?<!transformed )\bparameters\s*\{([^}]*)\}", re.sub(r"[ \t\n]+", " ", text)
    )
    names = []
    for statement in found.group(1).split(";") if found else []:
        # bounds and sizes away: what is left is a type and a name
        bare = re.sub(r"<[^;]*?>(?=[\s\[])|\[[^\]]*\]", " ", statement)
        words = re.findall(r"[A-Za-z]\w*", bare.partition("=")[0])
        if words:
            names.append(words[-1])
    return names

"""Every table and figure of the paper as an experiment: a grid, a row function, a report."""

from functools import cache
from importlib import import_module

from paper.runner import Experiment

# one module an experiment, or a few that share their rows, in the order of the report
_MODULES = ["foundation", "normal_means", "linear", "logistic", "logistic_paths"]
_MODULES += ["toy_networks", "mnist_networks", "frontier", "lenet5", "uci", "peers", "real"]
_MODULES += ["choice", "small"]


@cache
def experiments() -> dict[str, Experiment]:
    """All experiments by name.

    >>> experiments()["table1"].where
    'section 4.2, tab:experiment2'
    """
    found = {}
    for module in _MODULES:
        for experiment in import_module(f"paper.{module}").EXPERIMENTS:
            found[experiment.name] = experiment
    return found

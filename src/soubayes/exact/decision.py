"""Event trees (section 2), on the recursion of the exact engine."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from soubayes.confidence import check_confidence
from soubayes.exact.tree import Level, Solution, solve_tree

Path = tuple[Hashable, ...]
Act = Mapping[Path, float] | Callable[..., float]


@dataclass(frozen=True, eq=False)
class EventTree:
    r"""States that are observed stage by stage, with a reference distribution over paths.

    Parameters
    ----------
    reference : mapping of tuple to float
        The probability, or weight, of every complete path (w_1, ..., w_K) under the reference q.
    stages : sequence of str
        The names of the stages. Confidences refer to them.

    Notes
    -----
    The value of an act is (section 2.1 of [1]_, ``eq:dynamic_MP``, with one-step divergences)

    .. math::

        V(f) = \min_p E_p[u(f)] + \sum_{k=1}^K \gamma_k
            E_p\,\mathrm{KL}\big(p(w_k \mid w_{<k}) \,\|\, q(w_k \mid w_{<k})\big).

    The printed equation has divergences of the whole remaining path, with which the first stage is
    never penalised. The theory page of the documentation compares the two.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> tree = EventTree(
    ...     {
    ...         ("rain", "late"): 0.2,
    ...         ("rain", "early"): 0.2,
    ...         ("sun", "late"): 0.1,
    ...         ("sun", "early"): 0.5,
    ...     },
    ...     stages=("weather", "train"),
    ... )
    >>> round(tree.value(lambda weather, train: float(train == "early"), {"weather": 0.5}), 4)
    0.5674
    """

    reference: Mapping[Path, float]
    stages: Sequence[str]

    def __post_init__(self) -> None:
        stages = tuple(self.stages)
        reference = {tuple(path): float(p) for path, p in self.reference.items()}
        wrong = [path for path in reference if len(path) != len(stages)]
        if not stages or len(set(stages)) < len(stages) or wrong:
            raise ValueError(
                f"every path must have one step for each of the stages {list(stages)} (names that "
                f"differ); this one has not: {wrong[:1]}."
            )
        total = sum(reference.values())
        if not all(p >= 0 for p in reference.values()) or not 0 < total < np.inf:
            raise ValueError("reference must give nonnegative weights with a positive sum.")
        object.__setattr__(self, "stages", stages)
        object.__setattr__(
            self, "reference", {path: p / total for path, p in reference.items() if p > 0}
        )

    def value(self, act: Act, confidence: Mapping[str, float] | None = None) -> float:
        """Value of an act.

        Parameters
        ----------
        act : mapping of tuple to float, or callable
            The utility of every complete path, or a function of the steps of a path.
        confidence : mapping of str to float, optional
            The confidence of each stage. A stage that is not named has confidence 1.

        Returns
        -------
        value : float
            V(f).
        """
        return self.solve(act, confidence).value

    def worst_case(
        self, act: Act, confidence: Mapping[str, float] | None = None
    ) -> dict[Path, float]:
        """The minimising distribution over complete paths, by which the act is judged.

        Parameters
        ----------
        act : mapping of tuple to float, or callable
            The utility of every complete path, or a function of the steps of a path.
        confidence : mapping of str to float, optional
            The confidence of each stage. A stage that is not named has confidence 1.

        Returns
        -------
        probability : dict of tuple to float
            The probability of every complete path.
        """
        probability = self.solve(act, confidence).probability[-1]
        return dict(zip(self.nodes[-1], probability.tolist(), strict=True))

    def rank(
        self, acts: Mapping[str, Act], confidence: Mapping[str, float] | None = None
    ) -> pd.DataFrame:
        """Rank acts by their value.

        Parameters
        ----------
        acts : mapping of str to act
            The acts by name; each is a mapping or a function as in :meth:`value`.
        confidence : mapping of str to float, optional
            The confidence of each stage. A stage that is not named has confidence 1.

        Returns
        -------
        ranking : pandas.DataFrame
            The columns ``act``, ``value`` and ``expected_utility`` (under the reference), best act
            first.
        """
        trusting = dict.fromkeys(self.stages, np.inf)
        rows = [
            (self.value(act, confidence), self.value(act, trusting), name)
            for name, act in acts.items()
        ]
        rows.sort(key=lambda row: -row[0])
        values, expected, names = zip(*rows, strict=True)
        return pd.DataFrame({"act": names, "value": values, "expected_utility": expected})

    def solve(self, act: Act, confidence: Mapping[str, float] | None = None) -> Solution:
        """The answer of the recursion at every node.

        Parameters
        ----------
        act : mapping of tuple to float, or callable
            The utility of every complete path, or a function of the steps of a path.
        confidence : mapping of str to float, optional
            The confidence of each stage. A stage that is not named has confidence 1.

        Returns
        -------
        solution : Solution
            Values and conditional probabilities of the nodes, in the order of ``nodes``.
        """
        gammas = check_confidence(confidence, self.stages)
        utility = np.array([self._utility(act, path) for path in self.nodes[-1]])
        if not np.isfinite(utility).all():
            path = self.nodes[-1][int(np.flatnonzero(~np.isfinite(utility))[0])]
            raise ValueError(f"the act's utility at path {path} must be a finite number.")
        return solve_tree(self.levels, utility, list(gammas.values()))

    @cached_property
    def nodes(self) -> list[list[Path]]:
        """The nodes of every stage: paths so far, children of a node side by side."""
        levels: list[list[Path]] = [[()]]
        for k in range(1, len(self.stages) + 1):
            children: dict[Path, dict[Path, None]] = {node: {} for node in levels[-1]}
            for path in self.reference:
                children[path[: k - 1]][path[:k]] = None
            levels.append([child for group in children.values() for child in group])
        return levels[1:]

    @cached_property
    def levels(self) -> list[Level]:
        """The tree as the recursion takes it: parents and log q(w_k | w_<k)."""
        levels: list[Level] = []
        before: dict[Path, tuple[int, float]] = {(): (0, 1.0)}
        for nodes in self.nodes:
            mass = dict.fromkeys(nodes, 0.0)
            for path, p in self.reference.items():
                mass[path[: len(nodes[0])]] += p
            parent = np.array([before[node[:-1]][0] for node in nodes])
            share = np.array([mass[node] / before[node[:-1]][1] for node in nodes])
            levels.append(Level(parent, np.log(share)))
            before = {node: (i, mass[node]) for i, node in enumerate(nodes)}
        return levels

    def _utility(self, act: Act, path: Path) -> float:
        if callable(act):
            return float(act(*path))
        if path not in act:
            raise ValueError(f"the act gives no utility for the path {path}.")
        return float(act[path])

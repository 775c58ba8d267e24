"""The objective J(q) of eq. 5 for any q, with its parts and its rewriting M(q) - H(q)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from soubayes.confidence import check_confidence
from soubayes.exact.model import Block, Model
from soubayes.exact.nodes import Engine, Placed
from soubayes.exact.posterior import NodePosterior
from soubayes.exact.stages import FinitePrior, Stage, conditional, log_prior, make_stages
from soubayes.exact.tree import expectation_terms, solve_tree
from soubayes.results import Printable, Shown


@dataclass(frozen=True, repr=False)
class Objective(Printable):
    r"""The objective J(q) and its parts, as returned by :func:`soubayes.objective`.

    Parameters
    ----------
    confidence : dict of str to float
        The confidence of each block.
    expected_loss : float
        The expected loss under q.
    cross_entropy : dict of str to float
        The mean of minus the log prior of each block, under q.
    entropy : dict of str to float
        The mean entropy of each conditional of q; a differential entropy for continuous blocks.

    Attributes
    ----------
    kl : dict of str to float
        What each block cost, in nats: the cross-entropy minus the entropy.
    value : float
        J(q), not divided by n. A block with confidence ``inf`` costs ``inf`` unless it stays at its
        prior.
    location : float
        M(q) below.
    dispersion : float
        H(q) below.

    Notes
    -----
    Section 3.2 of [1]_ (``eq:point_and_uncertainty``) writes :math:`J(q) = M(q) - H(q)` with

    .. math::

        M(q) = -E_q \log\Big(e^{-L} \prod_k \pi_k^{\gamma_k}\Big), \qquad
        H(q) = \sum_k \gamma_k E_q[\text{entropy of } q(\theta_k \mid \theta_{<k})].

    M says where q sits, H keeps it spread. The identity is exact with the unnormalised product.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> parts = Objective({"mu": 2.0}, 1.0, {"mu": 1.5}, {"mu": 1.0})
    >>> parts.kl, parts.value, parts.location - parts.dispersion
    ({'mu': 0.5}, 2.0, 2.0)
    """

    confidence: dict[str, float]
    expected_loss: float
    cross_entropy: dict[str, float]
    entropy: dict[str, float]

    def _shown(self) -> Shown:
        names = ("confidence", "cross_entropy", "entropy", "kl")
        table = {"block": list(self.confidence)} | {
            name: [getattr(self, name)[block] for block in self.confidence] for name in names
        }
        head = f"Objective(value {self.value:.6g}, expected loss {self.expected_loss:.6g})"
        return [head, pd.DataFrame(table)]

    @property
    def kl(self) -> dict[str, float]:
        """name -> E_q KL(q(theta_k | theta_<k) || pi(theta_k | theta_<k)), in nats."""
        return {k: self.cross_entropy[k] - self.entropy[k] for k in self.confidence}

    @property
    def value(self) -> float:
        """J(q), unscaled; a block at gamma = inf costs inf unless it stays at its prior."""
        return self.expected_loss + sum(weigh(self.confidence[k], kl) for k, kl in self.kl.items())

    @property
    def location(self) -> float:
        """M(q) = -E_q log P, P = prod_k pi_k^gamma_k exp(-L) without its constant."""
        return self.expected_loss + sum(
            self.confidence[k] * c for k, c in self.cross_entropy.items()
        )

    @property
    def dispersion(self) -> float:
        """H(q) = sum_k gamma_k E_q[entropy of q(theta_k | theta_<k)]."""
        return sum(self.confidence[k] * h for k, h in self.entropy.items())


def objective(
    model: Model,
    q: Mapping[str, Any] | NodePosterior,
    confidence: Mapping[str, float] | None = None,
    *,
    tolerance: float = 1e-8,
) -> Objective:
    r"""Evaluate J(q) and its parts for any q.

    Parameters
    ----------
    model : Model
        The blocks and the loss.
    q : mapping of str to distribution, or ExactPosterior
        For each block a distribution, or a function of the earlier blocks that returns one, in the
        forms that :class:`soubayes.Block` allows; or a posterior of :func:`soubayes.solve_exact`
        for the same model.
    confidence : mapping of str to float, optional
        The confidence of each block, by name. A block that is not named has confidence 1.
    tolerance : float, default=1e-8
        As in :func:`soubayes.solve_exact`.

    Returns
    -------
    parts : Objective
        J(q) with its expected loss, cross-entropies and entropies.

    Notes
    -----
    The objective is eq. 5 of [1]_, not divided by n,

    .. math:: J(q) = E_q[L] + \sum_k \gamma_k E_q\,\mathrm{KL}(q_k \,\|\, \pi_k).

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from scipy import stats
    >>> from soubayes import Block, Model, solve_exact
    >>> model = Model([Block("mu", stats.norm(0, 1))], loss=lambda mu: (mu - 2) ** 2 / 2)
    >>> j = objective(model, {"mu": stats.norm(1, 0.5)}, {"mu": 3.0})
    >>> round(j.value, 6), round(j.location - j.dispersion, 6)
    (3.079442, 3.079442)
    >>> bool(j.value >= solve_exact(model, {"mu": 3.0}).value)
    True
    """
    gammas = check_confidence(confidence, model.names)
    if isinstance(q, NodePosterior):
        return from_posterior(q, gammas)
    if set(q) != set(model.names):
        raise ValueError(f"q names {sorted(q)}, but the model's blocks are {list(model.names)}.")
    with np.errstate(all="ignore"):
        priors, _ = make_stages(model)
        reference = Model([Block(name, q[name]) for name in model.names], model.loss)
        stages, _ = make_stages(reference)
        if [(s.name, s.part) for s in stages] != [(s.name, s.part) for s in priors]:
            raise ValueError("a block of q must have as many dimensions as its prior.")

        def integrand(*points: np.ndarray) -> np.ndarray:
            context = split_blocks(points, stages)
            assert callable(model.loss)
            total = np.asarray(model.loss(*points), dtype=float) + np.zeros(len(context[0]))
            for k, stage in enumerate(stages):
                gamma = gammas[stage.name] if np.isfinite(gammas[stage.name]) else 1.0
                log_q = log_prior(stage, stages[:k], context[:k], context[k])
                log_pi = log_prior(priors[k], priors[:k], context[:k], context[k])
                total = total + gamma * (log_q - log_pi)
            return total

        # with every confidence at inf the recursion integrates against q itself
        engine = Engine(
            Model(reference.blocks, integrand), stages, [np.inf] * len(stages), tolerance
        )
        tree = engine.grow()
        solution = solve_tree([p.level for p in tree], tree[-1].value, engine.gammas)
        points = node_context(tree)
        loss = Engine(model, priors, engine.gammas, tolerance).value(len(priors), points[-1])
        cross, entropy = dict.fromkeys(gammas, 0.0), dict.fromkeys(gammas, 0.0)
        for k, stage in enumerate(stages):
            check_same_kind(tree[k], priors[k], priors[:k], points[k][:k])
            mass = solution.probability[k]
            log_pi = log_prior(priors[k], priors[:k], points[k][:k], points[k][k])
            cross[stage.name] -= float(expectation_terms(mass, log_pi).sum())
            entropy[stage.name] -= float(expectation_terms(mass, tree[k].log_density).sum())
    expected = float(expectation_terms(solution.probability[-1], loss).sum())
    return Objective(gammas, expected, cross, entropy)


def from_posterior(posterior: NodePosterior, gammas: dict[str, float]) -> Objective:
    """The parts of J at a posterior on nodes, whose prior densities are known there."""
    cross = dict.fromkeys(gammas, 0.0)
    for stage, placed, mass in posterior.levels():
        cross[stage.name] -= float(expectation_terms(mass, placed.log_density).sum())
    entropy = {name: cross[name] - posterior.kl[name] for name in gammas}
    return Objective(gammas, posterior.expected_loss, cross, entropy)


def node_context(tree: Sequence[Placed]) -> list[list[np.ndarray]]:
    """For every stage, the values of all stages up to it at its nodes."""
    contexts: list[list[np.ndarray]] = []
    context: list[np.ndarray] = []
    for placed in tree:
        context = [*(values[placed.level.parent] for values in context), placed.theta]
        contexts.append(context)
    return contexts


def split_blocks(points: Sequence[np.ndarray], stages: Sequence[Stage]) -> list[np.ndarray]:
    """Block values back to one flat array a stage."""
    blocks = iter(points)
    flat: list[np.ndarray] = []
    for stage in stages:
        if stage.part == 0:
            block = next(blocks)
        flat.append(block if stage.parts == 1 else block[..., stage.part])
    return flat


def check_same_kind(
    placed: Placed, prior: Stage, earlier: Sequence[Stage], context: Sequence[np.ndarray]
) -> None:
    """A density has no KL from a set of point masses, nor the other way round."""
    first = conditional(prior, earlier, [values[:1] for values in context])
    if placed.is_discrete != (isinstance(first, FinitePrior) or first.is_discrete):
        kinds = ("discrete", "continuous") if placed.is_discrete else ("continuous", "discrete")
        raise ValueError(
            f"q of block {prior.name!r} is {kinds[0]} and its prior {kinds[1]}: their KL is "
            "infinite. Use a distribution of the prior's kind."
        )


def weigh(gamma: float, kl: float) -> float:
    """gamma * kl with inf * 0 = 0, up to the quadrature's rounding."""
    if np.isinf(gamma):
        return 0.0 if abs(kl) < 1e-9 else np.inf
    return gamma * kl

"""The exact engine: Theorem 1 on nodes, for discrete and continuous blocks."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from soubayes._warnings import warn
from soubayes.confidence import check_confidence
from soubayes.exact.model import Model, ModuleLoss
from soubayes.exact.nodes import Engine, Placed, check_elementwise
from soubayes.exact.objective import weigh
from soubayes.exact.posterior import NodePosterior
from soubayes.exact.stages import make_stages
from soubayes.exact.tree import Solution, expectation_terms, solve_tree
from soubayes.feedback import check_feedback


class QuadratureWarning(UserWarning):
    """The nodes of the exact engine may have missed part of the answer.

    Notes
    -----
    The warning names the block. Either the nodes end where the posterior still has mass, or the
    normalising constants are known less accurately than ``tolerance`` asks for. Rescale the block
    so that its prior covers the answer, or give ``grid`` to :func:`soubayes.solve_exact`.

    Examples
    --------
    >>> issubclass(QuadratureWarning, UserWarning)
    True
    """


def solve_exact(
    model: Model,
    confidence: Mapping[str, float] | None = None,
    grid: Mapping[str, ArrayLike | tuple[ArrayLike, ...]] | None = None,
    *,
    eta: Mapping[str, float] | None = None,
    feedback: str = "power",
    weight: Mapping[str, float] | None = None,
    tolerance: float = 1e-8,
) -> NodePosterior:
    r"""Minimise J(q) exactly for a small model.

    Meant for models with up to about four dimensions in all.

    Parameters
    ----------
    model : Model
        The blocks and the loss.
    confidence : mapping of str to float, optional
        The confidence of each block, by name, above 0. ``inf`` keeps a block at its prior. A block
        that is not named has confidence 1.
    grid : mapping of str to array-like, optional
        Nodes to use for a block instead of the automatic ones. For a block of several dimensions, a
        tuple of nodes. Continuous nodes get trapezoid weights.
    eta : mapping of str to float, optional
        The feedback of each block, between 0 and 1, for a model whose loss is given by module
        (``Model(blocks, loss={block: f})``): how much the earlier blocks learn from the data of
        this block and of the later ones. 1 is full feedback, 0 cuts it. A block that is not named
        has feedback 1.
    feedback : {"power", "smi"}, default="power"
        What a feedback between 0 and 1 means; see the notes.
    weight : mapping of str to float, optional
        The weight of each module's loss, 1 by default: below 1 for a table of poor quality.
    tolerance : float, default=1e-8
        Nodes are added until V changes by less than this, and every normalising constant by less
        than this in relative terms.

    Returns
    -------
    posterior : ExactPosterior
        The minimiser of J, its value, and what each block cost.

    Warns
    -----
    QuadratureWarning
        If the nodes may have missed part of the answer.

    Notes
    -----
    The solution is the backward recursion of Theorem 1 of [1]_. With :math:`V_K = L`,

    .. math::

        V_{k-1} = -\gamma_k \log E_\pi \exp(-V_k / \gamma_k), \qquad
        q_k = \pi_k \exp\big((V_{k-1} - V_k) / \gamma_k\big),

    from the last block to the first. A block with :math:`\gamma_k = \infty` stays at its prior and
    passes on :math:`V_{k-1} = E_\pi V_k`. Discrete blocks are summed over. Continuous blocks are
    integrated by quadrature, with nodes placed where each conditional posterior has its mass.

    With the loss by module, :math:`L = \sum_k L_k(\theta_{\le k})`, and a feedback
    :math:`\eta_k`, block k minimises :math:`U_k = L_k + H_{k+1}` instead of :math:`V_k`, where

    .. math::

        H_k = -\eta_k \gamma_k \log E_\pi e^{-U_k / \gamma_k} \text{ (power)}, \qquad
        H_k = -\gamma_k \log E_\pi e^{-\eta_k U_k / \gamma_k} \text{ (smi)}.

    At :math:`\eta_k = 0` both give the cut posterior [2]_; ``"smi"`` is semi-modular inference
    [3]_. Such a posterior does not minimise J: ``value`` is J at it, and the derivatives of J are
    no longer the KLs.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".
    .. [2] M. Plummer (2015), "Cuts in Bayesian graphical models", Statistics and Computing 25.
    .. [3] C. Carmona and G. Nicholls (2020), "Semi-modular inference: enhanced learning in
       multi-modular models by tempering the influence of components", AISTATS.

    Examples
    --------
    >>> from scipy import stats
    >>> from soubayes import Block, Model
    >>> y = np.array([1.2, 0.4, 2.0])
    >>> model = Model(
    ...     [Block("mu", stats.norm(0, 1))],
    ...     loss=lambda mu: ((y - mu[..., None]) ** 2 / 2).sum(axis=-1),
    ... )
    >>> posterior = solve_exact(model, {"mu": 0.5})
    >>> round(posterior.mean("mu"), 6), round(posterior.sd("mu") ** 2, 6)
    (1.028571, 0.142857)

    A second table that may be biased, cut off from the first:

    >>> modules = Model(
    ...     [Block("a", stats.norm(0, 1)), Block("b", stats.norm(0, 0.1))],
    ...     loss={"a": lambda a: (a - 1) ** 2 / 2, "b": lambda a, b: (a + b - 5) ** 2 / 2},
    ... )
    >>> [round(solve_exact(modules, eta={"b": eta}).mean("a"), 3) for eta in (1.0, 0.3, 0.0)]
    [1.99, 1.082, 0.5]
    """
    gammas = check_confidence(confidence, model.names)
    module = check_feedback(eta, feedback, weight, model.names)
    if not isinstance(model.loss, ModuleLoss) and (eta is not None or weight is not None):
        raise ValueError(
            "eta and weight need a loss by module: Model(blocks, loss={block: f}), where f is a "
            "function of that block and the earlier ones."
        )
    if not 0 < tolerance <= 0.1:
        raise ValueError(f"tolerance is {tolerance}, but it must lie in (0, 0.1].")
    with np.errstate(all="ignore"):  # the search looks far out in the tails
        stages, medians = make_stages(model, grid)
        check_elementwise(model, stages, medians)
        plain = module.is_full and set(module.weight.values()) == {1.0}
        heard = None if plain else module
        engine = Engine(model, stages, [gammas[stage.name] for stage in stages], tolerance, heard)
        tree = engine.grow()
        ends = {k - 1: tree[k - 1].value for k in range(1, len(tree)) if engine.ends_block(k)}
        levels = [placed.level for placed in tree]
        known = None if plain else ends
        solution = solve_tree(levels, tree[-1].value, engine.gammas, known)
        check_solution(engine, tree, solution)
        if not plain:
            solution = with_objective(engine, tree, solution)
    return NodePosterior(gammas, engine, tree, solution)


def with_objective(engine: Engine, tree: list[Placed], solution: Solution) -> Solution:
    """The solution with the expected loss of all modules, and with J there as its value."""
    context: list[np.ndarray] = []
    total = 0.0
    for k, (placed, mass) in enumerate(zip(tree, solution.probability, strict=True), start=1):
        context = [*(values[placed.level.parent] for values in context), placed.theta]
        if engine.ends_block(k):
            total += float(expectation_terms(mass, engine.module_loss(k, context)).sum())
    costs = (weigh(gamma, kl) for gamma, kl in zip(engine.gammas, solution.kl, strict=True))
    return solution._replace(expected_loss=total, value=total + sum(costs))


def check_solution(engine: Engine, tree: list[Placed], solution: Solution) -> None:
    """Errors and warnings about an answer that is not there, or not all there."""
    if not abs(solution.value) < 1e100:  # a diverging mean is as large as floats allow
        fixed = sorted(
            {s.name for s, g in zip(engine.stages, engine.gammas, strict=True) if g == np.inf}
        )
        reason = (
            f"Confidence inf keeps {fixed} at the prior, under which it has no finite mean."
            if fixed
            else "Check that some parameter value with prior mass has a finite loss."
        )
        raise ValueError(f"the loss is infinite wherever the priors have mass. {reason}")
    reach = [np.ones(1), *solution.probability]
    for stage, placed, probability in zip(engine.stages, tree, reach, strict=False):
        advice = (
            "widen or refine its grid, or leave grid out"
            if stage.grid is not None
            else "rescale the block so that its prior covers the answer, or pass grid="
        )
        missed = probability[placed.missed].sum()
        if missed > 1e-6:
            warn(
                f"the nodes of block {stage.name!r} end where the posterior still has mass (in "
                f"{missed:.0%} of its conditionals): {advice}.",
                QuadratureWarning,
            )
        error = float(probability @ placed.error)
        if error > max(100 * engine.tolerance, 1e-6) and missed <= 1e-6:
            warn(
                f"the normalising constants of block {stage.name!r} are known only to about "
                f"{error:.1g} (relative): {advice}.",
                QuadratureWarning,
            )

"""The exact engine: Theorem 1 on nodes, for discrete and continuous blocks."""

import warnings
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from soubayes.confidence import check_confidence
from soubayes.exact.model import Model
from soubayes.exact.nodes import Engine, Placed, check_elementwise
from soubayes.exact.posterior import NodePosterior
from soubayes.exact.stages import make_stages
from soubayes.exact.tree import Solution, solve_tree


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

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

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
    """
    gammas = check_confidence(confidence, model.names)
    if not 0 < tolerance <= 0.1:
        raise ValueError(f"tolerance is {tolerance}, but it must lie in (0, 0.1].")
    with np.errstate(all="ignore"):  # the search looks far out in the tails
        stages, medians = make_stages(model, grid)
        check_elementwise(model, stages, medians)
        engine = Engine(model, stages, [gammas[stage.name] for stage in stages], tolerance)
        tree = engine.grow()
        solution = solve_tree([placed.level for placed in tree], tree[-1].value, engine.gammas)
    check_solution(engine, tree, solution)
    return NodePosterior(gammas, engine, tree, solution)


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
            warnings.warn(
                f"the nodes of block {stage.name!r} end where the posterior still has mass (in "
                f"{missed:.0%} of its conditionals): {advice}.",
                QuadratureWarning,
                stacklevel=3,
            )
        error = float(probability @ placed.error)
        if error > max(100 * engine.tolerance, 1e-6) and missed <= 1e-6:
            warnings.warn(
                f"the normalising constants of block {stage.name!r} are known only to about "
                f"{error:.1g} (relative): {advice}.",
                QuadratureWarning,
                stacklevel=3,
            )

"""Linear-Gaussian blocks with a quadratic loss: Theorem 1 in closed form, at any dimension."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.linalg import cholesky, eigh
from scipy.linalg.blas import dsyr2k, dsyrk

from soubayes._types import Distribution, Number, Seed
from soubayes.confidence import check_confidence
from soubayes.exact.posterior import ExactPosterior


@dataclass(frozen=True, eq=False)
class GaussianBlock:
    r"""A block with a linear-Gaussian prior.

    Parameters
    ----------
    name : str
        How confidences and results refer to the block.
    mean : array-like of shape (d,)
        The intercept :math:`c_k` of the prior mean.
    cov : array-like of shape (d, d) or (d,), or float
        The prior covariance :math:`P_k`: a matrix, d variances, or one variance. It may be
        singular.
    coef : array-like of shape (d, dimensions of all earlier blocks), optional
        The coefficients :math:`A_k` of the earlier blocks, stacked in order. None means 0.

    Notes
    -----
    The prior is :math:`\theta_k \mid \theta_{<k} \sim N(A_k \theta_{<k} + c_k, P_k)`, a Gaussian
    case of the blocks in section 3 of [1]_.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> GaussianBlock("mu", mean=[0.0, 0.0], cov=4.0).cov
    array([[4., 0.],
           [0., 4.]])
    """

    name: str
    mean: ArrayLike
    cov: ArrayLike
    coef: ArrayLike | None = None

    def __post_init__(self) -> None:
        mean = np.atleast_1d(np.asarray(self.mean, dtype=float))
        cov = np.asarray(self.cov, dtype=float)
        if cov.ndim < 2:
            cov = np.diag(np.broadcast_to(cov, mean.shape))
        d = len(mean)
        if mean.ndim != 1 or cov.shape != (d, d):
            raise ValueError(
                f"block {self.name!r} has mean of shape {mean.shape} and cov of shape {cov.shape}; "
                "give a mean of length d and a d x d covariance (or variances)."
            )
        coef = None if self.coef is None else np.asarray(self.coef, dtype=float).reshape(d, -1)
        for what, array in (("mean", mean), ("cov", cov), ("coef", coef)):
            if array is not None and not np.isfinite(array).all():
                raise ValueError(f"{what} of block {self.name!r} holds NaN or inf.")
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "cov", cov)
        object.__setattr__(self, "coef", coef)


@dataclass(frozen=True, eq=False)
class QuadraticLoss:
    r"""A quadratic loss over all blocks, stacked in order.

    Parameters
    ----------
    matrix : array-like of shape (D, D)
        The symmetric matrix Q. It may be indefinite as long as the priors outweigh it.
    vector : array-like of shape (D,)
        The vector b.
    constant : float, default=0.0
        The constant c.

    Notes
    -----
    :math:`L(\theta) = \tfrac12 \theta'Q\theta - b'\theta + c`. With this loss and Gaussian blocks
    the recursion of Theorem 1 of [1]_ has a closed form.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> loss = QuadraticLoss.least_squares([[1.0], [1.0]], [0.5, 1.5], noise_variance=1.0)
    >>> loss.matrix, loss.vector
    (array([[2.]]), array([2.]))
    """

    matrix: ArrayLike
    vector: ArrayLike
    constant: float = 0.0

    def __post_init__(self) -> None:
        matrix = np.atleast_2d(np.asarray(self.matrix, dtype=float))
        vector = np.atleast_1d(np.asarray(self.vector, dtype=float))
        if matrix.shape != (len(vector), len(vector)):
            raise ValueError(
                f"matrix of the loss has shape {matrix.shape} and its vector {vector.shape}; they "
                "must be D x D and D for D dimensions in all."
            )
        if not (np.isfinite(matrix).all() and np.isfinite(vector).all()):
            raise ValueError("the quadratic loss holds NaN or inf; check the data.")
        object.__setattr__(self, "matrix", (matrix + matrix.T) / 2)
        object.__setattr__(self, "vector", vector)

    @classmethod
    def least_squares(cls, X: ArrayLike, y: ArrayLike, noise_variance: float) -> "QuadraticLoss":
        """Minus the log density of y ~ N(X theta, noise_variance I).

        Parameters
        ----------
        X : array-like of shape (n, D)
            The design; its columns belong to the coordinates of all blocks, in order.
        y : array-like of shape (n,)
            The observations.
        noise_variance : float
            The known variance of an observation.

        Returns
        -------
        loss : QuadraticLoss
            The loss.
        """
        X, y = np.asarray(X, dtype=float), np.asarray(y, dtype=float)
        constant = y @ y / noise_variance + len(y) * np.log(2 * np.pi * noise_variance)
        return cls(X.T @ X / noise_variance, X.T @ y / noise_variance, float(constant) / 2)


@dataclass(frozen=True, eq=False)
class GaussianModel:
    """Gaussian blocks in order and a quadratic loss over them.

    Parameters
    ----------
    blocks : sequence of GaussianBlock
        The blocks. A block may depend on earlier ones through its ``coef``.
    loss : QuadraticLoss
        The loss over the coordinates of all blocks, stacked in order.

    Notes
    -----
    The model is a case of eq. 5 of [1]_ that :func:`soubayes.solve_gaussian` solves in closed form
    at any dimension.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> model = GaussianModel([GaussianBlock("mu", [0.0], 1.0)], QuadraticLoss([[1.0]], [2.0], 2.0))
    >>> model.names
    ('mu',)
    """

    blocks: Sequence[GaussianBlock]
    loss: QuadraticLoss

    def __post_init__(self) -> None:
        blocks = tuple(self.blocks)
        if not blocks or len({block.name for block in blocks}) < len(blocks):
            raise ValueError("a GaussianModel needs at least one block, with different names.")
        start = 0
        for block in blocks:
            if block.coef is not None and np.shape(block.coef)[1] != start:
                raise ValueError(
                    f"coef of block {block.name!r} has {np.shape(block.coef)[1]} columns, but the "
                    f"earlier blocks have {start} dimensions together."
                )
            start += len(np.asarray(block.mean))
        if len(np.asarray(self.loss.vector)) != start:
            raise ValueError(
                f"the loss is over {len(np.asarray(self.loss.vector))} dimensions, the blocks have "
                f"{start} together."
            )
        object.__setattr__(self, "blocks", blocks)

    @property
    def names(self) -> tuple[str, ...]:
        """The blocks' names, in order."""
        return tuple(block.name for block in self.blocks)


class Step(NamedTuple):
    """q_k: theta_k = shift + slope theta_<k + spread z, z ~ N(0, I); and the KL's ingredients."""

    shift: np.ndarray
    slope: np.ndarray
    spread: np.ndarray
    pull_shift: np.ndarray  # mean of z under q minus under pi, as an affine function of theta_<k
    pull_slope: np.ndarray
    kl_spread: float  # the part of the KL that the changed covariance costs


def solve_gaussian(
    model: GaussianModel, confidence: Mapping[str, float] | None = None
) -> "GaussianPosterior":
    r"""Minimise J(q) for linear-Gaussian blocks in closed form.

    Parameters
    ----------
    model : GaussianModel
        The blocks and the loss.
    confidence : mapping of str to float, optional
        The confidence of each block, by name, above 0. ``inf`` keeps a block at its prior. A block
        that is not named has confidence 1.

    Returns
    -------
    posterior : ExactPosterior
        The Gaussian minimiser of J, its value, and what each block cost.

    Notes
    -----
    Write :math:`\theta_k = A\theta_{<k} + c + Rz` with :math:`RR' = P_k` and :math:`z \sim N(0,
    I)`. The value function of Theorem 1 of [1]_ stays quadratic: integrating z out of
    :math:`\exp(-V_k/\gamma)` gives

    .. math::

        V_{k-1} = V_k\big|_{z=0} - \tfrac12 g'R(\gamma I + S)^{-1}R'g
            + \tfrac{\gamma}{2} \log|I + S/\gamma|,

    where :math:`S = R'QR` and g is the gradient in :math:`\theta_k` at z = 0. For
    :math:`\gamma = \infty` it is :math:`V_k|_{z=0} + \tfrac12 \mathrm{tr}\,S`.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> model = GaussianModel(
    ...     [GaussianBlock("mu", [0.0], 1.0)],
    ...     QuadraticLoss.least_squares(np.ones((3, 1)), [1.2, 0.4, 2.0], noise_variance=1.0),
    ... )
    >>> posterior = solve_gaussian(model, {"mu": 0.5})
    >>> round(float(posterior.mean("mu")), 6), round(float(posterior.sd("mu")) ** 2, 6)
    (1.028571, 0.142857)
    """
    gammas = check_confidence(confidence, model.names)
    Q = np.array(model.loss.matrix)
    b = np.array(model.loss.vector)
    constant = float(model.loss.constant)
    steps: list[Step] = []
    for block in reversed(model.blocks):
        step, Q, b, constant = eliminate(block, Q, b, constant, gammas[block.name])
        steps.insert(0, step)
    mean, cov, kl = push_forward(model, steps)
    loss = model.loss
    expected = (
        0.5 * (np.sum(np.asarray(loss.matrix) * cov) + mean @ np.asarray(loss.matrix) @ mean)
        - np.asarray(loss.vector) @ mean
        + loss.constant
    )
    return GaussianPosterior(model, gammas, constant, float(expected), kl, mean, cov)


def eliminate(
    block: GaussianBlock, Q: np.ndarray, b: np.ndarray, constant: float, gamma: float
) -> tuple[Step, np.ndarray, np.ndarray, float]:
    """Integrate the last block out of the quadratic (Q, b, constant).

    Only the lower triangle of Q is kept up to date: rank updates of half a matrix are most of the
    work.
    """
    c = np.asarray(block.mean)
    n = len(b) - len(c)
    A = np.zeros((len(c), n)) if block.coef is None else np.asarray(block.coef)
    R = square_root(np.asarray(block.cov), block.name)
    Qxx, Qxe = np.tril(Q[n:, n:]) + np.tril(Q[n:, n:], -1).T, Q[n:, :n]
    slope = Qxe if block.coef is None else Qxx @ A + Qxe  # gradient in theta_k at z = 0
    gradient = Qxx @ c - b[n:]
    constant += 0.5 * c @ Qxx @ c - b[n:] @ c
    s, U = eigh(R.T @ Qxx @ R)
    if np.isinf(gamma):
        pulls, spread, kl_spread = np.zeros_like(s), np.ones_like(s), 0.0
        constant += 0.5 * s.sum()
    else:
        if s.min(initial=0.0) <= -gamma:
            raise ValueError(
                f"at confidence {gamma} block {block.name!r} has no minimiser: the loss falls "
                f"faster than the prior grows (smallest curvature {s.min():.3g}, needs > "
                f"{-gamma:.3g}). Raise its confidence or make the loss convex."
            )
        pulls, spread = 1.0 / (gamma + s), gamma / (gamma + s)
        constant += 0.5 * gamma * np.log1p(s / gamma).sum()
        kl_spread = float(0.5 * spread_cost(s / gamma).sum())
    RU = R @ U
    w_slope, w_gradient = RU.T @ slope, RU.T @ gradient
    constant -= 0.5 * np.sum(pulls * w_gradient**2)
    root = np.sqrt(pulls)[:, None] * w_slope
    new_b = b[:n] - Qxe.T @ c + root.T @ (np.sqrt(pulls) * w_gradient)
    new_Q = np.array(Q[:n, :n], order="F")
    if n:
        new_Q = dsyrk(-1.0, root.T, beta=1.0, c=new_Q, lower=1, overwrite_c=1)
    if block.coef is not None and n:
        new_b -= A.T @ gradient
        half = (slope + Qxe) / 2  # A' Qxx A + A' Qxe + Qxe' A = A' half + half' A
        new_Q = dsyr2k(1.0, A.T, half.T, beta=1.0, c=new_Q, lower=1, overwrite_c=1)
    pull_slope, pull_shift = -pulls[:, None] * w_slope, -pulls * w_gradient
    step = Step(
        c + RU @ pull_shift,
        A + RU @ pull_slope,
        RU * np.sqrt(spread),
        pull_shift,
        pull_slope,
        kl_spread,
    )
    return step, new_Q, new_b, float(constant)


def push_forward(
    model: GaussianModel, steps: Sequence[Step]
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Joint mean and covariance of q, and the KL of every block."""
    size = len(np.asarray(model.loss.vector))
    mean, cov = np.zeros(size), np.zeros((size, size))
    kl, n = {}, 0
    for block, step in zip(model.blocks, steps, strict=True):
        end = n + len(step.shift)
        cross = step.slope @ cov[:n, :n]
        mean[n:end] = step.shift + step.slope @ mean[:n]
        cov[n:end, :n], cov[:n, n:end] = cross, cross.T
        cov[n:end, n:end] = cross @ step.slope.T + step.spread @ step.spread.T
        pull = step.pull_shift + step.pull_slope @ mean[:n]
        moved = pull @ pull + np.sum((step.pull_slope @ cov[:n, :n]) * step.pull_slope)
        kl[block.name] = float(0.5 * moved + step.kl_spread)
        n = end
    return mean, cov, kl


def square_root(cov: np.ndarray, name: str) -> np.ndarray:
    """R with R R' = cov; Cholesky, or the eigenvectors where cov is singular."""
    if not np.allclose(cov, cov.T, rtol=1e-10, atol=0.0):
        raise ValueError(f"cov of block {name!r} is not symmetric.")
    try:
        return cholesky(cov, lower=True)
    except np.linalg.LinAlgError:
        values, vectors = eigh(cov)
        if values.min() < -1e-10 * max(values.max(), 0.0):
            raise ValueError(
                f"cov of block {name!r} has a negative eigenvalue ({values.min():.3g}); a "
                "covariance must be positive semidefinite."
            ) from None
        return vectors * np.sqrt(np.maximum(values, 0.0))


def spread_cost(r: np.ndarray) -> np.ndarray:
    """v - 1 - log v at v = 1 / (1 + r): log(1 + r) - r / (1 + r), accurate for small r too."""
    series = r**2 / (1 + r) - r**2 / 2 + r**3 / 3 - r**4 / 4 + r**5 / 5
    return np.where(np.abs(r) < 1e-3, series, np.log1p(r) - r / (1 + r))


class GaussianPosterior(ExactPosterior):
    """A joint normal posterior, from :func:`soubayes.solve_gaussian`."""

    def __init__(
        self,
        model: GaussianModel,
        confidence: dict[str, float],
        value: float,
        expected_loss: float,
        kl: dict[str, float],
        mean: np.ndarray,
        cov: np.ndarray,
    ) -> None:
        self.confidence, self.value, self.expected_loss, self.kl = (
            confidence,
            value,
            expected_loss,
            kl,
        )
        self.joint_mean, self.joint_cov = mean, cov
        ends = np.cumsum([0, *(len(np.asarray(block.mean)) for block in model.blocks)])
        self._slices = {
            name: slice(a, b) for name, a, b in zip(model.names, ends, ends[1:], strict=False)
        }

    def marginal(self, name: str) -> Distribution | list[Distribution]:
        at = self._slice(name)
        moments = zip(self.joint_mean[at], np.sqrt(np.diag(self.joint_cov)[at]), strict=True)
        found = [stats.norm(mean, sd) for mean, sd in moments]
        return found[0] if len(found) == 1 else found

    def mean(self, name: str) -> Number:
        return squeeze(self.joint_mean[self._slice(name)])

    def sd(self, name: str) -> Number:
        return squeeze(np.sqrt(np.diag(self.joint_cov)[self._slice(name)]))

    def quantile(self, name: str, p: ArrayLike) -> Number:
        at = self._slice(name)
        z = np.multiply.outer(stats.norm.ppf(p), np.sqrt(np.diag(self.joint_cov)[at]))
        return squeeze(self.joint_mean[at] + z)

    def sample(self, n: int, random_state: Seed = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(random_state)
        root = square_root((self.joint_cov + self.joint_cov.T) / 2, "the posterior")
        draws = self.joint_mean + rng.normal(size=(n, len(root))) @ root.T
        return {name: squeeze(draws[:, at]) for name, at in self._slices.items()}

    def _slice(self, name: str) -> slice:
        if name not in self._slices:
            raise ValueError(f"no block {name!r}; the blocks are {list(self._slices)}.")
        return self._slices[name]


def squeeze(values: np.ndarray) -> Any:
    """A block of one dimension drops its last axis."""
    return values[..., 0] if values.shape[-1] == 1 else values

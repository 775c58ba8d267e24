"""Several classes: the softmax loss averaged over normal predictors.

Class k of c has the predictor eta_k = sum_a A_ka u_a, with A an orthonormal basis of the vectors of
length c that sum to 0 (a constant added to all eta changes nothing), and u ~ N(m, V) in c - 1
dimensions. Averages over u are sums over fixed nodes: a product of Gauss-Hermite rules for up to
four classes, else a symmetric quasi-random set with the exact mean and covariance.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp
from scipy.stats import norm, qmc

from soubayes.sparse.likelihoods.base import Likelihood, RowTerms

Array = np.ndarray

# nodes for each dimension of the product rules; beyond, the number of quasi-random nodes.
# The second entry is of candidates, which need few digits
PRODUCT_NODES = {1: (40, 12), 2: (12, 6), 3: (7, 4)}
OTHER_NODES = (128, 64)  # quasi-random, of more coordinates: fine and coarse
KEPT_NODES = (1e-11, 1e-4)  # of a node that is kept
EXACT_SPREAD = 1e-8  # variance of a coordinate below which the rule has no error
_CACHED = 2**16  # numbers that are made of a block of rows
_FAR = 300.0  # from the middle, in predictors: exponentials of twice that are still numbers
_TINY = 1e-200  # a mean of shares that has all digits
LEAST_VARIANCE = 1e-12  # relative: the Cholesky factor of a singular covariance


@cache
def class_basis(classes: int) -> Array:
    """(c, c - 1): orthonormal columns that sum to 0, Helmert's contrasts.

    >>> class_basis(2).round(3).ravel().tolist()
    [0.707, -0.707]
    """
    d = classes - 1
    A = np.zeros((classes, d))
    for a in range(d):
        A[: a + 1, a], A[a + 1, a] = 1.0, -(a + 1.0)
    A /= np.sqrt(np.square(A).sum(axis=0))
    A.flags.writeable = False
    return A


class NormalNodes(NamedTuple):
    """Points and weights that average over N(0, I)."""

    points: Array  # (S, d)
    weights: Array  # (S,)


@cache
def normal_nodes(d: int, coarse: bool) -> NormalNodes:
    """The rule for d dimensions."""
    if d in PRODUCT_NODES:
        x, w = np.polynomial.hermite_e.hermegauss(PRODUCT_NODES[d][coarse])
        grid = np.meshgrid(*[x] * d, indexing="ij")
        weight = np.prod(np.meshgrid(*[w / w.sum()] * d, indexing="ij"), axis=0).ravel()
        keep = weight > KEPT_NODES[coarse]
        points = np.stack([coordinate.ravel() for coordinate in grid], axis=1)
        return NormalNodes(points[keep], weight[keep] / weight[keep].sum())
    # twice as many as dimensions, a power of 2: fewer would have a singular covariance
    count = max(OTHER_NODES[coarse] // 2, 2 ** (2 * d - 1).bit_length())
    half = norm.ppf(qmc.Sobol(d, scramble=True, rng=0).random(count))
    points = np.concatenate([half, -half])
    root = np.linalg.cholesky(points.T @ points / len(points))
    points = np.linalg.solve(root, points.T).T
    return NormalNodes(points, np.full(len(points), 1.0 / len(points)))


class Softmax(Likelihood):
    """y in 0, ..., c - 1, the loss log(sum_k exp(eta_k)) - eta_y; eta = A u of c - 1 coordinates u.

    An average over u is a sum over fixed nodes; a ``rough`` rule has fewer of them.
    """

    def __init__(self, classes: int, rough: bool = False) -> None:
        self.classes, self.basis, self.rough = classes, class_basis(classes), rough
        self.coordinates = classes - 1
        self.start_curvature = 1.0 / classes  # that of equal shares
        self.nodes = normal_nodes(classes - 1, rough)
        self.root_weights = np.sqrt(self.nodes.weights)
        self.farthest = float(np.square(self.nodes.points).sum(axis=1).max())
        self.consistent = not rough and classes - 1 in PRODUCT_NODES

    @property
    def coarse(self) -> "Softmax":
        return Softmax(self.classes, rough=True)

    def check(self, y: Array) -> Array:
        """Numbers of classes, as they are."""
        return y

    def predict(self, mean: Array, variance: Array) -> Array:
        """(n, c): E[softmax(eta)]."""
        return np.exp(self.log_mean_shares(mean, spread_root(variance)))

    def terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        """At u ~ N(mean, V); V is (n, d, d), or (n, d) of independent coordinates.

        >>> found = Softmax(3).terms(np.zeros((1, 2)), np.zeros((1, 2)), np.array([0]))
        >>> found.loss.round(4), found.curvature[0].diagonal().round(4)  # log 3 and I/3
        (array([1.0986]), array([0.3333, 0.3333]))
        """
        step = max(1, _CACHED // (len(self.nodes.weights) * self.classes))
        blocks = [slice(begin, begin + step) for begin in range(0, max(len(mean), 1), step)]
        parts = [self._terms(mean[rows], variance[rows], y[rows]) for rows in blocks]
        if len(parts) == 1:
            return parts[0]
        whole = RowTerms(*map(np.concatenate, zip(*parts, strict=True)))
        alike = parts[0].curvature is parts[0].information
        return whole._replace(information=whole.curvature) if alike else whole

    def _terms(self, mean: Array, variance: Array, y: Array) -> RowTerms:
        A, c, n = self.basis, self.classes, len(mean)
        root = spread_root(variance)
        half, whole = self._shares(mean, root)
        first, seen = half @ self.root_weights, A[y]
        loss = whole @ self.nodes.weights - np.einsum("na,na->n", mean, seen)
        by_row = half.transpose(1, 0, 2)
        second = by_row @ by_row.transpose(0, 2, 1)
        np.einsum("ncc->nc", second)[:] -= first.T  # minus the covariance of the classes
        inner = (second.reshape(n * c, c) @ A).reshape(n, c, -1).transpose(1, 0, 2)
        curvature = -(A.T @ inner.reshape(c, -1)).reshape(-1, n, c - 1).transpose(1, 0, 2)
        information = curvature
        if self.consistent and root.ndim == 3:
            information = self._covariance_slope(half, root, curvature)
        return RowTerms(loss, seen - first.T @ A, information, curvature)

    def _covariance_slope(self, half: Array, root: Array, curvature: Array) -> Array:
        """Twice the derivative in V = LL' of the sum over the nodes itself.

        With dL = sum_s w_s g_s z_s' it is L^-T Phi(L'dL) L^-1, Phi the lower triangle with half its
        diagonal, made symmetric. It differs from the curvature by the error of the rule; with it
        slopes are those of the J that is reported. Rows where that error is so large that it is not
        positive, or that have no variance, keep the curvature.
        """
        by_class = half @ (self.root_weights[:, None] * self.nodes.points)  # (c, n, d)
        by_root = self.basis.T @ by_class.transpose(1, 0, 2)
        inner = np.tril(root.transpose(0, 2, 1) @ by_root)
        d = np.arange(root.shape[1])
        inner[:, d, d] *= 0.5
        some = np.square(root[:, d, d]).min(axis=1) > EXACT_SPREAD
        inverse = np.linalg.inv(np.where(some[:, None, None], root, np.eye(len(d))))
        slope = inverse.transpose(0, 2, 1) @ inner @ inverse
        slope = slope + slope.transpose(0, 2, 1)
        some &= np.linalg.eigvalsh(slope)[:, 0] > 0.0
        return np.where(some[:, None, None], slope, curvature)

    def log_mean_shares(self, mean: Array, root: Array) -> Array:
        """(n, c): log E[softmax(eta)_k]."""
        half, _ = self._shares(mean, root)
        share = (half @ self.root_weights).T
        small = ~(share > _TINY).all(axis=1)
        with np.errstate(divide="ignore"):
            log_mean = np.log(share)
        if small.any():  # these have lost digits, or all of them
            eta = self._at_nodes(self._spread(root[small]), self.basis @ mean[small].T)
            log_share = eta - logsumexp(eta, axis=0)
            log_mean[small] = logsumexp(log_share, b=self.nodes.weights, axis=2).T
        return log_mean

    def share_sd(self, mean: Array, root: Array) -> tuple[Array, Array]:
        """(n, c): mean and standard deviation of the shares."""
        half, _ = self._shares(mean, root)
        first, second = (half @ self.root_weights).T, np.square(half).sum(axis=2).T
        return first, np.sqrt(np.maximum(second - first**2, 0.0))

    def plug_in(self, mean: Array, y: Array) -> tuple[Array, Array]:
        """Loss at known coordinates (n, d), and its slope."""
        eta = mean @ self.basis.T
        whole = logsumexp(eta, axis=1)
        share = np.exp(eta - whole[:, None])
        rows = np.arange(len(y))
        slope = share @ self.basis - self.basis[y]
        return whole - eta[rows, y], slope

    def _spread(self, root: Array) -> Array:
        """(c, n, d): roots of the classes' predictors. Classes come first: sums add long rows."""
        A, (n, d) = self.basis, root.shape[:2]
        if root.ndim == 2:
            return A[:, None, :] * root
        return (A @ root.transpose(1, 0, 2).reshape(d, n * d)).reshape(-1, n, d)

    def _at_nodes(self, each: Array, middle: Array) -> Array:
        """(c, n, S): the classes' predictors at the nodes."""
        eta = (each.reshape(-1, each.shape[2]) @ self.nodes.points.T).reshape(*middle.shape, -1)
        eta += middle[:, :, None]
        return eta

    def _shares(self, mean: Array, root: Array) -> tuple[Array, Array]:
        """(c, n, S) softmax at the nodes times the roots of their weights, and (n, S) log sums."""
        spread, middle = self._spread(root), self.basis @ mean.T
        top = middle.max(axis=0)[:, None]
        eta = self._at_nodes(spread, middle - top.T)
        reach = np.einsum("cnd,cnd->cn", spread, spread).max(initial=0.0) * self.farthest
        if not reach < _FAR**2:  # else the class that leads in the middle keeps sums away from 0
            most = eta.max(axis=0)
            eta -= most
            top = top + most
        share = np.exp(eta, out=eta)
        total = share.sum(axis=0)
        share *= self.root_weights / total
        return share, top + np.log(total)


def spread_root(V: Array) -> Array:
    """(n, d, d): roots of covariances, with a hint of variance where they are singular.

    Only the lower triangles of V are read. Variances (n, d) have roots of their shape.
    """
    if V.ndim == 2:
        return np.sqrt(V)
    d = V.shape[1]
    least = LEAST_VARIANCE * (np.einsum("naa->n", V) + 1e-300)
    V = V + (least + 1e-300)[:, None, None] * np.eye(d)
    try:
        return np.linalg.cholesky(V)
    except np.linalg.LinAlgError:  # rounding under huge weights: its negative eigenvalues are 0
        values, vectors = np.linalg.eigh(V)
        return vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]

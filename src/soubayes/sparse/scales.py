"""The factors q(tau_j^2) and q(nu^2) of every global-local model.

Each squared scale x has an inverse-gamma factor q(x) = Inv-Gamma(a, b), kept as its shape a and
its ratio rho = b/a = 1/E[1/x], which stays accurate when a is 5e8 (confidence 1e-9). Whatever
the likelihood, J (supplement C.4) depends on q(x) only through

    log_weight * E[log x] + inverse_weight * E[1/x] + confidence * KL(q(x) || prior),

so the same functions serve normal means, linear and logistic regression:

| factor   | log_weight     | inverse_weight                                          |
| tau_j^2  | gamma_b / 2    | gamma_b / 2 * E[1/nu^2] * E[beta_j^2 (/ sigma^2)]        |
| nu^2     | gamma_b p / 2  | gamma_b / 2 * sum_j E[1/tau_j^2] E[beta_j^2 (/ sigma^2)] |

All arguments broadcast; confidences are finite and positive.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from soubayes.sparse.gamma_functions import delta1, delta2, log_minus_psi, negative_entropy
from soubayes.sparse.roots import find_root, newton_root

Array = np.ndarray


class Scale(NamedTuple):
    """q(x) = Inv-Gamma(shape, shape * ratio) for squared scales x; arrays of one shape.

    >>> Scale(np.array(2.0), np.array(0.5)).mean_inverse
    np.float64(2.0)
    """

    shape: Array  # a; above 1 under the exponential prior, so that E[x] exists
    ratio: Array  # b / a

    @property
    def mean_inverse(self) -> Array:
        """E[1/x] = a/b."""
        return 1.0 / self.ratio

    @property
    def mean_log(self) -> Array:
        """E[log x] = log b - psi(a)."""
        return np.log(self.ratio) + log_minus_psi(self.shape)

    @property
    def mean(self) -> Array:
        """E[x] = b/(a - 1)."""
        return self.ratio * self.shape / (self.shape - 1.0)

    def take(self, index: Array) -> "Scale":
        """The factors of some coordinates."""
        return Scale(self.shape[index], self.ratio[index])


class Exponential(NamedTuple):
    """x ~ Exp(rate), the paper's prior of tau^2 and nu^2 (paper: lambda_tau, lambda_nu)."""

    rate: float


class HalfCauchy(NamedTuple):
    """sqrt(x) ~ C+(0, 1), the horseshoe, as x | w ~ IG(1/2, 1/w), w ~ IG(1/2, 1).

    The auxiliary factor q(w) = IG(1, 1 + E[1/x]) is kept at its optimum, so KL below is that of
    the pair (x, w): log(pi) + E[log q(x)] + 3/2 E[log x] + log(1 + E[1/x]).
    """


Prior = Exponential | HalfCauchy


def make_prior(name: str, rate: float) -> Prior:
    """The prior called ``name``: "exponential" with this rate, or "horseshoe".

    >>> make_prior("exponential", 10.0)
    Exponential(rate=10.0)
    """
    if name == "exponential":
        return Exponential(rate)
    if name == "horseshoe":
        return HalfCauchy()
    raise ValueError(f"prior is {name!r}, but it must be 'exponential' or 'horseshoe'.")


def kl(prior: Prior, q: Scale) -> Array:
    """KL(q(x) || prior) in nats, elementwise.

    >>> round(float(kl(Exponential(1.0), Scale(np.array(3.0), np.array(0.5)))), 4)
    0.3425
    """
    a, rho = q
    minus_entropy = negative_entropy(a) - np.log(rho)
    if isinstance(prior, Exponential):
        return minus_entropy - np.log(prior.rate) + prior.rate * q.mean
    return minus_entropy + np.log(np.pi) + 1.5 * q.mean_log + np.log1p(1.0 / rho)


def kl_slope(prior: Prior, q: Scale) -> tuple[Array, Array]:
    """First and second derivative of KL(q(x) || prior) in log(ratio), the shape held.

    >>> [float(x) for x in kl_slope(Exponential(2.0), Scale(np.array(2.0), np.array(0.25)))]
    [0.0, 1.0]
    """
    if isinstance(prior, Exponential):
        pull = prior.rate * q.mean
        return pull - 1.0, pull
    share = q.ratio / (1.0 + q.ratio)
    return share - 0.5, share * (1.0 - share)


def scale_objective(
    prior: Prior, q: Scale, log_weight: ArrayLike, inverse_weight: ArrayLike, confidence: ArrayLike
) -> Array:
    """The part of J that depends on q(x), elementwise (see the head of this file)."""
    return (
        np.asarray(log_weight) * q.mean_log
        + np.asarray(inverse_weight) * q.mean_inverse
        + np.asarray(confidence) * kl(prior, q)
    )


def fit_scale(
    prior: Prior, log_weight: ArrayLike, inverse_weight: ArrayLike, confidence: ArrayLike
) -> Scale:
    """The q(x) that minimises `scale_objective` over shape and ratio together.

    Half-Cauchy: a = log_weight/confidence + 1/2 in closed form. Exponential: a is the root of
    dJ/da at the best ratio for each a, found in log(a - 1).

    >>> q = fit_scale(Exponential(10.0), 0.5, 0.2, 1e-9)
    >>> float(q.shape) // 1e6, round(float(q.ratio), 6)
    (500.0, 0.4)
    """
    A, E, gamma = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (log_weight, inverse_weight, confidence))
    )
    if isinstance(prior, HalfCauchy):
        a = A / gamma + 0.5
        return Scale(a, best_ratio(prior, a, A, E, gamma))

    def slope(t: Array) -> tuple[Array, Array]:
        # (a-1)^2 dJ/da divided by gamma, and its derivative in t = log(a - 1)
        d = np.exp(t)
        a = 1.0 + d
        rho = best_ratio(prior, a, A, E, gamma)
        d1, d2 = delta1(a), delta2(a)
        lift = A / gamma - (a + 1.0)
        pull = prior.rate * rho
        value = d * d * d1 * lift - pull
        curvature = 2.0 * E / (gamma * rho) - (A / gamma - 1.0)  # rho^2 d2J/drho2 / gamma
        drho = pull / (d * d) / np.maximum(curvature, 1e-300) * rho  # d rho / d a
        return value, d * (2.0 * d * d1 * lift + d * d * (d2 * lift - d1) - prior.rate * drho)

    start = np.log(np.maximum(A / gamma, 1.0))
    low = np.log(np.maximum(A / gamma - 2.0, 0.0) + 1e-12)
    a = 1.0 + np.exp(find_root(slope, start, low, start + 40.0))
    return Scale(a, best_ratio(prior, a, A, E, gamma))


def best_ratio(
    prior: Prior,
    shape: ArrayLike,
    log_weight: ArrayLike,
    inverse_weight: ArrayLike,
    confidence: ArrayLike,
) -> Array:
    """The ratio rho = b/a that minimises J given the shape a: b's closed form in the paper
    (with the factor a_nu that its b_nu lacks), without cancellation.

    Exponential: confidence * rate * a/(a-1) * rho^2 + (log_weight - confidence) * rho
    = inverse_weight. Half-Cauchy: the same with the auxiliary profiled out.
    """
    a, A, E, gamma = (np.asarray(x, float) for x in (shape, log_weight, inverse_weight, confidence))
    if isinstance(prior, Exponential):
        square, linear = gamma * prior.rate * (a / (a - 1.0)), A - gamma
    else:
        square, linear = A + gamma / 2.0, A - gamma / 2.0 - E
    return _positive_root(square, linear, E)


def best_shape(
    prior: Prior, ratio: ArrayLike, log_weight: ArrayLike, confidence: ArrayLike
) -> Array:
    """The shape a that minimises J given the ratio rho = b/a (the other half of `fit_scale`)."""
    rho, A, gamma = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (ratio, log_weight, confidence))
    )
    if isinstance(prior, HalfCauchy):
        return A / gamma + 0.5
    asymptote = A / gamma - 1.0 + 2.0 * prior.rate * rho  # off by O(1): exact for such shapes
    if np.min(A / gamma, initial=np.inf) > 1e7 and np.max(rho, initial=0.0) < np.inf:
        return asymptote

    def slope(t: Array) -> tuple[Array, Array]:
        d = np.exp(t)
        a = 1.0 + d
        d1, lift = delta1(a), A / gamma - (a + 1.0)
        value = d * d * d1 * lift - prior.rate * rho
        return value, d * (2.0 * d * d1 * lift + d * d * (delta2(a) * lift - d1))

    start = np.log(np.maximum(A / gamma, 1.0) + 2.0 * prior.rate * rho)
    low = np.log(np.maximum(A / gamma - 2.0, 0.0) + 1e-12)
    return 1.0 + np.exp(newton_root(slope, start, low, start + 40.0))


def split_precision(
    local: Prior,
    top: Prior,
    precision: Array,
    coef_confidence: ArrayLike,
    local_confidence: ArrayLike,
    global_confidence: float,
    start: Scale | None = None,
) -> tuple[Scale, Scale]:
    """The best q(tau^2), q(nu^2) with the precisions d_j = E[1/tau_j^2] E[1/nu^2] held.

    Only the two KL terms then move with rho = b_nu/a_nu: for exponential priors rho is the root
    of sum_j gt_j (1 - rate_t kappa_j/(rho d_j)) + gn (rate_n kappa_n rho - 1), kappa = a/(a-1).
    Solving for d and rho instead of tau and nu in turn is what makes the solvers fast.

    >>> tau, nu = split_precision(Exponential(10.0), Exponential(10.0), np.ones(3), 1.0, 1e-9, 1.0)
    >>> bool(np.allclose(tau.mean_inverse * nu.mean_inverse, 1.0))
    True
    """
    gb = np.broadcast_to(np.asarray(coef_confidence, float), precision.shape)
    gt = np.broadcast_to(np.asarray(local_confidence, float), precision.shape)
    weight_top = 0.5 * gb.sum()
    nu = start or Scale(np.asarray(max(weight_top / global_confidence, 2.0)), np.asarray(0.1))
    tau = Scale(np.maximum(gb / (2.0 * gt), 2.0), 1.0 / (precision * nu.ratio))
    for _ in range(100):
        last = nu.ratio
        tau, nu = balance_global(local, top, precision, tau, nu, gt, global_confidence)
        moved = abs(np.log(nu.ratio / last))
        nu = Scale(best_shape(top, nu.ratio, weight_top, global_confidence), nu.ratio)
        tau = Scale(best_shape(local, tau.ratio, gb / 2.0, gt), tau.ratio)
        if moved < 1e-7:  # J is flat here: its error is the square of this
            break
    return tau, nu


def balance_global(
    local: Prior,
    top: Prior,
    precision: Array,
    tau: Scale,
    nu: Scale,
    local_confidence: Array,
    global_confidence: float,
) -> tuple[Scale, Scale]:
    """`split_precision` with the shapes of ``tau`` and ``nu`` held: only the ratios move."""

    def slope(t: Array) -> tuple[Array, Array]:
        # rho dJ/drho at fixed precisions, and its derivative in t = log rho
        one, two = kl_slope(local, Scale(tau.shape, 1.0 / (precision * np.exp(t))))
        top_one, top_two = kl_slope(top, Scale(nu.shape, np.exp(t)))
        return (
            global_confidence * top_one - np.sum(local_confidence * one),
            global_confidence * top_two + np.sum(local_confidence * two),
        )

    rho = np.exp(newton_root(slope, np.log(nu.ratio), np.array(-80.0), np.array(80.0)))
    return Scale(tau.shape, 1.0 / (precision * rho)), Scale(nu.shape, np.asarray(rho))


def algorithm_1_step(
    prior: Prior, q: Scale, log_weight: ArrayLike, inverse_weight: ArrayLike, confidence: ArrayLike
) -> Scale:
    """The b-step, then the a-step of Algorithm 1: each minimises J with the other held.

    Supplement C.4 (exponential prior; J never rises). With b held a grows by only about 1/2 a
    call when the confidence is small, where `fit_scale` goes to the joint minimum at once. The
    half-Cauchy prior is not in the paper's algorithm and takes its closed-form joint minimum.
    """
    if isinstance(prior, HalfCauchy):
        return fit_scale(prior, log_weight, inverse_weight, confidence)
    held = q.shape * best_ratio(prior, q.shape, log_weight, inverse_weight, confidence)
    A, E, gamma, old, b = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (log_weight, inverse_weight, confidence, q.shape, held))
    )

    def slope(t: Array) -> tuple[Array, Array]:
        # (a-1)^2 dJ/da at fixed b, and its derivative in t = log(a - 1);
        # psi'(a)(a + 1) - 1 = 1/a - (a + 1) delta1(a)
        d = np.exp(t)
        a = 1.0 + d
        d1, d2 = delta1(a), delta2(a)
        trigamma, tetragamma = 1.0 / a - d1, -1.0 / (a * a) - d2
        force = E / b - A * trigamma + gamma * (1.0 / a - (a + 1.0) * d1)
        change = gamma * trigamma - (A - gamma * (a + 1.0)) * tetragamma
        return (
            d * d * force - gamma * prior.rate * b,
            d * (2.0 * d * force + d * d * change),
        )

    growth = np.where(gamma < 0.1 * A, 0.5, 0.0)
    start = np.log(old - 1.0 + growth)
    a = 1.0 + np.exp(newton_root(slope, start, start - 40.0, start + 40.0))
    return Scale(a, b / a)


def stationary_precision(
    prior: Prior,
    s: ArrayLike,
    signal: ArrayLike,
    ratio: ArrayLike,
    limit: ArrayLike,
    shape: ArrayLike = np.inf,
) -> Array:
    """The prior precision w = gamma_b u_j at which J, with beta profiled out, is stationary.

    One coordinate, everything else held: the posterior precision is s + w and its mean q/(s + w)
    in units where the noise is 1. With Q = ``signal`` = E[1/sigma^2] q^2 / gamma_b and
    g = ``ratio`` = gamma_t/gamma_b < 1/2, w solves

        w/(s + w) + Q w/(s + w)^2 = 1 - 2g + 2g L/w                  (exponential)
                                  = 1 -  g + 2g M/(w + M)            (half-Cauchy)

    with M = ``limit`` = gamma_b E[1/nu^2] and L = rate * a/(a - 1) * M. As g -> 0 this is
    w = s^2/(Q - s) when Q > s and (s - Q)/(2g), a coefficient that is practically zero, when not:
    the confidence in beta is a threshold on z^2 = gamma_b Q/s.

    >>> w = stationary_precision(Exponential(10.0), 4.0, np.array([8.0, 2.0]), 1e-9, 1.0)
    >>> [f"{x:.4g}" for x in w]
    ['4', '1e+09']
    """
    s, Q, g, M, a = np.broadcast_arrays(
        *(np.asarray(x, float) for x in (s, signal, ratio, limit, shape))
    )
    z = Q / s
    if isinstance(prior, Exponential):
        kappa = np.where(np.isinf(a), 1.0, a / (np.where(np.isinf(a), 2.0, a) - 1.0))
        base, top, shift = 2.0 * g, 2.0 * g * prior.rate * kappa * M / s, np.zeros_like(s)
    else:
        base, top, shift = g, 2.0 * g * M / s, M / s

    def balance(t: Array) -> tuple[Array, Array]:
        x = np.exp(t)  # w / s
        up = 1.0 / (1.0 + x)
        force = top / (x + shift)
        value = base - up + z * x * up * up - force
        return value, x * (up * up + z * up * up * (1.0 - 2.0 * x * up) + force / (x + shift))

    # the root without the prior's pull on large scales: exact for small g, a start otherwise
    low = np.minimum(base, 0.9)
    excess = z - 1.0 + 2.0 * low
    start = np.log(2.0 * (1.0 - low) / (excess + np.sqrt(excess**2 + 4.0 * low * (1.0 - low))))
    return s * np.exp(newton_root(balance, start, start - 60.0, start + 60.0))


def _positive_root(square: Array, linear: Array, constant: Array) -> Array:
    """The positive root of square x^2 + linear x = constant, all but linear >= 0."""
    root = np.sqrt(linear * linear + 4.0 * square * constant)
    with np.errstate(divide="ignore", invalid="ignore"):
        falling = 2.0 * constant / (linear + root)
        rising = (root - linear) / (2.0 * square)
    return np.where(linear > 0.0, falling, rising)

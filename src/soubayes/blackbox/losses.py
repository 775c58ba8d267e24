"""Losses beyond the likelihood: robust scores of a distribution, and losses of a prediction."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln, logsumexp
from jax.typing import ArrayLike
from numpyro.primitives import Messenger


def beta_loss(distribution: dist.Distribution, target: ArrayLike, beta: float = 0.5) -> jax.Array:
    r"""The beta-divergence score, which discounts what the model finds very unlikely.

    Parameters
    ----------
    distribution : numpyro.distributions.Distribution
        The distribution of the observed site.
    target : array-like
        The observed values.
    beta : float, default=0.5
        The power, above 0. As it goes to 0 the score becomes minus the log density.

    Returns
    -------
    loss : jax.Array
        One value for each observation.

    Notes
    -----
    The density power score of [2]_,

    .. math:: \frac{1 - f(y)^\beta}{\beta} + \frac{1}{1 + \beta} \int f^{1+\beta} - 1,

    for the loss of the generalised posterior in section 3 of [1]_.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".
    .. [2] A. Basu, I. R. Harris, N. L. Hjort and M. C. Jones (1998), "Robust and efficient
       estimation by minimising a density power divergence", Biometrika 85.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> nll = lambda y: float(-dist.Normal(0, 1).log_prob(y))
    >>> print(f"{nll(10.0):.1f} {float(beta_loss(dist.Normal(0, 1), 10.0)):.1f}")
    50.9 1.3
    """
    _positive("beta", beta)
    log_f = distribution.log_prob(target)
    integral = jnp.exp(_log_power_integral(distribution, 1.0 + beta))
    return -jnp.expm1(beta * log_f) / beta + integral / (1.0 + beta) - 1.0


def gamma_loss(distribution: dist.Distribution, target: ArrayLike, gamma: float = 0.5) -> jax.Array:
    r"""The gamma-divergence score, more robust still than :func:`beta_loss`.

    Parameters
    ----------
    distribution : numpyro.distributions.Distribution
        The distribution of the observed site.
    target : array-like
        The observed values.
    gamma : float, default=0.5
        The power, above 0 (not a confidence). As it goes to 0 the score becomes minus the log
        density.

    Returns
    -------
    loss : jax.Array
        One value for each observation, at most 1 / gamma.

    Notes
    -----
    The pseudo-spherical score of [1]_,

    .. math::

        \frac{1}{\gamma}\Big(1 - f(y)^\gamma
            \Big/ \big(\textstyle\int f^{1+\gamma}\big)^{\gamma/(1+\gamma)}\Big).

    References
    ----------
    .. [1] H. Fujisawa and S. Eguchi (2008), "Robust parameter estimation with a small bias against
       heavy contamination", Journal of Multivariate Analysis 99.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> print(f"{float(gamma_loss(dist.Normal(0, 1), 100.0)):.1f}")  # bounded by 1/gamma
    2.0
    """
    _positive("gamma", gamma)
    log_integral = _log_power_integral(distribution, 1.0 + gamma)
    log_ratio = gamma * distribution.log_prob(target) - gamma / (1.0 + gamma) * log_integral
    return -jnp.expm1(log_ratio) / gamma


def huber_loss(prediction: ArrayLike, target: ArrayLike, threshold: float = 1.0) -> jax.Array:
    r"""Huber's loss: half the squared error up to a threshold, then linear.

    Parameters
    ----------
    prediction : array-like
        The predictions.
    target : array-like
        The observed values.
    threshold : float, default=1.0
        Where the loss becomes linear, above 0.

    Returns
    -------
    loss : jax.Array
        One value for each observation.

    Notes
    -----
    With r the error and c the threshold, :math:`r^2/2` for :math:`|r| \le c` and
    :math:`c|r| - c^2/2` beyond [1]_.

    References
    ----------
    .. [1] P. J. Huber (1964), "Robust estimation of a location parameter", Annals of Mathematical
       Statistics 35.

    Examples
    --------
    >>> print(huber_loss(0.0, jnp.array([0.5, 10.0])))
    [0.125 9.5  ]
    """
    _positive("threshold", threshold)
    error = jnp.abs(jnp.asarray(target) - prediction)
    small = jnp.minimum(error, threshold)
    return 0.5 * small**2 + threshold * (error - small)


def quantile_loss(prediction: ArrayLike, target: ArrayLike, level: float = 0.5) -> jax.Array:
    r"""The check loss, which is smallest at a quantile of the target.

    Parameters
    ----------
    prediction : array-like
        The predictions.
    target : array-like
        The observed values.
    level : float, default=0.5
        The quantile, between 0 and 1.

    Returns
    -------
    loss : jax.Array
        One value for each observation.

    Notes
    -----
    With r = target - prediction, :math:`\max(\ell r, (\ell - 1) r)` for the level :math:`\ell`
    [1]_.

    References
    ----------
    .. [1] R. Koenker and G. Bassett (1978), "Regression quantiles", Econometrica 46.

    Examples
    --------
    >>> print(quantile_loss(0.0, jnp.array([1.0, -1.0]), level=0.9))
    [0.9 0.1]
    """
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, but it must lie between 0 and 1.")
    error = jnp.asarray(target) - prediction
    return jnp.maximum(level * error, (level - 1.0) * error)


def hinge_loss(prediction: ArrayLike, target: ArrayLike) -> jax.Array:
    r"""The hinge loss of a support vector machine.

    Parameters
    ----------
    prediction : array-like
        The decision values f.
    target : array-like
        Labels -1 and 1; 0 and 1, or booleans, are mapped to them.

    Returns
    -------
    loss : jax.Array
        One value for each observation.

    Notes
    -----
    :math:`\max(0, 1 - yf)` [1]_. It is not a log likelihood; use it in ``loss`` of :func:`fit`.

    References
    ----------
    .. [1] C. Cortes and V. Vapnik (1995), "Support-vector networks", Machine Learning 20.

    Examples
    --------
    >>> print(hinge_loss(jnp.array([2.0, 0.5, -1.0]), jnp.array([1, 1, 0])))
    [0.  0.5 0. ]
    """
    sign = jnp.where(jnp.asarray(target) > 0, 1.0, -1.0)
    return jnp.maximum(0.0, 1.0 - sign * prediction)


def with_loss(model: Callable, loss: Any) -> Callable:
    """The model under another loss.

    ``loss`` is None (the likelihood), a mapping from an observed site to ``score(distribution,
    value)``, which replaces its -log-density (plates and subsampling still scale it), or a
    function ``loss(values, *args, **kwargs)`` of the latent and deterministic sites and the
    model's arguments, for a model without observed sites.
    """
    if loss is None:
        return model
    if callable(loss):

        def scored(*args: Any, **kwargs: Any) -> Any:
            collected = _Collect()
            with collected:
                result = model(*args, **kwargs)
            numpyro.factor("loss", -jnp.sum(loss(collected.values, *args, **kwargs)))
            return result
    else:
        scores = dict(loss)

        def scored(*args: Any, **kwargs: Any) -> Any:
            handler = _Rescore(scores)
            with handler:
                result = model(*args, **kwargs)
            if handler.waiting:
                raise ValueError(
                    f"loss names {sorted(handler.waiting)}, but the model's observed sites are "
                    f"{handler.seen}."
                )
            return result

    return scored


class _Collect(Messenger):
    """Remembers the values of latent and deterministic sites."""

    def __init__(self) -> None:
        super().__init__(None)
        self.values: dict[str, Any] = {}

    def postprocess_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and msg["is_observed"]:
            raise ValueError(
                f"a loss function was given, but the model observes {msg['name']!r}, which is a "
                "loss already. Leave the observation out of the model, or replace its score with "
                f"loss={{{msg['name']!r}: score}}."
            )
        if msg["type"] in ("sample", "deterministic"):
            self.values[msg["name"]] = msg["value"]


class _Rescore(Messenger):
    """Puts a score in the place of the log-density of observed sites."""

    def __init__(self, scores: Mapping[str, Callable]) -> None:
        super().__init__(None)
        self.scores, self.waiting = scores, set(scores)
        self.seen: list[str] = []

    def process_message(self, msg: Any) -> None:
        if msg["type"] == "sample" and msg["is_observed"]:
            self.seen.append(msg["name"])
            if msg["name"] in self.scores:
                self.waiting.discard(msg["name"])
                msg["fn"] = _Scored(msg["fn"], self.scores[msg["name"]])


class _Scored(dist.Distribution):
    """A distribution whose log-density is minus a score; it still samples like the original."""

    def __init__(self, base: Any, score: Callable) -> None:
        self.base, self.score = base, score
        super().__init__(base.batch_shape, base.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return self.base.support

    def sample(self, key: Any, sample_shape: tuple = ()) -> Any:
        return self.base.sample(key, sample_shape)

    def log_prob(self, value: Any) -> Any:
        return -self.score(self.base, value)


def _log_power_integral(fn: Any, power: float) -> Any:
    """log of the integral (or sum) of f^power."""
    if isinstance(fn, dist.ExpandedDistribution):
        return jnp.broadcast_to(_log_power_integral(fn.base_dist, power), fn.batch_shape)
    if isinstance(fn, dist.Independent):
        inner = _log_power_integral(fn.base_dist, power)
        return jnp.sum(inner, axis=tuple(range(-fn.reinterpreted_batch_ndims, 0)))
    c = power - 1.0
    if isinstance(fn, dist.Normal):
        return -c * jnp.log(fn.scale * jnp.sqrt(2 * jnp.pi)) - 0.5 * jnp.log(power)
    if isinstance(fn, dist.MultivariateNormal):
        size = fn.event_shape[-1]
        half_log_det = jnp.log(jnp.diagonal(fn.scale_tril, axis1=-2, axis2=-1)).sum(-1)
        constant = 0.5 * size * (c * jnp.log(2 * jnp.pi) + jnp.log(power))
        return -c * half_log_det - constant
    if isinstance(fn, dist.Laplace):
        return -c * jnp.log(2 * fn.scale) - jnp.log(power)
    if isinstance(fn, dist.Exponential):
        return c * jnp.log(fn.rate) - jnp.log(power)
    if isinstance(fn, dist.StudentT):
        half = 0.5 * (fn.df + 1.0)
        log_constant = gammaln(half) - gammaln(0.5 * fn.df)
        log_constant = log_constant - 0.5 * jnp.log(fn.df * jnp.pi) - jnp.log(fn.scale)
        shape = half * power - 0.5  # t with 2 shape degrees of freedom, rescaled
        log_inverse = gammaln(shape) - gammaln(shape + 0.5) + 0.5 * jnp.log(fn.df * jnp.pi)
        return power * log_constant + log_inverse + jnp.log(fn.scale)
    if isinstance(fn, dist.Gamma):
        a, b = fn.concentration, fn.rate
        shape = power * (a - 1.0) + 1.0  # the integral is finite where this is positive
        log_constant = a * jnp.log(b) - gammaln(a)
        return power * log_constant + gammaln(shape) - shape * jnp.log(power * b)
    if fn.has_enumerate_support:
        values = fn.enumerate_support(expand=True)
        return logsumexp(power * fn.log_prob(values), axis=0)
    raise NotImplementedError(
        f"no closed form of the integral of f^{power:g} for {type(fn).__name__}. Known: Normal, "
        "MultivariateNormal, StudentT, Laplace, Exponential, Gamma, and anything that can be "
        "enumerated. For others write the score as a function and pass it as loss={site: score}."
    )


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} is {value}, but it must be greater than 0.")

"""Tempered conjugate updates (section 3.4 and supplements C.2, C.3)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from soubayes.confidence import check_gamma
from soubayes.results import Shown, in_words, shown_as_html, shown_as_text


class ConjugateUpdate(NamedTuple):
    r"""Prior and SoU posterior of a conjugate model; see :func:`soubayes.conjugate_update`.

    Parameters
    ----------
    prior : frozen scipy.stats distribution or dict
        The prior; a dict of marginals for ``"normal_unknown_variance"``.
    posterior : frozen scipy.stats distribution or dict
        The SoU posterior, of the same kind.
    effective_size : float
        :math:`N_n` below: prior and data together, counted in observations.
    prior_weight : float
        :math:`\alpha_n` below: the weight of the prior in the posterior mean.

    Notes
    -----
    :math:`N_n = N_0 + n/\gamma` and :math:`\alpha_n = \gamma N_0 / (\gamma N_0 + n)`, section 3.4
    of [1]_.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> ConjugateUpdate(stats.norm(0, 1), stats.norm(1, 0.5), 4.0, 0.25).prior_weight
    0.25
    """

    prior: Any  # a frozen distribution, or a dict of them
    posterior: Any
    effective_size: float  # N_n = N_0 + n / gamma
    prior_weight: float  # alpha_n = gamma N_0 / (gamma N_0 + n)

    def _shown(self) -> Shown:
        size = f"effective size {self.effective_size:.5g}, prior weight {self.prior_weight:.5g}"
        both = f"prior {in_words(self.prior)}, posterior {in_words(self.posterior)}"
        return [f"ConjugateUpdate({both}, {size})"]

    def __repr__(self) -> str:
        return shown_as_text(self._shown())

    def _repr_html_(self) -> str:
        return shown_as_html(self._shown())


def conjugate_update(
    family: str, data: ArrayLike, *, confidence: float = 1.0, **prior: float | ArrayLike
) -> ConjugateUpdate:
    r"""Update a conjugate prior with a confidence.

    Parameters
    ----------
    family : str
        The likelihood and its conjugate prior:

        - ``"normal"``: known ``noise_sd``, mu ~ N(``mean``, ``sd``\ :sup:`2`).
          :math:`N_0` is (noise_sd / sd)\ :sup:`2`.
        - ``"normal_unknown_variance"``: mu given s2 ~ N(``mean``, s2 / ``size``), s2 ~
          Inv-Gamma(``shape``, ``scale``). :math:`N_0` is ``size``. Prior and posterior are dicts
          with the marginals of ``"mean"`` (t) and ``"variance"`` (inverse gamma).
        - ``"bernoulli"``: p ~ Beta(``a``, ``b``). :math:`N_0` is a + b.
        - ``"poisson"``: rate ~ Gamma(``shape``, ``rate``). :math:`N_0` is ``rate``.
        - ``"exponential"``: rate ~ Gamma(``shape``, ``rate``). :math:`N_0` is ``shape``.
        - ``"multinomial"``: p ~ Dirichlet(``alpha``). Data are counts, one row for each observation
          or their totals. :math:`N_0` is sum(alpha).
    data : array-like
        The observations.
    confidence : float, default=1.0
        The confidence in the prior, above 0. ``inf`` returns the prior.
    **prior : float or array-like
        The parameters of the prior, by the names above.

    Returns
    -------
    update : ConjugateUpdate
        Prior, posterior, and the weights of prior and data.

    Notes
    -----
    The update is that of an exponential family with tempered data (supplement C.2 of [1]_):

    .. math::

        N_n = N_0 + n/\gamma, \qquad T_n = \alpha_n T_0 + (1 - \alpha_n) T, \qquad
        \alpha_n = \frac{\gamma N_0}{\gamma N_0 + n},

    with T the mean sufficient statistic. A small confidence makes the posterior narrower and moves
    it to the data. The prior's own size :math:`N_0` cannot do both.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> update = conjugate_update("bernoulli", [1, 1, 0, 1], confidence=0.5, a=1, b=1)
    >>> update.posterior.args, update.effective_size, update.prior_weight
    ((7.0, 3.0), 10.0, 0.2)
    """
    if family not in FAMILIES:
        raise ValueError(f"family is {family!r}, but it must be one of {sorted(FAMILIES)}.")
    update, names = FAMILIES[family]
    missing, unknown = sorted(names - set(prior)), sorted(set(prior) - names)
    if missing or unknown:
        raise TypeError(
            f"family {family!r} needs the parameters {sorted(names)}; missing {missing}, "
            f"unknown {unknown}."
        )
    data = np.asarray(data, dtype=float)
    if data.size == 0 or not np.isfinite(data).all():
        raise ValueError("data must hold at least one number and neither NaN nor inf.")
    for name, value in prior.items():
        allowed = (
            np.isfinite(value) if name == "mean" else np.isfinite(value) & (np.asarray(value) > 0)
        )
        if not np.all(allowed):
            raise ValueError(
                f"{name} is {value!r}, but it must be finite"
                + ("." if name == "mean" else " and > 0.")
            )
    return update(data, check_gamma(family, confidence), **prior)


def normal(y: np.ndarray, gamma: float, mean: float, sd: float, noise_sd: float) -> ConjugateUpdate:
    size = noise_sd**2 / sd**2
    n, weight = tempered(len(y), gamma, size)
    centre = weight * mean + (1 - weight) * y.mean()
    posterior = stats.norm(centre, noise_sd / np.sqrt(n))
    return ConjugateUpdate(stats.norm(mean, sd), posterior, n, weight)


def normal_unknown_variance(
    y: np.ndarray, gamma: float, mean: float, size: float, shape: float, scale: float
) -> ConjugateUpdate:
    n, weight = tempered(len(y), gamma, size)
    centre = weight * mean + (1 - weight) * y.mean()
    within = ((y - y.mean()) ** 2).sum() / gamma
    between = size * (1 - weight) * (y.mean() - mean) ** 2
    new_shape, new_scale = shape + len(y) / (2 * gamma), scale + 0.5 * (within + between)

    def marginals(centre: float, size: float, shape: float, scale: float) -> dict[str, Any]:
        spread = np.sqrt(scale / (shape * size))
        return {
            "mean": stats.t(2 * shape, centre, spread),
            "variance": stats.invgamma(shape, scale=scale),
        }

    prior = marginals(mean, size, shape, scale)
    return ConjugateUpdate(prior, marginals(centre, n, new_shape, new_scale), n, weight)


def bernoulli(y: np.ndarray, gamma: float, a: float, b: float) -> ConjugateUpdate:
    if not np.isin(y, (0, 1)).all():
        raise ValueError("data of family 'bernoulli' must be 0 or 1.")
    n, weight = tempered(len(y), gamma, a + b)
    heads = y.sum() / gamma
    posterior = stats.beta(float(a + heads), float(b + len(y) / gamma - heads))
    return ConjugateUpdate(stats.beta(a, b), posterior, n, weight)


def poisson(y: np.ndarray, gamma: float, shape: float, rate: float) -> ConjugateUpdate:
    if (y < 0).any() or (y != np.round(y)).any():
        raise ValueError("data of family 'poisson' must be counts 0, 1, 2, ...")
    n, weight = tempered(len(y), gamma, rate)
    posterior = stats.gamma(shape + y.sum() / gamma, scale=1 / (rate + len(y) / gamma))
    return ConjugateUpdate(stats.gamma(shape, scale=1 / rate), posterior, n, weight)


def exponential(y: np.ndarray, gamma: float, shape: float, rate: float) -> ConjugateUpdate:
    if (y < 0).any():
        raise ValueError("data of family 'exponential' must be >= 0.")
    n, weight = tempered(len(y), gamma, shape)
    posterior = stats.gamma(shape + len(y) / gamma, scale=1 / (rate + y.sum() / gamma))
    return ConjugateUpdate(stats.gamma(shape, scale=1 / rate), posterior, n, weight)


def multinomial(y: np.ndarray, gamma: float, alpha: ArrayLike) -> ConjugateUpdate:
    alpha = np.asarray(alpha, dtype=float)
    totals = y if y.ndim == 1 else y.sum(axis=0)
    if totals.shape != alpha.shape or (totals < 0).any():
        raise ValueError(
            f"data of family 'multinomial' must be counts of {len(alpha)} categories, as alpha."
        )
    n, weight = tempered(totals.sum(), gamma, alpha.sum())
    posterior = stats.dirichlet(alpha + totals / gamma)
    return ConjugateUpdate(stats.dirichlet(alpha), posterior, n, weight)


def tempered(n: float, gamma: float, size: float) -> tuple[float, float]:
    """N_n and alpha_n."""
    total = size + n / gamma
    return float(total), float(size / total)


FAMILIES: dict[str, tuple[Callable[..., ConjugateUpdate], set[str]]] = {
    "normal": (normal, {"mean", "sd", "noise_sd"}),
    "normal_unknown_variance": (normal_unknown_variance, {"mean", "size", "shape", "scale"}),
    "bernoulli": (bernoulli, {"a", "b"}),
    "poisson": (poisson, {"shape", "rate"}),
    "exponential": (exponential, {"shape", "rate"}),
    "multinomial": (multinomial, {"alpha"}),
}

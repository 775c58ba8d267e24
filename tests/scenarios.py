"""Targets with known answers, that every engine of the library is tested on.

A scenario is a model for the exact engines together with numbers found without them: closed forms,
or brute-force sums. ``model`` is always a node model; ``gaussian`` is the same model for the
Gaussian engine where there is one. Losses are written with NumPy operators only, so that an engine
on another array library can rebuild them from ``data``.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from soubayes import Block, Discrete, GaussianBlock, GaussianModel, Model, QuadraticLoss


class Scenario(NamedTuple):
    name: str
    model: Model
    confidence: dict[str, float]
    value: float
    expected_loss: float
    kl: dict[str, float]
    mean: dict[str, float]
    sd: dict[str, float]
    gaussian: GaussianModel | None = None
    data: dict[str, object] | None = None  # what an engine needs to rebuild the model


OBSERVATIONS = np.array([1.2, 0.4, 2.0, 1.1])


def normal_mean(gamma: float, prior_mean=0.5, prior_sd=2.0, noise_sd=1.5) -> Scenario:
    """Supplement C.3: y_i ~ N(mu, noise_sd^2), mu ~ N(prior_mean, prior_sd^2), one confidence."""
    y = OBSERVATIONS
    n, log_term = len(y), len(y) * 0.5 * np.log(2 * np.pi * noise_sd**2)

    def loss(mu):
        return ((y - mu[..., None]) ** 2).sum(axis=-1) / (2 * noise_sd**2) + log_term

    var = 1 / (n / (gamma * noise_sd**2) + 1 / prior_sd**2)
    mean = var * (n / (gamma * noise_sd**2) * y.mean() + prior_mean / prior_sd**2)
    kl = 0.5 * (
        (mean - prior_mean) ** 2 / prior_sd**2 + var / prior_sd**2 - np.log(var / prior_sd**2) - 1
    )
    expected = (((y - mean) ** 2).sum() + n * var) / (2 * noise_sd**2) + log_term
    return Scenario(
        f"normal_mean[{gamma:g}]",
        Model([Block("mu", stats.norm(prior_mean, prior_sd))], loss),
        {"mu": gamma},
        expected + gamma * kl,
        expected,
        {"mu": kl},
        {"mu": mean},
        {"mu": np.sqrt(var)},
        GaussianModel(
            [GaussianBlock("mu", [prior_mean], prior_sd**2)],
            QuadraticLoss.least_squares(np.ones((n, 1)), y, noise_sd**2),
        ),
        {"y": y, "prior_mean": prior_mean, "prior_sd": prior_sd, "noise_sd": noise_sd},
    )


def two_level_normal(gamma_mu: float, gamma_effect: float) -> Scenario:
    """mu ~ N(0, 2^2), effect | mu ~ N(mu, 1), y = 3 observed with sd 0.5: two scalar integrals."""
    y, noise, top, inner = 3.0, 0.5, 2.0, 1.0
    log_term = 0.5 * np.log(2 * np.pi * noise**2)
    # V_1(mu) = (mu - y)^2 / (2 b) + const with b = noise^2 + inner^2 / gamma_effect
    b = noise**2 + inner**2 / gamma_effect
    constant = log_term + 0.5 * gamma_effect * np.log1p(inner**2 / (gamma_effect * noise**2))
    b *= 1.0
    var_mu = 1 / (1 / top**2 + 1 / (gamma_mu * b))
    mean_mu = var_mu * y / (gamma_mu * b)
    kl_mu = 0.5 * (mean_mu**2 / top**2 + var_mu / top**2 - np.log(var_mu / top**2) - 1)
    value = ((mean_mu - y) ** 2 + var_mu) / (2 * b) + constant + gamma_mu * kl_mu
    # effect | mu: precision 1 / inner^2 + 1 / (gamma_effect noise^2)
    var = 1 / (1 / inner**2 + 1 / (gamma_effect * noise**2))
    pull = var / (gamma_effect * noise**2)  # effect = mu + pull (y - mu) + noise
    mean_effect = mean_mu + pull * (y - mean_mu)
    var_effect = (1 - pull) ** 2 * var_mu + var
    gap = (mean_mu - y) ** 2 + var_mu  # E (mu - y)^2
    kl_effect = 0.5 * (pull**2 * gap / inner**2 + var / inner**2 - np.log(var / inner**2) - 1)
    expected = ((1 - pull) ** 2 * gap + var) / (2 * noise**2) + log_term
    return Scenario(
        f"two_level_normal[{gamma_mu:g},{gamma_effect:g}]",
        Model(
            [Block("mu", stats.norm(0, top)), Block("effect", lambda mu: stats.norm(mu, inner))],
            lambda mu, effect: (effect - y) ** 2 / (2 * noise**2) + log_term,
        ),
        {"mu": gamma_mu, "effect": gamma_effect},
        value,
        expected,
        {"mu": kl_mu, "effect": kl_effect},
        {"mu": mean_mu, "effect": mean_effect},
        {"mu": np.sqrt(var_mu), "effect": np.sqrt(var_effect)},
        GaussianModel(
            [
                GaussianBlock("mu", [0.0], top**2),
                GaussianBlock("effect", [0.0], inner**2, coef=[[1.0]]),
            ],
            QuadraticLoss.least_squares([[0.0, 1.0]], [y], noise**2),
        ),
        {"y": y, "noise_sd": noise, "top_sd": top, "inner_sd": inner},
    )


def coin_and_urn(gamma_urn: float, gamma_ball: float) -> Scenario:
    """Two discrete blocks, solved by writing the two sums out."""
    urns, urn_weights = np.array([0.2, 0.5, 0.9]), np.array([0.5, 0.3, 0.2])
    balls = np.array([0.0, 1.0])
    loss = np.array([[1.0, 0.2], [0.4, 1.5], [2.0, 0.1]])  # urn x ball
    prior = np.stack([1 - urns, urns], axis=1)

    def table(urn, ball):
        return loss[np.searchsorted(urns, urn), np.asarray(ball, dtype=int)]

    inner = -gamma_ball * np.log((prior * np.exp(-loss / gamma_ball)).sum(axis=1))
    value = -gamma_urn * np.log((urn_weights * np.exp(-inner / gamma_urn)).sum())
    q_urn = urn_weights * np.exp(-inner / gamma_urn)
    q_urn /= q_urn.sum()
    q_ball = prior * np.exp(-loss / gamma_ball)
    q_ball /= q_ball.sum(axis=1, keepdims=True)
    joint = q_urn[:, None] * q_ball
    kl_urn = (q_urn * np.log(q_urn / urn_weights)).sum()
    kl_ball = (joint * np.log(q_ball / prior)).sum()
    mean_urn, mean_ball = q_urn @ urns, joint.sum(axis=0) @ balls
    return Scenario(
        f"coin_and_urn[{gamma_urn:g},{gamma_ball:g}]",
        Model(
            [
                Block("urn", Discrete(urns, urn_weights)),
                Block("ball", lambda urn: Discrete(balls, np.stack([1 - urn, urn], axis=-1))),
            ],
            table,
        ),
        {"urn": gamma_urn, "ball": gamma_ball},
        value,
        (joint * loss).sum(),
        {"urn": kl_urn, "ball": kl_ball},
        {"urn": mean_urn, "ball": mean_ball},
        {
            "urn": np.sqrt(q_urn @ (urns - mean_urn) ** 2),
            "ball": np.sqrt(mean_ball * (1 - mean_ball)),
        },
    )


def beta_coin(gamma: float) -> Scenario:
    """A bounded block: p ~ Beta(2, 3), 7 heads of 10 tosses, tempered conjugate update."""
    a, b, heads, tails = 2.0, 3.0, 7.0, 3.0
    post = stats.beta(a + heads / gamma, b + tails / gamma)
    from scipy.special import betaln, digamma

    a1, b1 = a + heads / gamma, b + tails / gamma
    value = -gamma * (betaln(a1, b1) - betaln(a, b))
    e_log, e_log1m = digamma(a1) - digamma(a1 + b1), digamma(b1) - digamma(a1 + b1)
    expected = -(heads * e_log + tails * e_log1m)
    return Scenario(
        f"beta_coin[{gamma:g}]",
        Model(
            [Block("p", stats.beta(a, b))],
            lambda p: -(heads * np.log(p) + tails * np.log1p(-p)),
        ),
        {"p": gamma},
        value,
        expected,
        {"p": (value - expected) / gamma},
        {"p": post.mean()},
        {"p": post.std()},
        None,
        {"a": a, "b": b, "heads": heads, "tails": tails},
    )


SCENARIOS = [
    *(normal_mean(gamma) for gamma in (0.1, 1.0, 5.0)),
    *(two_level_normal(a, b) for a, b in ((1.0, 1.0), (0.2, 1.0), (1.0, 0.2), (3.0, 0.5))),
    *(coin_and_urn(a, b) for a, b in ((1.0, 1.0), (0.3, 2.0), (5.0, 0.1))),
    *(beta_coin(gamma) for gamma in (0.25, 1.0, 4.0)),
]

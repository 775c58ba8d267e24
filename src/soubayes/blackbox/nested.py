"""Sampling the exact SoU posterior of Theorem 1 by nested Monte Carlo."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from blackjax.mcmc import random_walk
from blackjax.smc import resampling, tempered
from jax import random
from numpyro.diagnostics import effective_sample_size, gelman_rubin
from numpyro.distributions.transforms import biject_to
from numpyro.handlers import seed, substitute, trace
from tqdm.auto import tqdm

from soubayes._types import Key, Seed
from soubayes.blackbox.blocks import is_scanned
from soubayes.blackbox.elbo import site_log_prob
from soubayes.blackbox.flat import flat_blocks
from soubayes.blackbox.posterior import DrawnPosterior, as_key, pointwise
from soubayes.blackbox.program import abstract_trace, checked_confidence, double_precision

KEPT = 8  # states kept of every outer chain
THIN = 2  # moves between two of them
TIMED = 4096  # evaluations of the model by which the cost is estimated
OVERHEAD = 1e-7  # seconds of an evaluation besides the model, measured on models of one line
AGAIN = 3  # fresh inner estimates at every final state, for their error


def sample_sou(
    model: Callable,
    *args: Any,
    confidence: Mapping[str, float],
    groups: Mapping[str, Iterable[str]] | None = None,
    num_draws: int = 1000,
    particles: int = 128,
    inner_particles: int = 64,
    temperatures: int = 8,
    moves: int = 2,
    replicates: int = 4,
    budget: float = 60.0,
    progress: bool = False,
    random_state: Key = 0,
    **kwargs: Any,
) -> "NestedPosterior":
    r"""Draw from the exact SoU posterior of a NumPyro model with two or three blocks.

    Parameters
    ----------
    model : callable
        A NumPyro model with continuous latent sites.
    *args : object
        Positional arguments of the model.
    confidence : mapping of str to float
        The confidence of each block, above 0 and finite. A block that is not named has confidence
        1.
    groups : mapping of str to iterable of str, optional
        Sites that form one block under a common name.
    num_draws : int, default=1000
        Draws to keep, from Metropolis chains that start at the outer particles.
    particles : int, default=128
        Particles of the outer SMC.
    inner_particles : int, default=64
        Particles of each inner SMC. The work grows as ``particles * inner_particles**(blocks -
        1)``.
    temperatures : int, default=8
        Tempering steps of each SMC.
    moves : int, default=2
        Metropolis moves at each temperature.
    replicates : int, default=4
        Independent outer runs, which give the value its standard error.
    budget : float, default=60.0
        Seconds that the sampling may take. The cost is estimated before it begins, and a run that
        would take longer is refused.
    progress : bool, default=False
        Whether to show a progress bar.
    random_state : int or jax.Array, default=0
        The seed.
    **kwargs : object
        Keyword arguments of the model.

    Returns
    -------
    posterior : NestedPosterior
        The draws, the value, and the error of the nested estimates.

    Notes
    -----
    The recursion of Theorem 1 of [1]_,

    .. math:: V_{k-1} = -\gamma_k \log \int e^{-V_k / \gamma_k}\, d\pi_k,

    with every integral but the first estimated by tempered SMC whenever an outer move needs it. The
    outer moves are pseudo-marginal [2]_: they are exact for equal confidences. Otherwise the
    variance of the inner estimates biases the answer, by an amount that ``error`` reports.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".
    .. [2] C. Andrieu and G. O. Roberts (2009), "The pseudo-marginal approach for efficient Monte
       Carlo computations", Annals of Statistics 37.

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     x = numpyro.sample("x", dist.Normal(mu, 1.0))
    ...     numpyro.sample("y", dist.Normal(x, 1.0), obs=y)
    >>> settings = {"num_draws": 200, "particles": 64, "inner_particles": 32, "temperatures": 4}
    >>> posterior = sample_sou(model, 2.0, confidence={"mu": 0.5}, **settings)
    >>> bool(abs(posterior.mean("mu") - 0.8) < 0.2)  # 2 / (2 + gamma_mu)
    True
    """
    least = {"replicates": (replicates, 2), "num_draws": (num_draws, 1), "moves": (moves, 1)}
    least |= {"particles": (particles, 2), "inner_particles": (inner_particles, 2)}
    for name, (number, smallest) in {**least, "temperatures": (temperatures, 1)}.items():
        if number < smallest:
            raise ValueError(f"{name} is {number}, but it must be at least {smallest}.")
    with double_precision():
        sites = abstract_trace(model, args, kwargs)
        grouped = {k: (v,) if isinstance(v, str) else tuple(v) for k, v in (groups or {}).items()}
        gammas, owner = checked_confidence(confidence, grouped, sites)
        _check(gammas, owner, sites)
        sizes = (particles, *[inner_particles] * (len(gammas) - 1))
        levels = _Levels(model, args, kwargs, gammas, owner, sizes, temperatures, moves)
        rng = np.random.default_rng(np.asarray(random.key_data(as_key(random_state))))
        outer = _Outer(levels, replicates, rng)
        _check_budget(outer, budget)
        with tqdm(total=outer.looks, desc="sample_sou", disable=not progress) as bar:
            outer.bar = bar
            return outer.run(num_draws)


@dataclass(frozen=True, repr=False)
class NestedPosterior(DrawnPosterior):
    """Draws from the exact SoU posterior, with the error of the nested estimates.

    Parameters
    ----------
    value : float
        :math:`V_0`, corrected to first order for the bias of the inner estimates.
    value_se : float
        Its Monte Carlo standard error joined with the whole of that correction.
    expected_loss : float
        The expected loss.
    kl : dict of str to float
        The KL of each block in nats.
    confidence : dict of str to float
        The confidence of each block.
    owner : dict of str to str
        The block of each latent site.
    draws : dict of str to ndarray
        The draws.
    error : pandas.DataFrame
        For each block the standard deviation of one estimate of its log normaliser, the bias that
        was taken off, and effective sample size, R-hat and acceptance of the chains.

    Attributes
    ----------
    names : tuple of str
        The blocks, in order.

    Notes
    -----
    :func:`sample_sou` returns it. :math:`V_0` is the minimum of J in Theorem 1 of [1]_.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from soubayes import NestedPosterior
    >>> NestedPosterior.sample.__name__
    'sample'
    """

    error: pd.DataFrame
    _model: Callable
    _arguments: tuple[tuple, dict]

    def _log_likelihood(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        latent = {name: draws[name] for name in self.owner}
        return pointwise(self._model, latent, *self._arguments)

    def sample(self, n: int, random_state: Seed = 0) -> dict[str, np.ndarray]:
        """Take some of the draws, with replacement if there are fewer.

        Parameters
        ----------
        n : int
            The number of draws.
        random_state : int or Generator, default=0
            The seed.

        Returns
        -------
        draws : dict of str to ndarray
            Draws of every site.
        """
        have = len(next(iter(self.draws.values())))
        rng = np.random.default_rng(random_state)
        rows = rng.choice(have, size=n, replace=n > have)
        return {name: values[rows] for name, values in self.draws.items()}


class _Position(NamedTuple):
    """A particle of an inner block: where it is, and the estimate of what lies after it."""

    u: jax.Array  # unconstrained, flat
    seed: jax.Array  # of the inner estimate, so that it can be made again
    log_prior: jax.Array
    log_likelihood: jax.Array  # -V_k / gamma_k


class _Levels:
    """The recursion: block k given the earlier ones, and so on inwards."""

    def __init__(
        self,
        model: Callable,
        args: Any,
        kwargs: Any,
        gammas: dict[str, float],
        owner: dict[str, str],
        sizes: tuple[int, ...],
        temperatures: int,
        moves: int,
    ) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.gammas, self.owner, self.sizes = gammas, owner, sizes
        self.moves = moves
        self.gamma = list(gammas.values())
        self.sites = [[s for s, b in owner.items() if b == block] for block in gammas]
        self.schedule = (jnp.arange(1, temperatures + 1) / temperatures) ** 3
        drawn = jax.eval_shape(lambda: self._draw_all(random.key(0)))
        self.shapes = {name: value.shape for name, value in drawn.items()}

    def normaliser(self, k: int, earlier: dict[str, Any], key: Any) -> tuple[Any, Any]:
        """log Z_k(theta_<k) estimated by tempered SMC, and the weighted particles of block k."""
        start_key, smc_key = random.split(key)
        start = jax.vmap(lambda key: self.prior_draw(k, earlier, key))(
            random.split(start_key, self.sizes[k])
        )
        kernel = tempered.build_kernel(
            lambda position: position.log_prior,
            lambda position: position.log_likelihood,
            lambda key, state, density, root: self.move(k, earlier, root, key, state, density),
            random_walk.init,
            resampling.systematic,
        )

        def step(state: Any, inputs: Any) -> Any:
            key, temperature = inputs
            root = _proposal_root(state.particles.u, state.weights)
            state, info = kernel(key, state, self.moves, temperature, {"root": root[None]})
            return state, info.log_likelihood_increment

        inputs = (random.split(smc_key, len(self.schedule)), self.schedule)
        first = tempered.init(start)._replace(tempering_param=jnp.zeros(()))
        state, increments = jax.lax.scan(step, first, inputs)
        return jnp.sum(increments), state

    def move(self, k: int, earlier: Any, root: Any, key: Any, state: Any, density: Any) -> Any:
        """One Metropolis move of block k with a fresh inner estimate at the proposal."""

        def propose(key: Any, position: _Position) -> _Position:
            step_key, inner_key = random.split(key)
            u = position.u + root @ random.normal(step_key, position.u.shape)
            return self.position(k, earlier, u, inner_key)

        return random_walk.build_rmh()(key, state, density, propose)

    def position(self, k: int, earlier: dict[str, Any], u: Any, key: Any) -> _Position:
        """A particle at u with its -V_k / gamma_k, estimated with ``key`` unless k is the last."""
        values, log_prior, loss = self.visit(k, earlier, u)
        if k == len(self.gamma) - 1:
            log_likelihood = -loss / self.gamma[k]
        else:
            log_z, _ = self.normaliser(k + 1, {**earlier, **values}, key)
            log_likelihood = self.gamma[k + 1] / self.gamma[k] * log_z
        finite = jnp.where(jnp.isnan(log_likelihood), -jnp.inf, log_likelihood)
        return _Position(u, random.key_data(key), log_prior, finite)

    def prior_draw(self, k: int, earlier: dict[str, Any], key: Any) -> _Position:
        """A draw of block k from its conditional prior."""
        draw_key, inner_key = random.split(key)
        flat = self._draw_all(draw_key, earlier)
        u = jnp.concatenate([jnp.ravel(flat[name]) for name in self.sites[k]])
        return self.position(k, earlier, u, inner_key)

    def visit(self, k: int, earlier: dict[str, Any], u: Any) -> tuple[dict[str, Any], Any, Any]:
        """Values, log prior (with the Jacobian) and, at the last block, the loss at u."""
        parts, at = {}, 0
        for name in self.sites[k]:
            size = int(np.prod(self.shapes[name]))
            parts[name] = jnp.reshape(u[at : at + size], self.shapes[name])
            at += size
        values: dict[str, Any] = {}
        jacobians = []

        def place(site: Any) -> Any:
            name = site["name"]
            if site["type"] != "sample" or name not in parts:
                return earlier.get(name)
            transform = biject_to(site["fn"].support)
            values[name] = transform(parts[name])
            jacobian = transform.log_abs_det_jacobian(parts[name], values[name])
            jacobians.append(jnp.sum(jacobian))
            return values[name]

        run = substitute(seed(self.model, random.key(0)), substitute_fn=place)
        sites = trace(run).get_trace(*self.args, **self.kwargs)
        log_prior = sum(jacobians) + sum(site_log_prob(sites[name]) for name in self.sites[k])
        observed = [s for s in sites.values() if s["type"] == "sample" and s["is_observed"]]
        return values, log_prior, -sum(site_log_prob(site) for site in observed)

    def complete(self, earlier: dict[str, Any], k: int, key: Any) -> tuple[Any, Any, Any]:
        """log Z_k, and block k with all after it and their loss, by the particles of ``key``."""
        log_z, state = self.normaliser(k, earlier, key)
        row = random.choice(random.fold_in(key, 1), self.sizes[k], p=state.weights)
        chosen = jax.tree.map(lambda x: x[row], state.particles)
        values, _, loss = self.visit(k, earlier, chosen.u)
        values = {**earlier, **values}
        if k + 1 < len(self.gamma):
            values, loss = self.complete(values, k + 1, random.wrap_key_data(chosen.seed))[1:]
        return log_z, values, loss

    def _draw_all(self, key: Any, earlier: dict[str, Any] | None = None) -> dict[str, Any]:
        run = substitute(seed(self.model, key), data=earlier or {})
        sites = trace(run).get_trace(*self.args, **self.kwargs)
        return {n: biject_to(sites[n]["fn"].support).inv(sites[n]["value"]) for n in self.owner}


class _Outer:
    """The outer SMC and its chains, on the host: one compiled program, `look`, does the work."""

    def __init__(self, levels: _Levels, replicates: int, rng: np.random.Generator) -> None:
        self.levels, self.rng = levels, rng
        self.replicates, self.count = replicates, replicates * levels.sizes[0]
        self.look = jax.jit(jax.vmap(self._look))
        self.accepted: list[float] = []
        self.looks = 1 + len(levels.schedule) * levels.moves + KEPT * THIN + AGAIN
        self.bar: Any = None

    def evaluations(self) -> float:
        """How often the model is run in all."""
        inner = 1.0
        for size in self.levels.sizes[1:]:
            inner *= size * (1 + len(self.levels.schedule) * self.levels.moves)
        extra = 3 if len(self.levels.sizes) > 2 else 1  # further estimates of the innermost one
        return float(self.looks * self.count * inner * extra)

    def run(self, num_draws: int) -> NestedPosterior:
        """SMC to the posterior, then chains from its particles, then the error."""
        states = self._see(np.asarray(jax.jit(jax.vmap(self._start))(self._keys())))
        log_z, before = np.zeros(self.replicates), 0.0
        for temperature in np.asarray(self.levels.schedule):
            weight = (temperature - before) * states["likelihood"].reshape(self.replicates, -1)
            log_mean = np.logaddexp.reduce(weight, axis=1) - np.log(weight.shape[1])
            log_z, before = log_z + log_mean, temperature
            states = _rows(states, self._resample(np.exp(weight - log_mean[:, None])))
            for _ in range(self.levels.moves):
                states = self._move(states, temperature)
        self.accepted = []
        kept = []
        for _ in range(KEPT):
            for _ in range(THIN):
                states = self._move(states, 1.0)
            kept.append(states)
        again = [self._see(states["u"])["log_z"] for _ in range(AGAIN)]
        return self._result(log_z, kept, np.stack(again, axis=1), num_draws)

    def _start(self, key: Any) -> Any:
        drawn = self.levels._draw_all(key)
        return jnp.concatenate([jnp.ravel(drawn[name]) for name in self.levels.sites[0]])

    def _look(self, u: Any, key: Any) -> dict[str, Any]:
        """Everything about one outer particle, with the inner estimate that ``key`` makes."""
        values, log_prior, loss = self.levels.visit(0, {}, u)
        gamma, zero = self.levels.gamma, jnp.zeros(())
        log_z, inner, spread = zero, zero, zero
        likelihood = -loss / gamma[0]
        if len(gamma) > 1:
            log_z, values, loss = self.levels.complete(values, 1, key)
            likelihood = gamma[1] / gamma[0] * log_z
        if len(gamma) > 2:  # two more estimates of the innermost normaliser, for its error
            earlier = {n: values[n] for n in self.levels.sites[0] + self.levels.sites[1]}
            pair = jax.vmap(lambda key: self.levels.normaliser(2, earlier, key)[0])(
                random.split(random.fold_in(key, 2))
            )
            inner, spread = jnp.mean(pair), pair[0] - pair[1]
        return {
            "prior": log_prior,
            "likelihood": jnp.where(jnp.isnan(likelihood), -jnp.inf, likelihood),
            "values": values,
            "loss": loss,
            "log_z": log_z,
            "inner": inner,
            "spread": spread,
        }

    def _see(self, u: np.ndarray) -> dict[str, Any]:
        found = {"u": u, **jax.tree.map(np.asarray, self.look(u, self._keys()))}
        if self.bar is not None:
            self.bar.update()
        return found

    def _keys(self) -> Any:
        return random.split(random.key(int(self.rng.integers(2**31))), self.count)

    def _resample(self, weights: np.ndarray) -> np.ndarray:
        """Systematic, within each replicate."""
        size = weights.shape[1]
        chosen = []
        for row, weight in enumerate(weights / weights.sum(axis=1, keepdims=True)):
            points = (np.arange(size) + self.rng.uniform()) / size
            at = np.searchsorted(np.cumsum(weight), points * (1 - 1e-12))
            chosen.append(row * size + np.minimum(at, size - 1))
        return np.concatenate(chosen)

    def _move(self, states: dict[str, Any], temperature: float) -> dict[str, Any]:
        """One pseudo-marginal Metropolis move of every particle."""
        u = states["u"]
        root = np.asarray(_proposal_root(jnp.asarray(u), jnp.full(len(u), 1 / len(u))))
        proposed = self._see(u + self.rng.normal(size=u.shape) @ root.T)
        gain = proposed["prior"] - states["prior"]
        gain = gain + temperature * (proposed["likelihood"] - states["likelihood"])
        accept = np.log(self.rng.uniform(size=len(u))) < gain
        self.accepted.append(float(accept.mean()))
        return jax.tree.map(lambda a, b: np.where(_like(accept, a), a, b), proposed, states)

    def _result(
        self, log_z: np.ndarray, kept: list[Any], again: np.ndarray, num_draws: int
    ) -> NestedPosterior:
        levels = self.levels
        gamma, blocks = levels.gamma, list(levels.gammas)
        value = -gamma[0] * (np.logaddexp.reduce(log_z) - np.log(self.replicates))
        monte_carlo = gamma[0] * np.std(log_z, ddof=1) / np.sqrt(self.replicates)
        variance = [0.0, float(np.mean(np.var(again, axis=1, ddof=1)))][: len(gamma)]
        if len(gamma) > 2:
            variance.append(float(np.mean([s["spread"] ** 2 for s in kept]) / 2))
        bias = [0.0] + [
            gamma[k] * (1 - gamma[k] / gamma[k - 1]) * variance[k] / 2 for k in range(1, len(gamma))
        ]
        value -= sum(bias)
        joined = jax.tree.map(lambda *parts: np.stack(parts, axis=1), *kept)  # (chain, kept, ...)
        mean_value = self._mean_values(value, joined, again, variance)
        draws = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), joined["values"])
        rows = self.rng.permutation(self.count * KEPT)[:num_draws]
        runs = joined["u"].reshape((self.replicates, -1, joined["u"].shape[-1]))
        rest = [np.nan] * (len(blocks) - 1)
        return NestedPosterior(
            value=float(value),
            value_se=float(np.hypot(monte_carlo, sum(bias))),
            expected_loss=mean_value[-1],
            kl={b: (mean_value[k] - mean_value[k + 1]) / gamma[k] for k, b in enumerate(blocks)},
            confidence=dict(levels.gammas),
            owner=dict(levels.owner),
            draws={name: values[rows] for name, values in draws.items()},
            error=pd.DataFrame(
                {
                    "block": blocks,
                    "log_normaliser_sd": np.sqrt(variance),
                    "value_bias": bias,
                    "ess": [float(np.min(effective_sample_size(joined["u"]))), *rest],
                    "rhat": [float(np.max(gelman_rubin(runs))), *rest],
                    "accepted": [float(np.mean(self.accepted)), *rest],
                }
            ),
            _model=levels.model,
            _arguments=(levels.args, levels.kwargs),
        )

    def _mean_values(self, value: float, joined: Any, again: Any, variance: list[float]) -> Any:
        """E_q[V_k] for k = 0..K, of which gamma_k KL_k is what it falls by at block k."""
        gamma = self.levels.gamma
        found = [float(value)]
        if len(gamma) > 1:
            found.append(-gamma[1] * (float(np.mean(again)) + variance[1] / 2))
        if len(gamma) > 2:
            found.append(-gamma[2] * (float(np.mean(joined["inner"])) + variance[2] / 2))
        return [*found, float(np.mean(joined["loss"]))]


def _check_budget(outer: _Outer, budget: float) -> None:
    """Refuse a run whose evaluations of the model would take longer than the budget."""
    levels = outer.levels
    last = len(levels.sites) - 1
    size = sum(int(np.prod(levels.shapes[name])) for name in levels.sites[last])
    drawn = levels._draw_all(random.key(0))
    earlier: dict[str, Any] = {}
    for k in range(last):
        u = jnp.concatenate([jnp.ravel(drawn[name]) for name in levels.sites[k]])
        earlier |= levels.visit(k, earlier, u)[0]
    run = jax.jit(jax.vmap(lambda u: levels.visit(last, earlier, u)[1:]))
    places = jnp.zeros((TIMED, size))
    jax.block_until_ready(run(places))
    times = []
    for _ in range(5):  # the fastest: other work on the machine is no cost of the model
        start = time.perf_counter()
        jax.block_until_ready(run(places))
        times.append(time.perf_counter() - start)
    # a move also draws, proposes and resamples, which costs about as much as a small model
    each = min(times) / TIMED + OVERHEAD
    seconds = each * outer.evaluations()
    if seconds > budget:
        raise ValueError(
            f"sampling would run the model {outer.evaluations():.1e} times, about {seconds:.0f} "
            f"seconds, more than budget={budget:g}. Raise budget=, lower inner_particles= (the "
            f"work grows as its power {last}), join blocks with groups=, or use soubayes.fit."
        )


def _check(gammas: Mapping[str, float], owner: Mapping[str, str], sites: Any) -> None:
    for block, gamma in gammas.items():
        if gamma == 0 or gamma == float("inf"):
            raise ValueError(
                f"confidence of {block!r} is {gamma}, but sampling needs one greater than 0 and "
                "finite. Use soubayes.fit for points and for blocks kept at their prior."
            )
    if len(gammas) > 3:
        raise ValueError(
            f"the model has {len(gammas)} blocks, {list(gammas)}, and nested sampling is for up to "
            "3. Join some with groups=, or use soubayes.fit."
        )
    scanned = [name for name in owner if is_scanned(sites[name])]
    if scanned:
        raise ValueError(
            f"{scanned} are drawn inside a scan, which nested sampling cannot enter. Use "
            "soubayes.fit, or write the recursion as a Python loop."
        )
    flat = flat_blocks(sites, owner)
    if flat:
        raise ValueError(
            f"the priors of {list(flat)} are flat, and nested sampling starts from draws of the "
            "prior. Use soubayes.fit, or a wide proper prior."
        )
    discrete = [name for name in owner if sites[name]["fn"].support.is_discrete]
    if discrete:
        raise ValueError(
            f"{discrete} are discrete, and nested sampling moves on the real line. Sum them out of "
            "the model (for a mixture: numpyro.distributions.MixtureSameFamily)."
        )


def _rows(tree: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda x: x[rows], tree)


def _like(mask: np.ndarray, array: np.ndarray) -> np.ndarray:
    return mask.reshape(mask.shape + (1,) * (array.ndim - 1))


def _proposal_root(u: jax.Array, weights: jax.Array) -> jax.Array:
    """Cholesky factor of 2.38^2/d times the covariance of weighted particles."""
    size = u.shape[-1]
    centred = u - weights @ u
    covariance = (weights[:, None] * centred).T @ centred
    ridge = 1e-8 * jnp.trace(covariance) / size + 1e-20
    return 2.38 / jnp.sqrt(size) * jnp.linalg.cholesky(covariance + ridge * jnp.eye(size))

"""What the black-box engine returns."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import numpy as np
import pandas as pd
from jax import random
from numpy.typing import ArrayLike
from numpyro import distributions as dist
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import Predictive

from soubayes._docstrings import fill_docstrings
from soubayes._types import DataTree, Key, Number
from soubayes.blackbox.arguments import ARGUMENTS
from soubayes.blackbox.program import (
    DRAWS_CHUNK,
    RANGE,
    Inputs,
    Program,
    numerics,
)
from soubayes.blackbox.verdict import Quality, guide_log_weights, quality, unchecked
from soubayes.feedback import check_minimises, reduced
from soubayes.results import Shown, to_inference_data
from soubayes.weighted import WeightedDraws

LARGE_SPREAD = 0.2  # of a log weight: about where errors of sds reach a tenth
ABSURD = 1e100  # no objective in nats is as large: squares overflow soon after


@fill_docstrings(ARGUMENTS)
@dataclass(frozen=True, repr=False)
class DrawnPosterior(WeightedDraws):
    """A posterior known by its draws: what `SoUPosterior` and `NestedPosterior` share."""

    value: float
    value_se: float
    expected_loss: float
    kl: dict[str, float]
    confidence: dict[str, float]
    owner: dict[str, str]  # latent site -> block, in the order of the model
    eta: dict[str, float]  # feedback of each block to the earlier ones
    draws: dict[str, np.ndarray]
    label: ClassVar[str] = "block"

    def __post_init__(self) -> None:
        numbers = {"value": self.value, "value_se": self.value_se, "loss": self.expected_loss}
        for name, number in numbers.items():
            if not abs(number) < ABSURD:
                raise ValueError(
                    f"{name} is {number}: the objective has no finite minimum, or the data or "
                    "priors are far out of scale. Rescale the data, and check that the loss is "
                    "bounded below."
                )
        for block, kl in self.kl.items():
            if not np.isfinite(kl) and self.confidence[block] != 0:
                raise ValueError(f"the KL of {block!r} is {kl}. Rescale the data or the prior.")
        for name, values in self.draws.items():
            if not np.all(np.isfinite(values)):
                share = np.mean(~np.isfinite(values))
                raise ValueError(
                    f"{share:.1%} of the draws of {name!r} are not finite. Give it a prior with "
                    "lighter tails, or a larger confidence."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The blocks, in order."""
        return tuple(self.confidence)

    def quantile(self, name: str, p: ArrayLike) -> Number:
        """Posterior quantiles of a quantity, coordinate by coordinate."""
        return np.quantile(self._values(name), np.asarray(p, float), axis=0)

    def sensitivity(self) -> dict[str, float]:
        """How the value moves with each confidence.

        Returns
        -------
        slopes : dict of str to float
            The derivative of the value by each confidence, within the family of the guide. It
            equals the KL of the block; a large entry says that this confidence matters.

        Raises
        ------
        ValueError
            If feedback between modules was reduced: such a posterior does not minimise J.
        """
        check_minimises(self.eta)
        return dict(self.kl)

    def _columns(self) -> dict[str, Callable[[str], Any]]:
        block = {"confidence": self._by_block(self.confidence)}
        return {**block, **super()._columns(), "kl": self._by_block(self.kl)}

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        order = [*self.owner, *(site for site in self.draws if site not in self.owner)]
        return {name: self.draws[name].shape[1:] for name in order}

    def _weighted(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        values = self._values(name)
        return values, np.full(len(values), 1 / len(values))

    def _by_block(self, numbers: dict[str, float]) -> Callable[[str], float]:
        return lambda name: numbers[self.owner[name]] if name in self.owner else np.nan

    def to_arviz(self, draws: int | None = None, random_state: Key = 0) -> DataTree:
        """Export draws to ArviZ (extra ``plot``).

        Parameters
        ----------
        draws : int, optional
            The number of draws; those of the result by default.

        Returns
        -------
        data : xarray.DataTree
            The draws as one chain of the group ``posterior``, with value and KLs as attributes, and
            the log density of each observation in the group ``log_likelihood``.
        """
        drawn = self.draws if draws is None else self.sample(draws, random_state)
        return to_inference_data(
            drawn,
            self._log_likelihood(drawn),
            engine=type(self).__name__,
            value=self.value,
            value_se=self.value_se,
            expected_loss=self.expected_loss,
            **{f"kl_{block}": kl for block, kl in self.kl.items()},
        )

    @abstractmethod
    def _log_likelihood(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The log density of each observation at every draw, by observed site."""

    def _shown(self) -> Shown:
        # a Gaussian posterior is exact: the draws differ by rounding alone
        error = self.value_se if self.value_se > 1e-12 * abs(self.value) else 0.0
        head = f"value {self.value:.6g} ± {error:.2g}, "
        head += f"expected loss {self.expected_loss:.6g}{reduced(self.eta)}{self._state()}"
        return [f"{type(self).__name__}({head})", *self._notes(), self.summary()]

    def _state(self) -> str:
        return ""

    def _notes(self) -> list[str]:
        """Lines between the head and the table."""
        return []

    def _values(self, name: str) -> np.ndarray:
        if name not in self.draws:
            raise ValueError(f"no site {name!r}; the sites are {list(self.draws)}.")
        return self.draws[name]


@fill_docstrings(ARGUMENTS)
@dataclass(frozen=True, repr=False)
class SoUPosterior(DrawnPosterior):
    r"""The best posterior of a family of guides, with what every source of uncertainty cost.

    Parameters
    ----------
    value : float
        J(q), not divided by n. It lies above the exact minimum unless the family contains the exact
        answer.
    value_se : float
        Monte Carlo standard error of ``value``.
    expected_loss : float
        The expected loss under q.
    kl : dict of str to float
        The KL of each block in nats: ``inf`` for a point estimate, 0 for a block kept at its prior,
        and the divergence that replaced it if one did.
    confidence : dict of str to float
        The confidence of each block.
    owner : dict of str to str
        The block of each latent site.
    eta : dict of str to float
        The feedback of each block to the earlier ones, 1 unless it was reduced.
    draws : dict of str to ndarray
        Draws of all sites.
    expected_loss_se : float
        Monte Carlo standard error of ``expected_loss``.
    converged : bool
        Whether the optimiser stopped by its tolerance.
    trouble : str
        What was wrong at the end of the optimisation, if it did not.
    guide : str
        The guide that was used.
    guide_reason : str
        Why it was used.
    polished : bool
        Whether Newton's method on fixed draws ended the fit.
    quality : Quality
        The verdict on the fit, with the numbers that it rests on.
    flat : tuple of str
        Blocks with a flat prior: their KL and the value are known up to a constant.
    history : pandas.DataFrame
        J while fitting.
    params : dict of str to ndarray
        Fitted parameters of the guide, and the constants of its coordinates.
    integrand : ndarray
        The integrand of J at each draw; constant at the exact answer. With reduced feedback, that
        of the last stage.
    stages : pandas.DataFrame
        A row for each fit that was needed: its blocks, guide, verdict, spread and k-hat. More than
        one only where feedback between modules is reduced.

    Attributes
    ----------
    names : tuple of str
        The blocks, in order.
    verdict : str
        ``"trusted"``, ``"rough"`` or ``"not to be used"``; ``"not checked"`` if a block's KL was
        replaced by another divergence.

    Notes
    -----
    :func:`fit` returns it. ``integrand`` is :math:`L + \sum_k \gamma_k \log(q_k / \pi_k)`, whose
    mean is J (eq. 5 of [1]_) and which is constant at the exact answer (Theorem 1).

    Examples
    --------
    >>> import numpyro, numpyro.distributions as dist
    >>> from soubayes import fit
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     numpyro.sample("y", dist.Normal(mu, 1.0), obs=y)
    >>> posterior = fit(model, 2.0, confidence={"mu": 0.25})
    >>> posterior
    SoUPosterior(value 1.52... ± ..., expected loss 1.0..., conditional guide: trusted)
    means within 0.00 sd, sds 1.00 to 1.00 of exact
    block  confidence    mean      sd    lower   upper      kl
       mu        0.25  1.6...  0.4...  0.8...  2.3...  1.7...
    """

    expected_loss_se: float
    converged: bool
    trouble: str
    guide: str
    guide_reason: str
    polished: bool
    quality: Quality
    flat: tuple[str, ...]
    history: pd.DataFrame
    params: dict[str, np.ndarray]
    integrand: np.ndarray
    stages: pd.DataFrame
    _model: Callable  # as it was given
    _program: Program
    _inputs: Inputs

    def sample(self, n: int, random_state: Key = 0) -> dict[str, np.ndarray]:
        """Independent draws from the posterior."""
        if n < 1:
            raise ValueError(f"n is {n}, but it must be at least 1.")
        with numerics():
            key = random.fold_in(as_key(random_state), 3)
            params = {k: x for k, x in self.params.items() if k not in self._inputs.frame}
            drawn = by_chunks(self._program.draws, params, self.confidence, self._inputs, key, n)
            return {name: drawn.values[name] for name in self.draws}

    def predictive(
        self, *args: Any, n: int | None = None, random_state: Key = 0, **kwargs: Any
    ) -> dict[str, np.ndarray]:
        """Draw from the posterior predictive distribution.

        Parameters
        ----------
        *args : object
            Arguments of the model, with None where the observed values were.
        n : int, optional
            The number of draws; all draws by default.
        random_state : int or jax.Array, default=0
            The seed.
        **kwargs : object
            Keyword arguments of the model.

        Returns
        -------
        draws : dict of str to ndarray
            Draws of every site that the model samples.
        """
        draws = self.draws if n is None else self.sample(n, random_state)
        with numerics():
            latent = {name: draws[name] for name in self.owner}
            predict = Predictive(self._model, latent)
            return _to_numpy(predict(random.fold_in(as_key(random_state), 4), *args, **kwargs))

    def log_likelihood(self, *args: Any, **kwargs: Any) -> dict[str, np.ndarray]:
        """Log density of each observation given each draw.

        Parameters
        ----------
        *args : object
            Arguments of the model, observed values included.
        **kwargs : object
            Keyword arguments of the model.

        Returns
        -------
        log_likelihood : dict of str to ndarray
            For each observed site an array whose first axis is the draws.
        """
        latent = {name: self.draws[name] for name in self.owner}
        return pointwise(self._model, latent, args, kwargs)

    def _log_likelihood(self, draws: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        args, kwargs = self._program.plan.arguments(self._inputs.arrays)
        latent = {name: draws[name] for name in self.owner}
        return pointwise(self._model, latent, args, kwargs)

    @property
    def verdict(self) -> str:
        """Whether the fit can be used."""
        return self.quality.verdict

    def _state(self) -> str:
        return f", {self.guide} guide{', polished' if self.polished else ''}: {self.verdict}"

    def _notes(self) -> list[str]:
        notes = [self.quality.reason, *([self.trouble] if self.trouble else [])]
        if self.flat:
            notes.append(
                f"value and KL of {', '.join(self.flat)} up to a constant: flat priors have none"
            )
        return notes


def too_small(posterior: SoUPosterior) -> bool:
    """Whether the spread of the integrand, 0 at the exact answer, asks for a stronger guide.

    In nats, or over the largest confidence if that is below 1: for equal confidences the integrand
    over that confidence is a log weight.
    """
    gammas = [gamma for gamma in posterior.confidence.values() if 0 < gamma < float("inf")]
    if not gammas or posterior._program.plan.divergence:
        return False
    return float(np.std(posterior.integrand)) > LARGE_SPREAD * min(1.0, max(gammas))


def evaluate(
    program: Program,
    params: Any,
    gammas: Mapping[str, float],
    inputs: Inputs,
    drawn: Any,
    **about: Any,
) -> SoUPosterior:
    """The posterior at these parameters, judged on fresh draws (`Terms` of NumPy arrays)."""
    objective, loss, kl, draws = drawn.objective, drawn.loss, drawn.kl, drawn.values
    if not np.all(np.isfinite(objective)):
        share = np.mean(~np.isfinite(objective))
        raise ValueError(
            f"J is not finite in {share:.1%} of the draws from the fitted guide: it reaches where "
            "the loss is infinite. Constrain the site to where the loss is finite."
        )
    with np.errstate(all="ignore"):  # an overflow is said by the result
        means = {block: float(np.mean(values)) for block, values in kl.items()}
        errors = {block: _standard_error(values) for block, values in kl.items()}
        value_se, loss_se = _standard_error(objective), _standard_error(loss)
    owner, _, flat = program.structure(inputs.arrays)
    for block, error in errors.items():
        if block not in (*program.fixed, *flat) and means[block] < -5 * error - 1e-6:
            raise ValueError(
                f"the KL of {block!r} is {means[block]:.3g} ± {error:.1g}, and a KL is never "
                "negative: the guide's draws do not come from its density, or what replaces the "
                "KL is not a divergence. A block whose guide is a Delta needs the confidence 0."
            )
    fixed = {
        b: float("inf") if gammas[b] == 0 else 0.0
        for b in (*program.plan.point, *program.plan.prior)
    }
    posterior = SoUPosterior(
        value=float(np.mean(objective)),
        value_se=value_se,
        expected_loss=float(np.mean(loss)),
        expected_loss_se=loss_se,
        kl={**means, **fixed},
        confidence=dict(gammas),
        owner=dict(owner),
        eta=dict.fromkeys(gammas, 1.0),
        stages=pd.DataFrame(),
        params=_to_numpy({**params, **inputs.frame}),
        quality=_quality(objective, draws, owner, program, gammas),
        flat=flat,
        draws=draws,
        integrand=objective,
        _model=program.plan.model,
        _program=program,
        _inputs=inputs,
        **about,
    )
    return replace(posterior, stages=stage_table([(posterior, posterior.names)]))


def stage_table(stages: Sequence[tuple[SoUPosterior, Sequence[str]]]) -> pd.DataFrame:
    """A row for each fit, with the blocks whose posterior it gives."""
    rows = [
        {
            "blocks": ", ".join(blocks),
            "guide": fit.guide,
            "polished": fit.polished,
            "converged": fit.converged,
            "verdict": fit.verdict,
            "spread": fit.quality.spread,
            "khat": fit.quality.khat,
        }
        for fit, blocks in stages
    ]
    return pd.DataFrame(rows)


def _quality(
    objective: np.ndarray,
    draws: dict[str, np.ndarray],
    owner: Mapping[str, str],
    program: Program,
    gammas: Mapping[str, float],
) -> Quality:
    if program.plan.divergence:
        return unchecked(
            "a block's KL was replaced by another divergence, and no weights are known"
        )
    free = {site: block for site, block in owner.items() if site != RANGE}
    drawn = {name: values for name, values in draws.items() if name != RANGE}
    return quality(guide_log_weights(objective, drawn, free, gammas), drawn)


def pointwise(
    model: Callable, draws: Mapping[str, np.ndarray], args: tuple, kwargs: dict[str, Any]
) -> dict[str, np.ndarray]:
    """The log density of each observation at every draw, one for each row of an event.

    Factors are not observations and are left out.
    """

    def one(values: Any) -> Any:
        run = substitute(seed(model, random.key(0)), data=values)
        found = {}
        for name, site in trace(run).get_trace(*args, **kwargs).items():
            if site["type"] != "sample" or not site["is_observed"]:
                continue
            fn = site["fn"]
            while isinstance(fn, dist.Independent):
                fn = fn.base_dist
            if not isinstance(fn, dist.Unit):
                found[name] = fn.log_prob(site["value"])
        return found

    with numerics():
        values = {name: jax.numpy.asarray(x) for name, x in draws.items()}
        return _to_numpy(jax.jit(lambda values: jax.lax.map(one, values, batch_size=64))(values))


def as_key(random_state: Key) -> jax.Array:
    """A JAX key from an int, a NumPy generator, None (fresh entropy) or a key."""
    if isinstance(random_state, jax.Array):
        return random_state
    if isinstance(random_state, int | np.integer):
        return random.key(int(random_state))
    return random.key(int(np.random.default_rng(random_state).integers(2**31)))


def by_chunks(
    compiled: Callable, params: Any, gammas: Mapping[str, float], inputs: Inputs, key: Any, n: int
) -> Any:
    """What a compiled function of a program says of n draws, by chunks."""
    traced = {b: jax.numpy.asarray(g) for b, g in gammas.items() if 0 < g < float("inf")}
    chunks = [
        compiled(params, random.fold_in(key, i), traced, inputs)
        for i in range(-(-n // DRAWS_CHUNK))
    ]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:n], *chunks)


def _standard_error(values: np.ndarray) -> float:
    return float(np.std(values) / np.sqrt(len(values)))


def _to_numpy(tree: Any) -> Any:
    return jax.tree.map(np.asarray, tree)

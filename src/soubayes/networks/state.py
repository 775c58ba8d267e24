"""The state of a training: numbers of its objective, its stages, and what a checkpoint holds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd, inf
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from soubayes.networks.feeding import Chunk, minibatches
from soubayes.networks.layers import init_layers
from soubayes.networks.likelihoods import PrecisionPrior, init_noise
from soubayes.networks.removal import Kept, all_kept, network_size, remove
from soubayes.networks.structure import Spec

BLOCK_STEPS, BLOCK_FLOPS = 200, 2e10  # what one compiled call may hold of small epochs


class TrainingProblem(NamedTuple):
    """Numbers of the objective and the optimiser; traced, so changing them compiles nothing."""

    weight: np.ndarray  # of all rows together: their number where rows have no weights
    confidence: dict[str, np.ndarray]
    noise: PrecisionPrior | None  # None: a classifier
    learning_rate: np.ndarray
    scale_speed: np.ndarray
    warmup: np.ndarray
    # what confidence["weights"] begins a stage at, over itself
    rise: np.ndarray = np.ones((), np.float32)


class StageEnd(NamedTuple):
    """The network at the end of a stage, in NumPy."""

    params: dict[str, Any]
    kept: Kept
    epoch: int


class Run(NamedTuple):
    """Everything that a training needs to go on: what a checkpoint holds."""

    params: dict[str, Any]  # {"layers": [...], "noise": {...}}
    moments: Any  # Adam's state, of the same shapes
    kept: Kept
    epoch: int
    rows: list[dict[str, Any]]  # the history; shared by all Runs of a training, longest last
    ends: list[StageEnd]  # the network at the end of every stage so far, shared likewise


class PathStage(NamedTuple):
    """Epochs at one confidence in the weights; a path has several, each begun where one ended."""

    start: int
    stop: int
    confidence: float

    def part(self, epoch: Any) -> Any:
        """How much of the stage is over at an epoch."""
        return (epoch - self.start) / (self.stop - self.start)


@dataclass(frozen=True)
class Schedule:
    """How long, in what portions, and whether dead units are removed."""

    stages: tuple[PathStage, ...]
    rows: int
    batch_size: int
    compact: bool
    mesh: jax.sharding.Mesh
    block: int = 1  # epochs a compiled call; more than 1 only when the data are one chunk
    free_scales: bool = True  # whether tau is free, so information tells who is dead
    constant_loss: float = inf  # of a prediction that does not depend on x, in nats
    monitor: str = ""  # the score whose lowest value ends a training early
    separate: bool = False  # whether every stage is a training of its own, from all units

    @property
    def epochs(self) -> int:
        """Of all stages."""
        return self.stages[-1].stop

    def stage(self, epoch: int) -> int:
        """The number of the stage that an epoch belongs to."""
        return next(i for i, stage in enumerate(self.stages) if epoch < stage.stop)


class TrainingPlan(NamedTuple):
    """What a call of `fit` is to train, on what, and how."""

    spec: Spec
    problem: TrainingProblem
    schedule: Schedule
    run: Run  # where it begins
    chunks: Callable[[int], Iterator[Chunk]]  # of an epoch
    seed: int = 0  # epoch e draws its randomness from (seed, e)
    validator: Callable[[dict[str, Any], Kept], dict[str, float]] | None = None
    folder: Any = None  # of checkpoints
    info: Any = None  # what a checkpoint must have to be of this training


def start(spec: Spec, problem: TrainingProblem, seed: int) -> Run:
    """A run before its first epoch."""
    params: dict[str, Any] = {"layers": init_layers(spec, np.random.default_rng(seed))}
    if problem.noise is not None:
        params["noise"] = init_noise(problem.noise)
    return from_network(StageEnd(params, all_kept(spec), 0))


def from_network(end: StageEnd) -> Run:
    """A run that goes on from a network, before its first epoch."""
    moments = optax.ScaleByAdamState(
        count=np.zeros((), np.int32),
        mu=jax.tree.map(np.zeros_like, end.params),
        nu=jax.tree.map(np.zeros_like, end.params),
    )
    return Run(end.params, moments, end.kept, 0, [], [])


def rescaled_noise(end: StageEnd, before: float | None, now: float | None) -> StageEnd:
    """The network with the same noise, for another shape of the precision's posterior."""
    if before is None or now is None:
        return end  # a classifier
    rate = end.params["noise"]["log_rate"] + np.float32(np.log(now / before))
    return end._replace(params={**end.params, "noise": {"log_rate": rate}})


def stage_problem(plan: TrainingPlan, epoch: int, *, afresh: bool = False) -> TrainingProblem:
    """The numbers of the objective in the stage that an epoch belongs to.

    The confidence of a later stage moves from that of the one before, and its KL terms do not warm
    up, unless it starts afresh.
    """
    number = plan.schedule.stage(epoch)
    now = plan.schedule.stages[number].confidence
    weights = {k: np.asarray(v, np.float32) for k, v in plan.spec.weight_confidences(now).items()}
    problem = plan.problem._replace(confidence={**plan.problem.confidence, **weights})
    if not number or afresh or plan.schedule.separate:
        return problem
    rise = np.asarray(plan.schedule.stages[number - 1].confidence / now, np.float32)
    return problem._replace(warmup=np.asarray(1e-9, np.float32), rise=rise)


def starts_afresh(plan: TrainingPlan, run: Run) -> bool:
    """Whether the stage of the run's next epoch starts from new weights.

    A later stage does so when the network of the stage before memorises the rows: it has more
    weights than there are rows, and under the new confidence its objective is above that of a
    constant prediction. A training that starts from such a network spreads what is left over all
    units, and ends far above the objective of a training of its own.
    """
    spec, schedule = plan.spec, plan.schedule
    stage = schedule.stages[number := schedule.stage(run.epoch)]
    if not number:
        return False
    _, parameters = spec.cost(*network_size(spec, run.ends[number - 1].kept))
    last = run.rows[stage.start - 1]
    confidence = plan.problem.confidence | spec.weight_confidences(stage.confidence)
    penalty = sum(float(value) * last[f"kl_{name}"] for name, value in confidence.items())
    return parameters > schedule.rows and last["loss"] + penalty > schedule.constant_loss


def afresh(plan: TrainingPlan, run: Run, seed: int) -> Run:
    """The run with new weights of the units and inputs that are left."""
    new = start(plan.spec, plan.problem, seed)

    def cut(tree: Any) -> Any:
        return {**tree, "layers": remove(plan.spec, tree["layers"], *run.kept)}

    moments = new.moments._replace(mu=cut(new.moments.mu), nu=cut(new.moments.nu))
    return run._replace(params=cut(new.params), moments=moments)


def epochs_a_call(epochs: list[int], n: int, batch_size: int, weights: int) -> int:
    """As many epochs as are worth one compiled call: at most 200 steps or about a second.

    It divides the number of epochs of every stage, so all calls have one shape.

    >>> epochs_a_call([5000, 300], n=300, batch_size=100, weights=10_000)
    50
    >>> epochs_a_call([100], n=60_000, batch_size=100, weights=200_000)
    1
    """
    steps, _ = minibatches(n, batch_size)
    most = min(BLOCK_STEPS // steps, int(BLOCK_FLOPS / (12 * weights * n)))
    shared = gcd(*epochs)
    return max((k for k in range(1, most + 1) if shared % k == 0), default=1)

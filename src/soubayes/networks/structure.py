"""What a network looks like: its layers before training, and what a size of it costs.

A convolution is a dense layer that reads patches: its weights have a row for every entry of a patch
(offset first, channel last) and a column for every channel that it writes.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Conv:
    """A convolution, for ``hidden`` of a network.

    Parameters
    ----------
    channels : int
        The number of channels to write.
    kernel : int
        The side of its kernel.
    confidence : float, default=1.0
        What multiplies ``confidence_weights`` for the weights of this layer. They are few and used
        at many places, so removing a channel changes the KL little but saves much computation. A
        larger confidence removes more channels.
    padding : str, default="valid"
        ``"same"`` surrounds the rows with zeros, so a stride of 1 keeps their size.
        ``"valid"`` adds nothing.
    stride : int, default=1
        Steps between two places of the kernel.

    See Also
    --------
    Pool : Pooling after a convolution.

    Notes
    -----
    Every channel has a scale of its own, so channels are removed as units are; the model of
    supplement A.4 of [1]_ has dense layers only. The weights of a convolution with a confidence of
    its own are a block of their own, ``conv_1`` for the first layer, in ``kl_`` and in the history.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> Conv(20, 5)
    Conv(channels=20, kernel=5, confidence=1.0, padding='valid', stride=1)
    """

    channels: int
    kernel: int
    confidence: float = 1.0
    padding: str = "valid"
    stride: int = 1


@dataclass(frozen=True)
class Pool:
    """Max pooling after a convolution, for ``hidden`` of a network.

    Parameters
    ----------
    size : int
        The side of the squares (or the length of the stretches) whose largest value is kept.

    See Also
    --------
    Conv : The convolution before it.

    Notes
    -----
    Pooling has no parameters and so no part in the objective of section 4.4 of [1]_.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> Pool(2)
    Pool(size=2)
    """

    size: int


@dataclass(frozen=True)
class Residual:
    """A dense hidden layer that adds its values to what it reads, for ``hidden`` of a network.

    It is as wide as the dense layer before it.

    See Also
    --------
    Conv : A convolution.

    Notes
    -----
    A layer that reads h writes :math:`h + a(W h)`, where a is the activation. The weights W have
    the prior of any other hidden layer (supplement A.4 of [1]_). Unit k of a dense layer and of the
    residual layers after it are one entry of h. They are removed together, when none of them holds
    information about the data.

    References
    ----------
    .. [1] R. Mouallem Rosa, J. Arbel and H. D. Nguyen, "Bayesian inference with sources of
       uncertainty: from confidence modelling to sparse estimation".

    Examples
    --------
    >>> from soubayes import Residual, SoUNetRegressor
    >>> SoUNetRegressor((50, Residual(), Residual())).hidden
    (50, Residual(), Residual())
    """


@dataclass(frozen=True)
class LayerShape:
    """A layer with weights, in sizes before any removal."""

    inputs: int  # entries that a unit reads: all features, or those of a patch
    units: int
    kernel: int = 0  # 0: dense
    space: Shape = ()  # of what a convolution reads: (length,) or (height, width)
    pool: int = 1
    positions: int = 0  # of a dense layer that reads a convolution
    confidence: float = 1.0  # what multiplies that of all weights
    same: bool = False  # whether a convolution reads zeros around the rows
    stride: int = 1
    residual: bool = False  # whether it adds its values to what it reads

    @property
    def places(self) -> int:
        """How often the weights are used on one row."""
        return prod(self.written) if self.kernel else 1

    @property
    def written(self) -> Shape:
        """What a convolution writes, before pooling: (length,) or (height, width)."""
        if self.same:
            return tuple(-(-side // self.stride) for side in self.space)
        return tuple((side - self.kernel) // self.stride + 1 for side in self.space)

    @property
    def padding(self) -> tuple[tuple[int, int], ...]:
        """Zeros before and after every side; an odd one comes after.

        >>> LayerShape(9, 1, kernel=3, space=(5, 4), same=True, stride=2).padding
        ((1, 1), (0, 1))
        """
        if not self.same:
            return tuple((0, 0) for _ in self.space)
        pairs = zip(self.space, self.written, strict=True)
        missing = [max(0, (n - 1) * self.stride + self.kernel - side) for side, n in pairs]
        return tuple((count // 2, count - count // 2) for count in missing)


@dataclass(frozen=True)
class Spec:
    """What does not change while a network trains; hashable, so it can steer compilation.

    >>> Spec((1, 100, 100, 1)).n_hidden
    2
    >>> Spec(((28, 28, 1), Conv(20, 5), Pool(2), Conv(50, 5), Pool(2), 500, 10)).sizes
    (784, 20, 50, 800, 500, 10)
    """

    layout: tuple[Any, ...]  # inputs (a number or a shape), hidden layers, outputs
    prior: str = "horseshoe"
    local_scale: float = 1.0
    global_scale: float = 0.1
    output_scale: bool = True
    activation: str = "relu"
    prune_inputs: bool = False
    skip: bool = False  # whether the outputs read the columns of X too

    @cached_property
    def steps(self) -> tuple[LayerShape, ...]:
        """The layers with weights, first to last."""
        *hidden, last = _steps(self.layout)
        return (*hidden, replace(last, inputs=last.inputs + self.n_inputs) if self.skip else last)

    @property
    def n_hidden(self) -> int:
        """The number of hidden layers with weights."""
        return len(self.steps) - 1

    @property
    def n_inputs(self) -> int:
        """The number of columns of X."""
        return prod(_shape(self.layout[0]))

    @property
    def n_weights(self) -> list[int]:
        """Weights of every layer before any removal, biases included."""
        return [(step.inputs + 1) * step.units for step in self.steps]

    @property
    def weight_blocks(self) -> tuple[str, ...]:
        """The block that the weights of every layer belong to.

        >>> Spec(((6, 1), Conv(3, 2, confidence=2.0), 2, 1)).weight_blocks
        ('conv_1', 'weights', 'weights')
        """
        return tuple(
            "weights" if step.confidence == 1 else f"conv_{i}"
            for i, step in enumerate(self.steps, start=1)
        )

    @property
    def blocks(self) -> tuple[str, ...]:
        """All blocks but the noise."""
        weights = dict.fromkeys(["weights", *self.weight_blocks, *(["skip"] if self.skip else [])])
        return (*weights, "local", "global")

    def weight_confidences(self, confidence: float) -> dict[str, float]:
        """The confidences of all blocks of weights at a value of `confidence_weights`."""
        named = zip(self.weight_blocks, self.steps, strict=True)
        return {name: step.confidence * confidence for name, step in named}

    @property
    def gate(self) -> int | None:
        """The layer whose inputs have scales of their own, and are dropped one by one.

        Columns of X with `prune_inputs`; the features of the last convolution, if there is one.
        """
        if self.prior != "horseshoe":
            return None
        if self.prune_inputs:
            return 0
        return next((i for i, step in enumerate(self.steps) if step.positions), None)

    @property
    def sizes(self) -> Shape:
        """Inputs, units or channels of every layer, and the features between them; outputs."""
        return self.sizes_of(*self.whole)

    @property
    def whole(self) -> tuple[list[int], int]:
        """Units of every layer and inputs of the gated one, before any removal."""
        return [step.units for step in self.steps], self.reads

    @property
    def reads(self) -> int:
        """Inputs of the gated layer before any removal; 0 if there is none."""
        return 0 if self.gate is None else self.steps[self.gate].inputs

    def skipped(self, reads: int) -> int:
        """Columns of X that the outputs read, for so many inputs of the gated layer."""
        if not self.skip:
            return 0
        return reads if self.gate == 0 else self.n_inputs

    def sizes_of(self, units: list[int], reads: int) -> Shape:
        """As `sizes`, for so many units in each layer and so many inputs of the gated layer."""
        shown = [self.n_inputs]
        for i, count in enumerate(units):
            if i == self.gate == 0:
                shown = [reads]
            elif i == self.gate:
                shown.append(reads)
            shown.append(count)
        return tuple(shown)

    def inputs_of(self, i: int, units: Sequence[int], reads: int) -> int:
        """Entries that a unit of layer i reads, for so many units and inputs of the gated layer."""
        step, output = self.steps[i], i == self.n_hidden
        if i == self.gate:
            rows = reads
        elif not i:
            rows = step.inputs
        else:  # a row for every entry of a patch; dense layers have patches of one
            whole = step.inputs - (self.n_inputs if output and self.skip else 0)
            rows = whole // self.steps[i - 1].units * units[i - 1]
        return rows + (self.skipped(reads) if output else 0)

    def cost(self, units: Sequence[int], reads: int) -> tuple[int, int]:
        """Multiply–adds of one row, and parameters, biases included in both.

        >>> lenet = Spec(((28, 28, 1), Conv(20, 5), Pool(2), Conv(50, 5), Pool(2), 500, 10))
        >>> lenet.cost([5, 10, 16, 10], reads=76)  # 5-10-76-16
        (156922, 2792)
        """
        weights = [(self.inputs_of(i, units, reads) + 1) * n for i, n in enumerate(units)]
        pairs = zip(weights, self.steps, strict=True)
        return sum(count * step.places for count, step in pairs), sum(weights)


@dataclass(frozen=True)
class Architecture:
    """Layer sizes, inputs and outputs included, and their cost, before and after training.

    Features of a convolution that a dense layer reads stand between the two. Multiply–adds are
    those of one row; biases are counted in both.

    >>> lenet = Spec(((28, 28, 1), Conv(20, 5), Pool(2), Conv(50, 5), Pool(2), 500, 10))
    >>> small = Architecture.of(lenet, [5, 10, 16, 10], reads=76)
    >>> print(small)
    784–20–50–800–500–10 → 784–5–10–76–16–10
    >>> small.multiply_adds, small.parameters
    ((2308230, 156922), (431080, 2792))
    """

    initial: Shape
    final: Shape
    multiply_adds: tuple[int, int]
    parameters: tuple[int, int]

    @classmethod
    def of(cls, spec: Spec, units: list[int], reads: int) -> "Architecture":
        """The architecture of a spec that ended with so many units and inputs of the gate."""
        costs = spec.cost(*spec.whole), spec.cost(units, reads)
        adds, parameters = zip(*costs, strict=True)
        return cls(spec.sizes, spec.sizes_of(units, reads), adds, parameters)

    def __str__(self) -> str:
        return " → ".join("–".join(map(str, sizes)) for sizes in (self.initial, self.final))


def to_json(hidden: Any) -> list[Any]:
    """Hidden layers as plain numbers and lists.

    >>> from_json(to_json((Conv(20, 5), Pool(2), 500)))
    (Conv(channels=20, kernel=5, confidence=1.0, padding='valid', stride=1), Pool(size=2), 500)
    """
    names = {kind: name for name, kind in _KINDS.items()}
    return [
        [names[type(part)], *astuple(part)] if type(part) in names else int(part) for part in hidden
    ]


def from_json(parts: list[Any]) -> tuple[Any, ...]:
    """The hidden layers that `to_json` was given."""
    return tuple(_KINDS[part[0]](*part[1:]) if isinstance(part, list) else part for part in parts)


_KINDS: dict[str, type[Any]] = {"conv": Conv, "pool": Pool, "residual": Residual}


def _shape(inputs: Any) -> Shape:
    return tuple(inputs) if isinstance(inputs, tuple) else (inputs,)


def _steps(layout: tuple[Any, ...]) -> tuple[LayerShape, ...]:
    shape, steps = _shape(layout[0]), []
    for part in layout[1:]:
        if isinstance(part, Conv):
            steps.append(_convolution(part, shape))
            shape = (*steps[-1].written, part.channels)
        elif isinstance(part, Pool):
            if not steps or not steps[-1].kernel or steps[-1].pool > 1 or min(shape) < part.size:
                raise ValueError(
                    f"hidden has {part} where it reads {shape}, but a Pool must follow a Conv "
                    "whose output is at least as large as it."
                )
            steps[-1] = replace(steps[-1], pool=part.size)
            shape = (*(side // part.size for side in shape[:-1]), shape[-1])
        elif isinstance(part, Residual):
            if not steps or steps[-1].kernel:
                raise ValueError(
                    f"hidden has {part} after {'a Conv' if steps else 'the inputs'}, but it adds "
                    "to a dense hidden layer: put a number of units before it."
                )
            steps.append(LayerShape(steps[-1].units, steps[-1].units, residual=True))
        else:
            after_conv = bool(steps) and steps[-1].kernel > 0
            positions = prod(shape[:-1]) if after_conv else 0
            steps.append(LayerShape(prod(shape), int(part), positions=positions))
            shape = (int(part),)
    return tuple(steps)


def _convolution(part: Conv, shape: Shape) -> LayerShape:
    if len(shape) not in (2, 3):
        raise ValueError(
            f"hidden has {part} where it reads {shape}, but a Conv reads (length, channels) or "
            "(height, width, channels): give X of shape (rows, height, width, channels), or "
            "input_shape, and put every Conv before the first dense layer."
        )
    same = part.padding == "same"
    if min(shape[:-1]) < part.kernel and not same:
        raise ValueError(f"hidden has {part}, whose kernel is larger than what it reads, {shape}.")
    inputs = part.kernel ** (len(shape) - 1) * shape[-1]
    return LayerShape(
        inputs, part.channels, part.kernel, shape[:-1],
        confidence=float(part.confidence), same=same, stride=part.stride,
    )  # fmt: skip

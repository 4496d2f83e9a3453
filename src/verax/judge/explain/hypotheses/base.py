"""Hypotheses on what a node computed instead of its reference, and the suspects they are for."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from verax.ir.graph import Node
from verax.ir.operator import Operator
from verax.ir.types import TensorType
from verax.judge.decide.local import ReferenceValues
from verax.numerics.error_model import KAPPA, Rounding, U

Arrays = list[Any]
Edit = Callable[..., Arrays]
"""Takes the inputs as a list of arrays in their declared dtypes, gives another list."""
Change = Callable[..., Any]
"""Takes one array, gives another."""


class Prior(enum.IntEnum):
    """How usual a mistake is; the usual ones are named first when several fit."""

    usual = 0
    common = 1
    uncommon = 2
    rare = 3
    anything = 4
    """What can happen to any operator: named last, as it says least."""


@dataclass(frozen=True)
class After:
    """Something done to the result: value(y, inputs) -> y.

    moves: elements are only taken from other places (or replaced by 0), and so is their rounding;
    exact: the result is taken from the inputs and does not round at all; otherwise it works on each
    element alone. slope: largest derivative; roundings: further ones, in units of one correctly
    rounded operation. widens: whether what is done rounds by far more than the node itself.
    """

    widens: ClassVar[bool] = False

    value: Callable[..., np.ndarray]
    moves: bool = False
    exact: bool = False
    slope: float = 1.0
    roundings: float = 0.0

    def rounding(self, before: Rounding | None, y: np.ndarray, inputs: Arrays) -> Rounding | None:
        """The rounding of the changed result `y`, from that of the result before."""
        if self.exact:
            return None
        if self.moves:
            if before is None:
                return None
            return Rounding(self.value(before.sigma, inputs), self.value(before.bound, inputs))
        if before is None and not self.roundings:
            return None
        own = self.roundings * U * np.abs(y)
        if before is None:
            return Rounding(KAPPA * own, own)
        return Rounding(
            np.hypot(self.slope * before.sigma, KAPPA * own), self.slope * before.bound + own
        )


@dataclass(frozen=True)
class Hypothesis:
    """An alternative computation of a node.

    name: unique among those of a node. words: a sentence about the subject. op: the alternative
    operator (None: the node's own). inputs: edits the inputs, a list of arrays in their declared
    dtypes. after: changes the result. attributes: that the subject seems to have used. crop: the
    output may be larger and is cut at the ends to the actual size. fitted: count of numbers in it
    that were chosen to fit the subject's output.
    """

    name: str
    words: str
    prior: Prior
    op: Operator | None = None
    inputs: Edit | None = None
    after: After | None = None
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    crop: bool = False
    fitted: int = 0


@dataclass(frozen=True)
class Suspect:
    """One output of a node that was found wrong.

    inputs: the node's actual inputs in their declared dtypes, None where omitted; outputs: the
    declared output types; actual: the subject's output; meaning: the float64 reference; output:
    index of the node's output that `actual` is.
    """

    node: Node
    inputs: tuple[Any, ...]
    outputs: tuple[TensorType, ...]
    actual: np.ndarray
    meaning: ReferenceValues
    output: int = 0

    @property
    def op(self) -> Operator:
        return self.node.op

    @property
    def x(self) -> np.ndarray:
        """The first input; a zero where there is none."""
        first = self.inputs[0] if self.inputs else None
        return np.zeros(()) if first is None else np.asarray(first)

    @property
    def expected(self) -> np.ndarray:
        """The float64 reference."""
        return self.meaning.outputs[self.output]

    @cached_property
    def wide(self) -> np.ndarray:
        """`actual` in float64."""
        return self.actual.astype(np.float64)

    def has(self, index: int) -> bool:
        """Whether an optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None


Family = Callable[[Suspect], Iterator[Hypothesis]]
BY_KIND: dict[str, Family] = {}
"""Kind of operator -> its family; filled by `hypotheses_of`."""


def hypotheses_of(*kinds: str) -> Callable[[Family], Family]:
    """Registers a family of hypotheses for kinds of operators; each has one."""

    def register(family: Family) -> Family:
        for kind in kinds:
            assert kind not in BY_KIND, f"{kind} has a family already"
            BY_KIND[kind] = family
        return family

    return register


def rearranged(change: Change) -> After:
    """A change of the result that only moves its elements."""
    return After(lambda y, inputs: change(y), moves=True)


def from_inputs(change: Change) -> After:
    """Something taken from the inputs instead of the result."""
    return After(lambda y, inputs: np.asarray(change(inputs), np.float64), exact=True)


def pointwise(change: Change, slope: float = 1.0, roundings: float = 0.0) -> After:
    """A function of each element of the result."""
    return After(lambda y, inputs: change(y), slope=slope, roundings=roundings)


def edited(index: int, change: Change) -> Edit:
    """Input `index` changed."""

    def edit(arrays: Arrays) -> Arrays:
        return [change(a) if i == index else a for i, a in enumerate(arrays)]

    return edit


def with_attributes(
    op: Operator, name: str, words: str, prior: Prior, **changed: Any
) -> Iterator[Hypothesis]:
    """The operator with other attributes; nothing when they are what the node has."""
    alternative = dataclasses.replace(op, **changed)
    if alternative != op:
        attributes = {key: str(value) for key, value in changed.items()}
        yield Hypothesis(name, words, prior, op=alternative, attributes=attributes)


def permuted(array: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The numbers of `array` laid out along `axes`, read as if they were not moved."""
    return np.transpose(array, axes).reshape(array.shape)


def unpermuted(array: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """The opposite misreading: the numbers lie as they are and are read along `axes`."""
    shape = [array.shape[a] for a in axes]
    return np.transpose(array.reshape(shape), np.argsort(axes))


def interleaved(array: np.ndarray, axis: int, groups: int) -> np.ndarray:
    """`array` with groups of neighbors along `axis` interleaved (a channel shuffle)."""
    shape = array.shape
    split_shape = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    return array.reshape(split_shape).swapaxes(axis, axis + 1).reshape(shape)


def pick(array: np.ndarray, axis: int, span: slice) -> tuple[Any, ...]:
    """Index of `span` along `axis`."""
    return (slice(None),) * (axis % array.ndim) + (span,)


def shifted(array: np.ndarray, axis: int, by: int) -> np.ndarray:
    """`array` shifted by `by` positions along `axis`, zeros moving in."""
    result = np.zeros_like(array)
    if abs(by) < array.shape[axis]:
        target = slice(by, None) if by > 0 else slice(None, by)
        source = slice(None, -by) if by > 0 else slice(-by, None)
        result[pick(array, axis, target)] = array[pick(array, axis, source)]
    return result


def zeroed(array: np.ndarray, axis: int, span: slice) -> np.ndarray:
    """A copy with `span` along `axis` set to 0."""
    copy = array.copy()
    copy[pick(array, axis, span)] = 0
    return copy


def axis_name(axis: int, rank: int) -> str:
    """Batch, channel, row, column as people call the axes of [n, c, ..., h, w]."""
    names = {0: "batch", 1: "channel"}
    if rank >= 3:
        names[rank - 1] = "column"
    if rank >= 4:
        names[rank - 2] = "row"
    return names.get(axis, f"axis {axis}") if rank >= 2 else f"axis {axis}"

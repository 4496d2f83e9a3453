"""`HuntCase`: a graph, the arrays that it is run on, and why it was made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from verax.ir.graph import Builder, Graph
from verax.ir.operator import Operator
from verax.ir.types import TensorType

T = TypeVar("T")


class NoCase(Exception):
    """What was drawn makes no graph: draw again."""


@dataclass(frozen=True)
class HuntCase:
    """Case `index` of `seed`.

    family: the generator, one of `generate.FAMILIES`; reason: what is tried, in words;
    subject_operator: the operator, or the pattern, that it aims at. opset: the ONNX operator set to
    write, None for the oldest that can say it. file: the ONNX model to run where it says what
    writing the graph would lose (`auto_pad`, symbolic sizes, old operator sets); else b"".
    """

    seed: int
    index: int
    family: str
    reason: str
    subject_operator: str
    graph: Graph
    inputs: dict[str, np.ndarray]
    opset: int | None = None
    file: bytes = b""

    @property
    def name(self) -> str:
        return f"{self.seed}:{self.index}"


@dataclass(frozen=True)
class DrawnCase:
    """What a generator makes: the operator or pattern that it aims at, why, the graph and its
    inputs, and the ONNX model where it is more than the graph says."""

    aim: str
    reason: str
    graph: Graph
    inputs: dict[str, np.ndarray]
    file: bytes = b""


@dataclass
class Draft:
    """A graph under construction with arrays for its inputs."""

    builder: Builder
    random: np.random.Generator
    inputs: dict[str, np.ndarray] = field(default_factory=dict)

    def input(self, array: np.ndarray, hint: str = "x") -> str:
        """A new input of the network that holds `array`."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        name = self.builder.fresh(hint)
        self.inputs[name] = array
        return self.builder.input(name, TensorType.of(array))

    def constant(self, array: object, dtype: type | np.dtype | None = None) -> str:
        return self.builder.constant(np.array(array, dtype), self.builder.fresh("c"))

    def add(self, op: Operator, *inputs: str | None) -> str:
        """Append a node; its first output."""
        op = as_stored(op)
        return self.builder.add(op, inputs, (), self.builder.fresh(op.kind.lower()))

    def shape(self, value: str) -> tuple[int, ...]:
        """Raises `NoCase` when a size is known only by running."""
        dims = tuple(self.builder.types[value].dims)
        if not all(isinstance(d, int) for d in dims):
            raise NoCase
        return tuple(d for d in dims if isinstance(d, int))

    def normal(self, *shape: int) -> np.ndarray:
        """Float32 numbers of a normal distribution."""
        return self.random.standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class FusionPattern:
    """name: of the fusion. build: makes it in a draft, gives its output and what was changed."""

    name: str
    build: Callable[[Draft], tuple[str, str]]


def as_stored(op: Operator) -> Operator:
    """`op` with the float32 numbers that ONNX stores of its attributes: in float64 others show."""
    floats = {k: float(np.float32(v)) for k, v in op.attributes().items() if type(v) is float}
    return dataclasses.replace(op, **floats)


def pick(random: np.random.Generator, choices: Sequence[T]) -> T:
    """One of `choices`."""
    return choices[int(random.integers(len(choices)))]

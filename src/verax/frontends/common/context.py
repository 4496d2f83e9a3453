"""What a table's row works with: one foreign node, its attributes, and the graph being built.

A row returns the operator that the node means (its inputs are then the node's inputs), or an
`Operator` with other inputs through `Conversion.result`, or the names of values that it has added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from verax.base.errors import GraphError, ModelError, UnsupportedError
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.common.ledger import Attributes
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY, Operator
from verax.ir.types import TensorType

MAX_MADE = 1 << 24
"""Elements of a constant that an import makes up, rather than reads."""


class ValueNeededError(UnsupportedError):
    """An import would succeed if shapes or values of some inputs were given."""


@dataclass
class Conversion:
    """A foreign node on its way into the graph. `inputs` are names in the graph."""

    node: ForeignNode
    inputs: tuple[str | None, ...]
    attributes: Attributes
    builder: Builder
    fresh: Callable[[str], str]

    @property
    def version(self) -> int:
        """Version of the operator set that the node is written in."""
        return self.node.version

    def input(self, index: int) -> str | None:
        """Name of an input, None when it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def type(self, index: int) -> TensorType:
        """Type of a required input."""
        return self.builder.types[self.required(index)]

    def required(self, index: int) -> str:
        """Name of a required input; raises `ModelError` when it is omitted."""
        name = self.input(index)
        if name is None:
            raise ModelError(f"input {index} is required", place=self.node.place)
        return name

    def rank(self, index: int = 0) -> int:
        return self.type(index).rank

    def known(self, index: int) -> np.ndarray | None:
        """Value of an input that is constant or a shape computation, else None."""
        name = self.input(index)
        return None if name is None else self.builder.known.get(name)

    def constant_input(self, index: int, what: str) -> np.ndarray:
        """As `known`; raises `ValueNeededError` when the value depends on the network's inputs."""
        value = self.known(index)
        if value is None or value.dtype == object:
            raise ValueNeededError(
                f"{what} (input {index}) is computed while the network runs",
                place=self.node.place,
                next_step="export the model with fixed shapes",
            )
        return value

    def output_used(self, index: int) -> bool:
        """Whether the node names its output `index`."""
        return index < len(self.node.outputs) and bool(self.node.outputs[index])

    def operator(self, kind: str, **fields: Any) -> Operator:
        """An operator by name."""
        cls = REGISTRY.get(kind)
        if cls is None:
            raise UnsupportedError(f"the operator {kind} is not supported", place=self.node.place)
        return cls(**fields)

    def add(self, kind: str, inputs: Sequence[str | None], **fields: Any) -> str:
        """Append a node on graph values; returns its first output."""
        op = self.operator(kind, **fields)
        names = [self.fresh(f"{self.first_output}/{kind}") for _ in range(op.output_count)]
        return self.builder.add(op, _trimmed(inputs), names, self.node.name)

    def split(self, value: str, count: int, axis: int) -> list[str]:
        """Append the splitting of a graph value into equal parts along an axis; returns these."""
        if count == 1:
            return [value]
        op = self.operator("Split", num_outputs=count, axis=axis)
        names = [self.fresh(f"{self.first_output}/part") for _ in range(count)]
        return list(self.builder.add_all(op, [value], names, self.node.name))

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Append a constant; returns its name."""
        return self.builder.constant(
            np.asarray(value, dtype), self.fresh(f"{self.first_output}/const")
        )

    def named_constant(self, value: Any) -> str:
        """Append a constant under the name of the node's output."""
        return self.builder.constant(np.asarray(value), self.first_output)

    def must_be_few(self, count: int) -> None:
        """Refuse to make a constant of absurdly many elements, before it is allocated."""
        if not 0 <= count <= MAX_MADE:
            self.refuse(f"it stands for {count} numbers")

    def refuse(self, why: str) -> NoReturn:
        """Raise `UnsupportedError` for this node."""
        raise UnsupportedError(f"{self.node.operator}: {why}", place=self.node.place)

    def ints(self, values: Sequence[int]) -> str:
        """Append a one-dimensional int64 constant; returns its name."""
        return self.constant(tuple(values), np.int64)

    def result(self, kind: str, inputs: Sequence[str | None], **fields: Any) -> tuple[str, ...]:
        """Append the node that defines this node's outputs."""
        op = self.operator(kind, **fields)
        return self.finish(op, inputs)

    def finish(self, op: Operator, inputs: Sequence[str | None]) -> tuple[str, ...]:
        """Append `op` under the foreign node's output names."""
        wanted = list(self.node.outputs)
        while wanted and not wanted[-1]:
            wanted.pop()
        if len(wanted) > op.output_count:
            raise UnsupportedError(
                f"output {op.output_count} of {self.node.operator} is not supported",
                place=self.node.place,
            )
        names = [
            wanted[i] if i < len(wanted) and wanted[i] else self.fresh(f"{self.first_output}.{i}")
            for i in range(op.output_count)
        ]
        return self.builder.add_all(op, _trimmed(inputs), names, self.node.name)

    @property
    def first_output(self) -> str:
        return next((o for o in self.node.outputs if o), self.node.op_type.lower())


Row = Callable[[Conversion], "Operator | str | tuple[str, ...]"]


def convert(row: Row, conversion: Conversion) -> tuple[str, ...]:
    """Run a row; returns graph values for the node's outputs.

    Every failure becomes a `VeraxError` that names the node: the file is untrusted, so whatever an
    operator cannot digest is the file's fault until proven otherwise.
    """
    place = conversion.node.place
    try:
        made = row(conversion)
        conversion.attributes.close()
        if isinstance(made, Operator):
            return conversion.finish(made, conversion.inputs)
        return (made,) if isinstance(made, str) else made
    except (GraphError, ModelError, UnsupportedError) as error:
        error_type = ModelError if isinstance(error, GraphError) else type(error)
        raise error_type(error.cause, place=place, next_step=error.next_step) from error
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        text = str(error).partition("\n")[0]
        raise ModelError(
            f"the node does not fit its operator ({type(error).__name__}: {text[:200]})",
            place=place,
            next_step="check the attributes and the constant inputs of this node",
        ) from error


def _trimmed(inputs: Sequence[str | None]) -> list[str | None]:
    """Inputs without omitted ones at the end."""
    kept = list(inputs)
    while kept and kept[-1] is None:
        kept.pop()
    return kept

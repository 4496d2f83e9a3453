"""What a table's row works with: one foreign node, its attributes, and the graph being built.

A row returns the operator that the node means (its inputs are then the node's inputs), an operator
applied to other values (`Conversion.apply`), or the names of values that it has added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from verax.base.errors import GraphError, ModelError, UnsupportedError
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.common.ledger import Attributes
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY, Operator
from verax.ir.types import DType, TensorType

MAX_MADE = 1 << 24
"""Elements of a constant that an import makes up, rather than reads."""


@dataclass(frozen=True)
class Applied:
    """An operator and the values of the graph that it is to be applied to; not yet a node."""

    op: Operator
    inputs: Sequence[str | None]


Result = Operator | Applied | str | tuple[str, ...]
"""What a row gives: see above."""
Row = Callable[["Conversion"], Result]


class ValueNeededError(UnsupportedError):
    """An import would succeed if shapes or values of some inputs were given."""


class RunningDecidesError(ValueNeededError):
    """Branches, loops or sequences that only running decides, in a form that no operator has."""


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

    def value(self, source: int | str) -> str:
        """A required input by its number, or a value of the graph by its name."""
        return source if isinstance(source, str) else self.required(source)

    def type(self, source: int | str) -> TensorType:
        """Type of a required input, or of a value of the graph."""
        return self.builder.types[self.value(source)]

    def required(self, index: int) -> str:
        """Name of a required input; raises `ModelError` when it is omitted."""
        name = self.input(index)
        if name is None:
            raise ModelError(f"input {index} is required", place=self.node.place)
        return name

    def rank(self, source: int | str = 0) -> int:
        return self.type(source).rank

    def from_front(self, axis: int, rank: int) -> int:
        """An axis counted from the front. Raises `ModelError` when there is none such."""
        if not -rank <= axis < rank:
            raise ModelError(f"axis {axis} of rank {rank}", place=self.node.place)
        return axis % rank

    def known_sizes(
        self,
        source: int | str = 0,
        axes: Iterable[int] | None = None,
        dependent: str = "the result",
    ) -> tuple[int, ...]:
        """Static sizes of some axes of an input or value, of all by default.

        dependent: what depends on them, for the message.

        Raises `ValueNeededError` while they are symbols, `ModelError` for axes that it lacks.
        """
        type_ = self.type(source)
        selected_axes = range(type_.rank) if axes is None else axes
        dims = [type_.dims[self.from_front(a, type_.rank)] for a in selected_axes]
        static_sizes = tuple(d for d in dims if isinstance(d, int))
        if len(static_sizes) < len(dims):
            raise ValueNeededError(
                f"{dependent} depends on sizes of {type_} that are not known",
                place=self.node.place,
                next_step="give the inputs' shapes, e.g. shapes={'data': (1, 3, 224, 224)}, or "
                "--shape data=1x3x224x224",
            )
        return static_sizes

    def known_size(self, source: int | str, axis: int, dependent: str = "the result") -> int:
        """Size of one axis, as `known_sizes` has it."""
        return self.known_sizes(source, (axis,), dependent)[0]

    # Attributes: the ledger's readers, which formats with arguments by name override

    def choice(self, name: str, options: Collection[str], default: str | None = None) -> str:
        """A text that is one of `options`; refuses another one."""
        selected = self.text(name, default)
        if selected not in options:
            self.attributes.refuse(name, f"supported: {', '.join(options)}")
        return str(selected)

    def irrelevant(self, *names: str, reason: str) -> None:
        """State that attributes, where present, cannot change what is computed, and why."""
        for name in names:
            self.attributes.irrelevant(name, reason)

    @property
    def operands(self) -> list[str]:
        """All inputs, of which none may be omitted."""
        return [self.required(i) for i in range(len(self.inputs))]

    def named_inputs(self, names: Sequence[str]) -> list[str | None]:
        """The inputs of the node; where inputs have names, those named."""
        return list(self.inputs)

    def integer(self, name: str, default: Any = None) -> Any:
        return self.attributes.integer(name, default)

    def scalar(self, name: str, default: Any = None) -> Any:
        return self.attributes.scalar(name, default)

    def text(self, name: str, default: Any = None) -> Any:
        return self.attributes.text(name, default)

    def flag(self, name: str, default: bool = False) -> bool:
        return self.attributes.flag(name, default)

    def integers(self, name: str, default: Any = None) -> Any:
        return self.attributes.integers(name, default)

    def known_value(self, index: int) -> np.ndarray | None:
        """Value of an input that is constant or a shape computation, else None."""
        name = self.input(index)
        return None if name is None else self.builder.known.get(name)

    def constant_input(self, index: int, description: str) -> np.ndarray:
        """As `known`; raises `ValueNeededError` when the value depends on the network's inputs."""
        value = self.known_value(index)
        if value is None or value.dtype == object:
            raise ValueNeededError(
                f"{description} (input {index}) is computed while the network runs",
                place=self.node.place,
                next_step="give the inputs' shapes, e.g. shapes={'data': (1, 3, 224, 224)}, or "
                "--shape data=1x3x224x224, if they decide it",
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

    def add_all(self, kind: str, inputs: Sequence[str | None], **fields: Any) -> list[str]:
        """As `add`; returns all outputs."""
        op = self.operator(kind, **fields)
        names = [self.fresh(f"{self.first_output}/{kind}") for _ in range(op.output_count)]
        return list(self.builder.add_all(op, _trimmed(inputs), names, self.node.name))

    def apply(self, kind: str, inputs: Sequence[str | None], **fields: Any) -> Applied:
        """An operator on values, for a row to return or for `append`."""
        return Applied(self.operator(kind, **fields), inputs)

    def append(self, applied: Applied) -> str:
        """Append what `apply` gave as an inner node; returns its output."""
        name = self.fresh(f"{self.first_output}/{applied.op.kind}")
        return self.builder.add(applied.op, _trimmed(applied.inputs), [name], self.node.name)

    def cast(self, value: str, to: DType | str) -> str:
        """The value in an element type; itself when it is in it already."""
        dtype = DType(to)
        return value if self.type(value).dtype is dtype else self.add("Cast", [value], to=dtype)

    def like(self, value: Any, source: int | str = 0) -> str:
        """Append a constant in the element type of an input or value; returns its name."""
        return self.constant(value, self.type(source).dtype.numpy)

    def split(self, value: str, count: int, axis: int) -> list[str]:
        """Append the splitting of a graph value into equal parts along an axis; returns these."""
        if count == 1:
            return [value]
        return self.add_all("Split", [value], num_outputs=count, axis=axis)

    def constant(self, value: Any, dtype: Any = None) -> str:
        """Append a constant; returns its name."""
        return self.builder.constant(
            np.asarray(value, dtype), self.fresh(f"{self.first_output}/const")
        )

    def named_constant(self, value: Any) -> str:
        """Append a constant under the name of the node's output."""
        return self.builder.constant(np.asarray(value), self.first_output)

    def check_count(self, count: int, limit: int = MAX_MADE, unit: str = "numbers") -> None:
        """Refuse to make a constant of absurdly many elements, or as many nodes, before that."""
        if not 0 <= count <= limit:
            self.refuse(f"it stands for {count} {unit}, which are too many: {limit} are the most")

    def refuse(self, reason: str, next_step: str = "") -> NoReturn:
        """Raise `UnsupportedError` for this node."""
        cause = f"{self.node.operator}: {reason}"
        raise UnsupportedError(cause, place=self.node.place, next_step=next_step)

    def ints(self, values: Sequence[int]) -> str:
        """Append a one-dimensional int64 constant; returns its name."""
        return self.constant(tuple(values), np.int64)

    def result(self, kind: str, inputs: Sequence[str | None], **fields: Any) -> tuple[str, ...]:
        """Append the node that defines this node's outputs."""
        op = self.operator(kind, **fields)
        return self.finish(op, inputs)

    def finish(self, op: Operator, inputs: Sequence[str | None]) -> tuple[str, ...]:
        """Append `op` under the foreign node's output names."""
        output_names = list(self.node.outputs)
        while output_names and not output_names[-1]:
            output_names.pop()
        if len(output_names) > op.output_count:
            raise UnsupportedError(
                f"output {op.output_count} of {self.node.operator} is not supported",
                place=self.node.place,
            )
        names = [
            output_names[i]
            if i < len(output_names) and output_names[i]
            else self.fresh(f"{self.first_output}.{i}")
            for i in range(op.output_count)
        ]
        return self.builder.add_all(op, _trimmed(inputs), names, self.node.name)

    def same(self, value: str) -> tuple[str, ...]:
        """Let a value define the node's output, under its name."""
        return self.result("Identity", [value])

    def named(self, values: Sequence[str], kind: str = "Identity", **fields: Any) -> Result:
        """Nodes, one of this kind on each value, that define as many outputs as the node has."""
        if len(self.node.outputs) > len(values):
            raise ModelError(f"the node has only {len(values)} outputs", place=self.node.place)
        op = self.operator(kind, **fields)
        return tuple(
            self.builder.add(op, [value], [name or self.fresh(f"{value}.same")], self.node.name)
            for value, name in zip(values, self.node.outputs)
        )

    def outputs_of(self, result: Result) -> tuple[str, ...]:
        """Values of the node's outputs, once what a row gave is appended."""
        if isinstance(result, Operator):
            return self.finish(result, self.inputs)
        if isinstance(result, Applied):
            return self.finish(result.op, result.inputs)
        return (result,) if isinstance(result, str) else result

    @property
    def first_output(self) -> str:
        return next((o for o in self.node.outputs if o), self.node.op_type.lower())


def convert(row: Row, conversion: Conversion) -> tuple[str, ...]:
    """Run a row; returns graph values for the node's outputs.

    Every failure becomes a `VeraxError` that names the node: the file is untrusted, so whatever an
    operator cannot digest is the file's fault until proven otherwise.
    """
    location = conversion.node.place
    try:
        result = row(conversion)
        conversion.attributes.close()
        return conversion.outputs_of(result)
    except (GraphError, ModelError, UnsupportedError) as error:
        error_type = ModelError if isinstance(error, GraphError) else type(error)
        raise error_type(error.cause, place=location, next_step=error.next_step) from error
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        text = str(error).partition("\n")[0]
        raise ModelError(
            f"the node does not fit its operator ({type(error).__name__}: {text[:200]})",
            place=location,
            next_step="check the attributes and the constant inputs of this node",
        ) from error


def _trimmed(inputs: Sequence[str | None]) -> list[str | None]:
    """Inputs without omitted ones at the end."""
    trimmed = list(inputs)
    while trimmed and trimmed[-1] is None:
        trimmed.pop()
    return trimmed

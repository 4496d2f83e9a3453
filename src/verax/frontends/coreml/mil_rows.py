"""`Mil`: the arguments of an ML program's operation by name, and how a layer is one of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Result, Row, ValueNeededError
from verax.frontends.common.ledger import Attributes, Ledger
from verax.frontends.common.table import Table, fields_of
from verax.frontends.coreml.rows import TABLE
from verax.ir.types import DType

FLOATS = ("float16", "float32")


PARAMETERS = {
    "conv": ("weight", "bias"),
    "conv_transpose": ("weight", "bias"),
    "linear": ("weight", "bias"),
    "matmul": ("y",),
    "batch_norm": ("mean", "variance", "gamma", "beta"),
    "instance_norm": ("gamma", "beta"),
    "layer_norm": ("gamma", "beta"),
    **dict.fromkeys(
        ("clip", "linear_activation", "scaled_tanh", "clamped_relu"), ("alpha", "beta")
    ),
    "softplus_parametric": ("alpha", "beta"),
    **dict.fromkeys(("threshold", "thresholded_relu", "prelu"), ("alpha",)),
}
"""Arguments that, from iOS 17 on, may be of another float type than x, which gives the result's."""


class Mil(Conversion):
    """An operation with its arguments, computed or constant, by name."""

    @property
    def bound(self) -> tuple[str, ...]:
        """Names of the arguments that the node's inputs are."""
        names: tuple[str, ...] = self.attributes.get("inputs", ())
        return names

    def maybe(self, name: str) -> str | None:
        """The graph value of an argument, computed or constant; None when it is not given."""
        if name in self.bound:
            return self.required(self.bound.index(name))
        value = self.attributes.get(name)
        return None if value is None else self.constant(np.asarray(value))

    def tensor(self, name: str) -> str:
        """The graph value of an argument that must be given."""
        value = self.maybe(name)
        if value is None:
            raise ModelError(f"the argument {name!r} is missing", place=self.node.place)
        return value

    def tensors(self, name: str) -> list[str]:
        """The graph values of an argument that takes a list."""
        values = [self.required(i) for i, n in enumerate(self.bound) if n == name]
        return values or [self.tensor(name)]

    def named_inputs(self, names: Sequence[str]) -> list[str | None]:
        """Graph values by name, one with a question mark being optional."""
        return [self.maybe(n[:-1]) if n.endswith("?") else self.tensor(n) for n in names]

    def positions(self, name: str) -> str:
        """The graph value of an argument of indices, int64."""
        return self.cast(self.tensor(name), "int64")

    def fixed(self, name: str, default: Any = None) -> Any:
        """The value of an argument that must be constant: an array, a text, or `default`.

        Raises `ValueNeededError` when it is computed while the network runs.
        """
        if name not in self.bound:
            return self.attributes.get(name, default)
        value = self.known_value(self.bound.index(name))
        if value is None or value.dtype == object:
            raise ValueNeededError(
                f"the argument {name!r} is computed while the network runs",
                place=self.node.place,
                next_step="convert the model with fixed shapes",
            )
        return value

    def integers(self, name: str, default: Any = None) -> Any:
        """A constant list of integers as a tuple."""
        value = self.fixed(name)
        if value is None:
            return default
        if isinstance(value, tuple) and all(type(v) is int for v in value):
            return value
        array = np.asarray(value)
        if array.dtype.kind not in "iub":
            raise ModelError(f"{name} should be integers, not {array.dtype}", place=self.node.place)
        return tuple(int(v) for v in array.ravel())

    def counted(self, name: str, count: int, default: int) -> tuple[int, ...]:
        """As `integers`, so many; `default` everywhere when they are absent."""
        numbers: tuple[int, ...] = self.integers(name, (default,) * count)
        if len(numbers) != count:
            raise ModelError(f"{name} = {numbers} needs {count} numbers", place=self.node.place)
        return numbers

    def integer(self, name: str, default: Any = None) -> Any:
        numbers = self.integers(name)
        if numbers is None and default is not None:
            return default
        if numbers is None or len(numbers) != 1:
            raise ModelError(f"{name} should be one integer, not {numbers}", place=self.node.place)
        return int(numbers[0])

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.integer(name, int(default)))

    def scalar(self, name: str, default: Any = None) -> Any:
        """A constant number; absent, `default`."""
        value = self.fixed(name)
        if value is None and default is not None:
            return default
        array = np.asarray(value)
        if value is None or array.size != 1 or isinstance(value, str):
            raise ModelError(f"{name} should be one number, not {value}", place=self.node.place)
        return float(array.ravel()[0])

    def text(self, name: str, default: Any = None) -> Any:
        value = self.fixed(name, default)
        if not isinstance(value, str):
            raise ModelError(f"{name} should be a text, not {value}", place=self.node.place)
        return value


def _with_names(function: Callable[[Mil], Result]) -> Row:
    return lambda c: _in_one_type(Mil(c.node, c.inputs, c.attributes, c.builder, c.fresh), function)


OPERATIONS = Table("mil", _with_names, ("x",))
"""Operations of ML programs; `table` puts them into `TABLE`."""
mil = OPERATIONS.row


def _in_one_type(c: Mil, function: Callable[[Mil], Result]) -> Result:
    """Run a row with x and its parameters in one float type, the wider one if they differ.

    A parameter that is exactly a number of the narrow type is taken as that.
    """
    names = ("x", *PARAMETERS.get(c.node.op_type, ()))
    bound = c.attributes.values.get("inputs", ())
    positions = [i for i, n in enumerate(bound) if n in names and c.inputs[i] is not None]
    kinds = {c.type(i).dtype for i in positions} & {DType.float16, DType.float32}
    values = c.attributes.values
    arrays = {n: v for n in names if isinstance(v := values.get(n), np.ndarray)}
    own = c.type(bound.index("x")).dtype if "x" in bound else None
    for name, value in arrays.items():
        if value.dtype == np.float32 and own == "float16":
            near = value.astype(np.float16)
            values[name] = near if np.array_equal(near, value) else value
    kinds |= {DType(str(values[n].dtype)) for n in arrays if values[n].dtype.name in FLOATS}
    if len(kinds) < 2 or own is None:
        return function(c)
    for name in arrays:
        if values[name].dtype == np.float16:
            values[name] = values[name].astype(np.float32)
    inputs = list(c.inputs)
    for i in positions:
        if c.type(i).dtype == "float16":
            inputs[i] = c.cast(c.required(i), "float32")
    if own == "float32":
        return function(replace(c, inputs=tuple(inputs)))
    inner = c.fresh(f"{c.first_output}/wide")
    wide = replace(c, inputs=tuple(inputs), node=replace(c.node, outputs=(inner,)))
    return c.apply("Cast", [wide.outputs_of(function(wide))[0]], to="float16")


# Layers of neural networks as operations


class GraphValue(str):
    """A value of the graph, as an argument."""


def operation(c: Conversion, kind: str, /, **arguments: Any) -> Result:
    """The result of an operation on arguments: each a `Value`, a list of these, or a constant.

    None is no argument, and numbers are float32. The ledger records the layer's own parameters."""
    bound: list[tuple[str, str]] = []
    constants: dict[str, Any] = {}
    for name, argument in arguments.items():
        if isinstance(argument, GraphValue):
            bound.append((name, argument))
        elif isinstance(argument, list):
            bound += [(name, value) for value in argument]
        elif argument is not None:
            constants[name] = np.float32(argument) if isinstance(argument, float) else argument
    attributes = {"inputs": tuple(n for n, _ in bound), **constants}
    inner = Attributes(Ledger(), c.node.place, c.node.operator, attributes)
    result = OPERATIONS["mil", kind](
        replace(c, inputs=tuple(v for _, v in bound), attributes=inner)
    )
    inner.irrelevant("inputs", "they have been bound")
    inner.close()
    return result


def inputs(c: Conversion) -> list[GraphValue]:
    """All inputs of a layer, as an argument."""
    return [GraphValue(c.required(i)) for i in range(len(c.inputs))]


def cast_to(c: Conversion, dtype: str, make: Callable[[Conversion], Result]) -> Result:
    """What `make` gives, in another element type: to layers everything is a float."""
    names = tuple(c.fresh(f"{name}/whole") for name in c.node.outputs)
    inner = replace(c, node=replace(c.node, outputs=names))
    return c.named(inner.outputs_of(make(inner)), "Cast", to=dtype)


def layer(
    name: str, kind: str, bound: Sequence[str] = ("x",), *, to: str = "", **arguments: Any
) -> None:
    """Enter the row of a layer that is an operation.

    bound: arguments that its inputs are, in order. to: the element type of the result, where it is
    another. Others are read as an operator's fields: from the layer's parameters, by a function of
    the node, or constants."""

    def convert(c: Conversion) -> Result:
        tied = {n: GraphValue(c.required(i)) for i, n in enumerate(bound)}
        return operation(c, kind, **tied, **fields_of(c, arguments))

    TABLE.row(name)(lambda c: cast_to(c, to, convert) if to else convert(c))

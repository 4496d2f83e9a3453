"""Reading the arguments of ML program operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common.context import Conversion, Row, ValueNeededError
from verax.frontends.coreml.rows import row
from verax.ir.types import DType

MIL = "mil"
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


def mil(*operators: str) -> Any:
    """Enter a function as the row of operations of ML programs."""

    def enter(function: Row) -> Row:
        def convert(c: Conversion) -> Any:
            return _in_one_type(c, function)

        return row(*operators, domain=MIL)(convert)

    return enter


def _in_one_type(c: Conversion, function: Row) -> Any:
    """Run a row with x and its parameters in one float type, the wider one if they differ.

    A parameter that is exactly a number of the narrow type is taken as that.
    """
    names = ("x", *PARAMETERS.get(c.node.op_type, ()))
    bound = c.node.attributes.get("inputs", ())
    places = [i for i, n in enumerate(bound) if n in names and c.inputs[i] is not None]
    kinds = {c.type(i).dtype for i in places} & {DType.float16, DType.float32}
    values = c.attributes.values
    given = {n: v for n in names if isinstance(v := values.get(n), np.ndarray)}
    own = c.type(bound.index("x")).dtype if "x" in bound else None
    for name, value in given.items():
        if value.dtype == np.float32 and own == "float16":
            near = value.astype(np.float16)
            values[name] = near if np.array_equal(near, value) else value
    kinds |= {DType(str(values[n].dtype)) for n in given if values[n].dtype.name in FLOATS}
    if len(kinds) < 2 or own is None:
        return function(c)
    for name in given:
        if values[name].dtype == np.float16:
            values[name] = values[name].astype(np.float32)
    inputs = list(c.inputs)
    for i in places:
        if c.type(i).dtype == "float16":
            inputs[i] = c.add("Cast", [c.required(i)], to="float32")
    if own == "float32":
        return function(replace(c, inputs=tuple(inputs)))
    inner = c.fresh(f"{c.first_output}/wide")
    wide = replace(c, inputs=tuple(inputs), node=replace(c.node, outputs=(inner,)))
    made = function(wide)
    assert isinstance(made, tuple)
    return c.result("Cast", [made[0]], to="float16")


def arg(c: Conversion, name: str) -> str | None:
    """The graph value of an argument, computed or constant; None when it is not given."""
    bound = c.attributes.get("inputs", ())
    if name in bound:
        return c.required(bound.index(name))
    value = c.attributes.get(name)
    return None if value is None else c.constant(np.asarray(value))


def needed(c: Conversion, name: str) -> str:
    """The graph value of an argument that must be given."""
    found = arg(c, name)
    if found is None:
        raise ModelError(f"the argument {name!r} is missing", place=c.node.place)
    return found


def several(c: Conversion, name: str) -> list[str]:
    """The graph values of an argument that takes a list."""
    bound = c.attributes.get("inputs", ())
    found = [c.required(i) for i, n in enumerate(bound) if n == name]
    return found or [needed(c, name)]


def known(c: Conversion, name: str, default: Any = None) -> Any:
    """The value of an argument that must be constant: an array, a text, or `default`.

    Raises `ValueNeededError` when it is computed while the network runs.
    """
    bound = c.attributes.get("inputs", ())
    if name in bound:
        value = c.known(bound.index(name))
        if value is None or value.dtype == object:
            raise ValueNeededError(
                f"the argument {name!r} is computed while the network runs",
                place=c.node.place,
                next_step="convert the model with fixed shapes",
            )
        return value
    return c.attributes.get(name, default)


def numbers(c: Conversion, name: str, default: Any = None) -> Any:
    """A constant list of integers as a tuple."""
    value = known(c, name)
    if value is None:
        return default
    array = np.asarray(value)
    if array.dtype.kind not in "iub":
        raise ModelError(f"{name} should be integers, not {array.dtype}", place=c.node.place)
    return tuple(int(v) for v in array.ravel())


def integer(c: Conversion, name: str, default: int | None = None) -> int:
    found = numbers(c, name)
    if found is None and default is not None:
        return default
    if found is None or len(found) != 1:
        raise ModelError(f"{name} should be one integer, not {found}", place=c.node.place)
    return int(found[0])


def flag(c: Conversion, name: str, default: bool = False) -> bool:
    return bool(integer(c, name, int(default)))


def number(c: Conversion, name: str, default: float | None = None) -> float:
    """A constant number; absent, `default`."""
    value = known(c, name)
    if value is None and default is not None:
        return default
    array = np.asarray(value)
    if value is None or array.size != 1 or isinstance(value, str):
        raise ModelError(f"{name} should be one number, not {value}", place=c.node.place)
    return float(array.ravel()[0])


def text(c: Conversion, name: str, default: str) -> str:
    value = known(c, name, default)
    if not isinstance(value, str):
        raise ModelError(f"{name} should be a text, not {value}", place=c.node.place)
    return value


def refuse(c: Conversion, name: str, why: str) -> None:
    """Refuse the value of a constant argument by name."""
    c.attributes.refuse(name, why)


def dtype_of(c: Conversion, value: str) -> np.dtype:
    return c.type(value).dtype.numpy


def rank_of(c: Conversion, value: str) -> int:
    return c.rank(value)


def like(c: Conversion, x: str, value: Any) -> str:
    """A constant in the element type of a graph value."""
    return c.constant(np.asarray(value, dtype_of(c, x)))


def pairs(flat: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(b0, e0, b1, e1, ...) as ((b0, e0), (b1, e1), ...)."""
    return tuple(zip(flat[::2], flat[1::2]))


def positions(c: Conversion, name: str) -> str:
    """The graph value of an argument of indices, int64."""
    found = needed(c, name)
    if c.type(found).dtype == "int64":
        return found
    return c.add("Cast", [found], to="int64")


def named(c: Conversion, values: Sequence[str], **casts: str) -> tuple[str, ...]:
    """Nodes that give values the names of the operation's outputs; to: their element type."""
    kind = "Cast" if casts else "Identity"
    return tuple(
        c.builder.add(c.operator(kind, **casts), [v], [name], c.node.name)
        for v, name in zip(values, c.node.outputs)
    )

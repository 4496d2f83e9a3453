"""The table's registry, and what rows of several families share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from verax.base.errors import ModelError
from verax.frontends.common.channels_last import (
    channels_first,
    finish_channels_last,
    to_first,
    transposed,
)
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.table import Table
from verax.ir.operator import Operator
from verax.ir.types import COMPUTED, DType

TABLE = Table()
"""Rows by (domain, operator); MXNet has one domain."""
row = TABLE.row


def ints(c: Conversion, name: str, default: Any = None) -> Any:
    """A parameter that is an integer or a tuple of integers, as a tuple."""
    if c.attributes.has(name) and type(c.attributes.values[name]) is int:
        return (c.integer(name),)
    return c.integers(name, default)


def floats(c: Conversion, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
    """A parameter of one number or several. An empty one is an error."""
    a = c.attributes
    if a.has(name) and not isinstance(a.values[name], tuple):
        return (a.scalar(name),)
    numbers: tuple[float, ...] = a.numbers(name, default)
    if not numbers or (len(default) > 1 and len(numbers) != len(default)):
        raise ModelError(f"{name} = {numbers}", place=c.node.place)
    return numbers


def per_axis(c: Conversion, name: str, rank: int, default: int) -> tuple[int, ...]:
    """A parameter with one integer per spatial axis; an empty tuple means `default` everywhere.

    Raises `ModelError` when there is another number of them.
    """
    values: tuple[int, ...] = ints(c, name, ()) or (default,) * rank
    if len(values) != rank:
        raise ModelError(f"{name} = {values} needs {rank} numbers", place=c.node.place)
    return values


def dtype_named(c: Conversion, name: str, default: str | None = None) -> DType:
    """The element type that a parameter names. Refuses one that Verax lacks."""
    text = c.text(name, default)
    if text not in COMPUTED:
        c.attributes.refuse(name, "unknown element type")
    return DType(text)


def keep_dtype(c: Conversion, name: str = "dtype", index: int = 0) -> None:
    """Refuse a parameter that names another element type than the input's; None names none."""
    if c.attributes.get(name) is not None and dtype_named(c, name) is not c.type(index).dtype:
        c.attributes.refuse(name, f"the input is {c.type(index)}")


def known_dims(c: Conversion, index: int, dependent: str, first: int = 0) -> tuple[int, ...]:
    """Sizes of an input from axis `first` on, which must be known."""
    return c.known_sizes(index, range(first, c.rank(index)), dependent)


def count_inputs(c: Conversion, *allowed: int) -> None:
    """Raise `ModelError` when the node has another number of inputs."""
    if len(c.inputs) not in allowed:
        raise ModelError(
            f"the node has {len(c.inputs)} inputs, its parameters say {allowed[0]}",
            place=c.node.place,
        )


LAYOUTS: dict[int, tuple[str, ...]] = {
    1: ("NCW", "NWC"),
    2: ("NCHW", "NHWC"),
    3: ("NCDHW", "NDHWC"),
}
"""Layouts by the number of spatial axes: channels second, channels last."""


def is_channels_last(c: Conversion, spatial: int) -> bool:
    """Whether `layout` puts channels last; absent or None it puts them second."""
    allowed = LAYOUTS.get(spatial, ("", ""))
    layout = c.attributes.get("layout")
    if layout is not None and layout not in allowed:
        c.attributes.refuse("layout", f"it is none of {', '.join(allowed)}")
    return bool(layout == allowed[1])


def channels_second(c: Conversion) -> Conversion:
    """The same node on data and weights [x, *spatial, channels] brought to [x, channels, *spatial].

    Its result is brought back by `channels_back`.
    """
    rank = c.rank()
    inputs = [channels_first(c, c.required(0))]
    if len(c.inputs) > 1:
        inputs.append(transposed(c, c.required(1), to_first(rank)))
    return replace(c, inputs=(*inputs, *c.inputs[2:]))


def channels_back(c: Conversion, inner: Conversion, result: Operator) -> Result:
    """Append an operator on what `channels_second` gave, its channels moved back to the end."""
    names = [c.fresh(f"{c.first_output}/{result.kind}")]
    outputs = c.builder.add_all(result, list(inner.inputs), names, c.node.name)
    return finish_channels_last(c, outputs[0])


def sizes_along(c: Conversion, index: int, axes: Sequence[int]) -> str:
    """Sizes of an input along axes, as an int64 vector: known ones, or asked for at run time."""
    dims = [c.type(index).dims[axis] for axis in axes]
    if all(isinstance(d, int) for d in dims):
        return c.ints(dims)  # type: ignore[arg-type]
    shape = c.add("Shape", [c.required(index)])
    return c.add("Gather", [shape, c.ints(axes)], axis=0)

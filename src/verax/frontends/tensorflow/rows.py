"""The table of TensorFlow operators, its entry, and what rows of several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verax.base.errors import ModelError
from verax.frontends.common.channels_last import channels_first, constant_ints, finish_channels_last
from verax.frontends.common.context import Conversion, Result, Row
from verax.frontends.common.table import Table
from verax.ir.types import DType

TYPES = ("T", "U", "Tparams", "T_threshold")
"""Attributes that name the element type of data."""
INDEX_TYPES = (
    *("Tidx", "Tperm", "Tshape", "Tpaddings", "Tindices", "Taxis", "Tdim", "Index", "Tlen"),
    *("Tmultiples", "Tblock_shape", "Tcrops", "TI", "Tk", "Tshift"),
)
"""Attributes that name the element type of operands that count or point."""


def _checked(function: Row) -> Row:
    """A row that need not read the attributes that repeat operands' element types."""

    def checked(c: Conversion) -> Result:
        _check_types(c)
        return function(c)

    return checked


def _check_types(c: Conversion) -> None:
    """Each type that the node states is one of its operands'."""
    operand_types = {str(c.type(v).dtype) for v in c.inputs if v is not None}
    counts = c.node.op_type != "Range"  # its Tidx is the type of what it gives
    integer_types = {name for name in operand_types if "int" in name} if counts else operand_types
    for names, types in ((TYPES, operand_types), (INDEX_TYPES, integer_types)):
        for name in names:
            stated = c.attributes.get(name) if c.attributes.has(name) else None
            if isinstance(stated, str) and stated not in types:
                c.attributes.refuse(name, f"the operands are {', '.join(sorted(types))}")
    c.attributes.irrelevant("use_cudnn_on_gpu", "it chooses an implementation")
    for name in c.attributes.values:
        if name.startswith("_"):
            c.attributes.irrelevant(name, "a hint for TensorFlow's own machinery")


TABLE = Table(wrap=_checked)
"""Rows by (domain, operator); TensorFlow has one domain."""
row = TABLE.row


def known_sizes(c: Conversion, index: int, description: str) -> tuple[Any, ...]:
    """An operand that holds sizes: numbers, and expressions where they are open."""
    value = c.known_value(index)
    if value is None:
        return constant_ints(c, index, description)
    return tuple(v if value.dtype == object else int(v) for v in value.reshape(-1))


MAX_PARTS = 4096
"""Nodes that one foreign node may become part by part."""
MAX_COMPUTED = 1 << 24
"""Elements of a constant that a row computes."""


def bounded(c: Conversion, count: int, limit: int = MAX_PARTS) -> int:
    """The count; refuses the node when it asks for more than importing should make."""
    if count > limit:
        c.refuse(f"{count} parts, at most {limit} are made")
    return count


def stated_integer(c: Conversion, name: str) -> int:
    """An integer attribute that has no default."""
    value: int | None = c.integer(name)
    if value is None:
        raise ModelError(f"the attribute {name} is missing", place=c.node.place)
    return value


def as_long(c: Conversion, index: int) -> str:
    """An operand of integers as int64, in its own shape."""
    value = c.required(index)
    return value if c.type(index).dtype is DType.int64 else c.add("Cast", [value], to=DType.int64)


class NodeLayout:
    """Where a node's channels lie, `data_format`, and the moves to channels-first and back."""

    def __init__(self, c: Conversion, default: str) -> None:
        self.c = c
        self.format = c.text("data_format", default)
        spatial = "DHW"[5 - len(default) :]
        if self.format not in (f"N{spatial}C", f"NC{spatial}"):
            c.attributes.refuse("data_format")
        self.last = self.format.endswith("C")
        self.rank = len(default)

    def first(self, value: str) -> str:
        """The value channels-first."""
        return channels_first(self.c, value) if self.last else value

    def finish(self, kind: str, inputs: Sequence[str | None], **fields: Any) -> tuple[str, ...]:
        """The node's result, its channels back where they belong."""
        if not self.last:
            return self.c.result(kind, inputs, **fields)
        return finish_channels_last(self.c, self.c.add(kind, inputs, **fields))

    def spatial(self, name: str, default: Any = None) -> tuple[int, ...]:
        """The spatial entries of a list with one entry per axis; the others must be 1."""
        return self.inner(self.c.integers(name, default), name)

    def inner(self, values: tuple[int, ...] | None, name: str) -> tuple[int, ...]:
        """The spatial ones of numbers per axis; the others must be 1."""
        if values is None or len(values) != self.rank:
            raise ModelError(
                f"{name} = {values} needs {self.rank} entries", place=self.c.node.place
            )
        if self.last:
            inner, outer = values[1:-1], values[:1] + values[-1:]
        else:
            inner, outer = values[2:], values[:2]
        if set(outer) != {1}:
            self.c.refuse(f"{name} = {values} across the batch or channels")
        return tuple(inner)

    def pads(self) -> Any:
        """Pads: the rule SAME (the odd one at the end), none, or numbers per axis."""
        a = self.c.attributes
        rule = a.text("padding")
        explicit = a.integers("explicit_paddings", ())
        if rule == "EXPLICIT":
            pads_per_axis = list(zip(explicit[::2], explicit[1::2]))
            if len(explicit) != 2 * self.rank:
                a.refuse("explicit_paddings", "it needs two numbers per axis")
            inner = pads_per_axis[1:-1] if self.last else pads_per_axis[2:]
            outer = (pads_per_axis[0], pads_per_axis[-1]) if self.last else tuple(pads_per_axis[:2])
            if any(p != (0, 0) for p in outer):
                a.refuse("explicit_paddings", "of the batch or channels")
            return tuple(inner)
        if any(explicit):
            a.refuse("explicit_paddings", f"the padding is {rule}")
        if rule not in ("SAME", "VALID"):
            a.refuse("padding")
        return "SAME_UPPER" if rule == "SAME" else ()

"""The table's registry, and what rows of several families share.

A row is entered for floating-point operands, for quantized ones (`quantized=True`), for quantized
weights on floating-point data (`hybrid=True`), or for both of the first two when it only moves data
(`moves=True`: both sides must then be quantized alike). Which one applies is told by the attributes
`input0.scale` and the like, which the reader adds to quantized operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from verax.frontends.common import formulas
from verax.frontends.common.context import Applied, Conversion, Result, Row
from verax.frontends.common.table import Table
from verax.frontends.tflite.state import WRITERS

TABLE: dict[tuple[str, str], Row] = {}
"""Rows by (domain, operator)."""
FLOAT: dict[str, Row] = {}
QUANTIZED: dict[str, Row] = {}
HYBRID: dict[str, Row] = {}
MAX_POSITIONS = 1 << 20
"""Positions that a row may list one by one in a constant; what needs more is refused."""
REASONS = dict.fromkeys(
    WRITERS, ": its state is rounded in every step; convert the model without quantization"
)
"""Why operators of one kind of operands have no row, and what to do."""
DATA = {"TRANSPOSE_CONV": 2}
"""Which operand is the data, where it is not the first."""


def row(
    *operators: str,
    quantized: bool = False,
    hybrid: bool = False,
    moves: bool = False,
    domain: str = "",
) -> Callable[[Row], Row]:
    """Enter a function as the row of TFLite operators."""

    def enter(function: Row) -> Row:
        rows = HYBRID if hybrid else QUANTIZED if quantized else FLOAT
        for name in operators:
            _enter(rows, name, function, domain)
            if moves:
                _enter(QUANTIZED, name, _moving(function), domain)
        return function

    return enter


class _FloatRows(Table):
    """Enters rows of floating-point operands."""

    def row(self, *operators: str, domain: str | None = None) -> Callable[[Any], Any]:
        return row(*operators, domain=domain or "")


FLOATS = _FloatRows()


def _enter(rows: dict[str, Row], name: str, function: Row, domain: str) -> None:
    assert name not in rows, name
    rows[name] = function
    TABLE[domain, name] = _dispatch


def _dispatch(c: Conversion) -> Result:
    """The row for the operands' kind."""
    name = c.node.op_type
    is_quantized = any("." in key for key in c.attributes.values)
    convert = (QUANTIZED if is_quantized else FLOAT).get(name)
    if is_quantized and name in HYBRID and c.type(DATA.get(name, 0)).dtype.is_float:
        convert = HYBRID[name]
    if convert is None:
        kind = "quantized" if is_quantized else "floating-point"
        c.refuse(f"{kind} operands are not supported{REASONS.get(name, '')}")
    return convert(c)


def _moving(function: Row) -> Row:
    """A row that moves quantized data: every quantized operand must be quantized alike."""

    def convert(c: Conversion) -> Result:
        first: tuple[Any, Any] | None = None
        for key in [k for k in c.attributes.values if k.endswith(".scale")]:
            side = key.removesuffix(".scale")
            scale = c.attributes.tensor(key)
            zero = c.attributes.tensor(f"{side}.zero_point")
            if scale.size != 1:
                c.refuse("scales per channel are not supported where data is moved")
            if first is not None and first != (scale[0], zero[0]):
                c.refuse("its operands are quantized differently, and LiteRT would not convert")
            first = scale[0], zero[0]
        return function(c)

    return convert


ACTIVATIONS: dict[str, tuple[float, float]] = {
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
    "RELU_0_TO_1": (0.0, 1.0),
}
"""Activations that clamp, with their bounds."""


def activation(c: Conversion) -> str:
    """The fused activation; refused where LiteRT itself ignores it."""
    name: str = c.text("fused_activation_function", "NONE")
    if name not in ("NONE", "RELU", *ACTIVATIONS):
        c.attributes.refuse("fused_activation_function", "LiteRT's kernels ignore it in silence")
    return name


def activated(c: Conversion, value: str, name: str) -> str:
    """The value after a fused activation, under a name of its own."""
    return value if name == "NONE" else c.append(_activation(c, value, name))


def _activation(c: Conversion, value: str, name: str) -> Applied:
    if name == "RELU":
        return c.apply("Relu", [value])
    return formulas.clipped(c, value, *ACTIVATIONS[name])


def finish_activated(
    c: Conversion, name: str, kind: str, inputs: Sequence[str | None], **fields: Any
) -> Result:
    """An operator and its fused activation; the last node defines the output."""
    applied = c.apply(kind, inputs, **fields)
    return applied if name == "NONE" else _activation(c, c.append(applied), name)


def padding(c: Conversion) -> str:
    """SAME or VALID as a rule that the operators resolve; () for VALID."""
    rule: str = c.choice("padding", ("SAME", "VALID"), "SAME")
    return rule

"""`saturate` and `round_mode` of Cast and CastLike concern some types only: they are used for
those, stated irrelevant for others, and written for those alone."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.frontends.onnx_models import model

from verax.base.errors import UnsupportedError
from verax.export.onnx import to_onnx
from verax.frontends.common.ledger import AttributeOutcome
from verax.frontends.onnx import load_onnx
from verax.ir.graph import Builder
from verax.ir.operator import Operator
from verax.ir.types import DType, TensorType
from verax.ops.pointwise.cast import Cast
from verax.ops.quantized.quantization import QuantizeLinear

SATURATED = {
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
}
CODES = {
    **{"float32": TensorProto.FLOAT, "bfloat16": TensorProto.BFLOAT16, "int8": TensorProto.INT8},
    **{"int4": TensorProto.INT4, "float4_e2m1fn": TensorProto.FLOAT4E2M1},
    **{"float8_e5m2": TensorProto.FLOAT8E5M2, "float8_e8m0fnu": TensorProto.FLOAT8E8M0},
}


@pytest.mark.parametrize("to", CODES)
@pytest.mark.parametrize("like", [False, True])
def test_an_attribute_is_used_or_stated_irrelevant(to: str, like: bool) -> None:
    told = {"saturate": 0, "round_mode": "down"}
    if like:
        nodes = [
            helper.make_node("Cast", ["x"], ["l"], to=CODES[to]),
            helper.make_node("CastLike", ["x", "l"], ["y"], name="read", **told),
        ]
    else:
        nodes = [helper.make_node("Cast", ["x"], ["y"], name="read", to=CODES[to], **told)]
    proto = model(nodes, {"x": [2, 3]}, {"y": None}, opset=25)
    proto.graph.output[0].ClearField("type")
    read = load_onnx(proto)
    said = {
        e.attribute: e.reason
        for e in read.ledger.entries
        if e.outcome is AttributeOutcome.irrelevant
    }
    unused = set() if to == "float8_e8m0fnu" else {"round_mode"}
    assert set(said) == unused | (set() if to in SATURATED else {"saturate"})
    assert all(to in reason for reason in said.values())
    op = read.graph.nodes[-1].op
    assert isinstance(op, Cast) and op.to == to
    assert op.saturate == (to not in SATURATED)
    assert op.round_mode == ("down" if to == "float8_e8m0fnu" else "up")


@pytest.mark.parametrize("to", ["int8", "int4", "float8_e5m2", ""])
@pytest.mark.parametrize("zero", [False, True])
def test_saturate_of_quantization_is_used_or_stated_irrelevant(to: str, zero: bool) -> None:
    """An integer target is clipped whatever `saturate` says; without a type it is uint8."""
    told = {"saturate": 0} if zero or not to else {"saturate": 0, "output_dtype": CODES[to]}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s"], ["y"], name="read", **told)]
    values = {"s": np.float32(0.5)}
    if zero and to:
        nodes[0].input.append("z")
        values["z"] = np.zeros((), DType(to).numpy)
    proto = model(nodes, {"x": [2, 3]}, {"y": None}, values, opset=25)
    proto.graph.output[0].ClearField("type")
    read = load_onnx(proto)
    said = {
        e.attribute: e.reason
        for e in read.ledger.entries
        if e.outcome is AttributeOutcome.irrelevant
    }
    op = read.graph.nodes[-1].op
    assert isinstance(op, QuantizeLinear)
    assert op.saturate == (to not in SATURATED)
    assert set(said) == (set() if to in SATURATED else {"saturate"})
    assert all((to or "uint8") in reason for reason in said.values())


def attributes_written(op: Operator, *more: np.ndarray) -> set[str]:
    b = Builder("case")
    x = b.input("x", TensorType(DType.float32, (2, 3)))
    names = [b.constant(array, f"c{i}") for i, array in enumerate(more)]
    y = b.add(op, [x, *names], ["y"])
    (node,) = to_onnx(b.graph([y]), opset=25).graph.node
    return {a.name for a in node.attribute}


@pytest.mark.parametrize("to", [d for d in DType if d is not DType.bool_])
def test_no_attribute_is_written_where_it_has_no_meaning(to: DType) -> None:
    """ONNX Runtime refuses saturate = 0 where the type is no float of 8 bits."""
    found = attributes_written(Cast(to=to, saturate=False, round_mode="down"))
    assert ("saturate" in found) == (to in SATURATED)
    assert ("round_mode" in found) == (to is DType.float8_e8m0fnu)


@pytest.mark.parametrize("to", ["int8", "int4", "float4_e2m1fn", "float8_e5m2"])
def test_nor_by_quantization(to: str) -> None:
    op = QuantizeLinear(output_dtype=DType(to), saturate=False)
    assert ("saturate" in attributes_written(op, np.float32(0.5))) == (to in SATURATED)


def test_halves_away_from_zero_are_refused_for_narrow_integers() -> None:
    """Floats round to nearest even whatever `halves` says."""
    with pytest.raises(UnsupportedError, match="QuantizeLinear to uint4 with halves"):
        attributes_written(QuantizeLinear(output_dtype=DType.uint4, halves="away"), np.float32(0.5))
    eight = QuantizeLinear(output_dtype=DType.float8_e5m2, halves="away")
    assert "halves" not in attributes_written(eight, np.float32(0.5))

"""Every operator of the house, written as ONNX, is run by ONNX Runtime with the right numbers, or
is refused by name: there is no third possibility.

Where ONNX Runtime itself lacks a kernel or computes something else, it is said here.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from written_cases import NOT_IN_ONNX, expected, graph_of, is_refused, is_right

import verax
from verax.base.errors import UnsupportedError
from verax.export.onnx import to_onnx
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Case
from verax.ir.types import DType, TensorType
from verax.ops.pointwise.cast import Cast
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Kind

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

onnxruntime.set_default_logger_severity(4)
LACKS = {
    "BitShift": ("model IR version",),  # signed numbers are as young as opset 28
    "Celu": ("model IR version",),
    "Div": ("division by zero",),
    "FloorDiv": ("division by zero",),
    "Gemm": ("NOT_IMPLEMENTED",),
    "GridSample": ("Only 4-D or 5-D",),
    "LRN": ("size_ % 2 == 1", "NumDimensions() == 4"),
    "Mod": ("modulo by zero",),
    "OneHot": ("NOT_IMPLEMENTED",),
    "PRelu": ("NOT_IMPLEMENTED",),
    "Pad": ("Pad reflect",),
    "Resize": ("anti-aliasing",),
    "ReverseSequence": ("time_axis",),
}
"""Parts of the messages with which ONNX Runtime refuses some valid cases of an operator."""
LACKS_TYPES = (
    ("BitCast", "bool to", "Could not find an implementation"),
    ("Cast|(Deq|Q)uantizeLinear", "float4_e2m1fn", "Could not find an implementation"),
    ("(Deq|Q)uantizeLinear", "powers of two", "Could not find an implementation"),
    ("DequantizeLinear", r"\(\) float8_", "all zero points should be 0"),
)
"""(operators, what the case says, part of the message): types for which it has no kernel."""
NO_DOUBLE = ("NOT_IMPLEMENTED", "does not support double yet")
DIFFERS = (
    ("AffineGrid", "align_corners=True.* 3-D", "align_corners of three axes means something else"),
    ("Attention", "float64", "the scale is float32 where it is fused into the product"),
    ("BatchNormalization", "float64", "epsilon is added in float32"),
    ("Cast", r"float\d+ to u?int", "numbers beyond the type are taken modulo its size"),
    ("Cast", r"to u?int[24]\b", "rounded instead of cut"),
    ("Cast", "float32 to float8_e8m0fnu", "numbers below zero become the least number, not NaN"),
    ("Cast", "float8_e4m3fn', saturate=False", "480 to 496 become 448, not NaN"),
    ("Gemm", "float64", "alpha and beta are float32"),
    ("MaxPool", "NaN", "NaN is passed over"),
    ("MaxUnpool", "output_shape", "places count in the smaller output"),
    ("Pow", "wraps", "the power is taken in float64"),
    ("QuantizeLinear", "precision", "the attribute is ignored"),
    ("QuantizeLinear", r"\(\) float8_", "the zero point of floats is passed over"),
    ("RMSNormalization", "float64", "statistics are float32"),
    ("ReduceLogSumExp", "int32", "rounded where the meaning is cut"),
    ("Resize", "align_corners", "the length is that of the rounded output"),
    ("Resize", "keep_aspect_ratio_policy", "with axes the sizes are cut down"),
    ("TopK", "sorted=False", "another order, as it may"),
)
"""(operator, what its case says, what ONNX Runtime does otherwise)."""


def described(case: Case) -> str:
    kinds = {str(x.dtype) for x in case.inputs if x is not None}
    return f"{case.op} {case.label} {' '.join(sorted(kinds))}"


def with_wide_ends(
    graph: Graph, values: dict[str, np.ndarray]
) -> tuple[Graph, dict[str, np.ndarray]]:
    """The graph with inputs of 8 bits and less as constants and such outputs cast to float32, which
    is exact, and the values of the other inputs: NumPy hands ONNX Runtime none of these types."""
    types = {v: graph.types[v] for v in (*graph.inputs, *graph.outputs)}
    if not any(t.dtype.is_narrow for t in types.values()):
        return graph, values
    b, (node,) = Builder("case"), graph.nodes
    for name in graph.inputs:
        if types[name].dtype.is_narrow:
            b.constant(values[name], name)
        else:
            b.input(name, types[name])
    for name, array in graph.constants.items():
        b.constant(array, name)
    b.add_all(node.op, node.inputs, node.outputs, node.name)
    outputs = list(graph.outputs)
    for i, name in enumerate(outputs):
        if types[name].dtype.is_narrow:
            outputs[i] = b.add(Cast(to=DType.float32), [name], [f"{name}/wide"])
    return b.graph(outputs), {k: v for k, v in values.items() if not types[k].dtype.is_narrow}


def refusals(kind: str, case: str) -> tuple[str, ...]:
    return tuple(
        part
        for kinds, pattern, part in LACKS_TYPES
        if re.fullmatch(kinds, kind) and re.search(pattern, case)
    )


def is_known(kind: str, case: str) -> bool:
    return any(kind == k and re.search(pattern, case) for k, pattern, _ in DIFFERS)


@pytest.mark.parametrize("kind", sorted(REGISTRY))
def test_every_case_runs_or_is_refused_by_name(kind: str) -> None:
    ran = 0
    for case in REGISTRY[kind].cases(np.random.default_rng(0)):
        graph, values = graph_of(case)
        written, given = with_wide_ends(graph, values)
        types = {graph.types[v].dtype for v in (*graph.inputs, *graph.outputs)}
        try:
            proto = to_onnx(written)
        except UnsupportedError as error:
            assert kind in str(error) and is_refused(case, graph), error
            continue
        if DType.bfloat16 in types:
            continue  # NumPy hands ONNX Runtime no bfloat16
        try:
            session = onnxruntime.InferenceSession(
                proto.SerializeToString(), providers=["CPUExecutionProvider"]
            )
            outputs = session.run(None, given)
        except Exception as error:
            parts = NO_DOUBLE if DType.float64 in types else LACKS.get(kind, ())
            parts += refusals(kind, described(case))
            assert any(part in str(error) for part in parts), (case.op, str(error))
            continue
        ran += 1
        for found, (want, bound), name in zip(outputs, expected(graph, values), written.outputs):
            known = is_known(kind, described(case))
            assert known or is_right(found, want, bound, written.types[name].dtype), case.op
    assert ran or kind in {k for k, _ in NOT_IN_ONNX}, "no case ran"


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dims", ["0, 3, 4", "2, 0, 4", "2, 3, 0", "0, 0, 3"])
def test_a_flattening_softmax_of_nothing_keeps_its_shape(dims: str, axis: int) -> None:
    b = Builder("nothing")
    x = b.input("x", TensorType.parse(f"float32[{dims}]"))
    graph = b.graph([b.add(Softmax(axis=axis, flatten=True), [x], ["y"])])
    assert verax.check(graph, "onnxruntime").kind is Kind.identical

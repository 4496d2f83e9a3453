"""How RNN, GRU and LSTM are spelled in ONNX.

The batch is moved behind the steps: neither ONNX Runtime nor OpenVINO implements layout=1. What
ONNX's operators lack is written step by step (`unrolled`).
"""

from __future__ import annotations

from typing import Any

from verax.export.onnx.emission import (
    NodeGroup,
    OnnxEmission,
    onnx_node_of,
    spelled,
    written_for,
)
from verax.export.onnx.unrolled import step_by_step
from verax.ir.graph import Graph, Node
from verax.ops.recurrent.activations import NUMBERS, ONNX_CURVES, UNSTATED, takes
from verax.ops.recurrent.recurrent import CELL, HIDDEN, PROJECTION, R, Recurrent, X

TURN, OUTPUT_TURN = (1, 0, 2), (2, 0, 1, 3)
"""Of the sequence and the states, both ways; of the outputs, from [T, D, N, H]."""


@written_for("RNN", "GRU", "LSTM")
def recurrent(node: Node, graph: Graph, version: int) -> OnnxEmission:
    """RNN, GRU or LSTM."""
    op, g = node.op, NodeGroup(node, graph)
    assert isinstance(op, Recurrent)
    lacking = _lacking(op, len(node.inputs))
    if lacking:
        return step_by_step(g, lacking)
    rows = graph.types[g.input(R)].dims[1]
    assert isinstance(rows, int)
    attributes = _attributes(op, rows // op.gates)
    if not op.layout:
        return OnnxEmission([onnx_node_of(node, op.kind, node.inputs, node.outputs, **attributes)])
    inputs = [
        g.add("Transpose", v, perm=TURN) if i in (X, HIDDEN, CELL) and v is not None else v
        for i, v in enumerate(node.inputs)
    ]
    y, *ends = g.add_all(op.kind, inputs, op.output_count, **attributes)
    transposed = [g.add("Transpose", end, perm=TURN) for end in ends]
    return g.finish(g.add("Transpose", y, perm=OUTPUT_TURN), *transposed)


def _lacking(op: Recurrent, inputs: int) -> str:
    """What ONNX's operator of this name has not, "" when it says all."""
    if getattr(op, "cell_clip", None) is not None:
        return "bound of the cell state"
    if getattr(op, "input_from_forget", False):
        return "input gate that is made of the forget gate"
    if inputs > PROJECTION:
        return "projection"
    foreign = [name for name in op.activations if name not in ONNX_CURVES]
    return f"activation {foreign[0]}" if foreign else ""


def _attributes(op: Recurrent, hidden: int) -> dict[str, Any]:
    """ONNX lists the numbers of those activations only that take one, and of some it has no
    defaults: there ours are written."""
    spelled_attributes: dict[str, Any] = {}
    names = op.activations or op.usual * op.directions
    activations = [activation for curves in op.curves() for activation in curves]
    for name, value in op.attributes().items():
        key = name.removeprefix("activation_")
        unstated = key in NUMBERS and any(n in UNSTATED and key in takes(n) for n in names)
        if key in NUMBERS and (value or unstated):
            value = tuple(getattr(c, key) for n, c in zip(names, activations) if key in takes(n))
        if name not in ("layout", "cell_clip") and value is not False:
            spelled_attributes |= spelled(name, value)
    return {**spelled_attributes, "hidden_size": hidden}

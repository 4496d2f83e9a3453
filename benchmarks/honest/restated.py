"""The same quantised network said in other words: a runtime that is accused of one network and
right on its restatement contradicts itself.

Most restatements keep every number of the meaning: activations of int8 as uint8 (zero points 128
higher), weights of uint8 as int8 (128 lower), weights of transposed convolutions dequantised ahead,
which rounds as it would at run time, and ONNX Runtime's own operators on bytes (`com.microsoft`)
spelled out as the dequantisation, the operator and the quantisation that they are defined by. The
last one does not: without what is quantised to 16 bits. A runtime whose answer agrees with that
network, and not with the one that it was given, left the quantisation out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OWN = "com.microsoft"
UNSIGNED, SIGNED, FOLDED, SPELLED, CONVOLVED, FLOAT = (
    "activations as uint8",
    "weights as int8",
    "weights of transposed convolutions dequantised ahead",
    "operators on bytes spelled out",
    "QLinearConv spelled out",
    "nothing quantised to 16 bits",
)
BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul"}
UNARY = {
    "QLinearSigmoid": "Sigmoid",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearSoftmax": "Softmax",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearAveragePool": "AveragePool",
}


def restatements(model: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """(in which words, the network), the smallest changes first; only those that change it."""
    # Operators are spelled out first: what they quantise can then be said otherwise.
    same: tuple[tuple[str, _Change], ...] = (
        (SPELLED, spelled_out),
        (CONVOLVED, convolutions_spelled_out),
        (UNSIGNED, unsigned),
        (SIGNED, signed),
        (FOLDED, folded),
    )
    for count in range(1, len(same) + 1):
        for chosen in itertools.combinations(same, count):
            made: onnx.ModelProto | None = model
            for _, change in chosen:
                made = None if made is None else change(made)
            if made is not None:
                yield " and ".join(name for name, _ in chosen), made
    floats = float_sixteen(model)
    if floats is not None:
        yield FLOAT, floats


_Change = Callable[[onnx.ModelProto], onnx.ModelProto | None]


def _copy(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.value_info[:]
    return made, {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}


def _put(model: onnx.ModelProto, name: str, array: np.ndarray) -> None:
    for tensor in model.graph.initializer:
        if tensor.name == name:
            tensor.CopyFrom(numpy_helper.from_array(array, name))


def _with_nodes(made: onnx.ModelProto, nodes: list[Any]) -> onnx.ModelProto | None:
    """The network of these nodes; None when there are as many as before, so that none changed."""
    if len(nodes) == len(made.graph.node):
        return None
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def unsigned(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Quantisations of activations to int8, to uint8 instead; None without any."""
    made, known = _copy(model)
    if any(n.domain == OWN and n.op_type not in ZEROS for n in made.graph.node):
        return None
    pairs = [
        (node.input[i], node.input[z])
        for node in made.graph.node
        for i, z in ZEROS.get(node.op_type, ())
        if z < len(node.input) and _is(known, node.input[z], np.int8)
    ]
    moved = {zero for value, zero in pairs if value not in known}
    if not moved:
        return None
    moved |= {value for value, zero in pairs if zero in moved and value in known}
    for name in moved:
        _put(made, name, (known[name].astype(np.int16) + 128).astype(np.uint8))
    return made


QDQ = ("QuantizeLinear", "DequantizeLinear")
ZEROS = {
    "QuantizeLinear": ((0, 2),),
    "DequantizeLinear": ((0, 2),),
    "QLinearConv": ((0, 2), (3, 5), (0, 7)),
    "QLinearMatMul": ((0, 2), (3, 5), (0, 7)),
    "QGemm": ((0, 2), (3, 5), (0, 8)),
}
"""Where operators have zero points, each with a value that is computed if it is an activation's."""


def _is(known: dict[str, np.ndarray], name: str, dtype: Any) -> bool:
    return name in known and known[name].dtype == dtype


def signed(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Weights of uint8 as int8; None without any."""
    made, known = _copy(model)
    pairs = [
        (node.input[i], node.input[z])
        for node in made.graph.node
        for i, z in ZEROS.get(node.op_type, ())
        if z < len(node.input) and _is(known, node.input[z], np.uint8)
    ]
    activations = {zero for value, zero in pairs if value not in known}
    moved = {v for value, zero in pairs if zero not in activations for v in (value, zero)}
    if not moved:
        return None
    for name in moved:
        _put(made, name, (known[name].astype(np.int16) - 128).astype(np.int8))
    return made


def folded(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Quantised weights of transposed convolutions as the floats that they mean; None without."""
    made, known = _copy(model)
    weights = {n.input[1] for n in made.graph.node if n.op_type == "ConvTranspose"}
    nodes = []
    for node in made.graph.node:
        parts = [known.get(name) for name in node.input]
        ready = node.op_type == "DequantizeLinear" and all(p is not None for p in parts)
        if not ready or node.output[0] not in weights or parts[1].size > 1:
            nodes.append(node)
            continue
        zero = parts[2] if len(parts) > 2 else np.zeros((), parts[0].dtype)
        whole = parts[0].astype(np.int64) - zero.astype(np.int64)
        found = whole.astype(np.float32) * parts[1].astype(np.float32).reshape(())
        made.graph.initializer.append(numpy_helper.from_array(found, node.output[0]))
    return _with_nodes(made, nodes)


def spelled_out(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """ONNX Runtime's operators on bytes as the three steps that they mean; None without any."""
    made, _ = _copy(model)
    nodes: list[Any] = []
    for node in made.graph.node:
        nodes += _spelled(node) if node.domain == OWN else [node]
    return _with_nodes(made, nodes)


def _spelled(node: Any) -> list[Any]:
    """The nodes of one operator; itself when it is none of those that are known."""
    before: list[Any] = []

    def read(value: str, scale: str, zero: str) -> str:
        name = f"{node.output[0]}/read{len(before)}"
        before.append(helper.make_node("DequantizeLinear", [value, scale, zero], [name], name))
        return name

    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    given = list(node.input)
    if node.op_type in BINARY:
        kind, scale, zero = BINARY[node.op_type], *given[6:8]
        inputs = [read(*given[:3]), read(*given[3:6])]
    elif node.op_type in UNARY:
        kind, scale, zero = UNARY[node.op_type], *given[3:5]
        inputs = [read(*given[:3])]
        if attributes.pop("channels_last", 0):
            return [node]
        attributes.pop("opset", None)  # of Softmax
    elif node.op_type == "QLinearConcat":
        kind, scale, zero = "Concat", *given[:2]
        inputs = [read(*given[i : i + 3]) for i in range(2, len(given), 3)]
    else:
        return [node]
    name = f"{node.output[0]}/meant"
    meant = helper.make_node(kind, inputs, [name], name, **attributes)
    written = [name, scale, zero]
    label = f"{node.output[0]}/written"
    return [*before, meant, helper.make_node("QuantizeLinear", written, [node.output[0]], label)]


def convolutions_spelled_out(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """QLinearConv as the convolution of floats that it means; None without any."""
    made, known = _copy(model)
    nodes: list[Any] = []
    for node in made.graph.node:
        if node.op_type != "QLinearConv":
            nodes.append(node)
            continue
        name, given = node.output[0], list(node.input)
        factor = known[given[1]] * known[given[4]]
        inputs = [f"{name}/x", f"{name}/w"]
        nodes.append(helper.make_node("DequantizeLinear", given[:3], inputs[:1]))
        nodes.append(helper.make_node("DequantizeLinear", given[3:6], inputs[1:], axis=0))
        if len(given) > 8:
            made.graph.initializer.append(numpy_helper.from_array(factor, f"{name}/factor"))
            inputs.append(f"{name}/b")
            bias = [given[8], f"{name}/factor"]
            nodes.append(helper.make_node("DequantizeLinear", bias, inputs[2:], axis=0))
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        nodes.append(helper.make_node("Conv", inputs, [f"{name}/y"], **attributes))
        written = [f"{name}/y", given[6], given[7]]
        nodes.append(helper.make_node("QuantizeLinear", written, [name]))
    return _with_nodes(made, nodes)


def float_sixteen(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Without quantisations to 16 bits and back; None where there is none."""
    made, known = _copy(model)
    renamed: dict[str, str] = {}
    kept = []
    for node in made.graph.node:
        zero = known.get(node.input[2]) if len(node.input) > 2 else None
        wide = zero is not None and zero.dtype.itemsize == 2
        if node.op_type in QDQ and wide and node.input[0] not in known:
            renamed[node.output[0]] = renamed.get(node.input[0], node.input[0])
        else:
            kept.append(node)
    if not renamed:
        return None
    for node in kept:
        for i, value in enumerate(node.input):
            node.input[i] = renamed.get(value, value)
    for output in made.graph.output:
        if output.name in renamed:
            kept.append(helper.make_node("Identity", [renamed[output.name]], [output.name]))
    del made.graph.node[:]
    made.graph.node.extend(kept)
    return made

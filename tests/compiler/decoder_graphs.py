"""Decoders as exporters write them in ONNX: caches in, caches out."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HEADS, SHARED, FEATURES = 23, 6, 2, 16
LAYERS = 2
Arrays = dict[str, np.ndarray]
CACHES = {
    f"past_key_values.{i}.{part}": f"present.{i}.{part}"
    for i in range(LAYERS)
    for part in ("key", "value")
}


def decoder(
    attention: str, room: str | int = "past_length", batch: str | int = 1
) -> onnx.ModelProto:
    """Token ids [batch, tokens] to logits. attention: "grouped" (GroupQueryAttention with
    rotations, and a mask [batch, total] from which the numbers of tokens are computed), "many"
    (MultiHeadAttention), or "scattered" (TensorScatter at `first`, attention in parts over all of
    the room)."""
    random = np.random.default_rng(41)
    width, narrow = HEADS * FEATURES, SHARED * FEATURES
    if attention != "grouped":
        narrow = width
    nodes, weights = [], {"embedding": random.standard_normal((VOCABULARY, width))}
    heads = narrow // FEATURES
    angles = np.arange(64)[:, None] * 0.3 ** np.arange(FEATURES // 2)
    weights |= {"cos": np.cos(angles), "sin": np.sin(angles)}
    weights = {k: v.astype(np.float32) for k, v in weights.items()}
    weights |= {"one": np.array([1]), "axis": np.array([1]), "second": np.array(1)}

    def add(kind: str, inputs: list[str], outputs: list[str], **attributes: object) -> None:
        nodes.append(helper.make_node(kind, inputs, outputs, f"{kind} {outputs[0]}", **attributes))

    def float_weight(name: str, *shape: int) -> str:
        scale = 0.5 / np.sqrt(shape[0])
        weights[name] = (random.standard_normal(shape) * scale).astype(np.float32)
        return name

    add("Gather", ["embedding", "input_ids"], ["x0"])
    if attention == "grouped":
        add("ReduceSum", ["attention_mask", "axis"], ["count"], keepdims=0)
        add("Sub", ["count", "one"], ["last.wide"])
        add("Cast", ["last.wide"], ["last"], to=TensorProto.INT32)
        add("Shape", ["attention_mask"], ["mask.shape"])
        add("Gather", ["mask.shape", "second"], ["total.wide"], axis=0)
        add("Cast", ["total.wide"], ["total"], to=TensorProto.INT32)
    for i in range(LAYERS):
        parts = []
        for part, columns in (("q", width), ("k", narrow), ("v", narrow)):
            parts.append(f"{part}{i}")
            add("MatMul", [f"x{i}", float_weight(f"{part}{i}.weight", width, columns)], [parts[-1]])
        past = [f"past_key_values.{i}.key", f"past_key_values.{i}.value"]
        present = [f"present.{i}.key", f"present.{i}.value"]
        if attention == "grouped":
            inputs = [*parts, *past, "last", "total", "cos", "sin"]
            add("GroupQueryAttention", inputs, [f"a{i}", *present], num_heads=HEADS, do_rotary=1,
                kv_num_heads=SHARED, domain="com.microsoft")  # fmt: skip
        elif attention == "many":
            inputs = [*parts, "", "", "", *past]
            add("MultiHeadAttention", inputs, [f"a{i}", *present], num_heads=HEADS,
                unidirectional=1, domain="com.microsoft")  # fmt: skip
        else:
            _scattered(add, weights, i, parts, past, present)
        add("MatMul", [f"a{i}", float_weight(f"o{i}", width, width)], [f"m{i}"])
        add("Add", [f"x{i}", f"m{i}"], [f"x{i + 1}"])
    add("MatMul", [f"x{LAYERS}", float_weight("head", width, VOCABULARY)], ["logits"])
    value = helper.make_tensor_value_info
    inputs = [value("input_ids", TensorProto.INT64, [batch, "tokens"])]
    if attention == "grouped":
        inputs.append(value("attention_mask", TensorProto.INT64, [batch, "total"]))
    if attention == "scattered":
        inputs.append(value("first", TensorProto.INT64, [1]))
    cache = [batch, heads, room, FEATURES]
    inputs += [value(name, TensorProto.FLOAT, cache) for name in CACHES]
    outputs = ["logits", *CACHES.values()]
    graph = helper.make_graph(
        nodes, attention, inputs, [onnx.ValueInfoProto(name=o) for o in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items()],
    )  # fmt: skip
    sets = [helper.make_opsetid("", 24), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=11)


def _scattered(add, weights, i, parts, past, present) -> None:  # type: ignore[no-untyped-def]
    """Layer `i`: heads, TensorScatter, products and Softmax with what comes later hidden."""
    weights["heads"] = np.array([0, 0, HEADS, FEATURES])
    weights["merged"] = np.array([0, 0, HEADS * FEATURES])
    weights["scale"], weights["hidden"] = np.float32(FEATURES**-0.5), np.float32(-np.inf)
    weights["zero"], weights["nought"], weights["two"] = np.float32(0), np.array(0), np.array(2)
    weights["unit"], weights["columns"] = np.array(1), np.array([1])
    for part in parts:
        add("Reshape", [part, "heads"], [f"{part}.wide"])
        add("Transpose", [f"{part}.wide"], [f"{part}.heads"], perm=[0, 2, 1, 3])
    for part, old, new in zip(parts[1:], past, present, strict=True):
        add("TensorScatter", [old, f"{part}.heads", "first"], [new])
    if not i:
        add("Shape", [past[0]], ["room"], start=2, end=3)
        add("Shape", ["input_ids"], ["count"], start=1)
        for name in ("room", "count"):
            add("Squeeze", [name], [f"{name}.one"])
            add("Range", ["nought", f"{name}.one", "unit"], [f"{name}.places"])
        add("Add", ["count.places", "first"], ["queries"])
        add("Unsqueeze", ["queries", "columns"], ["rows"])
        add("LessOrEqual", ["room.places", "rows"], ["visible"])
        add("Where", ["visible", "zero", "hidden"], ["mask"])
    q, (k, v) = f"{parts[0]}.heads", present
    add("Transpose", [k], [f"k{i}.turned"], perm=[0, 1, 3, 2])
    add("MatMul", [q, f"k{i}.turned"], [f"s{i}"])
    add("Mul", [f"s{i}", "scale"], [f"s{i}.scaled"])
    add("Add", [f"s{i}.scaled", "mask"], [f"s{i}.masked"])
    add("Softmax", [f"s{i}.masked"], [f"p{i}"], axis=-1)
    add("MatMul", [f"p{i}", v], [f"h{i}"])
    add("Transpose", [f"h{i}"], [f"h{i}.turned"], perm=[0, 2, 1, 3])
    add("Reshape", [f"h{i}.turned", "merged"], [f"a{i}"])

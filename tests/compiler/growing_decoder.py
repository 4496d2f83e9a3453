"""A decoder as exporters write it: caches are concatenated, heads of keys shared by repeating."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS, HEADS, SHARED, FEATURES, WIDE = 19, 6, 2, 8, 16
"""Keys have FEATURES, values WIDE of them."""
LAYERS = 2
PARTS = {"key": FEATURES, "value": WIDE}
CACHES = {f"past.{i}.{part}": f"present.{i}.{part}" for i in range(LAYERS) for part in PARTS}


def growing_decoder(kind: str = "plain", dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """ids [batch, tokens] and what is added to scores [batch, 1, tokens, total] to logits.

    kind: "plain"; "read" where more than attention reads caches, past and present; "behind" where
    old rows come behind new ones.
    """
    random, nodes = np.random.default_rng(23), []
    element = helper.tensor_dtype_to_np_dtype(dtype)
    weights: dict[str, np.ndarray] = {
        "embedding": random.standard_normal((WORDS, HEADS * FEATURES)),
        "scale": np.array(FEATURES**-0.5),
    }
    whole = {
        "repeats": [1, 1, HEADS // SHARED, 1, 1], "third": [2], "merged": [0, 0, HEADS * WIDE],
        "ends": [1, 2, 3], "key.all": [0, HEADS, -1, FEATURES], "value.all": [0, HEADS, -1, WIDE],
        "q.heads": [0, 0, HEADS, FEATURES], "key.heads": [0, 0, SHARED, FEATURES],
        "value.heads": [0, 0, SHARED, WIDE],
    }  # fmt: skip

    def add(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def heads(x: str, name: str, columns: int, shape: str) -> str:
        weights[f"{name}.weight"] = random.standard_normal((HEADS * FEATURES, columns)) * 0.2
        y = add("MatMul", [x, f"{name}.weight"], f"{name}.flat")
        y = add("Reshape", [y, shape], f"{name}.split")
        return add("Transpose", [y], f"{name}.heads", perm=[0, 2, 1, 3])

    x = add("Gather", ["embedding", "ids"], "x0")
    for i in range(LAYERS):
        q = heads(x, f"q{i}", HEADS * FEATURES, "q.heads")
        all_rows = {}
        for part, features in PARTS.items():
            new = heads(x, f"{part}{i}", SHARED * features, f"{part}.heads")
            past = f"past.{i}.{part}"
            rows = [new, past] if kind == "behind" else [past, new]
            y = add("Concat", rows, CACHES[past], axis=-2)
            y = add("Unsqueeze", [y, "third"], f"{part}{i}.wide")
            y = add("Expand", [y, "repeats"], f"{part}{i}.repeated")
            all_rows[part] = add("Reshape", [y, f"{part}.all"], f"{part}{i}.all")
        k = add("Transpose", [all_rows["key"]], f"k{i}.turned", perm=[0, 1, 3, 2])
        scores = add("Mul", [add("MatMul", [q, k], f"s{i}"), "scale"], f"s{i}.scaled")
        shares = add("Softmax", [add("Add", [scores, "bias"], f"s{i}.masked")], f"p{i}", axis=-1)
        y = add("MatMul", [shares, all_rows["value"]], f"h{i}")
        y = add("Transpose", [y], f"h{i}.turned", perm=[0, 2, 1, 3])
        y = add("Reshape", [y, "merged"], f"a{i}")
        weights[f"o{i}"] = random.standard_normal((HEADS * WIDE, HEADS * FEATURES)) * 0.1
        x = add("Add", [x, add("MatMul", [y, f"o{i}"], f"m{i}")], f"x{i + 1}")
    weights["head"] = random.standard_normal((HEADS * FEATURES, WORDS))
    add("MatMul", [x, "head"], "logits")
    results = ["logits"]
    if kind == "read":
        for name in ("past.1.key", "present.1.key"):
            results.append(add("ReduceSum", [name, "ends"], f"{name}.sum", keepdims=0))
            results.append(add("Abs", [name], f"{name}.size"))
    stored = {v: np.asarray(a, element) for v, a in weights.items()}
    stored |= {v: np.array(a) for v, a in whole.items()}
    value = helper.make_tensor_value_info
    inputs = [value("ids", TensorProto.INT64, ["batch", "tokens"])]
    inputs.append(value("bias", dtype, ["batch", 1, "tokens", "total"]))
    inputs += [
        value(v, dtype, ["batch", SHARED, "length", PARTS[v.rpartition(".")[2]]]) for v in CACHES
    ]
    graph = helper.make_graph(
        nodes, f"growing {kind}", inputs,
        [onnx.ValueInfoProto(name=o) for o in (*results, *CACHES.values())],
        [numpy_helper.from_array(a, v) for v, a in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def given(batch: int, seen: int, count: int, seed: int) -> dict[str, np.ndarray]:
    """Inputs for further tokens: later ones are hidden, the first two rows of one sequence too."""
    random = np.random.default_rng(seed)
    total = seen + count
    visible = np.arange(total) <= seen + np.arange(count)[:, None]
    bias = np.where(visible, random.standard_normal((batch, 1, count, total)), -1e9)
    bias[-1, ..., : min(2, seen)] = -1e9
    return {
        "ids": random.integers(0, WORDS, (batch, count)),
        "bias": bias.astype(np.float32),
    }


def empty(batch: int) -> dict[str, np.ndarray]:
    """Caches of nothing."""
    shapes = {v: (batch, SHARED, 0, PARTS[v.rpartition(".")[2]]) for v in CACHES}
    return {v: np.zeros(shape, np.float32) for v, shape in shapes.items()}

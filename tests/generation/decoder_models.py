"""Small decoders as exporters write them, and what they mean in float64."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HEADS, FEATURES, LAYERS, PLACES = 29, 3, 4, 2, 64
WIDTH = HEADS * FEATURES
LOWEST = -1e9


@dataclass(frozen=True)
class Weights:
    """Of one decoder, by name."""

    arrays: dict[str, np.ndarray]

    @staticmethod
    def of(seed: int) -> Weights:
        rng = np.random.default_rng(seed)
        shapes = {"embedding": (VOCABULARY, WIDTH), "places": (PLACES, WIDTH)}
        shapes |= {f"{n}{i}": (WIDTH, WIDTH) for i in range(LAYERS) for n in "qkvo"}
        shapes["head"] = (WIDTH, VOCABULARY)
        return Weights({n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()})

    def logits(self, ids: list[int]) -> np.ndarray:
        """Of every token of one sequence in float64: [tokens, vocabulary]."""
        w = {n: a.astype(np.float64) for n, a in self.arrays.items()}
        x = w["embedding"][ids] + w["places"][: len(ids)]
        for i in range(LAYERS):
            q, k, v = (
                (x @ w[f"{n}{i}"]).reshape(-1, HEADS, FEATURES).swapaxes(0, 1) for n in "qkv"
            )
            scores = q @ k.swapaxes(1, 2) * 0.5
            scores = np.where(np.tri(len(ids), dtype=bool), scores, -np.inf)
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            x = np.tanh(x + (shares @ v).swapaxes(0, 1).reshape(-1, WIDTH) @ w[f"o{i}"])
        return x @ w["head"]

    def continued(self, ids: list[int], tokens: int) -> list[int]:
        """The likeliest tokens, one after another."""
        found = list(ids)
        for _ in range(tokens):
            found.append(int(self.logits(found)[-1].argmax()))
        return found[len(ids) :]


def _nodes(past: bool, prefix: str = "") -> list[onnx.NodeProto]:
    """The network; `prefix` of its inner values and outputs."""
    nodes: list[onnx.NodeProto] = []

    def add(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        name = prefix + output
        nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    x = add(
        "Add",
        [
            add("Gather", ["embedding", "input_ids"], "embedded"),
            add("Gather", ["places", "position_ids"], "placed"),
        ],
        "x",
    )
    count = add("Shape", ["input_ids"], "count", start=1, end=2)
    total = add("Shape", ["attention_mask"], "total", start=1, end=2)
    seen = add("Sub", [total, count], "seen")
    keys = add("Range", ["zero", add("Squeeze", [total], "total_s"), "one"], "keys")
    own = add("Range", ["zero", add("Squeeze", [count], "count_s"), "one"], "own")
    rows = add("Unsqueeze", [add("Add", [own, seen], "rows"), "last"], "rows_u")
    later = add("Greater", [keys, rows], "later")
    padding = add("Unsqueeze", [add("Equal", ["attention_mask", "zero"], "pad"), "inner"], "pad_u")
    hidden = add("Or", [padding, later], "hidden")
    for i in range(LAYERS):
        parts = {}
        for n in "qkv":
            y = add("Reshape", [add("MatMul", [x, f"{n}{i}"], f"{n}{i}_m"), "split"], f"{n}{i}_s")
            parts[n] = add("Transpose", [y], f"{n}{i}_t", perm=[0, 2, 1, 3])
        for n, word in (("k", "key"), ("v", "value")):
            inputs = [f"past_key_values.{i}.{word}", parts[n]] if past else [parts[n]]
            parts[n] = add("Concat", inputs, f"present.{i}.{word}", axis=2)
        k = add("Transpose", [parts["k"]], f"k{i}_tt", perm=[0, 1, 3, 2])
        s = add("Mul", [add("MatMul", [parts["q"], k], f"s{i}"), "half"], f"s{i}_h")
        p = add("Softmax", [add("Where", [hidden, "lowest", s], f"s{i}_w")], f"p{i}", axis=-1)
        y = add(
            "Transpose", [add("MatMul", [p, parts["v"]], f"y{i}")], f"y{i}_t", perm=[0, 2, 1, 3]
        )
        y = add("MatMul", [add("Reshape", [y, "joined"], f"y{i}_r"), f"o{i}"], f"y{i}_o")
        x = add("Tanh", [add("Add", [x, y], f"x{i}_a")], f"x{i}")
    add("MatMul", [x, "head"], "logits")
    return nodes


def _constants(weights: Weights) -> list[onnx.TensorProto]:
    arrays: dict[str, np.ndarray] = {
        **weights.arrays,
        **{
            "zero": np.array(0),
            "one": np.array(1),
            "last": np.array([1]),
            "inner": np.array([1, 2]),
        },
        "split": np.array([0, 0, HEADS, FEATURES]),
        "joined": np.array([0, 0, WIDTH]),
        "half": np.array(0.5, np.float32),
        "lowest": np.array(LOWEST, np.float32),
    }
    return [numpy_helper.from_array(a, n) for n, a in arrays.items()]


def _cache(word: str, length: str) -> list[onnx.ValueInfoProto]:
    shape = ["batch_size", HEADS, length, FEATURES]
    return [
        helper.make_tensor_value_info(f"{word}.{i}.{kind}", TensorProto.FLOAT, shape)
        for i in range(LAYERS)
        for kind in ("key", "value")
    ]


def _inputs(total: str) -> list[onnx.ValueInfoProto]:
    sizes = {"input_ids": "sequence_length", "position_ids": "sequence_length"}
    sizes["attention_mask"] = total
    return [
        helper.make_tensor_value_info(n, TensorProto.INT64, ["batch_size", s])
        for n, s in sizes.items()
    ]


def _outputs(prefix: str = "", cache: bool = True) -> list[onnx.ValueInfoProto]:
    shape = ["batch_size", "sequence_length", VOCABULARY]
    logits = helper.make_tensor_value_info(f"{prefix}logits", TensorProto.FLOAT, shape)
    return [logits, *(_cache(f"{prefix}present", "total_length") if cache else [])]


def save(path: Path, weights: Weights, past: bool = True, cache: bool = True) -> Path:
    """A decoder with a past, or one for prompts; without `cache` it gives logits alone."""
    total = "past_length + sequence_length" if past else "sequence_length"
    inputs = [*_inputs(total), *(_cache("past_key_values", "past_length") if past else [])]
    graph = helper.make_graph(
        _nodes(past), "decoder", inputs, _outputs(cache=cache), _constants(weights)
    )
    return _write(path, graph)


def save_merged(path: Path, weights: Weights) -> Path:
    """Both in one file, chosen by `use_cache_branch`."""
    branches = [
        helper.make_graph(_nodes(past, prefix), prefix, [], _outputs(prefix))
        for past, prefix in ((True, "with_"), (False, "without_"))
    ]
    names = [o.name for o in _outputs()]
    choice = helper.make_node(
        "If", ["use_cache_branch"], names, then_branch=branches[0], else_branch=branches[1]
    )
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    inputs = [*_inputs("total"), *_cache("past_key_values", "past_length"), flag]
    return _write(
        path, helper.make_graph([choice], "merged", inputs, _outputs(), _constants(weights))
    )


def _write(path: Path, graph: onnx.GraphProto) -> Path:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def save_genai_config(folder: Path, name: str, stop: list[int]) -> None:
    """What GenAI's model builder writes beside a model, in parts."""
    decoder = {"filename": name}
    model = {"context_length": PLACES, "eos_token_id": stop, "decoder": decoder}
    (folder / "genai_config.json").write_text(json.dumps({"model": model}))

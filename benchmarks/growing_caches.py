"""Decoding with caches that grow, bound and handed on, in Verax and in ONNX Runtime.

Run: python -m benchmarks.growing_caches [--seen 100 1000 4000] [--tokens 40] [--batch 1]

A decoder as exporters write it (past_key_values in, present out by Concat, attention as products
and Softmax with a mask), 6 layers x 512 in float32, 8 heads of 64 features, 1,000 words, goes on
one token at a time from --seen tokens. Reported, all in one process and taking turns: medians of
processor time per token in milliseconds of Verax with caches handed in and out and with bound ones,
and of ONNX Runtime in the same two ways (OrtValues that io_binding hands on); whether both of Verax
agree in bits; megabytes of the caches.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import onnx
from benchmarks.handed_on import Step, peer_step, session_of, verax_step
from onnx import TensorProto, helper, numpy_helper

import verax

LAYERS, HEADS, FEATURES, WORDS = 6, 8, 64, 1000
WIDTH = HEADS * FEATURES
CACHES = {
    f"past_key_values.{i}.{p}": f"present.{i}.{p}" for i in range(LAYERS) for p in ("key", "value")
}


def decoder() -> onnx.ModelProto:
    """ids [batch, tokens] and mask [batch, total] to logits, with a cache for every layer."""
    random = np.random.default_rng(7)
    weights = {"embedding": random.standard_normal((WORDS, WIDTH))}
    nodes: list[onnx.NodeProto] = []

    def add(kind: str, inputs: list[str], output: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def product(x: str, y: str, rows: int, columns: int) -> str:
        weights[f"{y}.weight"] = random.standard_normal((rows, columns)) * rows**-0.5
        return add("MatMul", [x, f"{y}.weight"], y)

    x = add("Gather", ["embedding", "ids"], "x0")
    count = add("Shape", ["ids"], "count", start=1, end=2)
    total = add("Shape", ["mask"], "total", start=1, end=2)
    keys = add("Range", ["nought", add("Squeeze", [total], "total.one"), "one"], "keys")
    own = add("Range", ["nought", add("Squeeze", [count], "count.one"), "one"], "own")
    rows = add("Add", [own, add("Sub", [total, count], "seen")], "rows")
    later = add("Greater", [keys, add("Unsqueeze", [rows, "column"], "rows.column")], "later")
    padded = add("Unsqueeze", [add("Equal", ["mask", "nought"], "pad"), "inner"], "padded")
    bias = add("Where", [add("Or", [padded, later], "hidden"), "lowest", "zero"], "bias")
    for i in range(LAYERS):
        parts = {}
        for p in "qkv":
            y = add("Reshape", [product(x, f"{p}{i}", WIDTH, WIDTH), "split"], f"{p}{i}.split")
            parts[p] = add("Transpose", [y], f"{p}{i}.heads", perm=[0, 2, 1, 3])
        for p, word in (("k", "key"), ("v", "value")):
            past = f"past_key_values.{i}.{word}"
            parts[p] = add("Concat", [past, parts[p]], CACHES[past], axis=2)
        turned = add("Transpose", [parts["k"]], f"k{i}.turned", perm=[0, 1, 3, 2])
        scores = add("Mul", [add("MatMul", [parts["q"], turned], f"s{i}"), "scale"], f"s{i}.scaled")
        shares = add("Softmax", [add("Add", [scores, bias], f"s{i}.masked")], f"p{i}", axis=-1)
        y = add("MatMul", [shares, parts["v"]], f"y{i}")
        y = add("Reshape", [add("Transpose", [y], f"y{i}.t", perm=[0, 2, 1, 3]), "joined"], f"a{i}")
        x = add("Add", [x, product(y, f"o{i}", WIDTH, WIDTH)], f"h{i}")
        up = add("Relu", [product(x, f"u{i}", WIDTH, 4 * WIDTH)], f"r{i}")
        x = add("Add", [x, product(up, f"d{i}", 4 * WIDTH, WIDTH)], f"x{i + 1}")
    product(x, "logits", WIDTH, WORDS)
    arrays = {v: a.astype(np.float32) for v, a in weights.items()}
    arrays |= {"zero": np.float32(0), "lowest": np.float32(-1e9), "scale": np.float32(0.125)}
    arrays |= {"nought": np.array(0), "one": np.array(1), "column": np.array([1])}
    arrays |= {"inner": np.array([1, 2]), "split": np.array([0, 0, HEADS, FEATURES])}
    arrays |= {"joined": np.array([0, 0, WIDTH])}
    value = helper.make_tensor_value_info
    inputs = [value("ids", TensorProto.INT64, ["batch", "tokens"])]
    inputs.append(value("mask", TensorProto.INT64, ["batch", "past + tokens"]))
    cache = ["batch", HEADS, "past", FEATURES]
    inputs += [value(v, TensorProto.FLOAT, cache) for v in CACHES]
    outputs = [onnx.ValueInfoProto(name=v) for v in ("logits", *CACHES.values())]
    stored = [numpy_helper.from_array(np.asarray(a), v) for v, a in arrays.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def verax_steps(exe: verax.Compiled, past: dict[str, np.ndarray], is_bound: bool) -> Step:
    """A step of Verax that goes on from `past`."""
    if is_bound:
        bound = exe.bind(CACHES, past)
        return lambda ids, mask: bound.run({"ids": ids, "mask": mask})["logits"]
    return verax_step(exe, past, CACHES)


def peer_steps(model: onnx.ModelProto, past: dict[str, np.ndarray], is_bound: bool) -> Step:
    """A step of ONNX Runtime."""
    import onnxruntime

    session, names = session_of(model, 1), ["logits", *CACHES.values()]
    if not is_bound:
        return peer_step(session, past, CACHES)
    values = {v: onnxruntime.OrtValue.ortvalue_from_numpy(a) for v, a in past.items()}

    def bound_step(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        binding = session.io_binding()
        binding.bind_cpu_input("ids", ids)
        binding.bind_cpu_input("mask", mask)
        for name, array in values.items():
            binding.bind_ortvalue_input(name, array)
        for name in names:
            binding.bind_output(name)
        session.run_with_iobinding(binding)
        logits, *new = binding.get_outputs()
        values.update(zip(CACHES, new, strict=True))
        return np.asarray(logits.numpy())

    return bound_step


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seen", type=int, nargs="+", default=[100, 1000, 4000])
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--level", type=int, default=2)
    options = parser.parse_args()
    model, random = decoder(), np.random.default_rng(3)
    exe = verax.compile(
        verax.load(model), threads=1, opt_level=options.level, certify=False, background=False
    )
    print("seen  handed on  bound | ONNX Runtime: handed on  bound   (ms/token)   MB   bits")
    for seen in options.seen:
        shape = (options.batch, HEADS, seen, FEATURES)
        past = {v: random.standard_normal(shape).astype(np.float32) for v in CACHES}
        ways = [verax_steps(exe, past, is_bound) for is_bound in (False, True)]
        ways += [peer_steps(model, past, is_bound) for is_bound in (False, True)]
        times: list[list[float]] = [[] for _ in ways]
        are_equal = True
        for turn in range(options.tokens + 3):
            ids = random.integers(0, WORDS, (options.batch, 1))
            mask = np.ones((options.batch, seen + turn + 1), np.int64)
            logits = []
            for way, own in zip(ways, times, strict=True):
                before = time.process_time()
                logits.append(way(ids, mask).tobytes())
                own.append((time.process_time() - before) * 1e3)
            are_equal &= logits[0] == logits[1]
        a, b, c, d = (float(np.median(own[3:])) for own in times)
        size = sum(p.nbytes for p in past.values()) / 1e6
        bits = "equal" if are_equal else "DIFFERENT"
        print(f"{seen:5} {a:9.2f} {b:7.2f} {c:24.2f} {d:6.2f} {size:18.1f}   {bits}", flush=True)


if __name__ == "__main__":
    main()

"""Decoding with caches of given room: bound in Verax, shared by input and output in ONNX Runtime.

Run: python -m benchmarks.bound_caches [--rooms 512 4096] [--seen 64] [--tokens 40] [--threads 1]

A decoder of GroupQueryAttention with rotations and float32 products (6 layers x 896, 14 heads of
64 features that share 2 of keys, 1,000 words) gets a prompt of --seen tokens, then one at a time.
Reported by room, all in one process: milliseconds of processor time per token of Verax with caches
handed in and out and with bound ones, and of ONNX Runtime in the same two ways (OrtValues of both
bound by io_binding); megabytes that the process has grown by; whether both of Verax agree in bits.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import onnx
from benchmarks.handed_on import Step, peer_step, session_of, verax_step
from onnx import TensorProto, helper, numpy_helper

import verax

LAYERS, HEADS, SHARED, FEATURES, WORDS = 6, 14, 2, 64, 1000
WIDTH, INNER = HEADS * FEATURES, 2 * HEADS * FEATURES
CACHES = {f"past.{i}.{p}": f"present.{i}.{p}" for i in range(LAYERS) for p in ("key", "value")}


def decoder() -> onnx.ModelProto:
    """ids [1, tokens] and mask [1, total] to logits, with a cache in and out for every layer."""
    random = np.random.default_rng(7)
    angles = np.arange(8192)[:, None] * 0.01 ** (np.arange(32) / 32)
    weights = {"cos": np.cos(angles), "sin": np.sin(angles)}
    weights["embedding"] = random.standard_normal((WORDS, WIDTH))
    nodes = [
        helper.make_node("Gather", ["embedding", "ids"], ["x0"]),
        helper.make_node("ReduceSum", ["mask", "axis"], ["count"], keepdims=0),
        helper.make_node("Sub", ["count", "axis"], ["last.wide"]),
        helper.make_node("Cast", ["last.wide"], ["last"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "second"], ["total.wide"], axis=0),
        helper.make_node("Cast", ["total.wide"], ["total"], to=TensorProto.INT32),
    ]

    def product(x: str, y: str, rows: int, columns: int) -> str:
        weights[f"{y}.weight"] = random.standard_normal((rows, columns)) * rows**-0.5
        nodes.append(helper.make_node("MatMul", [x, f"{y}.weight"], [y]))
        return y

    for i in range(LAYERS):
        x, narrow = f"x{i}", SHARED * FEATURES
        parts = [product(x, f"q{i}", WIDTH, WIDTH)]
        parts += [product(x, f"{p}{i}", WIDTH, narrow) for p in "kv"]
        caches = [f"past.{i}.key", f"past.{i}.value"]
        outputs = [f"a{i}", *(CACHES[v] for v in caches)]
        inputs = [*parts, *caches, "last", "total", "cos", "sin"]
        heads = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1}
        domain = "com.microsoft"
        nodes.append(
            helper.make_node("GroupQueryAttention", inputs, outputs, domain=domain, **heads)
        )
        projected = product(f"a{i}", f"o{i}", WIDTH, WIDTH)
        nodes.append(helper.make_node("Add", [x, projected], [f"h{i}"]))
        product(f"h{i}", f"u{i}", WIDTH, INNER)
        nodes.append(helper.make_node("Relu", [f"u{i}"], [f"r{i}"]))
        down = product(f"r{i}", f"d{i}", INNER, WIDTH)
        nodes.append(helper.make_node("Add", [f"h{i}", down], [f"x{i + 1}"]))
    product(f"x{LAYERS}", "logits", WIDTH, WORDS)
    value = helper.make_tensor_value_info
    inputs = [value("ids", TensorProto.INT64, [1, "tokens"])]
    inputs.append(value("mask", TensorProto.INT64, [1, "total"]))
    cache = [1, SHARED, "room", FEATURES]
    inputs += [value(v, TensorProto.FLOAT, cache) for v in CACHES]
    arrays = {v: a.astype(np.float32) for v, a in weights.items()}
    arrays |= {"axis": np.array([1]), "second": np.array(1)}
    outputs = [onnx.ValueInfoProto(name=v) for v in ("logits", *CACHES.values())]
    stored = [numpy_helper.from_array(a, v) for v, a in arrays.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, stored)
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def per_token(step: Step, room: int, seen: int, tokens: int) -> tuple[float, bytes]:
    """Milliseconds of processor time per token behind the prompt and three more; the logits."""
    random, before, logits = np.random.default_rng(3), 0.0, b""
    counts = [seen, *[1] * (tokens + 3)]
    filled = 0
    for turn, count in enumerate(counts):
        filled += count
        mask = (np.arange(room) < filled)[None].astype(np.int64)
        ids = random.integers(0, WORDS, (1, count))
        if turn == 4:
            before = time.process_time()
        logits = step(ids, mask)[0, -1].tobytes()
    return (time.process_time() - before) / tokens * 1e3, logits


def megabytes() -> float:
    """The most that the process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def empty(room: int) -> dict[str, np.ndarray]:
    """Caches of zeros."""
    return {v: np.zeros((1, SHARED, room, FEATURES), np.float32) for v in CACHES}


def verax_steps(model: onnx.ModelProto, room: int, threads: int, is_bound: bool) -> Step:
    """A step of Verax."""
    loaded = verax.load(model, shapes={"room": room, "total": room})
    exe = verax.compile(loaded, threads=threads, certify=False)
    if is_bound:
        bound = exe.bind(CACHES)
        return lambda ids, mask: bound.run({"ids": ids, "mask": mask})["logits"]
    return verax_step(exe, empty(room), CACHES)


def peer_steps(model: onnx.ModelProto, room: int, threads: int, is_bound: bool) -> Step:
    """A step of ONNX Runtime."""
    import onnxruntime

    session, caches = session_of(model, threads), empty(room)
    if not is_bound:
        return peer_step(session, caches, CACHES)
    values = {v: onnxruntime.OrtValue.ortvalue_from_numpy(a) for v, a in caches.items()}

    def bound_step(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        binding = session.io_binding()
        binding.bind_cpu_input("ids", ids)
        binding.bind_cpu_input("mask", mask)
        for past, present in CACHES.items():
            binding.bind_ortvalue_input(past, values[past])
            binding.bind_ortvalue_output(present, values[past])
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        return np.asarray(binding.get_outputs()[-1].numpy())

    return bound_step


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rooms", type=int, nargs="+", default=[512, 4096])
    parser.add_argument("--seen", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    model = decoder()
    print("room  engine        caches    ms/token   MB more")
    for room in options.rooms:
        logits = []
        for engine, make in (("Verax", verax_steps), ("ONNX Runtime", peer_steps)):
            for is_bound in (False, True):
                before = megabytes()
                step = make(model, room, options.threads, is_bound)
                found, last = per_token(step, room, options.seen, options.tokens)
                logits += [last] if engine == "Verax" else []
                name = "bound" if is_bound else "handed on"
                grown = megabytes() - before
                print(f"{room:5} {engine:13} {name:9} {found:9.2f} {grown:9.0f}", flush=True)
        print(f"{room:5} bits of both are {'equal' if len(set(logits)) == 1 else 'DIFFERENT'}")


if __name__ == "__main__":
    main()

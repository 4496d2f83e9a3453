"""Products with weights of 4 and 8 bits in blocks, beside ONNX Runtime and a copy of memory.

Each row is a file with six MatMulNBits of random weights, of the same data, added up, on one
thread: one row of data (a token of a language model) and 64 (a prompt). Between calls memory is
written that no cache holds, so that weights come from memory as they do in a whole model. Speeds
are the weights' bytes, scales and zero points included, by the time of a call, the first quartile;
the copy's are those that it reads and writes, in the same rounds. accuracy_level 4 says that data
are rounded to 8 bits by blocks, 0 that they stay float32.

    python -m benchmarks.few_bits                     # a minute
    python -m benchmarks.few_bits --rows rows.json --write docs/few_bits.md
"""

from __future__ import annotations

import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
from benchmarks import rows
from onnx import helper, numpy_helper

import verax

PROMPT, ROUNDS, LAYERS = 64, 15, 6
FLUSHED = 1 << 24
"""Numbers that are written between calls, 64 MB."""
NAMES = [
    f"{k}x{n}, {bits} bits by {size}{', zero points' * zero}, level {level}"
    for k, n in ((896, 4864), (4864, 896), (896, 32000), (2048, 8192))
    for bits, size, zero, level in (
        (4, 32, False, 4), (4, 128, True, 4), (8, 32, False, 4), (4, 32, False, 0),
    )
]  # fmt: skip
HEAD = ("product", "copy GB/s", "one row: Verax", "of the copy", "ONNX Runtime", "64 rows: Verax",
        "ONNX Runtime")  # fmt: skip


@dataclass
class Row:
    """One product. copy, decode: GB/s; prefill: thousand millions of operations a second; decode
    and prefill of Verax, then of ONNX Runtime. difference: between both, of the largest number."""

    name: str
    copy: float = 0.0
    decode: Sequence[float] = (0.0, 0.0)
    prefill: Sequence[float] = (0.0, 0.0)
    difference: float = 0.0

    def cells(self) -> list[str]:
        own, peer = self.decode
        share = f"{100 * own / self.copy:.0f} %"
        prompts = [f"{p:.0f} Gop/s" for p in self.prefill]
        return [self.name, f"{self.copy:.1f}", f"{own:.1f} GB/s", share, f"{peer:.1f} GB/s",
                *prompts]  # fmt: skip


def network(name: str, count: int) -> tuple[onnx.ModelProto, int, int]:
    """The model, the bytes of its weights, and the operations of a row."""
    k, n, bits, size, level = map(int, re.findall(r"\d+", name))
    r, blocks = np.random.default_rng([k, n, bits]), k // size
    constants, nodes = {}, []
    for layer in range(LAYERS):
        own = {
            f"q{layer}": r.integers(0, 256, (n, blocks, size * bits // 8)).astype(np.uint8),
            f"s{layer}": r.uniform(0.001, 0.01, n * blocks).astype(np.float32),
        }
        if "zero" in name:
            points = r.integers(0, 256, n * -(-blocks * bits // 8))
            own[f"z{layer}"] = points.astype(np.uint8)
        constants |= own
        nodes.append(
            helper.make_node(
                "MatMulNBits", ["x", *own], [f"y{layer}"], domain="com.microsoft", K=k, N=n,
                bits=bits, block_size=size, accuracy_level=level,
            )
        )  # fmt: skip
    nodes.append(helper.make_node("Sum", [f"y{layer}" for layer in range(LAYERS)], ["y"]))
    ends = [helper.make_tensor_value_info(v, 1, [count, d]) for v, d in (("x", k), ("y", n))]
    held = [numpy_helper.from_array(a, v) for v, a in constants.items()]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], held)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    return model, sum(a.nbytes for a in constants.values()), 2 * k * n * LAYERS


def quartiles(calls: Sequence[Callable[[], Any]], rounds: int = ROUNDS) -> list[float]:
    """Seconds of each call: the first quartile, in turns, from memory."""
    spoiled, times = np.zeros(FLUSHED, np.float32), [[] for _ in calls]  # type: ignore[var-annotated]
    for _ in range(rounds):
        for call, record in zip(calls, times, strict=True):
            spoiled += 1
            begin = time.perf_counter()
            call()
            record.append(time.perf_counter() - begin)
    return [sorted(t)[len(t) // 4] for t in times]


def measure(name: str) -> Row:
    """The row of one product."""
    row, figures = Row(name), []
    source = np.ones(FLUSHED, np.float32)
    target = np.zeros_like(source)
    for count in (1, PROMPT):
        model, nbytes, operations = network(name, count)
        x = np.random.default_rng(count).standard_normal((count, model_width(model)))
        x = x.astype(np.float32)
        exe = verax.compile(model, threads=1)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        providers = ["CPUExecutionProvider"]
        peer = onnxruntime.InferenceSession(model.SerializeToString(), options, providers)
        own, other = exe.run({"x": x})["y"], peer.run(None, {"x": x})[0]
        row.difference = max(row.difference, float(np.abs(own - other).max() / np.abs(own).max()))
        calls = [lambda: exe.run({"x": x}), lambda: peer.run(None, {"x": x})]  # noqa: B023
        seconds = quartiles([*calls, lambda: np.copyto(target, source)])
        row.copy = max(row.copy, 2 * source.nbytes / seconds[2] / 1e9)
        work = nbytes if count == 1 else operations * count
        figures.append([work / s / 1e9 for s in seconds[:2]])
    row.decode, row.prefill = figures
    return row


def model_width(model: onnx.ModelProto) -> int:
    """Numbers in a row of the data."""
    return int(model.graph.input[0].type.tensor_type.shape.dim[1].dim_value)


def page(found: Sequence[Row]) -> str:
    """The page."""
    lines = [
        "# Weights of 4 and 8 bits",
        "",
        "Made by `python -m benchmarks.few_bits`: six MatMulNBits of the same data, added up, "
        "on one thread, weights from memory. *of the copy*: what Verax reads a second, as a part "
        "of what a copy of memory reads and writes in the same rounds. accuracy_level 4 rounds "
        "data to 8 bits by blocks, 0 leaves them float32.",
        "",
    ]
    for level in (4, 0):
        some = [r for r in found if f"level {level}" in r.name]
        if not some:
            continue
        decode, prefill = (
            sum(own > peer for own, peer in figures)
            for figures in ([r.decode for r in some], [r.prefill for r in some])
        )
        apart = max(r.difference for r in some)
        lines += [
            f"**Level {level}: of {len(some)} products Verax is faster than ONNX Runtime in "
            f"{decode} of one row, in {prefill} of {PROMPT} rows; their answers are at most "
            f"{apart:.1g} of the largest number apart.**",
            "",
        ]
    lines += [f"ONNX Runtime {onnxruntime.__version__}, {platform.machine()}.", ""]
    return "\n".join([*lines, *rows.table(HEAD, found)]) + "\n"


def main() -> int:
    return rows.run(
        __doc__, Row, lambda asked: rows.among(NAMES, asked) or list(NAMES), measure, page
    )


if __name__ == "__main__":
    raise SystemExit(main())

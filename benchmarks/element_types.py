"""One network in every type of floats: what do 16 bits, 64 bits and allowed bfloat16 products cost?

    python benchmarks/element_types.py resnet18.onnx mobilenetv2.onnx --levels 1 3
    python benchmarks/element_types.py --products

A float32 network is made again with its constants and everything between its inputs and outputs in
another type; the programs run in turn in this process, on one thread and one drawn input. What
counts is the processor's time of the fastest run, for others use this machine too. --products: one
row by a large matrix, where reading weights is all the time, and float64 beside PyTorch and ONNX
Runtime.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

import verax
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.frontends.model import Model
from verax.ir.graph import Builder, Graph, specialize
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.judge.inputs import draw_inputs

TYPES = (DType.float16, DType.bfloat16, DType.float64)
FIXED = {"Resize": 1, "QuantizeLinear": 1, "DequantizeLinear": 1}
"""Operators with inputs from that number on that are float32 whatever the data are."""
Run = Callable[[], object]


def in_type(graph: Graph, dtype: DType) -> Graph:
    """A float32 network between a Cast of each input and one of each output."""
    b, values = Builder(graph.name), dict[str | None, str | None]()
    values[None] = None
    fixed = {v for n in graph.nodes for v in n.inputs[FIXED.get(n.op.kind, len(n.inputs)) :]}
    for v in graph.inputs:
        given = b.input(v, graph.types[v])
        floats = graph.types[v].dtype is DType.float32
        values[v] = b.add(REGISTRY["Cast"](to=dtype), [given]) if floats else given
    for v, array in graph.constants.items():
        floats = array.dtype == np.float32 and v not in fixed
        values[v] = b.constant(array.astype(dtype.numpy) if floats else array)
    for node in graph.nodes:
        made = b.add_all(node.op, [values[v] for v in node.inputs], (), node.name)
        values.update(zip(node.outputs, made, strict=True))
    back = REGISTRY["Cast"](to=DType.float32)
    ends = [values[v] for v in graph.outputs]
    floats = [v is not None and b.types[v].dtype is dtype for v in ends]
    return b.graph([b.add(back, [v]) if f else str(v) for v, f in zip(ends, floats, strict=True)])


def fastest(runs: Mapping[str, Run], rounds: int) -> dict[str, float]:
    """Milliseconds of processor time of each one's fastest run, in turn."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - begin)
    return {name: 1e3 * seconds for name, seconds in best.items()}


def program(graph: Graph, settings: Settings) -> Run:
    exe, inputs = compile(graph, settings), draw_inputs(graph)[0]
    exe.run(inputs)
    return lambda: exe.run(inputs)


def networks(paths: Sequence[Path], levels: Sequence[int], rounds: int) -> None:
    """A line of the table for each network and level."""
    names = ["float32", *map(str, TYPES), "bf16 allowed"]
    print("| network | level | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 2))
    for path in paths:
        model = verax.load(path)
        assert isinstance(model, Model)
        graph = specialize(model.graph, dict.fromkeys(model.graph.symbols(), 1))
        for level in levels:
            plain = Settings(level, 1)
            runs = {"float32": program(graph, plain)}
            runs |= {str(t): program(in_type(graph, t), plain) for t in TYPES}
            if level == 3:
                runs["bf16 allowed"] = program(graph, Settings(level, 1, allow=("bf16",)))
            found = fastest(runs, rounds)
            cells = [
                f"{found[n]:.2f} ({found[n] / found['float32']:.2f})" if n in found else "—"
                for n in names
            ]
            print(f"| {path.stem} | O{level} | {' | '.join(cells)} |", flush=True)


def products(rounds: int) -> None:
    """One row by a matrix; a product and a convolution of float64 beside others'."""
    rng = np.random.default_rng(8)
    row = rng.standard_normal((1, 4096), np.float32), rng.standard_normal((4096, 4096), np.float32)
    plain = _one("MatMul", row)
    runs = {"float32": program(plain, Settings(3, 1))}
    runs |= {str(t): program(in_type(plain, t), Settings(3, 1)) for t in TYPES}
    runs["bf16 allowed"] = program(plain, Settings(3, 1, allow=("bf16",)))
    print("one row by 4096 x 4096, ms:", _shown(fastest(runs, rounds)))
    shapes = {
        "MatMul": [(384, 768), (768, 512)],
        "Conv": [(1, 64, 56, 55), (96, 64, 3, 3)],
    }
    for kind, sizes in shapes.items():
        graph = _one(kind, [rng.standard_normal(s) for s in sizes])
        runs = {"verax": program(graph, Settings(3, 1)), "PyTorch": _torch(graph)}
        if kind == "MatMul":  # it has no convolution of float64
            runs["ONNX Runtime"] = _onnx_runtime(graph)
        print(f"float64 {kind} {sizes}, ms:", _shown(fastest(runs, rounds)))


def _one(kind: str, arrays: Sequence[np.ndarray]) -> Graph:
    """One operator on an input and constants."""
    b = Builder(kind)
    inputs = [b.input("x", TensorType.of(arrays[0])), *map(b.constant, arrays[1:])]
    return b.graph([b.add(REGISTRY[kind](), inputs)])


def _onnx_runtime(graph: Graph) -> Run:
    import onnxruntime as ort

    from verax.export.onnx import to_onnx

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    model = to_onnx(graph).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = draw_inputs(graph)[0]
    return lambda: session.run(None, inputs)


def _torch(graph: Graph) -> Run:
    import torch

    torch.set_num_threads(1)
    (x,) = (torch.from_numpy(a) for a in draw_inputs(graph)[0].values())
    (w,) = (torch.from_numpy(a.copy()) for a in graph.constants.values())
    convolution = graph.nodes[0].op.kind == "Conv"
    return lambda: torch.nn.functional.conv2d(x, w) if convolution else x @ w


def _shown(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {ms:.3f}" for name, ms in found.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """What the file's first lines say."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("networks", nargs="*", type=Path)
    parser.add_argument("--levels", nargs="+", type=int, choices=(0, 1, 2, 3), default=[1, 3])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--products", action="store_true")
    given = parser.parse_args(arguments)
    if given.networks:
        networks(given.networks, given.levels, given.rounds)
    if given.products:
        products(given.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Every operator of the registry alone, against ONNX Runtime and PyTorch.

    python -m benchmarks.operators                             # all, a table
    python -m benchmarks.operators TopK Einsum --seconds 1     # some, longer
    python -m benchmarks.operators --write docs/operators_speed.md

An operator's first case of float32 (or its first) is made larger, to about 16,384 and 262,144
elements of its first input: sizes that are equal stay equal. Where that means nothing (kernels of
convolutions would grow with images) `WORKLOADS` says what is run. All take turns in one process on
one thread, called as users call them: with NumPy arrays, PyTorch with tensors (`operators_torch`
says which function of it is an operator's twin), in a worker's process. What counts is the fastest
call of each. A ratio above 1 says how many times as long Verax takes as the faster of the two.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import importlib.metadata
import math
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.operators_torch import twin, without_gradients
from benchmarks.pools import add_pool_options, pool_of, run_script
from benchmarks.provenance import stamped

import verax.ops
from verax.base.errors import VeraxError
from verax.base.machine.processor import processor_name
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.kernels.target import Target
from verax.distributed import WorkerPool
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Case
from verax.ir.types import TensorType

assert verax.ops
SIZES = (1 << 14, 1 << 18)
MOST = 16
"""Times as many elements as asked for that another input or an output may have."""
SLOW = 1.5
"""Ratios from here on are listed."""
Run = Callable[[], object]


def _float(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def _image(size: int, channels: int = 32) -> np.ndarray:
    side = int((size / channels) ** 0.5)
    return _float(1, channels, side, side)


def _convolution(name: str, size: int, **attributes: Any) -> Case:
    weights = _float(32, 32, 3, 3)
    pads = ((1, 1), (1, 1))
    return Case(REGISTRY[name](pads=pads, **attributes), (_image(size), weights), (1,))


def _recurrent(name: str, gates: int, size: int) -> Case:
    hidden, steps = 64, max(1, size // 4096)
    x, w, r = (
        _float(steps, 64, 64),
        _float(1, gates * hidden, 64),
        _float(1, gates * hidden, hidden),
    )
    op: Any = REGISTRY[name]
    return Case(op(), (x, w * np.float32(0.1), r * np.float32(0.1)), (1, 2))


def _winograd(size: int) -> Case:
    weights, pads = _float(64, 64, 3, 3), ((1, 1), (1, 1))
    return Case(REGISTRY["WinogradConv"](tile=4, pads=pads), (_image(size, 64), weights), (1,))


def _strassen(size: int) -> Case:
    weights = _float(768, 768)
    return Case(REGISTRY["StrassenMatMul"](), (_float(1, size // 768, 768), weights), (1,))


def _pointwise(size: int) -> Case:
    weights = _float(256, 256, 1, 1)
    return Case(REGISTRY["StrassenConv"](), (_image(size, 256), weights), (1,))


def _reshape(size: int) -> Case:
    target = np.array([4, -1])
    return Case(REGISTRY["Reshape"](), (_float(size // 8, 8), target), (1,))


def _resize(size: int) -> Case:
    scales = np.array([1, 1, 2, 2], np.float32)
    return Case(REGISTRY["Resize"](mode="linear"), (_image(size), None, scales), (2,))


def _one_value(name: str, size: int, value: Any, **attributes: Any) -> Case:
    return Case(REGISTRY[name](**attributes), (_float(size // 64, 64), np.array(value)), (1,))


WORKLOADS: dict[str, Callable[[int], Case]] = {
    "Conv": lambda size: _convolution("Conv", size),
    "ConvTranspose": lambda size: _convolution("ConvTranspose", size),
    "Expand": lambda size: Case(
        REGISTRY["Expand"](), (_float(size // 64, 1), np.array([size // 64, 64])), (1,)
    ),
    "RNN": lambda size: _recurrent("RNN", 1, size),
    "GRU": lambda size: _recurrent("GRU", 3, size),
    "LSTM": lambda size: _recurrent("LSTM", 4, size),
    "Reshape": _reshape,
    "Resize": _resize,
    "StrassenConv": _pointwise,
    "StrassenMatMul": _strassen,
    "WinogradConv": _winograd,
    "Tile": lambda size: _one_value("Tile", size, [2, 3]),
}
"""By operator: a case with about so many elements in its first input."""
CONSTANT = {"BatchNormalization": (1, 2, 3, 4), "CumSum": (1,), "CumProd": (1,), "LSTM": (1, 2),
            "ConvInteger": (1,), "ConvTransposeInteger": (1,), "Gemm": (1,),
            "PRelu": (1,), "Trilu": (1,), "QuantizeLinear": (1, 2), "DequantizeLinear": (1, 2),
            "LayerNormalization": (1, 2), "RMSNormalization": (1,), "GroupNormalization": (1, 2),
            "NonMaxSuppression": (2, 3, 4), "InstanceNormalization": (1, 2),
            "ReverseSequence": (1,)}  # fmt: skip
"""By operator: inputs that networks have as constants."""
SMALLER = {
    "MultiBoxDetection": 1 << 12,
    "NonMaxSuppression": 1 << 14,
    "ConvTransposeInteger": 1 << 15,
}
"""Elements that are enough where the reference would take minutes."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One operator at one size. verax, onnxruntime, torch: seconds of a call, None where a runner
    does not have it. slow_road: nodes that the reference computed."""

    operator: str
    shapes: str
    verax: float
    onnxruntime: float | None
    torch: float | None
    slow_road: int

    @property
    def ratio(self) -> float | None:
        """To the faster of the others."""
        others = [t for t in (self.onnxruntime, self.torch) if t is not None]
        return self.verax / min(others) if others else None


def first_case(name: str) -> Case:
    """The operator's first case of float32, or its first."""
    cases = list(REGISTRY[name].cases(np.random.default_rng(zlib.crc32(name.encode()))))
    floats = [c for c in cases if c.inputs and _kind(c) == "float32"]
    return (floats or cases)[0]


def _kind(case: Case) -> str:
    return next((str(a.dtype) for a in case.inputs if a is not None), "")


def scaled(case: Case, size: int) -> Case:
    """The case with about `size` elements in its first input, if its type rule allows any way."""
    arrays = [None if a is None else np.asarray(a) for a in case.inputs]
    first = next((a for a in arrays if a is not None), None)
    if first is None or not first.size:
        return case
    for grown in _ways(first.shape):
        factor = (size / first.size) ** (1 / max(1, len(grown)))
        larger = {n: max(1, round(n * factor)) for n in grown}
        if any(_elements(a.shape, larger) > MOST * size for a in arrays if a is not None):
            continue
        made = tuple(
            a if a is None or i in case.constant else _grown(a, larger)
            for i, a in enumerate(arrays)
        )
        found = dataclasses.replace(case, inputs=made)
        try:
            graph, _ = graph_of(found)
        except VeraxError:
            continue
        types = [graph.types[v] for v in graph.outputs]
        if all(not t.is_static or _elements(t.shape, {}) <= MOST * size for t in types):
            return found
    return case


def _elements(shape: tuple[int, ...], larger: dict[int, int]) -> int:
    return math.prod(larger.get(n, n) for n in shape)


def _ways(shape: tuple[int, ...]) -> Iterator[list[int]]:
    """Sets of sizes that may grow: all, fewer of the last ones, one alone."""
    sizes = [n for n in dict.fromkeys(shape) if n > 1]
    for count in range(len(sizes), 0, -1):
        yield sizes[:count]
    for n in reversed(sizes):
        yield [n]


def _grown(array: np.ndarray, larger: dict[int, int]) -> np.ndarray:
    """Every axis whose size grows repeats what it holds."""
    for axis, n in enumerate(array.shape):
        if n in larger:
            array = np.take(array, np.arange(larger[n]) % n, axis=axis)
    return np.ascontiguousarray(array)


def graph_of(case: Case) -> tuple[Graph, dict[str, np.ndarray]]:
    """A network of the case alone, and what it is fed."""
    b = Builder(case.op.kind)
    fed: dict[str, np.ndarray] = {}
    inputs: list[str | None] = []
    for i, array in enumerate(case.inputs):
        if array is None:
            inputs.append(None)
        elif i in case.constant:
            inputs.append(b.constant(np.array(array)))
        else:
            fed[f"x{i}"] = array
            inputs.append(b.input(f"x{i}", TensorType.of(array)))
    return b.graph(b.add_all(case.op, inputs)), fed


def onnxruntime_run(graph: Graph, fed: dict[str, np.ndarray]) -> Run:
    """A call of ONNX Runtime on one thread. Raises whatever it or the writer raises."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        to_bytes(graph), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, fed)


def fastest(runs: Sequence[Run], seconds: float) -> list[float]:
    """The fastest call of each, in seconds; they take turns for so long each."""
    for run in runs:
        run()
    best = [float("inf")] * len(runs)
    end = time.perf_counter() + seconds * len(runs)
    while True:
        for i, run in enumerate(runs):
            for _ in range(3):
                start = time.perf_counter()
                run()
                best[i] = min(best[i], time.perf_counter() - start)
        if time.perf_counter() > end:
            return best


def measure(name: str, size: int, seconds: float) -> Row:
    """One operator at one size."""
    make, size = WORKLOADS.get(name), min(size, SMALLER.get(name, size))
    case = make(size) if make else scaled(first_case(name), size)
    constant = {*case.constant, *CONSTANT.get(name, ())}
    case = dataclasses.replace(case, constant=tuple(i for i in constant if i < len(case.inputs)))
    graph, fed = graph_of(case)
    shapes = ", ".join("x".join(map(str, a.shape)) or "1" for a in fed.values())
    exe: Executable = compile(graph, Settings(opt_level=1, threads=1))
    outputs = list(exe.run(fed).values())
    runs: dict[str, Run] = {"verax": lambda: exe.run(fed)}
    try:
        other = onnxruntime_run(graph, fed)
        other()
        runs["onnxruntime"] = other
    except Exception:  # whatever it refuses a network with
        pass
    same = twin(case, outputs)
    if same is not None:
        runs["torch"] = same
    with without_gradients() if same is not None else contextlib.nullcontext():
        times = dict(zip(runs, fastest(list(runs.values()), seconds)))
    slow_road = len(exe.plan.on_reference)
    return Row(
        name, shapes, times["verax"], times.get("onnxruntime"), times.get("torch"), slow_road
    )


def nothing(seconds: float) -> tuple[float, float]:
    """Seconds of a call that does nothing: the way in and out of Verax, and of ONNX Runtime."""
    graph, fed = graph_of(Case(REGISTRY["Identity"](), (_float(1),)))
    exe = compile(graph, Settings(opt_level=1, threads=1))
    own, theirs = fastest([lambda: exe.run(fed), onnxruntime_run(graph, fed)], seconds)
    return own, theirs


def measured(names: Iterable[str], seconds: float, pool: WorkerPool) -> list[list[Row]]:
    """A list of rows, one per size, for every operator that has a meaning, in the order of names.

    Workers of one host disturb one another: more than one is for cores that nothing else uses.
    """
    given = [[name, seconds] for name in names if not REGISTRY[name].unsupported]
    outcomes = sorted(pool.run("benchmarks.operators:measured_plain", given), key=lambda o: o.index)
    return [[Row(**plain) for plain in outcome.result()] for outcome in outcomes]


def measured_plain(task: list[Any]) -> list[dict[str, Any]]:
    """One operator at all sizes, as data, in a worker. task: its name, and seconds for each."""
    return [dataclasses.asdict(measure(task[0], size, task[1])) for size in SIZES]


def table(rows: Sequence[Sequence[Row]]) -> str:
    """Markdown: per operator, at each size: shapes, microseconds of all, ratio."""
    head = "| operator |" + " inputs | Verax µs | ONNX Runtime | PyTorch | ratio |" * len(SIZES)
    lines = [head, "|---|" + "---|---:|---:|---:|---:|" * len(SIZES)]
    for sizes in rows:
        cells = []
        for row in sizes:
            others = " | ".join(
                "—" if t is None else f"{1e6 * t:.1f}" for t in (row.onnxruntime, row.torch)
            )
            ratio = "—" if row.ratio is None else f"{row.ratio:.2f}"
            star = "\\*" if row.slow_road else ""
            cells.append(f" {row.shapes} | {1e6 * row.verax:.1f}{star} | {others} | {ratio} |")
        lines.append(f"| {sizes[0].operator} |" + "".join(cells))
    return "\n".join(lines)


def slower(rows: Sequence[Sequence[Row]]) -> list[Row]:
    """Those above `SLOW`, the worst first."""
    every = [r for sizes in rows for r in sizes if r.ratio is not None and r.ratio > SLOW]
    return sorted(every, key=lambda r: -(r.ratio or 0))


def page(rows: Sequence[Sequence[Row]], seconds: float, name: str = "operators_speed.md") -> str:
    """The page of the documentation, which is called so."""
    found = [r for sizes in rows for r in sizes]
    ratios = np.array([r.ratio for r in found if r.ratio is not None])
    behind = slower(rows)
    reference = sorted({r.operator for r in found if r.slow_road})
    refused = sorted({r.operator for r in found if r.onnxruntime is None})
    lonely = sorted({r.operator for r in found if r.torch is None})
    listed = "\n".join(f"- {_behind(r)}" for r in behind)
    own, theirs = nothing(seconds)
    today = datetime.date.today().isoformat()
    return "\n\n".join(
        [
            f"# The speed of every operator, {Target.host().name}",
            f"Made by `python -m benchmarks.operators --write docs/{name}` on "
            f"{today}, {processor_name()}, NumPy {np.__version__}, ONNX Runtime "
            f"{_version('onnxruntime')}, PyTorch {_version('torch')}: every operator of the "
            "registry in a network of its own, compiled at O1 for one thread, against ONNX Runtime "
            "on the same network (through Verax's ONNX writer) and PyTorch's function of the same "
            "meaning, eager, without gradients, on one thread; all in one process, called with "
            "NumPy arrays (PyTorch with "
            f"tensors), taking turns for {seconds:g} s each; the fastest call counts, because "
            "others use the machine. The ratio says how many times as long Verax takes as the "
            "faster of the two. A star: the operator ran on the reference, in Python. A dash: "
            "ONNX Runtime refused it, or PyTorch has no function that gives these numbers.",
            f"A call that does nothing takes {1e6 * own:.1f} µs in Verax and {1e6 * theirs:.1f} in "
            "ONNX Runtime; PyTorch's functions are called without a network around them. That is "
            "most of what short calls measure. Two sizes, chosen by a rule for all operators "
            "alike, say little about a network: `make bench` measures those.",
            f"{len(rows)} operators at two sizes, {len(found)} networks; "
            f"{sum(r.onnxruntime is not None for r in found)} run in ONNX Runtime and "
            f"{sum(r.torch is not None for r in found)} in PyTorch. Verax is as fast as the faster "
            f"or faster on {int((ratios <= 1).sum())}, slower than {SLOW} times on {len(behind)}; "
            f"the geometric mean of the ratios is {_mean(ratios):.2f}. Against ONNX Runtime alone "
            + _against("onnxruntime", found)
            + ", against PyTorch alone "
            + _against("torch", found)
            + ".",
            f"## Slower than {SLOW} times",
            listed or "None.",
            f"On the reference at these sizes: {', '.join(reference) or 'none'}. Refused by ONNX "
            f"Runtime: {', '.join(refused) or 'none'}. Without a twin in PyTorch: "
            f"{', '.join(lonely) or 'none'}.",
            "## All of them",
            table(rows) + "\n",
        ]
    )


def _behind(row: Row) -> str:
    peer = "PyTorch"
    if row.torch is None or (row.onnxruntime is not None and row.onnxruntime < row.torch):
        peer = "ONNX Runtime"
    road = " (on the reference)" if row.slow_road else ""
    return f"{row.operator} on {row.shapes or 'constants'}: {row.ratio:.2f} times {peer}{road}"


def _against(peer: str, rows: Sequence[Row]) -> str:
    times = [(r.verax, getattr(r, peer)) for r in rows if getattr(r, peer) is not None]
    ratios = np.array([own / theirs for own, theirs in times])
    behind = int((ratios > SLOW).sum())
    return f"the mean is {_mean(ratios):.2f} and {behind} are slower than {SLOW} times"


def _mean(ratios: np.ndarray) -> float:
    return float(np.exp(np.log(ratios).mean()))


def _version(package: str) -> str:
    return importlib.metadata.version(package)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("operators", nargs="*", help="by default all")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each at each size")
    parser.add_argument("--write", type=Path, help="the page of the documentation")
    add_pool_options(parser)
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.operators) - set(REGISTRY))
    if unknown:
        parser.error(f"no such operator: {', '.join(unknown)}")
    if given.write and not given.write.absolute().parent.is_dir():
        parser.error(f"there is no folder for {given.write}")
    with pool_of(given) as pool:
        rows = measured(given.operators or sorted(REGISTRY), given.seconds, pool)
    if given.write:
        given.write.write_text(stamped(page(rows, given.seconds, given.write.name)))
    else:
        print(table(rows))
        for row in slower(rows):
            print(_behind(row))


if __name__ == "__main__":
    run_script(main)

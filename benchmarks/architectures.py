"""Every architecture people use: does it load as it is given, agree, and run, and how fast.

Tiny networks of random weights (`benchmarks.honest`: Hugging Face types, torchvision, classics
written here) are exported by torch.export as they are, loaded, compiled at O3 and judged; eager
PyTorch and ONNX Runtime run them beside it, in turns, and the quickest of each counts. Writes a
table in Markdown; `docs/architectures.md` is its last one.

    python -m benchmarks.architectures                         # all of them, minutes
    python -m benchmarks.architectures gpt2 llama resnet18     # some
    python -m benchmarks.architectures --rows rows.json --write docs/architectures.md

With --rows what was measured is kept in a file, and what is in it is not measured again.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import torch
from benchmarks import rows
from benchmarks.honest.architectures import Architecture, module, registry, tensors
from benchmarks.honest.inputs import PLAIN

import verax
from verax.base.errors import VeraxError
from verax.export.onnx.writer import to_bytes
from verax.frontends.model import Model

SEED = 9
ROUNDS, RUNS = 5, 3
"""How often each runs, in turns, and how often at a turn."""
HEAD = ("architecture", "nodes", "as given", "judged", "without kernel", "Verax ms", "eager", "ORT")


@dataclass
class Row:
    """One architecture. given: "yes", "decomposed: ..." or why it is refused; judged: the verdict
    of its outputs; reference: nodes without a kernel; times: milliseconds of Verax, eager PyTorch
    and ONNX Runtime."""

    name: str
    family: str
    nodes: int = 0
    given: str = ""
    judged: str = ""
    reference: int = 0
    times: Sequence[float] = ()
    why_not_timed: str = ""

    @property
    def loads(self) -> bool:
        return self.nodes > 0

    def cells(self) -> list[str]:
        shown = [f"{t:.2f}" if np.isfinite(t) else "refused" for t in self.times] or [""] * 3
        ratios = [f"{t / self.times[0]:.2f}x" if np.isfinite(t) else "refused" for t in self.times]
        nodes, reference = (str(n) if self.loads else "" for n in (self.nodes, self.reference))
        return [self.name, nodes, self.given, self.judged, reference, shown[0],
                *(ratios[1:] or ["", ""])]  # fmt: skip


def measure(architecture: Architecture, timed: bool = True) -> Row:
    """The row of one architecture."""
    row = Row(architecture.name, architecture.family)
    net = module(architecture)
    inputs = tensors(architecture.inputs(PLAIN, SEED))
    try:
        model = verax.load(net, inputs=inputs)
        assert isinstance(model, Model)
        row.nodes = len(model.graph.nodes)
        parts = model.metadata.get("decomposed", "")
        row.given = f"after decomposing {parts}" if parts else "yes"
        exe = verax.compile(model, opt_level=3, threads=1)
        row.reference = len(exe.plan.on_reference)
        named = dict(zip(exe.inputs, (t.numpy() for t in inputs)))
        answers = exe.run(named)
        verdict = verax.check(model, answers, named, twice=False, explain=False)
        row.judged = str(verdict.kind)
    except VeraxError as error:
        row.given = row.given if row.loads else f"no: {error.cause[:160]}"
        row.why_not_timed = error.cause[:160]
        return row
    if timed:
        row.times = times(net, inputs, exe, model, named)
    return row


def times(net: Any, inputs: Sequence[Any], exe: Any, model: Model, named: Any) -> tuple[float, ...]:
    """Milliseconds of Verax, eager PyTorch and ONNX Runtime, infinite where it refuses."""
    with torch.no_grad():
        calls: list[Callable[[], Any] | None] = [lambda: exe.run(named), lambda: net(*inputs)]
        calls.append(_onnx_runtime(model, named))
        return rows.milliseconds(calls, ROUNDS, RUNS)


def _onnx_runtime(model: Model, named: dict[str, np.ndarray]) -> Callable[[], Any] | None:
    """One thread of ONNX Runtime; None where the network cannot be written or run."""
    try:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        session = onnxruntime.InferenceSession(
            to_bytes(model.graph), options, providers=["CPUExecutionProvider"]
        )
        session.run(None, named)
    except Exception:
        return None
    return lambda: session.run(None, named)


def page(found: Sequence[Row]) -> str:
    """The page."""
    loaded = [r for r in found if r.loads]
    timed = [r for r in found if r.times]
    given = sum(r.given == "yes" for r in found)
    native = sum(not r.reference for r in loaded)
    faster = [sum(r.times[0] < r.times[i] for r in timed) for i in (1, 2)]
    against = sum(np.isfinite(r.times[2]) for r in timed)
    lines = [
        "# Architectures",
        "",
        "Made by `python -m benchmarks.architectures`: tiny networks of random weights, exported "
        "by `torch.export` as they are, compiled at O3, judged against their float64 meaning, and "
        "timed on one thread in turns with eager PyTorch and ONNX Runtime (the quickest of "
        f"{ROUNDS * RUNS} runs each). The last columns are the others' times as multiples of "
        "ours: above 1 we are faster. Tiny networks measure what is around the kernels as much as "
        "the kernels themselves.",
        "",
        f"**{len(found)} architectures: {given} load as given, {len(loaded) - given} more after "
        f"decomposing what the table lacks, {len(found) - len(loaded)} are refused; {native} run "
        f"without a reference step; faster than eager PyTorch: {faster[0]} of {len(timed)}, than "
        f"ONNX Runtime: {faster[1]} of {against}.**",
        "",
        f"PyTorch {torch.__version__}, ONNX Runtime {onnxruntime.__version__}, "
        f"{platform.machine()}, one thread.",
        "",
        *rows.table(HEAD, sorted(found, key=lambda r: (r.family, r.name))),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    def names(asked: Sequence[str]) -> list[str]:
        known = registry()
        return list(rows.among(known, asked) or known)

    return rows.run(__doc__, Row, names, lambda name: measure(registry()[name]), page)


if __name__ == "__main__":
    raise SystemExit(main())

"""What each operator and network becomes on a GPU, and how long compiling takes. No card is needed.

    python -m benchmarks.gpu_kernels --write docs/gpu_kernels.md
    python -m benchmarks.gpu_kernels --operators Softmax Conv --networks resnet18

Some cases of every operator are compiled for `sm_90` at O1, weights known. Its kernels are written
by the families of `kernels/gpu` (blocks of threads share an item, or the threads of one read
neighbors), or are the processor's, a thread for each work item; or there is none, and the node runs
on the reference. Then networks of the panel are compiled at O3: seconds of this process, kernels,
and what `ptxas`, where there is one, takes for their machine code in one thread.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.operators import graph_of
from benchmarks.provenance import stamped

import verax
import verax.ops
from verax.base.errors import VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.registry import emit
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall, ReferenceCall
from verax.compiler.place.program import lower
from verax.ir.operator import REGISTRY
from verax.runtime.gpu.code import unpacked

assert verax.ops
ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE = "sm_90"
FOLDER = ROOT / "out" / "gpu_kernels"
CASES = 6
OWN, ITEMS, REFERENCE = "blocks", "items", "reference"
OWN_FILES = "kernels/gpu/"
SHARED_WRITERS = ("/llvm/", "/contextlib.py", "/registry.py")
BATCH = 1


@dataclasses.dataclass(frozen=True)
class Network:
    """One network of the panel. seconds: to compile it, in this process; assembling: of ptxas, -1
    without one."""

    name: str
    seconds: float
    kernels: int
    own: int
    kilobytes: float
    assembling: float


class Origins(ModuleBuilder):
    """Whose text asks for kernels: files of `kernels/gpu`, or those of the processor's families."""

    def kernel(self, *args: Any, **named: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_back and any(w in frame.f_code.co_filename for w in SHARED_WRITERS):
            frame = frame.f_back
        self.is_own = self.is_own and OWN_FILES in frame.f_code.co_filename
        return super().kernel(*args, **named)

    is_own = True


def is_own(call: KernelCall, target: Target) -> bool:
    """Whether a family of GPUs writes the kernel of a call."""
    module = Origins("origins", target)
    emit(module, call.spec, call.schedule)
    return module.is_own


def kinds_of(name: str, target: Target, cases: int) -> set[str]:
    """What the steps of an operator's networks are; those of other operators in them included."""
    found: set[str] = set()
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for case in itertools.islice(REGISTRY[name].cases(rng), cases):
        try:
            graph, _ = graph_of(case)
            lowered = lower(graph, target, Settings(1, threads=1))
        except VeraxError:  # shapes that only running tells
            continue
        for step in lowered.steps:
            if isinstance(step, ReferenceCall):
                found.add(REFERENCE)
            elif isinstance(step, KernelCall):
                found.add(OWN if is_own(step, target) else ITEMS)
    return found


def panel() -> list[str]:
    """Names of its networks."""
    from panel_zoo import PANEL

    return list(PANEL)


def network(name: str, target: Target) -> Network:
    """Compile one of the panel at O3, and assemble it."""
    from panel_zoo import write

    model = verax.load(write(name, FOLDER, BATCH))
    begin = time.process_time()
    program = compile(model.graph, Settings(3, threads=1, target=target.name)).specialized
    code = unpacked(program.binary.object_code)
    seconds = time.process_time() - begin
    calls = [s for s in program.lowered.steps if isinstance(s, KernelCall)]
    own = {c.spec for c in calls if is_own(c, target)}
    return Network(
        name, seconds, len(code.ptx), len(own), sum(map(len, code.ptx.values())) / 1e3,
        assembled(list(code.ptx.values())),
    )  # fmt: skip


def assembled(texts: Sequence[bytes]) -> float:
    """Seconds of ptxas for all of them, one by one; -1 where there is none."""
    command = shutil.which("ptxas")
    if command is None:
        return -1.0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for i, text in enumerate(texts):
            path = Path(folder) / f"{i}.ptx"
            path.write_bytes(text)
            subprocess.run(
                [command, f"-arch={ARCHITECTURE}", str(path), "-o", f"{path}.cubin"], check=True
            )
    return time.monotonic() - begin


def page(operators: dict[str, set[str]], networks: Sequence[Network]) -> str:
    """Both tables."""
    groups = {
        "Blocks of threads that share an item, or threads that read neighbors": {OWN},
        "Some kernels so, others as the processor's, a thread for each work item": {OWN, ITEMS},
        "The processor's kernels, a thread for each work item": {ITEMS},
        "Some cases on the reference, on the host": {REFERENCE},
    }
    lines = []
    for title, kinds in groups.items():
        names = [
            n for n, k in operators.items()
            if (REFERENCE in k if kinds == {REFERENCE} else k == kinds)
        ]  # fmt: skip
        lines += [f"**{title}** ({len(names)}): {', '.join(names)}."] if names else []
    table = [
        "| network | compiling, s of processor time | kernels | of GPUs | PTX, kB | ptxas, s |",
        "|---|---|---|---|---|---|",
        *(f"| {n.name} | {n.seconds:.1f} | {n.kernels} | {n.own} | {n.kilobytes:.0f} | "
          f"{f'{n.assembling:.1f}' if n.assembling >= 0 else ''} |" for n in networks),
    ]  # fmt: skip
    text = [
        "# Kernels of GPUs",
        f"What operators become on `{ARCHITECTURE}` at O1, by some cases of each "
        "(`python -m benchmarks.gpu_kernels`). No card is needed for it, and none ran it.",
        *lines,
        "Networks of the panel at O3, batch 1:",
        "\n".join(table),
    ]
    return stamped("\n\n".join(text) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--operators", nargs="*", default=sorted(REGISTRY))
    parser.add_argument("--networks", nargs="*", help="of the panel; by default those in float32")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--write", type=Path, help="the page")
    options = parser.parse_args(arguments)
    target = Target.cuda(ARCHITECTURE)
    operators = {}
    for name in options.operators:
        operators[name] = kinds_of(name, target, options.cases)
        print(name, *sorted(operators[name]), flush=True)
    networks = []
    for name in panel() if options.networks is None else options.networks:
        networks.append(network(name, target))
        print(networks[-1], flush=True)
    text = page(operators, networks)
    if options.write:
        options.write.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "benchmarks"))
    sys.exit(main())

"""Faults planted in the kernels of GPUs, one at a time: does the emulated GPU notice them?

    python -m benchmarks.gpu_planted                          # all, some minutes on one core
    python -m benchmarks.gpu_planted attention softmax
    python -m benchmarks.gpu_planted --write docs/gpu_planted.md

A fault is planted where a kernel's source waits for its block (`barrier`), waits for its copies
(`await_copies`), begins one of fewer bytes (`copy_16`, `copy_4`), or has threads keep away
(`when`): the wait is left out, or is for one group fewer, the copy is of all bytes, the guard lets
all through. Every such line that makes code for one of `SAMPLES` is tried for that sample. The
network then runs in each order of threads and copies, between fences; what counts is whether one
of them shows the fault: other bits than those of the processor, a block whose threads wait at other
barriers, or a crash. Each fault has a process of its own. A line whose fault no sample shows is
listed, with the reason where it is known (`REASONS`); exit code 1 where it is not.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import os
import pickle
import re
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.operators import graph_of
from benchmarks.provenance import stamped

import verax.ops
from verax.base.errors import VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.gpu import BlockBuilder, GpuBuilder
from verax.ir.operator import REGISTRY, Case
from verax.runtime.gpu.emulated import VARIABLE

assert verax.ops
ORDERS = ("fenced", "reversed,fenced", "late,fenced", "reversed,late,fenced")
SECONDS = 120
"""That a fault may take before it counts as noticed: its kernel does not end."""
HELPERS = re.compile(r"/(llvm/(gpu|builder)|gpu/index32|contextlib)\.py$")
"""Sources that are called by the line that a fault is named after."""
BITS, BARRIERS, CRASH, HANG, UNNOTICED = "bits", "barriers", "crash", "hang", "unnoticed"
FAULTS = {
    "no barrier": "barrier",
    "no wait": "await_copies",
    "one group fewer": "await_copies",
    "all 16 bytes": "copy_16",
    "all 4 bytes": "copy_4",
    "no guard": "when",
}
"""What is planted, by the method of `BlockBuilder` that it is planted in."""


BEHIND = "behind the last row all threads do the last one again: the same values"
TWICE = "columns of the strip before are stored again: the same values"
SPARED = "it spares work: all threads do what one does, or add zeros"
BLOCKS = "blocks run one after another here: what one writes in another's place is written over"
REASONS = {
    ("outputs.py", "finish", "no guard"): BEHIND,
    ("depthwise.py", "_finish", "no guard"): TWICE,
    ("grouped.py", "_finish", "no guard"): TWICE,
    ("reduce.py", "_write_rows", "no guard"): BEHIND,
    ("reduce.py", "_write_elements", "no guard"): BEHIND,
    ("staging.py", "_copy_chunk", "all 4 bytes"): "of factors that are not aligned; here all are",
    (
        "strassen.py",
        "emit_products",
        "no guard",
    ): "done before other products too, it is the same",
    ("strassen.py", "_add", "no guard"): BLOCKS,
    ("strassen.py", "_emit_not_finite", "no guard"): BLOCKS,
    ("winograd.py", "emit_input", "no guard"): SPARED,
    ("winograd_special.py", "_add_not_finite", "no guard"): SPARED,
    (
        "attention_block.py",
        "_fetch_queries",
        "no guard",
    ): "what lies behind queries is written later",
}
"""Why the emulated GPU does not show a fault, by file, function and what is planted."""


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(-128, 128, shape, np.int8)


def image(*shape: int) -> np.ndarray:
    """The same with some rows that begin with infinities: whoever reads on behind the row before
    multiplies one by a zero at best, and has NaN."""
    x = normal(*shape)
    x.reshape(-1, shape[-1])[5::61, 0] = np.inf
    return x


def convolution(
    filters: int, channels: int, *window: int, group: int = 1, **attributes: Any
) -> Case:
    """On images of 21 by 18 pixels, two of them."""
    name = "ConvTranspose" if attributes.pop("transposed", False) else "Conv"
    first, second = (channels, filters // group) if name[4:] else (filters, channels // group)
    arrays = image(2, channels, 21, 18), normal(first, second, *window), normal(filters)
    return Case(REGISTRY[name](groups=group, **attributes), arrays, (1, 2))


def reduction(name: str, shape: tuple[int, ...], *more: np.ndarray, **attributes: Any) -> Case:
    return Case(
        REGISTRY[name](**attributes), (image(*shape), *more), tuple(range(1, 1 + len(more)))
    )


def attention(causal: bool, queries: int, keys: int) -> Case:
    """Two sequences of three heads of 24 features."""
    arrays = normal(2, 3, queries, 24), normal(2, 3, keys, 24), normal(2, 3, keys, 40)
    return Case(REGISTRY["Attention"](causal=causal), arrays)


IRREGULAR = {"pads": ((1, 2), (0, 1))}
SAMPLES: dict[str, tuple[int, Callable[[], Case]]] = {
    "product": (1, lambda: Case(REGISTRY["MatMul"](), (image(3, 71, 83), normal(83, 230)), (1,))),
    "product of aligned rows": (
        1, lambda: Case(REGISTRY["MatMul"](), (image(3, 71, 84), normal(3, 84, 230)))
    ),
    "3x3 convolution": (1, lambda: convolution(40, 24, 3, 3, strides=(2, 1), **IRREGULAR)),
    "7x7 convolution": (1, lambda: convolution(40, 3, 7, 7, strides=(2, 2), **IRREGULAR)),
    "transposed convolution": (
        1, lambda: convolution(24, 40, 3, 3, transposed=True, strides=(2, 3))
    ),
    "depthwise convolution": (1, lambda: convolution(40, 40, 3, 3, group=40, **IRREGULAR)),
    "grouped convolution": (1, lambda: convolution(48, 24, 3, 3, group=3, pads=((1, 1), (0, 1)))),
    "grouped transposed convolution": (
        1, lambda: convolution(48, 24, 3, 3, group=3, transposed=True, strides=(2, 3))
    ),
    "Winograd": (3, lambda: convolution(64, 48, 3, 3, pads=((1, 1), (0, 1)))),
    "Strassen": (3, lambda: Case(REGISTRY["MatMul"](), (image(203, 512), normal(512, 544)), (1,))),
    "softmax": (1, lambda: reduction("Softmax", (5, 7, 1111), axis=-1)),
    "sum of columns": (1, lambda: reduction("ReduceSum", (5, 777, 19), np.array([1]))),
    "sum of rows": (1, lambda: reduction("ReduceSum", (5, 19, 777), np.array([2]))),
    "convolution of bytes": (
        1, lambda: Case(REGISTRY["ConvInteger"](strides=(2, 1), **IRREGULAR), (
            integers(2, 24, 21, 18), integers(40, 24, 3, 3)), (1,))
    ),
    "the largest": (
        1, lambda: Case(REGISTRY["TopK"](), (normal(5, 3, 2777), np.array([9])), (1,))
    ),
    "attention": (1, lambda: attention(False, 37, 53)),
    "causal attention": (1, lambda: attention(True, 71, 71)),
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Site:
    """A line of a kernel's source at which a method of the builder is called."""

    method: str
    file: str
    function: str
    line: int

    @staticmethod
    def here(method: str) -> Site:
        frame = sys._getframe(2)
        while frame.f_back is not None and HELPERS.search(frame.f_code.co_filename):
            frame = frame.f_back
        code = frame.f_code
        return Site(method, Path(code.co_filename).name, code.co_name, frame.f_lineno)

    def __str__(self) -> str:
        return f"{self.file}, {self.function}"


@dataclasses.dataclass(frozen=True)
class Result:
    """A fault, and how it was noticed."""

    sample: str
    fault: str
    site: Site
    noticed: str


@contextmanager
def watched(found: set[Site]) -> Iterator[None]:
    """Note the sites of all methods that faults are planted in."""
    with _patched({m: lambda site, call, *args: (found.add(site), call(*args))[1]
                   for m in set(FAULTS.values())}):  # fmt: skip
        yield


@contextmanager
def planted(fault: str, site: Site) -> Iterator[None]:
    """Have the kernels that are made meanwhile the fault at that line."""

    def instead(at: Site, call: Callable[..., Any], builder: Any, *args: Any) -> Any:
        if at != site:
            return call(builder, *args)
        if fault == "one group fewer":
            return call(builder, args[0] + 1)
        if fault.startswith("all"):
            return call(builder, *args[:2], _constant(args[2], fault))
        return nullcontext() if fault == "no guard" else None

    with _patched({FAULTS[fault]: instead}):
        yield


def _constant(value: Any, fault: str) -> Any:
    return ir.Constant(value.type, int(fault.split()[1]))


@contextmanager
def _patched(instead: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Have methods of builders call `instead[name](site, method, builder, ...)`."""
    owners = {name: GpuBuilder if name == "when" else BlockBuilder for name in instead}
    kept = {name: owner.__dict__.get(name) for name, owner in owners.items()}

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: instead[name](Site.here(name), call, *args)

    for name in instead:
        setattr(owners[name], name, wrapped(name, getattr(owners[name], name)))
    try:
        yield
    finally:
        for name, method in kept.items():
            if method is None:
                delattr(owners[name], name)
            else:
                setattr(owners[name], name, method)


def in_a_process(do: Callable[[], Any]) -> Any:
    """What `do` gives in a fork of this process; `CRASH` or `HANG` where it gives nothing."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            faulthandler.disable()
            signal.alarm(SECONDS)
            data = pickle.dumps(do())
            with os.fdopen(writing, "wb") as out:
                out.write(data)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as inward:
        data = inward.read()
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return pickle.loads(data)
    return HANG if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else CRASH


def bits(outputs: dict[str, Any]) -> list[bytes]:
    """Of outputs; every NaN counts as the same."""
    arrays = [np.asarray(outputs[name]) for name in sorted(outputs)]
    return [np.where(a == a, a, np.nan).astype(a.dtype).tobytes() for a in arrays]


def emulated(graph: Any, level: int, fed: dict[str, np.ndarray], order: str) -> dict[str, Any]:
    """Outputs, of a program of its own (memory that it has is not moved) whose memory held NaN."""
    os.environ[VARIABLE] = order
    exe = compile(graph, Settings(level, threads=1, target="cuda-emulated"))
    exe.run(fed)
    exe.specialized.program.poison(0xFF)
    return exe.run(fed)  # type: ignore[no-any-return]


def results(name: str) -> Iterator[Result]:
    """Of all faults that a sample can have. Raises RuntimeError where it is wrong without one."""
    level, make = SAMPLES[name]

    def sound() -> tuple[list[bytes], set[Site]]:
        graph, fed = graph_of(make())
        sites: set[Site] = set()
        theirs = bits(compile(graph, Settings(level, threads=1)).run(fed))
        with watched(sites):
            for order in ORDERS:
                assert bits(emulated(graph, level, fed, order)) == theirs, order
        return theirs, sites

    found = in_a_process(sound)
    if isinstance(found, str):
        raise RuntimeError(f"{name} is wrong without a fault: {found}")
    expected, sites = found

    def noticed(fault: str, site: Site) -> str:
        graph, fed = graph_of(make())
        with planted(fault, site):
            for order in ORDERS:
                try:
                    if bits(emulated(graph, level, fed, order)) != expected:
                        return BITS
                except VeraxError:
                    return BARRIERS
        return UNNOTICED

    for fault, method in FAULTS.items():
        for site in sorted((s for s in sites if s.method == method), key=dataclasses.astuple):
            yield Result(name, fault, site, in_a_process(lambda f=fault, s=site: noticed(f, s)))


def unseen(found: Sequence[Result]) -> list[Result]:
    """One for each fault in a line that no sample shows."""
    seen = {(r.fault, r.site) for r in found if r.noticed != UNNOTICED}
    left = {(r.fault, r.site): r for r in found if (r.fault, r.site) not in seen}
    return list(left.values())


def reason(result: Result) -> str:
    """Why it is not shown; "" where nobody knows."""
    return REASONS.get((result.site.file, result.site.function, result.fault), "")


def page(found: Sequence[Result]) -> str:
    """The table, and what nobody noticed."""
    counts = Counter((r.fault, r.noticed) for r in found)
    columns = (BITS, BARRIERS, CRASH, HANG, UNNOTICED)
    lines, left = {(r.fault, r.site) for r in found}, unseen(found)
    text = [
        "# Faults planted in kernels of GPUs",
        "`python -m benchmarks.gpu_planted` leaves out one barrier, wait or guard of a kernel's "
        "source at a time, and runs what comes of it on the emulated GPU: threads forward and in "
        "reverse, copies early and late, memory between fences. The table counts networks of one "
        "operator, by how a fault shows: in bits, by threads at different barriers, by a crash.",
        f"Of {len(lines)} faults in the source {len(lines) - len(left)} show in at least one of "
        f"{len({r.sample for r in found})} networks.",
        "\n".join([
            "| planted | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|",
            *(f"| {fault} | " + " | ".join(str(counts[fault, c]) for c in columns) + " |"
              for fault in FAULTS),
        ]),
        "The others:" if left else "",
        "\n".join(f"- {r.fault} in {r.site}: {reason(r) or 'not known why'}" for r in left),
    ]  # fmt: skip
    return stamped("\n\n".join(filter(None, text)) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("samples", nargs="*", help=", ".join(SAMPLES))
    parser.add_argument("--write", type=Path, help="the page")
    options = parser.parse_args(arguments)
    os.environ["VERAX_CACHE"] = "off"
    found: list[Result] = []
    for name in options.samples or SAMPLES:
        for result in results(name):
            found.append(result)
            print(f"{name:24} {result.fault:16} {result.site.file}:{result.site.line:<5} "
                  f"{result.noticed}", flush=True)  # fmt: skip
    if options.write:
        options.write.write_text(page(found))
    print(page(found))
    return int(not all(map(reason, unseen(found))))


if __name__ == "__main__":
    sys.exit(main())

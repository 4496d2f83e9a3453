"""What `verax doctor` does: does Verax work on this machine?"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import typer
from rich.text import Text

from verax.base.errors import MissingPackageError, VeraxError
from verax.base.gpu.cuda_driver import card, cards
from verax.base.gpu.targets import CUDA
from verax.base.machine.cores import deciding, limits
from verax.base.machine.processor import best_target
from verax.base.option_groups.settings import Settings
from verax.base.optional import EXTRAS, installed_version, pip_name, require
from verax.cli.console import can_write, output, write_json
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.records.environment import environment
from verax.records.verdict import Kind
from verax.reference.evaluate import promised
from verax.runners.arrays import ArraysRunner
from verax.runners.registry import DISTRIBUTIONS

WRONG = 1.001
"""The judge must see a relative error of this size."""


def perform(
    *,
    json: Path | None,
) -> None:
    """Carry out the command with the options of `verax.cli.doctor`."""
    can_write(json)
    versions = environment()
    for key, value in versions.items():
        output.print(Text(f"{key:16} {value}"))
    for package, distributions in DISTRIBUTIONS.items():
        if not any(d in versions for d in distributions):
            line = f"{package:16} not installed (optional): pip install {pip_name(package)}"
            output.print(Text(line, style="dim"))
    for extra, (package, purpose) in EXTRAS.items():
        if not installed_version(package):
            line = f"{package:16} not installed; {purpose} needs it: pip install 'verax[{extra}]'"
            output.print(Text(line, style="dim"))
    decided, found_limits = deciding(), [(limit.threads, limit.reason) for limit in limits()]
    other_limits = "".join(
        f"; {n}: {reason}" for n, reason in found_limits if reason != decided.reason
    )
    output.print(
        Text(f"{'threads':16} {decided.threads}: {decided.reason} (decides){other_limits}")
    )
    checks: dict[str, str] = {}
    _try(checks, "the judge", _judged)
    _try(checks, "target", _target)
    gpu = _gpu()
    if _compiles():
        for threads in dict.fromkeys((1, Settings().thread_count)):
            _try(checks, f"native code, {threads} threads", lambda t=threads: _native(t))  # type: ignore[misc]
    output.print(Text(f"{'GPU':16} {gpu}"))
    if _has_card() and _compiles():
        _try(checks, "kernels on the GPU", lambda: _native(0, CUDA))
    bad = [name for name, result in checks.items() if result.startswith("failed")]
    for name, result in checks.items():
        output.print(Text(f"{name}: {result}", style="red" if name in bad else "green"))
    thread_facts = {"count": decided.threads, "decided_by": decided.reason, "limits": found_limits}
    facts = {"environment": versions, "checks": checks, "threads": thread_facts, "gpu": gpu}
    write_json(json, "verax.doctor/1", facts)
    if bad:
        raise typer.Exit(2)
    output.print("all well")


def _try(checks: dict[str, str], name: str, test: Callable[[], str]) -> None:
    try:
        checks[name] = test()
    except (VeraxError, AssertionError) as error:
        checks[name] = f"failed: {error}"


def _target() -> str:
    target = best_target()
    assert target is not None, "this processor has neither AVX2 with FMA nor NEON"
    return target


def _gpu() -> str:
    """The cards of this machine with their drivers, or why there is none."""
    try:
        return "; ".join(f"cuda:{card.index} {card}" for card in cards())
    except VeraxError as error:
        return f"none: {error.cause} (optional)"


def _has_card() -> bool:
    """Whether there is one that code is made for."""
    try:
        return bool(card(0).architecture)
    except VeraxError:
        return False


def _compiles() -> bool:
    """Whether the extra that compiling takes is installed; what it lacks is said above."""
    try:
        require("llvmlite.binding", "compile")
    except MissingPackageError:
        return False
    return True


def _tiny() -> Graph:
    b = Builder("doctor")
    x = b.input("x", TensorType.parse("float32[3, 37]"))
    y = b.input("y", TensorType.parse("float32[37]"))
    return b.graph([b.add(Relu(), [b.add(Add(), [x, y])])])


def _drawn(graph: Graph) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {
        v: random.standard_normal(graph.types[v].shape).astype(np.float32) for v in graph.inputs
    }


def _judged() -> str:
    """A right answer must pass, a wrong one must not."""
    graph = _tiny()
    inputs = _drawn(graph)
    right = promised(graph, inputs)
    (name,) = graph.outputs
    wrong = {name: right[name] * np.float32(WRONG)}
    kinds = [check(graph, ArraysRunner(a), inputs).kind for a in (right, wrong)]
    assert kinds == [Kind.identical, Kind.mistake], f"it says {' and '.join(kinds)}"
    return "tells right from wrong"


def _native(threads: int, target: str = "host") -> str:
    """Compile a tiny network, and compare its bits with the promised ones."""
    graph = _tiny()
    inputs = _drawn(graph)
    begin = time.perf_counter()
    exe = compile(graph, Settings(threads=threads, target=target))
    outputs = exe.run(inputs)
    seconds = time.perf_counter() - begin
    expected = promised(graph, inputs)
    for name in graph.outputs:
        assert outputs[name].tobytes() == expected[name].tobytes(), f"{name} has other bits"
    return f"right, bit for bit ({seconds * 1e3:.0f} ms)"

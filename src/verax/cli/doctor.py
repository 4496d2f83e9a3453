"""`verax doctor`: does Verax work on this machine?"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import typer
from rich.text import Text

from verax.base.errors import VeraxError
from verax.base.settings import Settings
from verax.cli.console import Json, can_write, output, write_json
from verax.compiler.driver import compile
from verax.compiler.kernels.target import Target
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.activation import Relu
from verax.ops.arithmetic import Add
from verax.records.environment import environment
from verax.reference.evaluate import promised

OPTIONAL = ("onnxruntime", "openvino", "torch")


def command(json: Json = None) -> None:
    """Say what is installed, and compile and run a tiny network on every thread count."""
    can_write(json)
    found = environment()
    for key, value in found.items():
        output.print(Text(f"{key:12} {value}"))
    for name in OPTIONAL:
        if name not in found:
            output.print(Text(f"{name:12} not installed (optional)", style="dim"))
    checks: dict[str, str] = {}
    _try(checks, "target", lambda: Target.named("host").name)
    for threads in dict.fromkeys((1, Settings().thread_count)):
        _try(checks, f"native code, {threads} threads", lambda t=threads: _native(t))  # type: ignore[misc]
    bad = [name for name, result in checks.items() if result.startswith("failed")]
    for name, result in checks.items():
        output.print(Text(f"{name}: {result}", style="red" if name in bad else "green"))
    write_json(json, "verax.doctor/1", {"environment": found, "checks": checks})
    if bad:
        raise typer.Exit(2)
    output.print("all well")


def _try(checks: dict[str, str], name: str, test: Callable[[], str]) -> None:
    try:
        checks[name] = test()
    except (VeraxError, AssertionError) as error:
        checks[name] = f"failed: {error}"


def _tiny() -> Graph:
    b = Builder("doctor")
    x = b.input("x", TensorType.parse("float32[3, 37]"))
    y = b.input("y", TensorType.parse("float32[37]"))
    return b.graph([b.add(Relu(), [b.add(Add(), [x, y])])])


def _native(threads: int) -> str:
    """Compile a tiny network, and compare its bits with the promised ones."""
    graph = _tiny()
    random = np.random.default_rng(3)
    inputs = {
        v: random.standard_normal(graph.types[v].shape).astype(np.float32) for v in graph.inputs
    }
    begin = time.perf_counter()
    exe = compile(graph, Settings(threads=threads))
    given = exe.run(inputs)
    seconds = time.perf_counter() - begin
    expected = promised(graph, inputs)
    for name in graph.outputs:
        assert given[name].tobytes() == expected[name].tobytes(), f"{name} has other bits"
    return f"right, bit for bit ({seconds * 1e3:.0f} ms)"

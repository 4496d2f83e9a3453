"""Sizes that a network computes while it runs: what would not fit is refused before it is made.

Every case asks for 10^9 elements and more. Each arithmetic refuses it in the same way: the
reference, the promised bits, the compiled program, and what a compiled program leaves to the
reference because only running can tell the size.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import InputError
from verax.base.machine import memory
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.judge import check
from verax.reference.evaluate import evaluate, promised
from verax.runners.subjects.factory import runner_of

MANY = 10**10
Arrays = dict[str, np.ndarray]


def sizes(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


MAP = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
HUGE: dict[str, tuple[str, dict[str, Any], tuple[Any, ...]]] = {
    "Expand": ("Expand", {}, (floats(1, 2, 3), sizes(MANY, 3))),
    "Expand beyond integers": ("Expand", {}, (floats(1, 2, 3), sizes(2**62, 3))),
    "Tile": ("Tile", {}, (MAP, sizes(MANY, 1, 1, 1))),
    "Tile beyond integers": ("Tile", {}, (MAP, sizes(2**62, 2**62, 1, 1))),
    "Pad": ("Pad", {}, (MAP, sizes(0, 0, 0, MANY, 0, 0, 0, 0))),
    "Pad by the edge": ("Pad", {"mode": "edge"}, (MAP, sizes(0, 0, 0, 0, 0, 0, MANY, 0))),
    "ConstantOfShape": ("ConstantOfShape", {}, (sizes(2**16, 2**17),)),
    "ConstantOfShape beyond integers": ("ConstantOfShape", {}, (sizes(2**62, 9),)),
    "Resize by sizes": ("Resize", {}, (MAP, None, None, sizes(2, 3, 10**6, 10**5))),
    "Resize by scales": ("Resize", {}, (MAP, None, floats(1, 1, 1e5, 1e6))),
    "Resize by absurd scales": ("Resize", {}, (MAP, None, floats(1, 1, 1e30, 1e30))),
    "Range": ("Range", {}, (np.array(0), np.array(MANY), np.array(1))),
    "Range of floats": ("Range", {}, tuple(np.array(v, np.float32) for v in (0, 1e30, 1e-3))),
    "OneHot": ("OneHot", {}, (sizes(1, 2), np.array(MANY), floats(0, 1))),
    "MaxUnpool": (
        "MaxUnpool",
        {"kernel_shape": (2, 2)},
        (MAP, np.zeros(MAP.shape, np.int64), sizes(2, 3, 10**6, 10**6)),
    ),
}


def network(case: str) -> tuple[Graph, Arrays]:
    """The operator behind inputs that carry the sizes, and those inputs."""
    kind, attributes, arrays = HUGE[case]
    b, names, fed = Builder(), [], {}
    for i, array in enumerate(arrays):
        if array is None:
            names.append(None)
            continue
        name = b.input(f"i{i}", TensorType.of(array))
        fed[name] = array
        names.append(name)
    return b.graph([b.add(REGISTRY[kind](**attributes), names, ("y",))]), fed


@pytest.mark.parametrize("case", HUGE)
@pytest.mark.parametrize("arithmetic", ["reference", "promised", "compiled", "folded"])
def test_what_does_not_fit_is_refused(case: str, arithmetic: str) -> None:
    graph, fed = network(case)
    with memory.limited(6 << 30), pytest.raises(InputError, match=r"GiB|elements") as caught:
        if arithmetic == "reference":
            evaluate(graph, fed)
        elif arithmetic == "promised":
            promised(graph, fed)
        elif arithmetic == "compiled":
            compile(graph, Settings(threads=1)).run(fed)
        else:  # the sizes are constants: refused when the graph is compiled
            b = Builder()
            names = {n: b.constant(a, n) for n, a in fed.items()}
            node = graph.nodes[0]
            y = b.add(node.op, [v and names[v] for v in node.inputs], ("t",))
            compile(b.graph([b.add(REGISTRY["Neg"](), [y])]), Settings(threads=1))
    assert graph.nodes[0].op.kind in f"{caught.value}" or "range" in f"{caught.value}"


def only_running_tells() -> Graph:
    """y = Expand(x, [round(sum(x)), 3]): no type rule follows a sum of floats."""
    b = Builder()
    x = b.input("x", TensorType(DType.float32, (2, 3)))
    total = b.add(REGISTRY["ReduceSum"](keepdims=False), [x])
    count = b.add(REGISTRY["Reshape"](), [total, b.constant(sizes(1))])
    count = b.add(REGISTRY["Cast"](to=DType.int64), [count])
    shape = b.add(REGISTRY["Concat"](axis=0), [count, b.constant(sizes(3))])
    row = b.add(REGISTRY["ReduceMax"](keepdims=True), [x, b.constant(sizes(0))])
    y = b.add(REGISTRY["Expand"](), [row, shape], ("wide",))
    return b.graph([b.add(REGISTRY["Neg"](), [y], ("y",))])


def test_a_size_that_only_running_tells_is_refused_by_the_compiled_program() -> None:
    exe = compile(only_running_tells(), Settings(threads=1, memory=1 << 30))
    small = np.full((2, 3), 1.5, np.float32)
    assert exe.run({"x": small})["y"].shape == (9, 3)
    with pytest.raises(InputError, match=r"would take 11\.2 GiB.* 1 GiB") as caught:
        exe.run({"x": small * 1e9 / 9})
    assert "Expand" in caught.value.place


def test_the_limit_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, x = only_running_tells(), np.full((2, 3), 5e4, np.float32)
    assert verax.compile(graph, memory="1G").run({"x": x})["y"].shape == (300_000, 3)
    with pytest.raises(InputError, match="allowed"):
        verax.compile(graph, memory="3M").run({"x": x})
    monkeypatch.setenv(memory.VARIABLE, "3M")
    with pytest.raises(InputError, match="3 MiB"):
        evaluate(graph, {"x": x})
    monkeypatch.setenv(memory.VARIABLE, "3 elephants")
    with pytest.raises(verax.VeraxError, match="no amount of memory"):
        evaluate(graph, {"x": x})


def test_a_check_of_it_ends_with_the_same_error() -> None:
    graph, fed = network("Tile")
    with memory.limited(4 << 30), pytest.raises(InputError, match="GiB"):
        check(graph, runner_of("verax:O1"), fed)


def test_without_a_limit_of_ours_the_own_limit_of_the_process_is_kept() -> None:
    """Under 2 GiB of address space it is refused before NumPy is asked."""
    script = """
import numpy as np
from verax.base.errors import InputError
from verax.ir.graph import Builder
from verax.ir.types import TensorType
from verax.ops.movement.reshaping import Tile
from verax.reference.evaluate import evaluate
b = Builder()
x = b.input("x", TensorType.parse("float32[1, 1000]"))
n = b.input("n", TensorType.parse("int64[2]"))
graph = b.graph([b.add(Tile(), [x, n])])
try:
    evaluate(graph, {"x": np.ones((1, 1000), np.float32), "n": np.array([250_000, 1])})
except InputError as error:
    print(error.cause)
"""

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    done = subprocess.run(
        [sys.executable, "-c", script],
        preexec_fn=confine,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "free for it" in done.stdout

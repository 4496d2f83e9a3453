"""Random branches and loops keep the promised bits at every exact level, whatever they hand on."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import verax
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.control.control import If, Loop
from verax.reference.evaluate import promised

ROWS, COLUMNS = 3, 5
SQUARE = f"float32[{COLUMNS}, {COLUMNS}]"
KIND = f"float32[{ROWS}, {COLUMNS}]"
UNARY = ("Relu", "Tanh", "Neg", "Identity", "Abs")
BINARY = ("Add", "Sub", "Mul", "Max")
FRAMES = (
    ("Transpose(perm=(1, 0))", "Transpose(perm=(1, 0))", f"float32[{COLUMNS}, {ROWS}]"),
    ("Identity()", "Relu()", KIND),
)


@st.composite
def lines(draw: st.DrawFn, inputs: list[str], prefix: str, depth: int) -> tuple[str, list[str]]:
    """Nodes of a body over values of one type and the matrix %m, and the values that there are."""
    text, known = "", list(inputs)
    for i in range(draw(st.integers(0, 4))):
        name, a = f"{prefix}{i}", draw(st.sampled_from(known))
        choice = draw(st.integers(0, 4 if depth else 3))
        if choice == 0:
            text += f"%{name}: {KIND} = {draw(st.sampled_from(UNARY))}()(%{a})\n"
        elif choice == 1:
            b = draw(st.sampled_from(known))
            text += f"%{name}: {KIND} = {draw(st.sampled_from(BINARY))}()(%{a}, %{b})\n"
        elif choice == 2:
            text += f"%{name}: {KIND} = MatMul()(%{a}, %m)\n"
        elif choice == 3:
            to, back, kind = draw(st.sampled_from(FRAMES))
            text += f"%{name}.t: {kind} = {to}(%{a})\n%{name}: {KIND} = {back}(%{name}.t)\n"
        else:
            b = draw(st.sampled_from(known))
            op = draw(branch(f"{name}.", depth - 1))
            text += f"%{name}.s: float32[] = ReduceSum(keepdims=False)(%{a})\n"
            text += f"%{name}.z: float32[] = Sub()(%{name}.s, %{name}.s)\n"
            text += f"%{name}.c: bool[] = Less()(%{name}.z, %{name}.s)\n"
            text += f"%{name}: {KIND} = {op}(%{name}.c, %{a}, %{b}, %m)\n"
        known.append(name)
    return text, known


@st.composite
def branch(draw: st.DrawFn, prefix: str, depth: int, outputs: int = 1) -> If:
    """Two bodies over two values and the matrix."""
    sides = []
    for side in "te":
        text, known = draw(lines(["x", "y"], f"{prefix}{side}", depth))
        gives = "".join(f"output %{draw(st.sampled_from(known))}\n" for _ in range(outputs))
        head = f'graph "side"\ninput %x: {KIND}\ninput %y: {KIND}\ninput %m: {SQUARE}\n'
        sides.append(head + text + gives)
    return If(then_branch=sides[0], else_branch=sides[1])


@st.composite
def loop(draw: st.DrawFn) -> Loop:
    """A body over two carried values and the matrix."""
    text, known = draw(lines(["x", "y"], "v", 1))
    gives = "".join(f"output %{draw(st.sampled_from(known))}\n" for _ in range(2))
    head = f'graph "body"\ninput %i: int64[]\ninput %x: {KIND}\ninput %y: {KIND}\n'
    end = "%less: bool[] = Less()(%i, %i)\n%on: bool[] = Not()(%less)\noutput %on\n"
    return Loop(body=f"{head}input %m: {SQUARE}\n{text}{end}{gives}", carried=2)


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    b = Builder("random")
    c = b.input("c", TensorType.parse("bool[]"))
    x, y = (b.input(name, TensorType.parse(KIND)) for name in "xy")
    random = np.random.default_rng(draw(st.integers(0, 99)))
    size = (COLUMNS, COLUMNS)
    m = b.constant(random.uniform(-0.5, 0.5, size).astype(np.float32), "m")
    if draw(st.booleans()):
        x, y = b.add_all(draw(branch("b", 1, 2)), [c, x, y, m], ["p", "q"], "if")
    if draw(st.booleans()):
        count = b.constant(np.array(draw(st.integers(0, 3)), np.int64), "count")
        x, y = b.add_all(draw(loop()), [count, None, x, y, m], ["r", "s"], "loop")
    return b.graph(dict.fromkeys((x, y)))


@settings(max_examples=15, deadline=None)
@given(networks(), st.booleans(), st.integers(0, 99))
def test_random_bodies_keep_their_bits(graph: Graph, truth: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    inputs = {n: random.standard_normal((ROWS, COLUMNS)).astype(np.float32) for n in "xy"}
    inputs["c"] = np.array(truth)
    wanted = promised(graph, inputs)
    for level in (0, 1):
        found = verax.compile(graph, opt_level=level, cache=False).run(inputs)
        for name, array in wanted.items():
            assert found[name].tobytes() == np.asarray(array).tobytes(), (level, name)
    found = verax.compile(graph, opt_level=3, cache=False).run(inputs)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4 * np.abs(array).max())

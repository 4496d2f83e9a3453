"""Passes inside of bodies of If and Loop: exact ones change no bit there, every rewrite is counted
and named and can be left out, what approximates does not enter."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from verax.base.errors import CompileError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.pipeline.levels import run_passes
from verax.ir import checker
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.control.control import If, Loop
from verax.ops.control.subgraphs import body_of
from verax.records.verdict import Kind
from verax.reference.evaluate import promised
from verax.runners.executables import ExecutableRunner

SHAPE = "1, 16, 11, 14"
BODY = f"""graph "body"
input %i: int64[]
input %x: float32[{SHAPE}]
input %w: float32[16, 16, 3, 3]
input %b: float32[16]
input %same: float32[16]
input %scale: float32[16]
input %one: float32[16, 1, 1]
input %more: float32[{SHAPE}]
input %again: float32[{SHAPE}]
input %yes: bool[]
%c: float32[{SHAPE}] = Conv(kernel_shape=(3, 3), pads=((1, 1), (1, 1)))(%x, %w, %b) @ "conv"
%e: float32[16, 1, 1] = Exp()(%one)
%n: float32[{SHAPE}] = BatchNormalization()(%c, %scale, %same, %same, %scale) @ "bn"
%s: float32[{SHAPE}] = Mul()(%n, %e)
%id: float32[{SHAPE}] = Identity()(%s)
%p: float32[{SHAPE}] = Add()(%id, %more)
%q: float32[{SHAPE}] = Sub()(%p, %again)
%y: float32[{SHAPE}] = Relu()(%q) @ "relu"
output %yes
output %y
"""
OTHER = f"""graph "other"
input %x: float32[{SHAPE}]
input %b: float32[16]
input %k: float32[]
%e: float32[] = Exp()(%k)
%n: float32[{SHAPE}] = Mul()(%x, %e)
output %n
"""


def shaped(text: str) -> TensorType:
    return TensorType.parse(text)


def loop_in(b: Builder, x: str, runs: int) -> str:
    """A loop of convolution, normalization and activation; one value is given to it twice."""
    random = np.random.default_rng(8201)

    def drawn(name: str, *shape: int) -> str:
        return b.constant(random.uniform(0.3, 1.0, shape).astype(np.float32), name)

    w = (random.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32)
    given = [b.constant(w, "w"), *(drawn(n, 16) for n in ("b", "same", "scale"))]
    given += [drawn("one", 16, 1, 1), x, x, b.constant(np.array(True), "yes")]
    start = [b.constant(np.array(runs), "runs"), None, x]
    return b.add(Loop(body=BODY, carried=1), [*start, *given], ["loop"], "loop")


def network(runs: int = 5) -> Graph:
    b = Builder("net")
    return b.graph([loop_in(b, b.input("x", shaped(f"float32[{SHAPE}]")), runs)])


def nested() -> Graph:
    """The same loop in a branch; the other branch has a constant to fold."""
    inner = network(2)
    names = [v for v in inner.constants]
    lines = [f"input %{v}: {inner.types[v]}" for v in inner.constants]
    (node,) = inner.nodes
    text = "\n".join(
        [
            'graph "then"',
            f"input %x: float32[{SHAPE}]",
            "input %k: float32[]",
            *lines,
            f"%loop: float32[{SHAPE}] = {node.op}"
            f'({", ".join("_" if v is None else f"%{v}" for v in node.inputs)}) @ "loop"',
            "output %loop",
        ]
    )
    other = OTHER.replace("input %b: float32[16]\n", "").replace(
        "input %k: float32[]", "\n".join(["input %k: float32[]", *lines])
    )
    b = Builder("nested")
    x, yes = b.input("x", shaped(f"float32[{SHAPE}]")), b.input("which", shaped("bool[]"))
    k = b.constant(np.array(0.5, np.float32), "k")
    given = [b.constant(inner.constants[v], v) for v in names]
    op = If(then_branch=text, else_branch=other)
    return b.graph([b.add(op, [yes, x, k, *given], ["out"], "branch")])


X = np.random.default_rng(8202).standard_normal((1, 16, 11, 14)).astype(np.float32)
ONE = Settings(opt_level=1, threads=1, checked=True)


def inner_notes(notes: tuple[str, ...]) -> list[str]:
    return [n for n in notes if n.endswith("(in body of node 'loop' (Loop))")]


def body(graph: Graph) -> Graph:
    (node,) = graph.nodes
    assert isinstance(node.op, Loop)
    return body_of(node.op.body)


def test_exact_passes_rewrite_a_body_and_change_no_bit() -> None:
    graph = network()
    made, trace = run_passes(graph, ONE)
    checker.check(made)
    kinds = [n.op.kind for n in body(made).nodes]
    assert "Exp" not in kinds and "Identity" not in kinds and "BatchNormalization" in kinds
    assert len(inner_notes(trace.notes)) == trace.rewrites >= 2
    exe = compile(graph, ONE)
    assert not exe.plan.on_reference
    right = promised(graph, {"x": X})["loop"]
    assert exe.run({"x": X})["loop"].tobytes() == right.tobytes()


@pytest.mark.parametrize("which", [True, False])
def test_bodies_in_bodies_are_entered(which: bool) -> None:
    graph = nested()
    inputs = {"x": X, "which": np.array(which)}
    exe = compile(graph, ONE)
    assert not exe.plan.on_reference
    inside = "(in body of node 'loop' (Loop)) (in then_branch of node 'branch' (If))"
    folded = [n for n in exe.trace.notes if n.startswith("fold_constants")]
    assert folded[0].endswith(inside)
    assert folded[1].endswith("node 'e' (Exp) (in else_branch of node 'branch' (If))")
    right = promised(graph, inputs)["out"]
    assert exe.run(inputs)["out"].tobytes() == right.tobytes()


def test_it_stops_after_any_number_of_rewrites_and_decisions() -> None:
    graph = network()
    whole = compile(graph, ONE).trace
    right = promised(graph, {"x": X})["loop"].tobytes()
    for stop in range(whole.rewrites + 1):
        exe = compile(graph, dataclasses.replace(ONE, stop_after=stop))
        assert exe.trace.notes == whole.notes[:stop]
        assert exe.run({"x": X})["loop"].tobytes() == right


def test_single_rewrites_and_decisions_can_be_left_out() -> None:
    graph = network()
    whole = compile(graph, dataclasses.replace(ONE, opt_level=2)).trace
    for rewrite in whole.records:
        kept = tuple(one.id for one in whole.records if one is not rewrite)
        exe = compile(graph, dataclasses.replace(ONE, opt_level=2, steps=kept))
        assert {one.id for one in exe.trace.records} <= {*kept}
        assert exe.trace.records
    for left_out in whole.notes:  # selections in words are followed as well
        kept = tuple(n for n in whole.notes if n != left_out)
        exe = compile(graph, dataclasses.replace(ONE, opt_level=2, steps=kept))
        assert left_out not in exe.trace.notes
        assert len(inner_notes(exe.trace.notes)) == len(exe.trace.notes) > 0


def test_what_is_disabled_does_not_enter() -> None:
    off = ("fold_constants", "fuse_elementwise")
    exe = compile(network(), dataclasses.replace(ONE, disable=off))
    assert not [n for n in exe.trace.notes if n.startswith(off)]
    assert "Exp" in [n.op.kind for n in body(exe.specialized.graph).nodes]
    assert not compile(network(), dataclasses.replace(ONE, opt_level=0)).trace.notes


def test_reassociating_passes_enter_from_o2_on_and_the_recipe_says_so() -> None:
    graph = network()
    two = compile(graph, dataclasses.replace(ONE, opt_level=2))
    assert "BatchNormalization" not in [n.op.kind for n in body(two.specialized.graph).nodes]
    assert [r.name for r in two.recipe.rewritings] == ["fold_scales"]
    again = compile(graph, dataclasses.replace(ONE, threads=2), recipe=two.recipe)
    assert again.run({"x": X})["loop"].tobytes() == two.run({"x": X})["loop"].tobytes()
    other = dataclasses.replace(
        two.recipe, rewritings=(dataclasses.replace(two.recipe.rewritings[0], digest="0" * 64),)
    )
    with pytest.raises(CompileError, match="cannot be followed"):
        compile(graph, ONE, recipe=other)


def test_what_approximates_does_not_enter() -> None:
    b = Builder("wide")
    x = b.input("x", shaped(f"float32[{SHAPE}]"))
    allowed = dataclasses.replace(ONE, opt_level=3, allow=("bf16",))
    exe = compile(b.graph([loop_in(b, x, 3)]), allowed)
    assert not exe.recipe.algorithms
    assert {n.op.kind for n in body(exe.specialized.graph).nodes} >= {"Conv"}


@pytest.mark.parametrize("runs", [1, 6, 19])
def test_a_loop_with_folded_weights_is_not_accused(runs: int) -> None:
    graph = network(runs)
    runner = ExecutableRunner(compile(graph, dataclasses.replace(ONE, opt_level=2)), "O2")
    assert check(graph, runner, {"x": X}).kind is Kind.rounding

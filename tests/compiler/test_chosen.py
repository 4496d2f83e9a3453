"""Single rewrites and decisions can be left out, and two that are wrong together are both named."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.compiler.test_bits import bits
from tests.compiler.test_every_pass import ALLOW, LEVEL, SHOWN, network
from verax.base.errors import UsageError
from verax.base.option_groups.settings import LEVELS, Settings
from verax.compiler.compile import compile
from verax.compiler.passes.base import Pass, PassClass
from verax.compiler.pipeline import levels
from verax.compiler.pipeline.levels import run_passes
from verax.compiler.pipeline.recipe import network_hash
from verax.ir.cut import cut
from verax.ir.graph import Builder, Graph
from verax.ir.rewrite import Rewriter
from verax.ir.types import DType, TensorType
from verax.judge.bisect import bisect
from verax.judge.inputs import draw_inputs
from verax.ops.pointwise.activation import LeakyRelu, Relu
from verax.ops.pointwise.arithmetic import Mul, Neg
from verax.ops.pointwise.cast import Cast
from verax.ops.pointwise.transcendental import Tanh
from verax.records.trace import Rewrite, Trace
from verax.reference import promised
from verax.runners.own import VeraxRunner


def parts() -> list[Graph]:
    """For each pass and decision a network in which it has something to do."""
    return [ending({name}) for name in SHOWN]


def everything() -> Graph:
    """All of them in one network."""
    return ending({*SHOWN})


def ending(names: set[str]) -> Graph:
    """The networks of these passes and decisions, beside each other on one input."""
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 3, 9, 7]"))
    parts = {name: SHOWN[name][0](b, x)[0] for name in SHOWN if name in names}
    floats = {n: v if b.types[v].dtype.is_float else b.add(Cast(to=DType.float32), [v])
              for n, v in parts.items()}  # fmt: skip
    return b.graph([b.add(Neg(), [v], [], f"end_{name}") for name, v in floats.items()])


@pytest.mark.parametrize("level", LEVELS[1:])
def test_every_rewrite_has_an_id_of_its_own(level: int) -> None:
    records = run_passes(everything(), Settings(level))[1].records
    assert len({one.pass_name for one in records}) > 6
    assert len({one.id for one in records}) == len(records)


@pytest.mark.parametrize("level", LEVELS[1:])
def test_each_rewrite_can_be_left_out(level: int) -> None:
    """In each part by itself: together they have hundreds of rewrites in hundreds of nodes."""
    assert sum(left_out_of(part, level) for part in parts()) > 1


def left_out_of(graph: Graph, level: int) -> int:
    """How many rewrites of this level the network has; each is left out."""
    ids = [one.id for one in run_passes(graph, Settings(level))[1].records]
    inputs = draw_inputs(graph, 5)[0]
    wanted = promised(graph, inputs) if level == 1 else {}
    judged = set()  # most outputs know nothing of a rewrite
    below = {one.id for one in run_passes(graph, Settings(level - 1))[1].records}
    new_here = [n for n in ids if n not in below]  # the others are left out at that level
    for left_out in new_here:
        some = tuple(n for n in ids if n != left_out)
        new, trace = run_passes(graph, Settings(level, steps=some))
        assert {one.id for one in trace.records} <= {*some}
        for value, made in zip(graph.outputs, new.outputs) if wanted else ():
            part = cut(new, new.inputs, [made])
            text = (value, network_hash(part))
            if text in judged:
                continue
            judged.add(text)
            got = promised(part, inputs)[made]
            assert bits(np.asarray(got)) == bits(np.asarray(wanted[value]))
    return len(new_here)


def test_each_decision_can_be_left_out() -> None:
    graph = network(SHOWN["block_layouts"][0])
    inputs = draw_inputs(graph, 5)[0]
    ids = [one.id for one in compile(graph, Settings(1, threads=1)).trace.records]
    wanted = promised(graph, inputs)
    assert len({*ids}) == len(ids) > 2
    for left_out in ids:
        some = tuple(n for n in ids if n != left_out)
        exe = compile(graph, Settings(1, threads=1, steps=some))
        assert {one.id for one in exe.trace.records} <= {*some}
        got = exe.run(inputs)
        assert all(bits(got[v]) == bits(np.asarray(wanted[v])) for v in wanted)


@pytest.mark.parametrize("name", SHOWN)
def test_a_single_step_is_done_alone(name: str) -> None:
    graph = network(SHOWN[name][0])
    asked = Settings(LEVEL.get(name, 1), threads=1, allow=ALLOW.get(name, ()))
    first = next(r for r in compile(graph, asked).trace.records if r.pass_name == name)
    found = compile(graph, dataclasses.replace(asked, steps=(first.id,))).trace.records
    assert {one.id for one in found} <= {first.id}
    assert compile(graph, dataclasses.replace(asked, steps=())).trace.notes == ()


def test_a_pass_that_rewrites_outputs_cannot_be_held_back() -> None:
    def stubborn(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
        """Say so whatever happens."""
        new, trace = Rewriter(graph, limit), Trace({})
        for node in graph.nodes:
            new.keep(node)
        graph, trace = new.finish()
        return graph, dataclasses.replace(
            trace, records=(Rewrite.of("stubborn: all of it", "all"),)
        )

    levels_before = levels.PIPELINE
    try:
        levels.PIPELINE = (Pass(stubborn, PassClass.exact),)
        with pytest.raises(UsageError, match="cannot be left out by itself"):
            compile(chain(), Settings(threads=1, steps=()))
    finally:
        levels.PIPELINE = levels_before


# --- two passes, each right alone


def chain() -> Graph:
    """Activations in a row; what comes to the later ones is positive."""
    b = Builder("chain")
    h = b.input("x", TensorType.parse("float32[3, 5]"))
    for i in range(6):
        h = b.add(Neg(), [b.add(Relu(), [h], [], f"relu{i}")], [], f"neg{i}")
        h = b.add(Neg(), [b.add(Tanh(), [h])])
    return b.graph([h])


def leaky_relu(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Write a Relu as a LeakyRelu of slope 0, which is the same."""
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        if isinstance(node.op, Relu) and node.name == "relu2" and not rewriter.spent:
            if node.outputs[0] in graph.outputs:
                rewriter.keep(node)
                continue
            made = rewriter.add(LeakyRelu(alpha=0.0), [rewriter.map(node.inputs[0])], node.name)
            rewriter.replace(node, made, "leaky_relu")
        else:
            rewriter.keep(node)
    return rewriter.finish()


def negate_by_product(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Write -x as x * -1: right, but for a network in which there is a LeakyRelu."""
    rewriter = Rewriter(graph, limit)
    factor = -1.25 if any(isinstance(n.op, LeakyRelu) for n in graph.nodes) else -1.0
    for node in graph.nodes:
        shown = node.outputs[0] in graph.outputs
        if isinstance(node.op, Neg) and node.name == "neg4" and not shown and not rewriter.spent:
            constant = rewriter.constant(np.array(factor, np.float32))
            made = rewriter.add(Mul(), [rewriter.map(node.inputs[0]), constant], node.name)
            rewriter.replace(node, made, "negate_by_product")
        else:
            rewriter.keep(node)
    return rewriter.finish()


def product_by_leak(graph: Graph, limit: int | None = None) -> tuple[Graph, Trace]:
    """Take LeakyRelu for the identity: wrong, where there is one."""
    rewriter = Rewriter(graph, limit)
    for node in graph.nodes:
        shown = node.outputs[0] in graph.outputs
        if isinstance(node.op, LeakyRelu) and not shown and not rewriter.spent:
            source = rewriter.map(node.inputs[0])
            assert source is not None
            rewriter.replace(node, rewriter.add(Neg(), [source]), "product_by_leak")
        else:
            rewriter.keep(node)
    return rewriter.finish()


def with_passes(monkeypatch: pytest.MonkeyPatch, *passes: object) -> None:
    own = tuple(Pass(p, PassClass.exact) for p in passes)  # type: ignore[arg-type]
    monkeypatch.setattr(levels, "PIPELINE", (*levels.PIPELINE[:2], *own, *levels.PIPELINE[2:]))


@pytest.mark.parametrize("one", [leaky_relu, negate_by_product])
def test_either_of_two_passes_is_harmless(one: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with_passes(monkeypatch, one)
    record = bisect(chain(), VeraxRunner(Settings(threads=1))).record
    assert record.exit_code == 0


def test_two_passes_that_are_wrong_together_are_both_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_passes(monkeypatch, leaky_relu, negate_by_product)
    record = bisect(chain(), VeraxRunner(Settings(threads=1))).record
    assert record.exit_code == 1
    found = record.optimizations
    assert found is not None
    assert found.guilty == "negate_by_product: node 'neg4' (Neg)"
    assert found.partners == ("leaky_relu: node 'relu2' (Relu)",)
    assert "together with \"leaky_relu: node 'relu2' (Relu)\"" in found.words
    assert [s.part for s in found.steps] == ["negate_by_product", "leaky_relu"]
    assert found.steps[0].region == ("neg4",)
    assert "= Neg()(" in found.steps[0].before
    assert "[-1.25]" in found.steps[0].after


def test_a_pass_that_another_makes_possible_is_told_from_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_passes(monkeypatch, leaky_relu, product_by_leak)
    found = bisect(chain(), VeraxRunner(Settings(threads=1))).record.optimizations
    assert found is not None
    assert found.guilty.startswith("product_by_leak: ")
    assert "which is possible behind \"leaky_relu: node 'relu2' (Relu)\" only" in found.words


def test_a_decision_is_shown_in_kernels() -> None:
    runner = VeraxRunner(Settings(threads=1))
    graph = network(SHOWN["fuse_elementwise"][0])
    inputs = draw_inputs(graph, 1)[0]
    names = [name for name, _ in runner.optimizations(graph, inputs)]
    number = next(i for i, n in enumerate(names) if n.startswith("fuse_elementwise: "))
    step = runner.step(graph, inputs, number)
    assert (step.part, step.level, step.number) == ("fuse_elementwise", "O1", number)
    assert step.before.count("kernel ") == step.after.count("kernel ") + 1
    assert " + " in step.after

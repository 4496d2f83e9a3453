"""Rewrites have ids that follow from the graph, and go by these when they are selected."""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.pipeline.levels import run_passes
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.ops.pointwise.arithmetic import Add, Neg
from verax.ops.pointwise.transcendental import Exp
from verax.records.trace import Rewrite, Trace, body_suffix
from verax.runners.own import VeraxRunner


def alike() -> Graph:
    """Two constant nodes whose names end alike: in prose one is the other's end."""
    b, values = Builder("net"), []
    x = b.input("x", TensorType.parse("float32[2, 3]"))
    for i, name in enumerate(("scale", "node 'scale' (Exp): scale")):
        c = b.constant(np.arange(3, dtype=np.float32) + i, f"c{i}")
        values.append(b.add(Exp(), [c], [f"e{i}"], name))
    total = b.add(Add(), values, ["t"], "total")
    return b.graph([b.add(Neg(), [b.add(Add(), [x, total], ["s"], "sum")], ["y"], "out")])


def test_ids_name_pass_and_node_and_follow_from_the_graph() -> None:
    first, again = (run_passes(alike(), Settings())[1].records for _ in range(2))
    assert first == again
    folded = [one for one in first if one.pass_name == "fold_constants"]
    assert [one.id for one in folded][:1] == ["fold_constants@scale"]
    assert folded[0] == Rewrite(
        "fold_constants@scale", "fold_constants", ("scale",), ("e0",), "node 'scale' (Exp)"
    )
    assert str(folded[0]) == "fold_constants: node 'scale' (Exp)"


def test_selection_goes_by_id_and_not_by_text() -> None:
    records = run_passes(alike(), Settings())[1].records
    some = tuple(one.id for one in records if one.id != "fold_constants@scale")
    after, trace = run_passes(alike(), Settings(steps=some))
    folded = [one.id for one in trace.records if one.pass_name == "fold_constants"]
    assert "fold_constants@scale" not in folded
    assert "fold_constants@node 'scale' (Exp): scale" in folded
    assert "e0" in after.producers and "e1" not in after.producers


def test_selections_in_words_are_still_followed() -> None:
    text = "fold_constants: node 'scale' (Exp)"
    records = run_passes(alike(), Settings(steps=(text,)))[1].records
    assert [one.id for one in records] == ["fold_constants@scale"]


def test_a_second_rewrite_of_a_node_has_an_id_of_its_own() -> None:
    one = Rewrite.of("fold_scales: node 'a' (Conv)", "a", ("a",), ("v",))
    trace = Trace({"v": "v"}, (one,)).then(Trace({"v": "v"}, (one,))).then(Trace({}, (one,)))
    assert [r.id for r in trace.records] == [one.id, f"{one.id}#2", f"{one.id}#3"]
    assert trace.rewrites == 3 and len({*trace.notes}) == 1


def test_a_rewrite_in_a_body_names_the_body() -> None:
    one = Rewrite.of("fold_scales: node 'a' (Conv)", "a").in_body("then", "y", "node 'if' (If)")
    assert one.id.removesuffix(body_suffix("then", "y")) == "fold_scales@a"
    assert str(one) == "fold_scales: node 'a' (Conv) (in then of node 'if' (If))"


def test_a_runner_takes_texts_and_selects_ids() -> None:
    runner, graph = VeraxRunner(Settings(threads=1)), alike()
    inputs = {"x": np.ones((2, 3), np.float32)}
    names = [name for name, _ in runner.optimizations(graph, inputs)][1:]
    chosen = runner.with_steps(names[:2]).settings.steps
    assert chosen == tuple(r.id for r in compile(graph, Settings(threads=1)).trace.records[:2])
    assert dataclasses.replace(runner.settings, steps=chosen) != runner.settings

"""Mistakes planted in the loops of a detector: in how images are resized, in how boxes are decoded
and suppressed; pinned to their node, in whichever run of the loop they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.faults.test_planted_in_control import Shown
from tests.frontends.from_tensorflow.test_tensorflow_detection import detector, stored

from verax.ir.graph import Graph, Node
from verax.judge import check
from verax.records.verdict import Kind, Verdict
from verax.reference.evaluate import promised

RUN = "Postprocessor/map/while/LoopCond/{}/Postprocessor/map/while/"
RESIZE = "Preprocessor/map/while/LoopCond/{0}/Preprocessor/map/while/ResizeImage"


def subject(edit: Callable[[Node], Node]) -> Shown:
    def run(graph: Graph, inputs: Any, keep: Any = None) -> dict[str, np.ndarray]:
        nodes = tuple(edit(n) for n in graph.nodes)
        wanted = [*graph.outputs, *(keep or ())]
        return promised(dataclasses.replace(graph, nodes=nodes), inputs, keep=wanted)

    return Shown(run)


def changed(part: str, kind: str, **fields: Any) -> Callable[[Node], Node]:
    def edit(node: Node) -> Node:
        if part not in node.name or node.op.kind != kind:
            return node
        return dataclasses.replace(node, op=dataclasses.replace(node.op, **fields))

    return edit


def swapped(part: str, kind: str) -> Callable[[Node], Node]:
    """Operands 0 and 1 exchanged."""

    def edit(node: Node) -> Node:
        if part not in node.name or node.op.kind != kind:
            return node
        first, second, *rest = node.inputs
        return dataclasses.replace(node, inputs=(second, first, *rest))

    return edit


PLANTED = {
    "pixels centred": changed(
        RESIZE.format(1), "Resize", coordinate_transformation_mode="half_pixel"
    ),
    "nearest pixels": changed(RESIZE.format(0), "Resize", mode="nearest"),
    "few scores first": changed(RUN.format(1), "TopK", largest=False),
    "boxes about centres": changed(
        RUN.format(0) + "class1", "NonMaxSuppression", center_point_box=True
    ),
    "low scores pass": swapped(RUN.format(1) + "class0", "Greater"),
}


@cache
def judged(name: str) -> Verdict:
    inputs = {"image_tensor": stored()["two.image_tensor"]}
    edit = PLANTED.get(name, lambda node: node)
    # Blame does not hang on the search for causes, which takes most of the time: one has it.
    return check(detector("two").graph, subject(edit), inputs, explain=name == "few scores first")


def test_an_honest_one_is_not_accused() -> None:
    assert judged("honest").kind in (Kind.identical, Kind.rounding), judged("honest").reasons


@pytest.mark.parametrize("name", list(PLANTED))
def test_a_mistake_is_pinned(name: str) -> None:
    graph, edit = detector("two").graph, PLANTED[name]
    (guilty,) = (n for n in graph.nodes if edit(n) is not n)
    verdict = judged(name)
    assert verdict.kind is Kind.mistake, verdict.reasons
    assert {blame.node for blame in verdict.blame} == {guilty.name}

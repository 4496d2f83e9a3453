"""A plan is data: it can be compared, hashed and printed before anything has an address."""

from __future__ import annotations

import numpy as np
import pytest

import verax.compiler.place.program  # noqa: F401  (registers the rules)
from tests.compiler.test_bits import bits
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.describe.pass_example import two_convolutions
from verax.compiler.kernels.target import Target
from verax.compiler.place.movement import movement
from verax.compiler.plan.choice import Planning
from verax.compiler.plan.graph_plan import GraphPlan, plan_graph
from verax.compiler.plan.steps import Decisions
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType


def plan() -> GraphPlan:
    return plan_graph(Planning(two_convolutions(), Target.avx2(), Decisions()))


def test_its_text_says_how_each_group_is_computed() -> None:
    assert str(plan()).splitlines() == [
        "conv1 + relu1: convolution, input 0 plain, output blocked",
        "conv2: convolution, input 0 blocked, output blocked",
    ]


def test_equal_graphs_have_equal_plans() -> None:
    one, two = plan(), plan()
    assert one is not two
    assert [s.choice for s in one.steps] == [s.choice for s in two.steps]
    assert hash(one.steps[0].choice) == hash(two.steps[0].choice)
    assert one.steps[0].choice != one.steps[1].choice


def test_a_transposition_too_large_for_a_list_is_native(monkeypatch: pytest.MonkeyPatch) -> None:
    b, x = Builder("large"), np.random.default_rng(1801).random((2, 3, 5, 7), np.float32)
    op = REGISTRY["Transpose"](perm=(2, -1, 0, 1))  # type: ignore[call-arg]
    graph = b.graph([b.add(op, [b.input("x", TensorType.of(x))], ["y"])])
    monkeypatch.setattr(movement, "LIMIT", 100)
    exe = compile(graph, Settings(1, threads=2))
    assert not exe.plan.on_reference
    assert bits(exe.run({"x": x})["y"]) == bits(x.transpose(2, 3, 0, 1))

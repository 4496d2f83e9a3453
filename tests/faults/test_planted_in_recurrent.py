"""Mistakes planted in recurrent layers of a network: found, pinned to the layer, and named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph, Node
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.protocol import Capabilities
from verax.ops.movement.reshaping import Squeeze
from verax.ops.recurrent.recurrent import GRU, LSTM
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate

Edit = Callable[[Node, dict[str, np.ndarray]], Node]


def small_network(seed: int = 61) -> Graph:
    """x [6, 3, 5] through a GRU that reads backwards and an LSTM with peepholes, to [6, 3, 2]."""
    rng = np.random.default_rng(seed)
    b = Builder("recurrent")

    def constants(op: Any, given: str, features: int, hidden: int, name: str) -> list[str | None]:
        sizes = {"steps": 6, "batch": 3, "features": features, "hidden": hidden}
        arrays = op.drawn(rng, op, given, **sizes)[1:]
        return [None if a is None else b.constant(a, f"{name}{i}") for i, a in enumerate(arrays)]

    x = b.input("x", TensorType.parse("float32[6, 3, 5]"))
    gru = GRU(direction="reverse", linear_before_reset=True, clip=2.5)
    y, _ = b.add_all(gru, [x, *constants(gru, "bh", 5, 4, "g")], ["gru.y", "gru.h"], "gru")
    y = b.add(Squeeze(), [y, b.constant(np.array([1]), "axis")], ["squeezed"], "squeeze")
    lstm = LSTM()
    weights = constants(lstm, "bhcp", 4, 7, "l")
    y, *_ = b.add_all(lstm, [y, *weights], ["lstm.y", "lstm.h", "lstm.c"], "lstm")
    y = b.add(Squeeze(), [y, "axis"], ["flat"], "flatten")
    matrix = b.constant(rng.standard_normal((7, 2)).astype(np.float32), "w")
    return b.graph([b.add(MatMul(), [y, matrix], ["out"], "dense")])


class Subject:
    """Float32 by meaning, with one node replaced; values of every node are shown."""

    name, stored_inputs = "planted", None
    capabilities = Capabilities(watches=True, truncates=True)

    def __init__(self, guilty: str = "", edit: Edit | None = None) -> None:
        self.guilty, self.edit = guilty, edit

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        constants = dict(graph.constants)
        nodes = [
            self.edit(n, constants) if n.name == self.guilty and self.edit else n
            for n in graph.nodes
        ]
        types = {**graph.types, **{v: TensorType.of(a) for v, a in constants.items()}}
        wrong = dataclasses.replace(graph, nodes=tuple(nodes), constants=constants, types=types)
        wanted = [*graph.outputs, *(keep or ())]
        found = evaluate(wrong, inputs, work=np.float32, keep=wanted)
        return {v: found[v] for v in wanted}


def rival(**attributes: Any) -> Edit:
    return lambda node, constants: dataclasses.replace(
        node, op=dataclasses.replace(node.op, **attributes)
    )


def gates(order: Sequence[int], positions: Sequence[int] = (1, 2, 3)) -> Edit:
    """The weights' gates in another order."""

    def edit(node: Node, constants: dict[str, np.ndarray]) -> Node:
        for i in positions:
            name = str(node.inputs[i])
            halves = np.split(constants[name], 2 if i == 3 else 1, axis=1)
            parts = [np.split(half, len(order), axis=1) for half in halves]
            constants[name] = np.concatenate([p[g] for p in parts for g in order], axis=1)
        return node

    return edit


def without(position: int) -> Edit:
    return lambda node, constants: dataclasses.replace(
        node, inputs=tuple(None if i == position else v for i, v in enumerate(node.inputs))
    )


MISTAKES: dict[str, tuple[str, Edit, str]] = {
    "PyTorch's order of gates": ("lstm", gates((0, 3, 1, 2)), "gates in the order"),
    "update and reset exchanged": ("gru", gates((1, 0, 2)), "gates in the order"),
    "reverse dropped": ("gru", rival(direction="forward"), "direction: forward"),
    "linear_before_reset flipped": (
        "gru", rival(linear_before_reset=False), "linear_before_reset False",
    ),
    "clip dropped": ("gru", rival(clip=None), "clip ignored"),
    "peepholes dropped": ("lstm", without(7), "peepholes ignored"),
    "initial cell dropped": ("lstm", without(6), "initial_c ignored"),
    "bias dropped": ("lstm", without(3), "bias missing"),
    "input_forget": ("lstm", rival(input_forget=True), "input_forget True"),
    "input_from_forget": ("lstm", rival(input_from_forget=True), "input_from_forget True"),
    "hard sigmoid": (
        "lstm", rival(activations=("HardSigmoid", "Tanh", "Tanh")), "activation 0 was HardSigmoid",
    ),
}  # fmt: skip
"""What is wrong -> guilty node, how, and the start of the hypothesis that names it."""


def inputs() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(62).standard_normal((6, 3, 5)).astype(np.float32)}


@pytest.mark.parametrize("name", MISTAKES)
def test_it_is_pinned_to_its_layer_and_named(name: str) -> None:
    guilty, edit, told = MISTAKES[name]
    verdict = check(small_network(), Subject(guilty, edit), inputs(), twice=False)
    assert verdict.kind is Kind.mistake
    assert {b.node for b in verdict.blame} == {guilty}  # by each of its outputs
    explained = [e.hypothesis for e in verdict.blame[0].explanations]
    assert explained and explained[0].startswith(told), explained


def test_the_honest_network_rounds() -> None:
    """Also from its outputs alone, by noise through the layers."""
    for watches in (True, False):
        subject = Subject()
        subject.capabilities = dataclasses.replace(subject.capabilities, watches=watches)
        verdict = check(small_network(), subject, inputs(), twice=False)
        assert verdict.kind in (Kind.identical, Kind.rounding), verdict.reasons


def test_a_mistake_shows_in_the_outputs_alone() -> None:
    subject = Subject("gru", rival(direction="forward"))
    subject.capabilities = dataclasses.replace(subject.capabilities, watches=False)
    assert (
        check(small_network(), subject, inputs(), twice=False, explain=False).kind is Kind.mistake
    )

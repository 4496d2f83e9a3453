"""Names that are another value's accuse nobody; real mistakes under such names are still found."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.protocol import Naming
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.linear import MatMul
from verax.ops.windows.convolution import Conv
from verax.records.verdict import Kind, Verdict
from verax.reference.evaluate import promised
from verax.runners.arrays import ArraysRunner
from verax.runners.functions import FunctionRunner
from verax.runners.network import NetworkRunner

Arrays = dict[str, np.ndarray]


def draw(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X = draw(11, 3, 5, 7)


def network(names: Mapping[str, str] | None = None, shift: float = 0.0) -> Graph:
    """x -> turned -> product -> relu -> total -> back. names: other ones for its values."""
    called = {n: (names or {}).get(n, n) for n in ("turned", "product", "relu", "total", "back")}
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[3, 5, 7]"))
    h = b.add(Transpose(perm=(0, 2, 1)), [x], [called["turned"]], called["turned"])
    w = draw(12, 5, 5)
    w[1, 2] += shift
    h = b.add(MatMul(), [h, b.constant(w, "w")], [called["product"]], called["product"])
    h = b.add(Relu(), [h], [called["relu"]], called["relu"])
    h = b.add(Add(), [h, b.constant(draw(13, 5), "b")], [called["total"]], called["total"])
    out = b.add(Transpose(perm=(0, 2, 1)), [h], [called["back"]], called["back"])
    return b.graph([out])


class Named(FunctionRunner):
    """Arrays whose names are hints, as a module's are."""

    capabilities = dataclasses.replace(
        FunctionRunner.capabilities, watches=True, naming=Naming.hint
    )

    def __init__(self, arrays: Arrays) -> None:
        super().__init__(lambda x: arrays, "parts")

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> Arrays:
        values = super().run(graph, inputs, keep)
        return {k: v for k, v in values.items() if keep or k in graph.outputs}


def honest() -> Arrays:
    return promised(network(), {"x": X}, keep="all")


def accused(verdict: Verdict) -> list[str]:
    return [b.node for b in verdict.blame]


def test_a_name_of_another_shape_is_not_used_and_it_is_said() -> None:
    arrays = honest()
    arrays["turned"] = arrays["back"]
    for subject in (Named(arrays), ArraysRunner(arrays)):
        verdict = check(network(), subject, {"x": X})
        assert verdict.kind in (Kind.rounding, Kind.identical), verdict.reasons
        (note,) = [n for n in verdict.notes if "not used" in n]
        assert "turned of " in note
        assert "it is float32[3, 5, 7], the network's is float32[3, 7, 5]" in note


def test_a_name_of_the_same_shape_with_other_content_is_not_used() -> None:
    arrays = honest()
    arrays["product"], arrays["relu"] = arrays["total"], arrays["product"]
    verdict = check(network(), Named(arrays), {"x": X})
    assert verdict.kind in (Kind.rounding, Kind.identical), verdict.reasons
    (note,) = [n for n in verdict.notes if "not used" in n]
    assert note.startswith("product, relu of parts are other values")
    # Whoever writes a dump says with a name what it is.
    assert check(network(), ArraysRunner(arrays), {"x": X}).kind is Kind.mistake


def test_two_networks_whose_names_are_exchanged_are_one() -> None:
    other = network({"product": "total", "total": "product"})
    verdict = check(network(), NetworkRunner(other), {"x": X})
    assert verdict.kind in (Kind.rounding, Kind.identical), verdict.reasons
    assert any("not used" in n for n in verdict.notes)


@pytest.mark.parametrize("naming", Naming)
def test_a_real_mistake_stays_where_it_is(naming: Naming) -> None:
    wrong = promised(network(shift=1e-2), {"x": X}, keep="all")
    subject = Named({k: v for k, v in wrong.items() if k != "w"})
    subject.capabilities = dataclasses.replace(subject.capabilities, naming=naming)
    verdict = check(network(), subject, {"x": X})
    assert accused(verdict) == ["product"], verdict.reasons
    assert check(network(), NetworkRunner(network(shift=1e-2)), {"x": X}).blame[0].node == "product"


def test_a_real_mistake_is_found_beside_a_name_of_another_value() -> None:
    wrong = promised(network(shift=1e-2), {"x": X}, keep="all")
    wrong["turned"] = wrong["relu"] * np.float32(0.5)
    verdict = check(network(), Named(wrong), {"x": X})
    assert verdict.kind is Kind.mistake
    assert accused(verdict) == ["product"]
    assert any("turned of parts is another value" in n for n in verdict.notes)


def convolved(pads: int) -> Graph:
    b = Builder("pads")
    x = b.input("x", TensorType.parse("float32[2, 3, 8, 9]"))
    side = (pads, pads)
    h = b.add(
        Conv(kernel_shape=(3, 3), pads=(side, side)),
        [x, b.constant(draw(14, 4, 3, 3, 3), "w")],
        ["map"],
        "map",
    )
    return b.graph([b.add(Relu(), [h], ["out"], "out")])


def test_a_real_wrong_shape_inside_is_still_accused() -> None:
    """Where what comes behind it is wrong as well, the shape is the cause."""
    x = {"x": draw(15, 2, 3, 8, 9)}
    wrong = promised(convolved(0), x, keep="all")
    subjects = [NetworkRunner(convolved(0)), Named(wrong), ArraysRunner(wrong)]
    for subject in subjects:
        verdict = check(convolved(1), subject, x)
        assert verdict.kind is Kind.mistake
        assert accused(verdict) == ["map"]
        assert "it should be float32[2, 4, 8, 9]" in verdict.blame[0].reason


def test_a_runtime_that_shows_a_wrong_shape_under_this_networks_name_is_accused() -> None:
    arrays = honest()
    arrays["turned"] = arrays["back"]
    subject = Named(arrays)
    subject.capabilities = dataclasses.replace(subject.capabilities, naming=Naming.network)
    assert accused(check(network(), subject, {"x": X})) == ["turned"]


def test_a_wrong_shape_that_is_the_only_answer_is_a_finding() -> None:
    verdict = check(network(), ArraysRunner({"back": X[:2]}), {"x": X})
    assert verdict.kind is Kind.mistake
    verdict = check(network(), ArraysRunner({"turned": X}), {"x": X})
    assert verdict.kind is Kind.mistake


def test_a_runner_that_states_nothing_shows_the_network_itself() -> None:
    assert FunctionRunner(lambda x: x).capabilities.naming is Naming.network

"""A runtime that fuses shows values that later nodes did not read: no accusation follows from that,
and real mistakes are still found."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph, Node
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.protocol import Capabilities
from verax.ops.pointwise.arithmetic import Add, Div, Mul, Sqrt
from verax.ops.sums.linear import MatMul
from verax.ops.sums.reduction import ReduceMean
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate_node

FUSED = ("square", "mean", "shifted", "root", "normal", "scaled")
"""Values inside of the RMSNorm that the subject computes in one go."""


def numbers(seed: int, *shape: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def network() -> Graph:
    """x [3, 7, 20] -> product -> RMSNorm, written out -> product, added to what came before."""
    b = Builder("norm")
    x = b.input("x", TensorType.parse("float32[3, 7, 20]"))
    h = b.add(MatMul(), [x, b.constant(numbers(0, 20, 28), "w0")], ["h"], "h")
    square = b.add(Mul(), [h, h], ["square"], "square")
    axes = b.constant(np.array([-1], np.int64), "axes")
    mean = b.add(ReduceMean(keepdims=True), [square, axes], ["mean"], "mean")
    shifted = b.add(Add(), [mean, b.constant(np.float32(1e-5), "eps")], ["shifted"], "shifted")
    root = b.add(Sqrt(), [shifted], ["root"], "root")
    normal = b.add(Div(), [h, root], ["normal"], "normal")
    gain = b.constant(1 + numbers(1, 28), "gain")
    scaled = b.add(Mul(), [normal, gain], ["scaled"], "scaled")
    out = b.add(MatMul(), [scaled, b.constant(numbers(2, 28, 28), "w1")], ["out"], "out")
    return b.graph([b.add(Add(), [out, h], ["y"], "y")])


X = np.random.default_rng(11).standard_normal((3, 7, 20)).astype(np.float32)


class Fusing:
    """Computes the norm, the product behind it and the sum in float64, rounds once, and shows on
    the side what float32 gives inside. It runs any part of the network that it is handed."""

    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, truncates: bool = True, **wrong: float) -> None:
        self.name, self.wrong = "fusing", wrong
        self.capabilities = Capabilities(watches=True, truncates=truncates)

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        values: dict[str, np.ndarray] = {**graph.constants, **inputs}
        wide: dict[str, np.ndarray] = {}
        for node in graph.nodes:
            (name,) = node.outputs
            aside = [values[v] for v in node.inputs if v]
            inside = [wide.get(v, values[v]) for v in node.inputs if v]
            values[name] = self.evaluate(graph, node, aside, np.float32)
            wide[name] = self.evaluate(graph, node, inside, np.float64)
            if name not in FUSED:
                wide[name] = values[name] = wide[name].astype(np.float32)
            elif name in ("normal", "scaled"):  # shown as they were inside
                values[name] = wide[name].astype(np.float32)
        return {v: values[v] for v in {*graph.outputs, *(keep or ())} if v in values}

    def evaluate(
        self, graph: Graph, node: Node, arrays: list[np.ndarray], work: type
    ) -> np.ndarray:
        typed = [a.astype(work) if a.dtype.kind == "f" else a for a in arrays]
        types = tuple(TensorType.of(a) for a in typed)
        (result,) = evaluate_node(node, typed, types, graph.output_types(node), work)
        return result * work(1 + self.wrong.get(node.name, 0.0))


@pytest.mark.parametrize("truncates", [True, False])
def test_what_was_fused_is_rounding_and_said_to_be_fused(truncates: bool) -> None:
    verdict = check(network(), Fusing(truncates), {"x": X})
    assert (verdict.kind, verdict.blame) == (Kind.rounding, ())
    wider = [f for f in verdict.nodes if f.test.endswith("widened")]
    assert wider, "the narrow view alone would have accused: this test proves nothing"
    assert all("not computed from the shown inputs" in f.reason for f in wider)
    assert all(len(f.region) > 1 and f.statistic <= 1 for f in wider)


@pytest.mark.parametrize("node", ["mean", "root", "normal", "scaled", "out", "h"])
@pytest.mark.parametrize("truncates", [True, False])
def test_a_mistake_among_fused_nodes_is_found(node: str, truncates: bool) -> None:
    verdict = check(network(), Fusing(truncates, **{node: 1e-4}), {"x": X}, explain=False)
    assert verdict.kind is Kind.mistake
    assert verdict.blame[0].node == node


def test_a_subject_that_runs_nodes_alone_hides_nothing_in_a_wide_view() -> None:
    """An error of a few roundings that a wide view would allow for, and the node alone shows."""
    small = 3e-7
    hidden = check(network(), Fusing(False, normal=small), {"x": X}, explain=False)
    seen = check(network(), Fusing(True, normal=small), {"x": X}, explain=False)
    assert hidden.kind is Kind.rounding
    assert [b.node for b in seen.blame] == ["normal"]


class Misnaming(Fusing):
    """Shows the result of the fused nodes, turned, under the name of a value inside."""

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        found = super().run(graph, inputs, keep)
        if len(graph.nodes) > 1 and "shifted" in found and self.wrong.get("shape", 0) == 0:
            found["shifted"] = np.ascontiguousarray(found["scaled"].swapaxes(1, 2))
        elif "shifted" in found and self.wrong.get("shape", 0) == 1:
            found["shifted"] = found["shifted"][..., 0]
        return found


def test_a_fused_result_under_an_inner_name_is_not_used() -> None:
    verdict = check(network(), Misnaming(), {"x": X})
    assert verdict.kind is Kind.rounding
    assert any("'shifted'" in n and "result of a fusion" in n for n in verdict.notes)


def test_a_node_that_gives_a_wrong_shape_by_itself_stays_accused() -> None:
    verdict = check(network(), Misnaming(shape=1), {"x": X}, explain=False)
    assert [(b.node, b.kind) for b in verdict.blame] == [("shifted", Kind.mistake)]

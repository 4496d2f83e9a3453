"""Causes that were found and lost on the way: what watching mends, data quantised otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.explain.region import explain_region
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.arithmetic import Add, Mul
from verax.ops.pointwise.cast import Cast
from verax.ops.quantized.dynamic_quantization import DynamicQuantizeGroups
from verax.ops.sums.linear import MatMul
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate
from verax.runners.network import NetworkRunner


def product(turned: bool) -> Graph:
    """Rows of x times y with an addend; turned: with x read along its other axis."""
    b = Builder("product")
    x = b.input("x", TensorType.parse("float32[3, 6, 6]"))
    y = b.input("y", TensorType.parse("float32[3, 6, 5]"))
    if turned:
        x = b.add(Transpose(perm=(0, 2, 1)), [x], ["turned"], "turn")
    h = b.add(MatMul(), [x, y], ["product"], "product")
    shift = b.constant(np.linspace(-2, 3, 5, dtype=np.float32), "shift")
    return b.graph([b.add(Add(), [h, shift], ["z"], "shifted")])


class Mended(NetworkRunner):
    """Wrong, and right as soon as somebody watches."""

    def __init__(self) -> None:
        super().__init__(product(turned=True), "mended")

    watches = True

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        if keep is None:
            return super().run(graph, inputs, None)
        values = evaluate(product(turned=False), inputs, work=np.float32, keep=["product", "z"])
        return {v: values[v].astype(np.float32) for v in ("product", "z")}


def test_what_watching_mends_is_explained_by_what_was_given_unwatched() -> None:
    verdict = check(product(turned=False), Mended(), seed=91)
    assert verdict.kind is Kind.mistake
    (blame,) = verdict.blame
    assert blame.explanations[0].hypothesis == "product: first matrix transposed"


def hybrid(symmetric: bool, shift: float) -> tuple[Graph, dict[str, np.ndarray]]:
    """A product of 8-bit weights and data that are quantised row by row, as LiteRT has it."""
    r = np.random.default_rng(92)
    b = Builder("hybrid")
    x = b.input("x", TensorType.parse("float32[3, 40]"))
    weights = b.constant(r.integers(-127, 128, (40, 24)).astype(np.int32), "weights")
    scales = b.constant(r.uniform(0.002, 0.01, 24).astype(np.float32), "scales")
    op = DynamicQuantizeGroups(symmetric=symmetric)
    q, scale = b.add_all(op, [x], ["q", "scale"], "quantised")
    whole = b.add(Cast(to="int32"), [q], ["whole"], "whole")
    sums = b.add(MatMul(), [whole, weights], ["sums"], "sums")
    factor = b.add(Mul(), [scale, scales], ["factor"], "factor")
    wide = b.add(Cast(to="float32"), [sums], ["wide"], "wide")
    data = (r.standard_normal((3, 40)) + shift).astype(np.float32)
    return b.graph([b.add(Mul(), [wide, factor], ["y"], "scaled")]), {"x": data}


@pytest.mark.parametrize("symmetric", [True, False])
def test_data_quantised_the_other_way_are_named_and_set_beside_the_float_model(
    symmetric: bool,
) -> None:
    graph, arrays = hybrid(symmetric, shift=1.5)
    other, _ = hybrid(not symmetric, shift=1.5)
    given = evaluate(other, arrays, work=np.float32)["y"]
    known = {**graph.constants, **arrays}
    (first, *_) = explain_region(graph.nodes, known, given, graph.types)
    way = "asymmetrically" if symmetric else "symmetrically"
    assert first.hypothesis == f"quantised: inputs quantised {way}"
    assert "a mistake by the word of the file" in first.words
    nearer = "this reading is nearer" if symmetric else "what the file says is nearer"
    assert nearer in first.words
    weights = graph.constants["weights"] * graph.constants["scales"].astype(np.float64)
    ideal = arrays["x"] @ weights
    error = np.sqrt(np.mean(np.square(given - ideal)))
    assert float(first.words.split("error is ")[1].split(" here")[0]) == pytest.approx(
        error, rel=0.02
    )
    honest = evaluate(graph, arrays, work=np.float32)["y"]
    assert explain_region(graph.nodes, known, honest, graph.types) == ()

"""The other file writes an operator out in pieces: no rounding of these is a mistake, and a mistake
in one of them is one of that operator, not of all that comes behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from verax.by_value import ByValueRunner
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.align.pairing import pair
from verax.judge.protocol import Capabilities
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add, Div, Mul, Sqrt, Sub
from verax.ops.sums.layer_normalization import LayerNormalization
from verax.ops.sums.linear import MatMul
from verax.ops.sums.reduction import ReduceMean
from verax.records.verdict import Kind
from verax.reference.evaluate import promised


def drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng([12, seed]).standard_normal(shape).astype(np.float32)


WEIGHTS = [drawn(i, *s) / 4 for i, s in enumerate(((19, 48), (48, 41), (41, 11)))]
GAIN = np.random.default_rng([12, 3]).uniform(0.5, 1.5, 48)
SHIFT = np.random.default_rng([12, 4]).standard_normal(48)
X = drawn(5, 5, 19)


def network(epsilon: float | None = None) -> Graph:
    """Two layers with a norm between. epsilon: of the norm written out, as one operator if None."""
    b = Builder("net")
    h = b.input("x", TensorType.parse("float32[5, 19]"))
    w = [b.constant(a, f"w{i}") for i, a in enumerate(WEIGHTS)]
    gain, shift = (b.constant(a.astype(np.float32)) for a in (GAIN, SHIFT))
    h = b.add(MatMul(), [h, w[0]], ["first"], "first")
    if epsilon is None:
        h = b.add(LayerNormalization(epsilon=1e-3), [h, gain, shift], ["norm"], "norm")
    else:
        axes = b.constant(np.array([-1], np.int64))
        d = b.add(Sub(), [h, b.add(ReduceMean(keepdims=True), [h, axes], ["mean"])], ["d"])
        square = b.add(Mul(), [d, d], ["square"])
        variance = b.add(ReduceMean(keepdims=True), [square, axes], ["variance"])
        more = b.add(Add(), [variance, b.constant(np.float32(epsilon))], ["more"])
        h = b.add(Div(), [d, b.add(Sqrt(), [more], ["root"])], ["unit"])
        h = b.add(Add(), [b.add(Mul(), [h, gain], ["scaled"]), shift], ["shifted"])
    h = b.add(MatMul(), [h, w[1]], ["middle"], "middle")
    h = b.add(Relu(), [h], ["relu"], "relu")
    return b.graph([b.add(MatMul(), [h, w[2]], ["y"], "last")])


class Reference:
    """Our promised bits of the other file, every value shown."""

    name = "other"
    capabilities = Capabilities(watches=True)
    stored_inputs: Mapping[str, np.ndarray] | None = None

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        return promised(graph, inputs, keep=[*graph.outputs, *(keep or ())])


def judged(seed: int, epsilon: float) -> tuple[Kind, list[str]]:
    x = np.random.default_rng(seed).standard_normal(X.shape).astype(np.float32)
    runner = ByValueRunner(Reference(), network(epsilon))
    verdict = check(network(), runner, {"x": x}, twice=False, explain=False)
    return verdict.kind, [b.node for b in verdict.blame if not b.region]


@pytest.mark.parametrize("seed", range(3))
def test_pieces_are_no_mistake(seed: int) -> None:
    kind, _ = judged(seed, 1e-3)
    assert kind in (Kind.rounding, Kind.identical)


@pytest.mark.parametrize("seed", range(3))
def test_a_mistake_in_a_piece_is_the_operators_own(seed: int) -> None:
    assert judged(seed, 2e-3) == (Kind.mistake, ["norm"])


def test_what_agrees_behind_the_place_is_paired() -> None:
    found = pair(network(), network(2e-3), {"x": X}).inner
    assert {v: w for v, (w, _) in found.items()} == {
        "first": "first", "norm": "shifted", "middle": "middle", "relu": "relu",
    }  # fmt: skip

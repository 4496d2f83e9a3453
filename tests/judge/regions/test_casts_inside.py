"""Values that are rounded to a coarser type inside a region, and masks made of whole numbers."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from verax.ir.graph import Builder, Graph
from verax.ir.types import DType, TensorType
from verax.judge import check
from verax.judge.protocol import Capabilities
from verax.judge.regions.sampler import Region, Sampler
from verax.ops.pointwise.arithmetic import Add, Mul
from verax.ops.pointwise.cast import Cast
from verax.ops.pointwise.comparison import Equal, GreaterOrEqual, IsNaN
from verax.ops.pointwise.transcendental import Cos
from verax.ops.pointwise.where import Where
from verax.ops.sums.linear import MatMul
from verax.ops.sums.softmax import Softmax
from verax.records.verdict import Kind
from verax.reference.evaluate import promised

ACCEPTED = (Kind.rounding, Kind.identical)
Numbers = dict[str, np.ndarray]


class Subject:
    """A function of the inputs; outputs only."""

    stored_inputs, capabilities, name = None, Capabilities(), "subject"

    def __init__(self, function: Callable[[Numbers], Numbers]) -> None:
        self.function = function

    def describe(self) -> dict[str, str]:
        return {}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> Numbers:
        return self.function(dict(inputs))


def product_in_half(seed: int) -> tuple[Graph, Numbers, np.ndarray]:
    """A float32 product that is handed on in float16."""
    random = np.random.default_rng([51, seed])
    weights = (random.standard_normal((40, 70)) / 6).astype(np.float32)
    b = Builder("handed on")
    x = b.input("x", TensorType.parse("float32[300, 40]"))
    h = b.add(MatMul(), [x, b.constant(weights, "w")], ["h"], "h")
    graph = b.graph([b.add(Cast(to=DType.float16), [h], ["y"], "y")])
    return graph, {"x": random.standard_normal((300, 40)).astype(np.float32)}, weights


@pytest.mark.parametrize("seed", range(4))
def test_which_way_a_hidden_value_is_rounded_is_rounding_too(seed: int) -> None:
    graph, inputs, weights = product_in_half(seed)

    def by_library(given: Numbers) -> Numbers:
        return {"y": (given["x"] @ weights).astype(np.float16)}

    def one_by_one(given: Numbers) -> Numbers:
        total = np.zeros((300, 70), np.float32)
        for k in range(40):
            total += given["x"][:, k : k + 1] * weights[k]
        return {"y": total.astype(np.float16)}

    for honest in (by_library, one_by_one):
        assert check(graph, Subject(honest), inputs, explain=False).kind is Kind.rounding

    def wrong(given: Numbers) -> Numbers:
        found = (given["x"] @ weights).astype(np.float32)
        found[:, 3] *= 1.005
        return {"y": found.astype(np.float16)}

    assert check(graph, Subject(wrong), inputs, explain=False).kind is Kind.mistake


def test_out_of_range_of_the_coarser_type_stays_infinite() -> None:
    graph, inputs, weights = product_in_half(7)
    inputs["x"][5] *= 1e6

    def honest(given: Numbers) -> Numbers:
        with np.errstate(over="ignore"):
            return {"y": (given["x"] @ weights).astype(np.float16)}

    region = Region(graph.nodes, frozenset(["h"]), ("y",))
    expected = Sampler(graph, region, {**graph.constants, **inputs}, 0).expected["y"]
    assert (np.isinf(expected) == np.isinf(honest(inputs)["y"])).all()
    assert np.isinf(expected).any()


def test_what_passes_a_coarse_type_is_seen_through_it() -> None:
    random = np.random.default_rng(52)
    b = Builder("angles")
    x = b.input("x", TensorType.parse("float32[6, 37]"))
    scaled = b.add(Mul(), [x, b.constant(np.float32(0.7), "rate")], ["scaled"], "scaled")
    cosine = b.add(Cos(), [scaled], ["cosine"], "cosine")
    y = b.add(Cast(to=DType.bfloat16), [cosine], ["y"], "y")
    graph = b.graph([y])
    inputs = {"x": random.uniform(0.5, 1.5, (6, 37)).astype(np.float32)}
    verdict = check(graph, Subject(lambda given: promised(graph, given)), inputs)
    assert verdict.kind in ACCEPTED
    assert verdict.coverage is not None and verdict.coverage.blind == ()


def masked() -> tuple[Graph, Numbers]:
    """Places counted from constants choose where a computed number is left out."""
    random = np.random.default_rng(53)
    b = Builder("masked")
    x = b.input("x", TensorType.parse("float32[5, 8]"))
    places = b.constant(np.arange(8, dtype=np.int64), "places")
    late = [
        b.add(GreaterOrEqual(), [places, b.constant(np.int64(k), f"k{k}")], [f"late{k}"])
        for k in (4, 6)
    ]
    counts = [b.add(Cast(to=DType.int64), [v], [f"count{i}"]) for i, v in enumerate(late)]
    number = b.add(Add(), counts, ["number"], "number")
    window = b.add(Cast(to=DType.float32), [number], ["window"], "window")
    doubled = b.add(Mul(), [window, b.constant(np.float32(2), "two")], ["doubled"], "doubled")
    middle = b.add(Equal(), [doubled, b.constant(np.float32(2), "at")], ["middle"], "middle")
    weights = (random.standard_normal((8, 8)) / 3).astype(np.float32)
    h = b.add(MatMul(), [x, b.constant(weights, "w")], ["h"], "h")
    m = b.add(Where(), [middle, b.constant(np.float32(0), "zero"), h], ["m"], "m")
    y = b.add(MatMul(), [m, b.constant(weights.T.copy(), "v")], ["y"], "y")
    return b.graph([y]), {"x": random.standard_normal((5, 8)).astype(np.float32)}


def test_counting_is_no_choice_that_rounding_may_tip() -> None:
    graph, inputs = masked()
    hidden = frozenset(v for n in graph.nodes for v in n.outputs) - {"y"}
    sampler = Sampler(graph, Region(graph.nodes, hidden, ("y",)), {**graph.constants, **inputs}, 0)
    assert sampler.jump == ""
    verdict = check(graph, Subject(lambda given: promised(graph, given)), inputs)
    assert verdict.kind in ACCEPTED
    assert {p.value for p in verdict.power} == {"h", "m", "y"}


def test_that_numbers_are_numbers_is_no_choice_that_rounding_may_tip() -> None:
    """Exported attention throws away the NaN of rows without a key."""
    random = np.random.default_rng(54)
    b = Builder("attention")
    x = b.input("x", TensorType.parse("float32[4, 9]"))
    weights = (random.standard_normal((9, 7)) / 3).astype(np.float32)
    h = b.add(MatMul(), [x, b.constant(weights, "w")], ["h"], "h")
    s = b.add(Softmax(axis=-1), [h], ["s"], "s")
    lost = b.add(IsNaN(), [s], ["lost"], "lost")
    kept = b.add(Where(), [lost, b.constant(np.float32(0), "zero"), s], ["kept"], "kept")
    y = b.add(MatMul(), [kept, b.constant(weights.T.copy(), "v")], ["y"], "y")
    graph, data = b.graph([y]), random.standard_normal((4, 9)).astype(np.float32)
    verdict = check(graph, Subject(lambda given: promised(graph, given)), {"x": data})
    assert verdict.kind in ACCEPTED
    assert {p.value for p in verdict.power} == {"h", "s", "kept", "y"}
    data[2] = np.nan
    hidden = frozenset(v for n in graph.nodes for v in n.outputs) - {"y"}
    region = Region(graph.nodes, hidden, ("y",))
    sampler = Sampler(graph, region, {**graph.constants, "x": data}, 0)
    assert sampler.tape.jumps and sampler.jump == ""  # where it is NaN, it is so to everybody

"""A check keeps to its memory: what would not fit is judged in pieces or called unchecked."""

from __future__ import annotations

import threading
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from verax.base.errors import UsageError
from verax.base.machine import memory
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.bisect import bisect
from verax.judge.decide.pieces import cuts
from verax.judge.protocol import Capabilities
from verax.judge.regions.budget import Budget, _fixed, current, needs_of_node
from verax.judge.regions.network import survey
from verax.records.verdict import Kind, Verdict
from verax.reference.evaluate import promised

MIB = 1 << 20


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def one_node(kind: str, attributes: dict[str, Any], *arrays: np.ndarray) -> Graph:
    b = Builder()
    x = b.input("x", TensorType.of(arrays[0]))
    weights = [b.constant(a, f"w{i}") for i, a in enumerate(arrays[1:])]
    return b.graph([b.add(REGISTRY[kind](**attributes), [x, *weights], ("y",), "the_node")])


PADS = ((1, 0), (0, 2))
STATISTICS = (floats(11, 5), floats(12, 5), floats(13, 5), np.abs(floats(14, 5)))
NODES: dict[str, tuple[str, dict[str, Any], tuple[np.ndarray, ...]]] = {
    "convolution": (
        "Conv",
        {"pads": PADS},
        (floats(1, 9, 3, 40, 50), floats(2, 4, 3, 2, 3), floats(3, 4)),
    ),
    "one image": ("Conv", {"pads": PADS}, (floats(4, 1, 2, 30, 40), floats(5, 96, 2, 3, 3))),
    "transposed": (
        "ConvTranspose",
        {"strides": (2, 3)},
        (floats(6, 8, 3, 20, 30), floats(7, 3, 4, 3, 2)),
    ),
    "pool": ("MaxPool", {"kernel_shape": (3, 2)}, (floats(8, 7, 5, 60, 50),)),
    "mean": ("AveragePool", {"kernel_shape": (3, 2)}, (floats(9, 1, 36, 60, 50),)),
    "normalisation": ("BatchNormalization", {}, (floats(10, 8, 5, 60, 40), *STATISTICS)),
    "activation": ("Sigmoid", {}, (floats(15, 1, 1, 90_000),)),
    "addition": ("Add", {}, (floats(16, 5, 70, 300), floats(17, 70, 1))),
    "product": ("MatMul", {}, (floats(18, 90, 6, 70), floats(19, 70, 110))),
    "one row": ("MatMul", {}, (floats(20, 1, 300), floats(21, 300, 900))),
    "global": ("GlobalAveragePool", {}, (floats(22, 6, 40, 30, 20),)),
}


@pytest.mark.parametrize("name", NODES)
def test_a_node_beyond_the_budget_is_judged_in_pieces_with_the_same_word(name: str) -> None:
    kind, attributes, arrays = NODES[name]
    graph = one_node(kind, attributes, *arrays)
    right = promised(graph, {"x": arrays[0]})
    whole = survey(graph, {"x": arrays[0]}, right).findings[0]
    need = needs_of_node(graph, graph.nodes[0], {})
    budget = Budget(_third(graph, need))
    found = survey(graph, {"x": arrays[0]}, right, budget=budget)
    assert not found.unchecked
    (pieced,) = found.findings
    assert pieced.kind is whole.kind
    assert pieced.elements == whole.elements
    assert "pieces" in pieced.reason
    assert pieced.error == pytest.approx(whole.error)
    assert pieced.sigma == pytest.approx(whole.sigma)


def _third(graph: Graph, need: int) -> int:
    """A budget that the node does not fit into, with what a convolution takes in any case."""
    fixed = _fixed(graph, graph.nodes[0])
    return fixed + (need - fixed) * 2 // 3


@pytest.mark.parametrize("name", NODES)
def test_a_mistake_in_one_place_is_found_in_its_piece(name: str) -> None:
    kind, attributes, arrays = NODES[name]
    graph = one_node(kind, attributes, *arrays)
    given = {"y": promised(graph, {"x": arrays[0]})["y"].copy()}
    place = tuple(n - 1 for n in given["y"].shape)
    given["y"][place] += 1 + abs(given["y"][place])
    budget = Budget(_third(graph, needs_of_node(graph, graph.nodes[0], {})))
    (found,) = survey(graph, {"x": arrays[0]}, given, budget=budget).findings
    assert found.kind is Kind.mistake
    assert found.worst[0].index == place
    assert found.worst[0].given == given["y"][place]


def test_memory_really_held_keeps_to_the_budget() -> None:
    x = floats(23, 16, 8, 90, 100)
    graph = one_node("Sigmoid", {}, x)
    given = promised(graph, {"x": x})
    held = []
    for budget in (Budget(1 << 40), Budget(40 * MIB)):
        tracemalloc.start()
        survey(graph, {"x": x}, given, budget=budget)
        held.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert held[1] < 40 * MIB < held[0]


class Shown:
    """A subject that shows the values it was given, watched or not."""

    name, stored_inputs = "shown", None

    def __init__(self, values: Mapping[str, np.ndarray], watches: bool = True) -> None:
        self.values, self.capabilities = dict(values), Capabilities(watches=watches)

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        return {v: a for v, a in self.values.items() if v in graph.outputs or v in (keep or ())}

    def describe(self) -> dict[str, str]:
        return {}


def two_layers() -> tuple[Graph, np.ndarray]:
    """A softmax over a large map, which nothing cuts, between two small nodes."""
    x = floats(24, 3, 2, 40, 50)
    b = Builder()
    b.input("x", TensorType.of(x))
    b.add(REGISTRY["Relu"](), ["x"], ("small",), "first")
    b.add(REGISTRY["Tile"](), ["small", b.constant(np.array([1, 9, 1, 1]))], ("wide",), "second")
    b.add(REGISTRY["Softmax"](axis=1), ["wide"], ("soft",), "third")
    b.add(REGISTRY["ReduceMean"](keepdims=False), ["soft"], ("mean",), "last")
    return b.graph(["mean", "small"]), x


def judged(budget: int, *, watches: bool = True) -> Verdict:
    graph, x = two_layers()
    values = promised(graph, {"x": x}, keep=["small", "wide", "soft", "mean"])
    return check(graph, Shown(values, watches), {"x": x}, memory=budget)


def test_what_cannot_be_cut_is_unchecked_with_the_reason() -> None:
    verdict = judged(20 * MIB)
    assert set(verdict.unchecked) == {"third"}
    assert (
        "MiB, more than the 20 MiB that this check may take (--memory)"
        in (verdict.unchecked["third"])
    )
    assert {f.value for f in verdict.nodes} == {"small", "wide", "mean"}
    assert "third" in verdict.to_json()


def test_an_output_that_cannot_be_judged_is_undecided() -> None:
    graph, x = two_layers()
    values = promised(graph, {"x": x})
    found = survey(graph, {"x": x}, values, budget=Budget(3 * MIB))
    kinds = {f.value: f for f in found.findings}
    assert kinds["mean"].kind is Kind.undecided
    assert "not judged" in kinds["mean"].reason
    assert kinds["small"].kind is Kind.identical


def test_with_enough_memory_everything_is_judged() -> None:
    for watches in (True, False):
        verdict = judged(2 << 30, watches=watches)
        assert not verdict.unchecked
        assert not any("not judged" in f.reason for f in verdict.nodes)


def test_causes_are_not_sought_where_they_do_not_fit() -> None:
    kind, attributes, arrays = NODES["pool"]
    graph = one_node(kind, attributes, *arrays)
    wrong = {"y": promised(graph, {"x": arrays[0]})["y"] + 1}
    tight = _third(graph, needs_of_node(graph, graph.nodes[0], {}))
    (blame,) = check(graph, Shown(wrong), {"x": arrays[0]}, memory=tight).blame
    assert "causes were not sought" in blame.told_apart
    (blame,) = check(graph, Shown(wrong), {"x": arrays[0]}, memory="2G").blame
    assert "causes were not sought" not in blame.told_apart


def test_bisect_takes_the_same_budget() -> None:
    graph, x = two_layers()
    values = promised(graph, {"x": x}, keep=["small", "wide", "soft", "mean"])
    found = bisect(graph, Shown(values), {"x": x}, memory=20 * MIB)
    assert "third" in found.record.verdict.unchecked


def test_a_region_out_of_memory_is_unchecked_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    graph, x = two_layers()
    values = promised(graph, {"x": x})
    monkeypatch.setattr("verax.judge.regions.network.check_region", fail)
    found = survey(graph, {"x": x}, values)
    assert "not enough memory" in found.unchecked["last"]


def test_shares_of_a_budget_are_handed_out_in_turn() -> None:
    budget, inside, most = Budget(100), [0], [0]
    lock = threading.Lock()

    def work(size: int) -> None:
        with budget.reserve(size):
            with lock:
                inside[0] += size
                most[0] = max(most[0], inside[0])
            time.sleep(0.01)
            with budget.reserve(size):  # what holds some waits for nobody
                pass
            with lock:
                inside[0] -= size

    threads = [threading.Thread(target=work, args=(s,)) for s in (60, 60, 30, 100, 40, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert 0 < most[0] <= 100


def test_the_default_is_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(memory.VARIABLE, raising=False)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    assert Budget.of(None).size == 500
    assert Budget.of("2G").size == 2 << 30
    monkeypatch.setenv(memory.VARIABLE, "3G")
    assert Budget.of(None).size == 3 << 30
    with Budget(77).as_current() as held:
        assert current() is held
        assert memory.limit() == 77
    with pytest.raises(UsageError, match="memory is 0"):
        Budget.of(0)


def test_operators_that_mix_their_places_are_not_cut() -> None:
    x = floats(25, 4, 6, 5, 7)
    for kind, attributes in (("Softmax", {"axis": 1}), ("Transpose", {}), ("LRN", {"size": 3})):
        graph = one_node(kind, attributes, x)
        assert not list(cuts(graph.nodes[0], [x], promised(graph, {"x": x})["y"]))

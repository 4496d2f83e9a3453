"""Generated cases: the same for a seed and an index, models of ONNX, and of every kind."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from verax.export.onnx.writer import to_onnx
from verax.hunt.case import Draft, HuntCase, NoCase
from verax.hunt.generate import FAMILIES, generate, of_onnx
from verax.hunt.near_misses import PATTERNS
from verax.hunt.operators import EDGE_OPERATORS, declared_cases, extreme
from verax.hunt.surroundings import BEFORE
from verax.hunt.unspecified import unspecified
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.onnx_format.package import checker
from verax.reference.evaluate import evaluate

SEED, COUNT = 4211, 90


@pytest.fixture(scope="module")
def cases() -> list[HuntCase]:
    return [generate(SEED, index) for index in range(COUNT)]


def test_a_case_is_the_same_every_time(cases: list[HuntCase]) -> None:
    for index in (0, 7, 41):
        again = generate(SEED, index)
        assert again.graph == cases[index].graph and again.opset == cases[index].opset
        assert again.reason == cases[index].reason
        assert list(again.inputs) == list(cases[index].inputs)
        for name, array in again.inputs.items():
            np.testing.assert_array_equal(array, cases[index].inputs[name])
    assert generate(SEED + 1, 0).graph != cases[0].graph


def test_every_family_and_many_operators_and_operator_sets_come_up(cases: list[HuntCase]) -> None:
    families = Counter(case.family for case in cases)
    assert set(families) == set(FAMILIES)
    assert len({case.subject_operator for case in cases}) > COUNT // 3
    assert len({case.opset for case in cases}) > 5


def test_the_checker_of_the_standard_takes_every_model(cases: list[HuntCase]) -> None:
    for case in cases[::3]:
        checker.check_model(to_onnx(case.graph, case.opset), full_check=True)


def test_only_the_operators_and_families_that_are_named_are_drawn() -> None:
    drawn = [generate(3, i, ("Gemm",), ("operator", "surrounded")) for i in range(8)]
    assert {case.subject_operator for case in drawn} == {"Gemm"}
    assert {case.family for case in drawn} <= {"operator", "surrounded"}
    with pytest.raises(NoCase):
        generate(3, 0, ("Gemm",), ("nothing",))


def test_what_the_standard_forbids_or_leaves_open_is_not_drawn() -> None:
    for i in range(20):
        case = generate(11, i, ("Mod", "Pow", "Div"), ("operator", "extreme"))
        assert not unspecified(case.graph, evaluate(case.graph, case.inputs, keep="all"))
    for op, second, words in (
        (REGISTRY["Mod"](fmod=True), [2, 3, 4], "fmod of integers"),
        (REGISTRY["Div"](), [2, 0, 4], "divided by zero"),
        (REGISTRY["Pow"](), [2, -1, 4], "powers of integers"),
        (REGISTRY["Pow"](), [2, 1, 4], ""),
    ):
        draft = Draft(Builder("open"), np.random.default_rng(2))
        x = draft.input(np.array([5, -7, 9], np.int32))
        y = draft.add(op, x, draft.constant(second, np.int32))
        graph = draft.builder.graph([y])
        found = unspecified(graph, evaluate(graph, draft.inputs, keep="all"))
        assert words in found and bool(found) == bool(words)


def test_attributes_are_the_numbers_that_a_file_holds() -> None:
    for i in range(12):
        case = generate(6, i, ("Gemm", "LayerNormalization", "LeakyRelu"), ("operator",))
        for node in case.graph.nodes:
            for value in node.op.attributes().values():
                assert type(value) is not float or np.float32(value) == value


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda p: p.name)
def test_a_pattern_can_be_drawn_in_many_ways(pattern) -> None:
    texts, sizes = set(), []
    for seed in range(24):
        draft = Draft(Builder("pattern"), np.random.default_rng([17, seed]))
        output, changed = pattern.build(draft)
        graph = draft.builder.graph([output])
        (value,) = evaluate(graph, draft.inputs).values()
        assert np.isfinite(value).all()
        texts.add(changed)
        sizes.append(value.size)
    assert len(texts) > 2 and np.median(sizes) > 4


@pytest.mark.parametrize("name", BEFORE)
def test_what_is_put_in_front_gives_the_array_back_or_pads_it(name: str) -> None:
    array = np.random.default_rng(29).standard_normal((3, 4, 6, 5)).astype(np.float32)
    restored = 0
    for seed in range(12):
        draft = Draft(Builder("front"), np.random.default_rng([5, seed]))
        try:
            value = BEFORE[name](draft, array)
        except NoCase:
            continue
        (result,) = evaluate(draft.builder.graph([value]), draft.inputs).values()
        assert result.shape == array.shape
        restored += np.array_equal(result, array)
        assert name == "Pad" or restored
    assert restored or name == "Pad"


def test_extremes_are_zero_sizes_high_ranks_and_the_ends_of_integers() -> None:
    random = np.random.default_rng(31)
    seen = Counter()
    for name in ("Max", "Relu", "ReduceMax", "Add", "ArgMax"):
        for case in declared_cases(name, random):
            for _ in range(6):
                try:
                    changed, reason = extreme(case, random)
                except NoCase:
                    continue
                arrays = [a for a in changed.inputs if a is not None]
                if "size 0" in reason:
                    seen["empty"] += any(not a.size for a in arrays)
                elif reason.startswith("ends of") and name in EDGE_OPERATORS:
                    low = np.iinfo(arrays[0].dtype).min if arrays[0].dtype.kind in "iu" else None
                    seen["edges"] += low is not None and bool((arrays[0] == low).any())
                elif reason.startswith("rank"):
                    seen["rank"] += any(a.ndim == 6 for a in arrays)
    assert seen["empty"] and seen["edges"] and seen["rank"]


def test_operators_that_onnx_lacks_are_not_drawn() -> None:
    assert "Conv" in of_onnx() and "FloorDiv" not in of_onnx()

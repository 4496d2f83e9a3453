"""Keys of alarms, the confidence of opinions, and smaller cases."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.process.processes import SubjectDiedError, SubjectError, SubjectLateError
from verax.hunt.alarm import is_unsupported, of_failure, without_names
from verax.hunt.case import Draft
from verax.hunt.opinions import HIGH, LOW, MEDIUM, Opinion, confidence, is_nearer, opinions
from verax.hunt.sizes import smallest
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY

FRIEND = Opinion("openvino:f32", True, True, "agrees")
DOUBTER = Opinion("onnx.reference", False, True, "differs")
OURSELVES = Opinion("verax:O0", True, False, "agrees")
SILENT = Opinion("onnx.reference", None, True, "no answer")


def small_graph():
    draft = Draft(Builder("net"), np.random.default_rng(6))
    x = draft.input(draft.normal(2, 7, 5))
    y = draft.add(REGISTRY["LeakyRelu"](alpha=0.2), draft.add(REGISTRY["Neg"](), x))
    return draft.builder.graph([draft.add(REGISTRY["Abs"](), y)]), draft.inputs


def test_the_same_failure_of_other_names_and_numbers_is_the_same_finding() -> None:
    graph, _ = small_graph()
    keys = [
        of_failure(SubjectError(f"Node 'conv_{i}' of a/{i}.onnx: axis {i} is wrong"), graph, aim)
        for i, aim in ((3, "Conv"), (14, "Conv"), (3, "Gemm"))
    ]
    assert keys[0].key == keys[1].key != keys[2].key
    assert without_names("axis 3 of `y`") != without_names("rank 3 of `y`")


def test_a_crash_a_hang_and_a_refusal_are_told_apart() -> None:
    graph, _ = small_graph()
    errors = (SubjectDiedError("SIGSEGV"), SubjectLateError("20 s"), SubjectError("no"))
    kinds = [of_failure(error, graph, "Conv").classification for error in errors]
    assert kinds == ["crash", "hang", "refusal"]
    assert is_unsupported("LSTM operator does not support double yet")
    assert is_unsupported("NOT_IMPLEMENTED : Acos(22)") and not is_unsupported("size_ % 2 == 1")


@pytest.mark.parametrize(
    ("seen", "alone", "level"),
    [
        ((FRIEND,), True, HIGH),
        ((FRIEND,), False, MEDIUM),
        ((FRIEND, DOUBTER), True, LOW),
        ((FRIEND, FRIEND, DOUBTER), True, MEDIUM),
        ((OURSELVES,), True, MEDIUM),
        ((OURSELVES, DOUBTER), True, LOW),
        ((SILENT,), True, LOW),
        ((), True, LOW),
    ],
)
def test_confidence_needs_somebody_independent_and_nobody_who_disagrees(
    seen: tuple[Opinion, ...], alone: bool, level: str
) -> None:
    assert confidence(seen, alone=alone)[0] == level


def test_opinions_are_asked_of_exact_arithmetic_and_of_the_standards_own_evaluator() -> None:
    graph, inputs = small_graph()
    sources = {o.source: o for o in opinions(graph, inputs, "reference")}
    assert sources["exact rational arithmetic"].supports
    assert sources["onnx.reference"].supports and sources["onnx.reference"].independent
    assert not sources["verax:O0"].independent


def test_who_differs_from_both_takes_nobodys_side() -> None:
    right, wrong = {"y": np.array([1.0, 5.0, -2.0])}, {"y": np.array([9.0, 5.0, -2.0])}
    assert is_nearer({"y": np.array([8.0, 5.0, -2.0])}, wrong, right)
    assert not is_nearer({"y": np.array([1.0, 5.5, 3.0])}, wrong, right)
    assert is_nearer({"y": np.zeros(4)}, wrong, right)


def test_a_case_shrinks_to_the_node_and_the_element_that_show_it() -> None:
    graph, inputs = small_graph()

    def shows(candidate, arrays) -> bool:
        kinds = [n.op.kind for n in candidate.nodes]
        return "LeakyRelu" in kinds and next(iter(arrays.values())).shape[1] >= 2

    small, values = smallest(graph, inputs, shows)
    assert [n.op.kind for n in small.nodes] == ["LeakyRelu"]
    (array,) = values.values()
    assert array.shape == (1, 2, 1)


def test_what_shrinks_no_further_stays_as_it_is() -> None:
    graph, inputs = small_graph()
    small, values = smallest(graph, inputs, lambda g, a: False)
    assert small is graph and values == inputs

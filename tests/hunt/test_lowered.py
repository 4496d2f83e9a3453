"""An answer in float32 to a graph in float64 is told from other wrong answers."""

from __future__ import annotations

import numpy as np

from verax.hunt.case import Draft
from verax.hunt.lowered import in_single, is_of_single_precision
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.reference.evaluate import evaluate


def network():
    draft = Draft(Builder("double"), np.random.default_rng(71))
    x = draft.input(draft.random.standard_normal((2, 5, 3)))
    y = draft.add(REGISTRY["Mul"](), x, draft.constant(draft.random.standard_normal((5, 1))))
    return draft.builder.graph([draft.add(REGISTRY["Exp"](), y)]), draft.inputs


def answers(dtype: type) -> dict[str, np.ndarray]:
    graph, inputs = network()
    narrow = graph if dtype is np.float64 else in_single(graph, inputs)
    arrays = {v: a.astype(dtype) for v, a in inputs.items()}
    return {v: a.astype(np.float64) for v, a in evaluate(narrow, arrays, work=dtype).items()}


def test_float32_numbers_in_float64_are_the_finding() -> None:
    graph, inputs = network()
    assert is_of_single_precision(graph, inputs, answers(np.float32))


def test_a_wrong_number_is_not_that_of_a_narrower_type() -> None:
    graph, inputs = network()
    wrong = {v: a * 1.01 for v, a in answers(np.float32).items()}
    assert not is_of_single_precision(graph, inputs, wrong)


def test_a_graph_of_float32_has_no_narrower_type_here() -> None:
    graph, inputs = network()
    single = in_single(graph, inputs)
    arrays = {v: a.astype(np.float32) for v, a in inputs.items()}
    wrong = {v: a * np.float32(2) for v, a in evaluate(single, arrays, work=np.float32).items()}
    assert not is_of_single_precision(single, arrays, wrong)

"""What a faulty kernel did is named: wrong answers of one operator, judged, and the first cause."""

from __future__ import annotations

import numpy as np
import planted_answers_of_numbers  # noqa: F401  (registers what is planted)
import planted_answers_of_windows  # noqa: F401
import pytest
from planted_answers import PLANTED, PlantedAnswer

from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge import check
from verax.ops.pointwise.arithmetic import Neg
from verax.records.verdict import Kind, Verdict
from verax.runners.arrays import ArraysRunner


def judged(fault: PlantedAnswer) -> Verdict:
    b = Builder("one operator")
    fed: dict[str, np.ndarray] = {}
    seen: dict[str, np.ndarray] = {}
    names: list[str | None] = []
    for i, array in enumerate(fault.inputs):
        if array is None:
            names.append(None)
            continue
        name, array = f"x{i}", np.asarray(array)
        if i == 0 and array.dtype.kind == "f":
            # its values are seen, so that whoever feeds the network cannot be to blame
            fed["z"] = -array
            names.append(b.add(Neg(), [b.input("z", TensorType.of(array))], [name]))
            seen[name] = array
        elif array.dtype == np.int64 and array.ndim == 1 and i:
            names.append(b.constant(array, name))  # sizes and axes
        else:
            names.append(b.input(name, TensorType.of(array)))
            fed[name] = array
    graph: Graph = b.graph([b.add(fault.op, names, ["y"])])
    answer = np.asarray(fault.answer)
    answer = answer if answer.dtype != np.float64 else answer.astype(np.float32)
    return check(graph, ArraysRunner({**seen, "y": answer}), fed)


@pytest.mark.parametrize("name", PLANTED)
def test_the_mistake_is_named_first(name: str) -> None:
    random = np.random.default_rng([37, *name.encode()])
    fault = PLANTED[name](random)
    verdict = judged(fault)
    assert verdict.kind is Kind.mistake, verdict.reasons
    (blame,) = verdict.blame
    words = [e.words for e in blame.explanations]
    assert words and fault.cause in words[0], (words, blame.structure)

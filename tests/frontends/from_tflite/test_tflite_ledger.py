"""Nothing that a file says is dropped in silence: every attribute of every operator, mutated to
another meaning, changes the result or is refused, unless the ledger says why it cannot matter."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.frontends.from_tflite.detection_cases import detection_cases
from tests.frontends.from_tflite.float_cases import float_cases
from tests.frontends.from_tflite.hybrid_cases import hybrid_cases
from tests.frontends.from_tflite.quantised_cases import TYPES, quantised_cases
from tests.frontends.from_tflite.recurrent_cases import recurrent_cases
from tests.frontends.from_tflite.tflite_peer import drawn

from verax.base.errors import VeraxError
from verax.frontends.common.foreign import ForeignModel
from verax.frontends.common.importing import Importer
from verax.frontends.common.ledger import AttributeOutcome
from verax.frontends.model import Model
from verax.frontends.tflite.reader import read_model
from verax.frontends.tflite.schema import ENUMS
from verax.frontends.tflite.table import TABLE
from verax.reference.evaluate import evaluate

CASES = dict(
    [
        *float_cases(),
        *quantised_cases(),
        *hybrid_cases(),
        *detection_cases(),
        *recurrent_cases(),
    ]
)
RIVALS = {name: set(values.values()) for name, values in ENUMS.items()}

KINDS = {*TYPES, "hybrid"}
SYNONYMS = {("quantized_bias_type", "int64")}
"""What an unset option means anyway."""


def imported(foreign: ForeignModel) -> Model:
    return Importer(foreign, TABLE).run("bytes", "TFLite")


def mutants(value: Any) -> Iterator[Any]:
    """Values of the same type with another meaning."""
    if isinstance(value, np.ndarray):
        yield value * 1.25 if value.dtype.kind == "f" else value + 1
        if value.dtype.kind != "f":
            yield value + 12_345  # one more is little to 16 bits
            yield value + (1 << 24)  # and nothing to 32
    elif isinstance(value, str):
        for values in RIVALS.values():
            if value in values:
                yield from values - {value}
                return
    elif isinstance(value, tuple):
        yield (*value, 1)
        yield tuple(v + 1 for v in value)
    elif isinstance(value, float):
        yield value * 1.5 + 0.25
    else:
        yield value + 1
        yield 1 - value


def kind_of(label: str) -> tuple[str, str]:
    """Operator, and type when quantised."""
    words = label.replace(",", "").split()
    return words[0], next((w for w in words[1:2] if w in KINDS), "float")


def mutations(label: str) -> Iterator[tuple[tuple[str, str], bool]]:
    """((attribute, mutant where it is a word), whether it was told) for one small model."""
    foreign = read_model(memoryview(CASES[label]))
    (node,) = foreign.nodes
    model = imported(foreign)
    inputs = drawn(model)
    first = evaluate(model.graph, inputs)  # a state of zeros would hide what is multiplied with it
    graph = model.graph
    inputs |= {v: first[o].astype(graph.types[v].dtype.numpy) for v, o in graph.state.items()}
    want = evaluate(model.graph, inputs)
    idle = {e.attribute for e in model.ledger.entries if e.outcome is AttributeOutcome.irrelevant}
    assert {e.attribute for e in model.ledger.entries} == set(node.attributes)
    for name in set(node.attributes) - idle:
        for mutant in mutants(node.attributes[name]):
            changed = dataclasses.replace(node, attributes={**node.attributes, name: mutant})
            key = name, mutant if isinstance(mutant, str) else ""
            try:
                other = imported(dataclasses.replace(foreign, nodes=(changed,), declared={}))
                found = evaluate(other.graph, inputs)
            except VeraxError:
                yield key, True
                continue
            yield (
                key,
                other.outputs != model.outputs
                or any(not np.array_equal(array, found[k]) for k, array in want.items()),
            )


@pytest.mark.parametrize("kind", sorted({kind_of(label) for label in CASES}), ids=" ".join)
def test_every_attribute_matters_or_is_said_not_to(kind: tuple[str, str]) -> None:
    """In one model at least: elsewhere two values may mean the same, like the padding of a window
    that fits."""
    told: dict[tuple[str, str], bool] = {}
    for label in CASES:
        if kind_of(label) == kind:
            for key, was_told in mutations(label):
                told[key] = told.get(key, False) or was_told
    silent = {key for key, was_told in told.items() if not was_told}
    assert silent <= SYNONYMS

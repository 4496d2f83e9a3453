"""Nothing that a Keras file says is dropped in silence: every attribute of every layer, mutated to
another meaning, changes the result or is refused, unless the ledger says why it cannot matter."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.frontends.from_keras.test_keras_answers import LABELS, slow_if_long, stored

from verax.base.errors import VeraxError
from verax.frontends.common.foreign import ForeignModel
from verax.frontends.common.importing import Importer
from verax.frontends.common.ledger import AttributeOutcome
from verax.frontends.keras.archive import open_archive
from verax.frontends.keras.reader import read_model
from verax.frontends.keras.rows import ACTIVATION_FIELDS, COMPOSED, PLAIN_ACTIVATIONS
from verax.frontends.keras.table import TABLE
from verax.frontends.model import Model
from verax.reference.evaluate import evaluate

RIVALS = [
    {"same", "valid", "causal"},
    {"channels_last", "channels_first"},
    {"nearest", "bilinear"},
    {"linear", "relu6", "hard_sigmoid", *PLAIN_ACTIVATIONS, *ACTIVATION_FIELDS, *COMPOSED},
]
"""Words, each in the company of what it could be instead."""
PLAIN = {"sigmoid", "exponential"}
"""Activations that differ from any other one on any data: a graph's values may miss the rest."""
SYNONYMS = [{"silu", "swish"}, {"hard_silu", "hard_swish"}, {"elu", "celu"}]


def imported(foreign: ForeignModel) -> Model:
    return Importer(foreign, TABLE).run("file", "Keras")


def mutants(value: Any, graph: bool = False) -> Iterator[Any]:
    """Values of the same type with another meaning."""
    if isinstance(value, str):
        for words in RIVALS:
            if value in words:
                same = next((s for s in SYNONYMS if value in s), set())
                yield from (words & PLAIN or words if graph else words) - {value} - same
                return
        yield f"{value}?"
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, tuple):
        yield tuple(_raised(v) for v in value)
        yield (*value, value[-1] if value else 1)
    elif isinstance(value, float):
        yield value * 1.5 + 0.25
    else:
        yield value + 1


def _raised(value: Any) -> Any:
    if isinstance(value, str):
        return f"{value}?"
    return tuple(_raised(v) for v in value) if isinstance(value, tuple) else value + 1


def told(foreign: ForeignModel, node: int, name: str, mutant: Any, want: Any, inputs: Any) -> bool:
    """Whether the mutation is refused or gives something else."""
    nodes = list(foreign.nodes)
    changed = {**nodes[node].attributes, name: mutant}
    nodes[node] = dataclasses.replace(nodes[node], attributes=changed)
    try:
        other = imported(dataclasses.replace(foreign, nodes=tuple(nodes)))
        found = evaluate(other.graph, inputs)
    except VeraxError:
        return True
    return any(
        a.shape != b.shape or not np.array_equal(a, b)
        for a, b in zip(want.values(), found.values(), strict=True)
    )


@pytest.mark.parametrize("label", slow_if_long([x for x in LABELS if "network" not in x]))
def test_every_attribute_matters_or_is_said_not_to(label: str) -> None:
    arrays = stored()[label]
    form = next(w for w in arrays if w.startswith("file"))
    foreign = read_model(open_archive(arrays[form].tobytes()))
    model = imported(foreign)
    given = [3 * v for w, v in arrays.items() if w.startswith("in:")]  # beyond what relu6 clips
    inputs = dict(zip(model.inputs, given, strict=True))
    want = evaluate(model.graph, inputs)
    outcomes = {(e.node, e.attribute): e.outcome for e in model.ledger.entries}
    assert set(outcomes) == {(n.place, name) for n in foreign.nodes for name in n.attributes}
    for i, node in enumerate(foreign.nodes):
        for name, value in node.attributes.items():
            if outcomes[node.place, name] is AttributeOutcome.irrelevant:
                continue
            rivals = mutants(value, label.startswith("graph"))
            silent = [m for m in rivals if not told(foreign, i, name, m, want, inputs)]
            assert not silent, f"{node.place}: {name} = {silent[0]!r} instead of {value!r}"

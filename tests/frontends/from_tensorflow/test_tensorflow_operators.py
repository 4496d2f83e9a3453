"""TensorFlow's operators against TensorFlow's stored answers, and every attribute held to account.

`make_operators.py` wrote the graphs, the answers and what TensorFlow's registry says of operators.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import VeraxError
from verax.frontends.common.ledger import AttributeOutcome
from verax.frontends.tensorflow import load_tensorflow
from verax.frontends.tensorflow.messages import CLASSES
from verax.frontends.tensorflow.names import OUTPUTS
from verax.frontends.tensorflow.table import TABLE
from verax.records.verdict import Kind

HERE = Path(__file__).parent
DEFINITIONS = json.loads((HERE / "op_defs.json").read_text())
with np.load(HERE / "operators.npz") as stored:
    STORED = {key: stored[key] for key in stored.files}
NAMES = sorted({key.partition("|")[0] for key in STORED})
FINE = (Kind.identical, Kind.rounding, Kind.precision)


def arrays(name: str, letter: str) -> dict[str, np.ndarray]:
    """The inputs ("x") or answers ("y") of a case."""
    prefix = f"{name}|{letter}"
    return {key.partition("|")[2]: v for key, v in STORED.items() if key.startswith(prefix)}


def graph_of(name: str) -> Any:
    return CLASSES["Graph"].FromString(STORED[f"{name}|graph"].tobytes())


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_means_what_tensorflow_computes(name: str) -> None:
    model, inputs = load_tensorflow(STORED[f"{name}|graph"].tobytes()), arrays(name, "x")
    for subject in (arrays(name, "y"), "verax:O1"):
        verdict = verax.check(model, subject, inputs, twice=False, watch=False)
        if verdict.kind is Kind.undecided:
            # A value that hides what is before it, or NaN on purpose; every output was judged.
            tests = {f.test for f in verdict.nodes if f.kind is Kind.undecided}
            assert tests in ({"power"}, {"non-finite"})
            continue
        assert verdict.kind in FINE, verdict.reasons


def test_the_table_is_covered() -> None:
    seen = {node.op for name in NAMES for node in graph_of(name).node}
    assert {op for _, op in TABLE} == seen & {op for _, op in TABLE}


def test_outputs_are_named_as_tensorflow_names_them() -> None:
    assert {op for _, op in TABLE} == set(DEFINITIONS), "run make_operators.py"
    for op, definition in DEFINITIONS.items():
        if len(definition["outputs"]) > 1:
            assert OUTPUTS[op] == tuple(definition["outputs"]), op


NEUTRAL = {
    ("GatherV2", "batch_dims"),
    ("TopKV2", "sorted"),
    ("StridedSlice", "begin_mask"),
    ("StridedSlice", "end_mask"),
    ("StridedSlice", "ellipsis_mask"),
    ("StridedSlice", "new_axis_mask"),
    ("StridedSlice", "shrink_axis_mask"),
    ("CombinedNonMaxSuppression", "pad_per_class"),
}
"""Attributes whose change may keep the result: a bound that is the default anyway."""


@pytest.mark.parametrize("name", NAMES)
def test_no_attribute_is_ignored_in_silence(name: str) -> None:
    model, inputs = load_tensorflow(STORED[f"{name}|graph"].tobytes()), arrays(name, "x")
    before = verax.reference(model, inputs)
    for node, attribute, changed in mutations(name):
        try:
            other = load_tensorflow(changed)
            after = verax.reference(other, inputs)
        except VeraxError:
            continue
        same = all(
            a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b)
            for a, b in zip(before.values(), after.values(), strict=True)
        )
        if same and (node.op, attribute) not in NEUTRAL:
            assert said_irrelevant(other, node, attribute), (node.name, attribute)


def said_irrelevant(model: Any, node: Any, attribute: str) -> bool:
    return any(
        e.outcome is AttributeOutcome.irrelevant
        for e in model.ledger.entries
        if e.node.startswith(f"node {node.name!r} ") and e.attribute == attribute
    )


def mutations(name: str) -> Iterator[tuple[Any, str, bytes]]:
    """The graph with one attribute of one operator changed."""
    graph = graph_of(name)
    for node in operators(graph):
        for key in sorted(node.attr):
            attribute = node.attr[key]
            before = attribute.SerializeToString()
            if changed(attribute):
                yield node, key, graph.SerializeToString()
            attribute.ParseFromString(before)


def operators(graph: Any) -> list[Any]:
    return [node for node in graph.node if node.op not in ("Const", "Placeholder")]


def changed(attribute: Any) -> bool:
    """Change an attribute in place; whether it could be."""
    kind = attribute.WhichOneof("value")
    if kind == "b":
        attribute.b = not attribute.b
    elif kind == "i":
        attribute.i += 1
    elif kind == "f":
        attribute.f = attribute.f * 1.75 + 0.3
    elif kind == "s":
        swap = {b"SAME": b"VALID", b"VALID": b"SAME", b"NHWC": b"NCHW", b"NCHW": b"NHWC"}
        attribute.s = swap.get(attribute.s, b"other")
    elif kind == "type":
        attribute.type = 2 if attribute.type == 1 else 1
    elif kind == "shape" and attribute.shape.dim:
        attribute.shape.dim[0].size += 1
    elif kind == "list" and attribute.list.i:
        attribute.list.i[len(attribute.list.i) // 2] += 1
    elif kind == "list" and attribute.list.type:
        attribute.list.type[0] = 2 if attribute.list.type[0] == 1 else 1
    else:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_an_absent_attribute_has_tensorflows_default(name: str) -> None:
    """Spelled out or left out, the default means the same; what has none is required, unless
    the ledger says that it does not matter. Types and counts only repeat what the operands say, and
    are checked where they are given."""
    graph, model = graph_of(name), load_tensorflow(STORED[f"{name}|graph"].tobytes())
    for node in operators(graph):
        for key, facts in DEFINITIONS[node.op]["attributes"].items():
            if facts["type"] in ("type", "list(type)") or key == "N":
                continue
            before = node.attr[key].SerializeToString() if key in node.attr else None
            node.attr.pop(key, None)
            absent = outcome(graph)
            if "default" in facts:
                node.attr[key].ParseFromString(bytes.fromhex(facts["default"]))
                assert outcome(graph) == absent, (node.op, key)
                node.attr.pop(key)
            else:
                irrelevant = said_irrelevant(model, node, key)
                assert absent.startswith("refused") or irrelevant, (node.op, key)
            if before is not None:
                node.attr[key].ParseFromString(before)


def outcome(graph: Any) -> str:
    """The imported graph's text, or how it was refused."""
    try:
        return str(load_tensorflow(graph.SerializeToString()))
    except VeraxError as error:
        return f"refused as {type(error).__name__}"

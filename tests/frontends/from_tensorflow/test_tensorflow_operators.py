"""TensorFlow's operators against TensorFlow, and every attribute of theirs held to account."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tf_cases import CASES, frozen, tf

import verax
from verax.base.errors import VeraxError
from verax.frontends.ledger import Outcome
from verax.frontends.tensorflow import load_tensorflow
from verax.frontends.tensorflow.table import TABLE
from verax.records.verdict import Kind

NAMES = sorted(CASES)
ALIASES = {
    # other versions of an operator that has a case, or nodes without any effect
    *("Add", "FusedBatchNorm", "FusedBatchNormV2", "AvgPool3D", "BatchMatMul", "BatchMatMulV3"),
    *("Conv3DBackpropInputV2", "Inv", "Reciprocal", "Div", "Rint", "Concat", "Gather", "Rank"),
    *("IsNan", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Pow"),
    *("StopGradient", "PreventGradient", "Snapshot", "CheckNumerics", "EnsureShape", "Expm1"),
    *("PlaceholderWithDefault", "NonMaxSuppressionV3", "ResizeBicubic", "Select", "Range"),
    *("Fill", "OnesLike", "ZerosLike", "Size", "Shape"),
}


def loaded(name: str) -> tuple[Any, dict[str, np.ndarray], list[np.ndarray], bytes]:
    function, *inputs = CASES[name]
    data, answers = frozen(function, tuple(inputs))
    model = load_tensorflow(data)
    given = {f"x{i}": x for i, x in enumerate(inputs)}
    return model, given, answers, data


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_means_what_tensorflow_computes(name: str) -> None:
    model, inputs, answers, _ = loaded(name)
    given = {f"y{i}": np.asarray(y) for i, y in enumerate(answers)}
    for subject in (given, "verax:O1"):
        verdict = verax.check(model, subject, inputs, twice=False)
        if verdict.kind is Kind.undecided:
            # A value that hides what is before it; every output was judged nevertheless.
            assert {f.test for f in verdict.nodes if f.kind is Kind.undecided} == {"power"}
            continue
        assert verdict.kind in (Kind.identical, Kind.rounding, Kind.precision), verdict.reasons


def test_the_table_is_covered() -> None:
    seen = set()
    for name in NAMES:
        graph = tf.compat.v1.GraphDef.FromString(loaded(name)[3])
        seen |= {n.op for n in graph.node}
    assert {op for _, op in TABLE} - seen <= ALIASES


NEUTRAL = {
    ("GatherV2", "batch_dims"),
    ("TopKV2", "sorted"),
    ("StridedSlice", "begin_mask"),
    ("StridedSlice", "end_mask"),
    ("StridedSlice", "ellipsis_mask"),
    ("StridedSlice", "new_axis_mask"),
    ("StridedSlice", "shrink_axis_mask"),
}
"""Attributes whose change may keep the result: a bound that is the default anyway."""


@pytest.mark.parametrize("name", NAMES)
def test_no_attribute_is_ignored_in_silence(name: str) -> None:
    model, inputs, _, data = loaded(name)
    before = verax.reference(model, inputs)
    for node, attribute, changed in mutations(data):
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
            entries = [
                e
                for e in other.ledger.entries
                if e.node.startswith(f"node {node.name!r} ") and e.attribute == attribute
            ]
            assert any(e.outcome is Outcome.irrelevant for e in entries), (node.name, attribute)


def mutations(data: bytes) -> Iterator[tuple[Any, str, bytes]]:
    """The graph with one attribute of one operator changed."""
    graph = tf.compat.v1.GraphDef.FromString(data)
    for i, node in enumerate(graph.node):
        if node.op in ("Const", "Placeholder"):
            continue
        for key in sorted(node.attr):
            changed = copy.deepcopy(graph)
            attribute = changed.node[i].attr[key]
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
            elif kind == "list" and attribute.list.i:
                attribute.list.i[len(attribute.list.i) // 2] += 1
            else:
                continue
            yield node, key, changed.SerializeToString()

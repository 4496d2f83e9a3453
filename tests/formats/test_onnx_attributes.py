"""No attribute of an ONNX operator is ignored in silence.

ONNX's own operator cases are the networks. Each attribute that an operator's schema has is given
values with another meaning, whether a case spells it out or leaves it to its default: the result
must change, or the import refuse, or the ledger say why it cannot matter.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, helper, numpy_helper
from tests.frontends.onnx_models import model as onnx_model

from verax.base.errors import VeraxError
from verax.frontends.common.context import ValueNeededError
from verax.frontends.common.ledger import AttributeOutcome
from verax.frontends.model import Model
from verax.frontends.onnx import load_onnx
from verax.frontends.onnx.table import TABLE
from verax.reference.evaluate import evaluate

Arrays = Mapping[str, np.ndarray]
Spot = tuple[str, str]
"""Operator and attribute."""

KINDS = AttributeProto
FOREIGN = {"SimplifiedLayerNormalization"}
"""ONNX Runtime's, in ONNX's domain: of no schema here, in tests/frontends/test_microsoft."""
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training")
MINE = {n: d for d, n in sorted(TABLE) if d in DOMAINS and n not in FOREIGN}
"""Operators of ONNX's own domains that have a row, with their domains."""


IMAGE = np.random.default_rng(5).standard_normal((2, 3, 5, 4), dtype=np.float32)
BYTES: list[np.ndarray] = [
    np.arange(120, dtype=np.uint8).reshape(2, 3, 5, 4), np.float32(0.1), np.uint8(60),
    np.arange(-30, 24, dtype=np.int8).reshape(2, 3, 3, 3), np.float32(0.1), np.int8(0),
    np.float32(2), np.uint8(128),
]  # fmt: skip
STEP = [  # the fourth of an optimizer: rate, updates so far, tensor, gradient, what is remembered
    np.float32(0.3), np.int64(3), *np.random.default_rng(7).random((3, 2, 5), dtype=np.float32)
]  # fmt: skip
TREES = {  # two of them: a stump, and one of two levels whose missing values take the other branch
    "nodes_treeids": [0, 0, 0, 1, 1, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 2, 3, 4, 1, 0],
    "nodes_featureids": [1, 0, 0, 0, 0, 0, 0, 2], "nodes_values": [0.25, 0, 0, 0, 0, 0, -0.5, 0.5],
    "nodes_modes": ["BRANCH_LEQ", *["LEAF"] * 5, "BRANCH_LEQ", "BRANCH_GT"],
    "nodes_truenodeids": [1, 0, 0, 0, 0, 0, 2, 1], "nodes_falsenodeids": [2, 0, 0, 0, 0, 0, 3, 4],
    "nodes_missing_value_tracks_true": [0, 0, 0, 0, 0, 0, 0, 1],
}  # fmt: skip
NEWER = {  # of three nodes and five leaves
    "tree_roots": [0, 1], "nodes_featureids": [1, 2, 0],
    "nodes_splits": numpy_helper.from_array(np.float32([0.25, 0.5, -0.5])),
    "nodes_modes": numpy_helper.from_array(np.uint8([0, 3, 0])),
    "nodes_truenodeids": [0, 2, 2], "nodes_trueleafs": [1, 0, 1],
    "nodes_falsenodeids": [1, 4, 3], "nodes_falseleafs": [1, 1, 1],
    "leaf_targetids": [0, 1, 1, 0, 0],
    "leaf_weights": numpy_helper.from_array(np.float32([0.5, -2.0, 1.5, 0.25, 3.0])),
    "n_targets": 2, "aggregate_function": 2,
}  # fmt: skip
VOTES = {
    "treeids": [0, 0, 0, 1, 1, 1, 1], "nodeids": [1, 1, 2, 2, 3, 3, 4],
    "ids": [0, 2, 1, 0, 1, 2, 2], "weights": [0.5, 0.25, 2.0, -1.5, 1.0, 0.75, 3.0],
}  # fmt: skip
ROWS = np.random.default_rng(8).standard_normal((9, 3)).astype(np.float32)
ROWS[4, 2] = np.nan
OWN: list[tuple[str, dict[str, Any], list[np.ndarray]]] = [
    ("GlobalLpPool", {}, [IMAGE]),
    ("LpPool", {"kernel_shape": [2, 3], "strides": [2, 2]}, [IMAGE]),
    ("MaxRoiPool", {"pooled_shape": [2, 3]},
     [IMAGE, np.float32([[0, 0, 0, 3, 3], [1, 1, 0, 2, 4]])]),
    *(("QLinearConv", attributes, BYTES) for attributes in ({}, {"pads": [1, 0, 1, 2]})),
    ("Col2Im", {"strides": [2, 2], "pads": [0, 0, 1, 1]},  # as many windows with a stride of 3
     [IMAGE.reshape(2, 12, 5)[:, :, :4].copy(), np.array([5, 4]), np.array([3, 2])]),
    ("LSTM", {"hidden_size": 4}, [
        np.random.default_rng(6).standard_normal(shape, dtype=np.float32)
        for shape in ((5, 3, 2), (1, 16, 2), (1, 16, 4))
    ]),
    ("Reshape", {"allowzero": 1}, [np.zeros((0, 0, 3), np.float32), np.array([0, 3, 0])]),
    ("TfIdfVectorizer", {
        "mode": "TFIDF", "pool_int64s": [3, 1, 0, 2, 1, 1], "ngram_counts": [0, 2],
        "ngram_indexes": [3, 1, 0, 2], "weights": [0.5, 2.0, 1.5, 3.0],
        "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1,
    }, [np.array([[3, 0, 2, 1, 1, 3, 3], [0, 1, 2, 0, 1, 3, 2]])]),
    ("Adagrad", {"decay_factor": 0.2}, STEP),
    ("Momentum", {"alpha": 0.8, "beta": 0.6, "norm_coefficient": 0.3, "mode": "standard"}, STEP),
    ("TreeEnsemble", NEWER, [ROWS]),
    ("TreeEnsembleRegressor", {
        **TREES, **{f"target_{name}": values for name, values in VOTES.items()}, "n_targets": 3,
        "base_values": [0.5, 0.0, -1.0], "aggregate_function": "MAX", "post_transform": "SOFTMAX",
    }, [ROWS]),
    ("TreeEnsembleClassifier", {
        **TREES, **{f"class_{name}": values for name, values in VOTES.items()},
        "classlabels_int64s": [7, 3, 5], "base_values": [0.5, 0.0, -1.0],
        "post_transform": "LOGISTIC",
    }, [ROWS]),
    *(("Cast", {"to": onnx.TensorProto.FLOAT8E8M0, "round_mode": mode}, [IMAGE])
      for mode in ("down", "nearest")),
]  # fmt: skip
"""What ONNX's cases leave out: operator, attributes, operands."""


@cache
def cases() -> dict[str, list[tuple[onnx.ModelProto, Arrays]]]:
    """Models of one node by operator, with arrays for their inputs; declared types removed."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    chosen: dict[str, list[tuple[onnx.ModelProto, Arrays]]] = {}
    for case in found:
        model = case.model
        if len(model.graph.node) != 1:
            continue
        node = model.graph.node[0]
        if MINE.get(node.op_type) != node.domain:
            continue
        given = [numpy_of(a) for a in case.data_sets[0][0]]
        if any(a is None for a in given):
            continue
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        for output in copy.graph.output:
            output.ClearField("type")
        names = [v.name for v in copy.graph.input]
        chosen.setdefault(node.op_type, []).append((copy, dict(zip(names, given))))
    for operator, attributes, arrays in OWN:
        named = {f"x{i}": a for i, a in enumerate(arrays)}
        domain = MINE[operator]
        two = arrays is STEP or operator == "TreeEnsembleClassifier"
        results = ["y", "z"] if two else ["y"]
        node = helper.make_node(operator, list(named), results, domain=domain, **attributes)
        inputs = {k: a.shape for k, a in named.items()}
        imports = [helper.make_opsetid(domain, 1)] if domain else []
        opset = 22 if domain else max(22, onnx.defs.get_schema(operator).since_version)
        copy = onnx_model([node], inputs, dict.fromkeys(results), opset=opset, imports=imports)
        for value, array in zip(copy.graph.input, arrays):
            value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        for output in copy.graph.output:
            output.ClearField("type")
        chosen.setdefault(operator, []).append((copy, named))
    return chosen


def numpy_of(given: Any) -> np.ndarray | None:
    """The array of a case's input; None for sequences, texts and the like."""
    if isinstance(given, onnx.TensorProto):
        if given.data_type == onnx.TensorProto.STRING:
            return None
        given = numpy_helper.to_array(given)
    found = np.asarray(given) if isinstance(given, np.ndarray | np.generic) else None
    return None if found is None or found.dtype.kind in "OUS" else found


def imported(model: onnx.ModelProto, arrays: Arrays) -> Model:
    """Operands that are integers or scalars are constants: many rows need to know them."""
    known = {k: a for k, a in arrays.items() if a.dtype.kind in "iub" or a.ndim == 0}
    if len(known) < len(arrays):
        return load_onnx(model, values=known)
    try:
        return load_onnx(model)
    except ValueNeededError:
        return load_onnx(model, values=known)


def results(model: Model, arrays: Arrays) -> list[tuple[str, np.ndarray]]:
    """Type and value of every output."""
    inputs = {k: arrays[k] for k in model.inputs}
    with np.errstate(all="ignore"):
        found = evaluate(model.graph, inputs).values()
    return list(zip(map(str, model.outputs.values()), found, strict=True))


def differ(first: list[tuple[str, np.ndarray]], second: list[tuple[str, np.ndarray]]) -> bool:
    return any(
        s != t or a.shape != b.shape or not np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for (s, a), (t, b) in zip(first, second, strict=True)
    )


@cache
def words(name: str) -> frozenset[str]:
    """Every text that some case gives to an attribute of this name."""
    found = {"nonsense"}
    for listed in cases().values():
        for model, _ in listed:
            for a in model.graph.node[0].attribute:
                if a.name == name and a.type == KINDS.STRING:
                    found.add(a.s.decode())
                if a.name == name and a.type == KINDS.STRINGS:
                    found.update(s.decode() for s in a.strings)
    return frozenset(found)


def mutants(kind: int, name: str, value: Any) -> Iterator[Any]:
    """Values of an attribute with another meaning; `value` is the present one or its default."""
    if kind == KINDS.INT:
        start = value or 0
        yield from (v for v in (1 - start, start + 1, start - 1, start + 2, 7, 10) if v != value)
    elif kind == KINDS.FLOAT:
        yield from ((value or 0) * 1.5 + 0.25, (value or 0) * 0.5 - 0.125)
    elif kind == KINDS.STRING:
        yield from sorted(words(name) - {value})
    elif kind == KINDS.STRINGS:
        yield from ([w] * max(1, len(value or ())) for w in sorted(words(name)))
    elif kind == KINDS.INTS:
        if value:
            yield [v + 1 for v in value]
            yield [*value[:-1], value[-1] + 1]
            yield [*value, 1]
            if value[::-1] != value:
                yield value[::-1]
        else:
            yield from ([v] * n for n in (1, 2, 3, 4, 6) for v in (1, 2))
    elif kind == KINDS.FLOATS:
        yield [v * 1.5 + 0.25 for v in value or (0.5,)]
    elif kind == KINDS.TENSOR and value is not None:
        array = numpy_helper.to_array(value)
        yield numpy_helper.from_array((array + np.ones_like(array)).astype(array.dtype))


def told(model: onnx.ModelProto, arrays: Arrays, attribute: Any) -> Iterator[bool]:
    """Of every mutant of an attribute that is accepted: whether it shows."""
    node, name = model.graph.node[0], attribute.name
    here = next((a for a in node.attribute if a.name == name), None)
    source = here or attribute.default_value
    kind = int(attribute.type.value)
    value = helper.get_attribute_value(source) if source.type else None
    if isinstance(value, bytes):
        value = value.decode()
    try:
        before = results(imported(model, arrays), arrays)
    except VeraxError:
        return
    rest = [a for a in node.attribute if a.name != name]
    for mutant in mutants(kind, name, value):
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        del changed.graph.node[0].attribute[:]
        made = helper.make_attribute(name, mutant, attr_type=kind)
        changed.graph.node[0].attribute.extend([*rest, made])
        try:
            other = imported(changed, arrays)
            after = results(other, arrays)
        except VeraxError:
            continue
        said = {
            e.attribute for e in other.ledger.entries if e.outcome is AttributeOutcome.irrelevant
        }
        yield name in said or differ(before, after)


def silent(operator: str) -> list[str]:
    """Attributes of which some mutants are accepted and none ever shows."""
    schema = onnx.defs.get_schema(operator, domain=MINE[operator])
    found = []
    for attribute in schema.attributes.values():
        accepted = shown = False
        for model, arrays in cases().get(operator, ()):
            for one in told(model, arrays, attribute):
                accepted, shown = True, shown or one
                if shown:
                    break
            if shown:
                break
        if accepted and not shown:
            found.append(attribute.name)
    return found


WITHOUT_A_CASE: set[str] = set()
"""Rows for which ONNX has no case of one node."""
ACCEPTED: set[Spot] = {
    ("Conv", "kernel_shape"),
    ("ConvTranspose", "kernel_shape"),
    *(("DeformConv", name) for name in ("kernel_shape", "strides", "pads", "dilations")),
    ("ConvInteger", "kernel_shape"),
    ("QLinearConv", "kernel_shape"),
    ("TopK", "sorted"),
    ("TensorScatter", "mode"),
}
"""Attributes whose every accepted value means the same: sizes that the weights have anyway,
or the offsets of a deformable convolution (other values are refused), leave to give the best
numbers in any order, and leave to write around the end of a cache (refused without it)."""


def test_every_row_has_a_case() -> None:
    assert set(MINE) - set(cases()) <= WITHOUT_A_CASE


@pytest.mark.parametrize("operator", MINE)
def test_no_attribute_is_ignored_in_silence(operator: str) -> None:
    assert {(operator, name) for name in silent(operator)} <= ACCEPTED

"""No row of any format can get lost: each converts a node of some case, all of which are read, and
without it that case is refused, or becomes another graph.

ONNX defines some operators by others, so that a model without the row may still be read.
"""

from __future__ import annotations

import importlib
from collections.abc import MutableMapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.formats.test_every_row import kind_of
from tests.frontends.every_case import FORMATS, Load

from verax.base.errors import UnsupportedError, VeraxError
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.common.importing import Importer
from verax.frontends.tflite import rows as tflite_rows
from verax.ir.graph import Graph

Key = tuple[str, Any]
"""Which of a format's tables, and the row's key."""


def tables(name: str) -> dict[str, MutableMapping[Any, Any]]:
    """The tables of a format: one, and with TFLite one more for every kind of operands."""
    found = {"": importlib.import_module(f"verax.frontends.{name}.table").TABLE}
    if name == "tflite":
        found |= {k: getattr(tflite_rows, k) for k in ("FLOAT", "QUANTIZED", "HYBRID")}
    return found


def keys(name: str, node: ForeignNode) -> list[Key]:
    """The rows that convert a node."""
    own: list[Key] = [("", (node.domain, node.op_type))]
    return [*own, (kind_of(node), node.op_type)] if name == "tflite" else own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cases")


@cache
def converted(name: str, folder: Path) -> dict[Key, tuple[Load, Graph]]:
    """The smallest case in which each row converts a node, and its graph."""
    found: dict[Key, tuple[Load, Graph]] = {}
    seen: list[ForeignNode] = []
    honest = Importer._convert

    def watched(self: Importer, node: ForeignNode) -> None:
        seen.append(node)
        honest(self, node)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Importer, "_convert", watched)
        for label, load in FORMATS[name](folder).items():
            seen.clear()
            try:
                graph = load().graph
            except VeraxError:
                if name == "onnx" and label[-1].isdigit():
                    continue  # ONNX's own cases are also of types and sets that nobody reads
                raise
            for key in {key for node in seen for key in keys(name, node)}:
                if key not in found or len(graph.nodes) < len(found[key][1].nodes):
                    found[key] = load, graph
    return found


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_converts_a_node_of_a_case(name: str, folder: Path) -> None:
    rows = {(which, key) for which, table in tables(name).items() for key in table}
    assert rows - converted(name, folder).keys() == set()


@pytest.mark.parametrize("name", FORMATS)
def test_deleting_any_row_is_noticed(name: str, folder: Path) -> None:
    unnoticed = []
    for which, table in tables(name).items():
        for key in list(table):
            load, graph = converted(name, folder)[which, key]
            row = table.pop(key)
            try:
                if load().graph == graph:
                    unnoticed.append(key)
            except UnsupportedError:
                pass
            finally:
                table[key] = row
    assert not unnoticed


WITHOUT = {
    *("Attention", "Bernoulli", "BlackmanWindow", "CausalConvWithState"),
    *("ConcatFromSequence", "HammingWindow", "HannWindow", "If", "Loop"),
    *("ImageDecoder", "LinearAttention", "Multinomial", "Optional", "Scan"),
    *("NegativeLogLikelihoodLoss", "OptionalGetElement", "OptionalHasElement", "RandomNormal"),
    *("RandomNormalLike", "RandomUniform", "RandomUniformLike", "RegexFullMatch"),
    *("RotaryEmbedding", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase"),
    *("SequenceInsert", "SequenceLength", "SequenceMap", "SoftmaxCrossEntropyLoss"),
    *("SplitToSequence", "StringConcat", "StringNormalizer", "StringSplit", "SwiGLU"),
}
"""Operators of ONNX up to operator set 26 without a row; some are expanded, others refused."""


def test_an_operator_of_onnx_has_a_row_or_is_known_to_have_none() -> None:
    """ONNX's own cases are chosen by the table, so that a row that is gone takes them with it."""
    onnx = pytest.importorskip("onnx")
    schemas = onnx.defs.get_all_schemas_with_history()
    names = {s.name for s in schemas if not s.domain and s.since_version <= 26}
    rows = {name for domain, name in tables("onnx")[""] if not domain}
    assert names - rows == WITHOUT & names

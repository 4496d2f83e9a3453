"""No row of a table is without a case: what no test converts, nobody knows.

The other formats hold this beside their cases: `test_the_table_is_covered` of PyTorch and
TensorFlow, `test_no_row_is_without_a_case` of CoreML, `test_every_row_is_in_a_network` of MXNet,
`test_every_row_has_a_case` of ONNX.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.frontends.from_keras.test_keras_answers import stored
from tests.frontends.from_tflite.resource_cases import resource_cases
from tests.frontends.from_tflite.test_tflite_ledger import CASES

from verax.frontends.common.control import SubgraphCall
from verax.frontends.common.foreign import ForeignNode
from verax.frontends.keras.archive import open_archive
from verax.frontends.keras.reader import read_model as read_keras
from verax.frontends.keras.table import TABLE as KERAS
from verax.frontends.tflite.reader import read_model as read_tflite
from verax.frontends.tflite.rows import DATA, FLOAT, HYBRID, QUANTIZED
from verax.frontends.tflite.table import TABLE as TFLITE


def tflite_nodes() -> Iterator[ForeignNode]:
    """Calls aside: whose graph they run is in no table."""
    for data in (*CASES.values(), *dict(resource_cases()).values()):
        yield from (
            n for n in read_tflite(memoryview(data)).nodes if not isinstance(n, SubgraphCall)
        )


def keras_nodes() -> Iterator[ForeignNode]:
    for arrays in stored().values():
        for form, data in arrays.items():
            if form.startswith("file"):
                yield from read_keras(open_archive(data.tobytes())).nodes


def kind_of(node: ForeignNode) -> str:
    """Which of TFLite's rows of this name converts it."""
    name = node.op_type
    if not any("." in key for key in node.attributes):
        return "FLOAT"
    is_hybrid = name in HYBRID and f"input{DATA.get(name, 0)}.scale" not in node.attributes
    return "HYBRID" if is_hybrid else "QUANTIZED"


def test_every_row_of_tflite_has_a_case() -> None:
    seen = {(kind_of(node), node.op_type) for node in tflite_nodes()}
    tables = {"FLOAT": FLOAT, "HYBRID": HYBRID, "QUANTIZED": QUANTIZED}
    assert not {(kind, name) for kind, rows in tables.items() for name in rows} - seen
    assert {name for _, name in TFLITE} == {name for _, name in seen}


def test_every_row_of_keras_has_a_stored_answer() -> None:
    seen = {node.operator for node in keras_nodes()}
    rows = {f"{domain}::{name}" if domain else name for domain, name in KERAS}
    assert rows - seen == set()

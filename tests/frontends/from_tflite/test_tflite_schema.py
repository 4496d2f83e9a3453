"""The reader's schema tables agree with the classes that the schema's own compiler made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from verax.frontends.tflite.schema import ENUMS, OPERATORS, OPTIONS, TENSOR_TYPES

tflite = pytest.importorskip("tflite")

CLASSES = {"MEAN": "Reducer", "SUM": "Reducer", "MAXIMUM": "MaximumMinimum"}
NAMED_OTHERWISE = (
    *("Pool2D", "Reducer", "Concatenation", "L2Norm", "TopK", "MaximumMinimum", "Conv3D"),
    "SequenceRNN",
)
DEFAULT = {"False": 0, "True": 1, "None": 0}


def names_of(enumeration: type) -> dict[int, str]:
    members = vars(enumeration).items()  # Python 3.13 keeps a line number among them
    return {v: k for k, v in members if isinstance(v, int) and not k.startswith("__")}


def generated_fields(table: str) -> dict[int, tuple[str, str, float]]:
    """Slot -> (name, type, default) of a generated class, read from its text."""
    text = (Path(tflite.__file__).parent / f"{table}.py").read_text()
    found = {}
    pattern = r"def (\w+)\(self[^)]*\):\n +o = [^\n]*Offset\((\d+)\)\)\n(.*?)\n\n"
    for name, offset, body in re.findall(pattern, text, re.S):
        if name.endswith(("AsNumpy", "Length", "IsNone")):
            continue
        kind = re.search(r"number_types\.(\w+)Flags", body)
        default = re.findall(r"return (\S+)", body)[-1]
        number = DEFAULT[default] if default in DEFAULT else float(default)
        slot = (int(offset) - 4) // 2
        found[slot] = (name.lower(), kind.group(1).lower() if kind else "", number)
    return found


def test_operator_codes() -> None:
    assert names_of(tflite.BuiltinOperator) == dict(enumerate(OPERATORS)) | {
        k: v for k, v in names_of(tflite.BuiltinOperator).items() if k >= len(OPERATORS)
    }


def test_element_types_and_enumerations() -> None:
    for code, name in names_of(tflite.TensorType).items():
        ours = str(TENSOR_TYPES[code])
        assert name.lower() in ours or ours.startswith("a ")
    assert names_of(tflite.ActivationFunctionType) == ENUMS["activation"]
    assert names_of(tflite.Padding) == ENUMS["padding"]
    assert names_of(tflite.LSTMKernelType) == ENUMS["kernel"]
    assert names_of(tflite.MirrorPadMode) == ENUMS["mirror"]
    assert names_of(tflite.FullyConnectedOptionsWeightsFormat) == ENUMS["weights"]


@pytest.mark.parametrize("operator", OPTIONS)
def test_options(operator: str) -> None:
    options = OPTIONS[operator]
    table = names_of(tflite.BuiltinOptions)[options.type_code]
    known = operator.replace("_", "").lower()
    assert (
        table.lower() == f"{known}options"
        or not options.fields
        or table.startswith(NAMED_OTHERWISE)
    )
    generated = generated_fields(table)
    ours = {i: f for i, f in enumerate(options.fields) if f is not None}
    assert ours.keys() == generated.keys()
    for slot, field in ours.items():
        name, kind, default = generated[slot]
        stored = {"ints": "int32", "text": ""}.get(
            field.kind, "int8" if field.kind in ENUMS else field.kind
        )
        assert (field.name.replace("_", ""), stored, field.default) == (name, kind, default)

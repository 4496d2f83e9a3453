"""The ledger lists every attribute that a file holds, as the format's own package reads the file.

The raw side is read here with onnx, tflite, coremltools' messages, h5py and json, not with our
readers: what a reader forgets to hand over would be missing from the ledger, and shows.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from tests.formats.small_files import EXAMPLES, SMALL, written
from tests.frontends.from_keras.h5_files import h5py

import verax
from verax.cli.console import output
from verax.cli.main import main
from verax.frontends.coreml.messages import model_messages
from verax.frontends.tensorflow.messages import CLASSES

tflite = pytest.importorskip("tflite")
Pair = tuple[str, str]
"""The node as the ledger names it, and an attribute."""


def of_onnx(path: Path) -> Iterator[Pair]:
    for node in onnx.load(path).graph.node:
        named = node.name or node.output[0]
        yield from ((f"node {named!r} ({node.op_type})", a.name) for a in node.attribute)


def of_pt2(path: Path) -> Iterator[Pair]:
    with zipfile.ZipFile(path) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("models/model.json"))
        program = json.loads(archive.read(name))
    for node in program["graph_module"]["graph"]["nodes"]:
        target = node["target"].removeprefix("torch.ops.").replace(".", "::", 1)
        for given in node["inputs"]:
            if "as_none" not in given["arg"]:
                yield f"node {node['name']!r} ({target})", given["name"]


def of_pb(path: Path) -> Iterator[Pair]:
    """Constants and placeholders are values, not nodes."""
    for node in CLASSES["Graph"].FromString(path.read_bytes()).node:
        if node.op not in ("Const", "Placeholder", "NoOp"):
            yield from ((f"node {node.name!r} ({node.op})", key) for key in node.attr)


def of_tflite(path: Path) -> Iterator[Pair]:
    """Fields of an options table are methods of its class: StrideH is `stride_h`."""
    names = {number: name for name, number in vars(tflite.BuiltinOperator).items()}
    options = {number: name for name, number in vars(tflite.BuiltinOptions).items()}
    model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    for i in range(graph.OperatorsLength()):
        operator = graph.Operators(i)
        kind = names[model.OperatorCodes(operator.OpcodeIndex()).BuiltinCode()]
        output = graph.Tensors(operator.Outputs(0)).Name().decode()
        if operator.BuiltinOptionsType():
            cls = getattr(tflite, options[operator.BuiltinOptionsType()])
            for method in vars(cls):
                if not re.match(
                    r"_|Init|GetRootAs|.*(AsNumpy|Length|IsNone|HasIdentifier)$", method
                ):
                    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", method).lower()
                    yield f"node {output!r} ({kind})", snake


def of_keras(config: Any) -> Iterator[Pair]:
    """Nothing is said by null."""
    for layer in config["config"]["layers"]:
        if layer["class_name"] != "InputLayer":
            place = f"node {layer['config']['name']!r} ({layer['class_name']})"
            yield from ((place, k) for k, v in layer["config"].items() if v is not None)


def of_h5(path: Path) -> Iterator[Pair]:
    with h5py.File(path) as file:
        yield from of_keras(json.loads(file.attrs["model_config"]))


def of_keras_zip(path: Path) -> Iterator[Pair]:
    with zipfile.ZipFile(path) as archive:
        yield from of_keras(json.loads(archive.read("config.json")))


def of_mlmodel(path: Path) -> Iterator[Pair]:
    model = model_messages().Model()
    model.ParseFromString(path.read_bytes())
    for layer in model.neuralNetwork.layers:
        kind = layer.WhichOneof("layer")
        for name in _leaves(getattr(layer, kind)):
            yield f"node {layer.name!r} ({kind})", name


def _leaves(message: Any, prefix: str = "") -> Iterator[str]:
    for field, value in message.ListFields():
        inner = field.message_type and field.message_type.name
        if inner and inner not in ("WeightParams", "BorderAmounts"):
            yield from _leaves(value, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def of_mxnet(path: Path) -> Iterator[Pair]:
    for node in json.loads(path.read_text())["nodes"]:
        if node["op"] != "null":
            place = f"node {node['name']!r} ({node['op']})"
            yield from ((place, key) for key in node.get("attrs", {}))


RAW: dict[str, tuple[Callable[[Path], Iterator[Pair]], set[str]]] = {
    "onnx": (of_onnx, set()),
    "pt2": (of_pt2, set()),
    "pb": (of_pb, set()),
    "tflite": (of_tflite, set()),
    "h5": (of_h5, {"weights"}),
    "keras": (of_keras_zip, {"weights"}),
    "mlmodel": (
        of_mlmodel, {"ConvolutionPaddingType", "NonlinearityType", "PaddingType"}
    ),
    "mxnet": (of_mxnet, set()),
}  # fmt: skip
"""How a format is read without us, and what the ledger has beside the file's attributes: how many
weights a layer has, which of several messages is set."""


def file_of(kind: str, folder: Path) -> Path:
    path = EXAMPLES / f"digits.{kind}"
    return path if path.exists() else written(folder, SMALL[kind]())


@pytest.mark.parametrize("kind", RAW)
def test_the_ledger_holds_every_attribute_of_the_file(kind: str, tmp_path: Path) -> None:
    path = file_of(kind, tmp_path)
    read, extra = RAW[kind]
    raw = set(read(path))
    entries = verax.load(path).ledger.entries
    ledger = {(e.node, e.attribute) for e in entries}
    assert len(raw) > 3 and raw - ledger == set()
    assert {attribute for _, attribute in ledger - raw} <= extra
    assert all(e.reason for e in entries if e.outcome == "irrelevant")


@pytest.mark.parametrize("kind", RAW)
def test_inspect_prints_every_entry(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = file_of(kind, tmp_path)
    monkeypatch.setattr(output, "width", 1000)
    monkeypatch.setattr("sys.argv", ["verax", "inspect", "--ledger", str(path)])
    try:
        main()
    except SystemExit as end:
        assert not end.code
    lines = capsys.readouterr().out.splitlines()
    for entry in verax.load(path).ledger.entries:
        row = (entry.node, entry.operator, entry.attribute, str(entry.outcome))
        assert any(all(text in line for text in row) for line in lines), row

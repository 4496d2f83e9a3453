"""Cases of a folder of models, ONNX or TFLite: real networks, or the standard's own test data.

Beside a model, ONNX's test data keeps `test_data_set_0/input_0.pb` and so on, which are then
the inputs; others are drawn. `backend-test-tools generate-data` of the package onnx writes all of
the standard's node cases so.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from verax.base.errors import UsageError
from verax.frontends.model import Model
from verax.hunt.case import DrawnCase, NoCase
from verax.judge.inputs import draw_inputs
from verax.loading import load
from verax.onnx_format.package import numpy_helper, onnx

MAX_BYTES = 16 << 20
"""Size of a model above which it is left out: a case is to take seconds."""
RECORDED = "test_data_set_0"
SUFFIXES = (".onnx", ".tflite")
TFLITE = b"TFL3"
"""What stands at byte 4 of a TFLite file."""


@cache
def models(folder: str) -> tuple[Path, ...]:
    """The files of models below a folder. Raises `UsageError` where there are none."""
    files = (p for p in Path(folder).rglob("*") if p.suffix in SUFFIXES)
    paths = sorted(p for p in files if p.stat().st_size <= MAX_BYTES)
    if not paths:
        raise UsageError(
            f"no ONNX or TFLite model of at most {MAX_BYTES >> 20} MiB is below this folder",
            place=folder,
            next_step="give a folder of .onnx or .tflite files with --models",
        )
    return tuple(paths)


def model_case(folder: str, index: int, seed: int) -> DrawnCase:
    """The model number `index`, from the first again behind the last,
    on other inputs. Raises `NoCase` when it has
    inputs that are no tensors, and `VeraxError` when we cannot read it."""
    paths = models(folder)
    path = paths[index % len(paths)]
    model = load(str(path))
    assert isinstance(model, Model)
    inputs = _recorded(path.parent / RECORDED, model)
    if inputs is None:
        inputs, _ = draw_inputs(model.graph, seed=seed + index // len(paths))
    name = path.parent.name if path.stem == "model" else path.stem
    return DrawnCase(name, f"{path.relative_to(folder)}", model.graph, inputs, path.read_bytes())


def file_name(content: bytes) -> str:
    """What a model's file is to be called, by its content."""
    return "model.tflite" if content[4:8] == TFLITE else "model.onnx"


def _recorded(folder: Path, model: Model) -> dict[str, np.ndarray] | None:
    """The inputs that the folder holds; None where it holds none."""
    paths = sorted(folder.glob("input_*.pb"), key=lambda p: int(p.stem.rpartition("_")[2]))
    if not paths:
        return None
    arrays = {}
    for name, path in zip(model.graph.inputs, paths):
        tensor = onnx.TensorProto()
        try:
            tensor.ParseFromString(path.read_bytes())
            arrays[name] = numpy_helper.to_array(tensor)
        except Exception as error:  # a sequence, or an optional: the parsers' errors have no base
            raise NoCase from error
    if len(arrays) != len(model.graph.inputs):
        raise NoCase
    return arrays

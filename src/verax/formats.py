"""Model files that Verax reads: a table, so that one format is one row.

A row names the module and function that read it, as text: reading ONNX must not load what other
formats need.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verax.base.errors import UnsupportedError, UsageError


@dataclass(frozen=True)
class Format:
    """One kind of file. reader: "module:function" taking (path, **options).

    folders: suffixes of folders that are one model.
    """

    name: str
    suffixes: tuple[str, ...]
    holds: str
    reader: str
    folders: tuple[str, ...] = ()

    def read(self, source: object, **options: Any) -> Any:
        """What the reader makes of `source`."""
        module, _, function = self.reader.partition(":")
        return getattr(importlib.import_module(module), function)(source, **options)


ONNX = Format("ONNX", (".onnx",), "a model, opsets 6 to 28", "verax.frontends.onnx:load_onnx")
VX = Format(
    "Verax",
    (".vx",),
    "a compiled program for one machine",
    "verax.compiler.artifacts.saved_program:SavedExecutable",
)
TFLITE = Format(
    "TensorFlow Lite",
    (".tflite",),
    "a model, floating-point or quantized",
    "verax.frontends.tflite:load_tflite",
)
MXNET = Format(
    "MXNet",
    (".json", ".params"),
    "a symbol (nodes) and its params file (arrays) beside it",
    "verax.frontends.mxnet:load_mxnet",
)
COREML = Format(
    "CoreML",
    (".mlmodel", ".mlpackage"),
    "a neural network, or the package of an ML program",
    "verax.frontends.coreml:load_coreml",
    folders=(".mlpackage",),
)
PYTORCH = Format(
    "PyTorch",
    (".pt2", ".pt", ".pth"),
    "a program of torch.export (pickles are refused)",
    "verax.frontends.torch:load_torch",
)
KERAS = Format(
    "Keras",
    (".h5", ".hdf5", ".keras"),
    "a functional or sequential model",
    "verax.frontends.keras:load_keras",
)
TENSORFLOW = Format(
    "TensorFlow",
    (".pb",),
    "a frozen graph, or the folder of a SavedModel",
    "verax.frontends.tensorflow:load_tensorflow",
)
FORMATS = (ONNX, PYTORCH, TENSORFLOW, TFLITE, KERAS, COREML, MXNET, VX)

SYMBOL = "-symbol.json"
"""The end of an MXNet symbol's name, by which it is told from other JSON files in a folder."""
SAVED_MODEL = "saved_model.pb"
"""The file that makes a folder a SavedModel."""


def format_of(path: str | os.PathLike[str]) -> Format:
    """The format of a file, by its suffix.

    Raises `UsageError` when the file is missing or a folder, `UnsupportedError` when its format
    cannot be read.
    """
    file = Path(path)
    suffixes = ", ".join(s for f in FORMATS for s in f.suffixes)
    if not os.path.exists(file):  # Path's own raises where a name is too long
        raise UsageError("there is no such file", place=str(file), next_step=_similar(file))
    if not file.is_file() and not file.is_dir():
        raise UsageError("this is a pipe or a device, not a file", place=str(file))
    if (file / SAVED_MODEL).is_file():
        return TENSORFLOW
    for candidate in FORMATS:
        if file.suffix.lower() in candidate.suffixes:
            if file.is_dir() and file.suffix.lower() not in candidate.folders:
                raise UsageError("this is a folder, not a model", place=str(file))
            return candidate
    if inside := _models_in(file):
        raise UsageError(
            "this is a folder, not a model",
            place=str(file),
            next_step=f"name one of its files: {', '.join(inside[:5])}",
        )
    cause = "folder holds no model" if file.is_dir() else "file's suffix is not known"
    raise UnsupportedError(
        f"the {cause}",
        place=str(file),
        next_step=f"Verax reads {suffixes} and SavedModel folders",
    )


def _models_in(folder: Path) -> list[str]:
    """Names of the models that lie in a folder."""
    if not os.path.isdir(folder):
        return []
    suffixes = {s for f in FORMATS for s in f.suffixes} - {".json"} | {SYMBOL}
    return sorted(
        f.name
        for f in folder.iterdir()
        if f.name.lower().endswith(tuple(suffixes)) or (f / SAVED_MODEL).is_file()
    )


def _similar(file: Path) -> str:
    """A model nearby that may have been meant."""
    try:
        names = [p.name for p in file.parent.iterdir() if p.suffix in (".onnx", ".vx")]
    except OSError:
        return f"the folder {file.parent} does not exist or cannot be read"
    same = [n for n in names if Path(n).stem == file.stem] or names
    return f"did you mean {', '.join(sorted(same)[:3])}?" if same else "check the path"

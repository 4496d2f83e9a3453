"""The cases of every format, as what loads them: what the tests of the formats share.

Each is a small model: an operator or layer of the format's, or a network of several.
"""

from __future__ import annotations

import functools
import importlib
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from verax.frontends.model import Model

Load = Callable[[], Model]
HERE = Path(__file__).parent


def module(folder: str, name: str) -> ModuleType:
    """A module of one format's tests, which import each other by their bare names."""
    path = str(HERE / folder)
    if path not in sys.path:
        sys.path.insert(0, path)
    return importlib.import_module(name)


def onnx() -> dict[str, Load]:
    from verax.frontends.onnx import load_onnx

    shared = module("../formats", "tests.formats.test_onnx_attributes")
    found: dict[str, Load] = {}
    for operator, cases in shared.cases().items():
        for i, (model, arrays) in enumerate(cases):
            found[f"{operator} {i}"] = functools.partial(shared.imported, model, arrays)
    assert load_onnx
    return found


def torch() -> dict[str, Load]:
    from verax.frontends.torch import load_torch

    programs = module("from_torch", "torch_programs")
    operators = module("from_torch", "test_torch_operators")

    def load(case: Any) -> Model:
        return load_torch(programs.saved(operators.exported(case)))

    return {case.label: functools.partial(load, case) for case in operators.CASES}


def tensorflow() -> dict[str, Load]:
    from verax.frontends.tensorflow import load_tensorflow

    tests = module("from_tensorflow", "test_tensorflow_operators")
    return {
        name: functools.partial(load_tensorflow, tests.STORED[f"{name}|graph"].tobytes())
        for name in tests.NAMES
    }


def tflite() -> dict[str, Load]:
    from verax.frontends.tflite import load_tflite

    tests = module("from_tflite", "tests.frontends.from_tflite.test_tflite_ledger")
    return {name: functools.partial(load_tflite, data) for name, data in tests.CASES.items()}


def keras() -> dict[str, Load]:
    from verax.frontends.keras import load_keras

    tests = module("from_keras", "tests.frontends.from_keras.test_keras_answers")
    return {
        f"{label} {form}": functools.partial(load_keras, arrays[form].tobytes())
        for label, arrays in tests.stored().items()
        for form in arrays
        if form.startswith("file")
    }


def mxnet() -> dict[str, Load]:
    models = module("from_mxnet", "mxnet_models")

    def load(name: str) -> Model:
        with tempfile.TemporaryDirectory() as folder:
            loaded: Model = models.stored()[name].load(Path(folder))
        return loaded

    return {name: functools.partial(load, name) for name in models.stored()}


def coreml() -> dict[str, Load]:
    from verax.frontends.coreml import load_coreml

    layers = module("from_coreml", "test_coreml_layers")
    operations = module("from_coreml", "test_coreml_operations")

    def load(case: Any) -> Model:
        return load_coreml(case.model().SerializeToString())

    cases = [*layers.CASES, *operations.CASES]
    return {f"{i} {c.kind} {c.label}": functools.partial(load, c) for i, c in enumerate(cases)}


FORMATS: Mapping[str, Callable[[], dict[str, Load]]] = {
    "onnx": onnx,
    "torch": torch,
    "tensorflow": tensorflow,
    "tflite": tflite,
    "keras": keras,
    "mxnet": mxnet,
    "coreml": coreml,
}
assert zipfile

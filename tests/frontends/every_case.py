"""The cases of every format, as what loads them: what the tests of the formats have, in one place.

Each is a small model: an operator or layer of the format's, or a network of several. A format whose
package is missing is skipped where its cases are asked for.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from tests.frontends import microsoft_cases, onnx_models

import verax
from verax.frontends.coreml import load_coreml
from verax.frontends.keras import load_keras
from verax.frontends.model import Model
from verax.frontends.onnx import load_onnx
from verax.frontends.tensorflow import load_tensorflow
from verax.frontends.tflite import load_tflite
from verax.frontends.torch import load_torch
from verax.frontends.torch.rows import OTHER_NAMES

Load = Callable[[], Model]
HERE = Path(__file__).parent
FEW = 4
"""Cases of one ONNX operator."""


def module(folder: str, name: str) -> ModuleType:
    """A module of one format's tests, which import each other by their bare names."""
    path = str(HERE / folder)
    if path not in sys.path:
        sys.path.insert(0, path)
    return importlib.import_module(name)


def onnx(folder: Path) -> dict[str, Load]:
    operators = importlib.import_module("tests.formats.test_onnx_attributes")
    quantised = importlib.import_module("tests.frontends.test_onnx_quantised_operators")
    return {
        **{
            f"{operator} {i}": partial(operators.imported, *case)
            for operator, cases in operators.cases().items()
            for i, case in enumerate(cases[:FEW])
        },
        **{kind: partial(quantised.loaded, kind) for kind in quantised.CASES},
        "concatenation": lambda: load_onnx(quantised.concatenation()),
        "choice": lambda: load_onnx(quantised.choice()),
        "Not": negation,
        **{f"Microsoft {i}": lambda c=c: load_onnx(c.model()) for i, c in enumerate(microsoft())},
        "MatMulNBits": importlib.import_module("tests.frontends.test_onnx_n_bits").loaded,
    }


def negation() -> Model:
    """ONNX's own case of Not is too old to be read."""
    equal = onnx_models.helper.make_node("Equal", ["x", "x"], ["z"])
    made = onnx_models.model(
        [equal, onnx_models.helper.make_node("Not", ["z"], ["y"])], {"x": (2, 3)}, {"y": None}
    )
    made.graph.output[0].type.tensor_type.elem_type = onnx_models.TensorProto.BOOL
    return load_onnx(made)


def microsoft() -> list[microsoft_cases.Case]:
    """ONNX Runtime's own operators."""
    more = [case for case, _ in microsoft_cases.unwitnessed()]
    return [*microsoft_cases.cases(), *more]


def torch(folder: Path) -> dict[str, Load]:
    """Also single overloads, other names of operators, and single nodes."""
    programs = module("from_torch", "torch_programs")
    operators = module("from_torch", "test_torch_operators")
    overloads = module("from_torch", "torch_overloads")

    def load(program: Callable[[], Any]) -> Model:
        return load_torch(programs.saved(program()))

    found: dict[str, Load] = {}
    uses: dict[str, Any] = {}
    for case in operators.CASES:
        found[case.label] = partial(load, partial(operators.exported, case))
        for node in operators.exported(case).graph.nodes:
            uses.setdefault(str(node.target), (case.function, case.inputs))
    for name, call in overloads.CALLS.items():
        found[name] = partial(load, partial(overloads.exported, name))
        uses.setdefault(f"aten.{name}", call)
    for domain, old in list(overloads.TABLE):
        kind, _, overload = old.partition(".")
        for new in (n for n, first in OTHER_NAMES.items() if first == kind and domain == "aten"):
            other = f"{new}.{overload}"
            found[other] = partial(
                load, partial(overloads.renamed, *uses[f"aten.{old}"], old, other)
            )
    quantised = module("from_torch", "test_torch_quantised")
    found |= {name: partial(quantised.load, name) for name in quantised.NAMES}
    return found | {f"{n[0]}.{n[1]}": partial(overloads.imported, n) for n in overloads.NODES}


def tensorflow(folder: Path) -> dict[str, Load]:
    tests = module("from_tensorflow", "test_tensorflow_operators")
    return {n: partial(load_tensorflow, tests.STORED[f"{n}|graph"].tobytes()) for n in tests.NAMES}


def tflite(folder: Path) -> dict[str, Load]:
    tests = importlib.import_module("tests.frontends.from_tflite.test_tflite_ledger")
    more = importlib.import_module("tests.frontends.from_tflite.resource_cases").resource_cases()
    return {name: partial(load_tflite, data) for name, data in (*tests.CASES.items(), *more)}


def keras(folder: Path) -> dict[str, Load]:
    tests = importlib.import_module("tests.frontends.from_keras.test_keras_answers")
    return {
        f"{label} {form}": partial(load_keras, arrays[form].tobytes())
        for label, arrays in tests.stored().items()
        for form in arrays
        if form.startswith("file")
    }


def mxnet(folder: Path) -> dict[str, Load]:
    """Also networks of names that MXNet 1.9 no longer has."""
    models = module("from_mxnet", "mxnet_models")
    older = module("from_mxnet", "test_mxnet_operators").NOT_IN_1_9
    cases = models.stored()
    found: dict[str, Load] = {name: partial(cases[name].load, folder) for name in cases}
    for old, (new, network) in older.items():
        text = re.sub(f'"op": "{new}"', f'"op": "{old}"', models.json.dumps(cases[network].symbol))
        found[old] = partial(cases[network].load, folder, models.json.loads(text))
    return found


def coreml(folder: Path) -> dict[str, Load]:
    """Layers, operations, networks that coremltools converted, and models that are no networks."""
    layers = module("from_coreml", "test_coreml_layers")
    tests = [layers, module("from_coreml", "test_coreml_operations")]
    networks = module("from_coreml", "test_coreml_networks")
    pipelines = module("from_coreml", "test_coreml_pipelines")
    programs = module("from_coreml", "test_coreml_programs")
    messages = {
        f"{i} {case.kind} {case.label}": case.model
        for i, case in enumerate(case for test in tests for case in test.CASES)
    }
    messages |= {
        "image": partial(networks.image_model, channelScale=0.5),
        "mean image": partial(networks.mean_image_model, np.ones((1, 5, 7))),
        "detector": pipelines.detector,
        "features": pipelines.features,
    }
    found: dict[str, Load] = {
        name: partial(lambda make: load_coreml(make().SerializeToString()), make)
        for name, make in messages.items()
    }
    found |= {f"sized {case[0]} {i}": partial(layers.after, *case[:4], (2, 3, 5))
              for i, case in enumerate(layers.SIZED)}  # fmt: skip
    converted = module("from_coreml", "test_coreml_converted")
    found |= {
        f"network {n}": partial(converted.load, n, folder)
        for n in converted.stored()
        if "weights" not in converted.stored()[n]
    }
    found |= {
        n: partial(lambda n: verax.load(programs.package(folder / n, n)), n)
        for n in programs.stored()
    }
    return found


FORMATS: Mapping[str, Callable[[Path], dict[str, Load]]] = {
    "onnx": onnx,
    "torch": torch,
    "tensorflow": tensorflow,
    "tflite": tflite,
    "keras": keras,
    "mxnet": mxnet,
    "coreml": coreml,
}

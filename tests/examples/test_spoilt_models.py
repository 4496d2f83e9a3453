"""Spoilt copies of the example network either run or are refused in words; nothing else happens.

Seeded. `make campaign` runs many; the suite runs a handful.
"""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnx
import pytest

import verax
from verax.base.errors import VeraxError

MODEL = onnx.load(Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx")
KINDS = ("Conv", "Relu", "MaxPool", "Gemm", "ConvTranspose", "Transpose", "Resize", "If", "Foo")
NUMBERS = (-(2**63), -1, 0, 1, 2, 3, 7, 1000, 2**31, 2**62)


def spoil(model: onnx.ModelProto, rng: np.random.Generator) -> str:
    """Change one thing in `model`; says what."""
    graph = model.graph
    node = graph.node[int(rng.integers(len(graph.node)))]
    number = NUMBERS[int(rng.integers(len(NUMBERS)))]
    names = [t.name for t in graph.initializer] + [n.output[0] for n in graph.node] + ["image", ""]
    match int(rng.integers(6)):
        case 0 | 1 if node.attribute:
            attribute = node.attribute[int(rng.integers(len(node.attribute)))]
            if attribute.ints:
                attribute.ints[int(rng.integers(len(attribute.ints)))] = number
            elif attribute.type == onnx.AttributeProto.INT:
                attribute.i = number
            return f"{node.name}.{attribute.name} has {number}"
        case 2:
            which = int(rng.integers(len(node.input)))
            node.input[which] = names[int(rng.integers(len(names)))]
            return f"input {which} of {node.name} is {node.input[which]!r}"
        case 3:
            tensor = graph.initializer[int(rng.integers(len(graph.initializer)))]
            if tensor.dims:
                tensor.dims[int(rng.integers(len(tensor.dims)))] = number
            return f"{tensor.name} claims {list(tensor.dims)}"
        case 4:
            node.op_type = KINDS[int(rng.integers(len(KINDS)))]
            return f"{node.name} is a {node.op_type}"
        case _:
            name = node.name
            graph.node.remove(node)
            return f"{name} is gone"


def attempt(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = copy.deepcopy(MODEL)
    spoilt = [spoil(model, rng) for _ in range(int(rng.integers(1, 3)))]
    image = rng.random((2, 1, 24, 20), np.float32)
    try:
        found = verax.compile(verax.load(model), threads=1).run({"image": image})
    except VeraxError as error:
        assert error.cause, spoilt
        return
    assert {len(a) for a in found.values()} == {2}, spoilt


@pytest.mark.parametrize("seed", range(12))
def test_a_spoilt_model_runs_or_is_refused(seed: int) -> None:
    attempt(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_spoilt_models_run_or_are_refused(seed: int) -> None:
    attempt(seed)

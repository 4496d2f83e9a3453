"""Whatever makes a value that a padded convolution reads: its border is the convolution's matter.

A convolution asks for zeros around its input. A kernel that writes rows one behind the other, as a
product of matrices does, must not be told to leave that space out: MatMul before a padded Conv was
wrong at O1 and above.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import evaluate

SEED = 3712
SHAPE = (2, 6, 5, 8)
Make = Callable[[Builder, str, np.random.Generator], str]


def one(kind: str, *constants: object, **attributes: object) -> Make:
    """An operator on x and constants: arrays, lists of int64, or shapes of floats to be drawn."""

    def make(b: Builder, x: str, random: np.random.Generator) -> str:
        arrays = [
            np.array(c, np.int64) if isinstance(c, list) else
            random.standard_normal(c).astype(np.float32) if isinstance(c, tuple) else np.asarray(c)
            for c in constants
        ]  # fmt: skip
        return b.add(REGISTRY[kind](**attributes), [x, *map(b.constant, arrays)])

    return make


def both(first: Make, second: Make) -> Make:
    return lambda b, x, random: second(b, first(b, x, random), random)


MAKERS: dict[str, Make] = {
    "MatMul": one("MatMul", (8, 9)),
    "MatMul of many rows": both(one("Transpose", perm=(0, 1, 3, 2)), one("MatMul", (5, 11))),
    "MatMul by matrices": one("MatMul", (2, 6, 8, 9)),
    "MatMul and Erf": both(one("MatMul", (8, 9)), one("Erf")),
    "MatMul and Relu": both(one("MatMul", (8, 9)), one("Relu")),
    "Einsum": one("Einsum", (8, 7), equation="abcd,de->abce"),
    "Softmax": one("Softmax", axis=3),
    "LayerNormalization": one("LayerNormalization", (8,), axis=3),
    "GroupNormalization": one("GroupNormalization", (6,), (6,), num_groups=2),
    "CumSum": one("CumSum", np.array(2)),
    "ReduceMax": one("ReduceMax", [3], keepdims=True),
    "ReduceMean": one("ReduceMean", [2], keepdims=True),
    "Gather": one("Gather", [3, 1, 0, 7, 2], axis=3),
    "Slice": one("Slice", [1], [7], [3]),
    "Transpose": one("Transpose", perm=(0, 1, 3, 2)),
    "Resize": both(one("Tile", [1, 1, 2, 1]), one("Erf")),
    "Tile": one("Tile", [1, 1, 2, 2]),
    "Pad": one("Pad", [0, 0, 1, 0, 0, 0, 0, 2], mode="reflect"),
    "LRN": one("LRN", size=3),
    "MaxPool": one("MaxPool", kernel_shape=(2, 3)),
    "Trilu": one("Trilu", upper=False),
    "ScatterND": one("ScatterND", [[0, 2]], (1, 5, 8)),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_padded_convolution_reads_what_was_made(name: str) -> None:
    random, b = np.random.default_rng(SEED), Builder("made")
    x = b.input("x", TensorType.parse(f"float32[{', '.join(map(str, SHAPE))}]"))
    value = MAKERS[name](b, x, random)
    weights = random.standard_normal((19, b.types[value].shape[1], 3, 2)).astype(np.float32)
    y = b.add(
        REGISTRY["Conv"](strides=(2, 2), pads=((1, 1), (1, 0))), [value, b.constant(weights)], ["y"]
    )
    graph, fed = b.graph([y]), {"x": random.standard_normal(SHAPE).astype(np.float32)}
    expected = evaluate(graph, fed)["y"]
    exact = compile(graph, Settings(opt_level=0, threads=1)).run(fed)["y"]
    for level in (1, 3):
        exe = compile(graph, Settings(opt_level=level, threads=1))
        assert not exe.plan.on_reference
        distance = np.abs(exe.run(fed)["y"] - expected).max()
        assert distance <= 4 * max(np.abs(exact - expected).max(), np.finfo(np.float32).eps)

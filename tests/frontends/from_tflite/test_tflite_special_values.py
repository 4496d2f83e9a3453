"""TFLite's operators on single elements at NaN, infinities, signed zeros, subnormal and huge
numbers, against LiteRT's kernels.

LiteRT holds what a fused activation may leave between the largest finite numbers even where there
is none, so that sums and products are never infinite there; and of the two operands of MAXIMUM and
MINIMUM the second is given where the first is NaN. Neither is in its documentation; ours are
infinite, and NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from tests.frontends.from_tflite.tflite_peer import litert
from tests.frontends.from_tflite.tflite_writer import T, one

from verax.frontends.tflite import load_tflite
from verax.reference import evaluate, promised

NAN, INF = np.nan, np.inf
LARGEST = float(np.finfo(np.float32).max)
SPECIAL = np.array(
    [NAN, INF, -INF, 0.0, -0.0, 1e30, -1e30, 1e-40, -1e-40, 0.5, -0.5, 1, -1, 2, 2.5, 3, -3, 0.3,
     -0.3, 20.5, 100, -100],
    np.float32,
)  # fmt: skip
ONE = (
    "ABS CEIL COS ELU EXP FLOOR HARD_SWISH LOG LOGISTIC NEG RELU RELU6 RELU_N1_TO_1 ROUND SIGN SIN "
    "SQRT TANH RSQRT SQUARE GELU"
)
TWO = "ADD SUB MUL DIV MAXIMUM MINIMUM POW FLOOR_DIV FLOOR_MOD SQUARED_DIFFERENCE"


def held(y: np.ndarray, *xs: np.ndarray) -> np.ndarray:
    """What fused activations leave of a result."""
    return np.clip(y, -LARGEST, LARGEST)


def second_of_nan(y: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(a), b, y)


OTHERWISE: Mapping[str, Callable[..., np.ndarray]] = {
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV"), held),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), second_of_nan),
}
"""What LiteRT makes of our result where the module's docstring says that they differ."""


@pytest.mark.parametrize("name", [*ONE.split(), *TWO.split()])
def test_special_values_are_those_of_litert(name: str) -> None:
    pairs = [a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL)]
    if name.startswith("FLOOR_"):  # which LiteRT refuses to divide by 0
        pairs = [a[pairs[1] != 0] for a in pairs]
    arrays = [SPECIAL] if name in ONE.split() else pairs
    shape = arrays[0].shape
    model = one(name, [T(shape) for _ in arrays], T(shape))
    graph = load_tflite(model).graph
    fed = dict(zip(graph.inputs, arrays, strict=True))
    (got,) = litert(model, fed).values()
    found = [evaluate(graph, fed), promised(graph, fed)]
    for values in found:
        with np.errstate(all="ignore"):
            want = np.asarray(values[graph.outputs[0]]).astype(np.float32)
            want = OTHERWISE.get(name, lambda y, *_: y)(want, *arrays)
        for kind in (np.isnan, np.isposinf, np.isneginf):
            np.testing.assert_array_equal(kind(got), kind(want), err_msg=kind.__name__)
        finite = np.isfinite(want)
        apart = np.abs(got[finite].astype(np.float64) - want[finite])
        size = np.maximum(np.abs(want[finite].astype(np.float64)), 1)
        assert (apart <= 64 * np.finfo(np.float32).eps * size).all()

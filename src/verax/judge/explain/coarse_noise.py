"""The rounding of a coarser arithmetic, as noise: by it a mistake is known in TF32 or in 16 bits.

A mistake in one node of a network in TF32 leaves more than float32's rounding under any hypothesis.
Which numbers a coarse arithmetic gives is chaotic, and how large its errors are is not: every
factor of a product, and every value that is stored, is off by up to a unit roundoff. Drawn at
random this gives the spread under a hypothesis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from verax.ir.graph import Node
from verax.ir.types import TensorType
from verax.judge.decide.coarse import on_grid
from verax.judge.decide.precision import PRODUCTS
from verax.numerics.formats import BFLOAT16, FLOAT16, FORMATS, TF32
from verax.ops.recurrent.recurrent import Recurrent


@dataclass(frozen=True)
class CoarseNoise:
    """factors: relative error of the factors of products; stored: of every node's results, 0 where
    they are kept in float32."""

    name: str
    factors: float
    stored: float = 0.0

    def factor(self, x: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """A factor of a product (float64), off by one draw."""
        return _drawn(x, self.factors, random) if x.dtype.kind == "f" else x

    def result(self, y: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """What a node gives (float64), off by one draw."""
        return _drawn(y, self.stored, random) if self.stored and y.dtype.kind == "f" else y

    @staticmethod
    def is_product(node: Node) -> bool:
        """Whether the node multiplies factors that the arithmetic rounds."""
        return node.op.kind in PRODUCTS or isinstance(node.op, Recurrent)


TF32_NOISE = CoarseNoise("TF32", 2 * TF32.unit_roundoff)
"""Units cut factors to TF32 as often as they round them."""
SHORT = {
    "bfloat16": CoarseNoise("bf16", BFLOAT16.unit_roundoff, BFLOAT16.unit_roundoff),
    "float16": CoarseNoise("fp16", FLOAT16.unit_roundoff, FLOAT16.unit_roundoff),
}


def possible_noises(declared: TensorType, actual: np.ndarray) -> Iterator[CoarseNoise]:
    """Yield the arithmetics that may have given a value, the finest first: the 16 bits that its
    numbers have, or else TF32, and products in 16 bits."""
    name = str(declared.dtype)
    if name in SHORT:
        yield SHORT[name]
        return
    if name != "float32":
        return
    stored = next((n for n in SHORT if on_grid(actual, FORMATS[n])), None)
    if stored is not None:
        yield SHORT[stored]
    else:
        yield from (TF32_NOISE, SHORT["float16"], SHORT["bfloat16"])


def _drawn(x: np.ndarray, unit: float, random: np.random.Generator) -> np.ndarray:
    """Each number off by its own draw, and all together by one: units that cut err to one side."""
    relative = random.uniform(-unit, unit, x.shape)
    return np.asarray(x * (1.0 + relative + random.uniform(-unit, unit)))

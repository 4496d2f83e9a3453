"""Element types that specs carry, and whether an emitter knows them.

A spec says what it reads, adds in and writes; its emitter says which of those names it knows. A
lowering asks before it decides, so that an unknown one runs on the reference and the plan says why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

CONTRACTED = (
    *("float32", "float64", "float16", "bfloat16"),
    *("int8", "uint8", "int16", "uint16", "int32", "int64"),
)
"""Element types that all kernels of sums of products know."""


@dataclasses.dataclass(frozen=True)
class ContractionTypes:
    """Element types of a sum of products. x, weights: the factors; sum: what the products are added
    in, and what a bias or start is stored in; y: the result, after any epilogue."""

    x: str
    weights: str
    sum: str
    y: str

    def __str__(self) -> str:
        """One name where all are the same."""
        if len(set(self.names)) == 1:
            return self.x
        return f"{self.x} by {self.weights} in {self.sum} to {self.y}"

    @property
    def names(self) -> tuple[str, ...]:
        return self.x, self.weights, self.sum, self.y


FLOAT32 = ContractionTypes("float32", "float32", "float32", "float32")

_SUMS = {"float64": "float64", **dict.fromkeys(("float16", "bfloat16", "float32"), "float32")}


def contraction(x: str, weights: str, y: str) -> ContractionTypes:
    """Types of a sum of products, added in the canonical type: float64 for float64, float32 for
    other floats, int32 for integers."""
    return ContractionTypes(x, weights, _SUMS.get(x, "int32"), y)


def unknown(dtypes: Collection[str], supported: Collection[str]) -> str:
    """A message that names the dtypes that are not `supported`; empty if all are."""
    strange = [d for d in dict.fromkeys(dtypes) if d not in supported]
    return f"no kernel takes {', '.join(strange)}; known: {', '.join(supported)}" if strange else ""

"""Element types and tensor types."""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from verax.base.errors import GraphError, UnsupportedError
from verax.ir.assumptions import deciding
from verax.ir.dim import DimLike, product, same, symbols
from verax.ir.dim_forms import parse_dim, substitute


class DType(enum.StrEnum):
    """Element types a tensor may have; the value is NumPy's name."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"
    int8 = "int8"
    int16 = "int16"
    int32 = "int32"
    int64 = "int64"
    uint8 = "uint8"
    uint16 = "uint16"
    uint32 = "uint32"
    uint64 = "uint64"
    bool_ = "bool"
    float8_e4m3fn = "float8_e4m3fn"
    float8_e4m3fnuz = "float8_e4m3fnuz"
    float8_e5m2 = "float8_e5m2"
    float8_e5m2fnuz = "float8_e5m2fnuz"
    float8_e8m0fnu = "float8_e8m0fnu"
    float4_e2m1fn = "float4_e2m1fn"
    int4 = "int4"
    uint4 = "uint4"
    int2 = "int2"
    uint2 = "uint2"

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype: of `ml_dtypes` for bfloat16 and what is narrower than a float16 or
        a byte, which all take a byte an element."""
        return _numpy(self)

    @property
    def is_float(self) -> bool:
        return self in _FLOATS or self in NARROW_FLOATS

    @property
    def is_integer(self) -> bool:
        return not self.is_float and self is not DType.bool_

    @property
    def is_narrow(self) -> bool:
        """Whether tensors are stored in it and converted from and to it, and nothing computed."""
        return self in NARROW

    @property
    def counted(self) -> np.dtype:
        """The NumPy dtype that the meaning has numbers of an integer type in: int8 or uint8 for
        those of 4 and 2 bits."""
        if self not in NARROW_INTEGERS:
            return self.numpy
        return np.dtype(np.uint8 if self.value.startswith("u") else np.int8)

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest number of an integer type."""
        info = ml_dtypes.iinfo(self.numpy)
        return int(info.min), int(info.max)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    @staticmethod
    def of(array_or_dtype: Any) -> DType:
        """The DType of an array or NumPy dtype; raises `UnsupportedError` for any other type."""
        return _of(np.dtype(getattr(array_or_dtype, "dtype", array_or_dtype)))


@functools.cache
def _numpy(dtype: DType) -> np.dtype:
    own = getattr(ml_dtypes, dtype.value, None)
    return np.dtype(dtype.value if own is None else own)


@functools.cache
def _of(dtype: np.dtype) -> DType:
    try:
        return DType(dtype.name)
    except ValueError:
        raise UnsupportedError(
            f"the element type {dtype.name!r} is not supported",
            next_step=f"convert to one of {', '.join(DType)}",
        ) from None


HALVES = frozenset({DType.float16, DType.bfloat16})
_FLOATS = frozenset({DType.float16, DType.bfloat16, DType.float32, DType.float64})
NARROW_FLOATS = frozenset(d for d in DType if d.value.startswith(("float8", "float4")))
NARROW_INTEGERS = frozenset({DType.int4, DType.uint4, DType.int2, DType.uint2})
NARROW = NARROW_FLOATS | NARROW_INTEGERS
COMPUTED = tuple(d for d in DType if d not in NARROW)
"""Types that operators compute in, which are all that most formats have."""


@dataclass(frozen=True, eq=False)
class TensorType:
    """Element type and dimensions. The rank is always known; sizes may be symbols."""

    dtype: DType
    dims: tuple[DimLike, ...]

    def __eq__(self, other: object) -> bool:
        """Whether both are one expression, for all sizes: what treats equal types alike may treat
        others as different, and no condition is recorded (`assumptions`)."""
        if not isinstance(other, TensorType):
            return NotImplemented
        return (
            self.dtype is other.dtype
            and len(self.dims) == len(other.dims)
            and all(map(same, self.dims, other.dims))
        )

    def __hash__(self) -> int:
        return hash((self.dtype, self.dims))

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_static(self) -> bool:
        """Whether every dimension is a number, or stands for one (`assumptions`)."""
        return all(isinstance(d, int) or deciding(d) is not None for d in self.dims)

    @property
    def is_fixed(self) -> bool:
        """Whether every dimension is a number, whatever is assumed."""
        return all(isinstance(d, int) for d in self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions as numbers, or what stands for them; raises `GraphError` when one is not
        known."""
        if not self.is_static:
            raise GraphError(f"the shape of {self} is not known yet", next_step="give --shape")
        return self.dims  # type: ignore[return-value]

    @property
    def size(self) -> DimLike:
        """Number of elements."""
        return product(self.dims)

    def with_dims(self, dims: tuple[DimLike, ...] | list[DimLike]) -> TensorType:
        return TensorType(self.dtype, tuple(dims))

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.dims)

    def widened(self) -> TensorType:
        """Of float32 where it is of 16 bits."""
        return self.with_dtype(DType.float32) if self.dtype in HALVES else self

    def substitute(self, values: Mapping[str, DimLike]) -> TensorType:
        return TensorType(self.dtype, tuple(substitute(d, values) for d in self.dims))

    def symbols(self) -> frozenset[str]:
        return frozenset().union(*(symbols(d) for d in self.dims))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.dims))}]"

    __repr__ = __str__

    @staticmethod
    def of(array: np.ndarray) -> TensorType:
        return TensorType(DType.of(array), tuple(int(d) for d in array.shape))

    @staticmethod
    def parse(text: str) -> TensorType:
        """Read `float32[n, 3, (h + 1)//2]`. Raises `GraphError`."""
        name, bracket, dims = text.strip().partition("[")
        if not bracket or not dims.endswith("]") or name not in list(DType):
            raise GraphError(f"{text!r} is not a tensor type", next_step="e.g. float32[1, 3, h, w]")
        return TensorType(DType(name), tuple(parse_dim(d) for d in split_commas(dims[:-1])))


def split_commas(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes; empty text gives no parts."""
    pieces, depth, start, quote = [], 0, 0, ""
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote and text[i - 1] != "\\" else quote
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            pieces.append(text[start:i])
            start = i + 1
    pieces.append(text[start:])
    return [p.strip() for p in pieces] if text.strip() else []

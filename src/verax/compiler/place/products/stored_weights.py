"""Right factors of products that stay in the 16, 8 or 4 bits in which the network has them.

A network whose weights are integers with scales says DequantizeLinear of a constant; its value is
not made, but the factor read as it is (`Values.late`). Weights whose float32 numbers 16 bits hold
exactly are kept in these where few rows are multiplied, for then reading them is all the time.
"""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np

from verax.compiler.kernels.convolution.pack import direct_elements, direct_order
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.products.gemm import GemmSpec
from verax.compiler.kernels.products.stored import (
    HALVES,
    MOST_ROWS,
    RowsSpec,
    Stored,
    WidenSpec,
    pack_stored,
)
from verax.compiler.kernels.sizes import static_size
from verax.compiler.place.lowering import Lowering
from verax.compiler.place.storage import LANES, Placed, Pointer
from verax.ir.graph import Graph, Node
from verax.ir.types import DType
from verax.ops.quantized.quantization import DequantizeLinear

LEAST = 1 << 16
"""Floats that are fewer stay in float32: they are read from a cache."""
INTEGERS = (*(DType.int8, DType.uint8), *(DType.int4, DType.uint4), *(DType.int2, DType.uint2))


@dataclasses.dataclass(frozen=True)
class StoredFactor:
    """numbers: (k, n), of the stored kind. tables: scales and zero points, (groups, n) each."""

    stored: Stored
    numbers: np.ndarray
    tables: tuple[np.ndarray, ...] = ()


def stored_kernel(graph: Graph, value: str, rows: int) -> tuple[str, type] | None:
    """The element type of a right factor that the network stores as dequantized integers, and the
    type of spec that reads it in a product of so many rows; None for any other value."""
    node = graph.producers.get(value)
    if node is None or not isinstance(node.op, DequantizeLinear):
        return None
    integers = graph.constants.get(node.inputs[0] or "")
    if integers is None or DType.of(integers) not in INTEGERS:
        return None
    return str(as_bytes(integers).dtype), RowsSpec if rows <= MOST_ROWS else WidenSpec


def as_bytes(integers: np.ndarray) -> np.ndarray:
    """Integers of at most 8 bits as int8 or uint8."""
    signed = str(DType.of(integers)).startswith("int")
    return integers.astype(np.int8 if signed else np.uint8, copy=False)


def stored_factor(
    lowering: Lowering, value: str, transposed: bool, rows: int
) -> StoredFactor | None:
    """The right factor `value` (transposed: its rows are columns) of a product of so many rows,
    where it is kept in fewer bits; else None."""
    node = lowering.values.late.get(value)
    if node is not None:
        return _integers(lowering.graph, node, transposed)
    constant = lowering.graph.constants.get(value)
    if constant is None or constant.dtype != np.float32 or constant.ndim != 2:
        return None
    if constant.size < LEAST or rows > MOST_ROWS:
        return None
    for kind in (np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)):
        with np.errstate(all="ignore"):
            half = constant.astype(kind)
        if np.array_equal(half.astype(np.float32).view(np.uint32), constant.view(np.uint32)):
            return StoredFactor(Stored(kind.name), half.T if transposed else half)
    return None


def _integers(graph: Graph, node: Node, transposed: bool) -> StoredFactor | None:
    """A DequantizeLinear whose scales belong to columns, or to groups of their rows."""
    op = node.op
    assert isinstance(op, DequantizeLinear)
    quantized, scale, zero = (*(graph.constants.get(v or "") for v in node.inputs), None)[:3]
    if (
        quantized is None
        or scale is None
        or DType.of(quantized) not in INTEGERS
        or quantized.ndim != 2
    ):
        return None
    if scale.dtype != np.float32 or graph.types[node.outputs[0]].dtype is not DType.float32:
        return None
    group = op.rows_by_scale(quantized.shape, scale, 0 if transposed else 1)
    if not group:
        return None

    quantized, zero = as_bytes(quantized), None if zero is None else as_bytes(zero)

    def spread(parameter: np.ndarray) -> np.ndarray:
        full = np.broadcast_to(op.spread(parameter, quantized.shape), quantized.shape)
        return (full.T if transposed else full)[::group].copy()  # `full` is as large as the weights

    numbers = quantized.T if transposed else quantized
    points = np.zeros((1, 1), np.int32) if zero is None else spread(zero).astype(np.int32)
    kind = quantized.dtype.name
    centered = numbers.reshape(-1, group, numbers.shape[1]) - points[:, None]
    low, high = centered.min(initial=0), centered.max(initial=0)
    if quantized.dtype == np.int8 and numbers.min(initial=0) >= -8 and numbers.max(initial=0) < 8:
        numbers, points, kind = (numbers + 8).astype(np.uint8), points + 8, "uint4"
    elif quantized.dtype == np.uint8 and numbers.max(initial=0) < 16:
        kind = "uint4"
    elif low >= -128 and high < 128:
        numbers, kind = centered.reshape(numbers.shape).astype(np.int8), "int8"
        points = np.zeros((1, 1), np.int32)
    scales = spread(scale)
    if kind == "uint4" and bool((points == points.flat[0]).all()):
        return StoredFactor(Stored(kind, group, zero=int(points.flat[0])), numbers, (scales,))
    zeros = bool(points.any())
    tables = (scales, np.broadcast_to(points, scales.shape)) if zeros else (scales,)
    return StoredFactor(Stored(kind, group, zeros), numbers, tables)


def few_rows(
    lowering: Lowering, spec: GemmSpec, factor: StoredFactor
) -> tuple[RowsSpec, list[Pointer]]:
    """The kernel that multiplies while it reads, and the pointers of the factor."""
    rows = RowsSpec(spec, factor.stored)
    schedule = lowering.calls.schedule(rows)
    assert isinstance(schedule, ConvSchedule)
    return rows, _pointers(lowering, spec, factor, schedule)


def widened(
    lowering: Lowering, spec: GemmSpec, factor: StoredFactor, schedule: ConvSchedule, label: str
) -> Pointer:
    """Panels of float32 for the ordinary kernel, made when the program runs."""
    panels = lowering.values.scratch(4 * static_size(spec.packed_elements))
    arguments: list[Pointer | Placed] = [*_pointers(lowering, spec, factor, schedule), panels]
    widen = WidenSpec(dataclasses.replace(spec, epilogue=None, bias="", start=None), factor.stored)
    lowering.calls.call(widen, arguments, f"{label}: weights to float32", schedule)
    return panels


def _pointers(
    lowering: Lowering, spec: GemmSpec, factor: StoredFactor, schedule: ConvSchedule
) -> list[Pointer]:
    """The packed factor, its scales and its zero points, in rows of whole blocks of columns."""
    conv = spec.convolution()
    size = np.dtype(np.uint16).itemsize if factor.stored.kind in HALVES else 1
    nbytes = direct_elements(conv, schedule) // LANES * factor.stored.width * size
    numbers, stored = factor.numbers, factor.stored
    packing = stored, direct_order(conv, schedule)

    def pack() -> np.ndarray:
        return pack_stored(numbers, stored, spec, schedule)

    pointers = [lowering.weights.packed_later(numbers, packing, nbytes, pack)]
    for table in factor.tables:
        spare = -table.shape[1] % LANES
        pointers.append(
            lowering.weights.packed(np.pad(table.astype(np.float32), ((0, 0), (0, spare))))
        )
    return pointers

"""Which elementwise nodes can be computed behind a kernel that makes a blocked tensor."""

from __future__ import annotations

import numpy as np

from verax.compiler.plan.expressions import operands
from verax.compiler.plan.layouts import can_block
from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType


def fits_epilogue(graph: Graph, accumulator: str, node: Node) -> bool:
    """Whether `node`, which reads `accumulator`, can be part of an epilogue.

    Its other operands must be scalars or per-channel constants, or tensors of the result's shape;
    all is float32.
    """
    result = graph.types[accumulator]
    if any(graph.types[v].dtype is not DType.float32 for v in (*node.outputs, accumulator)):
        return False
    for operand in operands(graph, node).values():
        dtype = graph.types[operand].dtype if isinstance(operand, str) else operand.dtype
        if str(dtype) != "float32":
            return False
    return _aligned(graph, result, node)


def fits_any_type(graph: Graph, accumulator: str, node: Node) -> bool:
    """As `fits_epilogue`, of element types that blocked tensors may have."""
    result = graph.types[accumulator]
    if not all(can_block(graph.types[v]) for v in (*node.outputs, accumulator)):
        return False
    for operand in operands(graph, node).values():
        if isinstance(operand, str) and not can_block(graph.types[operand]):
            return False
    return _aligned(graph, result, node)


def _aligned(graph: Graph, result: TensorType, node: Node) -> bool:
    """Whether every operand lies as the result does, or has one number per channel or in all."""
    for operand in operands(graph, node).values():
        if isinstance(operand, str):
            if graph.types[operand].dims != result.dims:
                return False
        elif operand.size != 1 and not is_per_channel(operand, result.rank):
            return False
    return True


def is_per_channel(array: np.ndarray, rank: int) -> bool:
    """Whether `array` broadcasts along the channel axis (axis 1) alone of a tensor of `rank`."""
    shape = (1,) * (rank - array.ndim) + array.shape
    return array.ndim <= rank and all(n == 1 for axis, n in enumerate(shape) if axis != 1)

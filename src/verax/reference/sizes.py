"""How large what a node gives will be, from its type rule and the values at hand, before anything
is allocated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import VeraxError
from verax.base.machine import memory
from verax.ir.graph import KNOWN_LIMIT, Node
from verax.ir.operator import Inference, Operator
from verax.ir.types import TensorType

COPIES = 4
"""Arrays of the size of a result that a reference may hold at once: Resize holds what it has summed
up, what it adds and their sum, and whoever asked for it the result."""


def inferred_outputs(
    op: Operator, types: Sequence[TensorType | None], arrays: Sequence[Any], location: str = ""
) -> tuple[TensorType, ...] | None:
    """Output types of an operator on these arrays, None where its type rule cannot tell."""
    contents = tuple(
        x if isinstance(x, np.ndarray) and x.dtype != object and x.size <= KNOWN_LIMIT else None
        for x in arrays
    )
    try:
        return tuple(op.infer(Inference(tuple(types), contents, location)))
    except (VeraxError, ArithmeticError, ValueError, TypeError, LookupError):
        return None  # the reference says it better


def output_bytes(types: Sequence[TensorType], work: np.dtype | None = None) -> int:
    """Bytes of tensors of these types, floats in `work` where given; symbols count as 1."""
    total = 0
    for type_ in types:
        dtype = work if work is not None and type_.dtype.is_float else type_.dtype.numpy
        total += dtype.itemsize * math.prod(d for d in type_.dims if isinstance(d, int))
    return total


def require_memory(
    node: Node,
    types: Sequence[TensorType | None],
    arrays: Sequence[Any],
    outputs: Sequence[TensorType],
    work: np.dtype | None,
) -> None:
    """Raise an `InputError` when what the node gives is larger than the limit of
    `base.machine.memory`."""
    if not all(t.is_static for t in outputs):
        outputs = inferred_outputs(node.op, types, arrays, node.name) or outputs
    memory.require(output_bytes(outputs, work), "what this node gives", node.place, COPIES)

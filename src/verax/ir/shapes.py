"""Shape computations inside a network: small integer tensors whose values types depend on.

`Shape -> Gather -> Concat -> Reshape` chains are evaluated while the graph is built, with numbers
where sizes are numbers and with `Dim` expressions where they are symbols.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.ir.dim import DimLike, UndecidedError
from verax.ir.operator import PROMISED, Evaluation, Inference, Operator, as_tuple
from verax.ir.types import TensorType

LIMIT = 4096
"""Outputs with more elements than this are not followed."""
FLOAT_LIMIT = 16
"""The same for float outputs: sizes times a scale, as exporters write them for Resize."""


def known_outputs(
    op: Operator, ctx: Inference, outputs: Sequence[TensorType]
) -> tuple[np.ndarray | None, ...]:
    """Values of a node's outputs when its inputs are known, None for each that is not."""
    nothing = (None,) * len(outputs)
    shape_like = getattr(op, "from_types", None)
    if shape_like is not None:
        return as_tuple(shape_like(ctx))
    if any(t is not None and k is None for t, k in zip(ctx.types, ctx.known)):
        return nothing
    if not ctx.types or any(not t.is_fixed or int(t.size) > LIMIT for t in outputs):
        return nothing
    is_symbolic = any(k is not None and k.dtype == object for k in ctx.known)
    has_floats = any(t.dtype.is_float for t in outputs)
    if has_floats and (is_symbolic or any(int(t.size) > FLOAT_LIMIT for t in outputs)):
        return nothing
    if is_symbolic and not op.symbolic:
        return nothing
    ev = Evaluation(ctx.types, tuple(outputs), arith=PROMISED)
    evaluate = op.canonical if has_floats else op.reference
    try:
        with np.errstate(all="ignore"):
            results = as_tuple(evaluate(ev, *ctx.known))
    except UndecidedError:
        return nothing
    if is_symbolic:
        return tuple(_settle(np.asarray(r, dtype=object), t) for r, t in zip(results, outputs))
    return tuple(np.asarray(r).astype(t.dtype.numpy) for r, t in zip(results, outputs))


def _settle(array: np.ndarray, declared: TensorType) -> np.ndarray:
    """An object array without symbols becomes a plain one; integers wrap."""
    if not all(isinstance(v, int | np.integer | bool | np.bool_) for v in array.flat):
        return array
    dtype = declared.dtype.numpy
    if declared.dtype.is_integer:
        info = np.iinfo(dtype)
        wrapped = [(int(v) - info.min) % (1 << info.bits) + info.min for v in array.flat]
        return np.array(wrapped, dtype).reshape(array.shape)
    return array.astype(dtype)


def sizes_array(dims: Sequence[DimLike]) -> np.ndarray:
    """A shape as the content of a tensor: int64, or objects where a dimension is open."""
    is_known = all(isinstance(d, int) for d in dims)
    return np.array(dims, np.int64 if is_known else object)

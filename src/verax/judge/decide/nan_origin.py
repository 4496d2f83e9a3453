"""NaN in the reference where the subject has finite numbers: where the NaN comes from, and whether
that is a mistake. Infinities of the other sign, too.

A NaN that is read (the network was fed one, or the subject shows one) proves nothing, and neither
does one that rounding decides, or that passes an operator in which runtimes lose it. What is left
is a NaN that an operator makes of numbers, as 0 / 0 in a Softmax of what is masked whole: the
subject computes something else than this meaning says, or the meaning was read wrongly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from verax.ir.graph import Node
from verax.ir.types import HALVES, DType
from verax.judge.decide.criterion import Decision
from verax.ops.sums.attention import Attention
from verax.ops.sums.softmax import AlongAxis, LogSoftmax, Softmax
from verax.records.verdict import Kind

TEST = "NaN by the meaning"
KEEPS = frozenset((
    *("Abs", "Neg", "Reciprocal", "Sqrt", "Sigmoid", "Tanh", "Erf", "Gelu", "Swish", "Sin", "Cos"),
    *("Add", "Sub", "Mul", "Div", "Sum", "MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose"),
    *("CumSum", "ReduceSum", "ReduceMean", "GlobalAveragePool", "BatchNormalization"),
    *("InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization"),
    *("Identity", "Dropout", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Concat"),
    *("Split", "Slice", "Gather", "Expand", "Tile", "DepthToSpace", "SpaceToDepth"),
))  # fmt: skip
"""Operators out of which a NaN comes in every runtime: tried on ONNX Runtime and OpenVINO, of which
one or both lose it in maxima, comparisons, Clip and Relu, and in Exp and Softmax."""
SUMS = frozenset(("Add", "Sub", "Sum", "ReduceSum", "ReduceMean", "CumSum", "Mean"))
BY_SIGN_OF_ZERO = frozenset(("Div", "Reciprocal", "Rsqrt", "Pow", "Atan2", "Log", "Tan"))
"""Operators that make an infinity of a zero, some by its sign, which runtimes may lose."""
PRODUCTS = frozenset(("Mul", "MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose"))


@dataclasses.dataclass(frozen=True)
class NanOrigin:
    """Where the NaN of a value comes from. node: that makes it; None: it was read. cause: in words.
    lost_at: the first node after it in which runtimes lose a NaN."""

    node: Node | None
    cause: str = ""
    lost_at: Node | None = None


class Trail:
    """Follows NaN through nodes, which are added in order with their inputs and outputs."""

    def __init__(self) -> None:
        self.origins: dict[str, NanOrigin] = {}

    def add(self, node: Node, arrays: Sequence[Any], outputs: Sequence[np.ndarray]) -> None:
        """arrays: as the meaning reads them, None where omitted."""
        read = [
            self.origins.get(v or "", NanOrigin(None))
            for v, a in zip(node.inputs, arrays)
            if a is not None and _has_nan(a)
        ]
        for value, array in zip(node.outputs, outputs):
            if not _has_nan(array):
                continue
            if not read:
                self.origins[value] = NanOrigin(node, _cause(node, arrays, array))
                continue
            unmade = [o for o in read if o.node is None]
            lost = [o for o in read if o.lost_at is not None]
            first = (unmade or lost or read)[0]
            if first.lost_at is None and node.op.kind not in KEEPS:
                first = dataclasses.replace(first, lost_at=node)
            self.origins[value] = first


def nan_decision(
    actual: np.ndarray,
    expected: np.ndarray,
    origin: NanOrigin,
    baseline: Callable[[], Iterable[np.ndarray]],
    alternative: Callable[[], bool],
) -> Decision | None:
    """The decision on a value that is finite at some elements where the reference is NaN; None
    where there are none.

    baseline: the value in runs of the declared types, with other roundings. alternative: whether
    the subject's numbers are those of `masked_as_zeros`.
    """
    mask = np.isnan(expected) & np.isfinite(actual.astype(np.float64))
    count = int(mask.sum())
    if not count:
        return None
    share = f"{count} of {actual.size} elements are NaN by the meaning and ordinary numbers here"
    if origin.node is None:
        return _open(f"{share}, but NaN was read: runtimes differ in how it passes an operation")
    share += f": {origin.cause} in {_named(origin.node)}"
    if any(bool(np.isfinite(y.astype(np.float64))[mask].any()) for y in baseline()):
        return _open(f"{share}, but rounding decides whether that is a number")
    if alternative():
        return Decision(
            Kind.mistake,
            f"{share}. The subject's numbers are those of zeros for what is masked whole (safe "
            "softmax): the meaning as it was read does not say so; either the subject replaces "
            "NaN, or the file was read wrongly",
            TEST,
            np.inf,
        )
    if origin.lost_at is not None:
        note = (
            f"and it passes {_named(origin.lost_at)}, where runtimes differ in what becomes of it"
        )
        return _open(f"{share}, {note}")
    return Decision(
        Kind.mistake,
        f"{share}. Rounding never does this: either the subject replaces NaN, which the meaning as "
        "it was read does not say, or the file was read wrongly",
        TEST,
        np.inf,
    )


def infinity_decision(
    nodes: Iterable[Node],
    actual: np.ndarray,
    expected: np.ndarray,
    baseline: Callable[[], Iterable[np.ndarray]],
) -> Decision | None:
    """The decision on a value that is infinite with the other sign at some elements where the
    reference is infinite; None where there are none, or where rounding decides the sign.

    nodes: that compute the value. baseline: as `nan_decision` takes it.
    """
    if any(node.op.kind in BY_SIGN_OF_ZERO for node in nodes):
        return None
    wide = actual.astype(np.float64)
    mask = np.isinf(expected) & np.isinf(wide) & (np.sign(expected) != np.sign(wide))
    count = int(mask.sum())
    if not count or any(bool((y[mask] != expected[mask]).any()) for y in baseline()):
        return None
    return Decision(
        Kind.mistake,
        f"{count} of {actual.size} elements are infinite with the other sign than the meaning's; "
        "rounding never does this",
        "sign of infinity",
        np.inf,
    )


def masked_as_zeros(node: Node) -> Node:
    """The node with zeros for fully masked rows (safe softmax); other nodes unchanged."""
    if not isinstance(node.op, Softmax | Attention):
        return node
    op: Any = dataclasses.replace(node.op, masked_to_zero=True)  # type: ignore[call-arg]
    return dataclasses.replace(node, op=op)


def overflowed(arrays: Iterable[tuple[DType, Any]]) -> bool:
    """True if an observed fp16 or bf16 value is +inf: runtimes compute in float32 between such
    values, so that it may be finite for the node that reads it."""
    return any(
        dtype in HALVES and a is not None and bool(np.isposinf(np.asarray(a, np.float64)).any())
        for dtype, a in arrays
    )


def _named(node: Node) -> str:
    return f"{node.name or node.outputs[0]!r} ({node.op.kind})"


def _open(reason: str) -> Decision:
    return Decision(Kind.undecided, reason, "non-finite")


def _has_nan(array: Any) -> bool:
    a = np.asarray(array)
    return a.dtype.kind not in "biuOUS" and bool(np.isnan(a.astype(np.float64, copy=False)).any())


def _cause(node: Node, arrays: Sequence[Any], output: np.ndarray) -> str:
    """Why a node makes NaN of what is none."""
    op, kind = node.op, node.op.kind
    wide = [None if a is None else np.asarray(a, np.float64) for a in arrays]
    finite = all(a is None or bool(np.isfinite(a).all()) for a in wide)
    x = wide[0] if wide else None
    if isinstance(op, Softmax | LogSoftmax) and isinstance(op, AlongAxis) and x is not None:
        if bool((op.lines(x) == -np.inf).all(axis=1).any()):
            return "a line that is -inf throughout, so 0 / 0,"
        return "inf - inf"
    if isinstance(op, Attention):
        return "a query that may attend to nothing, so 0 / 0," if finite else "inf - inf"
    if kind == "Div" and x is not None and wide[1] is not None:
        zero = np.broadcast_to(wide[1], output.shape)[np.isnan(output)] == 0
        return "0 / 0" if zero.any() else "inf / inf"
    if finite:
        return "what has no value among the real numbers"
    if kind in SUMS:
        return "inf - inf"
    return "0 times inf, or inf - inf," if kind in PRODUCTS else "infinity"

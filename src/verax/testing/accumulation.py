"""Types that sums are accumulated in: what a declared one allows, and which one errors look like.

The error model of an operator is that of float32. Another accumulation scales it by its unit
roundoff; partial sums that are stored in the result's type before they are added (split-K) add
roundings of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import UnsupportedError, UsageError
from verax.ir.graph import Node
from verax.ir.operator import Evaluation, as_tuple
from verax.ir.types import HALVES, DType, TensorType
from verax.judge.decide.criterion import Decision, decide
from verax.judge.decide.local import stored
from verax.judge.decide.precision import PRODUCTS, to_float64
from verax.numerics import statistics as st
from verax.numerics.error_model import Rounding, U, sum_of_products
from verax.numerics.formats import BFLOAT16, FLOAT16, FORMATS, FloatFormat, round_to
from verax.testing.operator_meaning import OperatorCase

SHORT = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
ACCUMULATIONS = ("float16", "bfloat16", "float32", "float64", "int32", "tf32")
CAUSES = ((FLOAT16, "fp16 accumulation"), (BFLOAT16, "bf16 accumulation"))
MAX_TERMS = 1 << 22
"""Numbers of the inputs up to which own runs of an accumulation are made."""
PARTIAL_SUMS = (2, 4, 8)
"""Partial sums that a split of K usually has."""
BLOCKS = (1, 8, 16, 32, 64, 128)
"""Products that are added exactly before the sum is rounded, in own runs of an accumulation."""


def accumulation_named(name: str) -> str:
    """The full name of an accumulation type. Raises `UsageError` for one that is not known."""
    full = SHORT.get(name, name).lower().removeprefix("torch.")
    if full not in ACCUMULATIONS:
        raise UsageError(
            f"sums are not accumulated in {name!r}",
            place="accumulate",
            next_step=f"give one of {', '.join(ACCUMULATIONS)}",
        )
    return full


def unit_of(name: str) -> float:
    """Unit roundoff of an accumulation type; 0 for integers."""
    return FORMATS[name].unit_roundoff if name in FORMATS else 0.0


def _core(case: OperatorCase) -> tuple[Node, list[Any], Evaluation, DType]:
    """The operator's node, its float64 inputs, how it is evaluated in float32, and the type that
    its first output is stored in."""
    node = next(n for n in case.graph.nodes if n.op is case.op)
    arrays = [None if v is None else np.asarray(v) for v in map(_host, case.inputs.values())]
    wide = [to_float64(x) for x in arrays]
    types = tuple(None if a is None else _as_float32(TensorType.of(a)) for a in arrays)
    outputs = tuple(map(_as_float32, case.graph.output_types(node)))
    return node, wide, Evaluation(types, outputs), case.graph.types[case.graph.outputs[0]].dtype


def _host(value: Any) -> Any:
    return None if value is None else as_array(value)


def _as_float32(type_: TensorType) -> TensorType:
    return type_.with_dtype(DType.float32) if type_.dtype.is_float else type_


def accumulated(
    case: OperatorCase, accumulate: str, split_k: int
) -> tuple[np.ndarray, Rounding | None]:
    """The float64 value of an operator's first output, and its rounding where sums are accumulated
    in a type and `split_k` partial sums may each be stored in the result's.

    Raises `UnsupportedError` for an operator without an error model.
    """
    node, wide, ev, kind = _core(case)
    with np.errstate(all="ignore"):
        outputs = as_tuple(node.op.reference(ev, *wide))
        try:
            rounding = node.op.error(ev, wide, outputs)[0]
        except NotImplementedError as error:
            raise UnsupportedError(
                f"no error model of {node.op.kind} is known", place="accumulate"
            ) from error
        y = np.asarray(outputs[0])
        if rounding is None:
            return y, None
        scale = unit_of(accumulate) / U
        sigma, bound = rounding.sigma * scale, rounding.bound * scale
        if split_k > 1:
            partial = _partial_sums(node, ev, wide, y, kind, split_k)
            sigma, bound = np.hypot(sigma, partial.sigma), bound + partial.bound
    own = Rounding(sigma, bound)
    if kind is DType.float32 and scale < 1:  # a wider sum is rounded once
        return y, Rounding(np.hypot(sigma, U * np.abs(y)), bound + U * np.abs(y))
    return y, stored(own, y, kind)


def _partial_sums(
    node: Node, ev: Evaluation, wide: Sequence[Any], y: np.ndarray, kind: DType, count: int
) -> Rounding:
    if node.op.kind not in PRODUCTS:
        raise UsageError(
            f"{node.op.kind} has no axis of products that could be split",
            place="split_k",
            next_step=f"leave it out; it is for {', '.join(PRODUCTS)}",
        )
    squares = as_tuple(node.op.reference(ev, wide[0] ** 2, wide[1] ** 2))[0]
    sizes = as_tuple(node.op.reference(ev, np.abs(wide[0]), np.abs(wide[1])))[0]
    terms = sum_of_products(y, np.abs(sizes), np.abs(squares), count)
    scale = FORMATS[str(kind)].unit_roundoff / U
    return Rounding(terms.sigma * scale, terms.bound * scale)


def decide_accumulated(
    case: OperatorCase, actual: np.ndarray, accumulate: str, split_k: int
) -> tuple[Decision, np.ndarray, Rounding | None]:
    """The decision on an operator's first output, its float64 value and its rounding."""
    expected, rounding = accumulated(case, accumulate, split_k)
    if rounding is not None:
        # A running sum that outgrows its terms stops growing: no random model holds there.
        strays = _strays(case, expected, rounding, accumulate)
        rounding = Rounding(rounding.sigma * max(1.0, strays), rounding.bound)
    return decide(actual, expected, rounding), expected, rounding


def _strays(case: OperatorCase, expected: np.ndarray, rounding: Rounding, accumulate: str) -> float:
    """T of the own run in an accumulation of 16 bits that errs most; 0 where there is none."""
    fmt = FORMATS.get(accumulate)
    if fmt not in (FLOAT16, BFLOAT16) or input_size(case) > MAX_TERMS:
        return 0.0
    node, wide, _, kind = _core(case)
    farthest = 0.0
    for _, run in _own_runs(node, wide, fmt):
        error = _rounded_to(run, kind) - expected
        if error.shape == expected.shape and np.isfinite(error).all():
            z = st.standardised(error, rounding.sigma)
            farthest = max(farthest, st.group_test(z).statistic)
    return farthest


def input_size(case: OperatorCase) -> int:
    """Numbers of the inputs together: what own runs take time for."""
    return sum(a.size for a in case.feeds.values())


def reproduced_accumulation(case: OperatorCase, actual: np.ndarray, finer_than: float) -> str:
    """The accumulation by which an own run gives all the numbers of an answer, and its order, as
    "bf16 accumulation (term by term)"; "" for none. finer_than: largest unit roundoff that is no
    answer."""
    node, wide, _, kind = _core(case)
    if not kind.is_float or actual.dtype.kind not in "fV" or input_size(case) > MAX_TERMS:
        return ""
    observed = actual.astype(np.float64)
    for fmt, words in CAUSES:
        if fmt.unit_roundoff > finer_than:
            for order, run in _own_runs(node, wide, fmt):
                if run.shape == observed.shape and np.array_equal(_rounded_to(run, kind), observed):
                    return f"{words} ({order})"
    return ""


def likely_accumulation(case: OperatorCase, actual: np.ndarray, finer_than: float) -> str:
    """The accumulation whose rounding is of the size of an answer's errors, as "errors as large as
    bf16 accumulation makes", or partial sums in the result's type; "" for none, and where too few
    numbers are wrong to have a size. Arguments as of `reproduced_accumulation`."""
    try:
        node, _, _, kind = _core(case)
        expected, rounding = accumulated(case, "float32", 1)
    except UnsupportedError:
        return ""
    if rounding is None or actual.shape != expected.shape or actual.dtype.kind not in "fV":
        return ""
    error = actual.astype(np.float64) - expected
    if not np.isfinite(error).all() or np.unique(error).size < st.ACCUMULATION_ELEMENTS:
        return ""
    if node.op.kind in PRODUCTS and kind in HALVES:
        for count in PARTIAL_SUMS:
            sigma = _sigma(accumulated(case, "float32", count)[1])
            if st.group_test(st.standardised(error, sigma)).statistic <= st.ACCUMULATION_T:
                return f"{count} partial sums stored in {kind} before they are added (split_k)"
    for fmt, words in CAUSES:
        sigma = rounding.sigma * fmt.unit_roundoff / U
        z = st.standardised(error, np.hypot(sigma, _own_storage(expected, kind)))
        is_so_large = st.root_mean_square(z) >= st.ACCUMULATION_LEAST
        fits = st.group_test(z).statistic <= st.ACCUMULATION_T
        if fmt.unit_roundoff > finer_than and fits and is_so_large:
            return f"errors as large as {words} makes"
    return ""


def _sigma(rounding: Rounding | None) -> np.ndarray:
    assert rounding is not None
    return rounding.sigma


def _own_storage(expected: np.ndarray, kind: DType) -> np.ndarray:
    return np.abs(expected) * FORMATS[str(kind)].unit_roundoff


def _rounded_to(run: np.ndarray, kind: DType) -> np.ndarray:
    """float64 numbers rounded to a float type."""
    return round_to(run, FORMATS[str(kind)])


def _own_runs(
    node: Node, wide: Sequence[Any], fmt: FloatFormat
) -> Iterator[tuple[str, np.ndarray]]:
    """Runs of a product or a scan whose running sum is kept in `fmt`."""
    if node.op.kind == "MatMul" and all(w.ndim >= 2 for w in wide):
        a, b = wide
        for block in BLOCKS:
            if block == 1 or a.shape[-1] > block:
                text = "term by term" if block == 1 else f"in blocks of {block}"
                yield text, _chained(a, b, block, lambda x: round_to(x, fmt))
    if node.op.kind == "CumSum":
        axis = int(np.ravel(wide[1])[0])
        if not getattr(node.op, "reverse", False) and not getattr(node.op, "exclusive", False):
            yield "term by term", _scanned(np.moveaxis(wide[0], axis, 0), axis, fmt)


def _chained(
    a: np.ndarray, b: np.ndarray, block: int, rounded: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    total = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))
    for k in range(0, a.shape[-1], block):
        total = rounded(total + a[..., k : k + block] @ b[..., k : k + block, :])
    return total


def _scanned(x: np.ndarray, axis: int, fmt: FloatFormat) -> np.ndarray:
    rows, total = [], np.zeros(x.shape[1:])
    for row in x:
        total = round_to(total + row, fmt)
        rows.append(total)
    return np.moveaxis(np.stack(rows), 0, axis) if rows else np.moveaxis(x, 0, axis)

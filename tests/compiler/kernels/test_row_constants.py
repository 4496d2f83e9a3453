"""What is the same for all of a row is computed once for it, with the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.compiler.native import agree

import verax.ops  # noqa: F401  (registers the operators)
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.loops.loop import Access
from verax.compiler.kernels.reduce.plan import row_constants
from verax.compiler.kernels.reduce.rows import ReduceSpec, Stage
from verax.compiler.kernels.registry import emit
from verax.compiler.kernels.target import Target
from verax.ir.operator import REGISTRY
from verax.numerics.expr import Expr, Input, TracingArith

M = TracingArith()
X, LOW, HIGH = (Input(i, "float32") for i in range(3))
TEN = M.const(10.0, "float32")


def share() -> tuple[Expr, Expr]:
    """(x - low) / ((high - low) / 10), and its divisor."""
    scale = M.div(M.sub(HIGH, LOW), TEN)
    return M.div(M.sub(X, LOW), scale), scale


def test_the_largest_parts_without_the_element_are_found_once() -> None:
    expr, scale = share()
    assert row_constants([expr, M.add(expr, scale)], {1, 2}) == [scale]


def test_what_reads_the_element_or_nothing_is_not_found() -> None:
    assert row_constants([M.mul(M.exp(X), M.div(TEN, TEN))], {1, 2}) == []


def test_a_whole_expression_may_be_the_same_for_a_row() -> None:
    root = M.sqrt(LOW)
    assert row_constants([root, X], {1, 2}) == [root]


IN_STEP, ONE = 4 * 1 + 1, 2 + 1


@pytest.mark.parametrize("rows, written", [(3, ONE), (6, IN_STEP + ONE), (512, ONE)])
def test_the_division_of_a_row_is_outside_of_its_loop(rows: int, written: int) -> None:
    """As many divisions are written as without it: two elements at a time, and once the row's; an
    element of each of four rows in step and theirs in one vector, and one row of those that are
    left."""
    expr, _ = share()
    across = rows == 512
    strides = (1, 512) if across else (64, 1)
    outer, length = rows, 64
    stages = (Stage("min", X), Stage("max", X))
    spec = ReduceSpec((outer,), (length,), (Access("float32", strides),), stages, (),
                      ((Access("float32", strides), expr),))  # fmt: skip
    module = ModuleBuilder("net", Target.host())
    emit(module, spec, None)
    assert module.ir_text().count("fdiv") == written


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 37), (1, 4099), (40, 64)])
def test_operators_with_scales_of_rows_keep_their_bits(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng([5, *shape]).standard_normal(shape).astype(np.float32)
    agree(REGISTRY["DynamicQuantizeLinear"](), x)
    agree(REGISTRY["DynamicQuantizeGroups"](axis=len(shape) - 1), x)
    agree(REGISTRY["LogSoftmax"](axis=0), x)
    agree(REGISTRY["LogSoftmax"](axis=-1), x)


@pytest.mark.parametrize("length", [5, 17, 103, 300, 1030])
def test_rows_in_step_have_the_bits_of_rows_by_themselves(length: int) -> None:
    """Of any number of rows, some of which are left over; Softmax writes where it reads."""
    scale = np.random.default_rng(length).standard_normal((2, length)).astype(np.float32)
    for rows in (1, 2, 4, 7, 9):
        rng = np.random.default_rng([rows, length])
        x = rng.standard_normal((rows, length)).astype(np.float32)
        agree(REGISTRY["Softmax"](axis=-1), x)
        agree(REGISTRY["LayerNormalization"](axis=-1), x, *scale, constant=(1, 2))
        agree(REGISTRY["ReduceMax"](), x, np.array([1]), constant=(1,))
        agree(REGISTRY["ReduceSum"](), x, np.array([1]), constant=(1,))

"""Faults injected into kernels of blocks are noticed: some order of threads and copies shows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.kernels.gpu.emulation import Edit
from tests.compiler.kernels.gpu.problems import Product, convolution, of_zeros, tile
from tests.compiler.kernels.test_conv import make

from verax.compiler.kernels.gpu.contraction import PhaseTiles
from verax.compiler.kernels.gpu.staging import Staging
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import F32, I1
from verax.compiler.kernels.llvm.gpu import BlockBuilder

SIZES = [(16, 32), (64, 64)]
PRODUCT = Product(71, 83, 230, outer=2, constant=False, bias="full", epilogue="relu", seed=5)


@pytest.fixture(params=SIZES, ids=str)
def schedule(request: pytest.FixtureRequest) -> Any:
    return tile(*request.param)


def replaced(pattern: str, text: str) -> Edit:
    return lambda module: re.sub(pattern, text, module)


EDITS = {
    "no barrier": replaced(
        r"(%co\.barrier\d+) = call i8 @llvm\.coro\.suspend\(token none, i1 false\)",
        r"\1 = add i8 0, 0",
    ),
    "a wait that ends one group early": lambda module: re.sub(
        r"(call void @copy_wait\(ptr %a5, i32 )(\d+)\)",
        lambda m: f"{m[1]}{int(m[2]) + 1})",
        module,
    ),
    "no wait": replaced(r"call void @copy_wait\(ptr %a5, i32 \d+\)", ""),
    "no copies are committed": replaced(r"call void @copy_commit\(ptr %a5\)", ""),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_fault_of_synchronization_is_noticed(name: str, schedule: Any) -> None:
    assert PRODUCT.problem().differs(schedule, EDITS[name])


def test_nothing_is_noticed_where_there_is_no_fault(schedule: Any) -> None:
    assert not PRODUCT.problem().differs(schedule)


def _rounded_twice(self: BlockBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return self.b.fadd(self.b.fmul(a, b), c)


def _in_19_bits(self: BlockBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    """As a matrix unit takes its factors."""
    words = ir.VectorType(ir.IntType(32), 4)
    cut = ir.Constant(words, [0xFFFFE000] * 4)
    a, b = (
        self.b.bitcast(self.b.and_(self.b.bitcast(v, words), cut), ir.VectorType(F32, 4))
        for v in (a, b)
    )
    return _FMA(self, a, b, c)


_FMA = BlockBuilder.fma


@pytest.mark.parametrize("fault", [_rounded_twice, _in_19_bits])
def test_other_arithmetic_is_noticed(
    fault: Callable[..., ir.Value], schedule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = PRODUCT.problem()
    monkeypatch.setattr(BlockBuilder, "fma", fault)
    assert problem.differs(schedule)


def test_a_pixel_that_is_not_there_must_not_be_stored(
    schedule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the guard the last pixel of a tile's image is written by others, and what lies behind
    an image is the next one's."""
    position = PhaseTiles._position

    def unguarded(self: PhaseTiles, pixel: Any) -> Any:
        total, self.total = self.total, 1 << 20
        try:
            places, _ = position(self, pixel)
        finally:
            self.total = total
        return places, ir.Constant(I1, 1)

    problem = Product(37, 40, 21, seed=6).problem()
    monkeypatch.setattr(PhaseTiles, "_position", unguarded)
    problem.before[0] = _with_room(problem.before[0])
    problem.result = _with_room(problem.result)
    assert problem.differs(schedule)


def _with_room(array: Any) -> Any:
    return np.concatenate([array.ravel(), np.full(1 << 15, 7.0, np.float32)])


def test_terms_that_are_not_there_must_not_be_read(
    schedule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lanes of a block behind the last channel hold NaN, and weights behind the last term are
    another panel's."""
    init = Staging.__init__

    def unguarded(self: Staging, *args: Any) -> None:
        init(self, *args)
        self.is_ragged = False

    problem = convolution(make(6, 2, 38, 24, (1, 9, 6), (1, 1, 1)))
    monkeypatch.setattr(Staging, "__init__", unguarded)
    assert problem.differs(schedule)


def test_the_sign_of_absent_weights_is_noticed(schedule: Any) -> None:
    """fma(+0, +0, -0) is +0."""
    negative = r"store <4 x float> splat \(float 0x8000000000000000\)"
    assert of_zeros().differs(
        schedule, replaced(negative, "store <4 x float> splat (float 0x0000000000000000)")
    )

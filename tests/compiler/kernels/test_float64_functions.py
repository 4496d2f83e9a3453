"""LLVM code of the float64 functions has NumPy's bits: alone, over all binades, and composed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native import TARGETS, Native, assert_same_bits
from tests.compiler.kernels.test_llvm_arith import N, flat_kernel

from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.target import Target
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import Const, Expr, Input, TracingArith, evaluate, trace
from verax.numerics.float64.functions import FUNCTIONS

F64 = "float64"
M = TracingArith()
UNARY = sorted(set(FUNCTIONS) - {"pow"})
SPECIAL = np.array([
    *(0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 5e-324, -5e-324, 2.0**-1022, 1e300, -1e300, 0.5),
    *(710.4, -745.1, -746.0, np.nextafter(1, 2), np.nextafter(1, 0), 1e22, -1e22, 2.0**20),
    *(6381956970095103 * 2.0**797, 6.0, 44.0, 0.75, 1.375, 2.0**-28),
])  # fmt: skip


def arguments(rng: np.random.Generator, way: int) -> np.ndarray:
    """N numbers: all binades, around 1, or of a range, with special ones among them."""
    if way == 0:
        x = rng.integers(0, 2**64, N, dtype=np.uint64).view(np.float64)
    elif way == 1:
        x = 1 + rng.standard_normal(N) * np.exp2(-rng.integers(0, 53, N))
    else:
        low, high = ((-1, 1), (-9, 9), (-746, 711), (-(2.0**23), 2.0**23))[way - 2]
        x = rng.uniform(low, high, N)
    return np.where(rng.random(N) < 0.1, rng.choice(SPECIAL, N), x)


@pytest.mark.checkered
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_has_the_bits_of_numpy(name: str, target: Target) -> None:
    count = 2 if name == "pow" else 1
    expr = trace(lambda m, *xs: m.call(name, *xs), [F64] * count)
    module = ModuleBuilder(name, target)
    kernel = flat_kernel(module, expr, (F64,) * count)
    native, rng, out = Native(module), np.random.default_rng(len(name)), np.empty(N)
    for way in range(6):
        for _ in range(4):
            inputs = [arguments(rng, way) for _ in range(count)]
            native.run(kernel, [*inputs, out])
            assert_same_bits(out, evaluate(expr, NumpyArith(), inputs))


def expressions() -> st.SearchStrategy[Expr]:
    """Expressions of two inputs, of functions and arithmetic."""
    leaves: st.SearchStrategy[Expr] = st.one_of(
        st.builds(lambda i: Input(i, F64), st.integers(0, 1)),
        st.builds(lambda v: Const(v, F64), st.floats(-3, 3)),
    )

    def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        one = st.builds(lambda name, x: M.call(name, x), st.sampled_from(UNARY), inner)
        steps = st.sampled_from(["add", "sub", "mul", "div", "min", "max"])
        two = st.builds(lambda name, a, b: M.primitive(name, (a, b)), steps, inner, inner)
        three = st.builds(lambda a, b, c: M.fma(a, b, c), inner, inner, inner)
        chosen = st.builds(lambda a, b, c: M.select(M.lt(a, b), c, a), inner, inner, inner)
        return st.one_of(one, one, two, three, chosen, st.builds(M.pow, inner, inner))

    return st.recursive(leaves, grown, max_leaves=6)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expr=expressions(), seed=st.integers(0, 99))
def test_expressions_of_them_have_the_bits_of_numpy(target: Target, expr: Expr, seed: int) -> None:
    expr = M.add(expr, Input(0, F64))
    module = ModuleBuilder("drawn", target)
    kernel = flat_kernel(module, expr, (F64, F64))
    native, rng, out = Native(module), np.random.default_rng(seed), np.empty(N)
    for way in (0, 3):
        inputs = [arguments(rng, way), arguments(rng, way)]
        native.run(kernel, [*inputs, out])
        assert_same_bits(out, evaluate(expr, NumpyArith(), inputs))


def test_scalars_have_the_same_bits() -> None:
    expr = trace(lambda m, x: m.add(m.call("sin", x), m.call("pow", m.abs(x), x)), (F64,))
    module = ModuleBuilder("scalar", TARGETS[0])
    fb = module.kernel("scalar", 2)
    with fb.items() as loop:
        x = fb.load(fb.at(fb.args[0], loop.index, dtype=F64), F64, lanes=0)
        fb.store(evaluate(expr, LlvmArith(fb, 0), [x]), fb.at(fb.args[1], loop.index, dtype=F64))
    kernel, out = fb.finish(N), np.empty(N)
    native, rng = Native(module), np.random.default_rng(4)
    for way in range(6):
        x = arguments(rng, way)
        native.run(kernel, [x, out])
        assert_same_bits(out, evaluate(expr, NumpyArith(), [x]))


def test_code_for_arm_can_be_generated_on_any_machine() -> None:
    module = ModuleBuilder("arm", Target.aarch64())
    for name in UNARY:
        flat_kernel(module, trace(lambda m, x, n=name: m.call(n, x), [F64]), (F64,))
    assert len(object_code(module)) > 1000

"""LlvmArith gives the bits of NumpyArith: every primitive, every function, every conversion."""

from __future__ import annotations

import numpy as np
import pytest
from native import TARGETS, Native, assert_same_bits

from verax.compiler.kernels.llvm.arith import LlvmArith
from verax.compiler.kernels.llvm.builder import I1, Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.target import LANES, Target
from verax.numerics.arith import ARITHMETIC, BITWISE, COMPARISONS, PRIMITIVES, ROUNDINGS, SHIFTS
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import Expr, evaluate, trace
from verax.numerics.formats import FLOATS, INTEGERS, numpy_dtype
from verax.numerics.functions import FUNCTIONS

N = 160  # values per operand, a multiple of 16


def flat_kernel(module: ModuleBuilder, expr: Expr, dtypes: tuple[str, ...]) -> Kernel:
    """out[i] = expr(in0[i], ...), 16 elements an item."""
    fb = module.kernel((expr, dtypes), len(dtypes) + 1, hint="flat")
    if fb.finished:
        return fb.kernel
    with fb.items() as loop:
        values = []
        for pointer, dtype in zip(fb.args, dtypes):
            value = fb.load(fb.at(pointer, (loop.index, LANES), dtype=dtype), dtype)
            if dtype == "bool":
                value = fb.b.icmp_unsigned("!=", value, fb.constant(0, "bool"))
            values.append(value)
        result = evaluate(expr, LlvmArith(fb), values)
        if result.type.element == I1:
            result = fb.b.zext(result, fb.vector_type("bool"))
        fb.store(result, fb.at(fb.args[-1], (loop.index, LANES), dtype=expr.dtype))
    return fb.finish(N // LANES)


def values_of(dtype: str, seed: int) -> np.ndarray:
    """Special values in every pairing that the permutation gives, then random ones."""
    rng = np.random.default_rng(seed)
    kind = numpy_dtype(dtype)
    raw = rng.integers(0, 256, N * kind.itemsize, dtype=np.uint8).view(kind)
    if dtype == "bool":
        return rng.integers(0, 2, N).astype(bool)
    if dtype in FLOATS:
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-40, 0.5, 1.5, 2.5, -2.5]
        special += [127.5, 255.4, -128.6, 32767.5, 2.0**31, 2.0**63, -(2.0**63), 1e30, -1e30, 65520]
        near = rng.normal(size=40) * 10
    else:
        info = np.iinfo(kind)
        special = [0, 0, 0, 1, 1, info.max, info.min, info.max - 1, 7, info.min + 1, 3]
        special += [2**24 + 1, 2**53 + 1, 2**62 + 2**38 + 1] if info.bits == 64 else []
        special += [-1, -1, -1] if info.min else []
        near = rng.integers(0, 40, 40)
    with np.errstate(all="ignore"):
        values = np.concatenate([np.array(special).astype(kind), near.astype(kind), raw])[:N]
    return rng.permutation(values)


def cases() -> list[tuple[str, Expr, tuple[str, ...]]]:
    found = []

    def add(name: str, *dtypes: str, target: str | None = None) -> None:
        expr = trace(lambda m, *xs: m.primitive(name, xs, target), dtypes)
        found.append((f"{name}-{'-'.join(dtypes)}{target or ''}", expr, dtypes))

    numbers = (*FLOATS, *INTEGERS)
    ordinary = (*numbers, "bool")  # those of 8, 4 and 2 bits: tests/ops/test_narrow_types.py
    for name in PRIMITIVES:
        if name in ARITHMETIC:
            [add(name, d, d) for d in numbers]
        elif name in BITWISE:
            [add(name, d, d) for d in (*INTEGERS, "bool")]
        elif name in COMPARISONS:
            [add(name, d, d) for d in ordinary]
        elif name in SHIFTS:
            [add(name, d, d) for d in INTEGERS]
        elif name in ROUNDINGS:
            [add(name, d) for d in FLOATS]
        elif name in ("neg", "abs"):
            [add(name, d) for d in numbers]
        elif name == "not_":
            [add(name, d) for d in (*INTEGERS, "bool")]
        elif name == "fma":
            [add(name, d, d, d) for d in ("float32", "float64")]
        elif name == "multiply_high":
            add(name, "int32", "int32", "int32")
        elif name == "select":
            [add(name, "bool", d, d) for d in ordinary]
        elif name == "convert":
            [add(name, s, target=t) for s in ordinary for t in ordinary]
        else:
            assert name == "bitcast"
            for a in numbers:
                same = [b for b in numbers if numpy_dtype(a).itemsize == numpy_dtype(b).itemsize]
                [add(name, a, target=b) for b in same]
    for name in FUNCTIONS:
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            arity = 2 if name == "pow" else 1
            expr = trace(lambda m, *xs, n=name: m.call(n, *xs), [dtype] * arity)
            found.append((f"{name}-{dtype}", expr, (dtype,) * arity))
    return found


CASES = cases()


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_every_primitive_and_function_has_the_bits_of_numpy(target: Target) -> None:
    module = ModuleBuilder("arith", target)
    kernels = [flat_kernel(module, expr, dtypes) for _, expr, dtypes in CASES]
    native = Native(module)
    failed = []
    for (name, expr, dtypes), kernel in zip(CASES, kernels):
        for seed in range(4):
            inputs = [values_of(d, 31 * seed + i) for i, d in enumerate(dtypes)]
            out = np.empty(N, numpy_dtype(expr.dtype))
            native.run(kernel, [*inputs, out])
            try:
                assert_same_bits(out, evaluate(expr, NumpyArith(), inputs))
            except AssertionError as error:
                failed.append(f"{name}: {str(error)[:400]}")
                break
    assert not failed, f"{len(failed)} of {len(CASES)}: " + "\n".join(failed[:12])


def test_functions_agree_over_all_binades() -> None:
    dtypes = ("float32",)
    exprs = {n: trace(lambda m, x, n=n: m.call(n, x), dtypes) for n in FUNCTIONS if n != "pow"}
    module = ModuleBuilder("dense", TARGETS[0])
    kernels = {n: flat_kernel(module, e, dtypes) for n, e in exprs.items()}
    native = Native(module)
    rng = np.random.default_rng(2)
    for name, kernel in kernels.items():
        for low, high in ((0, 2**32), (0x3D000000, 0x43000000), (0xBD000000, 0xC3000000)):
            x = rng.integers(low, high, 4096, dtype=np.uint64).astype(np.uint32).view(np.float32)
            out = np.empty_like(x)
            for start in range(0, len(x), N)[:-1]:
                part = slice(start, start + N)
                native.run(kernel, [x[part], out[part]])
            done = len(x) // N * N
            with np.errstate(all="ignore"):
                assert_same_bits(out[:done], NumpyArith().call(name, x)[:done])


def test_scalars_give_the_same_bits_as_vectors() -> None:
    expr = trace(lambda m, x: m.exp(m.tanh(x)), ("float32",))
    module = ModuleBuilder("scalar", TARGETS[0])
    fb = module.kernel("scalar", 2)
    with fb.items() as loop:
        x = fb.load(fb.at(fb.args[0], loop.index), lanes=0)
        fb.store(evaluate(expr, LlvmArith(fb, 0), [x]), fb.at(fb.args[1], loop.index))
    kernel = fb.finish(N)
    x, out = values_of("float32", 5), np.empty(N, np.float32)
    Native(module).run(kernel, [x, out])
    assert_same_bits(out, evaluate(expr, NumpyArith(), [x]))


def test_code_for_arm_can_be_generated_on_any_machine() -> None:
    module = ModuleBuilder("arm", Target.aarch64())
    for name, expr, dtypes in CASES:
        if "float32" in name:
            flat_kernel(module, expr, dtypes)
    assert len(object_code(module)) > 1000


@pytest.mark.parametrize("lanes", [0, 16])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_are_exact(dtype: str, lanes: int) -> None:
    """C's fmod, of numbers of any two sizes: subnormal ones, quotients of up to 2,100 bits."""
    rng, count = np.random.default_rng(11), 4096
    info = np.finfo(dtype)
    low, high = info.minexp - info.nmant, info.maxexp
    a, d = (
        np.ldexp(rng.uniform(1, 2, count), rng.integers(low, high, count)).astype(dtype)
        for _ in range(2)
    )
    near = rng.random(count) < 0.3  # quotients that are nearly whole
    with np.errstate(over="ignore"):
        a = np.where(near, d * rng.integers(1, 99, count).astype(dtype), a)
    odd = np.array([0.0, -0.0, np.inf, np.nan, info.smallest_subnormal, info.max], dtype)
    a[:36], d[:36] = np.repeat(odd, 6), np.tile(odd, 6)
    a, d = rng.choice(np.array([-1, 1], dtype), (2, count)) * [a, d]
    expr = trace(lambda m, x, y: m.rem(x, y), (dtype, dtype))
    module = ModuleBuilder("remainder", TARGETS[0])
    fb = module.kernel("remainder", 3)
    with fb.items() as loop:
        at = fb.imul(loop.index, lanes or 1)
        x, y = (fb.load(fb.at(fb.args[k], at, dtype=dtype), dtype, lanes=lanes) for k in (0, 1))
        fb.store(evaluate(expr, LlvmArith(fb, lanes), [x, y]), fb.at(fb.args[2], at, dtype=dtype))
    kernel = fb.finish(count // (lanes or 1))
    out = np.empty(count, dtype)
    Native(module).run(kernel, [a, d, out])
    with np.errstate(invalid="ignore"):
        assert_same_bits(out, np.fmod(a, d))

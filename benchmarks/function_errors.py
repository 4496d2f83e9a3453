"""Measures the error of the canonical functions: float32 against float64, float64 against mpmath.

Run: python benchmarks/function_errors.py [--step 16] [name ...]. Step 1 visits every number of
the range where a function is neither linear nor saturated (about a minute per function); a
larger step a random one of so many. With --float64 COUNT, so many arguments of each kind (all
binades, around 1, next to multiples of pi/2, ...) are taken instead; that needs mpmath, and the
tests beside it (PYTHONPATH=.). Exits 1 if an error that is stated (`ULPS`, `ERROR_PER_ARGUMENT`) is
exceeded.
"""

from __future__ import annotations

import argparse
import ctypes
import sys

import numpy as np

from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.loops.loop import Access, LoopSpec, emit_loop
from verax.compiler.kernels.target import Target
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import trace
from verax.numerics.float64 import functions as float64
from verax.numerics.functions import ERROR_PER_ARGUMENT, ULPS
from verax.numerics.functions_meaning import FUNCTIONS
from verax.runtime.engine import load_object

F = "float32"
N = 1 << 20
SMALL, LARGE, INFINITY = 0x2F800000, 0x43000000, 0x7F800000  # bits of 2**-32, 128 and inf
SIGN = 1 << 31
POSITIVE = ("log", "log2", "rsqrt")
PERIODIC = ("sin", "cos", "tan")


def ranges(name: str) -> list[tuple[int, int]]:
    """Ranges of bit patterns to visit."""
    if name in POSITIVE:
        return [(1, INFINITY)]
    high = INFINITY if name in PERIODIC else LARGE
    return [(SMALL, high), (SMALL | SIGN, high | SIGN)]


def worst(name: str, step: int) -> tuple[float, float]:
    """(largest error, argument) in ulps or, of what is stated so, in units of the argument."""
    access = Access(F, (1,))
    expr = trace(lambda m, x: m.call(name, x), [F])
    module = ModuleBuilder(name, Target.host())
    kernel = emit_loop(module, LoopSpec((N,), (access,), (access,), (expr,)))
    loaded = load_object(object_code(module))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    run = kind(loaded.address(kernel.name))
    rng, out, found = np.random.default_rng(0), np.empty(N, np.float32), (0.0, 0.0)
    for low, high in ranges(name):
        for start in range(low, high, N * step):
            bits = start + np.arange(N, dtype=np.int64) * step + rng.integers(step)
            x = np.minimum(bits, high - 1).astype(np.uint32).view(np.float32)
            table = (ctypes.c_void_p * 2)(x.ctypes.data, out.ctypes.data)
            run(ctypes.addressof(table), 0, kernel.items)
            exact = FUNCTIONS[name](x.astype(np.float64))
            unit = 2.0**-24 * np.abs(x.astype(np.float64))
            if name in ULPS:
                unit = np.spacing(
                    np.maximum(np.abs(exact.astype(np.float32)), np.float32(2.0**-126))
                )
            error = np.abs(out.astype(np.float64) - exact) / unit
            error[~np.isfinite(error)] = 0.0  # overflow, NaN: the tests' business
            place = int(error.argmax())
            found = max(found, (float(error[place]), float(x[place])))
    return found


def worst_float64(name: str, count: int) -> tuple[float, float]:
    """(largest error, argument) in ulps or, of what is stated so, in units of the argument."""
    from tests.numerics.exact import worst as worst_of
    from tests.numerics.test_float64 import samples

    x = samples(name, count, seed=11)
    per_argument = name in float64.ERROR_PER_ARGUMENT
    x = x[np.abs(x) < 1e100] if per_argument else x
    return worst_of(name, x, NumpyArith().call(name, x), per_argument)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--step", type=int, default=16)
    parser.add_argument("--float64", type=int, metavar="COUNT")
    chosen = parser.parse_args()
    failed = False
    wide = {**float64.ULPS, **float64.ERROR_PER_ARGUMENT}
    narrow = {**ULPS, **ERROR_PER_ARGUMENT}
    known = [n for n in (wide if chosen.float64 else narrow) if n != "pow"]
    with np.errstate(all="ignore"):
        for name in chosen.names or known:
            if chosen.float64:
                (error, place), stated = worst_float64(name, chosen.float64), wide[name]
            else:
                (error, place), stated = worst(name, chosen.step), narrow[name]
            failed |= error > stated
            relative = name in (
                float64.ERROR_PER_ARGUMENT if chosen.float64 else ERROR_PER_ARGUMENT
            )
            unit = f"of 2^-{53 if chosen.float64 else 24} |x|" if relative else "ulp"
            print(f"{name:12s} {error:.4f} {unit} at {place!r}, stated {stated}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

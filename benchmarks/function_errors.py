"""Measures the error of the canonical float32 functions on every float32, against float64.

Run: python benchmarks/function_errors.py [--step 16] [name ...]. Step 1 visits every number of
the range where a function is neither linear nor saturated (about a minute per function); a
larger step a random one of so many. Exits 1 if a stated error (`functions.ULPS`) is exceeded.
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
from verax.numerics.expr import trace
from verax.numerics.functions import ULPS
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
    """(largest error in ulps, argument)."""
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
            unit = np.spacing(np.maximum(np.abs(exact.astype(np.float32)), np.float32(2.0**-126)))
            error = np.abs(out.astype(np.float64) - exact) / unit
            error[~np.isfinite(error)] = 0.0  # overflow, NaN: the tests' business
            place = int(error.argmax())
            found = max(found, (float(error[place]), float(x[place])))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[n for n in ULPS if n != "pow"])
    parser.add_argument("--step", type=int, default=16)
    chosen = parser.parse_args()
    failed = False
    with np.errstate(all="ignore"):
        for name in chosen.names:
            error, place = worst(name, chosen.step)
            failed |= error > ULPS[name]
            print(f"{name:12s} {error:.4f} ulp at {place!r}, stated {ULPS[name]}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Times the loop and reduction kernels, one thread, beside PyTorch on the same arrays.

Run: python benchmarks/loops.py [name ...]. Best of many runs, arrays hot in cache where they fit.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.loops.loop import Access, Lookup, LoopSpec, emit_loop
from verax.compiler.kernels.reduce.rows import ReduceSpec, Stage, emit_reduce
from verax.compiler.kernels.target import Target
from verax.numerics.expr import Input, trace
from verax.runtime.engine import load_object

F = "float32"
X = Input(0, F)


def best(run: Callable[[], object], seconds: float = 0.3) -> float:
    """Shortest time of one call, in microseconds."""
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def native(emit: Callable[[ModuleBuilder], Kernel], arrays: list[np.ndarray]) -> float:
    """Microseconds of the emitted kernel on the arrays."""
    module = ModuleBuilder("bench", Target.host())
    kernel = emit(module)
    loaded = load_object(object_code(module))
    table = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    function = kind(loaded.address(kernel.name))
    return best(lambda: function(ctypes.addressof(table), 0, kernel.items))


def dense(*dims: int) -> tuple[int, ...]:
    return tuple(int(s) for s in np.cumprod((1, *dims[:0:-1]))[::-1])


def unary(name: str, n: int = 1 << 16) -> tuple[float, float]:
    expr = trace(lambda m, x: m.call(name, x), [F])
    spec = LoopSpec((n,), (Access(F, (1,)),), (Access(F, (1,)),), (expr,))
    x = np.random.default_rng(0).normal(size=n).astype(np.float32)
    t = torch.from_numpy(x)
    peer = {
        "exp": torch.exp, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf,
        "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu, "log": torch.log,
        "mish": torch.nn.functional.mish, "softplus": torch.nn.functional.softplus,
        "sin": torch.sin, "atan": torch.atan, "log1p": torch.log1p, "expm1": torch.expm1,
    }[name]  # fmt: skip
    return native(lambda m: emit_loop(m, spec), [x, np.empty_like(x)]), best(lambda: peer(t))


def pow_(n: int = 1 << 16) -> tuple[float, float]:
    expr = trace(lambda m, x, y: m.pow(x, y), [F, F])
    a = Access(F, (1,))
    spec = LoopSpec((n,), (a, a), (a,), (expr,))
    x = np.random.default_rng(0).uniform(0.1, 3, size=n).astype(np.float32)
    t = torch.from_numpy(x)
    ours = native(lambda m: emit_loop(m, spec), [x, x, np.empty_like(x)])
    return ours, best(lambda: torch.pow(t, t))


def add(n: int) -> tuple[float, float]:
    expr = trace(lambda m, x, y: m.add(x, y), [F, F])
    a = Access(F, (1,))
    spec = LoopSpec((n,), (a, a), (a,), (expr,))
    x, y, out = (np.ones(n, np.float32) for _ in range(3))
    t, u, o = (torch.from_numpy(a) for a in (x, y, out))
    ours = native(lambda m: emit_loop(m, spec), [x, y, out])
    return ours, best(lambda: torch.add(t, u, out=o))


def transpose(dims: tuple[int, ...], order: tuple[int, ...]) -> tuple[float, float]:
    source, out = dense(*dims), tuple(dims[d] for d in order)
    spec = LoopSpec(
        out, (Access(F, tuple(source[d] for d in order)),), (Access(F, dense(*out)),), (X,)
    )
    x = np.random.default_rng(0).normal(size=dims).astype(np.float32)
    t = torch.from_numpy(x)
    target = torch.empty(out)
    ours = native(lambda m: emit_loop(m, spec), [x, np.empty(out, np.float32)])
    return ours, best(lambda: target.copy_(t.permute(order)))


def softmax(dims: tuple[int, ...], axis: int) -> tuple[float, float]:
    strides = dense(*dims)
    outer = [d for d in range(len(dims)) if d != axis]
    access = Access(F, (*(strides[d] for d in outer), strides[axis]))
    exp = trace(lambda m, x, top: m.exp(m.sub(x, top)), [F] * 2)
    share = trace(lambda m, x, top, s: m.div(m.exp(m.sub(x, top)), s), [F] * 3)
    spec = ReduceSpec(
        tuple(dims[d] for d in outer), (dims[axis],), (access,),
        (Stage("max", X), Stage("sum", exp)), (), ((access, share),),
    )  # fmt: skip
    x = np.random.default_rng(0).normal(size=dims).astype(np.float32)
    t = torch.from_numpy(x)
    ours = native(lambda m: emit_reduce(m, spec), [x, np.empty_like(x)])
    return ours, best(lambda: torch.softmax(t, axis))


def average_pool(c: int, h: int, w: int, border: int) -> tuple[float, float]:
    row = (w + 2 * border) * 16
    block = (h + 2 * border) * row
    mean = trace(lambda m, x, s: m.div(s, m.const(h * w, F)), [F, F])
    spec = ReduceSpec(
        (c // 16, 16), (h, w), (Access(F, (block, 1, row, 16), border * (row + 16)),),
        (Stage("sum", X, mean),), ((Access(F, (16, 1)), Input(1, F)),),
    )  # fmt: skip
    x = np.random.default_rng(0).normal(size=c // 16 * block).astype(np.float32)
    t = torch.zeros(1, c, h, w).to(memory_format=torch.channels_last)
    ours = native(lambda m: emit_reduce(m, spec), [x, np.empty(c, np.float32)])
    return ours, best(lambda: t.mean((2, 3)))


def nearest(c: int, h: int, w: int, blocked: bool) -> tuple[float, float]:
    """Resize by two, through index tables."""
    lanes = 16 if blocked else 1
    dims = (c // lanes, 2 * h, 2 * w, lanes)
    rows, columns = (Lookup(1, h, w * lanes, False), Lookup(2, w, lanes, False))
    source = Access(F, (h * w * lanes, 0, 0, 1 if blocked else 0), 0, (rows, columns))
    tables = (Access("int32", (0, 1, 0, 0)), Access("int32", (0, 0, 1, 0)))
    spec = LoopSpec(dims, (source, *tables), (Access(F, dense(*dims)),), (X,))
    x = np.random.default_rng(0).normal(size=(1, c, h, w)).astype(np.float32)
    t = torch.from_numpy(x)
    y = [np.arange(2 * n, dtype=np.int32) // 2 for n in (h, w)]
    ours = native(lambda m: emit_loop(m, spec), [x, *y, np.empty(x.size * 4, np.float32)])
    return ours, best(lambda: torch.nn.functional.interpolate(t, scale_factor=2))


def strided(c: int, h: int, w: int) -> tuple[float, float]:
    """x[:, ::2, ::2]."""
    out = (c, h // 2, w // 2)
    spec = LoopSpec(out, (Access(F, (h * w, 2 * w, 2)),), (Access(F, dense(*out)),), (X,))
    x = np.random.default_rng(0).normal(size=(c, h, w)).astype(np.float32)
    t, target = torch.from_numpy(x), torch.empty(out)
    ours = native(lambda m: emit_loop(m, spec), [x, np.empty(out, np.float32)])
    return ours, best(lambda: target.copy_(t[:, ::2, ::2]))


def embedding(rows: int, width: int, k: int) -> tuple[float, float]:
    """Rows picked by a run-time index, checked."""
    spec = LoopSpec(
        (k, width), (Access(F, (0, 1), 0, (Lookup(1, rows, width),)), Access("int64", (1, 0))),
        (Access(F, (width, 1)),), (X,),
    )  # fmt: skip
    x = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)
    index = np.random.default_rng(0).integers(0, rows, k)
    t, i = torch.from_numpy(x), torch.from_numpy(index)
    arrays = [x, index, np.empty((k, width), np.float32), np.zeros(1, np.int32)]
    return native(lambda m: emit_loop(m, spec), arrays), best(lambda: t[i])


def depth_to_space(c: int, h: int, w: int) -> tuple[float, float]:
    dims = (c, h, 2, w, 2)
    source = dense(2, 2, c, h, w)
    access = Access(F, (source[2], source[3], source[0], 1, source[1]))
    spec = LoopSpec(dims, (access,), (Access(F, dense(*dims)),), (X,))
    x = np.random.default_rng(0).normal(size=(1, 4 * c, h, w)).astype(np.float32)
    t = torch.from_numpy(x)
    ours = native(lambda m: emit_loop(m, spec), [x, np.empty_like(x)])
    return ours, best(lambda: torch.nn.functional.pixel_shuffle(t, 2))


CASES: dict[str, Callable[[], tuple[float, float]]] = {
    **{n: (lambda n=n: unary(n)) for n in (
        "exp", "expm1", "sigmoid", "tanh", "erf", "gelu", "silu", "mish", "softplus", "log",
        "sin", "atan", "log1p")},
    "pow": pow_,
    "add 4k": lambda: add(1 << 12),
    "add 64k": lambda: add(1 << 16),
    "add 4M": lambda: add(1 << 22),
    "transpose 512x512": lambda: transpose((512, 512), (1, 0)),
    "nchw->nhwc 64x56x56": lambda: transpose((1, 64, 56, 56), (0, 2, 3, 1)),
    "nchw->nhwc 3x224x224": lambda: transpose((1, 3, 224, 224), (0, 2, 3, 1)),
    "nhwc->nchw 224x224x3": lambda: transpose((1, 224, 224, 3), (0, 3, 1, 2)),
    "planar->blocked 64x56x56": lambda: transpose((4, 16, 56, 56), (0, 2, 3, 1)),
    "blocked->planar 64x56x56": lambda: transpose((4, 56, 56, 16), (0, 3, 1, 2)),
    "shuffle 116x28x28": lambda: transpose((2, 58, 784), (1, 0, 2)),
    "nearest 64x28x28 planar": lambda: nearest(64, 28, 28, False),
    "nearest 64x28x28 blocked": lambda: nearest(64, 28, 28, True),
    "slice ::2 64x56x56": lambda: strided(64, 56, 56),
    "embedding 1000x256": lambda: embedding(5000, 256, 1000),
    "depth to space 16x32x32": lambda: depth_to_space(16, 32, 32),
    "softmax 1x1000": lambda: softmax((1, 1000), 1),
    "softmax 512x512": lambda: softmax((512, 512), 1),
    "softmax 21x4096 over channels": lambda: softmax((1, 21, 4096), 1),
    "softmax 4420x2": lambda: softmax((4420, 2), 1),
    "mean 2048x7x7": lambda: average_pool(2048, 7, 7, 0),
    "mean 2048x7x7 bordered": lambda: average_pool(2048, 7, 7, 1),
    "mean 96x112x112 bordered": lambda: average_pool(96, 112, 112, 1),
    "mean 96x14x14 bordered": lambda: average_pool(96, 14, 14, 1),
}  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, case in CASES.items():
        if len(sys.argv) < 2 or any(a in name for a in sys.argv[1:]):
            ours, theirs = case()
            print(f"{name:34s} {ours:9.1f} us   torch {theirs:9.1f} us   {theirs / ours:5.2f}x")

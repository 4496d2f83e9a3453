"""Runs single kernels on small tensors, and computes what they must give, in canonical order."""

from __future__ import annotations

import ctypes
import itertools
import math
from dataclasses import dataclass

import numpy as np

from verax.compiler.kernels.layout import Strides, blocked_strides, planar_strides
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.target import Target
from verax.numerics.fma import fma32
from verax.runtime.engine import load_object

TARGETS = [t for t in (Target.avx512(), Target.avx2(), Target.aarch64()) if t.runs_here()]
Border = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
NO_BORDER: Border = ((0, 0), (0, 0), (0, 0))
GUARD = 64  # elements around a buffer that must stay as they are


@dataclass
class Tensor:
    """A physical buffer: `memory` with guards, `strides`, and where its first element lies."""

    memory: np.ndarray
    strides: Strides
    origin: int
    shape: tuple[int, ...]

    @property
    def address(self) -> int:
        return self.memory.ctypes.data + 4 * self.origin

    def index(self) -> np.ndarray:
        """Position in `memory` of every logical element."""
        n, c, *space = (np.arange(e) for e in self.shape)
        s = self.strides
        axes = [n * s.batch, c // 16 * s.block + c % 16 * s.lane]
        axes += [i * step for i, step in zip(space, s.space)]
        return self.origin + sum(
            a.reshape([-1 if i == j else 1 for j in range(5)]) for i, a in enumerate(axes)
        )

    def read(self) -> np.ndarray:
        return self.memory[self.index()]


def tensor(values: np.ndarray, border: Border = NO_BORDER, planar: bool = False) -> Tensor:
    """`values` (N, C, D, H, W) in memory: border 0, lanes beyond the channels NaN."""
    n, c, *size = values.shape
    strides = (planar_strides if planar else blocked_strides)(c, tuple(size), border)
    first = sum(b * s for (b, _), s in zip(border, strides.space))
    memory = np.zeros(n * strides.batch + 2 * GUARD, np.float32)
    made = Tensor(memory, strides, GUARD + first, values.shape)
    if not planar and c % 16:
        whole = Tensor(memory, strides, made.origin, (n, -(-c // 16) * 16, *size))
        memory[whole.index()] = np.nan
    memory[made.index()] = values
    return made


def empty(shape: tuple[int, ...], border: Border = NO_BORDER, planar: bool = False) -> Tensor:
    """An output buffer, full of a sentinel that no kernel produces."""
    made = tensor(np.zeros(shape, np.float32), border, planar)
    made.memory[:] = 12345.0
    return made


def untouched_outside(t: Tensor) -> bool:
    """Whether everything but the logical elements (and their block's spare lanes) is as it was."""
    mask = np.ones(t.memory.size, bool)
    n, c, *size = t.shape
    lanes = c if t.strides.lane != 1 else -(-c // 16) * 16
    mask[Tensor(t.memory, t.strides, t.origin, (n, lanes, *size)).index()] = False
    return bool((t.memory[mask] == 12345.0).all())


def run(module: ModuleBuilder, kernel: Kernel, *addresses: int, parts: int = 1) -> None:
    """Execute all work items, in `parts` calls."""
    loaded = load_object(object_code(module))
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        loaded.address(kernel.name)
    )
    table = np.array(addresses, np.uint64)
    edges = [kernel.items * i // parts for i in range(parts + 1)]
    for begin, end in reversed(list(itertools.pairwise(edges))):
        call(table.ctypes.data, begin, end)
    loaded.close()


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool((a.view(np.int32) == b.view(np.int32)).all())


def conv_oracle(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    output: tuple[int, ...],
    groups: int = 1,
) -> np.ndarray:
    """Convolution in the canonical order. x: (N, C, D, H, W), w: (K, C / groups, kd, kh, kw)."""
    n, k = x.shape[0], w.shape[0]
    cg, kg = w.shape[1], k // groups
    size = x.shape[2:]
    after = [
        max(0, (o - 1) * s + (kk - 1) * d - p + 1 - e)
        for o, s, kk, d, p, e in zip(output, strides, w.shape[2:], dilations, pads, size)
    ]
    padded = np.pad(x, [(0, 0), (0, 0), *zip(pads, after)])
    out = np.zeros((n, k, *output), np.float32)
    if bias is not None:
        out += bias.reshape(1, -1, 1, 1, 1)
    for g in range(groups):
        acc = out[:, g * kg : (g + 1) * kg]
        for first in range(0, cg, 16):
            for taps in itertools.product(*map(range, w.shape[2:])):
                window = tuple(
                    slice(t * d, t * d + (o - 1) * s + 1, s)
                    for t, d, o, s in zip(taps, dilations, output, strides)
                )
                for c in range(first, min(first + 16, cg)):
                    plane = padded[:, g * cg + c][(slice(None), *window)][:, None]
                    weight = w[(slice(g * kg, (g + 1) * kg), c, *taps)]
                    acc[...] = fma32(plane, weight.reshape(1, -1, 1, 1, 1), acc)
    return out


def deconv_oracle(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    output: tuple[int, ...],
    groups: int = 1,
) -> np.ndarray:
    """Transposed convolution in the canonical order. w: (C, K / groups, kd, kh, kw)."""
    n, channels = x.shape[:2]
    cg, kg = channels // groups, w.shape[1]
    out = np.zeros((n, kg * groups, *output), np.float32)
    if bias is not None:
        out += bias.reshape(1, -1, 1, 1, 1)
    zero = np.zeros((n, 1), np.float32)
    for place in itertools.product(*map(range, output)):
        for g in range(groups):
            acc = out[(slice(None), slice(g * kg, (g + 1) * kg), *place)]
            for first in range(0, cg, 16):
                for taps in itertools.product(*map(range, w.shape[2:])):
                    far = [o + p - t * d for o, p, t, d in zip(place, pads, taps, dilations)]
                    if any(f % s for f, s in zip(far, strides)):
                        continue
                    where = [f // s for f, s in zip(far, strides)]
                    inside = all(0 <= i < e for i, e in zip(where, x.shape[2:]))
                    for c in range(g * cg + first, g * cg + min(first + 16, cg)):
                        value = x[(slice(None), c, *where)][:, None] if inside else zero
                        acc[...] = fma32(value, w[(c, slice(None), *taps)][None], acc)
    return out


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Values of both signs whose sums round."""
    return rng.standard_normal(shape).astype(np.float32)


def output_size(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    pads: tuple[int, ...],
    after: tuple[int, ...],
) -> tuple[int, ...]:
    return tuple(
        (e + p + a - (k - 1) * d - 1) // s + 1
        for e, k, s, d, p, a in zip(size, kernel, strides, dilations, pads, after)
    )


def product(values: tuple[int, ...]) -> int:
    return math.prod(values)

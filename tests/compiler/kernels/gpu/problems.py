"""Products and convolutions of odd sizes with data, for every tile."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.compiler.kernels import harness as h
from tests.compiler.kernels.gpu.emulation import UNTOUCHED, Problem, aligned, numbers
from tests.compiler.kernels.test_conv import Case

from verax.compiler.kernels.convolution.emit import pack_conv_weights
from verax.compiler.kernels.convolution.pack import pack_channels
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.gpu.tiles import TILES, TileSchedule
from verax.compiler.kernels.layout import Epilogue, Operand, Strides
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix, pack_b, tensor_operand
from verax.numerics import functions
from verax.numerics.expr import trace

SMALL_TILES = tuple(t for t in TILES if t.pixels * t.filters <= 64 * 32)
"""Those whose code LLVM makes in less than half a second."""
GUARD = 48
"""Elements around a result that stay as they are."""

EPILOGUES = {
    "": None,
    "relu": trace(lambda m, acc, r: functions.relu(m, m.add(acc, r)), ["float32"] * 2),
    "gelu": trace(lambda m, acc, r: functions.gelu(m, m.add(acc, r)), ["float32"] * 2),
    "float16": trace(
        lambda m, acc, r: m.convert(m.add(acc, m.convert(r, "float32")), "float16"),
        ["float32", "float16"],
    ),
    "bfloat16": trace(
        lambda m, acc, r: m.convert(m.add(acc, m.convert(r, "float32")), "bfloat16"),
        ["float32", "bfloat16"],
    ),
}
"""Expressions over a sum and one operand."""
_MEMORY = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(np.int16)}


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values as memory holds them."""
    if dtype == "bfloat16":
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.int16)
    with np.errstate(over="ignore"):
        return values.astype(_MEMORY.get(dtype, np.float32))


tiles = st.sampled_from(SMALL_TILES)


def of_zeros() -> Problem:
    """A product whose sums are zeros of both signs: -0 where all weights of a sum are positive."""
    problem = Product(5, 37, 3, bias="full", seed=11).problem()
    for array in (problem.before[0], problem.after[0]):
        assert isinstance(array, np.ndarray)
        array[...] = -0.0
    signs = np.signbit(problem.on_cpu()[GUARD:-GUARD])
    assert signs.any() and not signs.all()
    return problem


@dataclasses.dataclass(frozen=True)
class Product:
    """A product to be made. bias: "", "column", "row" or "full"; shared: the factor that all images
    of a batch have; offsets: elements by which a, and y, are off a multiple of 64 bytes."""

    m: int
    n: int
    k: int
    outer: int = 1
    inner: int = 1
    shared: str = ""
    bias: str = ""
    constant: bool = True
    transposed: bool = False
    epilogue: str = ""
    offsets: tuple[int, int] = (0, 0)
    special: float = 0.0
    seed: int = 0

    def problem(self) -> Problem:
        rng = np.random.default_rng(self.seed)
        m, n, k, outer, inner = self.m, self.n, self.k, self.outer, self.inner
        batch = (1, 1) if self.shared == "a" else (outer, inner)
        shape = (*batch, k, m) if self.transposed else (*batch, m, k)
        a = aligned(numbers(rng, *shape, special=self.special), self.offsets[0])
        b = numbers(rng, outer, inner, k, n, special=self.special)
        rows = (1, m) if self.transposed else (k, 1)
        steps = (0, 0) if self.shared == "a" else (inner * m * k, m * k)
        full = Matrix(n, 1, inner * m * n, m * n)
        starts = {"column": (1, 1, 1, n), "row": (1, 1, m, 1), "full": (outer, inner, m, n)}
        start = numbers(rng, *starts[self.bias]) if self.bias else None
        spec = GemmSpec(
            m, n, k, Matrix(*rows, *steps), full, outer, inner, self.constant,
            {"": "", "column": "column"}.get(self.bias, "matrix"),
            {"row": Matrix(1, 0), "full": full}.get(self.bias), types=FLOAT32,
        )  # fmt: skip
        after: list[Any] = []
        if start is not None:
            after.append(pack_channels(start) if self.bias == "column" else start)
        kind = "float32"
        expr = EPILOGUES[self.epilogue]
        if expr is not None:
            kind = expr.dtype
            operand = tensor_operand(spec, full, kind)
            types = dataclasses.replace(FLOAT32, y=kind)
            spec = dataclasses.replace(spec, epilogue=Epilogue(expr, (operand,)), types=types)
            after.append(stored(numbers(rng, outer, inner, m, n), kind))

        def packed(spec: Any, schedule: Any) -> np.ndarray:
            if self.constant:
                return pack_b(b[0, 0], spec, schedule)
            pieces = [pack_b(b[i, j], spec, schedule) for i in range(outer) for j in range(inner)]
            return np.concatenate(pieces)

        memory = np.full(outer * inner * m * n + 2 * GUARD, UNTOUCHED, np.float32)
        origin = GUARD + self.offsets[1]
        return Problem(spec, packed, [a], after, stored(memory, kind), origin)


@st.composite
def products(draw: st.DrawFn) -> Product:
    m, n, k = (draw(st.integers(1, limit)) for limit in (41, 83, 70))
    if draw(st.booleans()):  # what 16 bytes divide
        n, k = 4 * -(-n // 4), 4 * -(-k // 4)
    return Product(
        m,
        n,
        k,
        draw(st.integers(1, 3)),
        draw(st.integers(1, 2)),
        draw(st.sampled_from(["", "a"])),
        draw(st.sampled_from(["", "column", "row", "full"])),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.sampled_from(list(EPILOGUES))),
        draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (2, 3)])),
        draw(st.sampled_from([0.0, 0.0, 0.2])),
        draw(st.integers(0, 99)),
    )


LAYOUTS = ("blocked", "planar", "pixels")


def pixel_tensor(values: np.ndarray, border: h.Border) -> h.Tensor:
    """`values` (N, C, D, H, W) with channels next to one another, whatever their number."""
    n, c, *size = values.shape
    d, height, w = (e + sum(b) for e, b in zip(size, border, strict=True))
    strides = Strides(d * height * w * c, 16, height * w * c, w * c, c, 1)
    first = sum(b * s for (b, _), s in zip(border, strides.space, strict=True))
    memory = np.zeros(n * strides.batch + 2 * h.GUARD, np.float32)
    made = h.Tensor(memory, strides, h.GUARD + first, values.shape)
    memory[made.index()] = values
    return made


def convolution(case: Case, layout: str = "blocked", epilogue: str = "", shift: int = 0) -> Problem:
    """shift: elements by which the data are off a multiple of 64 bytes."""
    probe = h.blocked_strides(1, (1, 1, 1))
    need = case.spec(probe, probe).border(case.x.shape[2:])
    if layout == "pixels":
        x = pixel_tensor(case.x, need)
    else:
        x = h.tensor(case.x, need, layout == "planar")
    filters = case.spec(probe, probe).filters
    shape = (case.x.shape[0], filters, *case.output)
    y = h.empty(shape, ((0, 0), (1, 2), (2, 1)))
    spec = case.spec(x.strides, y.strides)
    after: list[Any] = [] if case.bias is None else [pack_channels(case.bias)]
    rng, kind, expr = np.random.default_rng(5), "float32", EPILOGUES[epilogue]
    if expr is not None:
        kind = expr.dtype
        residual = h.tensor(h.random(rng, *shape))
        memory = aligned(stored(residual.memory, kind))
        after.append(memory.ctypes.data + residual.origin * memory.itemsize)
        operand = Operand("tensor", residual.strides, dtype=kind)
        types = dataclasses.replace(FLOAT32, y=kind)
        spec = dataclasses.replace(spec, epilogue=Epilogue(expr, (operand,)), types=types)
        _KEPT.append(memory)
    lanes = h.Tensor(y.memory, y.strides, y.origin, (shape[0], -(-filters // 16) * 16, *shape[2:]))
    spare = np.setdiff1d(lanes.index().ravel(), y.index().ravel())
    data = aligned(x.memory, shift)
    _KEPT.append(data)
    before: list[Any] = [data.ctypes.data + 4 * x.origin]

    def packed(spec: Any, schedule: Any) -> np.ndarray:
        return pack_conv_weights(case.w, spec, schedule)

    return Problem(spec, packed, before, after, stored(y.memory, kind), y.origin, ignored=spare)


_KEPT: list[np.ndarray] = []
"""Memory whose addresses problems hold."""


def tile(pixels: int, filters: int) -> TileSchedule:
    """The first of that size."""
    return next(t for t in TILES if (t.pixels, t.filters) == (pixels, filters))

"""Small models with variables behind handles, sparse weights, complex numbers, and MediaPipe's
own operator."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.frontends.from_tflite.tflite_writer import (
    Case,
    Op,
    Sparsity,
    T,
    const,
    model,
    one,
    several,
)

FIRST = np.linspace(-1.0, 2.0, 12).reshape(1, 4, 3).astype(np.float32)
ONCE = Op("CALL_ONCE", [], [], {"init_subgraph_index": 1})


def handle(name: str, to: int) -> Op:
    return Op("VAR_HANDLE", [], [to], {"container": "", "shared_name": name})


def filling(array: np.ndarray = FIRST, name: str = "past") -> tuple:
    tensors = [T((), "a resource", name="r"), const(array)]
    return (tensors, [handle(name, 0), Op("ASSIGN_VARIABLE", [0, 1], [])], [], [])


def stream(ops: list[Op] | None = None, more: tuple | None = None) -> bytes:
    """Keeps the last four rows: y is the sum over the past and the two new rows, weighted."""
    tensors = [
        T((1, 2, 3), name="x"),
        T((), "a resource", name="past"),
        T((1, 4, 3), name="read"),
        T((1, 6, 3), name="joined"),
        const(np.array([0, 2, 0], np.int32)),
        const(np.array([1, 4, 3], np.int32)),
        T((1, 4, 3), name="kept"),
        const(np.linspace(0.5, 1.75, 18).reshape(1, 6, 3).astype(np.float32)),
        T((1, 6, 3), name="weighted"),
        const(np.array([1], np.int32)),
        T((1, 3), name="y"),
    ]
    made = [
        ONCE,
        handle("past", 1),
        Op("READ_VARIABLE", [1], [2]),
        Op("CONCATENATION", [2, 0], [3], {"axis": 1}),
        Op("SLICE", [3, 4, 5], [6]),
        Op("ASSIGN_VARIABLE", [1, 6], []),
        Op("MUL", [3, 7], [8]),
        Op("SUM", [8, 9], [10], {"keep_dims": False}),
    ]
    return model(tensors, made if ops is None else ops, [0], [10], more=[more or filling()])


BLOCKED = np.zeros((4, 6), np.float32)
BLOCKED[0, 2:4] = 1.5, -2.0
BLOCKED[1, 2:4] = 0.25, 3.0
BLOCKED[2, 4:6] = -7.0, 8.0
BLOCKED[3, 4:6] = 9.0, 0.5
ROWS = np.array([[0, 3, 0], [0, 0, 0], [5, 0, -4], [0, 0, 7]], np.float32)
SPARSE = {
    "rows": (ROWS, [3, 5, -4, 7], Sparsity([0, 1], [4, ([0, 1, 1, 3, 4], [1, 0, 2, 2])])),
    "nothing": (0 * ROWS, [], Sparsity([0, 1], [4, ([0, 0, 0, 0, 0], [])])),
    "bytes as indices": (
        ROWS,
        [3, 5, -4, 7],
        Sparsity([0, 1], [4, ([0, 1, 1, 3, 4], [1, 0, 2, 2])], index="uint8"),
    ),
    "columns": (
        ROWS,
        [5, 3, -4, 7],
        Sparsity([1, 0], [3, ([0, 1, 2, 4], [2, 0, 2, 3])], index="uint16"),
    ),
    "blocks": (
        BLOCKED,
        [1.5, -2, 0.25, 3, -7, 8, 9, 0.5],
        Sparsity([0, 1, 2, 3], [2, ([0, 1, 2], [1, 2]), 2, 2], [0, 1]),
    ),
}


def densified(dims: tuple[int, ...], values: np.ndarray, sparsity: Sparsity) -> bytes:
    """y = x + densified weights."""
    scale = ([0.5], [0]) if values.dtype == np.int8 else ((), ())
    weights = T(dims, values.dtype.name, values, *scale, sparsity=sparsity)
    full = T(dims, values.dtype.name, None, *scale)
    tensors = [T(dims, name="x"), weights, full, T(dims, name="y")]
    ops = [Op("DENSIFY", [1], [2]), Op("ADD", [0, 2], [3])]
    if values.dtype != np.float32:
        tensors.append(T(dims))
        ops[1:] = [Op("DEQUANTIZE", [2], [4]), Op("ADD", [0, 4], [3])]
    return model(tensors, ops, [0], [3])


def delayed() -> bytes:
    """Bytes: y is what the call before was given."""

    def image(name: str) -> T:
        return T((1, 2, 3), "int8", None, [0.25], [-7], name=name)

    sizes = const(np.array([3, 2], np.int32))
    y = T((3, 2), "int8", None, [0.25], [-7], name="y")
    tensors = [image("x"), T((), "a resource", name="past"), image("read"), sizes, y]
    ops = [ONCE, handle("past", 1), Op("READ_VARIABLE", [1], [2]), Op("RESHAPE", [2, 3], [4])]
    first = np.arange(-3, 3, dtype=np.int8).reshape(1, 2, 3)
    ops.append(Op("ASSIGN_VARIABLE", [1, 0], []))
    return model(tensors, ops, [0], [4], more=[filling(first)])


def upsampled(
    kernel: tuple[int, int], strides: tuple[int, int], padding: str, own: bool, more: bytes = b""
) -> bytes:
    """A transposed convolution with bias, by MediaPipe's operator (own) or by LiteRT's, whose
    output's shape the file states. strides: of rows and of columns. more: behind the options."""
    rng = np.random.default_rng(64)
    weights = const(rng.standard_normal((5, *kernel, 3)).astype(np.float32))
    bias = const(rng.standard_normal(5).astype(np.float32))
    over = [0 if padding == "SAME" else k - s for k, s in zip(kernel, strides)]
    sizes = [n * s + o for n, s, o in zip((4, 6), strides, over)]
    shape = const(np.array([2, *sizes, 5], np.int32))
    x, y = T((2, 4, 6, 3), name="x"), T((2, *sizes, 5), name="y")
    if own:
        words = [1 if padding == "SAME" else 2, strides[1], strides[0]]
        options = np.array(words, np.int32).tobytes() + more
        return several("Convolution2DTransposeBias", [x, weights, bias], [y], custom=options)
    options = {"padding": padding, "stride_h": strides[0], "stride_w": strides[1]}
    return one("TRANSPOSE_CONV", [shape, weights, x, bias], y, 3, **options)


def pool_options(
    padding: int, strides: tuple[int, int], window: tuple[int, int], activation: int = 0
) -> bytes:
    """MediaPipe's options of pools; strides and window are of rows and of columns."""
    words = [padding, strides[1], strides[0], window[1], window[0], activation, 0, 0, 0, 0]
    return np.array(words, np.int32).tobytes()


def pooled_with_positions(
    padding: int = 1,
    strides: tuple[int, int] = (2, 3),
    window: tuple[int, int] = (3, 2),
    activation: int = 0,
) -> bytes:
    """The largest elements of windows and their positions, by MediaPipe's operator."""
    options = pool_options(padding, strides, window, activation)
    results = [T((), name="y0"), T((), name="y1")]  # converters record custom results as scalars
    return several("MaxPoolingWithArgmax2D", [T((2, 7, 8, 3))], results, custom=options)


def unpooled(options: bytes = pool_options(1, (2, 3), (2, 3))) -> bytes:
    """Elements put back where a pool found them, by MediaPipe's operator."""
    operands = [T((2, 3, 4, 5)), T((2, 3, 4, 5))]
    return several("MaxUnpooling2D", operands, [T((), name="y")], custom=options)


def transformed(
    kind: str, size: int = 16, sizes: tuple[int, int] | None = None, moved: bool = True
) -> bytes:
    """y = a real number of each bin of x's rows, the complex result moved before: COMPLEX_ABS,
    REAL, IMAG, CAST (the real part), or NEG, which is not read."""
    bins, shape = size // 2 + 1, const(np.array(sizes or (1, size), np.int32))
    tensors = [
        T((2, 3, 1, size), name="x"),
        shape,
        T((2, 3, 1, bins), "complex64"),
        T((2, 3, bins), "complex64"),
        const(np.array([2, 0, 1], np.int32)),
        T((bins, 2, 3), "complex64"),
        T((bins, 2, 3), name="y"),
    ]
    types = {"in_data_type": "complex64", "out_data_type": "float32"}
    ops = [
        Op("RFFT2D", [0, 1], [2]),
        Op("SQUEEZE", [2], [3], {"squeeze_dims": (2,)}),
        Op("TRANSPOSE", [3, 4], [5], version=4),
        Op(kind, [5], [6], types if kind == "CAST" else {}),
    ]
    if not moved:
        tensors[6].shape, ops[1:] = (2, 3, 1, bins), [Op(kind, [2], [6])]
    return model(tensors, ops, [0], [6])


def resource_cases() -> Iterator[Case]:
    """(label, model) in a fixed order."""
    yield "Convolution2DTransposeBias", upsampled((2, 2), (2, 2), "SAME", own=True)
    yield "MaxPoolingWithArgmax2D", pooled_with_positions()
    yield "MaxUnpooling2D", unpooled()
    for kind in ("COMPLEX_ABS", "REAL", "IMAG", "CAST"):
        yield f"RFFT2D {kind}", transformed(kind)
    yield "VAR_HANDLE", stream()
    yield "VAR_HANDLE int8", delayed()
    right, values, sparsity = SPARSE["rows"]
    yield "DENSIFY int8", densified(right.shape, np.int8(values), sparsity)
    for name, (right, values, sparsity) in SPARSE.items():
        yield f"DENSIFY {name}", densified(right.shape, np.float32(values), sparsity)

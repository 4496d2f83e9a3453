"""TFLite's Fourier transform, whose complex result is two tensors (see `complex_parts`)."""

from __future__ import annotations

from verax.frontends.common.channels_last import constant_ints, static_dims
from verax.frontends.common.context import Conversion, Result
from verax.frontends.common.fourier import on_parts
from verax.frontends.tflite.rows import row


@row("RFFT2D")
def rfft2d(c: Conversion) -> Result:
    """Operands: rows [..., 1, n], the transform's sizes (1, n). Results: real and imaginary parts
    of the bins [..., 1, n // 2 + 1]."""
    dims, sizes = static_dims(c, 0, "the rows"), constant_ints(c, 1, "the sizes")
    if len(dims) < 2 or tuple(dims[-2:]) != tuple(sizes) or sizes[0] != 1:
        c.refuse(
            f"a transform of sizes {list(sizes)} of {c.type(0)} is not supported; one along rows "
            "of its own size is"
        )
    y, imaginary = on_parts(
        c, (c.required(0), None), len(dims) - 1, int(sizes[1]), -1, onesided=True
    )
    return c.named([y, str(imaginary)])


@row("REAL", "IMAG")
def real_or_imaginary(c: Conversion) -> Result:
    return c.result("Identity", [c.required(0)])


@row("COMPLEX_ABS")
def size_of_pair(c: Conversion) -> Result:
    """Operands: real and imaginary parts."""
    squares = [c.add("Mul", [c.required(i)] * 2) for i in range(2)]
    return c.result("Sqrt", [c.add("Add", squares)])

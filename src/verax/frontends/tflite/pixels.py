"""What TFLite's own metadata says of image inputs.

The buffer that a metadata entry called TFLITE_METADATA points to is a FlatBuffer of its own
("M001", metadata_schema.fbs of TensorFlow Lite Support). Normalization there speaks of bytes: a
float input takes (pixel - mean) / std of pixels 0..255.
"""

from __future__ import annotations

from collections.abc import Sequence

from verax.base.errors import ModelError
from verax.frontends.tflite.flatbuffer import FlatbufferTable, root
from verax.ir.pixels import Pixels

ENTRY, IDENTIFIER = "TFLITE_METADATA", b"M001"
IMAGE, NORMALIZATION = 2, 1
"""Numbers in the unions of contents and of process units."""
COLORS = {1: "RGB", 2: "GRAY"}
MOST = 64
"""Process units of an input, and channels, that are looked at."""


def read_pixels(data: memoryview, inputs: Sequence[str]) -> dict[str, str]:
    """Metadata lines `input NAME` of the inputs that are images, in the order of the graph's.

    A damaged buffer says so in a line of its own: nothing that is computed depends on it.
    """
    try:
        return _pixels(root(data, IDENTIFIER), inputs)
    except ModelError as error:
        return {ENTRY: f"cannot be read: {error.cause}"}


def _pixels(metadata: FlatbufferTable, inputs: Sequence[str]) -> dict[str, str]:
    graph = next(iter(metadata.tables(3)), None)
    lines = {}
    for name, tensor in zip(inputs, graph.tables(2) if graph else ()):
        content = tensor.table(3)
        if content is None or content.integer(0, "uint8") != IMAGE:
            continue
        properties = content.table(1)
        color = COLORS.get(properties.integer(0, "int8")) if properties else None
        mean, std = _normalization(tensor)
        pixels = Pixels("NHWC", color, 0.0, 255.0, mean, std)
        lines[f"input {name}"] = pixels.to_text()
    return lines


def _normalization(tensor: FlatbufferTable) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, std) of the first normalization among the process units; empty without one."""
    for _, unit in zip(range(MOST), tensor.tables(4)):
        options = unit.table(1)
        if unit.integer(0, "uint8") == NORMALIZATION and options is not None:
            mean, std = (
                tuple(float(v) for v in options.array(slot, "float32")[:MOST]) for slot in (0, 1)
            )
            return mean, std
    return (), ()

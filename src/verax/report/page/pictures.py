"""Pixels of a record as a PNG image, and its histogram as bars: only what is drawn, no judgement.

Records come from strangers: what is decompressed is bounded, and what does not fit is no picture.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from verax.records.network import ALLOWED_BIN, ALLOWED_LEVEL, BINS, ChannelErrors

MAX_PIXELS = 1 << 14
"""Of a picture; records are written with at most 3,136."""
MAX_TEXT = 1 << 16
NOTHING = (13, 17, 38)
WITHIN = (24, 34, 74), (38, 82, 136), (112, 182, 194)
BEYOND = (253, 218, 110), (235, 104, 48), (158, 8, 56)
"""Colors of pixels without error, of those up to what is allowed, from the smallest error in the
picture on, and of those beyond it, up to the largest one in the picture."""
MIN_RANGE = 12
"""Levels over which colors are spread at least, so that equal errors have nearly equal colors."""


@cache
def palette(low: int, high: int) -> bytes:
    """Red, green and blue of the 256 levels. low, high: the smallest and the largest level of the
    picture, without those of no error."""
    low = min(low, ALLOWED_LEVEL - MIN_RANGE)
    high = max(high, ALLOWED_LEVEL + MIN_RANGE)
    colors = bytearray(NOTHING)
    for level in range(1, 256):
        if level < ALLOWED_LEVEL:
            colors += _between(WITHIN, (level - low) / (ALLOWED_LEVEL - low))
        else:
            colors += _between(BEYOND, (level - ALLOWED_LEVEL) / (high - ALLOWED_LEVEL))
    return bytes(colors)


def _between(colors: Sequence[tuple[int, int, int]], share: float) -> bytes:
    """The color at a share, 0 to 1, of the way through some."""
    at = min(1.0, max(0.0, share)) * (len(colors) - 1)
    i = min(int(at), len(colors) - 2)
    return bytes(round(a + (at - i) * (b - a)) for a, b in zip(colors[i], colors[i + 1]))


def png_of(channel: ChannelErrors) -> str:
    """A `data:` address of a channel as a PNG image; "" where its pixels are not what they should
    be."""
    rows, columns = channel.rows, channel.columns
    if rows < 1 or columns < 1 or rows * columns > MAX_PIXELS or len(channel.levels) > MAX_TEXT:
        return ""
    try:
        packed = base64.b64decode(channel.levels, validate=True)
        pixels = zlib.decompressobj().decompress(packed, rows * columns + 1)
    except (binascii.Error, ValueError, zlib.error):
        return ""
    if len(pixels) != rows * columns:
        return ""
    lines = b"".join(b"\0" + pixels[r * columns : (r + 1) * columns] for r in range(rows))
    header = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)  # 8 bits, palette
    content = b"\x89PNG\r\n\x1a\n" + b"".join(
        _chunk(name, data)
        for name, data in (
            (b"IHDR", header),
            (b"PLTE", palette(min(filter(None, pixels), default=1), max(pixels))),
            (b"IDAT", zlib.compress(lines, 9)),
            (b"IEND", b""),
        )
    )
    return "data:image/png;base64," + base64.b64encode(content).decode()


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


@dataclass(frozen=True)
class Bar:
    """One bar of a histogram: its column, its height from 0 to 1, its count, whether it lies beyond
    what is allowed, and what it counts in words."""

    column: int
    height: float
    count: int
    is_beyond: bool
    text: str


def bars_of(histogram: Sequence[int]) -> tuple[Bar, ...]:
    """The bars that are not empty; heights are logarithms, so that a single element shows."""
    counts = [max(0, n) for n in histogram[:BINS]]
    longest = max((n.bit_length() for n in counts), default=0)
    return tuple(
        Bar(k, n.bit_length() / longest, n, k >= ALLOWED_BIN, f"{n:,} elements {range_of(k)}")
        for k, n in enumerate(counts)
        if n
    )


def range_of(k: int) -> str:
    """What bin k holds, in words."""
    if k == 0:
        return "without any error"
    if k == BINS - 1:
        return "infinite, not a number, or far beyond"
    if k == 1:
        return f"below {edge(2):.2g} of allowed"
    return f"from {edge(k):.3g} to {edge(k + 1):.3g} of allowed"


def edge(k: int) -> float:
    """Where bin k begins."""
    octave, half = divmod(k - ALLOWED_BIN, 2)
    return float(2.0**octave * (1.5 if half else 1.0))

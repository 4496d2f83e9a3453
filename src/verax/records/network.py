"""What a record holds of a network and of its errors, so that a report can draw both.

Bounded: attributes are cut, nodes beyond a limit are counted, and errors are reduced to a histogram
and to small pictures of the worst channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

BINS = 64
"""Bins of a histogram of error over allowed: see `ErrorDistribution`."""
ALLOWED_BIN = 41
"""The bin that begins at error = allowed."""
LEVELS_PER_OCTAVE = 6
"""Steps of a pixel for a factor of two of error over allowed."""
ALLOWED_LEVEL = 128
"""The pixel of an error that is exactly what is allowed."""
MAX_NODES = 20_000
"""Nodes that a record lists."""
MAX_TEXT = 160
"""Characters of an attribute or a type."""


@dataclass(frozen=True)
class OutlinedNode:
    """A node: its name, operator, values read ("" where omitted) and written, and attributes as
    text."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkOutline:
    """A network without its weights: enough to draw it.

    nodes: in an order in which they can be executed; types: of inputs, constants and values of
    those nodes, as text; omitted: nodes beyond `MAX_NODES`, which are not listed.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[OutlinedNode, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    omitted: int = 0


@dataclass(frozen=True)
class ChannelErrors:
    """Error over allowed in one channel, as pixels.

    index: position on the leading axes, () for the maximum over all channels; worst: the largest
    ratio in it; rows, columns: of the picture, each pixel the maximum of a block of elements.
    levels: base64 of the zlib-compressed pixels, one byte each, row by row: 0 for no error, else
    128 + 6 log2(ratio), rounded, at least 1 and at most 255 (also infinite).
    """

    index: tuple[int, ...]
    worst: float
    rows: int
    columns: int
    levels: str


@dataclass(frozen=True)
class ErrorDistribution:
    """How error over allowed is spread over the elements of one value.

    Allowed is the largest error that rounding of a single element shows in honest runs: the
    statistic of that element is at most 1. Where an operation is exact the ratio is 0 or infinite.
    shape: of the value. histogram: counts of elements in `BINS` bins: the first without error, the
    last infinite, not a number or too large; bin k of the others begins at 2 ** ((k - 41) / 2) for
    odd k, and at 1.5 times the begin of the bin before for even k. channels: the worst, the maximum
    over all first; empty where only the histogram is kept. axes: what rows and columns are.
    """

    value: str
    shape: tuple[int, ...]
    histogram: tuple[int, ...]
    channels: tuple[ChannelErrors, ...] = ()
    axes: str = ""

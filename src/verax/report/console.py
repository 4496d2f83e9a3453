"""A console that shows what terminals obey, and is as wide as its reader needs.

Text that goes into a file or a pipe has no width to keep to: lines are whole there, so that a name
can be searched for, unless COLUMNS says how wide they may be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment

UNLIMITED = 1_000_000
"""Characters of a line where nothing limits them."""
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What a terminal obeys instead of showing it, and what no file of text can hold."""


class PlainConsole(Console):
    """A console on which names from a file cannot clear the screen, rename the window or turn the
    direction of text: control characters are shown as Python writes them.

    Options: those of `rich.console.Console`. Without a width it is the terminal's, and in a pipe
    that of COLUMNS, or unlimited.
    """

    def __init__(self, **options: Any) -> None:
        self._has_width = options.get("width") is not None
        super().__init__(**options)

    @property
    def size(self) -> ConsoleDimensions:
        """As of `rich`, with the width of a pipe."""
        dimensions = super().size
        if self._has_width or self.is_terminal or os.environ.get("COLUMNS", "").isdigit():
            return dimensions
        return ConsoleDimensions(UNLIMITED, dimensions.height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size
        self._has_width = True

    def on_broken_pipe(self) -> None:
        """Nobody reads any more (`| head`): the rest goes nowhere, and the work to its end, for its
        files and its exit code are wanted all the same."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not CONTROL.search(segment.text):
                yield segment
            else:
                text = CONTROL.sub(lambda match: ascii(match[0])[1:-1], segment.text)
                yield Segment(text, segment.style)

"""Tables that fit their reader's width without cutting a word.

Names of nodes and values are what a reader copies, so they are never shortened: the other columns
are folded at their spaces, then left out, the least important first, which is said below the table.
A name that is wider than the terminal by itself goes on in the next line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

BROKEN = 12
"""Characters to which a column may be narrowed whose words may be broken."""
SIDES = 3
"""Characters that a column takes besides its text: two spaces and a line."""


@dataclass(frozen=True)
class Column:
    """A column by its title. whole: its cells are names, never folded as long as the terminal is
    wider, and it is never left out. rank: columns of the lowest rank are left out first. breaks:
    its words may be broken, too."""

    title: str
    whole: bool = False
    rank: int = 0
    breaks: bool = False


class FittingTable:
    """A table as a rich renderable. rows: texts, one for each column. title: "" for none."""

    def __init__(
        self, title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]]
    ) -> None:
        self.title, self.columns, self.rows = title, tuple(columns), [tuple(row) for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self._shown(options.max_width)
        widths = self._widths(shown, options.max_width)
        table = Table()
        for i in shown:
            table.add_column(Text(self.columns[i].title), width=widths[i], overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(row[i]) for i in shown))
        if self.title:
            yield Text(self.title, style="italic")
        yield table
        left = [c.title for i, c in enumerate(self.columns) if i not in shown]
        if left:
            yield Text(f"  left out for want of width: {', '.join(left)}", style="dim")

    def _shown(self, width: int) -> list[int]:
        """Numbers of the columns that are shown."""
        shown = list(range(len(self.columns)))
        while sum(self._least(i) + SIDES for i in shown) + 1 > width:
            able = [i for i in shown if not self.columns[i].whole]
            if not able:
                break
            shown.remove(min(able, key=lambda i: (self.columns[i].rank, -i)))
        return shown

    def _widths(self, shown: Sequence[int], width: int) -> dict[int, int]:
        """Characters of each column: as wide as its text, or the widest made narrower alike."""
        natural = {i: max(map(cell_len, self._lines(i))) for i in shown}
        spare = width - 1 - SIDES * len(shown)
        for least in ({i: self._least(i) for i in shown}, dict.fromkeys(shown, 1)):
            for cap in range(max(natural.values()), 0, -1):
                widths = {i: max(least[i], min(w, cap)) for i, w in natural.items()}
                if sum(widths.values()) <= spare:
                    return widths
        return dict.fromkeys(shown, 1)

    def _lines(self, i: int) -> list[str]:
        texts = [self.columns[i].title, *(row[i] for row in self.rows)]
        return [line for text in texts for line in (text.splitlines() or [""])]

    def _least(self, i: int) -> int:
        """Characters that a column needs so that no word of it is cut."""
        if self.columns[i].whole:
            title = max(map(cell_len, self.columns[i].title.split()), default=0)
            return max([title, *(cell_len(row[i]) for row in self.rows)])
        longest = max((cell_len(w) for line in self._lines(i) for w in line.split()), default=1)
        return min(longest, BROKEN) if self.columns[i].breaks else longest

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
    """A column by its title. unbroken: its cells are names, never folded as long as the terminal is
    wider, and it is never left out. rank: columns of the lowest rank are left out first. breaks:
    its words may be broken, too."""

    title: str
    unbroken: bool = False
    rank: int = 0
    breaks: bool = False


class FittingTable:
    """A table as a rich renderable. rows: texts, one for each column. title: "" for none."""

    def __init__(
        self, title: str, columns: Sequence[Column], rows: Iterable[Sequence[str]]
    ) -> None:
        self.title, self.columns, self.rows = title, tuple(columns), [tuple(row) for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = self._fitting_columns(options.max_width)
        widths = self._widths(columns, options.max_width)
        table = Table()
        for i in columns:
            table.add_column(Text(self.columns[i].title), width=widths[i], overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(row[i]) for i in columns))
        if self.title:
            yield Text(self.title, style="italic")
        yield table
        left = [c.title for i, c in enumerate(self.columns) if i not in columns]
        if left:
            yield Text(f"  left out for want of width: {', '.join(left)}", style="dim")

    def _fitting_columns(self, width: int) -> list[int]:
        """Indices of the columns that fit."""
        columns = list(range(len(self.columns)))
        while sum(self._min_width(i) + SIDES for i in columns) + 1 > width:
            able = [i for i in columns if not self.columns[i].unbroken]
            if not able:
                break
            columns.remove(min(able, key=lambda i: (self.columns[i].rank, -i)))
        return columns

    def _widths(self, columns: Sequence[int], width: int) -> dict[int, int]:
        """Width of each column in characters: its text's, or all capped alike at a smaller one."""
        natural = {i: max(map(cell_len, self._lines(i))) for i in columns}
        spare = width - 1 - SIDES * len(columns)
        for min_widths in ({i: self._min_width(i) for i in columns}, dict.fromkeys(columns, 1)):
            for cap in range(max(natural.values()), 0, -1):
                widths = {i: max(min_widths[i], min(w, cap)) for i, w in natural.items()}
                if sum(widths.values()) <= spare:
                    return widths
        return dict.fromkeys(columns, 1)

    def _lines(self, i: int) -> list[str]:
        texts = [self.columns[i].title, *(row[i] for row in self.rows)]
        return [line for text in texts for line in (text.splitlines() or [""])]

    def _min_width(self, i: int) -> int:
        """Characters that a column needs so that no word of it is cut."""
        if self.columns[i].unbroken:
            title = max(map(cell_len, self.columns[i].title.split()), default=0)
            return max([title, *(cell_len(row[i]) for row in self.rows)])
        longest = max((cell_len(w) for line in self._lines(i) for w in line.split()), default=1)
        return min(longest, BROKEN) if self.columns[i].breaks else longest

"""An `Alignment` for the terminal: are two files the same network, and where do they part?"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from verax.records.alignment import AlignedNode, Alignment, Divergence, Relation
from verax.report.tables import Column, FittingTable

HEADLINES = {
    Relation.same: ("SAME", "green", "The two networks compute the same function."),
    Relation.different: ("DIFFERENT", "red", "The two networks compute different functions."),
    Relation.no_difference: (
        "NO DIFFERENCE",
        "yellow",
        "No difference on these inputs; that the two are the same is not shown.",
    ),
    Relation.undecided: ("UNDECIDED", "yellow", "These inputs cannot tell; the reason is below."),
}
FULL_PLACES = 1
"""Places of divergence shown side by side; further ones get a line."""


def render_alignment(alignment: Alignment, *, verbose: bool = False) -> RenderableType:
    """What `verax check A B` prints. verbose: every pair of values and every attribute."""
    return _AlignmentReport(alignment, verbose)


class _AlignmentReport:
    """An alignment as a rich renderable."""

    def __init__(self, alignment: Alignment, verbose: bool) -> None:
        self.record, self.verbose = alignment, verbose

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        record = self.record
        word, color, sentence = HEADLINES[record.relation]
        yield Text.assemble((f" {word} ", f"bold white on {color}"), f"  {sentence}")
        yield Text(f"first: {record.first}   second: {record.second}")
        yield from (Text(f"- {r}") for r in record.reasons)
        for i, divergence in enumerate(record.divergences):
            if i < FULL_PLACES or self.verbose:
                yield _side_by_side(divergence, self.verbose, record.relation)
            else:
                yield Text(
                    f"  also: {_nodes(divergence.first)} / {_nodes(divergence.second)}: "
                    f"{divergence.reason}"
                )
        for m in record.inputs:
            yield Text(f"input {m.second!r} of the second = {m.first!r} of the first, {m.words}")
        for o in record.outputs:
            if o.first and o.second and not o.reason:
                yield Text(f"output {o.second!r} of the second = {o.first!r} of the first, {o.how}")
        if self.verbose:
            yield _values(record)
        yield from (Text(f"note: {n}", style="yellow") for n in record.notes)
        for name, origin in record.drawn.items():
            yield Text(f"input {name}: {origin}", style="dim")


def _nodes(layers: tuple[AlignedNode, ...]) -> str:
    return ", ".join(layer.node for layer in layers) or "nothing"


def _side_by_side(divergence: Divergence, verbose: bool, relation: Relation) -> Table:
    if divergence.proved:
        sure = "this alone explains the numbers"
    else:
        sure = "what differs there" if divergence.bridged else "where they first differ"
    title = f"Where they part ({sure})"
    if relation is Relation.no_difference:
        title = "Where their operators are not the same"
    table = Table(title=title, title_justify="left")
    table.add_column("first", overflow="fold")
    table.add_column("second", overflow="fold")
    differing = {(d.operator, d.attribute) for d in divergence.attributes}
    sides = [
        list(_layer_texts(side, differing, verbose))
        for side in (divergence.first, divergence.second)
    ]
    table.add_row(*("\n".join(escape(line) for line in side) or "nothing" for side in sides))
    return table


def _layer_texts(
    layers: tuple[AlignedNode, ...], differing: set[tuple[str, str]], verbose: bool
) -> Iterator[str]:
    """Node, type and value, then the attributes that differ (all where none is known to)."""
    for layer in layers:
        yield f"{layer.node} ({layer.operator}) -> {layer.value}: {layer.type}"
        differing_names = {a for o, a in differing if o == layer.operator}
        for name, value in layer.attributes.items():
            if (
                verbose
                or not differing_names
                or any(k == name or k.startswith(f"{name}: ") for k in differing_names)
            ):
                yield f"  {name} = {value}"


def _values(record: Alignment) -> FittingTable:
    columns = (Column("first", unbroken=True), Column("second", unbroken=True), Column("how"))
    rows = []
    for m in record.matches:
        arrangement = m.how if m.exact else f"{m.how} (up to rounded weights)"
        sides = f"{m.first} ({m.first_operator})", f"{m.second} ({m.second_operator})"
        rows.append((*sides, arrangement))
    return FittingTable("Values that agree", columns, rows)

"""The drawing of the rooms, made from what the files of `src/verax` import. No box is put by hand.

A room is a folder of `src/verax` (those of the compiler apart), or a module that lies at its top. A
room stands above everything that it imports; an arrow that follows from others is left out.
"""

from __future__ import annotations

import ast
import html
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

SPLIT = ("compiler",)
"""Folders whose own folders are rooms."""
WIDTH, HEIGHT, GAP_X, GAP_Y, LANE = 124, 30, 20, 46, 26
WINGS = {
    "meaning": ("numerics", "ir", "ops", "reference"),
    "machine": ("compiler", "runtime"),
    "judge": ("judge", "runners", "repro", "campaign"),
    "doors": ("api", "cli", "verax"),
}
COLOURS = {"meaning": "#dbe9f6", "machine": "#fde4cf", "judge": "#dcefdc", "doors": "#f3dff0"}
PLAIN = "#eeeeee"

Edges = dict[str, set[str]]


def room_of(parts: tuple[str, ...]) -> str:
    """The room of a module below verax, by the parts of its name."""
    if not parts:
        return "verax"
    deep = len(parts) > 2 and parts[0] in SPLIT
    return ".".join(parts[:2]) if deep else parts[0]


@cache
def imported(source: Path) -> Edges:
    """Room -> the rooms that it imports, from every file below `source` (src/verax)."""
    files = {p.relative_to(source).with_suffix("").parts: p for p in source.rglob("*.py")}
    edges: Edges = defaultdict(set)
    for parts, path in sorted(files.items()):
        room = room_of(() if parts == ("__init__",) else parts)
        edges[room] |= set()
        for name in _names(ast.parse(path.read_text())):
            target = tuple(name.split("."))
            if target[0] == "verax" and len(target) > 1:
                edges[room] |= {room_of(_module(files.keys(), target[1:]))} - {room}
    return dict(edges)


def _names(tree: ast.Module) -> Iterator[str]:
    """Dotted names of what a module imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{a.name}" for a in node.names)
        elif isinstance(node, ast.Import):
            yield from (a.name for a in node.names)


def _module(known: Collection[tuple[str, ...]], parts: tuple[str, ...]) -> tuple[str, ...]:
    """The module that a dotted name is, or lies in."""
    while parts:
        # A package is a room by itself, and so is a name that it holds.
        if (package := (*parts, "__init__")) in known:
            return package
        if parts in known:
            return parts
        parts = parts[:-1]
    return ()


def reached(edges: Edges, room: str) -> set[str]:
    """Everything that a room imports, directly or not."""
    found: set[str] = set()
    left = list(edges[room])
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += edges.get(one, ())
    return found


def reduced(edges: Edges) -> Edges:
    """Without imports that follow from others."""
    behind = {room: reached(edges, room) for room in edges}
    return {
        room: {t for t in targets if not any(t in behind[o] for o in targets - {t})}
        for room, targets in edges.items()
    }


def layers(edges: Edges) -> list[list[str]]:
    """Rooms by the length of the longest way down, the lowest first. Raises `ValueError` when
    rooms import each other in a circle."""
    height: dict[str, int] = {}

    def high(room: str, trail: tuple[str, ...]) -> int:
        if room in trail:
            raise ValueError(f"a circle: {' -> '.join([*trail, room])}")
        if room not in height:
            height[room] = max((high(t, (*trail, room)) + 1 for t in edges[room]), default=0)
        return height[room]

    for room in edges:
        high(room, ())
    rows: list[list[str]] = [[] for _ in range(max(height.values()) + 1)]
    for room in sorted(height):
        rows[height[room]].append(room)
    return rows


Point = tuple[float, float]
Route = tuple[str, str]


def _rows_with_routes(
    rows: list[list[str]], arrows: Edges
) -> tuple[list[list[str | Route]], dict[Route, list[str | Route]]]:
    """The rows with a place for each arrow that passes them, and the stations of every arrow."""
    level = {room: n for n, row in enumerate(rows) for room in row}
    wide: list[list[str | Route]] = [list(row) for row in rows]
    stations: dict[Route, list[str | Route]] = {}
    for room, targets in sorted(arrows.items()):
        for target in sorted(targets):
            between = range(level[room] - 1, level[target], -1)
            for n in between:
                wide[n].append((room, f"{target}.{n}"))
            stations[room, target] = [room, *((room, f"{target}.{n}") for n in between), target]
    return wide, stations


def _placed(
    rows: list[list[str | Route]], routes: Iterable[list[str | Route]]
) -> dict[str | Route, Point]:
    """Centres: each row ordered by where its neighbours lie, many times over, then set side by
    side around the middle."""
    near: dict[str | Route, set[str | Route]] = defaultdict(set)
    for stations in routes:
        for one, other in pairwise(stations):
            near[one].add(other)
            near[other].add(one)
    x: dict[str | Route, float] = {}
    for row in rows:
        _set(row, x)
    for turn in range(40):
        for row in rows if turn % 2 else reversed(rows):
            wish = {r: sum(x[t] for t in near[r]) / len(near[r]) if near[r] else x[r] for r in row}
            row.sort(key=lambda r: wish[r])
            _set(row, x)
    top = len(rows) - 1
    return {
        r: (x[r], (top - n + 0.5) * (HEIGHT + GAP_Y)) for n, row in enumerate(rows) for r in row
    }


def _set(row: list[str | Route], x: dict[str | Route, float]) -> None:
    """Places for a row, in its order, its middle at 0."""
    sizes = [WIDTH + GAP_X if isinstance(item, str) else LANE for item in row]
    at = -sum(sizes) / 2
    for item, size in zip(row, sizes):
        x[item] = at + size / 2
        at += size


def _colour(room: str) -> str:
    top = room.partition(".")[0]
    return next((COLOURS[w] for w, rooms in WINGS.items() if top in rooms), PLAIN)


def svg(source: Path) -> str:
    """The drawing as an SVG file."""
    edges = imported(source)
    arrows = reduced(edges)
    rows, stations = _rows_with_routes(layers(edges), arrows)
    centre = _placed(rows, stations.values())
    left = min(x for x, _ in centre.values()) - WIDTH
    width = max(x for x, _ in centre.values()) + WIDTH - left
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} 0 {width:.0f} '
        f'{len(rows) * (HEIGHT + GAP_Y)}" font-family="sans-serif" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#777"/></marker></defs>',
    ]
    for (room, target), through in sorted(stations.items()):
        drawn.append(
            f'<path d="{_line([centre[s] for s in through])}" fill="none" stroke="#777" '
            f'marker-end="url(#tip)"><title>{room} imports {target}</title></path>'
        )
    for room, told in sorted(edges.items()):
        x, y = centre[room]
        drawn.append(
            f'<g><rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" '
            f'height="{HEIGHT}" rx="5" fill="{_colour(room)}" stroke="#555"/>'
            f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{html.escape(room)}</text>'
            f"<title>{room} imports {', '.join(sorted(told)) or 'nothing'}</title></g>"
        )
    return "\n".join([*drawn, "</svg>"])


def _line(points: list[Point]) -> str:
    """A smooth way down from under the first point, upright beside the boxes that it passes."""
    half = HEIGHT / 2
    (x, y), *rest = points
    y += half
    said = f"M{x:.0f} {y:.0f}"
    for u, v in rest:
        bend = (v - half - y) / 2
        said += f" C{x:.0f} {y + bend:.0f} {u:.0f} {v - half - bend:.0f} {u:.0f} {v - half:.0f}"
        if (u, v) != rest[-1]:
            said += f" L{u:.0f} {v + half:.0f}"
        x, y = u, v + half
    return said

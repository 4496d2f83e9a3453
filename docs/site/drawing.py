"""The drawing of the rooms, made from what the files of `src/verax` import. No box is put by hand.

A room is a folder of `src/verax` (those of the compiler apart), or a module that lies at its top. A
room stands above everything that it imports; an arrow that follows from others is left out.
"""

from __future__ import annotations

import ast
import html
from collections import defaultdict
from pathlib import Path

SPLIT = ("compiler",)
"""Folders whose own folders are rooms."""
WIDTH, HEIGHT, GAP_X, GAP_Y = 118, 30, 18, 44
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


def imported(source: Path) -> Edges:
    """Room -> the rooms that it imports, from every file below `source` (src/verax)."""
    edges: Edges = defaultdict(set)
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        room = room_of(() if parts == ("__init__",) else parts)
        edges[room] |= set()
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [f"{node.module}.{a.name}" for a in node.names]
                if isinstance(node, ast.ImportFrom)
                else [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            for name in names:
                target = tuple(name.split("."))
                if target[0] == "verax" and len(target) > 1:
                    found = room_of(_module(source, target[1:]))
                    edges[room] |= {found} - {room}
    return dict(edges)


def _module(source: Path, parts: tuple[str, ...]) -> tuple[str, ...]:
    """`parts` without the name of what is imported from the module."""
    while parts and not (source.joinpath(*parts).is_dir() or _file(source, parts).is_file()):
        parts = parts[:-1]
    # A name imported from a package is in the package's own room.
    return (*parts, "__init__") if parts and source.joinpath(*parts).is_dir() else parts


def _file(source: Path, parts: tuple[str, ...]) -> Path:
    return source.joinpath(*parts[:-1], f"{parts[-1]}.py")


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


def _placed(rows: list[list[str]], arrows: Edges) -> dict[str, tuple[float, float]]:
    """Centres of the boxes: each row ordered by where what it imports lies, several times over."""
    widest = max(map(len, rows))
    x = {room: (i + 0.5) * widest / len(row) for row in rows for i, room in enumerate(row)}
    readers = {room: {r for r, ts in arrows.items() if room in ts} for room in arrows}
    for turn in range(24):
        near = arrows if turn % 2 else readers
        for row in rows:
            wish = {r: sum(x[t] for t in near[r]) / len(near[r]) if near[r] else x[r] for r in row}
            for i, room in enumerate(sorted(row, key=lambda r: wish[r])):
                x[room] = (i + 0.5) * widest / len(row)
    step_x, step_y = WIDTH + GAP_X, HEIGHT + GAP_Y
    return {
        room: (x[room] * step_x, (len(rows) - 1 - n) * step_y + HEIGHT)
        for n, row in enumerate(rows)
        for room in row
    }


def _colour(room: str) -> str:
    top = room.partition(".")[0]
    return next((COLOURS[w] for w, rooms in WINGS.items() if top in rooms), PLAIN)


def svg(source: Path) -> str:
    """The drawing as an SVG file."""
    edges = imported(source)
    rows, arrows = layers(edges), reduced(edges)
    centre = _placed(rows, arrows)
    width = max(map(len, rows)) * (WIDTH + GAP_X)
    height = len(rows) * (HEIGHT + GAP_Y)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#777"/></marker></defs>',
    ]
    for room, targets in sorted(arrows.items()):
        for target in sorted(targets):
            (x, y), (u, v) = centre[room], centre[target]
            y, v = y + HEIGHT / 2, v - HEIGHT / 2
            bend = (v - y) / 2
            drawn.append(
                f'<path d="M{x:.0f} {y:.0f} C{x:.0f} {y + bend:.0f} {u:.0f} {v - bend:.0f} '
                f'{u:.0f} {v:.0f}" fill="none" stroke="#777" marker-end="url(#tip)">'
                f"<title>{room} imports {target}</title></path>"
            )
    for room, (x, y) in centre.items():
        told = ", ".join(sorted(edges[room])) or "nothing"
        drawn.append(
            f'<g><rect x="{x - WIDTH / 2:.0f}" y="{y - HEIGHT / 2:.0f}" width="{WIDTH}" '
            f'height="{HEIGHT}" rx="5" fill="{_colour(room)}" stroke="#555"/>'
            f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle">{html.escape(room)}</text>'
            f"<title>{room} imports {told}</title></g>"
        )
    return "\n".join([*drawn, "</svg>"])

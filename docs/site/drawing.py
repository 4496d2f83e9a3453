"""The drawing of the rooms, made from what the files of `src/verax` import.

A room is a folder of `src/verax` (those of the compiler apart), or a module that lies at its top.
Rooms of one concern are drawn as a block. A block stands above every block that its rooms import;
of the arrows between blocks those that follow from others are left out.
"""

from __future__ import annotations

import ast
import html
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SPLIT = ("compiler",)
"""Folders whose own folders are rooms."""


@dataclass(frozen=True)
class Block:
    """Rooms of one concern. words: what they are for. colour: of the block, in hexadecimal."""

    name: str
    words: str
    rooms: tuple[str, ...]
    colour: str


BLOCKS = (
    Block(
        "Doors",
        "what users type and import",
        (
            "cli",
            "verax",
            "api",
            "testing",
            "torch",
            "compiling",
            "loading",
            "recording",
            "tuning",
            "device_tuning",
            "gating",
            "evaluating",
            "hunt",
            "generation",
            "onnx_backend",
            "pytest_plugin",
        ),
        "#f3dff0",
    ),
    Block(
        "Subjects",
        "implementations that are judged, ours among them",
        (
            "runners",
            "by_value",
            "bench",
            "campaign",
            "repro",
            "certified",
            "exchanged",
            "verified_conversion",
        ),
        "#e4e0f5",
    ),
    Block("Files", "formats, in and out", ("frontends", "export", "onnx_format"), "#f6efc9"),
    Block(
        "Machine",
        "native code",
        (
            "compiler",
            "compiler.pipeline",
            "compiler.passes",
            "compiler.plan",
            "compiler.place",
            "compiler.tune",
            "compiler.kernels",
            "compiler.artifacts",
            "compiler.describe",
            "runtime",
        ),
        "#fde4cf",
    ),
    Block(
        "Judge",
        "verdicts, by meaning alone",
        ("judge", "evaluation", "images", "replay"),
        "#dcefdc",
    ),
    Block(
        "Meaning",
        "what a network computes, in float64",
        ("reference", "ops", "ir", "numerics"),
        "#dbe9f6",
    ),
    Block(
        "Ground",
        "shared by all",
        ("records", "report", "formats", "distributed", "base"),
        "#ececec",
    ),
)
WIDTH, MARGIN, GAP, ROOM_HEIGHT, TITLE, ARROW = 760, 12, 8, 28, 46, 34
"""Pixels: the drawing as wide as a page, around blocks, around rooms, a room, a block's name and
words, the way of an arrow."""
LETTER = 7.7
"""Width of a letter of a room's name, in pixels."""

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


def blocks_of(edges: Edges) -> dict[str, str]:
    """Room -> the name of its block. Raises `ValueError` for a room of none."""
    found = {room: block.name for block in BLOCKS for room in block.rooms}
    lacking = sorted(edges.keys() - found.keys())
    if lacking:
        raise ValueError(f"rooms that are in no block of docs/site/drawing.py: {lacking}")
    return found


def between_blocks(edges: Edges) -> Edges:
    """Block -> the blocks that its rooms import."""
    block = blocks_of(edges)
    found: Edges = {one.name: set() for one in BLOCKS if any(r in edges for r in one.rooms)}
    for room, targets in edges.items():
        found[block[room]] |= {block[t] for t in targets} - {block[room]}
    return found


def svg(source: Path) -> str:
    """The drawing as an SVG file."""
    edges = imported(source)
    imports = between_blocks(edges)
    rows = layers(imports)[::-1]
    by_name = {block.name: block for block in BLOCKS}
    order = [block.name for block in BLOCKS]
    drawn: list[str] = []
    box: dict[str, tuple[float, float, float, float]] = {}
    top = float(MARGIN)
    for row in rows:
        wide = (WIDTH - MARGIN * (len(row) + 1)) / len(row)
        made = []
        for n, name in enumerate(sorted(row, key=order.index)):
            left = MARGIN + n * (wide + MARGIN)
            rooms, height = _rooms(by_name[name], edges, left, top, wide)
            made.append((name, left, rooms))
            box[name] = left, top, wide, height
        tallest = max(box[name][3] for name in row)
        for name, left, rooms in made:
            box[name] = left, top, wide, tallest
            drawn += [_frame(by_name[name], *box[name]), *rooms]
        top += tallest + ARROW
    arrows = [
        _arrow(name, target, box)
        for name, targets in sorted(reduced(imports).items())
        for target in sorted(targets)
    ]
    height = top - ARROW + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" '
            f'width="{WIDTH}" font-family="sans-serif" font-size="14">',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="5" '
            'markerHeight="5" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker>'
            "</defs>",
            f'<rect width="{WIDTH}" height="{height:.0f}" rx="8" fill="#ffffff"/>',
            *drawn,
            *arrows,
            "</svg>",
        ]
    )


def _rooms(
    block: Block, edges: Edges, left: float, top: float, wide: float
) -> tuple[list[str], float]:
    """The rooms of a block side by side, in as many lines as they take, and the block's height."""
    found = []
    x, y = left + GAP, top + TITLE
    for room in block.rooms:
        if room not in edges:
            continue
        size = len(room) * LETTER + 18
        if x + size > left + wide - GAP:
            x, y = left + GAP, y + ROOM_HEIGHT + GAP
        told = ", ".join(sorted(edges[room])) or "nothing"
        found.append(
            f'<g><rect x="{x:.0f}" y="{y:.0f}" width="{size:.0f}" height="{ROOM_HEIGHT}" rx="5" '
            f'fill="#ffffff" stroke="#999"/><text x="{x + size / 2:.0f}" y="{y + 19:.0f}" '
            f'text-anchor="middle" fill="#222">{html.escape(room)}</text>'
            f"<title>{room} imports {told}</title></g>"
        )
        x += size + GAP
    return found, y + ROOM_HEIGHT + GAP - top


def _frame(block: Block, x: float, y: float, wide: float, height: float) -> str:
    """A block without its rooms."""
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{wide:.0f}" height="{height:.0f}" rx="8" '
        f'fill="{block.colour}" stroke="#777"/>'
        f'<text x="{x + GAP:.0f}" y="{y + 18:.0f}" font-weight="bold" fill="#222">{block.name}'
        f'</text><text x="{x + GAP:.0f}" y="{y + 36:.0f}" font-size="13" fill="#444">'
        f"{html.escape(block.words)}</text>"
    )


def _arrow(name: str, target: str, box: dict[str, tuple[float, float, float, float]]) -> str:
    """From under a block to a block below, over the middle of the narrower one."""
    (x, y, wide, height), (u, v, wide_below, _) = box[name], box[target]
    middle = x + wide / 2 if wide < wide_below else u + wide_below / 2
    return (
        f'<path d="M{middle:.0f} {y + height:.0f} L{middle:.0f} {v:.0f}" stroke="#555" '
        f'stroke-width="2.5" marker-end="url(#tip)"><title>{name} imports {target}</title></path>'
    )

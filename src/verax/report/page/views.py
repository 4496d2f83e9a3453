"""A network as drawings of at most some hundred boxes: nodes, or modules that open a drawing.

Modules come from the names that exporters write ("/layer1/0/conv/Conv", "encoder.0.linear"). Where
names say nothing, neighbors in the order of execution are put together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from verax.records.network import NetworkOutline
from verax.report.page.layout import GraphLayout, layered

MAX_BOXES = 300
"""Boxes of a drawing; larger networks are collapsed by module."""
CHUNK = 50
"""Nodes of a module that is made because names do not tell."""
LONGEST_LABEL = 26
CHARACTER, SMALL_CHARACTER, PADDING = 8.0, 6.8, 24.0
"""Pixels of a character of the first and of the second line of a box, and beside it."""
HEIGHT, SMALL_HEIGHT = 42.0, 22.0
MIN_WIDTH = 74.0
DEPTH = 12
"""Modules within modules."""


@dataclass(frozen=True)
class Box:
    """A box of a drawing.

    label: its first line; detail: the second one; full: the whole name. node: index of the node, -1
    for a module or an end; view: index of the drawing that it opens, -1 for none. nodes: indices of
    all nodes in it. kind: "node", "module", "input", "output" or "port" (what lies outside).
    """

    label: str
    detail: str
    full: str
    kind: str
    node: int = -1
    view: int = -1
    nodes: tuple[int, ...] = ()

    @property
    def size(self) -> tuple[float, float]:
        """Width and height, pixels."""
        width = max(CHARACTER * len(self.label), SMALL_CHARACTER * len(self.detail))
        height = HEIGHT if self.detail else SMALL_HEIGHT
        return max(MIN_WIDTH, width + PADDING), height


@dataclass(frozen=True)
class NetworkView:
    """A drawing. path: names from the whole network to it; parent: index of the drawing that it is
    part of, -1 for the whole. edges: pairs of boxes, routed by `layout`."""

    path: tuple[str, ...]
    parent: int
    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]
    layout: GraphLayout


@dataclass
class _Draft:
    """A drawing in the making. groups: nodes by box, with the index of the drawing it opens."""

    path: tuple[str, ...]
    parent: int
    groups: list[tuple[str, tuple[int, ...], int]]


def views_of(network: NetworkOutline) -> tuple[NetworkView, ...]:
    """The drawings of a network, the whole first."""
    paths = [module_path(node.name) for node in network.nodes]
    drafts: list[_Draft] = []
    _draft(network, paths, (network.name or "network",), -1, tuple(range(len(paths))), 0, drafts)
    return tuple(_view(network, draft, i) for i, draft in enumerate(drafts))


def module_path(name: str) -> tuple[str, ...]:
    """The modules that a node's name says it lies in, outermost first."""
    names = [p for p in re.split(r"/|::", name) if p]
    if len(names) == 1:
        names = name.split(".")
    return tuple(names[:-1][:DEPTH])


def _draft(
    network: NetworkOutline,
    paths: Sequence[tuple[str, ...]],
    path: tuple[str, ...],
    parent: int,
    nodes: tuple[int, ...],
    depth: int,
    drafts: list[_Draft],
) -> int:
    """Append the drawing of some nodes and of the modules in it; its index."""
    own = len(drafts)
    draft = _Draft(path, parent, [])
    drafts.append(draft)
    if len(nodes) <= MAX_BOXES:
        draft.groups = [(network.nodes[i].name, (i,), -1) for i in nodes]
        return own
    for name, members, inner in _groups(network, paths, nodes, depth):
        if len(members) == 1:
            draft.groups.append((network.nodes[members[0]].name, members, -1))
        else:
            view = _draft(network, paths, (*path, name), own, members, inner, drafts)
            draft.groups.append((name, members, view))
    return own


def _groups(
    network: NetworkOutline, paths: Sequence[tuple[str, ...]], nodes: tuple[int, ...], depth: int
) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield modules of too many nodes: their names, nodes, and how deep their names were read."""
    while depth < DEPTH:
        groups: dict[str, list[int]] = {}
        for i in nodes:
            own = paths[i]
            key = own[depth] if depth < len(own) else f"\0{i}"
            groups.setdefault(key, []).append(i)
        depth += 1
        if 1 < len(groups) <= MAX_BOXES:
            for key, members in groups.items():
                yield key, tuple(members), depth
            return
        if len(groups) > MAX_BOXES:
            break
    size = max(CHUNK, math.ceil(len(nodes) / MAX_BOXES))
    for start in range(0, len(nodes), size):
        chunk = nodes[start : start + size]
        operators = [network.nodes[i].operator for i in chunk]
        common = max(dict.fromkeys(operators), key=operators.count)
        yield f"{start + 1} to {start + len(chunk)}, mostly {common}", chunk, DEPTH


def _view(network: NetworkOutline, draft: _Draft, own: int) -> NetworkView:
    """A drawing with its boxes laid out: inputs, nodes and modules, outputs, and what lies
    outside."""
    boxes = [_box(network, group) for group in draft.groups]
    box_of = {i: b for b, box in enumerate(boxes) for i in box.nodes}
    producer = {v: i for i, node in enumerate(network.nodes) for v in node.outputs if v}
    inputs, outputs = set(network.inputs), set(network.outputs)
    is_root = draft.parent < 0
    heads: dict[str, list[int]] = {}
    tails: dict[str, list[int]] = {}
    box_edges: dict[tuple[int, int], None] = {}
    for i, b in box_of.items():
        for v in network.nodes[i].inputs:
            source = producer.get(v)
            if source is None:
                if v in inputs:
                    heads.setdefault(v, []).append(b)
            elif source not in box_of:
                heads.setdefault(v, []).append(b)
            elif box_of[source] != b:
                box_edges[box_of[source], b] = None
        for v in network.nodes[i].outputs:
            if v in outputs:
                tails.setdefault(v, []).append(b)
    first = [_end(v, "input" if v in inputs else "port", network.types) for v in heads]
    last = [_end(v, "output", network.types) for v in tails]
    if not is_root and len(first) + len(last) > MAX_BOXES:
        first, last, heads, tails = [], [], {}, {}
    shift = len(first)
    edges = {(h, shift + b): None for h, v in enumerate(heads) for b in heads[v]}
    edges |= {(a + shift, b + shift): None for a, b in box_edges}
    edges |= {
        (shift + b, shift + len(boxes) + t): None for t, v in enumerate(tails) for b in tails[v]
    }
    everything = (*first, *boxes, *last)
    layout = layered([box.size for box in everything], tuple(edges))
    return NetworkView(draft.path, draft.parent, everything, tuple(edges), layout)


def _box(network: NetworkOutline, group: tuple[str, tuple[int, ...], int]) -> Box:
    name, members, view = group
    if view < 0:
        node = network.nodes[members[0]]
        return Box(
            node.operator[:LONGEST_LABEL],
            shortened(node.name),
            node.name,
            "node",
            members[0],
            nodes=members,
        )
    label = shortened(name)
    return Box(label, f"{len(members)} nodes", name, "module", view=view, nodes=members)


def _end(value: str, kind: str, types: Mapping[str, str]) -> Box:
    return Box(shortened(value), shortened(types.get(value, "")), value, kind)


def shortened(text: str) -> str:
    """At most `LONGEST_LABEL` characters: begin and end of a longer name."""
    if len(text) <= LONGEST_LABEL:
        return text
    head = LONGEST_LABEL // 2 - 1
    return f"{text[:head]}\u2026{text[head + 1 - LONGEST_LABEL :]}"

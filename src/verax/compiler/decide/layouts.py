"""How tensors lie, and which values are made and kept in the blocked layout."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from verax.compiler.decide.fusion import Group
from verax.compiler.decide.steps import BLOCK, Decisions
from verax.ir.graph import Graph, Node
from verax.ir.types import DType, TensorType

Pads = tuple[tuple[int, int], ...]
"""Zeros before and after, per spatial axis."""


class Layout(enum.StrEnum):
    """How a tensor lies in its buffer: rows as NumPy has it, blocks of 16 channels, or pixels with
    all their few channels side by side, as files of images have them."""

    plain = "plain"
    blocked = "blocked"
    pixels = "pixels"


@dataclass(frozen=True)
class Layouts:
    """Layouts that a kernel wants: per input index (layout, zero borders), and of its first output,
    or of every one."""

    inputs: dict[int, tuple[Layout, Pads]]
    output: Layout
    every_output: bool = False


@dataclass
class Decided:
    """Where the values of a graph shall lie.

    blocked: values that are made blocked and stay so; row_major: those that could and do not.
    borders: zeros that readers of a value in a layout want around it. parts: values that are made
    in their place in a blocked concatenation: its result, and the first block there.
    byte_products: how kernels multiply bytes (`Target.byte_products`).
    """

    graph: Graph
    blocked: set[str] = field(default_factory=set)
    row_major: set[str] = field(default_factory=set)
    borders: dict[tuple[str, Layout], Pads] = field(default_factory=dict)
    byte_products: str = ""
    parts: Mapping[str, tuple[str, int]] = field(default_factory=dict)


WantedLayouts = Callable[[Decided, Node], Layouts | None]
"""What a kernel for the node wants, given what was decided before it; None: it does not care."""


def decide_layouts(
    graph: Graph,
    groups: Sequence[Group],
    wanted_by: WantedLayouts,
    prefers_blocked: Callable[[Decided, Group], bool],
    decisions: Decisions,
    byte_products: str = "",
) -> Decided:
    """Decide group by group, in the order in which they run."""
    found = Decided(graph, byte_products=byte_products)
    for group in groups:
        wanted = wanted_by(found, group.root)
        if wanted is None:
            blocks = decisions.runs(BLOCK) and prefers_blocked(found, group)
        else:
            blocks = wanted.output is Layout.blocked
        if blocks and decisions.allows(
            BLOCK, f"{group.output!r} stays blocked", group.output, (group.output,)
        ):
            found.blocked.add(group.output)
            if wanted is not None and wanted.every_output:
                found.blocked.update(group.root.outputs)
        elif blocks or not decisions.runs(BLOCK):
            found.row_major.update(v for n in group.nodes for v in n.outputs)
        for index, (layout, pads) in (wanted.inputs if wanted else {}).items():
            value = group.root.inputs[index]
            assert value is not None
            what, subject = f"{value!r} comes as pixels", f"{value}>{group.output}"
            if layout is Layout.pixels and not decisions.allows(BLOCK, what, subject, (value,)):
                continue
            key = (value, layout)
            found.borders[key] = widest(found.borders.get(key, ()), pads)
    return found


BLOCKABLE = frozenset(
    {DType.float32, DType.float64, DType.float16, DType.bfloat16,
     DType.int8, DType.uint8, DType.int16, DType.uint16, DType.int32, DType.int64}
)  # fmt: skip
"""Element types of blocked tensors: what convolutions read, sum in and make."""


def can_block(type_: TensorType) -> bool:
    """Whether a tensor may be blocked: batch, channels and one to three spatial axes, of a type
    that convolutions know."""
    return type_.dtype in BLOCKABLE and 3 <= type_.rank <= 5 and 0 not in type_.shape


def widest(a: Pads, b: Pads) -> Pads:
    """Borders that serve both."""
    if not a or not b:
        return a or b
    return tuple((max(p, r), max(q, s)) for (p, q), (r, s) in zip(a, b))

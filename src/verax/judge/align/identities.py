"""When two operators of one kind are the same although their attributes differ in text.

Every identity that `SAME` may rest on is stated here, with the reason. An attribute that is in no
list makes two operators different, however few numbers would show it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping

from verax.ir.graph import Node
from verax.ir.operator import Operator
from verax.judge.align.bodies import Change, changes
from verax.numerics.statistics import FLOAT32_UNIT
from verax.ops.control.bodies import body_of

MOVEMENT = frozenset(
    ("Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten", "Dropout")
)
"""Operators that move numbers and change none: one array of numbers that all differ shows all."""
SHAPED = frozenset(
    (
        *("axis", "axes", "keepdims", "perm", "pads", "strides", "dilations", "kernel_shape"),
        *("ceil_mode", "count_include_pad", "groups", "num_groups", "output_padding"),
        *("output_shape", "num_outputs", "start", "end", "blocksize", "trans_a", "trans_b"),
        *("flatten", "equation", "batch_dims", "allowzero", "noop_with_empty_axes", "layout"),
    )
)
"""Attributes of axes and windows: at one size they do something or nothing, and random numbers show
which. Layouts, explicit pads, dilations of a kernel of 1, windows that divide evenly."""
SILENT: Mapping[str, Callable[[Operator], bool]] = {
    "momentum": lambda op: not op.attributes().get("training_mode"),  # of running statistics
    "stash_type": lambda op: True,  # in which format it is computed
    "with_indices": lambda op: True,  # whether there are further outputs
    "with_statistics": lambda op: True,
    "mask": lambda op: True,
}
"""Attributes that the numbers of the first output do not depend on, and when."""
COMMUTATIVE = frozenset(("Add", "Mul", "Max", "Min", "And", "Or", "Xor", "Equal", "Sum"))
"""Operators whose operands may change places."""


def is_rounded(a: object, b: object) -> bool:
    """Whether two attributes are one number, written in float32 and in float64."""
    if not (isinstance(a, float) and isinstance(b, float)):
        return False
    return abs(a - b) <= 2 * FLOAT32_UNIT * max(abs(a), abs(b))


def open_changes(a: Operator, b: Operator, sizes_open: bool) -> list[Change]:
    """What two operators of one kind do not share and no identity covers.

    sizes_open: whether both networks take inputs of other sizes too, where windows and axes may
    make a difference that these sizes do not show."""
    found = []
    for change in changes(a, b):
        name = change.attribute
        silent = SILENT.get(name)
        if silent is not None and silent(a) and silent(b):
            continue
        if is_rounded(getattr(a, name), getattr(b, name)):
            continue
        if name in SHAPED and not sizes_open:
            continue
        if a.kind == b.kind == "Pad" and name == "mode" and not sizes_open:
            continue
        found.append(change)
    return found


def unequal(first: Iterable[Node], second: Iterable[Node], sizes_open: bool) -> list[Change]:
    """Attributes in which the nodes of two pieces of network differ, kind by kind: of kinds that
    both use equally often. Other kinds are written otherwise, and only numbers can tell."""
    sides: list[dict[str, list[Operator]]] = []
    for nodes in (first, second):
        kinds: dict[str, list[Operator]] = collections.defaultdict(list)
        for node in unfolded(nodes):
            if node.op.kind not in MOVEMENT and node.op.kind != "If":
                kinds[node.op.kind].append(node.op)
        sides.append(kinds)
    found: list[Change] = []
    for kind, own in sides[0].items():
        others = list(sides[1].get(kind, ()))
        if len(own) != len(others):
            continue
        left = []
        for op in own:
            if op in others:
                others.remove(op)
            else:
                left.append(op)
        for op in left:
            rests = [open_changes(op, other, sizes_open) for other in others]
            best = min(range(len(rests)), key=lambda i: len(rests[i]))
            found += rests[best]
            others.pop(best)
    return found


def unfolded(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes, and those of the branches that they choose between."""
    for node in nodes:
        yield node
        if node.op.kind == "If":
            for text in node.op.attributes().values():
                if isinstance(text, str):
                    yield from unfolded(body_of(text).nodes)

"""When two operators of one kind are the same although their attributes differ in text.

Every identity that `SAME` may rest on is stated here, with the reason. An attribute that is in no
list makes two operators different, however few numbers would show it.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from verax.ir.graph import Graph, Node
from verax.ir.operator import Operator
from verax.judge.align.subgraph_changes import OperatorChange, changes
from verax.numerics.statistics import FLOAT32_UNIT
from verax.ops.control.bodies import body_of
from verax.records.alignment import AttributeDifference

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
BOUNDED = frozenset(("Clip", "Max", "Min"))
"""Operators whose constant operands are attributes in all but form."""
RESIZED = frozenset(("Resize", "ResizeInteger"))
"""Operators all of whose attributes are about positions: at one size they make weights of a sum."""
COMMUTATIVE = frozenset(("Add", "Mul", "Max", "Min", "And", "Or", "Xor", "Equal", "Sum"))
"""Operators whose operands may change places."""


def is_rounded(a: object, b: object) -> bool:
    """Whether two attributes are one number, written in float32 and in float64."""
    if not (isinstance(a, float) and isinstance(b, float)):
        return False
    return abs(a - b) <= 2 * FLOAT32_UNIT * max(abs(a), abs(b))


def open_changes(a: Operator, b: Operator, sizes_open: bool) -> list[OperatorChange]:
    """Differences of two operators of one kind that no identity covers.

    sizes_open: whether both networks take inputs of other sizes too, where windows and axes may
    make a difference that these sizes do not show."""
    uncovered = []
    for change in changes(a, b):
        name = change.attribute
        silent = SILENT.get(name)
        if silent is not None and silent(a) and silent(b):
            continue
        if is_rounded(getattr(a, name), getattr(b, name)):
            continue
        if name in SHAPED and not sizes_open:
            continue
        if a.kind in RESIZED and not sizes_open:
            continue
        if a.kind == b.kind == "Pad" and name == "mode" and not sizes_open:
            continue
        uncovered.append(change)
    return uncovered


@dataclass(frozen=True)
class NodeDifference:
    """An attribute, or a bound that is a constant, in which two nodes of one kind differ."""

    first: Node
    second: Node
    difference: AttributeDifference


def unequal(
    first: tuple[Iterable[Node], Graph], second: tuple[Iterable[Node], Graph], sizes_open: bool
) -> list[NodeDifference]:
    """Attributes in which nodes of two networks differ, kind by kind: of kinds that both use
    equally often. Other kinds are written otherwise, and only numbers can tell."""
    graphs = first[1], second[1]
    sides: list[dict[str, list[Node]]] = []
    for nodes, _ in (first, second):
        kinds: dict[str, list[Node]] = collections.defaultdict(list)
        for node in unfolded(nodes):
            if node.op.kind not in MOVEMENT and node.op.kind != "If":
                kinds[node.op.kind].append(node)
        sides.append(kinds)
    differences: list[NodeDifference] = []
    for kind, own in sides[0].items():
        left = list(sides[1].get(kind, ()))
        if len(own) != len(left):
            continue
        for node in own:
            fewest: list[NodeDifference] = []
            best = -1
            for i, candidate in enumerate(left):
                differing = _differing(node, candidate, graphs, sizes_open)
                if best < 0 or len(differing) < len(fewest):
                    best, fewest = i, differing
                if not differing:
                    break
            left.pop(best)
            differences += fewest
    return differences


def _differing(
    a: Node, b: Node, graphs: tuple[Graph, Graph], sizes_open: bool
) -> list[NodeDifference]:
    differences = []
    if a.op != b.op:
        differences = [
            NodeDifference(a, b, c.difference) for c in open_changes(a.op, b.op, sizes_open)
        ]
    if a.op.kind in BOUNDED:
        own, second_bounds = (_bounds(n, g) for n, g in zip((a, b), graphs))
        if len(own) == len(second_bounds) and not all(map(is_rounded, own, second_bounds)):
            texts = (
                ", ".join(f"{x:g}" for x in bounds) or "nothing" for bounds in (own, second_bounds)
            )
            differences.append(
                NodeDifference(a, b, AttributeDifference(a.op.kind, "its bounds", *texts))
            )
    return differences


def _bounds(node: Node, graph: Graph) -> list[float]:
    arrays = [graph.constants.get(v or "") for v in node.inputs]
    return [float(x.reshape(())) for x in arrays if x is not None and x.size == 1]


def unfolded(nodes: Iterable[Node]) -> Iterator[Node]:
    """Nodes, and those of the branches that they choose between."""
    for node in nodes:
        yield node
        if node.op.kind == "If":
            for text in node.op.attributes().values():
                if isinstance(text, str):
                    yield from unfolded(body_of(text).nodes)

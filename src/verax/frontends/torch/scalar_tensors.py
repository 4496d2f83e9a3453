"""Operators along an axis of a tensor that has none, which PyTorch takes for a line of one element.

Such a node is read as the same operator on tensors of one axis, between what adds that axis and
what takes it away again, so that the table's rows need not know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from verax.frontends.common.foreign import ForeignNode
from verax.frontends.torch.arguments import Ref

ALONG = frozenset((
    *("cummax", "cummin", "cumprod", "cumsum", "gather", "index_add", "index_copy"),
    *("index_fill", "index_select", "logcumsumexp", "logsumexp", "max.dim", "median", "min.dim"),
    *("linalg_vector_norm", "norm", "scatter", "scatter_add", "scatter_reduce", "index_reduce"),
    *("unfold", "unfold_copy", "take_along_dim"),
))  # fmt: skip
"""Operators, or single overloads, that need the axis that they name."""
ALWAYS = frozenset(("aminmax", "kthvalue", "sort", "topk"))
"""Those that need one whether they name it or not."""


def lengthened(
    node: ForeignNode, shape_of: Callable[[str], Sequence[Any] | None]
) -> list[ForeignNode]:
    """The nodes that stand for a node; itself alone unless its tensor has no axes.

    shape_of: recorded sizes of a value of the program.
    """
    kind, _, overload = node.op_type.partition(".")
    first, named = node.attributes.get("self"), {"dim", "dimension"} & node.attributes.keys()
    along = kind in ALONG or f"{kind}.{overload}" in ALONG
    needed = kind in ALWAYS or (along and bool(named))
    single = isinstance(first, Ref) and shape_of(first.name) == ()
    if node.domain != "aten" or not needed or not single:
        return [node]
    before, inputs = [], list(node.inputs)
    for value in node.attributes.values():
        if isinstance(value, Ref) and shape_of(value.name) == ():
            line = f"{node.name}/{value.name}"
            arguments = {"self": Ref(0, value.name), "dim": 0}
            operand = (node.inputs[value.index],)
            before.append(_node(node, "unsqueeze.default", operand, line, arguments))
            inputs[value.index] = line
    outputs, after = [], []
    for name in node.outputs:
        shape = shape_of(name) if name else None
        outputs.append(f"{name}/line" if name else name)
        if name:
            arguments = {"self": Ref(0, outputs[-1]), "shape": tuple(shape or ())}
            after.append(_node(node, "reshape.default", (outputs[-1],), name, arguments))
    middle = replace(node, inputs=tuple(inputs), outputs=tuple(outputs))
    return [*before, middle, *after]


def _node(
    node: ForeignNode,
    kind: str,
    inputs: tuple[str, ...],
    output: str,
    arguments: Mapping[str, Any],
) -> ForeignNode:
    return replace(node, op_type=kind, inputs=inputs, outputs=(output,), attributes=dict(arguments))

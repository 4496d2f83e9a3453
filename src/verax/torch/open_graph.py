"""Which sizes a graph of Dynamo or AOTAutograd leaves open, and the same graph without the numbers
that stand for them.

Dynamo hands symbolic sizes over as numbers of their own beside the tensors. Each is the size of an
axis of some tensor, which is where a program reads it, so it is taken from there.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verax.base.optional import optional

torch: Any = optional("torch", "to use verax.torch")

MOST_FACTORS = 8
"""In a power of a size."""


@dataclass(frozen=True)
class OpenGraph:
    """graph: takes the arguments numbered `arguments` alone, all tensors. axes: for each of them
    those whose size is open."""

    graph: Any
    arguments: tuple[int, ...]
    axes: tuple[tuple[int, ...], ...]

    @property
    def dynamic_shapes(self) -> tuple[Any, ...]:
        """As `torch.export` takes them for a function of `*arguments`."""
        auto = torch.export.Dim.AUTO
        return (tuple({axis: auto for axis in axes} for axes in self.axes),)

    def key(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """What a program for these arguments is made for: all but open sizes."""
        return tuple(
            (tuple(None if d in axes else n for d, n in enumerate(a.shape)), a.dtype)
            for a, axes in zip((arguments[i] for i in self.arguments), self.axes, strict=True)
        )


def open_graph(graph: Any) -> OpenGraph | None:
    """What a graph leaves open; None where that is nothing, or a number that is no size of an
    argument."""
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    values = [n.meta.get("example_value", n.meta.get("val")) for n in placeholders]
    tensors = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor)]
    axes = [tuple(d for d, n in enumerate(values[i].shape) if is_open(n)) for i in tensors]
    if not any(axes):
        return None
    location = {
        values[i].shape[d].node.expr: (placeholders[i].name, d)
        for i, open_axes in reversed(list(zip(tensors, axes)))
        for d in open_axes
    }
    numbers = [i for i in range(len(values)) if i not in set(tensors)]
    copied = torch.fx.Graph()
    copies: dict[Any, Any] = {}
    result = copied.graph_copy(graph.graph, copies)
    copied.output(result)
    arguments = [copies[n] for n in placeholders]
    by_name = {n.name: copies[n] for n in placeholders}
    with copied.inserting_after(max(arguments, key=list(copied.nodes).index)):
        barrier = copied.call_function(torch.ops.aten.sym_size.int, (arguments[tensors[0]], 0))
    with copied.inserting_before(barrier):
        for i in numbers:
            if not is_open(values[i]):
                return None
            size = _size(copied, values[i].node.expr, location, by_name)
            if size is None:
                return None
            arguments[i].replace_all_uses_with(size)
            copied.erase_node(arguments[i])
    copied.erase_node(barrier)
    return OpenGraph(torch.fx.GraphModule(graph, copied), tuple(tensors), tuple(axes))


def _size(
    graph: Any, expr: Any, location: Mapping[Any, tuple[str, int]], by_name: Mapping[str, Any]
) -> Any:
    """The node or number that is an expression over sizes; None of one that is no polynomial."""
    if expr in location:
        name, axis = location[expr]
        return graph.call_function(torch.ops.aten.sym_size.int, (by_name[name], axis))
    if expr.is_Integer:
        return int(expr)
    terms = expr.args
    if expr.is_Pow and terms[1].is_Integer and 0 < terms[1] <= MOST_FACTORS:
        terms, combine = (terms[0],) * int(terms[1]), operator.mul
    elif expr.is_Mul or expr.is_Add:
        combine = operator.mul if expr.is_Mul else operator.add
    else:
        return None
    operands = [_size(graph, term, location, by_name) for term in terms]
    if any(f is None for f in operands):
        return None
    return functools.reduce(lambda a, b: graph.call_function(combine, (a, b)), operands)


def is_open(size: Any) -> bool:
    """Whether a size is an expression over symbols."""
    return isinstance(size, torch.SymInt) and bool(size.node.expr.free_symbols)

"""The numbered constraints that every graph meets. Errors cite them.

C1  Every value is defined exactly once.
C2  A node reads only values defined before it.
C3  Every value has a type, and no dimension is negative.
C4  A node has as many inputs and outputs as its operator takes.
C5  Recorded types are those that the operators' type rules give.
C6  Constants have the recorded element type and shape.
C7  Graph outputs are defined, and named once each.
C8  An update pairs an input with an output of its type, each at most once.
C9  State is an updated input; its initial value has its type, which leaves no size open.
"""

from __future__ import annotations

import numpy as np

from verax.base.errors import GraphError
from verax.ir.dim import symbols
from verax.ir.graph import KNOWN_LIMIT, Graph, infer_node
from verax.ir.types import TensorType


def check(graph: Graph) -> None:
    """Raise `GraphError` naming the first constraint that `graph` violates."""
    defined: set[str] = set()

    def define(value: str, location: str) -> None:
        if value in defined:
            raise GraphError(f"C1: the value {value!r} is defined twice", place=location)
        defined.add(value)
        if value not in graph.types:
            raise GraphError(f"C3: the value {value!r} has no type", place=location)
        if any(isinstance(d, int) and d < 0 for d in graph.types[value].dims):
            raise GraphError(f"C3: {value!r} has the type {graph.types[value]}", place=location)

    for value in graph.inputs:
        define(value, "graph inputs")
    for value, array in graph.constants.items():
        define(value, "constants")
        if TensorType.of(array) != graph.types[value]:
            raise GraphError(
                f"C6: the constant {value!r} is {TensorType.of(array)}, "
                f"recorded as {graph.types[value]}"
            )
    contents: dict[str, np.ndarray] = {
        v: a for v, a in graph.constants.items() if a.size <= KNOWN_LIMIT
    }
    for node in graph.nodes:
        for read in node.inputs:
            if read is not None and read not in defined:
                raise GraphError(f"C2: {read!r} is read before it is defined", place=node.place)
        try:
            types, values = infer_node(node, graph.types, contents)
        except GraphError as error:
            raise GraphError(f"C4: {error.cause}", place=node.place) from error
        for output, type_, content in zip(node.outputs, types, values, strict=True):
            define(output, node.place)
            if not compatible(type_, graph.types[output]):
                raise GraphError(
                    f"C5: {output!r} is recorded as {graph.types[output]}, inferred {type_}",
                    place=node.place,
                )
            if content is not None:
                contents[output] = content
    for output in graph.outputs:
        if output not in defined:
            raise GraphError(f"C7: the graph output {output!r} is not defined")
    if len(set(graph.outputs)) != len(graph.outputs):
        raise GraphError("C7: a graph output is named twice")
    _check_updates(graph)


def _check_updates(graph: Graph) -> None:
    for value, new in graph.updates.items():
        if value not in graph.inputs or new not in graph.outputs:
            raise GraphError(f"C8: {new!r} -> {value!r} does not pair an output with an input")
        if graph.types[value] != graph.types[new]:
            raise GraphError(
                f"C8: {value!r} is {graph.types[value]}, its new content {graph.types[new]}"
            )
    if len(set(graph.updates.values())) != len(graph.updates):
        raise GraphError("C8: one output is the new content of two inputs")
    for value, array in graph.initial.items():
        if value not in graph.updates:
            raise GraphError(f"C9: the state {value!r} has no new value")
        if TensorType.of(array) != graph.types[value]:
            raise GraphError(
                f"C9: the state {value!r} begins as {TensorType.of(array)}, "
                f"recorded as {graph.types[value]}"
            )


def compatible(inferred: TensorType, recorded: TensorType) -> bool:
    """Whether `recorded` is `inferred`, or says more where running alone could tell."""
    return (
        inferred.dtype == recorded.dtype
        and inferred.rank == recorded.rank
        and all(
            a == b or any(name.startswith("_") for name in symbols(a))
            for a, b in zip(inferred.dims, recorded.dims)
        )
    )

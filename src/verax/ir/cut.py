"""Parts of a graph: from some of its values to others, as a graph of their own.

This is how a subject that shows nothing inside is looked into: it is handed a part of the network,
whose outputs are what the whole hides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from verax.base.errors import GraphError
from verax.ir.graph import Builder, Graph


def cut(graph: Graph, inputs: Iterable[str], outputs: Iterable[str]) -> Graph:
    """The nodes that lead from `inputs` to `outputs`, with the types that `graph` records.

    Inputs that no output depends on are left out. Values keep their names. A part remembers
    nothing: what it needs of the network's state is an input like any. Raises `GraphError`
    when an output needs something that is neither computed from `inputs` nor constant.
    """
    outputs = tuple(dict.fromkeys(outputs))
    boundary = set(inputs)
    needed: set[str] = set()
    waiting = list(outputs)
    while waiting:
        value = waiting.pop()
        if value in needed:
            continue
        needed.add(value)
        if value in boundary or value in graph.constants:
            continue
        if value not in graph.producers:
            raise GraphError(
                f"{value!r} is needed and not among the inputs of the part", place=graph.name
            )
        waiting += [v for v in graph.producers[value].inputs if v is not None]
    nodes = tuple(
        n for n in graph.nodes if any(v in needed and v not in boundary for v in n.outputs)
    )
    read = {v for n in nodes for v in n.inputs} | set(outputs)
    produced = {v for n in nodes for v in n.outputs}
    return Graph(
        tuple(
            v for v in (*graph.inputs, *graph.producers) if v in boundary and v in read - produced
        ),
        outputs,
        nodes,
        {v: a for v, a in graph.constants.items() if v in read},
        {v: t for v, t in graph.types.items() if v in read | produced},
        graph.name,
    )


def with_known_constants(graph: Graph) -> Graph:
    """The same graph with what type rules know in advance (shape computations) as constants.

    A part that starts behind a shape computation would otherwise take a shape as an input. Graph
    outputs stay computed.
    """
    b = Builder(graph.name)
    for name in graph.inputs:
        b.input(name, graph.types[name])
    for name, array in graph.constants.items():
        b.constant(array, name)
    for node in graph.nodes:
        b.add_all(node.op, node.inputs, node.outputs, node.name)
    contents = {v: a for v, a in b.known.items() if a.dtype != object}
    nodes = tuple(
        n for n in graph.nodes if any(v not in contents or v in graph.outputs for v in n.outputs)
    )
    produced = {v for n in nodes for v in n.outputs}
    contents = {v: a for v, a in contents.items() if v in graph.producers and v not in produced}
    constants = {**graph.constants, **contents}
    return dataclasses.replace(graph, nodes=nodes, constants=constants, types=dict(b.types))

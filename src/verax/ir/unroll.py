"""Several runs of a network that remembers, as one graph: what a run leaves, the next one reads.

The values of the first run keep their names, those of run k are called `name@k`. The unrolled graph
remembers too: its state begins as the first run's and ends as the last run's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from verax.ir.graph import Graph, Node
from verax.ir.types import TensorType


@dataclasses.dataclass(frozen=True)
class Unrolled:
    """names: for every run, name in the network -> name in `graph`."""

    graph: Graph
    names: tuple[Mapping[str, str], ...]

    def split(self, arrays: Mapping[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
        """Arrays by names of `graph` -> for every run, by names of the network."""
        return [
            {v: arrays[name] for v, name in names.items() if name in arrays} for names in self.names
        ]


def unrolled(steps: Sequence[Graph]) -> Unrolled:
    """`steps`: the network once for every run; sizes of its inputs may differ between them."""
    first = steps[0]
    inputs: list[str] = []
    outputs: list[str] = []
    nodes: list[Node] = []
    types: dict[str, TensorType] = {}
    updates: dict[str, str] = {}
    renamings: list[Mapping[str, str]] = []
    carried = {v: v for v in first.state}
    for step, graph in enumerate(steps, 1):
        names = {v: v if step == 1 or v in graph.constants else f"{v}@{step}" for v in graph.types}
        names |= carried
        inputs += [names[v] for v in graph.inputs if step == 1 or v not in graph.state]
        outputs += [names[v] for v in graph.outputs]
        nodes += [_renamed(node, names, step) for node in graph.nodes]
        types |= {names[v]: t for v, t in graph.types.items()}
        written = {v: o for v, o in graph.updates.items() if v not in graph.state}
        updates |= {names[v]: names[o] for v, o in written.items()}
        carried = {v: names[o] for v, o in graph.state.items()}
        renamings.append(names)
    updates |= carried
    graph = dataclasses.replace(
        first,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        nodes=tuple(nodes),
        types=types,
        updates=updates,
    )
    return Unrolled(graph, tuple(renamings))


def _renamed(node: Node, names: Mapping[str, str], step: int) -> Node:
    return dataclasses.replace(
        node,
        inputs=tuple(v and names[v] for v in node.inputs),
        outputs=tuple(names[v] for v in node.outputs),
        name=f"{node.name}@{step}" if node.name and step > 1 else node.name,
    )

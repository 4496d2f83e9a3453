"""Networks whose names are what no pass may rely on: equal, taken, or of the form of fresh ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from verax.ir.graph import Builder, Graph, Node

NODE_NAMES: dict[str, Callable[[Node, list[str], np.random.Generator], str]] = {
    "as its output": lambda node, values, rng: node.outputs[0],  # PyTorch's and CoreML's files
    "as another value": lambda node, values, rng: values[int(rng.integers(len(values)))],
    "as its input": lambda node, values, rng: next((v for v in node.inputs if v), ""),
    "all alike": lambda node, values, rng: "n",
    "none": lambda node, values, rng: "",
}
"""How the nodes are called: by the style's name what gives a node its name, from all values."""


def renamed(graph: Graph, style: str, seed: int = 0) -> Graph:
    """The same network with interior values and nodes under other names. Values get names that
    `Builder.fresh` might give (of another value, a constant, an operator, with a number or a word
    behind it); inputs and outputs keep theirs."""
    rng = np.random.default_rng([seed, 3303])
    names = dict.fromkeys((*graph.inputs, *graph.outputs))
    names = {v: v for v in names}
    kinds = sorted({n.op.kind.lower() for n in graph.nodes})
    for value in graph.types:
        while value not in names:
            stem = str(rng.choice(["c", "v", "n", *kinds, *names.values()]))
            name = stem + str(rng.choice(["", "_1", "_2", ".inner", ".product", ".1", ": bias"]))
            if name not in names.values():
                names[value] = name
    b, values = Builder(graph.name), list(names.values())
    for value in graph.inputs:
        b.input(names[value], graph.types[value])
    for value, array in graph.constants.items():
        b.constant(array, names[value])
    for node in graph.nodes:
        inputs = tuple(None if v is None else names[v] for v in node.inputs)
        outputs = tuple(names[v] for v in node.outputs)
        name = NODE_NAMES[style](Node(node.op, inputs, outputs), values, rng)
        b.add_all(node.op, inputs, outputs, name)
    return b.graph([names[v] for v in graph.outputs])

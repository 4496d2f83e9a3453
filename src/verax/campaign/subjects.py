"""Subjects with a known mistake, or none: float32 NumPy, and ONNX Runtime on a changed file.

Both take any graph that holds the guilty node, so that a judge may hand them a part of the network.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.campaign.faults import Change, NodeRewrite, evaluate_rewrite
from verax.export.onnx.writer import to_bytes
from verax.ir.graph import Graph, Node
from verax.ir.types import TensorType
from verax.judge.protocol import Capabilities, Runner
from verax.reference.evaluate import evaluate_node
from verax.runners.onnx_runtime import OnnxRuntimeRunner


class FaultyNumbers:
    """Float32 NumPy with changes at the nodes named; correct without any."""

    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, changes: Mapping[str, Change] | None = None, watches: bool = True) -> None:
        self.name, self.changes = "planted", dict(changes or {})
        self.capabilities = Capabilities(watches=watches, truncates=True, stepwise=True)

    def describe(self) -> dict[str, str]:
        return {"arithmetic": "float32, NumPy", "guilty": ", ".join(self.changes)}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        values = {**graph.constants, **inputs}
        for node in graph.nodes:
            arrays = [None if v is None else values[v] for v in node.inputs]
            values.update(zip(node.outputs, self._outputs(graph, node, arrays)))
        names = {*graph.outputs, *(keep or ())}
        return {v: values[v] for v in values if v in names}

    def _outputs(self, graph: Graph, node: Node, arrays: list[Any]) -> tuple[np.ndarray, ...]:
        change = self.changes.get(node.name)
        if isinstance(change, NodeRewrite):
            return (evaluate_rewrite(change, node, arrays),)
        types = tuple(None if a is None else TensorType.of(a) for a in arrays)
        correct = evaluate_node(node, arrays, types, graph.output_types(node), np.float32)
        if change is not None:
            return (np.asarray(change(arrays, correct[0].copy()), np.float32), *correct[1:])
        return correct


class FaultyFile:
    """ONNX Runtime on a file in which one node was rewritten."""

    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, node: str, rewrite: NodeRewrite, watches: bool = True) -> None:
        self.node, self.rewrite = node, rewrite
        self.capabilities = Capabilities(watches=watches, truncates=True)
        self.runner: Runner = OnnxRuntimeRunner(writer=to_bytes, threads=1, isolated=False)
        self.name = "onnxruntime on a changed file"

    def describe(self) -> dict[str, str]:
        return {**self.runner.describe(), "guilty": self.node}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        return self.runner.run(rewritten(graph, self.node, self.rewrite), inputs, keep)


class CachedAnswers:
    """Another subject, run once for each set of values asked for: one network, one input. Parts of
    the network are not remembered."""

    def __init__(self, subject: Runner) -> None:
        self.subject, self.name = subject, subject.name
        self.stored_inputs, self.capabilities = subject.stored_inputs, subject.capabilities
        self._answers: dict[tuple[str, ...], dict[str, np.ndarray]] = {}
        self._network: Graph | None = None

    def describe(self) -> dict[str, str]:
        return self.subject.describe()

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        if self._network is None:
            self._network = graph
        if graph is not self._network:
            return self.subject.run(graph, inputs, keep)
        requested = tuple(keep or ())
        if requested not in self._answers:
            self._answers[requested] = self.subject.run(graph, inputs, keep)
        return self._answers[requested]


def rewritten(graph: Graph, faulty: str, rewrite: NodeRewrite) -> Graph:
    """`graph` with one node rewritten, as far as it holds that node."""
    nodes, constants, types = [], dict(graph.constants), dict(graph.types)
    for node in graph.nodes:
        if node.name == faulty:
            node, added = rewrite.node(node)
            constants |= added
            types |= {name: TensorType.of(array) for name, array in added.items()}
        nodes.append(node)
    return dataclasses.replace(graph, nodes=tuple(nodes), constants=constants, types=types)

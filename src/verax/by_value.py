"""A subject that runs another file than the one it is judged by: the two are aligned by value.

The commonest comparison: a PyTorch program against the ONNX file that was exported from it, run by
some runtime. Names and layouts differ between the two; inputs, outputs and inner values are brought
together by the numbers that they hold in float64.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.printing import Named
from verax.ir.graph import Graph
from verax.judge.align.pairing import Pairing, pair
from verax.judge.protocol import Capabilities, Naming, Runner, Selective, shape_fits, shape_of
from verax.records.bisection import Step
from verax.runners.passes import PassOptions, with_passes


def same_inputs(first: Graph, second: Graph) -> bool:
    """True if inputs of the two, in order or by name, can be the same arrays."""
    if len(first.arguments) != len(second.arguments):
        return True  # nothing that layouts could mend
    named = set(first.arguments) == set(second.arguments)
    corresponding = zip(first.arguments, first.arguments if named else second.arguments)
    return all(shape_fits(shape_of(first, v), shape_of(second, w)) for v, w in corresponding)


def same_outputs(first: Graph, second: Graph) -> bool:
    """True if an output has its name in both, so that names tell which is which."""
    return not set(first.outputs).isdisjoint(second.outputs)


class ByValueRunner(Named):
    """`runner`, which runs the network `second`, under the names of the network it is judged by."""

    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, runner: Runner, second: Graph) -> None:
        self.runner, self.second = runner, second
        self.name = runner.name
        self.capabilities = Capabilities(runner.capabilities.watches, naming=Naming.given)
        self._pairing: tuple[Any, Pairing] | None = None

    def describe(self) -> dict[str, str]:
        notes = {} if self._pairing is None else self._pairing[1].notes
        return {**self.runner.describe(), **notes}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        pairing, arrays = self._fed(graph, inputs)
        inner_names = [pairing.inner[v][0] for v in keep or () if v in pairing.inner]
        return pairing.read(self.runner.run(self.second, arrays, inner_names or None))

    def _fed(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> tuple[Pairing, dict[str, np.ndarray]]:
        """How the two networks correspond, and the inputs of the second."""
        pairing = self._paired(graph, inputs)
        named = {v: np.asarray(inputs[v]) for v in graph.inputs}
        return pairing, pairing.feed(self.second, named)

    def _paired(self, graph: Graph, inputs: Mapping[str, np.ndarray]) -> Pairing:
        """Made once for a network and its inputs' shapes."""
        shapes = {v: np.shape(inputs[v]) for v in graph.inputs}
        key = (shapes, graph.inputs, graph.outputs, graph.nodes)
        if self._pairing is None or self._pairing[0] != key:
            self._pairing = key, pair(graph, self.second, inputs)
        return self._pairing[1]


class SelectiveByValueRunner(ByValueRunner):
    """The same of a runner that can leave out single steps of its optimization, and so can this.

    What a step did it says of the nodes of the file that it runs.
    """

    @property
    def _selective(self) -> Selective:
        assert isinstance(self.runner, Selective)
        return self.runner

    def optimizations(
        self, graph: Graph, inputs: Mapping[str, np.ndarray]
    ) -> list[tuple[str, Runner]]:
        """As `judge.protocol.Optimizing.optimizations`."""
        runners = self._selective.optimizations(self.second, self._fed(graph, inputs)[1])
        return [(name, self._of(runner)) for name, runner in runners]

    def with_steps(self, names: Sequence[str]) -> SelectiveByValueRunner:
        """As `judge.protocol.Selective.with_steps`."""
        return self._of(self._selective.with_steps(names))

    def step(self, graph: Graph, inputs: Mapping[str, np.ndarray], index: int) -> Step:
        """As `judge.protocol.Selective.step`."""
        return self._selective.step(self.second, self._fed(graph, inputs)[1], index)

    def with_passes(self, options: PassOptions) -> SelectiveByValueRunner:
        """As `runners.passes.Configurable.with_passes`."""
        return self._of(with_passes(self.runner, options))

    def _of(self, runner: Any) -> SelectiveByValueRunner:
        """Another runner on the same file, under the same names."""
        selective = SelectiveByValueRunner(runner, self.second)
        selective._pairing = self._pairing
        return selective


def by_value(runner: Runner, second: Graph) -> ByValueRunner:
    """`runner`, which runs `second`, for another network; with its steps, where it has some."""
    selective = isinstance(runner, Selective)
    return (SelectiveByValueRunner if selective else ByValueRunner)(runner, second)

"""Another network as a subject: compiled by us, compared value by value where names agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from verax.base.option_groups.options import PassOptions
from verax.base.option_groups.settings import Settings
from verax.base.printing import Named
from verax.ir.cut import cut
from verax.ir.graph import Graph, reinfer
from verax.judge.protocol import Capabilities, Naming, shape_of
from verax.runners.feeding import collect, feed
from verax.runners.own import VeraxRunner


class NetworkRunner(Named):
    """Runs `subject`, a graph of its own, and shows its inner values under its own names.

    This answers "are these two files the same network, and where do they part?". Inputs and outputs
    of other names are matched where that is clear, and it is said.
    """

    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, subject: Graph, name: str = "", settings: Settings | None = None) -> None:
        self.subject = subject
        self.runner = VeraxRunner(settings or Settings())
        own = self.runner.capabilities
        self.capabilities = Capabilities(
            watches=True,
            truncates=True,
            own_weights=True,
            stepwise=True,
            naming=Naming.hint,
            fast_algorithms=own.fast_algorithms,
            script=own.script,
        )
        self.name = name or f"network {subject.name!r}"
        self._notes: dict[str, str] = {}

    def with_passes(self, options: PassOptions) -> NetworkRunner:
        """As `runners.passes.Configurable.with_passes`."""
        settings = self.runner.with_passes(options).settings
        return NetworkRunner(self.subject, self.name, settings)

    def describe(self) -> dict[str, str]:
        return {"network": self.subject.name, **self.runner.describe(), **self._notes}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        network = self.subnetwork(graph)
        named, input_notes = feed({v: shape_of(network, v) for v in network.inputs}, inputs)
        values, output_notes = collect(
            graph, self.runner.run(network, named, keep), network.outputs
        )
        self._notes = {**input_notes, **output_notes}
        return values

    def subnetwork(self, graph: Graph) -> Graph:
        """What answers to `graph`: the whole subject, or the part between values of these names."""
        own, boundary = self.subject, {*graph.inputs, *graph.outputs}
        is_full = own.inputs == graph.inputs and set(graph.outputs) <= set(own.outputs)
        if is_full or not boundary <= own.types.keys():
            return own
        constants = {v: a for v, a in graph.constants.items() if v in own.producers}
        part_graph = cut(own, [*graph.inputs, *constants], graph.outputs)
        types = {v: graph.types[v] for v in part_graph.inputs if v not in constants}
        return reinfer(
            part_graph, types, {v: constants[v] for v in part_graph.inputs if v in constants}
        )

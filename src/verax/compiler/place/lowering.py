"""Lowering a planned graph: its steps become kernel calls on placed values.

`Lowering` is what placing functions share: `values` (where each lies), `weights` (packed constants)
and `calls` (what was called). What is computed how is the plan's (`plan.choice`); nothing here
fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from verax.base.option_groups.settings import Settings
from verax.compiler.kernels.loops.loop import Access, LoopSpec
from verax.compiler.kernels.search.scatter import ScatterSpec
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import Calls, CountedCall, Dynamic, ReferenceCall
from verax.compiler.place.storage import Physical, Placed, Pointer
from verax.compiler.place.values import Values
from verax.compiler.place.weights import Weights
from verax.compiler.plan.graph_plan import GraphPlan
from verax.ir.graph import Graph, Node
from verax.numerics.expr import Input


@dataclasses.dataclass(frozen=True)
class StateWrite:
    """State that a kernel writes in place. spec, arguments, flag: the scatter that brings back what
    it overwrote, after a run that failed."""

    state: str
    spec: ScatterSpec
    arguments: tuple[Placed, ...]
    flag: Pointer


class Lowering:
    """A graph that is being lowered. See the module's docstring.

    place_plan(lowering, plan): gives every step of a plan its calls; set by `program`, as it knows
    all rules. Where the graph is that of a chunk of a batch, `full_graph` is that of all of it, and
    the chunk's program is run `chunk_count` times.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        settings: Settings,
        calls: Calls | None = None,
        weights: Weights | None = None,
    ) -> None:
        """calls, weights: where they are recorded, by default new ones."""
        self.graph, self.target, self.settings = graph, target, settings
        self.full_graph, self.chunk_count = graph, 1
        self.choices: tuple[str, ...] = ()  # the plan that is placed, in words
        self.written_state: list[StateWrite] = []  # in place
        self.calls, self.weights = calls or Calls(target), weights or Weights()
        self.values = Values(graph, self.calls, self.weights)
        self.place_plan: Callable[[Lowering, GraphPlan], None] = lambda lowering, plan: None
        self._node_indices = {id(node): i for i, node in enumerate(graph.nodes)}

    def inside(self, graph: Graph, plan: GraphPlan) -> Lowering:
        """The lowering of a body, placed; its weights and checks are this program's."""
        inner = Lowering(graph, self.target, self.settings, self.calls.inside(), self.weights)
        inner.place_plan = self.place_plan
        self.place_plan(inner, plan)
        return inner

    def reference(self, node: Node, reason: str) -> None:
        """Append a call of the node's reference in Python; `reason`: why it has no kernel."""
        inputs: list[Placed | Dynamic | None] = []
        for value in node.inputs:
            if value is None:
                inputs.append(None)
            elif value in self.values.dynamic:
                inputs.append(self.values.dynamic[value])
            else:
                inputs.append(self.values.read_contiguous(value))
        outputs: list[Placed | Dynamic] = []
        for value in node.outputs:
            type_ = self.graph.types[value]
            if type_.is_static:
                outputs.append(self.values.write_contiguous(value))
            else:
                self.values.dynamic[value] = Dynamic(value, type_)
                outputs.append(self.values.dynamic[value])
        index = self._node_indices[id(node)]
        self.calls.steps.append(
            ReferenceCall(index, tuple(inputs), tuple(outputs), node.place, reason)
        )

    def restore_state(self) -> None:
        """Append calls that bring state back that was written in place, where a check of the run
        has failed. No call may follow them."""
        checks = len(self.calls.checks)
        for write in reversed(self.written_state):
            spec = dataclasses.replace(write.spec, checks=checks)
            arguments: tuple[Pointer | Placed, ...] = (
                *write.arguments,
                write.flag,
                self.calls.status,
            )
            self.calls.call(spec, arguments, f"{write.state}: restored after a failed run")

    def counted(self, value: str, rows: Placed, count: Placed, label: str, axis: int = 0) -> None:
        """`value` is the first rows along `axis` of `rows`, as many as `count` (int64 [1]) holds by
        then."""
        if self.calls.sizes is not None:
            self._count_size(value, rows, count, label, axis)
            return
        self.values.dynamic[value] = Dynamic(value, self.graph.types[value])
        self.calls.steps.append(CountedCall(rows, count, self.values.dynamic[value], label, axis))

    def _count_size(self, value: str, rows: Placed, count: Placed, label: str, axis: int) -> None:
        """The same where sizes are read at run time: `value` is a tensor like others."""
        type_ = self.graph.types[value]
        self.calls.count(type_.dims[axis], rows.physical.shape[axis], count, label)
        if not axis:
            physical = Physical(type_)
            self.values.placed[value] = [dataclasses.replace(rows, physical=physical)]
            return
        target = self.values.write_contiguous(value)
        dtype = str(type_.dtype)
        read, written = (Access(dtype, p.strides) for p in (rows.physical, target.physical))
        spec = LoopSpec(type_.shape, (read,), (written,), (Input(0, dtype),))
        with self.calls.making(1):
            self.calls.call(spec, (rows, target), f"{label}: those found")


def is_static(graph: Graph, node: Node) -> bool:
    """True if all sizes of the node's inputs and outputs are known."""
    types = [t for t in graph.input_types(node) if t is not None]
    return all(t.is_static for t in (*types, *graph.output_types(node)))

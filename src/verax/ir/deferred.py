"""`DeferredGraph`: a network whose nodes and constants are made when they are first asked for.

What runs a compiled network asks a graph for its inputs and outputs alone; its constants, which are
packed by then, would lie in memory a second time. So names and types are at hand, the rest is read
again from where it came from, and can be given up (`release`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from verax.ir.assumptions import assuming
from verax.ir.graph import Graph, Names, reinfer
from verax.ir.graph import specialize as specialize_symbols
from verax.ir.types import TensorType


class DeferredGraph(Graph):
    """As `Graph`; `nodes` and `constants`, and `types` of values that are no interface, come from
    `make`."""

    _class_name = "Graph"

    def __new__(cls, *fields: Any, **named: Any) -> Graph:  # type: ignore[misc]
        """An ordinary graph, of all fields: what `dataclasses.replace` makes of a deferred one."""
        return Graph(*fields, **named)

    @classmethod
    def deferred(
        cls,
        make: Callable[[], Graph],
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        types: Mapping[str, TensorType],
        *,
        name: str,
        full: Graph | None = None,
        node_count: int | None = None,
        decided_by_shapes: bool = False,
        updates: Mapping[str, str] | None = None,
        initial: Mapping[str, np.ndarray] | None = None,
        bounds: Mapping[str, tuple[int, int | None]] | None = None,
    ) -> DeferredGraph:
        """types: of inputs and, where they are known, outputs; full: what `make` would give, until
        it is released; node_count: for whoever prints it; decided_by_shapes: no input's value sets
        sizes, as is known without the nodes; updates, initial: of what it remembers; bounds: as of
        `Graph`."""
        graph = object.__new__(cls)
        fields: dict[str, Any] = {
            "inputs": Names(inputs), "outputs": Names(outputs), "name": name,
            "updates": updates or {}, "initial": initial or {}, "bounds": dict(bounds or {}),
            "_make": make, "_graph": full, "_node_count": node_count,
            "types": _Types(graph, types), "decided_by_shapes": decided_by_shapes,
        }  # fmt: skip
        graph.__dict__.update(fields)
        graph.__dict__["_retained"] = frozenset(graph.__dict__)
        return graph

    def __getattr__(self, name: str) -> Any:
        """Of what is not at hand: nodes and constants."""
        if name not in ("nodes", "constants"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.full_graph(), name)

    def full_graph(self) -> Graph:
        """The whole graph, which is held from now on until it is released."""
        graph = self.loaded_graph
        if graph is None:
            graph = self.__dict__["_make"]()
            self.__dict__["_graph"] = graph
        return graph

    def release(self) -> None:
        """Hold names and types of the interface alone."""
        self.__dict__["_graph"] = None
        for name in self.__dict__.keys() - self.__dict__["_retained"] - {"_retained"}:
            self.__dict__.pop(name, None)  # what was derived from nodes

    @property
    def loaded_graph(self) -> Graph | None:
        """The whole graph if it is held; None where it would have to be made now."""
        graph: Graph | None = self.__dict__["_graph"]
        return graph

    @property
    def is_released(self) -> bool:
        """True if the nodes would have to be made now."""
        return self.loaded_graph is None

    def _brief(self) -> str:
        count = self.__dict__["_node_count"]
        if count is None or not self.is_released:
            return super()._brief()
        return self._brief_with(count)

    def __reduce__(self) -> tuple[Any, ...]:
        g = self.full_graph()
        fields = (g.inputs, g.outputs, g.nodes, dict(g.constants), dict(g.types))
        return Graph, (
            *map(_plain, fields),
            g.name,
            dict(g.updates),
            dict(g.initial),
            dict(g.bounds),
        )


def _plain(field: Any) -> Any:
    return tuple(field) if isinstance(field, Names) else field


class _Types(Mapping[str, TensorType]):
    """Types of a graph's values: those of the interface at once."""

    def __init__(self, graph: DeferredGraph, interface: Mapping[str, TensorType]) -> None:
        self._graph, self._interface = graph, dict(interface)

    def __getitem__(self, value: str) -> TensorType:
        type_ = self._interface.get(value)
        return self._graph.full_graph().types[value] if type_ is None else type_

    def __iter__(self) -> Iterator[str]:
        return iter(self._graph.full_graph().types)

    def __len__(self) -> int:
        return len(self._graph.full_graph().types)


def deferred_from(graph: Graph, make: Callable[[], Graph]) -> DeferredGraph:
    """A graph to be given up: what `make` then makes must equal it. Sizes that whoever asks for it
    assumes are none of its own."""

    def remake() -> Graph:
        with assuming(None):
            return make()

    types = {v: graph.types[v] for v in (*graph.inputs, *graph.outputs)}
    count = len(graph.nodes)
    return DeferredGraph.deferred(
        remake, graph.inputs, graph.outputs, types, name=graph.name, full=graph, node_count=count,
        updates=graph.updates, initial=graph.initial,
        bounds=graph.bounds,
    )  # fmt: skip


def reinferred(
    graph: Graph, types: Mapping[str, TensorType], values: Mapping[str, np.ndarray]
) -> Graph:
    """`ir.graph.reinfer`, which waits until it is needed where the graph itself is deferred."""
    if not isinstance(graph, DeferredGraph):
        return reinfer(graph, types, values)
    return _reinferred_later(graph, types, values)


def _reinferred_later(
    graph: Graph, types: Mapping[str, TensorType], values: Mapping[str, np.ndarray]
) -> Graph:
    inputs = tuple(v for v in graph.inputs if v not in values)
    interface = {v: types.get(v, graph.types[v]) for v in inputs}
    open_ones = frozenset().union(*(t.symbols() for t in interface.values()))

    def make() -> Graph:
        full = graph.full_graph() if isinstance(graph, DeferredGraph) else graph
        return reinfer(full, types, values)

    updates = {v: o for v, o in graph.updates.items() if v not in values}
    return DeferredGraph.deferred(
        make, inputs, graph.outputs, interface, name=graph.name,
        updates=updates, initial={v: a for v, a in graph.initial.items() if v in updates},
        bounds={s: ends for s, ends in graph.bounds.items() if s in open_ones},
    )  # fmt: skip


def with_symbols(graph: Graph, dims: Mapping[str, Any]) -> Graph:
    """`ir.graph.specialize`, which waits until it is needed where the graph itself is deferred."""
    if not isinstance(graph, DeferredGraph):
        return specialize_symbols(graph, dims)
    return with_symbols_later(graph, dims)


def with_symbols_later(graph: Graph, dims: Mapping[str, Any]) -> Graph:
    """`ir.graph.specialize`, which waits until it is needed."""
    types = {v: graph.types[v].substitute(dims) for v in graph.inputs}
    return _reinferred_later(graph, types, {})


def release(*graphs: Graph) -> None:
    """Give up what can be made again."""
    for graph in graphs:
        if isinstance(graph, DeferredGraph):
            graph.release()


def is_decided_by_shapes(graph: Graph) -> bool:
    """True if it is known, without the nodes, that no input's value sets sizes."""
    return isinstance(graph, DeferredGraph) and bool(graph.__dict__["decided_by_shapes"])

"""`DeferredModel`: a model that was read and compiled before, whose file is not read until it must.

What a kept program needs of it, names and types of inputs and outputs, is in a small record.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from verax.frontends.model import OVERRULED, Model
from verax.frontends.origin import Origin
from verax.ir.deferred import DeferredGraph
from verax.ir.types import TensorType

REMARKS = frozenset((OVERRULED, "state", "verax.state", "verax.written"))
"""Keys of the metadata of models about which a reader says something each time, or which depend on
a file that may come to lie beside them."""


class DeferredModel(Model):
    """A model that was read before, with another life of this process: its file is read when more
    is asked for than what a program needs to be run."""

    _class_name = "Model"

    def __new__(cls, *fields: Any, **named: Any) -> Model:  # type: ignore[misc]
        """An ordinary model, of all fields: what `dataclasses.replace` makes of a deferred one."""
        return Model(*fields, **named)

    @staticmethod
    def of(
        origin: Origin, record: Mapping[str, Any], stamp: tuple[object, ...], source: str
    ) -> DeferredModel:
        """record: of `record_of`; source: the path as it was given. Raises `KeyError`, `TypeError`,
        `ValueError` or `VeraxError` for no such record."""
        model = object.__new__(DeferredModel)
        types = {v: TensorType.parse(text) for v, text in record["types"].items()}
        graph = DeferredGraph.deferred(
            lambda: model._read().graph,
            tuple(record["inputs"]),
            tuple(record["outputs"]),
            types,
            name=record["name"],
            node_count=int(record["nodes"]),
            decided_by_shapes=True,
            bounds={s: (int(low), high) for s, (low, high) in record.get("bounds", {}).items()},
        )
        fields: dict[str, Any] = {
            "graph": graph, "format": record["format"], "source": source, "program": None,
            "metadata": dict(record["metadata"]), "stamp": stamp, "origin": origin,
        }  # fmt: skip
        model.__dict__.update(fields)
        return model

    def _read(self) -> Model:
        assert self.origin is not None
        model: Model = self.origin.model()
        return model

    def __getattr__(self, name: str) -> Any:
        if name not in ("ledger", "modules"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        model = self._read()
        self.__dict__.update(ledger=model.ledger, modules=model.modules)
        return self.__dict__[name]

    def __reduce__(self) -> tuple[Any, ...]:
        fields = tuple(getattr(self, f.name) for f in dataclasses.fields(Model))
        return Model, tuple(None if isinstance(f, Origin) else f for f in fields)


def record_of(model: Model) -> dict[str, Any] | None:
    """What a `DeferredModel` is made from, for JSON; None for a model that cannot be one: with
    state, or about which its reader has something to say."""
    graph = model.graph
    if graph.updates or model.origin is None or REMARKS & model.metadata.keys():
        return None
    interface = dict.fromkeys((*graph.inputs, *graph.outputs))
    return {
        "companions": dict(model.origin.companions),
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "types": {v: str(graph.types[v]) for v in interface},
        "bounds": {s: list(ends) for s, ends in graph.bounds.items()},
        "name": graph.name,
        "nodes": len(graph.nodes),
        "format": model.format,
        "metadata": dict(model.metadata),
    }

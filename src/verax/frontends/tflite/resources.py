"""Variables of a TFLite model: what VAR_HANDLE names, READ_VARIABLE and ASSIGN_VARIABLE use, and a
graph behind CALL_ONCE fills.

A variable that is assigned is state of the model, as variable tensors are (see `state`): it begins
with what CALL_ONCE put in, and READ_VARIABLE gives what was assigned last, in this call or the one
before. A variable that is only read is a constant. Streaming networks (wake words, speech) keep the
past in such variables.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.control import SubgraphCall
from verax.frontends.common.foreign import ForeignNode, ForeignValue, Subgraph
from verax.ir.types import DType

HANDLE, READ, ASSIGN = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"
FILLING = ("HASHTABLE_IMPORT", HANDLE, ASSIGN)
"""Operators that write to what outlives a call, or name it."""
Key = tuple[str, str]
"""A variable: its container and its name there."""


class Resources:
    """The variables of the first graph. fresh: makes a name that the file has not."""

    def __init__(self, fresh: Callable[[str], str]) -> None:
        self.fresh = fresh
        self.handles: dict[str, Key] = {}
        self.names: dict[Key, str] = {}
        self.filled: dict[Key, np.ndarray] = {}
        self.current: dict[Key, str] = {}

    def threaded(self, nodes: Iterable[ForeignNode]) -> Iterator[ForeignNode]:
        """The nodes without handles: READ_VARIABLE takes, and ASSIGN_VARIABLE gives, the content.

        Raises `UnsupportedError` for a variable that nothing has filled before it is read.
        """
        for node in nodes:
            if node.domain or node.op_type not in ("CALL_ONCE", HANDLE, READ, ASSIGN):
                yield node
            elif isinstance(node, SubgraphCall):
                self._fill(node)
                yield dataclasses.replace(node, body=Subgraph((), (), {}, ()))
            elif node.op_type == HANDLE:
                self.names.setdefault(_handle(node, self.handles), node.outputs[0])
            elif node.op_type == READ:
                yield dataclasses.replace(node, inputs=(self._content(node),))
            else:
                yield self._assigned(node)

    def _fill(self, node: SubgraphCall) -> None:
        """What the graph behind CALL_ONCE puts into variables; nothing where it only computes."""
        handles: dict[str, Key] = {}
        if not any(n.op_type in FILLING for n in node.body.nodes):
            return
        for inner in node.body.nodes:
            if inner.op_type == HANDLE:
                _handle(inner, handles)
                continue
            key = handles.get(inner.inputs[0]) if inner.inputs else None
            array = node.body.constants.get(inner.inputs[1]) if len(inner.inputs) > 1 else None
            if inner.op_type != ASSIGN or key is None or array is None or key in self.current:
                raise UnsupportedError(
                    f"it runs {inner.op_type} once: only variables that are filled with constants "
                    "before anything else are supported of what outlives a call",
                    place=node.place,
                    next_step="export the model with its variables or tables frozen",
                )
            self.filled[key] = array

    def _content(self, node: ForeignNode) -> str:
        """The name of what a variable holds at `node`."""
        key = self.handles.get(node.inputs[0]) if node.inputs else None
        if key is None or (key not in self.current and key not in self.filled):
            raise UnsupportedError(
                "it reads a variable that nothing has filled",
                place=node.place,
                next_step="export the model with the signature that fills its variables",
            )
        return self.current.setdefault(key, self.names[key])

    def _assigned(self, node: ForeignNode) -> ForeignNode:
        key = self.handles.get(node.inputs[0]) if len(node.inputs) == 2 else None
        if key is None:
            raise UnsupportedError("it assigns to what is no variable", place=node.place)
        self.current[key] = self.fresh(f"{self.names[key]}.next")
        return dataclasses.replace(node, inputs=node.inputs[1:], outputs=(self.current[key],))

    @property
    def updates(self) -> dict[str, str]:
        """As in `ForeignModel`: variable -> its last content. One that nothing fills is no state:
        each call assigns it before it reads it."""
        return {
            self.names[key]: new
            for key, new in self.current.items()
            if new != self.names[key] and key in self.filled
        }

    @property
    def inputs(self) -> list[ForeignValue]:
        return [self._value(key, self.names[key]) for key in self._assigned_keys()]

    @property
    def outputs(self) -> list[ForeignValue]:
        return [self._value(key, self.current[key]) for key in self._assigned_keys()]

    @property
    def initial(self) -> dict[str, np.ndarray]:
        return {self.names[key]: self.filled[key] for key in self._assigned_keys()}

    @property
    def untouched(self) -> dict[str, np.ndarray]:
        """Variables that are read and never assigned."""
        assigned = set(self._assigned_keys())
        return {
            self.names[k]: array
            for k, array in self.filled.items()
            if k not in assigned and self.current.get(k) == self.names.get(k, "")
        }

    def _assigned_keys(self) -> list[Key]:
        return [k for k, name in self.names.items() if name in self.updates]

    def _value(self, key: Key, name: str) -> ForeignValue:
        array = self.filled[key]
        return ForeignValue(name, DType(array.dtype.name), tuple(array.shape))


def _handle(node: ForeignNode, handles: dict[str, Key]) -> Key:
    if len(node.outputs) != 1 or node.inputs:
        raise ModelError("a handle takes nothing and is one tensor", place=node.place)
    key = (str(node.attributes.get("container", "")), str(node.attributes.get("shared_name", "")))
    handles[node.outputs[0]] = key
    return key

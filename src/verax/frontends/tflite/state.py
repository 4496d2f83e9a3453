"""State of a TFLite model: variable tensors, which outlive a call and begin with zeros (those of
bytes with their zero point).

Recurrent operators write to variable tensors among their operands, without naming them as outputs.
Here they become outputs of their own, behind the operator's: what the next operator that reads the
tensor is given, and what the model holds after the call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.common.foreign import ForeignNode, ForeignValue

WRITERS = (
    *("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM"),
    *("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "BIDIRECTIONAL_SEQUENCE_RNN", "SVDF"),
)
"""Operators that write to the variable tensors among their operands."""
VARIABLES = "variable_operands"
"""The attribute that says which operands those are; their new content follows the outputs."""
MAX_ELEMENTS = 1 << 28
"""Numbers that a variable tensor may hold; zeros are made of a size that the file states."""


class VariableTensors:
    """The variable tensors of a graph. values: as inputs; taken: every name of the file; zeros:
    zero points of those of bytes, which LiteRT clears to these."""

    def __init__(
        self, values: Sequence[ForeignValue], used_names: set[str], zeros: Mapping[str, int]
    ) -> None:
        self.zeros = zeros
        self.values = {v.name: v for v in values}
        self.current = {name: name for name in self.values}
        self.read: set[str] = set()
        self.used_names = used_names

    def threaded(self, nodes: Iterable[ForeignNode]) -> Iterator[ForeignNode]:
        """The nodes, each reading what the one before it wrote, and naming what it writes."""
        for node in nodes:
            variable_inputs = [i for i, name in enumerate(node.inputs) if name in self.values]
            if self.values.keys() & set(node.outputs):
                raise UnsupportedError("it has a variable tensor as output", place=node.place)
            self.read.update(node.inputs[i] for i in variable_inputs)
            inputs = tuple(self.current.get(name, name) for name in node.inputs)
            written: list[str] = []
            attributes = dict(node.attributes)
            if node.op_type in WRITERS and not node.domain:
                attributes[VARIABLES] = tuple(variable_inputs)
                written = [self._written(node.inputs[i]) for i in variable_inputs]
            outputs = (*node.outputs, *written)
            yield dataclasses.replace(node, inputs=inputs, outputs=outputs, attributes=attributes)

    def _written(self, name: str) -> str:
        """A name for the new content of a variable tensor."""
        self.current[name] = self.named(f"{name}.next")
        return self.current[name]

    def named(self, name: str) -> str:
        """A name like `name` that nothing in the file has."""
        while name in self.used_names:
            name += "'"
        self.used_names.add(name)
        return name

    @property
    def updates(self) -> dict[str, str]:
        """As in `ForeignModel`: variable tensor -> its last content."""
        return {name: new for name, new in self.current.items() if new != name}

    @property
    def inputs(self) -> list[ForeignValue]:
        return [self.values[name] for name in self.updates]

    @property
    def outputs(self) -> list[ForeignValue]:
        return [dataclasses.replace(self.values[v], name=new) for v, new in self.updates.items()]

    @property
    def initial(self) -> dict[str, np.ndarray]:
        """LiteRT clears variable tensors when a model is loaded."""
        return {name: _zeros(self.values[name], self.zeros.get(name, 0)) for name in self.updates}

    @property
    def untouched(self) -> dict[str, np.ndarray]:
        """Variable tensors that are read and never written: zeros."""
        names = self.read - self.updates.keys()
        return {name: _zeros(self.values[name], self.zeros.get(name, 0)) for name in sorted(names)}


def _zeros(value: ForeignValue, zero: int) -> np.ndarray:
    location = f"tensor {value.name!r}"
    if value.dtype is None or value.dims is None:
        raise UnsupportedError(f"a variable tensor is {value.kind}", place=location)
    sizes = [d for d in value.dims if isinstance(d, int)]
    if len(sizes) < len(value.dims):
        raise UnsupportedError("a variable tensor has a size that is left open", place=location)
    if np.prod(sizes, dtype=float) > MAX_ELEMENTS:
        raise ModelError(f"a variable tensor of {sizes} is absurdly large", place=location)
    return np.full(sizes, zero, value.dtype.numpy)

"""`Model`: an imported network, with the record of how its file was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verax.frontends.ledger import Ledger
from verax.ir.graph import Graph
from verax.ir.types import TensorType


@dataclass(frozen=True)
class Model:
    """A graph and where it came from.

    ledger: what became of every attribute in the file. format: e.g. "ONNX, opset 17". source: the
    path, or what was handed over. metadata: what the file says about itself. stamp: of the source
    when it was loaded (`base.reading.stamp`), () when it is no file.
    """

    graph: Graph
    ledger: Ledger
    format: str
    source: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    stamp: tuple[object, ...] = field(default=(), compare=False, repr=False)

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Types of the inputs by name, in order."""
        return {name: self.graph.types[name] for name in self.graph.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Types of the outputs by name, in order."""
        return {name: self.graph.types[name] for name in self.graph.outputs}

    def __str__(self) -> str:
        return str(self.graph)

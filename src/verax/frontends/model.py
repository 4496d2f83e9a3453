"""`Model`: an imported network, with the record of how its file was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verax.base.printing import OneLine
from verax.frontends.common.ledger import Ledger
from verax.ir.graph import Graph
from verax.ir.pixels import Pixels, stated_pixels
from verax.ir.types import TensorType

if TYPE_CHECKING:
    from verax.frontends.origin import Origin

OVERRULED = "value_info not used"
"""Key of the metadata under which a reader says which recorded types it did not take."""


@dataclass(frozen=True, repr=False)
class Model(OneLine):
    """A graph and where it came from.

    ledger: what became of every attribute in the file. format: e.g. "ONNX, opset 17". source: the
    path, or what was handed over. metadata: what the file says about itself. modules: values that a
    module of the network gave, as far as the file tells: its path, and at which of its calls (from
    0). program: the object that was imported, where it was one of a framework's that can run.
    stamp: of the source when it was loaded (`base.storage.reading.stamp`), () when it is no file.
    origin: the files it was read from, where it can be read from them again.
    """

    graph: Graph
    ledger: Ledger
    format: str
    source: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    program: Any = field(default=None, repr=False, compare=False)
    stamp: tuple[object, ...] = field(default=(), compare=False, repr=False)
    origin: Origin | None = field(default=None, compare=False, repr=False)

    def _repr_html_(self) -> str:
        return self.graph._repr_html_()

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Types of the inputs by name, in order; state is none of them."""
        return {name: self.graph.types[name] for name in self.graph.arguments}

    @property
    def outputs(self) -> dict[str, TensorType]:
        """Types of the outputs by name, in order; the state's new values are none of them, the new
        contents of inputs that the network writes to are."""
        return {name: self.graph.types[name] for name in self.graph.results}

    @property
    def state(self) -> dict[str, TensorType]:
        """Types of what the network remembers from run to run, by name."""
        return {name: self.graph.types[name] for name in self.graph.state}

    @property
    def pixels(self) -> dict[str, Pixels]:
        """What the file says of its image inputs, by input."""
        return stated_pixels(self.metadata, self.inputs)

    def _brief(self) -> str:
        return f"{self.format}; {self.graph._brief()}"

    def __str__(self) -> str:
        return str(self.graph)

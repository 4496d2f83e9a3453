"""Foreign nodes: what a reader hands to a table, free of any file format's classes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.ir.types import DType

MAX_NODES = 200_000
"""Nodes that a model may have, also once everything is expanded."""

UNBOUNDED = 1 << 62
"""Larger than any size: the end of a range that has none."""


@dataclass(frozen=True)
class ForeignNode:
    """One node as the file has it. An omitted optional input or output is "".

    version: version of the operator set that gives the node its meaning. Attribute values are
    ints, floats, strings, arrays and tuples of these. depth: how many functions the node was
    inlined from.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    domain: str = ""
    version: int = 0
    depth: int = 0

    @property
    def operator(self) -> str:
        """Operator with its domain, unless that is the format's default one."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def place(self) -> str:
        """How errors and the ledger name this node."""
        named = self.name or next((o for o in self.outputs if o), "")
        return f"node {named!r} ({self.operator})"


@dataclass(frozen=True)
class Subgraph:
    """A graph that is part of a node. What it reads and does not define comes from outside.

    message: the graph as its file has it, where a reader keeps that; None once names are changed.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Any]
    nodes: tuple[ForeignNode, ...]
    message: Any = field(default=None, compare=False)

    def __repr__(self) -> str:
        return f"a graph of {len(self.nodes)} nodes"


@dataclass(frozen=True)
class ForeignValue:
    """A declared value: dims are sizes, names of sizes, or None; `dims` is None when unranked.

    `dtype` is None when `kind` (a sequence, an 8-bit float, ...) is no tensor that Verax has. of:
    what a sequence or an optional holds.
    """

    name: str
    dtype: DType | None
    dims: tuple[int | str | None, ...] | None
    kind: str = ""
    of: ForeignValue | None = None


@dataclass(frozen=True)
class ForeignModel:
    """A file's content: values, constants, nodes in order.

    sizes: which sizes the file allows for a dimension that it leaves open: a `range` or some
    numbers, by the dimension's name, or by "input.axis" if it has none. modules: values that a
    module gave: its path, and at which of its calls (from 0). updates, initial: what the model
    remembers and writes to, as in `ir.graph.Graph`; these are inputs and outputs here too.
    """

    name: str
    inputs: tuple[ForeignValue, ...]
    outputs: tuple[ForeignValue, ...]
    nodes: tuple[ForeignNode, ...]
    constants: Mapping[str, np.ndarray]
    declared: Mapping[str, ForeignValue]
    versions: Mapping[str, int]
    metadata: Mapping[str, str]
    sizes: Mapping[str, Collection[int]] = field(default_factory=dict)
    modules: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    updates: Mapping[str, str] = field(default_factory=dict)
    initial: Mapping[str, np.ndarray] = field(default_factory=dict)


def refuse_many(count: int, location: str = "") -> None:
    """Raise `ModelError` for more than `MAX_NODES` nodes, before a reader looks at any."""
    if count > MAX_NODES:
        raise ModelError(f"the model has {count} nodes; {MAX_NODES} are allowed", place=location)

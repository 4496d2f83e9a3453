"""State in ONNX: the format has no word for it, so a file says which output is which input's next
content in an entry of its metadata, and the first contents lie beside it in NAME.state.npz.

`verax convert` writes such files. Whoever ignores all that has a network that remembers nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

from verax.ir.graph import Graph

STATE, WRITTEN = "verax.state", "verax.written"
"""Entries of the metadata, as JSON: state -> output with its new value, and the same of inputs that
the network writes to."""
NOTE = "state"
"""The entry that tells a reader what became of them."""


def state_file(path: Path) -> Path:
    """Where the first contents of the state of the model `path` lie."""
    return path.with_suffix(".state.npz")


def entries(graph: Graph) -> dict[str, str]:
    """Metadata that says what the graph remembers and which inputs it writes to."""
    written = {v: new for v, new in graph.updates.items() if v not in graph.state}
    tables = {STATE: dict(graph.state), WRITTEN: written}
    return {key: json.dumps(table) for key, table in tables.items() if table}

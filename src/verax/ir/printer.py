"""Printing a graph in its text form; `text` describes the form and reads it back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from verax.base.storage.digests import content_sha256
from verax.ir.types import DType, TensorType

INLINE_LIMIT = 16
"""Constants with more elements are printed as a hash."""
_SIMPLE = re.compile(r"[A-Za-z0-9_./:\-]+\Z")


class Printed(Protocol):
    """What is printed of a graph (`ir.graph.Graph`)."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> Sequence[str]: ...
    @property
    def constants(self) -> Mapping[str, np.ndarray]: ...
    @property
    def nodes(self) -> Sequence[Any]: ...
    @property
    def outputs(self) -> Sequence[str]: ...
    @property
    def types(self) -> Mapping[str, TensorType]: ...
    @property
    def updates(self) -> Mapping[str, str]: ...
    @property
    def initial(self) -> Mapping[str, np.ndarray]: ...
    @property
    def bounds(self) -> Mapping[str, tuple[int, int | None]]: ...


def print_graph(graph: Printed) -> str:
    """The text form of `graph`."""
    lines = [f"graph {json.dumps(graph.name)}"]
    lines += [_input(graph, v) for v in graph.inputs]
    lines += [f"size {s}: {bounds_text(ends)}" for s, ends in graph.bounds.items()]
    lines += [
        f"const {_value(v)}: {graph.types[v]} = {_content(a)}" for v, a in graph.constants.items()
    ]
    for node in graph.nodes:
        outputs = ", ".join(f"{_value(v)}: {graph.types[v]}" for v in node.outputs)
        inputs = ", ".join("_" if v is None else _value(v) for v in node.inputs)
        suffix = f" @ {json.dumps(node.name)}" if node.name else ""
        lines.append(f"{outputs} = {node.op}({inputs}){suffix}")
    updated = {new: f" -> {_value(v)}" for v, new in graph.updates.items()}
    lines += [f"output {_value(v)}{updated.get(v, '')}" for v in graph.outputs]
    return "\n".join(lines) + "\n"


def bounds_text(bounds: tuple[int, int | None]) -> str:
    """The lowest and the highest size of a symbol."""
    low, high = bounds
    return f"{low} and more" if high is None else f"{low} to {high}"


def _input(graph: Printed, value: str) -> str:
    typed = f"{_value(value)}: {graph.types[value]}"
    initial = graph.initial.get(value)
    return f"input {typed}" if initial is None else f"state {typed} = {_content(initial)}"


def content_hash(array: np.ndarray) -> str:
    """Names an array's bytes."""
    return content_sha256(array)[:32]


def _value(name: str) -> str:
    plain = _SIMPLE.match(name) and not name.endswith(":") and not name.startswith(":")
    return f"%{name}" if plain and "::" not in name else f"%{json.dumps(name)}"


def _content(array: np.ndarray) -> str:
    if array.dtype == object:  # sizes that are assumed (`ir.assumptions`)
        return f"[{', '.join(map(str, array.ravel()))}]"
    if array.size > INLINE_LIMIT or (DType.of(array).is_float and np.isnan(array).any()):
        return f"sha256:{content_hash(array)}"
    kind = bool if array.dtype == bool else float if DType.of(array).is_float else int
    return repr([kind(v) for v in array.ravel()])

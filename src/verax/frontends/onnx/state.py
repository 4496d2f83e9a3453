"""A model that remembers again what `verax convert` wrote into its metadata and beside its file."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.base.storage.npz import read_npz
from verax.base.storage.reading import companion
from verax.frontends.model import Model
from verax.ir.graph import Graph
from verax.ir.types import TensorType
from verax.onnx_format.state import NOTE, STATE, WRITTEN, state_file


def with_state(model: Model, path: Path | None) -> Model:
    """The model, remembering what its metadata says; `path` is its file, if it is one.

    Where the entries name no input and output of one type (a tool renamed them), or the state's
    file is missing, the model stays as it is, and a note in its metadata tells why. Raises
    `ModelError` for a state's file that does not belong to the model, `UsageError` for one that
    cannot be read.
    """
    state, written = _names(model.metadata, STATE), _names(model.metadata, WRITTEN)
    if not state and not written:
        return model
    updates = {**state, **written}
    reason = _unfit(model.graph, updates)
    initial: Mapping[str, np.ndarray] = {}
    if not reason and state:
        stored = None if path is None else companion(path.parent, state_file(path).name, "state")
        if stored is None or not stored.is_file():
            reason = f"{state_file(path).name} is not there" if path else "it has no file beside it"
        else:
            initial = _initial(model.graph, state, stored)
    if reason:
        note = f"not remembered, but inputs and outputs: {reason}"
        return dataclasses.replace(model, metadata={**model.metadata, NOTE: note})
    graph = dataclasses.replace(model.graph, updates=updates, initial=initial)
    entries = {NOTE: f"{', '.join(state)}: kept from run to run"} if state else {}
    return dataclasses.replace(model, graph=graph, metadata={**model.metadata, **entries})


def _names(metadata: Mapping[str, str], key: str) -> dict[str, str]:
    """Names of inputs and outputs in an entry; none where it is no such text."""
    try:
        names = json.loads(metadata.get(key, "{}"))
    except (ValueError, RecursionError):
        return {"": ""}
    if not isinstance(names, dict) or not all(isinstance(v, str) for v in names.values()):
        return {"": ""}
    return names


def _unfit(graph: Graph, updates: Mapping[str, str]) -> str:
    """Why the pairs are none of the graph's; "" when they are."""
    for value, new in updates.items():
        if value not in graph.inputs or new not in graph.outputs:
            return f"the model has no input {value!r} with the output {new!r}"
        if graph.types[value] != graph.types[new]:
            return f"{value!r} is {graph.types[value]}, and {new!r} is {graph.types[new]}"
    if len(set(updates.values())) != len(updates):
        return "one output is the new content of two inputs"
    return ""


def _initial(graph: Graph, state: Mapping[str, str], file: Path) -> dict[str, np.ndarray]:
    """First contents by name. Raises `ModelError`, `UsageError`."""
    stored, initial = read_npz(file), {}
    for name in state:
        if name not in stored:
            raise ModelError(f"it holds no {name!r}", place=str(file))
        array, type_ = stored[name], graph.types[name]
        if array.dtype.kind == "V" and array.dtype.itemsize == type_.dtype.numpy.itemsize:
            array = array.view(type_.dtype.numpy)  # what NumPy's files have no name for
        stored_type = str(array.dtype) + str(list(array.shape))
        try:
            fits = TensorType.of(array) == type_
        except UnsupportedError:
            fits = False
        if not fits:
            raise ModelError(
                f"the state {name!r} begins as {stored_type}, the model says {type_}",
                place=str(file),
            )
        initial[name] = array
    return initial

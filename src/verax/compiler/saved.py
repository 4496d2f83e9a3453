"""Saving an executable's program as a .vx file, and running such a file without the model."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import CompileError, InputError, ModelError, VeraxError
from verax.base.settings import Settings
from verax.compiler.driver import Executable, Specialised
from verax.compiler.kernels.target import Target
from verax.ir.graph import Node
from verax.ir.text import parse_operator
from verax.ir.types import DType, TensorType
from verax.reference.evaluate import evaluate_node
from verax.runtime.image import PythonStep
from verax.runtime.program import Program, check_inputs, numpy_dtype
from verax.runtime.vx import load_image, save_image


def save(executable: Executable, path: str | os.PathLike[str]) -> None:
    """Write the program that `executable` used last to `path` (.vx).

    Raises `InputError` when shapes are symbolic and nothing was run yet, `UsageError` when the file
    cannot be written.
    """
    found = executable.specialised
    notes = {
        "verax": importlib.metadata.version("verax"),
        "graph": str(found.graph),
        "plan": list(found.plan.lines),
        "on_reference": list(found.plan.on_reference),
        "opt_level": executable.settings.opt_level,
        "nodes": _node_records(found),
    }
    save_image(path, found.lowered.image, notes)


def _node_records(found: Specialised) -> dict[str, Any]:
    records = {}
    for step in found.lowered.image.schedule:
        if isinstance(step, PythonStep):
            node = found.graph.nodes[step.node]
            records[str(step.node)] = {
                "op": str(node.op),
                "name": node.name,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "input_types": [
                    None if t is None else str(t.dtype) for t in found.graph.input_types(node)
                ],
                "output_types": [str(t) for t in found.graph.output_types(node)],
            }
    return records


class SavedExecutable:
    """A program read from a .vx file."""

    def __init__(self, path: str | os.PathLike[str], threads: int = 0) -> None:
        """Raises `ModelError` for damaged files, `CompileError` for another processor's code."""
        image, notes = load_image(path)
        self.notes, self.image = notes, image
        if image.object_code and not Target.named(_target_name(image.target)).runs_here():
            raise CompileError(
                f"the program was compiled for {image.target!r}, which this machine is not",
                place=os.fspath(path),
                next_step="compile the model on this machine",
            )
        try:
            calls = {int(i): _RecordedNode(r) for i, r in notes.get("nodes", {}).items()}
        except (VeraxError, KeyError, TypeError, ValueError) as error:
            raise ModelError(
                f"the file names a node that cannot be read: {error}", place=os.fspath(path)
            ) from error
        count = Settings(threads=threads).thread_count
        self._program = Program(image, count, lambda i, arrays: calls[i](arrays))
        self._signatures = [(s.name, numpy_dtype(s.dtype), s.shape) for s in image.inputs]

    @property
    def inputs(self) -> dict[str, TensorType]:
        return {s.name: TensorType(DType(s.dtype), s.shape) for s in self.image.inputs}

    @property
    def outputs(self) -> dict[str, TensorType]:
        return {s.name: TensorType(DType(s.dtype), s.shape) for s in self.image.outputs}

    @property
    def graph_text(self) -> str:
        """The text form of the graph that was compiled."""
        return str(self.notes.get("graph", ""))

    @property
    def plan(self) -> tuple[str, ...]:
        return tuple(self.notes.get("plan", ()))

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name. Raises `InputError` when inputs do not fit."""
        arrays = check_inputs(self._signatures, inputs)
        return dict(zip([s.name for s in self.image.outputs], self._program.run(arrays)))

    def __call__(self, *arrays: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        """Inputs by position; one array, or a tuple of several outputs."""
        if len(arrays) != len(self.image.inputs):
            raise InputError(f"{len(arrays)} arrays given, {len(self.image.inputs)} needed")
        results = tuple(self.run(dict(zip(self.inputs, arrays))).values())
        return results[0] if len(results) == 1 else results


class _RecordedNode:
    """A node that runs on the reference, rebuilt from a .vx file."""

    def __init__(self, record: dict[str, Any]) -> None:
        op = parse_operator(record["op"])
        self.node = Node(op, tuple(record["inputs"]), tuple(record["outputs"]), record["name"])
        self.dtypes = [None if d is None else DType(d) for d in record["input_types"]]
        self.outputs = tuple(TensorType.parse(t) for t in record["output_types"])

    def __call__(self, arrays: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        types = tuple(
            None if a is None or d is None else TensorType(d, a.shape)
            for a, d in zip(arrays, self.dtypes)
        )
        return evaluate_node(self.node, arrays, types, self.outputs, np.float32, promised_bits=True)


def _target_name(name: str) -> str:
    return "aarch64" if name == "neon" else name

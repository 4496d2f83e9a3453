"""Saving an executable's program as a .vx file, and running such a file without the model.

A .vx file is machine code, and as trustworthy as its sender: a signature says who that is.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import (
    CompileError,
    GraphError,
    InputError,
    ModelError,
    UnsupportedError,
    UsageError,
    VeraxError,
)
from verax.base.settings import Settings
from verax.compiler.driver import Executable, Specialised
from verax.compiler.kernels.target import Target
from verax.ir.graph import Node, infer_node
from verax.ir.text import parse_operator
from verax.ir.types import DType, TensorType
from verax.records.certificate import Certificate
from verax.records.recipe import Recipe
from verax.reference.evaluate import evaluate_node
from verax.runtime.carried import Remembers
from verax.runtime.image import PythonStep, Signature
from verax.runtime.program import Program, check_inputs, numpy_dtype, tensor_view
from verax.runtime.signature import fingerprint, signing_key, trusted_key
from verax.runtime.vx import load_image, save_image


def save(
    executable: Executable,
    path: str | os.PathLike[str],
    sign: str | os.PathLike[str] | None = None,
) -> None:
    """Write the program that `executable` used last to `path` (.vx).

    sign: a PEM file with the Ed25519 private key to sign it with. The program's state begins with
    the initial values again. Raises `InputError` when shapes are symbolic and nothing was run yet,
    `UnsupportedError` when the program holds for one value of its state only, `UsageError` when the
    file cannot be written or there is no such key.
    """
    key = None if sign is None else signing_key(sign)
    found = executable.specialised
    fixed = [v for v in executable.graph.state if v not in found.inputs]
    if fixed:
        raise UnsupportedError(
            "its value decides the sizes of other tensors, so every value needs a program of its "
            "own, and a .vx file holds one",
            place=f"state {fixed[0]!r}",
            next_step="keep the model, and compile it where it is run",
        )
    notes = {
        "verax": importlib.metadata.version("verax"),
        "graph": str(found.graph),
        "plan": list(found.plan.lines),
        "on_reference": list(found.plan.on_reference),
        "opt_level": executable.settings.opt_level,
        "nodes": _node_records(found),
        "recipe": executable.recipe.to_json(),
    }
    if executable.certificate is not None:
        notes["certificate"] = executable.certificate.to_json()
    save_image(path, found.lowered.image, notes, key)


def read_recipe(source: Recipe | str | os.PathLike[str] | None) -> Recipe | None:
    """The recipe in a JSON file or in a .vx file, whose code is not run; a recipe is handed on.

    Raises `UsageError` when the file cannot be read or holds none, `ModelError` for a damaged .vx.
    """
    if source is None or isinstance(source, Recipe):
        return source
    path = Path(source)
    try:
        if path.suffix == ".vx":
            text = load_image(path)[1].get("recipe")
        else:
            text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the recipe: {error}", place=str(path)) from error
    if text is None:
        raise UsageError(
            "the program does not say its recipe",
            place=str(path),
            next_step="compile the model with this version",
        )
    return Recipe.from_json(str(text))


def signer(sign: str | os.PathLike[str]) -> str:
    """How a file that is signed with this private key names its signer. Raises as `save` does."""
    return fingerprint(signing_key(sign).public)


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


class SavedExecutable(Remembers):
    """A program read from a .vx file, which is machine code: load it only if you trust its sender.

    trust_key: a PEM file with the Ed25519 public key that must have signed it. threads: 0 is all
    cores of this process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        threads: int = 0,
        *,
        trust_key: str | os.PathLike[str] | None = None,
    ) -> None:
        """Raises `ModelError` for damaged files, `CompileError` for another processor's code,
        `TrustError` when it is not signed by the key that is asked for, `UsageError` when there is
        no such key."""
        image, notes = load_image(path, None if trust_key is None else trusted_key(trust_key))
        state = {s.input: s.output for s in image.state}
        super().__init__(state, {s.input: s.initial for s in image.state})
        self.notes, self.image = notes, image
        if image.object_code and not Target.named(_target_name(image.target)).runs_here():
            raise CompileError(
                f"the program was compiled for {image.target!r}, which this machine is not",
                place=os.fspath(path),
                next_step="compile the model on this machine",
            )
        records = notes.get("nodes", {})
        calls: dict[int, RecordedNode] = {}
        for step in image.schedule:
            if isinstance(step, PythonStep):
                try:
                    calls[step.node] = RecordedNode(records[step.node], step, image.weights)
                except UNREADABLE as error:
                    why = error.cause if isinstance(error, VeraxError) else f"{error!r:.200}"
                    raise ModelError(
                        f"the file names a node that cannot be read: {why}", place=os.fspath(path)
                    ) from error
        self._call = lambda i, arrays: calls[i](arrays)
        self.use_threads(threads)
        self._signatures = [(s.name, numpy_dtype(s.dtype), s.shape) for s in image.inputs]

    def use_threads(self, threads: int) -> None:
        """Run on so many threads from now on; 0 is all cores of this process."""
        count = Settings(threads=threads).thread_count
        self._program = Program(self.image, count, self._call)

    @property
    def inputs(self) -> dict[str, TensorType]:
        return _types(self.image.inputs, {s.input for s in self.image.state})

    @property
    def outputs(self) -> dict[str, TensorType]:
        return _types(self.image.outputs, {s.output for s in self.image.state})

    @property
    def graph_text(self) -> str:
        """The text form of the graph that was compiled."""
        return str(self.notes.get("graph", ""))

    @property
    def recipe(self) -> Recipe | None:
        """What decides the program's numbers; None in files of versions that did not write it.

        Raises `UsageError` when it cannot be read.
        """
        text = self.notes.get("recipe")
        return None if text is None else Recipe.from_json(str(text))

    @property
    def certificate(self) -> Certificate | None:
        """What was found when the program was judged, if it was. It is the sender's word.

        Raises `UsageError` when it cannot be read.
        """
        text = self.notes.get("certificate")
        return None if text is None else Certificate.from_json(str(text))

    @property
    def plan(self) -> tuple[str, ...]:
        return tuple(self.notes.get("plan", ()))

    def _outputs_of(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        arrays = check_inputs(self._signatures, inputs)
        return dict(zip([s.name for s in self.image.outputs], self._program.run(arrays)))


def _types(signatures: Sequence[Signature], without: set[str]) -> dict[str, TensorType]:
    kept = (s for s in signatures if s.name not in without)
    return {s.name: TensorType(DType(s.dtype), s.shape) for s in kept}


UNREADABLE = (
    *(VeraxError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError),
    *(NotImplementedError, RecursionError, SyntaxError, TypeError, ValueError),
)
"""What an operator, given attributes and inputs that nobody checked, may raise."""


class RecordedNode:
    """A node that runs on the reference, rebuilt from its record in a .vx file.

    step: where the program keeps the node's values; weights: those of the program. Raises what is
    in UNREADABLE when the record is none, or does not fit the step.
    """

    def __init__(self, record: dict[str, Any], step: PythonStep, weights: np.ndarray) -> None:
        op = parse_operator(record["op"])
        self.node = Node(op, record["inputs"], record["outputs"], record["name"])
        self.dtypes = [None if d is None else DType(d) for d in record["input_types"]]
        self.outputs = tuple(TensorType.parse(t) for t in record["output_types"])
        place = self.node.place
        given = [None if t is None else t.dtype for t in step.inputs]
        absent = [v is None for v in self.node.inputs]
        if given != self.dtypes or absent != [d is None for d in given]:
            raise GraphError("its inputs are not those of its step", place=place)
        made = [(t.dtype, t.region == "python" or t.shape) for t in step.outputs]
        if len(self.node.outputs) != len(made) or made != [
            (o.dtype, t.region == "python" or o.dims) for o, t in zip(self.outputs, step.outputs)
        ]:
            raise GraphError("its outputs are not those of its step", place=place)
        if any(t is not None and t.region == "python" for t in step.inputs):
            return  # their shapes are known when it runs
        types = {
            v: TensorType(DType(t.dtype), t.shape)
            for v, t in zip(self.node.inputs, step.inputs)
            if v is not None and t is not None
        }
        known = {
            v: tensor_view(weights, t)
            for v, t in zip(self.node.inputs, step.inputs)
            if v is not None and t is not None and t.region == "weights"
        }
        inferred, _ = infer_node(self.node, types, known)
        if not all(map(_agree, inferred, self.outputs)):
            raise GraphError(
                f"its outputs are {', '.join(map(str, self.outputs))}, by its operator's rule they "
                f"are {', '.join(map(str, inferred))}",
                place=place,
            )

    def __call__(self, arrays: Sequence[np.ndarray | None]) -> Sequence[np.ndarray]:
        """The outputs. Raises `InputError` when they cannot be computed or do not fit."""
        types = tuple(
            None if a is None or d is None else TensorType(d, a.shape)
            for a, d in zip(arrays, self.dtypes)
        )
        try:
            results = evaluate_node(
                self.node, arrays, types, self.outputs, np.float32, promised_bits=True
            )
        except VeraxError:
            raise
        except UNREADABLE as error:
            raise InputError(
                f"the node cannot be computed on these values: {error!r:.200}",
                place=self.node.place,
            ) from error
        for result, declared in zip(results, self.outputs):
            if not _agree(TensorType.of(result), declared):
                raise InputError(
                    f"the node gives {TensorType.of(result)}, the program has room for {declared}",
                    place=self.node.place,
                )
        return results


def _agree(found: TensorType, declared: TensorType) -> bool:
    """Whether two types are equal, as far as their sizes are numbers."""
    return (
        found.dtype == declared.dtype
        and found.rank == declared.rank
        and all(
            a == b
            for a, b in zip(found.dims, declared.dims)
            if isinstance(a, int) and isinstance(b, int)
        )
    )


def _target_name(name: str) -> str:
    return "aarch64" if name == "neon" else name

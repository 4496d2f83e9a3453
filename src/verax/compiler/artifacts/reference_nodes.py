"""Nodes that a saved program runs on the reference, rebuilt from their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import verax.ops  # noqa: F401  (registers the operators that records name)
from verax.base.errors import GraphError, InputError, ModelError, VeraxError
from verax.ir.graph import Node, infer_node
from verax.ir.text import parse_operator
from verax.ir.types import DType, TensorType
from verax.reference.evaluate import evaluate_node
from verax.runtime.program_binary import ProgramBinary, PythonStep
from verax.runtime.python_steps import tensor_view


def calls_of(
    binary: ProgramBinary, records: Mapping[Any, Any], location: str
) -> dict[int, RecordedNode]:
    """The nodes of a binary's steps in Python. Raises `ModelError` when a record is none."""
    calls: dict[int, RecordedNode] = {}
    for step in binary.schedule:
        if isinstance(step, PythonStep):
            try:
                regions = binary.weight_regions()
                calls[step.node] = RecordedNode(records[step.node], step, regions)
            except UNREADABLE as error:
                reason = error.cause if isinstance(error, VeraxError) else f"{error!r:.200}"
                raise ModelError(
                    f"the file names a node that cannot be read: {reason}", place=location
                ) from error
    return calls


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

    def __init__(
        self,
        record: dict[str, Any],
        step: PythonStep,
        weights: Sequence[tuple[int, np.ndarray]],
    ) -> None:
        op = parse_operator(record["op"])
        self.node = Node(op, record["inputs"], record["outputs"], record["name"])
        self.dtypes = [None if d is None else DType(d) for d in record["input_types"]]
        self.outputs = tuple(TensorType.parse(t) for t in record["output_types"])
        location = self.node.place
        step_dtypes = [None if t is None else t.dtype for t in step.inputs]
        absent = [v is None for v in self.node.inputs]
        if step_dtypes != self.dtypes or absent != [d is None for d in step_dtypes]:
            raise GraphError("its inputs are not those of its step", place=location)
        step_outputs = [(t.dtype, t.region == "python" or t.shape) for t in step.outputs]
        if len(self.node.outputs) != len(step_outputs) or step_outputs != [
            (o.dtype, t.region == "python" or o.dims) for o, t in zip(self.outputs, step.outputs)
        ]:
            raise GraphError("its outputs are not those of its step", place=location)
        if any(t is not None and t.region == "python" for t in step.inputs):
            return  # their shapes are known when it runs
        types = {
            v: TensorType(DType(t.dtype), t.shape)
            for v, t in zip(self.node.inputs, step.inputs)
            if v is not None and t is not None
        }
        contents = {
            v: tensor_view(weights, t)
            for v, t in zip(self.node.inputs, step.inputs)
            if v is not None and t is not None and t.region == "weights"
        }
        inferred, _ = infer_node(self.node, types, contents)
        if not all(map(_agree, inferred, self.outputs)):
            raise GraphError(
                f"its outputs are {', '.join(map(str, self.outputs))}, by its operator's rule they "
                f"are {', '.join(map(str, inferred))}",
                place=location,
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


def _agree(inferred: TensorType, declared: TensorType) -> bool:
    """Whether two types are equal, as far as their sizes are numbers."""
    return (
        inferred.dtype == declared.dtype
        and inferred.rank == declared.rank
        and all(
            a == b
            for a, b in zip(inferred.dims, declared.dims)
            if isinstance(a, int) and isinstance(b, int)
        )
    )

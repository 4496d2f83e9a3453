"""`CompiledProgramRunner`: a program under `torch.compile` as a subject of the judge."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UsageError
from verax.base.optional import optional
from verax.hunt.programs.names import INDUCTOR, SUBJECT, backend_of
from verax.hunt.programs.program import DYNAMIC, SECOND, HuntedProgram, array_of
from verax.ir.graph import Graph
from verax.judge.protocol import Capabilities

torch: Any = optional("torch", "to hunt over torch.compile")

EAGER = "eager PyTorch"
STAGES = {
    EAGER: "the program itself",
    "eager": "Dynamo's graph",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "decompositions",
    INDUCTOR: "Inductor",
}
"""Backends in the order in which each does more, and what each adds."""


def require_backend(text: str) -> None:
    """Raises `UsageError` for a backend that PyTorch does not know."""
    backends = {*torch._dynamo.list_backends(exclude_tags=None)}
    if backend_of(text) not in backends:
        raise UsageError(
            f"torch.compile has no backend {backend_of(text)!r}",
            place=text,
            next_step=f"choose one of {', '.join(sorted(backends))}",
        )


class CompiledProgramRunner:
    """Runs `program` compiled by a backend, or in eager PyTorch for EAGER; it is compiled once.

    dtype: of floating-point inputs instead of their own.
    """

    stored_inputs: Mapping[str, np.ndarray] | None = None
    capabilities = Capabilities(script="torch")

    def __init__(self, program: HuntedProgram, backend: str, dtype: Any = None) -> None:
        self.program, self.backend, self.dtype = program, backend, dtype
        self.name = backend if backend == EAGER else f"{SUBJECT}:{backend}"
        self.types: list[tuple[Any, tuple[int, ...]]] = []
        self._call: Any = None

    def describe(self) -> dict[str, str]:
        return {"torch": torch.__version__, "backend": self.backend, "mode": self.program.mode}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """The program's outputs, by the names that `graph` gives them in order; its inputs are in
        the program's order. Raises `ModelError` where the backend does not compile it."""
        arrays = dict(zip(self.program.inputs, (inputs[v] for v in graph.inputs)))
        try:
            with torch.no_grad(), warnings.catch_warnings(action="ignore"):
                tensors = self._called(arrays)
        except Exception as error:  # the backends' own, which have no common base
            raise ModelError(f"{self.name} fails: {type(error).__name__}: {error}") from error
        self.types = [(t.dtype, tuple(t.shape)) for t in tensors]
        return {v: array_of(t) for v, t in zip(graph.outputs, tensors)}

    def _called(self, arrays: Mapping[str, np.ndarray]) -> list[Any]:
        if self._call is None:
            torch._dynamo.reset()
            self._call = self.program.function()
            if self.backend != EAGER:
                dynamic = True if self.program.mode == DYNAMIC else None
                self._call = torch.compile(self._call, backend=self.backend, dynamic=dynamic)
                if self.program.mode == SECOND:
                    self._call(*self.program.tensors({n: changed(a) for n, a in arrays.items()}))
        return list(self._call(*self.program.tensors(arrays, self.dtype)))


def changed(array: np.ndarray) -> np.ndarray:
    """Other numbers of the same type and shape, integers among those that are there."""
    if array.dtype == np.bool_:
        return ~array
    return (
        array[::-1].copy() if array.dtype.kind in "iu" else (array * 0.5 + 0.25).astype(array.dtype)
    )


def type_difference(program: HuntedProgram, runner: CompiledProgramRunner) -> str:
    """How types or shapes of the last run differ from those of eager PyTorch; "" if they do not."""
    for index, (tensor, (dtype, shape)) in enumerate(zip(program.eager(), runner.types)):
        if tensor.dtype != dtype:
            return f"output {index} is of {dtype}, not of {tensor.dtype}"
        if tuple(tensor.shape) != shape:
            return f"output {index} has the shape {shape}, not {tuple(tensor.shape)}"
    return ""

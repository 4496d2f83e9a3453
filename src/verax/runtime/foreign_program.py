"""A program for another kind of processor: it can be inspected and saved, and refuses to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from verax.base.gpu.targets import GPU_TARGETS
from verax.base.lazy import deferred
from verax.base.machine.processor import require_runs_here, runs_here
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program import Program, PythonCall
from verax.runtime.program_binary import ProgramBinary

_gpu_program = deferred("verax.runtime.gpu.program:GpuProgram")


class ForeignProgram(Program):
    """A `Program` whose methods that run it raise `CompileError`."""

    def __init__(self, binary: ProgramBinary) -> None:
        self.binary = binary

    def _refuse(self) -> NoReturn:
        require_runs_here(self.binary.target)
        raise AssertionError("it runs here")

    @property
    def is_native(self) -> bool:
        return False

    def run(
        self, arrays: Sequence[np.ndarray], sized: SizedProgram | None = None
    ) -> list[np.ndarray]:
        self._refuse()

    def run_if_exact(self, values: Any) -> list[np.ndarray] | None:
        self._refuse()

    def run_on_device(self, inputs: Any, sized: SizedProgram | None = None) -> Any:
        self._refuse()

    def poison(self, fill: int) -> None:
        self._refuse()

    def time_steps(self, *arguments: Any, **options: Any) -> Any:
        self._refuse()

    def close(self) -> None:
        """Nothing was loaded."""


def load_program(
    binary: ProgramBinary, threads: int, python_call: PythonCall | None, card: int = 0
) -> Program:
    """The program of a binary, ready to run if it can run here. card: see `runs_here`."""
    can_run = runs_here(binary.target, card)
    if binary.object_code and not can_run:
        return ForeignProgram(binary)
    if can_run and binary.target in GPU_TARGETS:
        return _gpu_program(binary, threads, python_call, card)
    return Program(binary, threads, python_call)

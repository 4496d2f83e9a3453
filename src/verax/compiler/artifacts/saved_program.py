"""Running a .vx file without the model.

Nothing is imported here that makes code or knows operators, unless the program has nodes that run
on the reference: a program starts quickly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from verax.base.errors import InputError, ModelError
from verax.base.gpu.targets import GPU_TARGETS
from verax.base.lazy import deferred
from verax.base.machine.processor import require_runs_here
from verax.base.option_groups.deprecation import renamed_property
from verax.base.option_groups.settings import Settings
from verax.base.printing import first_few
from verax.compiler.artifacts.open_inputs import COMPILE, is_readable, open_types, sizes_of
from verax.ir.types import DType, TensorType
from verax.runtime.arguments import check_inputs, types_of
from verax.runtime.counted_sizes import CountsNotServedError
from verax.runtime.execution_context import with_shapes
from verax.runtime.foreign_program import load_program
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program import Program
from verax.runtime.program_binary import ProgramBinary, PythonStep, Signature
from verax.runtime.signature import trusted_key
from verax.runtime.stateful import Arrays, StatefulExecutable
from verax.runtime.stateful_runs import state_buffers_of
from verax.runtime.vx import load_binary

if TYPE_CHECKING:
    from verax.records.certificate import Certificate
    from verax.records.recipe import Recipe
    from verax.runtime.gpu.calls import DeviceInputs, any_on_device, run_on_device
    from verax.runtime.gpu.code import capabilities, kernel_count
else:
    any_on_device = deferred("verax.runtime.gpu.calls:any_on_device")
    run_on_device = deferred("verax.runtime.gpu.calls:run_on_device")
    capabilities = deferred("verax.runtime.gpu.code:capabilities")
    kernel_count = deferred("verax.runtime.gpu.code:kernel_count")


def calls_of(
    binary: ProgramBinary, notes: Mapping[str, Any], location: str
) -> Callable[[int, Sequence[np.ndarray | None]], Sequence[np.ndarray]] | None:
    """call(node index, arrays) -> arrays, for nodes without a kernel; None when there are none.

    Raises `ModelError` when the notes do not say what they are.
    """
    if not any(isinstance(step, PythonStep) for step in binary.schedule):
        return None
    recorded = import_module("verax.compiler.artifacts.reference_nodes")  # knows every operator
    calls = recorded.calls_of(binary, notes.get("nodes", {}), location)
    return lambda index, arrays: calls[index](arrays)


class SavedExecutable(StatefulExecutable):
    """A program read from a .vx file, which is machine code: load it only if you trust its sender.

    One for many sizes raises `InputError` for those that it was not made for.

    trust_key: a PEM file with the Ed25519 public key that must have signed it. threads: 0 is all
    cores of this process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        threads: int = 0,
        *,
        trust_key: str | os.PathLike[str] | None = None,
        runs: bool = True,
    ) -> None:
        """runs: False to look at a program that this machine may not run.

        Raises `ModelError` for damaged files, `CompileError` for another processor's code,
        `TrustError` when it is not signed by the key that is asked for, `UsageError` when there is
        no such key."""
        binary, notes = load_binary(path, None if trust_key is None else trusted_key(trust_key))
        state = {s.input: s.output for s in binary.state}
        super().__init__(state, {s.input: s.initial for s in binary.state})
        self.notes, self.binary = notes, binary
        if binary.open_sizes is not None and (state or not is_readable(binary.open_sizes)):
            raise ModelError(
                "it leaves sizes open that no input tells, or has state",
                place=os.fspath(path),
                next_step="compile the model again",
            )
        symbols = binary.open_sizes.symbols if binary.open_sizes is not None else ()
        self._open_names = tuple(notes.get("open_names", symbols))
        if len(self._open_names) != len(symbols):
            raise ModelError("its open sizes have other names", place=os.fspath(path))
        if binary.object_code and runs:
            require_runs_here(binary.target, os.fspath(path))
        self._card, self._runs = 0, runs
        self._call = calls_of(binary, notes, os.fspath(path))
        self.use_threads(threads)
        self._names = [s.name for s in binary.outputs]
        self._input_types = types_of(binary.inputs)

    def _brief(self) -> str:
        inputs = first_few(f"{v} {t}" for v, t in self.inputs.items()) or "no input"
        outputs = first_few(f"{v} {t}" for v, t in self.outputs.items()) or "no output"
        return f"{len(self.plan)} steps for {self.binary.target}; {inputs} -> {outputs}"

    def __str__(self) -> str:
        return "\n".join([repr(self), *self.plan])

    def use_threads(self, threads: int) -> None:
        """Run on so many threads from now on; 0 is all cores of this process."""
        self._threads = Settings(threads=threads).thread_count
        self._load()

    def use_card(self, card: int) -> None:
        """Run on that one of the machine's cards from now on, if the program is for a GPU.

        Raises `DeviceError` or `CompileError` where it does not run it.
        """
        require_runs_here(self.binary.target, card=card)
        self._card = card
        self._load()

    def _load(self) -> None:
        self._program = load_program(self.binary, self._threads, self._call, self._card)
        self._state_buffers = state_buffers_of(self._program) if self._runs else None

    image = renamed_property("image", "binary")

    @property
    def inputs(self) -> dict[str, TensorType]:
        """Of a program for many sizes with names of those that are open."""
        open_sizes = self.binary.open_sizes
        if open_sizes is not None:
            return open_types(self.binary.inputs, open_sizes.inputs, open_sizes, self._open_names)
        return _types(self.binary.inputs, {s.input for s in self.binary.state})

    @property
    def outputs(self) -> dict[str, TensorType]:
        open_sizes = self.binary.open_sizes
        if open_sizes is not None:
            return open_types(self.binary.outputs, open_sizes.outputs, open_sizes, self._open_names)
        return _types(self.binary.outputs, {s.output for s in self.binary.state})

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
        if text is None:
            return None
        recipe: Recipe = import_module("verax.records.recipe").Recipe.from_json(str(text))
        return recipe

    @property
    def options(self) -> dict[str, Any]:
        """The options of `compile` by name, without paths; none in files of versions that did not
        write them. They are the sender's word. Raises `UsageError` when they cannot be read."""
        from_text = import_module("verax.records.codec").read_plain
        options = from_text(str(self.notes.get("options", "{}")))
        return options if isinstance(options, dict) else {}

    @property
    def certificate(self) -> Certificate | None:
        """What was found when the program was judged, if it was. It is the sender's word.

        Raises `UsageError` when it cannot be read.
        """
        text = self.notes.get("certificate")
        if text is None:
            return None
        record = import_module("verax.records.certificate").Certificate
        certificate: Certificate = record.from_json(str(text))
        return certificate

    @property
    def gpu_kernels(self) -> int | None:
        """How many kernels a program for a GPU has; None of one for the processor."""
        if self.binary.target not in GPU_TARGETS or not self.binary.object_code:
            return None
        return kernel_count(self.binary.object_code)

    @property
    def gpu_machine_code(self) -> list[str]:
        """Compute capabilities of the cards for which it has machine code, too."""
        return [] if self.gpu_kernels is None else capabilities(self.binary.object_code)

    @property
    def plan(self) -> tuple[str, ...]:
        return tuple(self.notes.get("plan", ()))

    def _run_in_place(
        self, inputs: Arrays, state: Arrays
    ) -> tuple[list[np.ndarray], Arrays] | None:
        return self._state_buffers.run(inputs, state) if self._state_buffers else None

    def _outputs_of(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        outputs: Any
        try:
            outputs = self._program.run_if_exact(inputs)
            if outputs is None and self.binary.target in GPU_TARGETS and any_on_device(inputs):
                outputs = run_on_device(inputs, self.binary.target, self._card, self._program_for)
            elif outputs is None:
                arrays, sized = self._checked(inputs)
                outputs = self._program.run(arrays, sized)
        except CountsNotServedError as refused:
            counts = ", ".join(f"{name}={count}" for name, count in refused.counts.items())
            raise InputError(
                f"the program is not for what the data decide here: {counts}", next_step=COMPILE
            ) from refused
        return dict(zip(self._names, outputs))

    def _program_for(self, resident: DeviceInputs) -> tuple[Program, SizedProgram | None]:
        """What runs arrays of these types. Raises `InputError` for others."""
        return self._program, self._checked(resident.typed())[1]

    def _checked(
        self, inputs: Mapping[str, np.ndarray]
    ) -> tuple[list[np.ndarray], SizedProgram | None]:
        """The inputs in order, and what the program is for their sizes, if some are open. Raises
        `InputError` where they do not fit."""
        sized, types = None, self._input_types
        if self.binary.open_sizes is not None:
            sized = self._program.sized(sizes_of(self._program, self._open_names, inputs))
            types = with_shapes(self.binary.inputs, sized.inputs)
        return check_inputs(types, inputs), sized


def _types(signatures: Sequence[Signature], without: set[str]) -> dict[str, TensorType]:
    signatures_left = (s for s in signatures if s.name not in without)
    return {s.name: TensorType(DType(s.dtype), s.shape) for s in signatures_left}

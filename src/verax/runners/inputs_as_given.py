"""Inputs in the form in which a user gave them: what a function under test is handed, and from
which devices a verdict says that they were copied."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from verax.base.machine.devices import devices_in
from verax.base.tensors import is_array, tensors_in
from verax.judge.protocol import Runner
from verax.records.verdict import Verdict
from verax.runners.array_forms import form_words
from verax.runners.functions import FunctionRunner
from verax.runners.pytorch.torch_calls import complex_inputs, named_tensors


def inputs_by_input(program: Any, arguments: Sequence[str], inputs: Any) -> Mapping[str, Any]:
    """Inputs of one run, or of the first of several, by name and as they were given.

    program: the ExportedProgram that takes them, None for a network that is none. arguments: the
    network's inputs. Empty where there are none, or they cannot be told apart.
    """
    if isinstance(inputs, list | tuple) and inputs and isinstance(inputs[0], Mapping):
        inputs = inputs[0]
    if isinstance(inputs, Mapping):
        return inputs
    if inputs is not None and program is not None:
        listed = tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,)
        return named_tensors(program, (listed, {}))
    return {arguments[0]: inputs} if is_array(inputs) and len(arguments) == 1 else {}


def with_inputs_like(runner: Runner, program: Any, arguments: Sequence[str], inputs: Any) -> Runner:
    """`runner`; a function is handed tensors, or arrays of JAX or CuPy, where `inputs` are these,
    and on the same devices. Arguments as of `inputs_by_input`."""
    if type(runner) is not FunctionRunner:
        return runner
    like, tensors = inputs_by_input(program, arguments, inputs), bool(tensors_in(inputs))
    if not tensors and not any(map(form_words, like.values())):
        return runner
    return FunctionRunner(
        runner.function,
        runner.name,
        tensors=tensors,
        complex_inputs=complex_inputs(program) if program is not None and tensors else (),
        like=like,
    )


def with_devices(verdict: Verdict, inputs: Mapping[str, Any]) -> Verdict:
    """The verdict, saying of each input from which device it was copied. inputs: as they were
    given, by name."""
    devices = {name: ", ".join(dict.fromkeys(devices_in(v))) for name, v in inputs.items()}
    records = tuple(
        dataclasses.replace(one, origin=f"{one.origin}, copied from {devices[one.name]}")
        if devices.get(one.name)
        else one
        for one in verdict.inputs
    )
    return dataclasses.replace(verdict, inputs=records)

"""Calls with arrays that lie on a GPU: what executables do when they are given some."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from verax.runtime.gpu.arrays import DeviceArray, callers_stream, lies_on_device, on_device
from verax.runtime.gpu.device import Device
from verax.runtime.gpu.devices import device_of
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program import Program


@dataclasses.dataclass(frozen=True)
class DeviceInputs:
    """Inputs by name, on the device. stream: the caller's; None where it is not known. originals:
    what he gave."""

    device: Device
    arrays: Mapping[str, DeviceArray]
    stream: int | None
    originals: Mapping[str, Any]

    def typed(self, read: Collection[str] = ()) -> dict[str, np.ndarray]:
        """Arrays of the same shapes and element types that hold nothing; those of `read` hold what
        the inputs do."""
        return {
            name: np.asarray(array)
            if name in read
            else np.broadcast_to(np.zeros((), array.dtype), array.shape)
            for name, array in self.arrays.items()
        }

    def arrays_with(self, read: Collection[str]) -> Mapping[str, Any]:
        """The arrays where they lie; those of `read` on the host."""
        if not read:
            return self.arrays
        return {n: np.asarray(a) if n in read else a for n, a in self.arrays.items()}

    def on_host(self) -> dict[str, np.ndarray]:
        """Copies on the host."""
        return self.typed(self.arrays)


def any_on_device(inputs: Mapping[str, Any]) -> bool:
    """Whether some input lies in the memory of a card of NVIDIA."""
    return any(map(lies_on_device, inputs.values()))


def run_on_device(
    inputs: Mapping[str, Any],
    target: str,
    card: int,
    program_for: Callable[[DeviceInputs], tuple[Program, SizedProgram | None]],
) -> list[DeviceArray]:
    """Outputs on the device of a program for a GPU.

    program_for: the program for inputs of such types, which it checks. Raises `InputError` where
    inputs do not fit, and `DeviceError`.
    """
    resident = _resident(inputs, target, card)
    program, sized = program_for(resident)
    outputs: list[DeviceArray] = program.run_on_device(resident, sized)
    return outputs


def run_through_host(
    inputs: Mapping[str, Any],
    target: str,
    card: int,
    run: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]],
) -> dict[str, DeviceArray]:
    """Outputs on the device, by name, of what runs on arrays of the host: for networks whose data
    decide which program runs. Raises as `run`."""
    resident = _resident(inputs, target, card)
    outputs = run(resident.on_host()).items()
    return {n: on_device(a, resident.device, resident.stream, n) for n, a in outputs}


def _resident(inputs: Mapping[str, Any], target: str, card: int) -> DeviceInputs:
    device = device_of(target, card)
    stream = callers_stream(inputs.values())
    arrays = {name: on_device(value, device, stream, name) for name, value in inputs.items()}
    return DeviceInputs(device, arrays, stream, inputs)

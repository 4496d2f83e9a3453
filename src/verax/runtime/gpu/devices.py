"""Which device runs code for a target."""

from __future__ import annotations

from verax.base.gpu.targets import EMULATED_GPU
from verax.runtime.gpu.cuda import cuda_device
from verax.runtime.gpu.device import Device
from verax.runtime.gpu.emulated import EmulatedDevice

_emulated = EmulatedDevice()


def device_of(target: str, card: int = 0) -> Device:
    """The device that runs code for a target. card: of those that NVIDIA's driver has. Raises
    `DeviceError` where there is none."""
    return _emulated if target == EMULATED_GPU else cuda_device(card)

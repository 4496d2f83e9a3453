"""`LoadedKernels`: what all contexts of a program on a GPU share."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.errors import DeviceError
from verax.runtime.gpu.device import Device
from verax.runtime.gpu.launches import DeviceStep

SMALLEST_ALLOCATION = 256
"""Bytes: an array of nothing has an address, too."""


class LoadedKernels:
    """A program's kernels and weights on a device, for all of its contexts."""

    def __init__(
        self,
        device: Device,
        kernels: dict[str, Any],
        segments: dict[str, tuple[DeviceStep, ...]],
        weights: Sequence[np.ndarray],
    ) -> None:
        """weights: the program's own, then its blocks; each is copied to the device."""
        self.device, self.kernels, self.segments = device, kernels, segments
        self.weights: list[int] = []
        self._finalizer = weakref.finalize(self, free_all, device, self.weights)
        self._finalizer.atexit = False
        for array in weights:
            self.weights.append(device.allocate(max(array.nbytes, SMALLEST_ALLOCATION)))
            if array.nbytes:
                device.write(self.weights[-1], array)


def free_all(device: Device, addresses: Sequence[int]) -> None:
    """Give memory back."""
    for address in addresses:
        with contextlib.suppress(DeviceError):  # a card that failed has nothing to give back
            device.free(address)

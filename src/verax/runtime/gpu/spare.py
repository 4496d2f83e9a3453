"""Memory of outputs that nobody holds any more, for outputs of the same size.

The driver waits for all work before it gives memory back. Work of one stream is done in order, so
that memory which only one stream has used is free for its next work at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import weakref

from verax.base.errors import VeraxError
from verax.base.process.forks import on_fork
from verax.runtime.gpu.device import Device

MOST_BYTES = 64 << 20
"""That are held of a device; more is given back."""
_lock = threading.RLock()  # a finalizer may run while it is held
_spare: weakref.WeakKeyDictionary[Device, dict[tuple[int, int], list[int]]]
_spare = weakref.WeakKeyDictionary()


def _renew() -> None:
    """In a forked child, where the driver is of no use."""
    global _lock
    _lock = threading.RLock()
    _spare.clear()


on_fork(_renew)


@dataclasses.dataclass
class SpareMemory:
    """Memory of a device that work of one stream uses; is_shared: and of others, from now on."""

    device: Device
    stream: int
    nbytes: int
    address: int
    is_shared: bool = False

    @staticmethod
    def acquire(device: Device, stream: int, nbytes: int) -> SpareMemory:
        """Memory that holds anything. Raises `InputError` where there is none."""
        with _lock:
            addresses = _spare.get(device, {}).get((stream, nbytes))
            address = addresses.pop() if addresses else None
        if address is None:
            try:
                address = device.allocate(nbytes)
            except VeraxError:
                if not give_all_back(device):
                    raise
                address = device.allocate(nbytes)
        return SpareMemory(device, stream, nbytes, address)

    def give_back(self) -> None:
        """Nobody holds it; what the stream was asked to do before may use it still."""
        if not self.is_shared:
            with _lock:
                by_size = _spare.setdefault(self.device, {})
                total = sum(nbytes * len(addresses) for (_, nbytes), addresses in by_size.items())
                if total + self.nbytes <= MOST_BYTES:
                    by_size.setdefault((self.stream, self.nbytes), []).append(self.address)
                    return
        with contextlib.suppress(VeraxError):  # a card that failed has nothing to give back
            self.device.free(self.address)


def give_all_back(device: Device) -> bool:
    """Whether there was any spare memory of a device, which is the driver's again."""
    with _lock:
        addresses = [a for addresses in _spare.pop(device, {}).values() for a in addresses]
    for address in addresses:
        device.free(address)
    return bool(addresses)

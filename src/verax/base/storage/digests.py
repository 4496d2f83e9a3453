"""SHA-256 of arrays' bytes, computed once for each array that nobody can write.

Constants of a network are hashed for its text, for the keys of its packed weights and for its name;
hashing takes as long as all else that is done to them.
"""

from __future__ import annotations

import hashlib
import threading
import weakref

import numpy as np

_digests: dict[tuple[int, int], tuple[weakref.ref[np.ndarray], str]] = {}
"""By address and number of bytes, with the array that owns them: addresses come back."""
_lock = threading.RLock()
WORTH = 1 << 14
"""Bytes from which on a digest is remembered."""


def content_sha256(array: np.ndarray) -> str:
    """Of an array's bytes in C order, in hexadecimal; of objects it is that of their addresses."""
    owner = _frozen_owner(array) if array.nbytes >= WORTH and array.flags.c_contiguous else None
    if owner is None:
        return _computed(array)
    location = array.ctypes.data, array.nbytes
    remembered = _digests.get(location)
    if remembered is not None and remembered[0]() is owner:
        return remembered[1]
    digest = _computed(array)

    def forget(reference: weakref.ref[np.ndarray]) -> None:
        with _lock:
            if location in _digests and _digests[location][0] is reference:
                del _digests[location]

    with _lock:
        _digests[location] = weakref.ref(owner, forget), digest
    return digest


def _computed(array: np.ndarray) -> str:
    flat = np.ascontiguousarray(array).reshape(-1)
    content = flat.tobytes() if array.dtype.hasobject else flat.view(np.uint8).data
    return hashlib.sha256(content).hexdigest()


def _frozen_owner(array: np.ndarray) -> np.ndarray | None:
    """The array whose bytes these are, if they are read-only however they are reached."""
    while not array.flags.writeable:
        base = array.base
        if base is None or isinstance(base, bytes):
            return array
        if isinstance(base, memoryview):
            return array if base.readonly else None
        if not isinstance(base, np.ndarray):
            return None
        array = base
    return None

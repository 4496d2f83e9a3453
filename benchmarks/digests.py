"""The hash by which outputs of one network are called the same bits, on whatever machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

SHOWN = 12
"""Digits of a hash in tables."""


def digest(outputs: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, types, shapes and bytes of the outputs, in their order."""
    found = hashlib.sha256()
    for name, array in outputs.items():
        array = np.ascontiguousarray(array)
        found.update(f"{name} {array.dtype} {array.shape} ".encode())
        found.update(array.tobytes())
    return found.hexdigest()

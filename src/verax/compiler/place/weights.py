"""`Weights`: the constants of a program, packed as its kernels read them, equal ones once."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from verax.compiler.place.storage import Buffer, MemorySpace, Physical, Placed, Pointer
from verax.ir.types import TensorType

LATER_BYTES = 1 << 16
"""Weights of fewer bytes are packed at once."""


class Weights:
    """Buffers of constants; those of bodies are their program's.

    buffers: each with its contents, or what makes them when the weights are laid out.
    """

    def __init__(self) -> None:
        self.buffers: list[tuple[Buffer, np.ndarray | Callable[[], np.ndarray]]] = []
        self._by_content: dict[Hashable, list[tuple[Buffer, np.ndarray]]] = {}

    def constant(self, array: np.ndarray, physical: Physical | None = None) -> Placed:
        """An array kept in the weights; equal arrays are kept once."""
        # ascontiguousarray gives () an axis
        array = np.asarray(array, order="C")
        return Placed(physical or Physical(TensorType.of(array)), self._weight_buffer(array))

    def packed(self, array: np.ndarray) -> Pointer:
        """Packed weights, in whatever order the kernel reads them."""
        return Pointer(self._weight_buffer(np.ascontiguousarray(array)))

    def packed_later(
        self, source: np.ndarray, packing: Hashable, nbytes: int, pack: Callable[[], np.ndarray]
    ) -> Pointer:
        """What `pack` will make of `source`, `nbytes` of it, when the weights are laid out: then
        LLVM is at work beside it, and no second copy of all weights is held.

        packing: decides the packed content together with `source`.
        """
        if nbytes < LATER_BYTES:
            return self.packed(pack())
        return Pointer(self._weight_buffer(np.asarray(source, order="C"), packing, nbytes, pack))

    def _weight_buffer(
        self,
        array: np.ndarray,
        packing: Hashable = None,
        nbytes: int | None = None,
        pack: Callable[[], np.ndarray] | None = None,
    ) -> Buffer:
        content = array.reshape(-1).view(np.uint8)
        key = (packing, array.nbytes, content[:4096].tobytes())
        alike = self._by_content.setdefault(key, [])
        for buffer, cached_content in alike:
            if np.array_equal(content, cached_content):
                return buffer
        buffer = Buffer(MemorySpace.weights, array.nbytes if nbytes is None else nbytes)
        alike.append((buffer, content))
        self.buffers.append((buffer, pack or array))
        return buffer

"""`Weights`: the constants of a program, packed as its kernels read them, equal ones once.

Small ones lie one after the other in memory of the program's own, large ones are blocks that all
programs of the process share (`runtime.weight_blocks`). A block's key says what it was packed from
and how, so a program for other sizes packs only what no program holds in that order.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Hashable
from functools import partial

import numpy as np

from verax.base.storage.digests import content_sha256
from verax.compiler.place.storage import Buffer, MemorySpace, Physical, Placed, Pointer
from verax.ir.types import TensorType
from verax.runtime.weight_blocks import room_for

Pack = Callable[[np.ndarray], None]
"""Writes packed weights into a room of bytes."""
LATER_BYTES = 1 << 16
"""Weights of fewer bytes are packed at once, and are no blocks."""


@dataclasses.dataclass
class PackedConstant:
    """What is packed into a buffer: `source` as it is, or what `pack` makes of it.

    packing: decides the packed content together with `source`.
    """

    buffer: Buffer
    source: np.ndarray
    packing: Hashable = None
    pack: Pack | None = None

    @property
    def is_block(self) -> bool:
        return self.buffer.nbytes >= LATER_BYTES

    def key(self, target: Hashable) -> str:
        """The key of its block, in hexadecimal: SHA-256 over the source's, packing and `target`."""
        source = self.source
        order = repr((target, self.packing, source.dtype.name, source.shape, self.buffer.nbytes))
        return hashlib.sha256(f"{order} {content_sha256(source)}".encode()).hexdigest()

    def write(self, room: np.ndarray) -> None:
        """Pack into `room`, uint8 [buffer.nbytes]."""
        if self.pack is None:
            room[:] = np.ascontiguousarray(self.source).reshape(-1).view(np.uint8)
        else:
            self.pack(room)


def _write_packed(pack: Callable[[], np.ndarray], room: np.ndarray) -> None:
    packed = pack()
    assert packed.nbytes == room.nbytes, "packed into the room that was asked for"
    room[:] = np.ascontiguousarray(packed).reshape(-1).view(np.uint8)


class Weights:
    """Buffers of constants; those of bodies are their program's."""

    def __init__(self) -> None:
        self.constants: list[PackedConstant] = []
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
        self,
        source: np.ndarray,
        packing: Hashable,
        nbytes: int,
        pack: Callable[[], np.ndarray] | None = None,
        pack_into: Pack | None = None,
    ) -> Pointer:
        """What `pack` will make of `source`, `nbytes` of it, or what `pack_into` will write into
        uint8 [nbytes], when the weights are laid out: then
        LLVM is at work beside it, and no second copy of all weights is held.

        packing: decides the packed content together with `source`, in every program of the target;
        its `repr` is part of the block's key.
        """
        write = pack_into if pack is None else partial(_write_packed, pack)
        assert write is not None, "one of them says what is packed"
        if nbytes < LATER_BYTES:
            (room,) = room_for([nbytes])
            write(room)
            return self.packed(room)
        return Pointer(self._weight_buffer(np.asarray(source, order="C"), packing, nbytes, write))

    def drop_contents(self) -> None:
        """Forget what was packed; the buffers stay."""
        self.constants = []
        self._by_content = {}

    def _weight_buffer(
        self,
        array: np.ndarray,
        packing: Hashable = None,
        nbytes: int | None = None,
        pack: Pack | None = None,
    ) -> Buffer:
        content = array.reshape(-1).view(np.uint8)
        key = (packing, array.nbytes, content[:4096].tobytes())
        alike = self._by_content.setdefault(key, [])
        for buffer, cached_content in alike:
            if np.array_equal(content, cached_content):
                return buffer
        buffer = Buffer(MemorySpace.weights, array.nbytes if nbytes is None else nbytes)
        alike.append((buffer, content))
        self.constants.append(PackedConstant(buffer, array, packing, pack))
        return buffer

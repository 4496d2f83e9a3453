"""A decoder whose cache has a room: keys and values of new tokens are written into it in place.

That is what GroupQueryAttention takes: past caches that are longer than what was seen. They are
bound (`Executable.bind`), so that no array is copied at a token and its cost follows the tokens
seen, not the room.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from verax.base.errors import InputError
from verax.base.option_groups.compile_options import CompilationOptions
from verax.compiler.executable import Executable
from verax.compiling import compile
from verax.generation.decoders import Context, Decoder, DecoderSignature, last_logits

SMALLEST_ROOM = 512
"""Of a cache; larger ones are so many times a power of two, so that few programs serve all."""


class CacheInPlace(Decoder):
    """Executables by the number of sequences and the room, each with the state of one batch at a
    time; that of the others is held by their contexts."""

    pads = False

    def __init__(
        self, signature: DecoderSignature, options: CompilationOptions, room: int | None
    ) -> None:
        """room: the largest; None where nothing limits it."""
        self.signature = signature
        self.vocabulary, self.lone = self.signature.vocabulary, self.signature.lone
        self.room = room
        self._options = options
        self._executables: dict[tuple[int, int], Executable] = {}
        self._loaded: dict[tuple[int, int], Context] = {}
        self._lock = threading.Lock()

    @property
    def programs(self) -> Sequence[Executable]:
        return list(self._executables.values())

    def begin(self, batch: int, length: int = 0) -> Context:
        context = super().begin(batch)
        context.room = self._room_for(length)
        return context

    def advance(self, context: Context, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        if not mask.all():
            raise InputError("this model takes no padding", next_step="give prompts of one length")
        with self._lock:
            batch, count = tokens.shape
            total = context.seen + count
            if total > context.room:
                self._grow(context, batch, total)
            exe = self._loaded_with(context, batch)
            full_mask, positions = context.extended(mask)
            visible = np.zeros((batch, context.room), np.int64)
            visible[:, :total] = 1
            outputs = exe.run(self.signature.inputs(None, tokens, visible, positions))
            if count == 1:  # prompts have their program by now
                self.signature.release_constants()
            context.mask = full_mask
            return last_logits(outputs[self.signature.logits])

    def _room_for(self, length: int) -> int:
        """A room for so many tokens: as large as the largest, or a power of two times the
        smallest."""
        room = SMALLEST_ROOM
        while room < length:
            room *= 2
        return room if self.room is None else min(room, max(self.room, length))

    def _executable(self, batch: int, room: int) -> Executable:
        key = batch, room
        if key not in self._executables:
            caches = dict(zip(self.signature.pasts, self.signature.presents, strict=True))
            exe = compile(self.signature.of_fixed_room(batch, room), options=self._options)
            self._executables[key] = exe.bind(caches)
        return self._executables[key]

    def _loaded_with(self, context: Context, batch: int) -> Executable:
        """The executable for a context, its state that of the context."""
        key = batch, context.room
        exe, owner = self._executable(*key), self._loaded.get(key)
        if owner is not context:
            if owner is not None:
                owner.arrays = exe.exchange_state(context.arrays)
            else:
                exe.exchange_state(context.arrays)
            context.arrays = {}
            self._loaded[key] = context
        return exe

    def _grow(self, context: Context, batch: int, length: int) -> None:
        """Move a context's cache into one with more room."""
        key = batch, context.room
        if self._loaded.get(key) is context:
            context.arrays = self._executable(*key).exchange_state({})
            del self._loaded[key]
        context.room = self._room_for(length)
        larger = self._executable(batch, context.room).state
        for name, array in context.arrays.items():
            rows = larger[name]
            rows[tuple(slice(0, n) for n in array.shape)] = array
        context.arrays = larger if context.arrays else {}

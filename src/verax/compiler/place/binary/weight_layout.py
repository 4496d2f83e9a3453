"""Where the weights of a program lie, and packing them while LLVM is at work.

Large ones are blocks that programs share (`runtime.weight_blocks`): who packs looks for each among
those of the process first.
"""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from verax.base.machine.memory import give_back
from verax.compiler.kernels.target import Target
from verax.compiler.place.memory import align
from verax.compiler.place.weights import PackedConstant, Weights
from verax.runtime.block_files import block_file
from verax.runtime.program_binary import OWN_WEIGHTS, block_starts
from verax.runtime.weight_blocks import TAIL, WEIGHTS, WeightBlock, free_pages_with, room_for

SMALL_WEIGHTS = 1 << 20
"""Bytes of weights whose packing leaves nothing that is worth giving back."""


def place_weights(weights: Weights, used: Container[object]) -> int:
    """Give the buffers that are `used` their places, and forget the others.

    A buffer's `slot` is its entry in the table of addresses, its `offset` where it would lie if
    the blocks followed the program's own weights. Returns the bytes of the latter.
    """
    weights.constants = [c for c in weights.constants if c.buffer in used]
    end = 0
    for constant in weights.constants:
        if not constant.is_block:
            constant.buffer.slot, constant.buffer.offset = OWN_WEIGHTS, end
            end += align(constant.buffer.nbytes) + TAIL
    blocks = [c for c in weights.constants if c.is_block]
    starts = block_starts(end, [_room(c) for c in blocks])
    for slot, (constant, start) in enumerate(zip(blocks, starts), OWN_WEIGHTS + 1):
        constant.buffer.slot, constant.buffer.offset = slot, start
    return end


def pack_weights(
    weights: Weights, own_bytes: int, target: Target
) -> tuple[np.ndarray, tuple[WeightBlock, ...]]:
    """The program's own weights (uint8 [own_bytes]) and its blocks, where `place_weights` said.

    A block that a program of this process has is taken; of the others none is held twice. The
    largest come first: what packing them takes besides, up to three times their size, is given
    back before the room of the others is touched.
    """
    waiting = weights.constants
    weights.drop_contents()
    own = _packed_own([c for c in waiting if not c.is_block], own_bytes)
    blocks: dict[int, WeightBlock] = {}
    missing: list[tuple[PackedConstant, str]] = []
    while waiting:
        constant = waiting.pop()
        if constant.is_block:
            key = constant.key(target.name)
            cached = WEIGHTS.find(key)
            if cached is None:
                missing.append((constant, key))
            else:
                blocks[constant.buffer.slot] = cached
        del constant
    missing.sort(key=lambda pair: pair[0].buffer.nbytes)
    files = [block_file(_room(constant)) for constant, _ in missing]
    in_memory = [_room(c) for (c, _), file in zip(missing, files, strict=True) if file is None]
    rooms = room_for(in_memory)
    largest = missing[-1][0].buffer.nbytes if missing else 0
    while missing:
        (constant, key), file = missing.pop(), files.pop()
        room = rooms.pop() if file is None else file.room
        nbytes = constant.buffer.nbytes
        if nbytes < largest / 2 and largest > SMALL_WEIGHTS:
            give_back()
            largest = nbytes
        constant.write(room[:nbytes])
        if file is None:
            block = WeightBlock(room)
            free_pages_with(block)
        else:
            del room
            block = WeightBlock(*file.sealed(), file)
        blocks[constant.buffer.slot] = WEIGHTS.add(block, key)
        del constant, block, file
    return own, tuple(blocks[slot] for slot in sorted(blocks))


def _packed_own(constants: list[PackedConstant], nbytes: int) -> np.ndarray:
    (own,) = room_for([nbytes])
    for constant in constants:
        start = constant.buffer.offset
        constant.write(own[start : start + constant.buffer.nbytes])
    return own


def _room(constant: PackedConstant) -> int:
    return align(constant.buffer.nbytes) + TAIL

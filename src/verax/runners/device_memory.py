"""Memory of a GPU filled with a byte, so that a kernel which leaves elements unwritten shows it.

PyTorch's allocator hands a block that was freed to the next who asks for its size, with what it
held: often the right answer of the run before. So the blocks that it keeps are taken, filled and
given back. PyTorch's own switch, `torch.utils.deterministic.fill_uninitialized_memory`, needs
deterministic algorithms, which are other ones than those to be judged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from verax.base.machine.devices import HOST, synchronize

SMALL = 1 << 20
"""Bytes: larger requests are served from segments of their own kind."""
ROUNDS = 4
"""How often the blocks are looked through: one may be served from another than was meant."""
FRESH_SMALL, FRESH_LARGE = 16, 256 << 20
"""Small blocks, and bytes of one large block, that a process is given which has kept none yet."""
SHARE = 8
"""At most the SHARE-th part of what is free is blocks_in_use for those."""


def can_poison(torch: Any, device: Any) -> bool:
    """True if the allocator of a `torch.device` says which blocks it keeps."""
    return device.type not in HOST and hasattr(_module(torch, device), "memory_snapshot")


def poison_device(torch: Any, device: Any, fill: int, *, fresh: bool = False) -> None:
    """Fill the blocks that the allocator keeps for later with the byte `fill`.

    fresh: of a process that has kept none yet, also some that it is given for this. Blocks of CUDA
    graphs' own pools are left alone: their content is the graphs'.
    """
    blocks_in_use: list[Any] = []
    with contextlib.suppress(getattr(torch, "OutOfMemoryError", RuntimeError)):
        if fresh:
            blocks_in_use += [
                _filled(torch, device, size, fill) for size in _fresh_sizes(torch, device)
            ]
        for _ in range(ROUNDS):
            blocks = list(_free_blocks(_module(torch, device).memory_snapshot(), device))
            if not blocks:
                break
            for stream, size in blocks:
                with _on_stream(_module(torch, device), stream, device):
                    blocks_in_use.append(_filled(torch, device, size, fill))
    synchronize(device)


def _module(torch: Any, device: Any) -> Any:
    return getattr(torch, device.type, None)


def _filled(torch: Any, device: Any, size: int, fill: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, device=device).fill_(fill)


def _free_blocks(segments: list[Mapping[str, Any]], device: Any) -> Iterator[tuple[int, int]]:
    """(stream, bytes to ask for) of each block that is free, the largest first."""
    blocks = []
    for segment in segments:
        own = tuple(segment.get("segment_pool_id", (0, 0))) == (0, 0)
        if not own or segment.get("device", 0) != (device.index or 0):
            continue
        small = segment.get("segment_type") == "small"
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                size = min(block["size"], SMALL) if small else block["size"]
                blocks.append((int(segment.get("stream", 0)), int(size)))
    yield from sorted(blocks, key=lambda block: -block[1])


def _on_stream(module: Any, stream: int, device: Any) -> contextlib.AbstractContextManager[Any]:
    """What is asked for inside comes from the blocks of a stream, by its address; 0 is the default
    one."""
    if not all(hasattr(module, name) for name in ("stream", "default_stream", "ExternalStream")):
        return contextlib.nullcontext()
    own = module.ExternalStream(stream, device=device) if stream else module.default_stream(device)
    context: contextlib.AbstractContextManager[Any] = module.stream(own)
    return context


def _fresh_sizes(torch: Any, device: Any) -> list[int]:
    free, _ = getattr(_module(torch, device), "mem_get_info", lambda _: (0, 0))(device)
    large = min(FRESH_LARGE, free // SHARE)
    return [large, *[SMALL] * FRESH_SMALL] if large > SMALL else []

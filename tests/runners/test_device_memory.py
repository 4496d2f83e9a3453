"""Blocks that a GPU's allocator keeps are filled: of every stream, small ones in pieces, and none
of CUDA graphs. A caching allocator of Python stands in for CUDA's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verax.runners.device_memory import SMALL, can_poison, poison_device

FILL = 0x7F
Block = dict[str, Any]


class CachingAllocator:
    """Best fit in the pool of the current stream and of the size's kind, as CUDA's. segments: each
    one block of a stream; graphs' own are never given away."""

    def __init__(self, device: int = 0) -> None:
        self.current, self.device = 0, device
        self.segments: list[Block] = []
        self.reserved = 0

    def keep(
        self, size: int, *, stream: int = 0, pool: tuple[int, int] = (0, 0), device: int = 0
    ) -> Block:
        content = np.zeros(size, np.uint8)
        block = {
            "size": size, "state": "inactive", "content": content, "stream": stream, "pool": pool,
            "device": device,
        }  # fmt: skip
        self.segments.append(block)
        return block

    def memory_snapshot(self) -> list[Block]:
        return [
            {
                "device": b["device"], "stream": b["stream"], "segment_pool_id": b["pool"],
                "segment_type": "small" if b["size"] < 2 * SMALL else "large", "blocks": [b],
            }
            for b in self.segments
        ]  # fmt: skip

    def empty(self, size: int, dtype: Any, device: Any) -> Any:
        small = size <= SMALL
        fitting = [
            b for b in self.segments
            if b["state"] == "inactive" and b["size"] >= size and b["stream"] == self.current
            and b["pool"] == (0, 0) and b["device"] == device.index
            and (b["size"] < 2 * SMALL) is small
        ]  # fmt: skip
        if not fitting:
            self.reserved += size
            return SimpleNamespace(fill_=lambda fill: None)
        block = min(fitting, key=lambda b: b["size"])
        block["state"] = "active_allocated"
        if block["size"] > size:  # what is left is a block of its own, of the same memory
            rest = self.keep(block["size"] - size, stream=self.current, device=device.index)
            rest["content"] = block["content"][size:]
            block["size"], block["content"] = size, block["content"][:size]
        return SimpleNamespace(fill_=lambda fill: block["content"].fill(fill))

    def synchronize(self, device: Any) -> None:
        pass

    def default_stream(self, device: Any) -> int:
        return 0

    def ExternalStream(self, address: int, device: Any) -> int:
        return address

    @contextlib.contextmanager
    def stream(self, stream: int) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> CachingAllocator:
    made = CachingAllocator()
    monkeypatch.setattr("verax.runners.device_memory.synchronize", made.synchronize)
    return made


def poison(allocator: CachingAllocator, **options: Any) -> None:
    torch = SimpleNamespace(empty=allocator.empty, uint8=None, cuda=allocator)
    device = SimpleNamespace(type="cuda", index=1)
    assert can_poison(torch, device)
    poison_device(torch, device, FILL, **options)


def test_every_kept_block_is_filled_and_nothing_more_is_reserved(
    allocator: CachingAllocator,
) -> None:
    sizes = [512, 1536, SMALL // 2, SMALL + SMALL // 2, 3 * SMALL, 21 * SMALL]
    blocks = [allocator.keep(size, stream=s, device=1)["content"] for size in sizes for s in (0, 7)]
    poison(allocator)
    assert all((content == FILL).all() for content in blocks)
    assert allocator.reserved == 0 and allocator.current == 0


def test_graphs_and_other_devices_keep_their_memory(allocator: CachingAllocator) -> None:
    graphs = allocator.keep(4096, pool=(0, 3), device=1)["content"]
    elsewhere = allocator.keep(4096, device=0)["content"]
    poison(allocator)
    assert not graphs.any() and not elsewhere.any() and allocator.reserved == 0


def test_a_process_that_has_kept_nothing_is_given_memory_first(
    allocator: CachingAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison(allocator, fresh=True)
    assert allocator.reserved == 0  # nobody says what is free
    free = 80 << 20
    monkeypatch.setattr(allocator, "mem_get_info", lambda _: (free, 2 * free), raising=False)
    poison(allocator, fresh=True)
    assert 10 << 20 < allocator.reserved < free // 2


def test_the_processor_has_no_such_allocator() -> None:
    torch = SimpleNamespace(cpu=SimpleNamespace(memory_snapshot=list))
    assert not can_poison(torch, SimpleNamespace(type="cpu", index=None))
    assert not can_poison(SimpleNamespace(), SimpleNamespace(type="mps", index=0))

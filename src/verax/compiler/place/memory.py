"""The memory plan: offsets for arena buffers so that values alive together never overlap.

Greedy by size, as published for on-device inference (Pisarchyk and Lee, 2020, "Greedy by Size for
Offset Calculation"), and a few other orders after it. Bordered buffers lie in a part of their own,
where one offset is shared only by buffers of the same geometry, so that borders zeroed when the
program is loaded stay zero.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence

from verax.compiler.place.storage import ALIGNMENT, Buffer, Geometry
from verax.ir.assumptions import assumed_sizes
from verax.ir.dim import evaluated

Lifetime = tuple[int, int]
MANY = 2000
"""Buffers from which on they are placed in the order of their first use: by size, each is held
against all others."""


TRIES, CLOSE, MOST_PAIRS = 24, 1.05, 1_000_000
"""Orders in which buffers are placed until the plan is `CLOSE` to what lives at once; fewer where
there are so many pairs of buffers."""


def align(size: int, to: int = ALIGNMENT) -> int:
    """`size` rounded up to a multiple of `to`."""
    return -(-size // to) * to


def plan_arena(lifetimes: Mapping[Buffer, Lifetime], start: int = 0) -> int:
    """Set the `offset` of every buffer; returns the arena's size in bytes.

    lifetimes: first and last step that touches each buffer, both inclusive. `start` bytes are left
    free at the front.
    """
    end = _place_bordered({b: t for b, t in lifetimes.items() if b.bordered}, start)
    plain = {b: t for b, t in lifetimes.items() if not b.bordered}
    return (_place_by_size if len(plain) <= MANY else _place_in_order)(plain, end)


def kept_bytes(buffers: Iterable[Buffer], start: int = 0) -> int:
    """Bytes at the front of a planned arena whose zeros must stay: what was left free, and buffers
    with borders. The rest holds nothing between runs."""
    ends = (_end(b) for b in buffers if b.bordered)
    return max(ends, default=start)


def most_alive(lifetimes: Mapping[Buffer, Lifetime]) -> int:
    """Bytes that live at once in the step where they are most: no plan takes less."""
    changes: dict[int, int] = {}
    for buffer, (first, last) in lifetimes.items():
        nbytes = evaluated(buffer.nbytes, assumed_sizes())
        changes[first] = changes.get(first, 0) + nbytes
        changes[last + 1] = changes.get(last + 1, 0) - nbytes
    return max(itertools.accumulate(changes[step] for step in sorted(changes)), default=0)


def bordered_bytes(lifetimes: Mapping[Buffer, Lifetime]) -> int:
    """What buffers of one geometry take if they share memory with each other alone."""
    ends: list[int] = []
    for first, last in sorted(lifetimes.values()):
        if ends and ends[0] < first:
            heapq.heapreplace(ends, last)
        else:
            heapq.heappush(ends, last)
    return len(ends) * max(evaluated(b.nbytes, assumed_sizes()) for b in lifetimes)


def _place_bordered(lifetimes: Mapping[Buffer, Lifetime], end: int) -> int:
    slots: dict[Geometry, list[tuple[int, int]]] = {}  # geometry -> (offset, free from)
    for buffer, (first, last) in sorted(lifetimes.items(), key=lambda item: item[1]):
        assert buffer.geometry is not None
        pool = slots.setdefault(buffer.geometry, [])
        reusable = [i for i, (_, free) in enumerate(pool) if free < first]
        if reusable:
            buffer.offset = pool[reusable[0]][0]
            pool[reusable[0]] = (buffer.offset, last)
        else:
            buffer.offset = end
            pool.append((end, last))
            end += align(buffer.nbytes) + ALIGNMENT
    return end


def _place_by_size(lifetimes: Mapping[Buffer, Lifetime], start: int) -> int:
    """The largest first. While the plan is larger than it need be, the buffer that ends last is
    placed before all others, a few times; the smallest plan counts."""
    order = sorted(lifetimes.items(), key=lambda i: (-i[0].nbytes, i[1]))
    enough = start + most_alive(lifetimes) * CLOSE
    best, best_offsets = _placed(order, start), [b.offset for b, _ in order]
    first, end = list(order), best
    for _ in range(min(TRIES, MOST_PAIRS // max(1, len(order) ** 2))):
        if best <= enough:
            break
        top = next(i for i, (b, _) in enumerate(first) if _end(b) == end)
        first.insert(0, first.pop(top))
        end = _placed(first, start)
        if end < best:
            best, best_offsets = end, [b.offset for b, _ in order]
    for (buffer, _), offset in zip(order, best_offsets, strict=True):
        buffer.offset = offset
    return best


def _placed(order: Sequence[tuple[Buffer, Lifetime]], start: int) -> int:
    """Each buffer at the first place that is free while it lives."""
    placed: list[tuple[int, int, Lifetime]] = []
    end = start
    for buffer, (first, last) in order:
        busy = sorted((a, b) for a, b, (f, t) in placed if f <= last and first <= t)
        buffer.offset = _first_gap(busy, align(buffer.nbytes) + ALIGNMENT, start)
        placed.append((buffer.offset, _end(buffer), (first, last)))
        end = max(end, _end(buffer))
    return end


def _end(buffer: Buffer) -> int:
    return buffer.offset + align(buffer.nbytes) + ALIGNMENT


def _place_in_order(lifetimes: Mapping[Buffer, Lifetime], start: int) -> int:
    """Each buffer, by first use, into the first gap that those before it have left."""
    gaps: list[tuple[int, int]] = []  # (offset, end) by offset, none touching the next
    alive: list[tuple[int, int, int]] = []  # heap of (last step, offset, end)
    end = start
    for buffer, (first, last) in sorted(lifetimes.items(), key=lambda i: (i[1], -i[0].nbytes)):
        while alive and alive[0][0] < first:
            _, offset, stop = heapq.heappop(alive)
            _free(gaps, offset, stop)
        size = align(buffer.nbytes) + ALIGNMENT
        fitting = next((i for i, (a, b) in enumerate(gaps) if b - a >= size), None)
        if fitting is None:
            buffer.offset, end = end, end + size
        else:
            buffer.offset, stop = gaps[fitting]
            gaps[fitting : fitting + 1] = (
                [(buffer.offset + size, stop)] if stop > buffer.offset + size else []
            )
        heapq.heappush(alive, (last, buffer.offset, buffer.offset + size))
    return end


def _free(gaps: list[tuple[int, int]], offset: int, end: int) -> None:
    """Add a gap, joined with those that it touches."""
    i = bisect.bisect(gaps, (offset, end))
    if i < len(gaps) and gaps[i][0] == end:
        end = gaps.pop(i)[1]
    if i and gaps[i - 1][1] == offset:
        i, offset = i - 1, gaps.pop(i - 1)[0]
    gaps.insert(i, (offset, end))


def _first_gap(busy: Iterable[tuple[int, int]], size: int, start: int) -> int:
    at = start
    for begin, end in busy:
        if begin - at >= size:
            return at
        at = max(at, end)
    return at

"""Runs that go on from one another, in the memory of the device that runs a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from verax.base.lazy import deferred
from verax.runtime.cache_rows import CacheRows
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program import Program
from verax.runtime.state_buffers import RunsWithState, StateBuffers

if TYPE_CHECKING:
    from verax.runtime.gpu.cache_rows import on_device
    from verax.runtime.gpu.state import resident_state_of
else:
    on_device = deferred("verax.runtime.gpu.cache_rows:on_device")
    resident_state_of = deferred("verax.runtime.gpu.state:resident_state_of")


def state_buffers_of(program: Program, sized: SizedProgram | None = None) -> RunsWithState | None:
    """The state buffers of a program, of open sizes for these, in the memory of the device that
    runs it; None where it has no state, or a step runs in Python."""
    state = program.binary.state
    updates, in_place = {s.input: s.output for s in state}, {s.input for s in state if s.in_place}
    if not updates or not program.is_native:
        return None
    if not program.uses_host_memory:
        return resident_state_of(program, updates, in_place, sized)  # type: ignore[arg-type]
    return StateBuffers(program, updates, in_place, sized)


def run_on_rows(
    program: Program,
    sized: SizedProgram,
    inputs: Mapping[str, np.ndarray],
    caches: CacheRows,
    in_place: Mapping[str, str],
) -> tuple[list[np.ndarray], CacheRows]:
    """A run that writes new rows behind those of `caches`: its other outputs, in order, and the
    caches whose buffers have these rows, which do not count yet.

    inputs: the others, contiguous and of the program's types, but for one that it does not read.
    in_place: by output, the cache in which its rows lie. Raises `InputError` as `Program.run` does;
    the rows that there were stay.
    """
    is_on_host = program.uses_host_memory
    if not is_on_host:
        caches = on_device(caches, program.device)  # type: ignore[attr-defined]
    unread = np.zeros(1, np.uint8)
    values: dict[str, Any] = {**inputs, **caches.buffers}
    arrays = [values.get(s.name, unread) for s in program.binary.inputs]
    caches_written = (in_place.get(s.name) for s in program.binary.outputs)
    reused = [None if v is None else caches.buffers[v] for v in caches_written]
    context: Any = program.acquire()
    try:
        context.use(sized)
        run = context.run_in_place if is_on_host else context.run_resident
        return run(arrays, reused), caches
    finally:
        program.release(context)

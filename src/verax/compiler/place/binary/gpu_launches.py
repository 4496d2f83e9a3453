"""Kernel calls as the launches of a GPU's program (`runtime.gpu.launches`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from verax.compiler.kernels.llvm.builder import Kernel
from verax.compiler.kernels.sizes import Size, entries
from verax.compiler.place.calls import BranchCall, KernelCall, LoopCall, Native, RepeatCall
from verax.compiler.place.size_table import SizeTable
from verax.compiler.place.storage import MemorySpace, Pointer
from verax.runtime.gpu.launches import (
    Address,
    Amount,
    DeviceBranch,
    DeviceLoop,
    DeviceRepeat,
    DeviceStep,
    Launch,
)
from verax.runtime.program_binary import OWN_WEIGHTS


class LaunchWriter:
    """Writes launches. kernels: by the `id` of their calls; table: of a program of open sizes."""

    def __init__(self, kernels: Mapping[int, Kernel], table: SizeTable | None) -> None:
        self._kernels, self._table = kernels, table

    def steps(self, calls: Iterable[Native]) -> tuple[DeviceStep, ...]:
        """What is launched for `calls`, in their order."""
        return tuple(map(self._step, calls))

    def _step(self, call: Native) -> DeviceStep:
        if isinstance(call, BranchCall):
            return DeviceBranch(
                self._address(call.condition),
                self._side(call.then),
                self._side(call.orelse),
                self._address(call.flag),
            )
        if isinstance(call, LoopCall):
            limit, first = map(self._address_or_none, (call.limit, call.first))
            trip_index, going = self._address(call.trip_index), self._address(call.going)
            body, flag = self.steps(call.body), self._address(call.flag)
            return DeviceLoop(limit, first, call.max_trips, trip_index, going, body, flag)
        if isinstance(call, RepeatCall):
            return DeviceRepeat(self._amount(call.times), self.steps(call.body))
        return self._launch(call)

    def _side(self, calls: Sequence[Native] | None) -> tuple[DeviceStep, ...] | None:
        return None if calls is None else self.steps(calls)

    def _launch(self, call: KernelCall) -> Launch:
        kernel = self._kernels[id(call)]
        return Launch(
            kernel.name,
            self._amount(kernel.items),
            self._amount(kernel.blocks),
            kernel.threads,
            kernel.shared,
            tuple(map(self._address, call.args)),
            tuple(map(self._amount, call.elements)),
            reads_table=bool(entries(call.spec)),
        )

    def _amount(self, size: Size) -> Amount:
        if isinstance(size, int):
            return Amount(size)
        assert self._table is not None, "sizes are open only where there is a table"
        return Amount(0, self._table.index(size))

    def _address_or_none(self, pointer: Pointer | None) -> Address | None:
        return None if pointer is None else self._address(pointer)

    def _address(self, pointer: Pointer) -> Address:
        buffer, table = pointer.buffer, self._table
        start, offset = max(buffer.offset, 0), self._amount(pointer.byte_offset)
        if buffer.space is MemorySpace.weights and buffer.slot != OWN_WEIGHTS:
            start = 0
        base = Amount(start)
        if table is not None and table.has_offset(buffer):
            base = Amount(start, table.offset_of(buffer))
        return Address(str(buffer.space), buffer.slot, base, offset, self._amount(pointer.step))

"""One run's memory on a GPU, and the launches of a program's segments there."""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np

from verax.runtime.arguments import add_outputs
from verax.runtime.counted_sizes import CountedStage
from verax.runtime.execution_context import Clock, ExecutionContext
from verax.runtime.gpu.arrays import DeviceArray
from verax.runtime.gpu.device import Device, LaunchSequence, PreparedLaunch
from verax.runtime.gpu.launches import (
    Address,
    Amount,
    DeviceBranch,
    DeviceLoop,
    DeviceRepeat,
    DeviceStep,
    Launch,
)
from verax.runtime.gpu.loaded import SMALLEST_ALLOCATION, LoadedKernels, free_all
from verax.runtime.open_sizes import SizedProgram
from verax.runtime.program_binary import CTX_ARENA, Scheduled, Segment, Tensor
from verax.runtime.python_steps import BoundCount, BoundPython

Control: TypeAlias = DeviceBranch | DeviceLoop | DeviceRepeat


class GpuContext(ExecutionContext):
    """As an `ExecutionContext`, whose arena on the host only takes part in steps in Python."""

    def __init__(self, loaded: LoadedKernels, *arguments: Any) -> None:
        """arguments: of `ExecutionContext`."""
        self._loaded, self._device = loaded, loaded.device
        self._memory: dict[str, int] = {}
        self._capacity: dict[str, int] = {}
        self._prepared: dict[str, list[LaunchSequence | Control]] = {}
        self._finalizer = weakref.finalize(self, _free_memory, self._device, self._memory)
        self._finalizer.atexit = False
        self._io: list[int] = []
        self._uses_of_io: list[tuple[LaunchSequence, int, int, int, int]] = []
        """Sequence, index of a launch, and of its pointer; the caller's array, and how far in."""
        self._stream = self._device.own_stream  # of the last run
        super().__init__(*arguments)
        self._place_arena()

    # --- memory

    def _allocate(self, name: str, nbytes: int, keeps: bool = False) -> int:
        """The address of memory of that name, of at least so many bytes. keeps: what it holds."""
        if nbytes > self._capacity.get(name, -1):
            old, capacity = self._memory.get(name), self._capacity.get(name, 0)
            if old is not None and not keeps:
                self._release(name)  # so that both need not find a place
            new = self._device.allocate(max(nbytes, SMALLEST_ALLOCATION))
            if old is not None and keeps:
                self._device.copy(new, old, capacity)
                self._release(name)
            self._memory[name], self._capacity[name] = new, nbytes
        return self._memory[name]

    def _release(self, name: str) -> None:
        self._forget_launches()
        del self._capacity[name]
        self._device.free(self._memory.pop(name))

    def _forget_launches(self) -> None:
        """Prepare them again, of other sizes or addresses."""
        self._prepared.clear()
        self._uses_of_io.clear()

    def _place_arena(self, keeps: bool = False) -> None:
        """Have an arena and a table as large as those of the host, and the table's content."""
        self._arena_address = self._allocate("arena", self.arena.nbytes, keeps)
        if self._table.nbytes:
            address = self._allocate("sizes", self._table.nbytes)
            self._device.write(address, np.ascontiguousarray(self._table))
            self._forget_launches()

    def use(self, sized: SizedProgram) -> None:
        """Have the arena and the table for these sizes."""
        if self._sized is sized:
            return
        before = self.arena
        try:
            super().use(sized)
            self._sized, self._lacks_sizes = None, True  # until there is memory on the device, too
            with self._on(None):
                self._place_arena()
                self._device.zero(self._arena_address, max(self.kept_bytes, len(self._passed)))
        except BaseException:
            self.arena = before
            self.pointers[CTX_ARENA] = before.ctypes.data
            self._status = before[: len(self._passed)].data
            raise
        self._sized, self._lacks_sizes = sized, False

    def _count(self, index: int, stage: CountedStage) -> None:
        at = int(self._table[stage.counted.entry])
        self._device.read(self.arena[at : at + 8], self._arena_address + at)
        super()._count(index, stage)
        self._place_arena(keeps=True)
        for start, nbytes in self._zeros[index]:
            self._device.zero(self._arena_address + start, nbytes)
        first_output = self._input_count
        for slot in stage.outputs:
            at = first_output + slot
            self._io[at] = self._allocate(f"io {at}", self._in_flight[at].nbytes)
        self._forget_launches()

    def poison(self, fill: int) -> None:
        """As `Program.poison`, of the arena on the device."""
        nbytes = self._capacity["arena"] - self.kept_bytes
        if nbytes > 0:
            content = np.full(nbytes, fill, np.uint8)
            with self._on(None):
                self._device.write(self._arena_address + self.kept_bytes, content)

    # --- running

    def _upload(self, arrays: Sequence[np.ndarray]) -> None:
        """Copy the inputs among `arrays` to the device. An output that is the array of an input is
        the same memory there, too."""
        inputs: dict[int, int] = {}
        addresses = []
        for slot, array in enumerate(arrays):
            address = self._allocate(f"io {slot}", array.nbytes)
            if slot < self._input_count:
                inputs[array.ctypes.data] = address
                if array.nbytes:
                    self._device.write(address, array)
            elif array.nbytes:
                address = inputs.get(array.ctypes.data, address)
            addresses.append(address)
        self._bind_io(addresses)

    def _bind_io(self, addresses: list[int]) -> None:
        """Have the caller's arrays at these addresses in every launch, and no check failed."""
        if addresses != self._io:
            before, self._io = self._io, addresses
            if len(before) != len(addresses):
                self._forget_launches()
            for sequence, launch, index, slot, offset in self._uses_of_io:
                if before[slot] != addresses[slot]:
                    sequence.launches[launch].pointers[index] = addresses[slot] + offset
                    sequence.changed.add(launch)
        if self._passed:
            self._device.zero(self._arena_address, len(self._passed))

    def _download(self, arrays: Sequence[np.ndarray]) -> None:
        """Copy the outputs among `arrays`, and what checks have found, from the device."""
        for slot, array in enumerate(arrays[self._input_count :], self._input_count):
            if array.nbytes:
                self._device.read(array, self._io[slot])
        if self._passed:
            self._device.read(self.arena[: len(self._passed)], self._arena_address)
        self._device.synchronize()

    def _run(self, callers: list[np.ndarray]) -> list[np.ndarray]:
        with self._on(None):
            return super()._run(callers)

    def run_in_place(
        self, arrays: list[np.ndarray], reused: Sequence[np.ndarray | None]
    ) -> list[np.ndarray]:
        """As that of `ExecutionContext`."""
        with self._on(None):
            return super().run_in_place(arrays, reused)

    def run_resident(
        self, arrays: Sequence[np.ndarray | DeviceArray], reused: Sequence[DeviceArray | None]
    ) -> list[np.ndarray]:
        """As `run_in_place`, where some inputs, and all outputs that are reused, lie on the device:
        nothing of these is copied."""
        new: list[np.ndarray] = []
        add_outputs(new, [s for s, k in zip(self._output_specs, reused, strict=True) if k is None])
        with self._on(None):
            addresses = []
            for slot, array in enumerate(arrays):
                if isinstance(array, np.ndarray):
                    addresses.append(self._allocate(f"io {slot}", array.nbytes))
                    if array.nbytes:
                        self._device.write(addresses[-1], array)
                else:
                    addresses.append(array.address)
            remaining, read = iter(new), []
            for slot, buffer in enumerate(reused, self._input_count):
                if buffer is None:
                    array = next(remaining)
                    addresses.append(self._allocate(f"io {slot}", array.nbytes))
                    read.append((array, addresses[-1]))
                else:
                    addresses.append(buffer.address)
            self._in_flight = (arrays, reused)
            self._bind_io(addresses)
            self._run_schedule()
            for array, address in read:
                if array.nbytes:
                    self._device.read(array, address)
            if self._passed:
                self._device.read(self.arena[: len(self._passed)], self._arena_address)
            self._device.synchronize()
            self._finish()
        return new

    def _on(self, stream: int | None) -> AbstractContextManager[None]:
        """Inside, work goes to a stream, behind what was asked of another before."""
        requested = self._device.own_stream if stream is None else stream
        if requested != self._stream:
            self._device.order(self._stream, requested)
            self._stream = requested
        return self._device.use(requested)

    def run_on_device(
        self, addresses: Sequence[int], outputs: Sequence[int], stream: int | None
    ) -> None:
        """Run on arrays on the device, at these addresses, as work of a stream, which the caller
        waits for; it is waited for here only where the network has checks."""
        with self._on(stream):
            self._bind_io([*addresses, *outputs])
            self._run_schedule()
            if self._passed:
                self._device.read(self.arena[: len(self._passed)], self._arena_address)
            self._finish()

    def time_on_device(self, addresses: Sequence[int], outputs: Sequence[int]) -> float:
        """Seconds of a run as `run_on_device`, by the device's clock. What has to be done before
        its first kernel is done before, and it is waited for."""
        with self._on(None):
            self._bind_io([*addresses, *outputs])
            for entry in self.binary.schedule:
                if isinstance(entry, Segment):
                    self._make_ready(entry.function)
            seconds = self._device.elapsed(self._run_schedule)
            if self._passed:
                self._device.read(self.arena[: len(self._passed)], self._arena_address)
            self._finish()
        return seconds

    def _run_schedule(self) -> None:
        argument = self._argument
        collections.deque(map(operator.call, self._schedule, itertools.repeat(argument)), 0)

    def run_prepared(self, argument: Any, arrays: Sequence[np.ndarray]) -> None:
        """As that of `ExecutionContext`, for arrays of the host."""
        self._in_flight = arrays
        self._upload(arrays)
        collections.deque(map(operator.call, self._schedule, itertools.repeat(argument)), 0)
        self._download(self._in_flight)
        self._finish()

    def _run_steps(self, callers: list[np.ndarray]) -> list[np.ndarray]:
        self._upload(callers)
        outputs = super()._run_steps(callers)
        self._download(callers)  # into the arrays that `outputs` has
        return outputs

    def time_steps(
        self, arrays: Sequence[np.ndarray], runs: int, clock: Clock, chunk_count: int
    ) -> list[list[int]]:
        """As `Program.time_steps`, kernels by the device's own clock; the whole batch at once."""
        with self._on(None):
            return self._time_steps([np.ascontiguousarray(a) for a in arrays], runs, clock)

    def _time_steps(self, callers: list[np.ndarray], runs: int, clock: Clock) -> list[list[int]]:
        times: list[list[int]] = []
        self._set_pointers(callers)
        self._upload(callers)
        for _ in range(runs):
            values: dict[str, np.ndarray] = {}
            elapsed = []
            for entry, step in zip(self.binary.schedule, self._schedule, strict=True):
                if isinstance(entry, Segment):
                    self._make_ready(entry.function)
                    run = functools.partial(step, self._argument)
                    elapsed.append(round(1e9 * self._device.elapsed(run)))
                    continue
                self._device.synchronize()
                start = clock()
                self._execute(step, values, callers)
                self._device.synchronize()
                elapsed.append(clock() - start)
            times.append(elapsed)
        self._in_flight = ()
        return times

    def _execute(
        self, step: Any, values: dict[str, np.ndarray], callers: Sequence[np.ndarray]
    ) -> None:
        if isinstance(step, BoundPython):
            self._read_tensors(step.step.inputs, step.views, callers)
            step(values, callers)
            self._write_tensors(step.step.outputs, step.views, callers)
        elif isinstance(step, BoundCount):
            for tensor, view in ((step.step.rows, step.rows), (step.step.count, step.count)):
                if view.nbytes:
                    self._device.read(view, self._arena_address + tensor.offset)
            step(values, callers)
        else:
            step(self._argument)

    def _read_tensors(
        self,
        tensors: Sequence[Tensor | None],
        views: dict[Tensor, np.ndarray],
        callers: Sequence[np.ndarray],
    ) -> None:
        for tensor in tensors:
            if tensor is None or tensor.region not in ("arena", "io"):
                continue
            if tensor.region == "arena" and views[tensor].nbytes:
                self._device.read(views[tensor], self._arena_address + tensor.offset)
            elif tensor.region == "io" and tensor.offset >= self._input_count:
                self._device.read(callers[tensor.offset], self._io[tensor.offset])

    def _write_tensors(
        self,
        tensors: Sequence[Tensor],
        views: dict[Tensor, np.ndarray],
        callers: Sequence[np.ndarray],
    ) -> None:
        for tensor in tensors:
            if tensor.region == "arena" and views[tensor].nbytes:
                self._device.write(self._arena_address + tensor.offset, views[tensor])
            elif tensor.region == "io" and callers[tensor.offset].nbytes:
                self._device.write(self._io[tensor.offset], callers[tensor.offset])

    def _bind(self, step: Scheduled) -> Any:
        if not isinstance(step, Segment):
            return super()._bind(step)
        return _segment_of(weakref.ref(self), step.function)

    # --- launching

    def run_segment(self, name: str) -> None:
        """Launch what a segment of the program launches."""
        self._run_launches(self._segment(name), 0)

    def _segment(self, name: str) -> list[LaunchSequence | Control]:
        if name not in self._prepared:
            prepared = self._prepare(self._loaded.segments[name], 0)
            self._prepared[name] = prepared
            self._uses_of_io += self._io_in(self._loaded.segments[name], prepared)
        return self._prepared[name]

    def _make_ready(self, name: str) -> None:
        """Have the launches of a segment do nothing but launch."""
        for step in self._segment(name):
            if isinstance(step, LaunchSequence):
                self._device.prepare(step)

    def _run_launches(self, steps: list[LaunchSequence | Control], trip: int) -> None:
        for step in steps:
            if isinstance(step, DeviceBranch):
                self._branch(step, trip)
            elif isinstance(step, DeviceLoop):
                self._loop(step)
            elif isinstance(step, DeviceRepeat):
                for i in range(self._value(step.times)):
                    self._run_launches(self._prepare(step.body, i), i)
            else:
                self._device.launch(step)

    def _prepare(self, steps: Sequence[DeviceStep], trip: int) -> list[LaunchSequence | Control]:
        """Launches that follow one another together. trip: of the loop around."""
        prepared: list[LaunchSequence | Control] = []
        for step in steps:
            if not isinstance(step, Launch):
                prepared.append(step)
                continue
            if not self._is_launched(step):
                continue
            blocks = self._value(step.blocks)
            last = prepared[-1] if prepared else None
            if not isinstance(last, LaunchSequence):
                last = LaunchSequence()
                prepared.append(last)
            last.launches.append(self._prepared_launch(step, blocks, trip))
        return prepared

    def _io_in(
        self, steps: Sequence[DeviceStep], prepared: Sequence[LaunchSequence | Control]
    ) -> Iterator[tuple[LaunchSequence, int, int, int, int]]:
        """Where launches point into the caller's arrays; those inside of `Control` are prepared
        each time."""
        launches = (
            (sequence, i)
            for sequence in prepared
            if isinstance(sequence, LaunchSequence)
            for i in range(len(sequence.launches))
        )
        for step in steps:
            if not isinstance(step, Launch) or not self._is_launched(step):
                continue
            sequence, i = next(launches)
            for index, address in enumerate(step.args):
                if address.region == "io":
                    offset = sequence.launches[i].pointers[index] - self._io[address.slot]
                    yield sequence, i, index, address.slot, offset

    def _is_launched(self, step: Launch) -> bool:
        return self._value(step.blocks) > 0 and all(self._value(n) > 0 for n in step.elements)

    def _prepared_launch(self, launch: Launch, blocks: int, trip: int) -> PreparedLaunch:
        pointers = [self._address(a, trip) for a in launch.args]
        if launch.reads_table:
            pointers.append(self._memory["sizes"])
        kernel = self._loaded.kernels[launch.kernel]
        items = self._value(launch.items)
        return PreparedLaunch(kernel, items, blocks, launch.threads, launch.shared, pointers)

    def _value(self, amount: Amount) -> int:
        return amount.value(self._table)  # type: ignore[arg-type]  # an array of integers

    def _address(self, address: Address, trip: int) -> int:
        start = {
            "arena": lambda: self._arena_address,
            "sizes": lambda: self._memory["sizes"],
            "weights": lambda: self._loaded.weights[address.slot],
            "io": lambda: self._io[address.slot],
        }[address.region]()
        offset = self._value(address.base) + self._value(address.offset)
        return start + offset + trip * self._value(address.step)

    def _read_scalar(self, address: Address, trip: int, dtype: type[np.generic]) -> int:
        value = np.zeros(1, dtype)
        self._device.read(value, self._address(address, trip))
        return int(value[0])

    def _write_scalar(self, address: Address, trip: int, value: np.generic) -> None:
        self._device.write(self._address(address, trip), np.array([value]))

    def _branch(self, step: DeviceBranch, trip: int) -> None:
        side = step.then if self._read_scalar(step.condition, trip, np.uint8) else step.orelse
        if side is None:
            self._write_scalar(step.flag, trip, np.int32(1))
        else:
            self._run_launches(self._prepare(side, trip), trip)

    def _loop(self, step: DeviceLoop) -> None:
        requested = step.max_trips
        if step.limit is not None:
            requested = self._read_scalar(step.limit, 0, np.int64)
        is_going = step.first is None or bool(self._read_scalar(step.first, 0, np.uint8))
        trip = 0
        while is_going and trip < min(requested, step.max_trips):
            self._write_scalar(step.trip_index, 0, np.int64(trip))
            self._run_launches(self._prepare(step.body, trip), trip)
            is_going = bool(self._read_scalar(step.going, trip, np.uint8))
            trip += 1
        is_unlimited = step.limit is None
        if is_going and trip >= step.max_trips and (is_unlimited or trip < requested):
            self._write_scalar(step.flag, 0, np.int32(1))


def _segment_of(context: weakref.ref[GpuContext], name: str) -> Callable[[Any], None]:
    """A step that launches. It does not hold its context (see `ExecutionContext`)."""

    def run(argument: Any) -> None:
        running = context()
        assert running is not None
        running.run_segment(name)

    return run


def _free_memory(device: Device, memory: dict[str, int]) -> None:
    free_all(device, list(memory.values()))
    memory.clear()

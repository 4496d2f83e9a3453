"""A card of NVIDIA as a `Device`.

Its primary context is used, which is PyTorch's, CuPy's and JAX's too, so that addresses are the
same in all of them. The driver makes machine code of the kernels' PTX, once for a card
(`cubins`), and launches that follow one another are one graph from their second run on.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from verax.base.errors import CompileError, DeviceError
from verax.base.gpu.cuda_driver import OUT_OF_MEMORY, call, card, driver, out_of_memory
from verax.base.machine.cores import deciding
from verax.base.process.forks import on_fork
from verax.runtime.gpu.code import GpuCode
from verax.runtime.gpu.cubins import CubinCache, default_cubins
from verax.runtime.gpu.device import LaunchSequence, PreparedLaunch
from verax.runtime.gpu.launches import launches

R = TypeVar("R")
USUAL_SHARED = 48 << 10
"""Bytes of shared memory that a block may have without being asked for."""
NON_BLOCKING = 1
"""Flag of a stream that waits for no other."""
TIMED, WITHOUT_TIMING = 0, 2
"""Flags of events."""
LOG_BYTES = 8 << 10
MOST_COMPILERS = 8
"""Threads in which the driver makes machine code."""
GRAPH_FROM = 2
"""Launches that a sequence has at least for a graph to be of use."""


class CudaDevice:
    """See the module's docstring, and `Device`. One serves all programs of a process."""

    def __init__(self, index: int = 0, cubins: CubinCache | None = None) -> None:
        """index: of the card. cubins: where machine code is looked for and kept.

        Raises `DeviceError` where there is no such card, or it is too old.
        """
        self.card = card(index)
        self.architecture = self.card.architecture
        self.index, self.name = index, str(self.card)
        self._cubins = cubins
        self._thread = threading.local()
        self._context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", index))
        self.own_stream = 0
        with self.use(0):
            self.own_stream = int(call("cuStreamCreate", NON_BLOCKING))

    # --- streams

    def use(self, stream: int | None = None) -> _Use:
        """Inside, the card's context is this thread's, and work goes to that stream."""
        return _Use(self, stream)

    def _current(self) -> int | None:
        """The stream of this thread inside of `use`."""
        return getattr(self._thread, "stream", None)

    def order(self, before: int, after: int) -> None:
        """Work that is asked of the stream `after` from now on waits for all of `before`."""
        with self.use(), self._event(WITHOUT_TIMING) as event:
            call("cuEventRecord", event, before, during=self.name)
            call("cuStreamWaitEvent", after, event, 0, during=self.name)

    def synchronize(self) -> None:
        """Wait until all work of the stream is done. Raises `DeviceError` where a kernel failed."""
        if (stream := self._current()) is None:
            with self.use():
                return self.synchronize()
        call("cuStreamSynchronize", stream, during=self.name)

    # --- memory

    def allocate(self, nbytes: int) -> int:
        """See `Device.allocate`."""
        with self.use():
            try:
                address = int(call("cuMemAlloc", nbytes, during=self.name))
            except DeviceError as error:
                if error.code != OUT_OF_MEMORY:
                    raise
                raise out_of_memory(nbytes, self.index, "values and weights") from error
            self.zero(address, nbytes)
            self.synchronize()
        return address

    def free(self, address: int) -> None:
        """Give memory back; the driver waits until nothing uses it."""
        with self.use():
            call("cuMemFree", address, during=self.name)

    def write(self, address: int, array: np.ndarray) -> None:
        """Copy a contiguous array to the card; the driver has read it when this returns."""
        if (stream := self._current()) is None:
            with self.use():
                return self.write(address, array)
        source, nbytes = array.ctypes.data, array.nbytes
        call("cuMemcpyHtoDAsync", address, source, nbytes, stream, during=self.name)

    def read(self, array: np.ndarray, address: int) -> None:
        """See `Device.read`."""
        if (stream := self._current()) is None:
            with self.use():
                return self.read(array, address)
        target, nbytes = array.ctypes.data, array.nbytes
        call("cuMemcpyDtoHAsync", target, address, nbytes, stream, during=self.name)
        call("cuStreamSynchronize", stream, during=self.name)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """See `Device.copy`."""
        if (stream := self._current()) is None:
            with self.use():
                return self.copy(target, source, nbytes)
        call("cuMemcpyDtoDAsync", target, source, nbytes, stream, during=self.name)

    def zero(self, address: int, nbytes: int) -> None:
        """Fill with zeros."""
        if (stream := self._current()) is None:
            with self.use():
                return self.zero(address, nbytes)
        call("cuMemsetD8Async", address, 0, nbytes, stream, during=self.name)

    def owns(self, address: int, nbytes: int) -> bool:
        """Whoever says that memory lies on this card has it in the same context."""
        return True

    # --- code

    def load(self, code: GpuCode) -> dict[str, Any]:
        """Functions of the driver by kernel. Raises `DeviceError` where it refuses one."""
        shared: dict[str, int] = {}
        for steps in code.segments.values():
            for launch in launches(steps):
                shared[launch.kernel] = max(launch.shared, shared.get(launch.kernel, 0))
        missing = sorted(shared.keys() - code.ptx.keys())
        if missing:
            raise CompileError(
                f"the program has no code of the kernel {missing[0]}",
                next_step="compile the model again",
            )
        own = code.machine_code.get(self._capability, {})
        return self._in_threads(
            shared, lambda n: self._function(n, code.ptx[n], shared[n], own.get(n))
        )

    def with_machine_code(self, code: GpuCode) -> GpuCode:
        """As that of `Device`. Raises `DeviceError` where the driver refuses a kernel."""

        def compiled(name: str) -> bytes:
            with self.use():
                return self._machine_code(name, code.ptx[name])

        own = self._in_threads(code.ptx, compiled)
        return dataclasses.replace(code, machine_code={**code.machine_code, self._capability: own})

    @property
    def _capability(self) -> str:
        """The name of machine code for this card, which other capabilities may not run."""
        return ".".join(map(str, self.card.capability))

    def _in_threads(self, names: Iterable[str], make: Callable[[str], R]) -> dict[str, R]:
        """What `make` gives for each kernel."""
        names = list(names)
        if not names:
            return {}
        with ThreadPoolExecutor(min(MOST_COMPILERS, deciding().threads, len(names))) as pool:
            return dict(zip(names, pool.map(make, names)))

    def _module(self, name: str, ptx: bytes, machine_code: bytes | None) -> Any:
        """A kernel's module. machine_code: what came with it, of whatever driver."""
        if machine_code is not None:
            with contextlib.suppress(DeviceError):  # that is older than this driver takes, or newer
                return call("cuModuleLoadData", machine_code, during=name)
        return call("cuModuleLoadData", self._machine_code(name, ptx), during=name)

    def _function(
        self, name: str, ptx: bytes, shared: int, machine_code: bytes | None = None
    ) -> _KernelFunction:
        """A kernel's function, ready to be launched with so much shared memory."""
        with self.use():
            module = self._module(name, ptx, machine_code)
            handle = call("cuModuleGetFunction", module, name.encode())
            function = _KernelFunction(self, module, handle)
            if shared > USUAL_SHARED:
                size = driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                try:
                    call("cuFuncSetAttribute", function.handle, size, shared, during=name)
                except DeviceError as error:
                    raise DeviceError(
                        f"a kernel needs {shared} bytes of shared memory, and {self.card.name} has "
                        f"less for a block ({error.cause})",
                        place=name,
                        next_step="compile the model for this card: target cuda",
                        code=error.code,
                    ) from error
            return function

    def _machine_code(self, name: str, ptx: bytes) -> bytes:
        """Of one kernel: kept from before, or made by the driver."""
        cubins = self._cubins
        key = cubins.key(ptx, self.card) if cubins is not None else ""
        machine_code = cubins.find(key) if cubins is not None else None
        if machine_code is None:
            machine_code = _compiled(name, ptx)
            if cubins is not None:
                cubins.keep(key, machine_code)
        return machine_code

    # --- launches

    def launch(self, sequence: LaunchSequence) -> None:
        """See `Device.launch`."""
        if (stream := self._current()) is None:
            with self.use():
                return self.launch(sequence)
        self.prepare(sequence)
        sequence.runs += 1
        if sequence.handle is not None:
            sequence.handle.launch(stream)
            return
        for one in sequence.launches:
            call(
                "cuLaunchKernel", one.kernel.handle,
                one.blocks, 1, 1, one.threads, 1, 1,
                one.shared, stream, ctypes.addressof(one.parameters), 0,
                during=self.name,
            )  # fmt: skip

    def prepare(self, sequence: LaunchSequence) -> None:
        """See `Device.prepare`: from the second run on there is a graph, with these pointers."""
        if self._current() is None:
            with self.use():
                return self.prepare(sequence)
        if sequence.handle is not None:
            sequence.handle.update(sequence)
        elif sequence.runs and len(sequence.launches) >= GRAPH_FROM:
            sequence.handle = _Graph(self, sequence.launches)
            sequence.changed.clear()

    def elapsed(self, work: Callable[[], None]) -> float:
        """See `Device.elapsed`: between two events of the stream."""
        if (stream := self._current()) is None:
            with self.use():
                return self.elapsed(work)
        with self._event(TIMED) as start, self._event(TIMED) as end:
            call("cuEventRecord", start, stream, during=self.name)
            work()
            call("cuEventRecord", end, stream, during=self.name)
            call("cuEventSynchronize", end, during=self.name)
            return float(call("cuEventElapsedTime", start, end, during=self.name)) / 1e3

    @contextlib.contextmanager
    def _event(self, flags: int) -> Iterator[Any]:
        """An event, for as long as the block."""
        event = call("cuEventCreate", flags, during=self.name)
        try:
            yield event
        finally:
            call("cuEventDestroy", event)

    def _later(self, owner: Any, function: str, handle: Any) -> None:
        """Call a function of the driver on `handle` when `owner` is gone."""
        weakref.finalize(owner, _release, self, function, handle).atexit = False


class _Use:
    """A `with` statement of `CudaDevice.use`; a class, as each call of a program has one."""

    __slots__ = ("_device", "_outer", "_stream")

    def __init__(self, device: CudaDevice, stream: int | None) -> None:
        self._device, self._stream = device, stream

    def __enter__(self) -> None:
        device = self._device
        self._outer = device._current()
        stream = self._stream
        if self._outer is None:
            call("cuCtxPushCurrent", device._context, during=device.name)
            stream = device.own_stream if stream is None else stream
        device._thread.stream = self._outer if stream is None else stream

    def __exit__(self, *_: object) -> None:
        self._device._thread.stream = self._outer
        if self._outer is None:
            with contextlib.suppress(DeviceError):  # it would hide what failed before
                call("cuCtxPopCurrent")


class _KernelFunction:
    """handle: of the driver. Its module is unloaded with it."""

    def __init__(self, device: CudaDevice, module: Any, handle: Any) -> None:
        self.handle = handle
        device._later(self, "cuModuleUnload", module)


class _Graph:
    """Launches as one graph, made node by node: what a capture would be, without being in the way
    of what else goes on in the process."""

    def __init__(self, device: CudaDevice, launched: list[PreparedLaunch]) -> None:
        graph = call("cuGraphCreate", 0, during=device.name)
        device._later(self, "cuGraphDestroy", graph)
        self._nodes: list[Any] = []
        for one in launched:
            before, node = self._nodes[-1:], _node(one)
            arguments = graph, before, len(before), node
            self._nodes.append(call("cuGraphAddKernelNode", *arguments, during=device.name))
        self._executable = call("cuGraphInstantiate", graph, 0, during=device.name)
        device._later(self, "cuGraphExecDestroy", self._executable)

    def update(self, sequence: LaunchSequence) -> None:
        """Have the pointers of those that are changed."""
        for i in sorted(sequence.changed):
            node = _node(sequence.launches[i])
            call("cuGraphExecKernelNodeSetParams", self._executable, self._nodes[i], node)
        sequence.changed.clear()

    def launch(self, stream: int) -> None:
        call("cuGraphLaunch", self._executable, stream)


def _node(one: PreparedLaunch) -> Any:
    """A launch as a node of a graph; the driver copies what the parameters point to."""
    node = driver().CUDA_KERNEL_NODE_PARAMS()
    node.func = one.kernel.handle
    node.gridDimX, node.gridDimY, node.gridDimZ = one.blocks, 1, 1
    node.blockDimX, node.blockDimY, node.blockDimZ = one.threads, 1, 1
    node.sharedMemBytes = one.shared
    node.kernelParams = ctypes.addressof(one.parameters)
    return node


def _compiled(name: str, ptx: bytes) -> bytes:
    """Machine code of a kernel for the card of this thread's context. Raises `DeviceError` with
    what the driver's compiler says."""
    option = driver().CUjit_option
    log = bytearray(LOG_BYTES)
    options = {
        option.CU_JIT_ERROR_LOG_BUFFER: log,
        option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: LOG_BYTES,
    }
    state = call("cuLinkCreate", len(options), [*options], [*options.values()], during=name)
    text, kind = ptx + b"\0", driver().CUjitInputType.CU_JIT_INPUT_PTX
    try:
        call("cuLinkAddData", state, kind, text, len(text), name.encode(), 0, [], [], during=name)
        start, size = call("cuLinkComplete", state, during=name)
        return ctypes.string_at(int(start), int(size))
    except DeviceError as error:
        lines = bytes(log).partition(b"\0")[0].decode(errors="replace").strip().splitlines()
        message = f"{error.cause}: {lines[0][:200]}" if lines else error.cause
        raise DeviceError(
            message, place=error.place, next_step=error.next_step, code=error.code
        ) from error
    finally:
        call("cuLinkDestroy", state)


def _release(device: CudaDevice, function: str, handle: Any) -> None:
    with contextlib.suppress(DeviceError), device.use():  # of a card that failed nothing is left
        call(function, handle)


_lock = threading.Lock()
_devices: dict[int, CudaDevice] = {}


def _forget() -> None:
    """In a forked child, where the driver is of no use, and says so when it is asked."""
    global _lock
    _lock = threading.Lock()
    _devices.clear()


on_fork(_forget)


def cuda_device(index: int) -> CudaDevice:
    """The card of that index, the same for all programs. Raises `DeviceError`."""
    with _lock:
        if index not in _devices:
            _devices[index] = CudaDevice(index, default_cubins())
        return _devices[index]

"""A driver of NVIDIA's in Python, for tests where there is no card: `cuda.bindings.driver`.

Work is put into streams and done as late as a card may do it: when somebody waits for it. So a wait
that is missing gives wrong numbers. Kernels are those that the emulated GPU runs, by their names:
`emulate` says of which program. Whatever a real driver would refuse is an error here: calls without
a context, memory that nobody allocated, handles that were destroyed, text without its last zero.
"""

from __future__ import annotations

import ctypes
import enum
import re
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from verax.base.gpu import cuda_driver
from verax.runtime.gpu import cuda
from verax.runtime.gpu.code import GpuCode
from verax.runtime.gpu.emulated import EmulatedDevice, order_from_environment

MODULE = "cuda.bindings.driver"
CUBIN = b"\x7fELF of a card: "
LEGACY = 1
WITHOUT_TIMING = 2
NOT_READY = 600


class Code(enum.IntEnum):
    """Of `CUresult` those that are of use here, with the driver's numbers."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NOT_INITIALIZED = 3
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_ECC_UNCORRECTABLE = 214
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222
    CUDA_ERROR_INVALID_HANDLE = 400
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_MISALIGNED_ADDRESS = 716
    CUDA_ERROR_LAUNCH_FAILED = 719


class Failed(Exception):
    """What a function returns."""

    def __init__(self, code: int) -> None:
        self.code = code


class Node:
    """`CUDA_KERNEL_NODE_PARAMS`: nothing but the fields of the real one."""

    __slots__ = (
        *("func", "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"),
        *("sharedMemBytes", "kernelParams", "extra", "kern", "ctx"),
    )
    func: int
    gridDimX: int
    gridDimY: int
    gridDimZ: int
    blockDimX: int
    blockDimY: int
    blockDimZ: int
    sharedMemBytes: int
    kernelParams: int


class FakeDriver(types.ModuleType):
    """cards: (name, major, minor). memory: bytes of each. calls: names in their order. failures:
    function -> codes that its next calls return. milliseconds(kernel): how long each takes by the
    card's clock; nothing else takes any."""

    CUresult, CUDA_KERNEL_NODE_PARAMS = Code, Node

    def __init__(self, *cards: tuple[str, int, int], memory: int = 1 << 30) -> None:
        super().__init__(MODULE)
        self.cards, self.memory = cards, memory
        self.calls: list[str] = []
        self.failures: dict[str, list[int]] = {}
        self.log = b""
        self.l2_cache = 50 << 20
        self.emulated: dict[str, Any] = {}
        self.buffers: dict[int, np.ndarray] = {}
        self.live: dict[str, set[int]] = {}
        self.streams: dict[int, list[Callable[[], None]]] = {LEGACY: []}
        self.thread = threading.local()
        self.lock = threading.RLock()
        self.next = 1000
        self.is_initialized = False
        self.launched: list[tuple[str, int, int, int]] = []
        self.memory_of: dict[int, Any] = {}
        self.time_of: dict[int, tuple[float, ...] | None] = {}
        self.now, self.milliseconds = 0.0, lambda kernel: 1.0
        self.CUdevice_attribute = self.CUfunction_attribute = _Names()
        self.CUjit_option = self.CUjitInputType = _Names()

    def emulate(self, code: GpuCode) -> None:
        """Have the kernels of an emulated program in the place of those that are loaded next."""
        self.emulated = EmulatedDevice().load(code)

    def __getattr__(self, name: str) -> Any:
        function = getattr(type(self), f"_{name}", None)
        if function is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            with self.lock:
                self.calls.append(name)
                planned = self.failures.get(name)
                values = (None,) * RESULTS.get(name, 0)
                if planned:
                    return Code(planned.pop(0)), *values
                try:
                    if name not in BEFORE_INIT and not self.is_initialized:
                        raise Failed(Code.CUDA_ERROR_NOT_INITIALIZED)
                    if name not in WITHOUT_CONTEXT and not self._contexts:
                        raise Failed(Code.CUDA_ERROR_INVALID_CONTEXT)
                    result = function(self, *arguments)
                except Failed as failed:
                    return Code(failed.code), *values
            if RESULTS.get(name, 0) == 0:
                assert result is None
                return (Code.CUDA_SUCCESS,)
            return Code.CUDA_SUCCESS, *(result if RESULTS[name] > 1 else (result,))

        return call

    # --- handles

    @property
    def _contexts(self) -> list[int]:
        if not hasattr(self.thread, "contexts"):
            self.thread.contexts = []
        contexts: list[int] = self.thread.contexts
        return contexts

    def _new(self, kind: str) -> int:
        self.next += 1
        self.live.setdefault(kind, set()).add(self.next)
        return self.next

    def _require(self, kind: str, handle: int) -> None:
        if handle not in self.live.get(kind, ()):
            raise Failed(Code.CUDA_ERROR_INVALID_HANDLE)

    def _drop(self, kind: str, handle: int) -> None:
        self._require(kind, handle)
        self.live[kind].remove(handle)

    # --- cards

    def _cuInit(self, flags: int) -> None:
        if not self.cards:
            raise Failed(Code.CUDA_ERROR_NO_DEVICE)
        self.is_initialized = True

    def _cuGetErrorName(self, code: Code) -> bytes:
        return code.name.encode()

    def _cuGetErrorString(self, code: Code) -> bytes:
        return f"words of {int(code)}".encode()

    def _cuDriverGetVersion(self) -> int:
        return 12080

    def _cuDeviceGetCount(self) -> int:
        return len(self.cards)

    def _cuDeviceGet(self, index: int) -> int:
        if index >= len(self.cards):
            raise Failed(Code.CUDA_ERROR_INVALID_DEVICE)
        return 70 + index

    def _cuDeviceGetName(self, length: int, device: int) -> bytes:
        return self.cards[device - 70][0].encode().ljust(length, b"\0")

    def _cuDeviceTotalMem(self, device: int) -> int:
        return self.memory

    def _cuDeviceGetAttribute(self, attribute: str, device: int) -> int:
        _, major, minor = self.cards[device - 70]
        prefix = "CU_DEVICE_ATTRIBUTE_"
        return {
            f"{prefix}COMPUTE_CAPABILITY_MAJOR": major,
            f"{prefix}COMPUTE_CAPABILITY_MINOR": minor,
            f"{prefix}MULTIPROCESSOR_COUNT": 132,
            f"{prefix}L2_CACHE_SIZE": self.l2_cache,
        }[attribute]

    def _cuDevicePrimaryCtxRetain(self, device: int) -> int:
        return 10 * device

    def _cuCtxPushCurrent(self, context: int) -> None:
        self._contexts.append(context)

    def _cuCtxPopCurrent(self) -> int:
        return self._contexts.pop()

    # --- memory

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return self.memory - sum(b.nbytes for b in self.buffers.values()), self.memory

    def _cuMemAlloc(self, nbytes: int) -> int:
        assert nbytes > 0
        if nbytes > self._cuMemGetInfo()[0]:
            raise Failed(Code.CUDA_ERROR_OUT_OF_MEMORY)
        buffer = np.full(nbytes + 256, 0xA5, np.uint8)  # what was there before
        address = int(buffer.ctypes.data + -buffer.ctypes.data % 256)
        self.buffers[address] = buffer[address - buffer.ctypes.data :][:nbytes]
        return address

    def _cuMemFree(self, address: int) -> None:
        self._run_all()
        if self.buffers.pop(address, None) is None:
            raise Failed(Code.CUDA_ERROR_INVALID_VALUE)

    def _view(self, address: int, nbytes: int) -> np.ndarray:
        for start, buffer in self.buffers.items():
            if start <= address and address + nbytes <= start + buffer.nbytes:
                return buffer[address - start :][:nbytes]
        raise Failed(Code.CUDA_ERROR_ILLEGAL_ADDRESS)

    def _cuMemcpyHtoDAsync(self, target: int, source: int, nbytes: int, stream: int) -> None:
        content = np.frombuffer(ctypes.string_at(source, nbytes), np.uint8)
        view = self._view(target, nbytes)
        self._put(stream, lambda: view.__setitem__(slice(None), content))

    def _cuMemcpyDtoHAsync(self, target: int, source: int, nbytes: int, stream: int) -> None:
        view = self._view(source, nbytes)
        self._put(stream, lambda: ctypes.memmove(target, view.ctypes.data, nbytes) and None)

    def _cuMemcpyDtoDAsync(self, target: int, source: int, nbytes: int, stream: int) -> None:
        to, view = self._view(target, nbytes), self._view(source, nbytes)
        self._put(stream, lambda: to.__setitem__(slice(None), view.copy()))

    def _cuMemsetD8Async(self, target: int, value: int, nbytes: int, stream: int) -> None:
        self._view(target, nbytes)
        self._put(stream, lambda: ctypes.memset(target, value, nbytes) and None)

    # --- streams

    def _put(self, stream: int, work: Callable[[], None]) -> None:
        if stream not in self.streams:
            raise Failed(Code.CUDA_ERROR_INVALID_HANDLE)
        self.streams[stream].append(work)

    def _run(self, stream: int, count: int | None = None) -> None:
        work = self.streams[stream]
        count = len(work) if count is None else count
        while count > 0 and work:
            count -= 1
            work.pop(0)()

    def _run_all(self) -> None:
        for stream in list(self.streams):
            self._run(stream)

    def _cuStreamCreate(self, flags: int) -> int:
        assert flags == 1
        self.next += 1
        self.streams[self.next] = []
        return self.next

    def _cuStreamSynchronize(self, stream: int) -> None:
        if stream not in self.streams:
            raise Failed(Code.CUDA_ERROR_INVALID_HANDLE)
        for other, work in list(self.streams.items()):
            if other != stream:  # a card does a part of it meanwhile
                self._run(other, len(work) // 2)
        self._run(stream)

    def _cuEventCreate(self, flags: int) -> int:
        assert flags in (0, WITHOUT_TIMING)
        event = self._new("event")
        self.memory_of[event] = lambda: None
        self.time_of[event] = None if flags == WITHOUT_TIMING else ()
        return event

    def _cuEventRecord(self, event: int, stream: int) -> None:
        self._require("event", event)
        done: list[bool] = []

        def record() -> None:
            done.append(True)
            if self.time_of[event] is not None:
                self.time_of[event] = (self.now,)

        if self.time_of[event] is not None:
            self.time_of[event] = ()
        self._put(stream, record)

        def until() -> None:
            while not done and self.streams[stream]:
                self._run(stream, 1)

        self.memory_of[event] = until

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        self._require("event", event)
        self._put(stream, self.memory_of[event])

    def _cuEventSynchronize(self, event: int) -> None:
        self._require("event", event)
        self.memory_of[event]()

    def _cuEventElapsedTime(self, start: int, end: int) -> float:
        self._require("event", start)
        self._require("event", end)
        first, last = self.time_of[start], self.time_of[end]
        if not first or not last:  # without timing, or not reached yet
            raise Failed(Code.CUDA_ERROR_INVALID_HANDLE if None in (first, last) else NOT_READY)
        return float(last[0] - first[0])

    def _cuEventDestroy(self, event: int) -> None:
        self._drop("event", event)

    # --- code

    def _cuLinkCreate(self, count: int, options: list[str], values: list[Any]) -> int:
        assert count == len(options) == len(values)
        state = self._new("link")
        log = dict(zip(options, values))["CU_JIT_ERROR_LOG_BUFFER"]
        log[: len(self.log)] = self.log
        return state

    def _cuLinkAddData(
        self, state: int, kind: str, data: bytes, size: int, name: bytes, count: int, *_: Any
    ) -> None:
        self._require("link", state)
        assert kind == "CU_JIT_INPUT_PTX" and size == len(data) and isinstance(name, bytes)
        if data[-1:] != b"\0" or b".version" not in data or b".entry " + name not in data:
            raise Failed(Code.CUDA_ERROR_INVALID_PTX)
        (size_by_value,) = re.findall(rb"\.param \.align 8 \.b8 \w+_param_0\[(\d+)\]", data)
        self.memory_of[state] = CUBIN + name + b":" + size_by_value

    def _cuLinkComplete(self, state: int) -> tuple[int, int]:
        self._require("link", state)
        self.memory_of[-state] = buffer = ctypes.create_string_buffer(self.memory_of[state])
        return ctypes.addressof(buffer), len(self.memory_of[state])

    def _cuLinkDestroy(self, state: int) -> None:
        self._drop("link", state)
        self.memory_of.pop(-state, None)

    def _cuModuleLoadData(self, image: bytes) -> int:
        if not image.startswith(CUBIN):
            raise Failed(Code.CUDA_ERROR_INVALID_PTX)
        module = self._new("module")
        self.memory_of[module] = image.removeprefix(CUBIN), self.emulated
        return module

    def _cuModuleGetFunction(self, module: int, name: bytes) -> int:
        self._require("module", module)
        image, emulated = self.memory_of[module]
        inside, _, nbytes = image.partition(b":")
        if name != inside:
            raise Failed(Code.CUDA_ERROR_NOT_FOUND)
        function = self._new("function")
        self.memory_of[function] = [name.decode(), emulated[name.decode()], int(nbytes), 48 << 10]
        return function

    def _cuModuleUnload(self, module: int) -> None:
        self._drop("module", module)

    def _cuFuncSetAttribute(self, function: int, attribute: str, value: int) -> None:
        self._require("function", function)
        assert attribute == "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        if value > 99 << 10:
            raise Failed(Code.CUDA_ERROR_INVALID_VALUE)
        self.memory_of[function][3] = value

    # --- launches

    def _kernel(
        self, function: int, blocks: int, threads: int, shared: int, parameters: int
    ) -> Callable[[], None]:
        """A launch, with its parameters as they are now."""
        self._require("function", function)
        name, emulated, nbytes, limit = self.memory_of[function]
        if shared > limit or not 0 < blocks < 1 << 31 or not 0 < threads <= 1024:
            raise Failed(Code.CUDA_ERROR_INVALID_VALUE)
        pointers, items = (ctypes.c_void_p * 2).from_address(parameters)
        count = ctypes.c_int64.from_address(items or 0).value
        copied = ctypes.create_string_buffer(ctypes.string_at(pointers or 0, nbytes), nbytes)
        self.launched.append((name, blocks, threads, count))

        def run() -> None:
            self.now += self.milliseconds(name)
            emulated(ctypes.addressof(copied), count, blocks, order_from_environment())

        return run

    def _cuLaunchKernel(self, function: int, *numbers: int) -> None:
        blocks, y, z, threads, v, w, shared, stream, parameters, extra = numbers
        assert (y, z, v, w, extra) == (1, 1, 1, 1, 0)
        self._put(stream, self._kernel(function, blocks, threads, shared, parameters))

    def _cuGraphCreate(self, flags: int) -> int:
        graph = self._new("graph")
        self.memory_of[graph] = {}
        return graph

    def _cuGraphAddKernelNode(self, graph: int, before: list[int], count: int, node: Node) -> int:
        self._require("graph", graph)
        nodes = self.memory_of[graph]
        assert count == len(before) and list(before) == list(nodes)[-1:]
        added = self._new("node")
        nodes[added] = self._of_node(node)
        return added

    def _of_node(self, node: Node) -> Callable[[], None]:
        sizes = node.gridDimY, node.gridDimZ, node.blockDimY, node.blockDimZ
        assert sizes == (1, 1, 1, 1)
        threads, shared = node.blockDimX, node.sharedMemBytes
        return self._kernel(node.func, node.gridDimX, threads, shared, node.kernelParams)

    def _cuGraphInstantiate(self, graph: int, flags: int) -> int:
        self._require("graph", graph)
        executable = self._new("executable")
        self.memory_of[executable] = dict(self.memory_of[graph])
        return executable

    def _cuGraphExecKernelNodeSetParams(self, executable: int, handle: int, node: Node) -> None:
        self._require("executable", executable)
        assert handle in self.memory_of[executable]
        self.memory_of[executable][handle] = self._of_node(node)

    def _cuGraphLaunch(self, executable: int, stream: int) -> None:
        self._require("executable", executable)
        for run in list(self.memory_of[executable].values()):
            self._put(stream, run)

    def _cuGraphExecDestroy(self, executable: int) -> None:
        self._drop("executable", executable)

    def _cuGraphDestroy(self, graph: int) -> None:
        self._drop("graph", graph)


class _Names:
    """An enumeration whose members are their names."""

    def __getattr__(self, name: str) -> str:
        return name


RESULTS = {
    **dict.fromkeys(
        (
            *("cuGetErrorName", "cuGetErrorString", "cuDriverGetVersion", "cuDeviceGetCount"),
            *("cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem", "cuDeviceGetAttribute"),
            *("cuDevicePrimaryCtxRetain", "cuCtxPopCurrent", "cuMemAlloc", "cuStreamCreate"),
            *(
                "cuEventCreate",
                "cuEventElapsedTime",
                "cuLinkCreate",
                "cuModuleLoadData",
                "cuModuleGetFunction",
            ),
            *("cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate"),
        ),
        1,
    ),
    **{"cuMemGetInfo": 2, "cuLinkComplete": 2},
}
"""Values that a function gives beside its code."""
BEFORE_INIT = ("cuInit", "cuGetErrorName", "cuGetErrorString")
WITHOUT_CONTEXT = (
    *(*BEFORE_INIT, "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName"),
    *("cuDeviceTotalMem", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent"),
)


def install(monkeypatch: pytest.MonkeyPatch, fake: Any) -> None:
    """Have Verax take `fake` for the driver until the test ends, which then has to clear the cache
    of `cuda_driver.driver`. None: the package is missing."""
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, MODULE, fake)
    monkeypatch.setattr(cuda, "_devices", {})
    if fake is not None:
        monkeypatch.setattr(cuda, "driver", lambda: fake)
    cuda_driver.driver.cache_clear()

"""The object code of one network: its kernels, and a module of its own that calls them.

A kernel is an object by itself, made from (spec, schedule, target) alone, so a process makes each
one once, for all networks (up to MOST_BYTES of the ones used last). LLVM works on a thread of its
own while the next kernel is being written in Python.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from types import TracebackType

from verax.base.machine.cores import deciding
from verax.base.machine.memory import give_back
from verax.base.process.background import give_up_if_leaving
from verax.base.process.forks import on_fork
from verax.base.process.switching import switching_often
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.llvm.object_code import AT_A_TIME, code_of
from verax.compiler.kernels.registry import Schedule, Spec, emit, emitter
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.object_linker import link_objects
from verax.ir.assumptions import assuming
from verax.runtime.gpu.code import GpuCode
from verax.runtime.gpu.launches import DeviceStep

MOST_BYTES = 64 << 20
"""Of object code that a process keeps for further networks."""

LONG_TEXT = 1 << 16
"""Characters of what is a network's own: more are calls of some dozens of kernels."""


@dataclasses.dataclass(frozen=True)
class CompiledKernel:
    """An object, or the promise of one. kernel: what it holds, under its name there; None when it
    keeps all its names."""

    kernel: Kernel | None
    code: Future[bytes]


_Write = Callable[[ModuleBuilder], "Kernel | None"]
"""Writes a part into an empty module."""


class _ObjectCodeCache:
    """The parts that this process has made; the least recently used are dropped."""

    def __init__(self) -> None:
        self.renew()
        on_fork(self.renew)

    def renew(self) -> None:
        """In the child of a fork: the thread that would make a promised one is gone."""
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, CompiledKernel] = OrderedDict()
        self._uncounted: dict[
            Hashable, CompiledKernel
        ] = {}  # since the last `trim`, or not yet made then
        self._bytes = 0  # of the others

    def find(self, key: Hashable) -> CompiledKernel | None:
        """A part that did not fail."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
        if entry is None or entry.code.cancelled():
            return None
        return None if entry.code.done() and entry.code.exception() else entry

    def keep(self, key: Hashable, entry: CompiledKernel) -> None:
        with self._lock:
            self._drop(key)
            self._entries[key] = self._uncounted[key] = entry

    def trim(self) -> None:
        """Drop what failed, and the oldest that are too many. Looks at what is new alone: there
        are thousands in a process that compiles many networks."""
        with self._lock:
            for key, entry in list(self._uncounted.items()):
                if not entry.code.done():
                    continue
                if entry.code.cancelled() or entry.code.exception() is not None:
                    self._drop(key)
                    continue
                del self._uncounted[key]
                self._bytes += len(entry.code.result())
            if self._bytes <= MOST_BYTES:
                return
            for key in [k for k in self._entries if k not in self._uncounted]:
                self._drop(key)
                if self._bytes <= MOST_BYTES:
                    break

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None and self._uncounted.pop(key, None) is None:
            self._bytes -= len(entry.code.result())

    def forget(self) -> None:
        """Drop all."""
        with self._lock:
            self._entries.clear()
            self._uncounted.clear()
            self._bytes = 0


COMPILED_KERNELS = _ObjectCodeCache()


class Assembly:
    """The code of one network being made. Use it in a `with` block, and take `object_code` there.

    module: for what is the network's own.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.module = ModuleBuilder("verax", target)
        self._is_by_kernel = target.makes_elf or target.gpu == "cuda"  # others cannot be joined
        self._kernels: dict[Hashable, Kernel] = {}
        self._entries: list[tuple[CompiledKernel, _Write, dict[str, str]]] = []
        self._stack = contextlib.ExitStack()
        self._worker: ThreadPoolExecutor | None = None

    def __enter__(self) -> Assembly:
        threads = deciding().threads
        if threads > 1:
            self._stack.enter_context(switching_often())
            self._worker = ThreadPoolExecutor(min(threads, AT_A_TIME), "verax-llvm")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if self._worker is not None:
            self._worker.shutdown(cancel_futures=True)
        self._stack.close()
        COMPILED_KERNELS.trim()
        give_back()

    def kernel(self, spec: Spec, schedule: Schedule) -> Kernel:
        """The kernel of `spec`; its name is the network's.

        NotImplementedError for a dtype that its emitter does not know.
        """
        if not self._is_by_kernel:
            return emit(self.module, spec, schedule)
        key = (spec, schedule, self.target, emitter(spec, self.target).emit)
        give_up_if_leaving()
        if key not in self._kernels:

            def write(module: ModuleBuilder) -> Kernel:
                return emit(module, spec, schedule)

            compiled = self._compiled_kernel(key, write)
            assert compiled.kernel is not None
            hint = compiled.kernel.name.rpartition("_")[0]
            named = dataclasses.replace(compiled.kernel, name=f"{hint}_{len(self._kernels)}")
            self._entries.append((compiled, write, {compiled.kernel.name: named.name}))
            self._kernels[key] = named
        return self._kernels[key]

    def common(self, define: Callable[[ModuleBuilder], object]) -> None:
        """Functions that are the same in every network, as `define` writes them into a module."""
        if not self._is_by_kernel:
            define(self.module)
            return

        def write(module: ModuleBuilder) -> None:
            define(module)

        self._entries.append((self._compiled_kernel((define, self.target), write), write, {}))

    def wait(self) -> None:
        """Until every part is made, and kept for further networks of this process."""
        for compiled, write, _ in self._entries:
            self._result(compiled, write)

    def object_code(self) -> bytes:
        """The relocatable object file of all of it. CompileError: LLVM refuses the code."""
        text = self.module.ir_text()
        # It has no loop to speak of, and many calls; LLVM takes as long over these as over kernels.
        quick = dataclasses.replace(self.target, effort=0) if len(text) > LONG_TEXT else self.target
        own = code_of(text, quick)
        if not self._entries:
            return own
        objects = [
            (self._result(compiled, write), renamed) for compiled, write, renamed in self._entries
        ]
        return link_objects([(own, {}), *objects])

    def gpu_code(self, contract: bytes, segments: Mapping[str, tuple[DeviceStep, ...]]) -> GpuCode:
        """The code of a GPU's program: its kernels, and what `segments` launch."""
        if self.target.gpu == "emulated":
            return GpuCode(contract, segments, {}, self.object_code())
        ptx: dict[str, bytes] = {}
        for compiled, write, renamed in self._entries:
            code = self._result(compiled, write)
            for old, new in renamed.items():
                code = re.sub(rf"\b{old}\b".encode(), new.encode(), code)
                ptx[new] = code
        return GpuCode(contract, segments, ptx)

    def _compiled_kernel(self, key: Hashable, write: _Write) -> CompiledKernel:
        """The part that this process has, or a new one."""
        cached = COMPILED_KERNELS.find(key)
        if cached is not None:
            return cached
        module = ModuleBuilder("verax", self.target)
        with assuming(None):  # the key says nothing of what is assumed
            kernel, code = write(module), Future[bytes]()
        if self._worker is not None:
            code = self._worker.submit(code_of, module.ir_text(), self.target)
        else:
            code.set_result(code_of(module.ir_text(), self.target))
        compiled = CompiledKernel(kernel, code)
        COMPILED_KERNELS.keep(key, compiled)
        return compiled

    def _result(self, compiled: CompiledKernel, write: _Write) -> bytes:
        try:
            return compiled.code.result()
        except CancelledError:  # another thread promised it, and was interrupted
            module = ModuleBuilder("verax", self.target)
            write(module)
            return code_of(module.ir_text(), self.target)

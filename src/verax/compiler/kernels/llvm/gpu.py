"""Kernels of a GPU: a thread executes one work item, or the threads of a block share one.

A kernel is written once, for NVIDIA's machine or for one that this processor emulates; they differ
in how a thread learns its number, waits for its block, and copies to the block's memory.

ABI on the device: `name(ptr byval [n x ptr] args, i64 items)`, with thread t of block b doing item
b * threads + t, or, in a kernel of blocks, all of block b doing item b. Emulated: `name(ptr args,
i64 items, i64 blocks, i64 order)` does all of them (`emulated`).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from verax.compiler.kernels.llvm import emulated
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import (
    BUILDERS,
    F32,
    I8,
    I32,
    I64,
    KERNEL_TYPE,
    PTR,
    VOID,
    FunctionBuilder,
    Kernel,
    ModuleBuilder,
)
from verax.compiler.kernels.sizes import Size, ceil_div

THREADS = 64
"""Of a block, where each does an item of its own: few, so that few items fill the card."""
WARP = 32
MOST_THREADS = 1024
GLOBAL, SHARED = ir.PointerType(1), ir.PointerType(3)
SHARED_NAME = "shared_memory"
_REGISTER = "llvm.nvvm.read.ptx.sreg."


class GpuBuilder(FunctionBuilder):
    """A kernel each of whose threads does one item: from `begin` to `end`, which is one more."""

    threads = THREADS

    @property
    def is_emulated(self) -> bool:
        return self.module.target.gpu == "emulated"

    def _function(self) -> ir.Function:
        if self.is_emulated:
            return self.module.function(f"{self.name}.item", VOID, KERNEL_TYPE.args, internal=True)
        fn = self.module.function(self.name, VOID, [PTR, I64])
        fn.linkage = "ptx_kernel"
        fn.argument_attributes[0] = f"byval([{self._n_args + 1} x ptr]) align 8"
        fn.attributes += [f'"nvvm.maxntid"="{self.threads}"']
        return fn

    def _arguments(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        if self.is_emulated:
            return super()._arguments()
        table, items = self.fn.args
        self.begin = self._item()
        return table, self.begin, items

    def _item(self) -> ir.Value:
        """The number of this thread in the grid."""
        b = self.b
        block, thread = (b.zext(self._register(r), I64) for r in ("ctaid.x", "tid.x"))
        return b.add(b.mul(block, self.i64(self.threads)), thread)

    def _register(self, name: str) -> ir.Value:
        return self.b.call(self.module.intrinsic(_REGISTER + name, I32, []), [])

    def _enter(self) -> None:
        if self.is_emulated:
            return
        inside, outside = self.block("inside"), self.block("outside")
        self.b.cbranch(self.b.icmp_signed("<", self.begin, self.end), inside, outside)
        self.b.position_at_end(outside)
        self.b.ret_void()
        self.b.position_at_end(inside)
        self.end = self.b.add(self.begin, self.i64(1))

    def finish(self, items: Size, flops: Size = 0, bytes: Size = 0) -> Kernel:
        """End the function; the kernel that it is."""
        super().finish(items, flops, bytes)
        if self.is_emulated:
            emulated.launch_items(self.module, self.name, self.fn)
        blocks = ceil_div(items, self.threads)
        self.kernel = Kernel(self.name, items, flops, bytes, self.threads, blocks)
        return self.kernel

    # --- what LLVM cannot do here

    def anchor(self, pointer: ir.Value) -> ir.Value:
        return pointer

    def prefetch(self, pointer: ir.Value, locality: int = 3) -> None:
        """Nothing: there are enough other threads."""


BUILDERS["gpu"] = GpuBuilder


def block_kernel(
    module: ModuleBuilder,
    key: Hashable,
    n_args: int,
    threads: int,
    shared_bytes: int = 0,
    blocks_per_multiprocessor: int = 1,
    hint: str = "",
) -> BlockBuilder:
    """As `ModuleBuilder.kernel`, a kernel whose item is done by `threads` threads together, a
    multiple of 32, which share `shared_bytes` of memory.

    blocks_per_multiprocessor: that registers must suffice for.
    """
    assert threads % WARP == 0 and threads <= MOST_THREADS
    make = partial(BlockBuilder, threads, shared_bytes, blocks_per_multiprocessor)
    builder = module.kernel(key, n_args, hint, make)
    assert isinstance(builder, BlockBuilder)
    return builder


class BlockBuilder(GpuBuilder):
    """A kernel whose items, from `begin` to `end`, one more, are done by blocks of threads.

    thread: the number of this one in its block (i32). shared: a pointer to the memory of the block,
    aligned to 16 bytes.
    """

    thread: ir.Value
    shared: ir.Value

    def __init__(
        self,
        threads: int,
        shared_bytes: int,
        blocks_per_multiprocessor: int,
        module: ModuleBuilder,
        name: str,
        n_args: int,
    ) -> None:
        self.threads, self.shared_bytes = threads, shared_bytes
        self._blocks_per_multiprocessor = blocks_per_multiprocessor
        self._barrier_count = 0
        super().__init__(module, name, n_args)

    def _function(self) -> ir.Function:
        if not self.is_emulated:
            fn = super()._function()
            fn.attributes.append(f'"nvvm.minctasm"="{self._blocks_per_multiprocessor}"')
            return fn
        emulated.define_coroutines(self.module)
        kinds = [PTR, I64, I64, I32, PTR, PTR]
        fn = self.module.function(f"{self.name}.thread", PTR, kinds, internal=True)
        fn.attributes.append("presplitcoroutine")
        return fn

    def _arguments(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        if self.is_emulated:
            table, block, items, self.thread, self.shared, self._copies = self.fn.args
            return table, block, items
        table, items = self.fn.args
        self.thread = self._register("tid.x")
        self.shared = self._shared_memory()
        return table, self.b.zext(self._register("ctaid.x"), I64), items

    def _shared_memory(self) -> ir.Value:
        """What a launch sets aside for each block."""
        variables = self.module.module.globals
        if SHARED_NAME not in variables:
            variable = ir.GlobalVariable(self.module.module, ir.ArrayType(I8, 0), SHARED_NAME, 3)
            variable.align = 16
        return variables[SHARED_NAME]  # type: ignore[no-any-return]

    def _enter(self) -> None:
        self.end = self.b.add(self.begin, self.i64(1))
        if self.is_emulated:
            for line in _COROUTINE_BEGINS:
                self.b.instruction(line)
            self._suspend("co.first")

    def _suspend(self, name: str) -> None:
        self.b.instruction(f"%{name} = call i8 @llvm.coro.suspend(token none, i1 false)")
        resumed = self.block(name)
        self.b.terminator(
            f"switch i8 %{name}, label %co.suspend [i8 0, label %{resumed.name} "
            "i8 1, label %co.cleanup]"
        )
        self.b.position_at_end(resumed)

    def finish(self, items: Size, flops: Size = 0, bytes: Size = 0) -> Kernel:
        """End the function; the kernel that it is."""
        if self.is_emulated:
            self._end_coroutine()
            emulated.launch_blocks(self.module, self.name, self.threads, self.shared_bytes)
        else:
            self.b.ret_void()
        self.finished = True
        self.kernel = Kernel(self.name, items, flops, bytes, self.threads, items, self.shared_bytes)
        return self.kernel

    def _end_coroutine(self) -> None:
        b = self.b
        b.instruction("%co.last = call i8 @llvm.coro.suspend(token none, i1 true)")
        b.terminator(
            "switch i8 %co.last, label %co.suspend [i8 0, label %co.trap i8 1, label %co.cleanup]"
        )
        for label, lines, end in _COROUTINE_ENDS:
            block = self.fn.append_named_block(label)
            b.position_at_end(block)
            for line in lines:
                b.instruction(line)
            b.terminator(end)

    # --- threads together

    def barrier(self) -> None:
        """Wait until all threads of the block are here, and what they wrote is seen by all. None
        may be left out: a GPU would wait for ever, and the emulation says so."""
        if self.is_emulated:
            self._barrier_count += 1
            emulated.at_barrier(self.b, self._copies, self._barrier_count)
            self._suspend(f"co.barrier{self._barrier_count}")
            return
        name = "llvm.nvvm.barrier.cta.sync.aligned.all"
        self.b.call(self.module.intrinsic(name, VOID, [I32]), [ir.Constant(I32, 0)])

    @property
    def copies_asynchronously(self) -> bool:
        """Whether the machine copies while threads go on (compute capability 8.0)."""
        return self.is_emulated or int(self.module.target.name.removeprefix("sm_")) >= 80

    def copy_16(self, to: ir.Value, source: ir.Value, nbytes: ir.Value) -> None:
        """Begin to copy `nbytes` (i32, at most 16) from `source` to `to`, in shared memory, where
        zeros follow up to 16. Both are aligned to 16 bytes."""
        self._copy(16, "cg", to, source, nbytes)

    def copy_4(self, to: ir.Value, source: ir.Value, nbytes: ir.Value) -> None:
        """The same for 4 bytes, to which both are aligned: `nbytes` is 4, or 0 for a zero."""
        self._copy(4, "ca", to, source, nbytes)

    def _copy(
        self, size: int, cached: str, to: ir.Value, source: ir.Value, nbytes: ir.Value
    ) -> None:
        if self.is_emulated:
            args = [self._copies, to, source, nbytes, ir.Constant(I32, size)]
            self._call_copies("copy_start", args)
        elif self.copies_asynchronously:
            name = f"llvm.nvvm.cp.async.{cached}.shared.global.{size}.s"
            function = self.module.intrinsic(name, VOID, [SHARED, GLOBAL, I32])
            self.b.call(function, [to, self.b.addrspacecast(source, GLOBAL), nbytes])
        else:
            self._copy_at_once(size // 4, to, source, nbytes)

    def _copy_at_once(self, words: int, to: ir.Value, source: ir.Value, nbytes: ir.Value) -> None:
        for word in range(words):
            address = self.at(to, word)
            self.store(ir.Constant(F32, 0.0), address)
            with self.when(self.b.icmp_unsigned(">", nbytes, ir.Constant(I32, 4 * word))):
                self.store(self.load(self.at(source, word), lanes=0), address)

    def commit_copies(self) -> None:
        """What this thread has begun to copy since the last time is a group."""
        if self.is_emulated:
            self._call_copies("copy_commit", [self._copies])
        elif self.copies_asynchronously:
            self.b.call(self.module.intrinsic("llvm.nvvm.cp.async.commit.group", VOID, []), [])

    def await_copies(self, left: int) -> None:
        """Wait until at most `left` of this thread's last groups are under way."""
        if self.is_emulated:
            self._call_copies("copy_wait", [self._copies, ir.Constant(I32, left)])
        elif self.copies_asynchronously:
            wait = self.module.intrinsic("llvm.nvvm.cp.async.wait.group", VOID, [I32])
            self.b.call(wait, [ir.Constant(I32, left)])

    def _call_copies(self, name: str, args: list[ir.Value]) -> None:
        kind = ir.FunctionType(VOID, [a.type for a in args])
        self.b.call(ir.Callee(kind, f"@{name}"), args)


_COROUTINE_BEGINS = (
    "%co.id = call token @llvm.coro.id(i32 0, ptr null, ptr null, ptr null)",
    "%co.size = call i64 @llvm.coro.size.i64()",
    "%co.memory = call ptr @malloc(i64 %co.size)",
    "%co = call ptr @llvm.coro.begin(token %co.id, ptr %co.memory)",
)
_COROUTINE_ENDS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("co.trap", (), "unreachable"),
    ("co.cleanup", ("call void @free(ptr %co)",), "br label %co.suspend"),
    (
        "co.suspend",
        ("call void @llvm.coro.end(ptr %co, i1 false, token none)",),
        "ret ptr %co",
    ),
)

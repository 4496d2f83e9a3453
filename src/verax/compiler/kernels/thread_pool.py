"""A thread pool written in LLVM IR over pthread, so that a compiled network needs nothing else.

    ptr  pool_start(i64 threads)                             null when threads could not be made
    void pool_run(ptr pool, ptr kernel, ptr args, i64 items)
    void pool_stop(ptr pool)

`pool_run` splits the items into chunks; the caller and the workers claim chunks until none is left,
and it returns when all are done. A worker that sleeps is never waited for: what it does not claim,
others do. So a lost core costs speed and not correctness, and in a forked child, which has no
workers, the caller does everything itself (stopping the pool there leaks it on purpose). A null
pool is no workers, too.

One 64-bit ticket holds epoch (16 bits), number of chunks (24) and next chunk (24): claiming is one
atomic add, whose result says by itself to which run it belongs and whether it is a chunk at all.
While a claimed chunk is unfinished the run cannot end, so its kernel and arguments stay valid.

Workers wait for a new epoch by spinning briefly and then park on a condition variable. A worker
counts itself as parked before it looks at the ticket for the last time, and the caller changes the
ticket before it looks at the count, both sequentially consistent: no wake-up is lost. A pool serves
one `pool_run` at a time; different pools, in one object or in several, do not know of each other.
"""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels import llvm_text as ir
from verax.compiler.kernels.builder import I32, I64, KERNEL_TYPE, PTR, VOID, ModuleBuilder
from verax.compiler.kernels.float_mode import enter_default_mode

SPINS = 400
"""Pauses before a waiting worker parks: some tens of microseconds."""
CHUNKS_PER_THREAD = 4
"""Pieces of work per thread and run: enough to even out unequal speed."""

# The state: byte offsets, each group on its own cache lines.
_TICKET, _DONE, _PARKED, _STOP, _THREADS, _PID = 0, 128, 256, 320, 328, 336
_KERNEL, _ARGS, _ITEMS = 384, 392, 400
_MUTEX, _CONDITION, _HANDLES = 512, 640, 768
POOL_RUN, POOL_RUN_ARGS = "pool_run", [PTR, PTR, PTR, I64]
"""void(pool, kernel, args, items): what a network calls."""
_EPOCH_BITS, _COUNT_BITS = 48, 24
_COUNT_MASK = (1 << _COUNT_BITS) - 1


def emit_thread_pool(module: ModuleBuilder) -> ir.Function:
    """Define the pool's functions in `module`, once; gives `pool_run`."""
    found = module.module.globals.get(POOL_RUN)
    if found is not None:
        return found
    claim = _emit_claim(module)
    worker = _emit_worker(module, claim)
    _emit_start(module, worker)
    _emit_stop(module)
    return _emit_run(module, claim)


@dataclasses.dataclass
class _Code:
    """A function being written."""

    module: ModuleBuilder
    fn: ir.Function

    def __post_init__(self) -> None:
        self.b = ir.IRBuilder(self.fn.append_basic_block("entry"))

    def block(self, name: str) -> ir.Block:
        return self.fn.append_basic_block(name)

    def field(self, pool: ir.Value, offset: int) -> ir.Value:
        return self.b.gep(pool, [ir.Constant(I64, offset)], source_etype=ir.IntType(8))

    def get(self, pool: ir.Value, offset: int, kind: ir.Type = I64) -> ir.Value:
        return self.b.load(self.field(pool, offset), typ=kind, align=8)

    def put(self, pool: ir.Value, offset: int, value: ir.Value) -> None:
        self.b.store(value, self.field(pool, offset), align=8)

    def watch(self, pool: ir.Value, offset: int) -> ir.Value:
        return self.b.load_atomic(self.field(pool, offset), "seq_cst", 8, typ=I64)

    def publish(self, pool: ir.Value, offset: int, value: ir.Value) -> None:
        self.b.atomic_rmw("xchg", self.field(pool, offset), value, "seq_cst")

    def add(self, pool: ir.Value, offset: int, value: int) -> ir.Value:
        return self.b.atomic_rmw("add", self.field(pool, offset), i64(value), "seq_cst")

    def call(self, name: str, result: ir.Type, *args: ir.Value) -> ir.Value:
        fn = self.module.intrinsic(name, result, [a.type for a in args])
        return self.b.call(fn, list(args))

    def pause(self) -> None:
        if self.module.target.triple.startswith("x86"):
            self.call("llvm.x86.sse2.pause", VOID)
        else:
            self.call("llvm.aarch64.hint", VOID, ir.Constant(I32, 1))

    def jump_if(self, condition: ir.Value, yes: ir.Block, no: ir.Block) -> None:
        self.b.cbranch(condition, yes, no)

    def at(self, block: ir.Block) -> None:
        self.b.position_at_end(block)


def i64(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


_NULL = ir.Constant(PTR, None)


def _emit_claim(module: ModuleBuilder) -> ir.Function:
    """void pool_claim(pool): execute chunks until none is left."""
    code = _Code(module, module.function("pool_claim", VOID, [PTR], internal=True))
    (pool,), b = code.fn.args, code.b
    claim, execute, finished = code.block("claim"), code.block("execute"), code.block("finished")
    b.branch(claim)
    code.at(claim)
    ticket = code.add(pool, _TICKET, 1)
    mine = b.and_(ticket, i64(_COUNT_MASK))
    chunks = b.and_(b.lshr(ticket, i64(_COUNT_BITS)), i64(_COUNT_MASK))
    code.jump_if(b.icmp_unsigned("<", mine, chunks), execute, finished)
    code.at(execute)
    kernel, args = code.get(pool, _KERNEL, PTR), code.get(pool, _ARGS, PTR)
    items = code.get(pool, _ITEMS)
    begin = b.udiv(b.mul(mine, items), chunks)
    end = b.udiv(b.mul(b.add(mine, i64(1)), items), chunks)
    b.call(ir.Callee(KERNEL_TYPE, kernel.ref), [args, begin, end])
    code.add(pool, _DONE, 1)
    b.branch(claim)
    code.at(finished)
    b.ret_void()
    return code.fn


def _emit_worker(module: ModuleBuilder, claim: ir.Function) -> ir.Function:
    """ptr pool_worker(pool): what a thread does."""
    code = _Code(module, module.function("pool_worker", PTR, [PTR], internal=True))
    (pool,), b = code.fn.args, code.b
    names = ("wait", "spin", "again", "park", "look", "sleep", "wake", "run", "work", "leave")
    wait, spin, again, park, look, sleep, wake, run, work, leave = map(code.block, names)
    enter_default_mode(module, b)  # a new thread inherits its creator's
    entry = b.block
    b.branch(wait)
    code.at(wait)
    last = b.phi(I64)
    last.add_incoming(i64(0), entry)
    b.branch(spin)
    code.at(spin)
    count = b.phi(I64)
    count.add_incoming(i64(0), wait)
    epoch = b.lshr(code.watch(pool, _TICKET), i64(_EPOCH_BITS))
    code.jump_if(b.icmp_unsigned("!=", epoch, last), run, again)
    code.at(again)
    code.pause()
    following = b.add(count, i64(1))
    count.add_incoming(following, again)
    code.jump_if(b.icmp_unsigned("<", following, i64(SPINS)), spin, park)
    code.at(park)
    mutex, condition = code.field(pool, _MUTEX), code.field(pool, _CONDITION)
    code.call("pthread_mutex_lock", I32, mutex)
    code.add(pool, _PARKED, 1)
    b.branch(look)
    code.at(look)
    seen = b.lshr(code.watch(pool, _TICKET), i64(_EPOCH_BITS))
    code.jump_if(b.icmp_unsigned("!=", seen, last), wake, sleep)
    code.at(sleep)
    code.call("pthread_cond_wait", I32, condition, mutex)
    b.branch(look)
    code.at(wake)
    code.add(pool, _PARKED, -1)
    code.call("pthread_mutex_unlock", I32, mutex)
    b.branch(run)
    code.at(run)
    current = b.phi(I64)
    current.add_incoming(epoch, spin)
    current.add_incoming(seen, wake)
    stop = b.icmp_unsigned("!=", code.watch(pool, _STOP), i64(0))
    code.jump_if(stop, leave, work)
    code.at(work)
    b.call(claim, [pool])
    last.add_incoming(current, work)
    b.branch(wait)
    code.at(leave)
    b.ret(_NULL)
    return code.fn


def _emit_start(module: ModuleBuilder, worker: ir.Function) -> None:
    code = _Code(module, module.function("pool_start", PTR, [I64]))
    (threads,), b = code.fn.args, code.b
    names = ("make", "more", "create", "made", "short", "failed")
    make, more, create, made, short, failed = map(code.block, names)
    size = b.add(b.mul(threads, i64(8)), i64(_HANDLES + 64))
    raw = code.call("calloc", PTR, size, i64(1))
    code.jump_if(b.icmp_unsigned("==", raw, _NULL), failed, make)
    code.at(make)
    code.call("pthread_mutex_init", I32, code.field(raw, _MUTEX), _NULL)
    code.call("pthread_cond_init", I32, code.field(raw, _CONDITION), _NULL)
    code.put(raw, _THREADS, threads)
    code.put(raw, _PID, b.sext(code.call("getpid", I32), I64))
    b.branch(more)
    code.at(more)
    index = b.phi(I64)
    index.add_incoming(i64(1), make)
    code.jump_if(b.icmp_signed("<", index, threads), create, made)
    code.at(create)
    handle = b.gep(code.field(raw, _HANDLES), [index], source_etype=I64)
    error = code.call("pthread_create", I32, handle, _NULL, worker, raw)
    following = b.add(index, i64(1))
    index.add_incoming(following, create)
    code.jump_if(b.icmp_signed("==", error, ir.Constant(I32, 0)), more, short)
    code.at(short)  # go on with the threads there are
    code.put(raw, _THREADS, index)
    b.branch(made)
    code.at(made)
    b.ret(raw)
    code.at(failed)
    b.ret(_NULL)


def _wake(code: _Code, pool: ir.Value) -> None:
    """Wake parked workers, if there are any in this process."""
    b = code.b
    parked = b.icmp_signed(">", code.watch(pool, _PARKED), i64(0))
    with b.if_then(parked):
        here = b.sext(code.call("getpid", I32), I64)
        with b.if_then(b.icmp_signed("==", here, code.get(pool, _PID))):
            code.call("pthread_mutex_lock", I32, code.field(pool, _MUTEX))
            code.call("pthread_cond_broadcast", I32, code.field(pool, _CONDITION))
            code.call("pthread_mutex_unlock", I32, code.field(pool, _MUTEX))


def _next_ticket(code: _Code, pool: ir.Value, chunks: ir.Value) -> ir.Value:
    """The ticket of the next epoch, nothing claimed."""
    b = code.b
    epoch = b.add(b.lshr(code.watch(pool, _TICKET), i64(_EPOCH_BITS)), i64(1))
    return b.or_(b.shl(epoch, i64(_EPOCH_BITS)), b.shl(chunks, i64(_COUNT_BITS)))


def _emit_run(module: ModuleBuilder, claim: ir.Function) -> ir.Function:
    code = _Code(module, module.function(POOL_RUN, VOID, POOL_RUN_ARGS))
    (pool, kernel, args, items), b = code.fn.args, code.b
    names = ("some", "alone", "share", "wait", "spin", "rest", "finished")
    some, alone, share, wait, spin, rest, finished = map(code.block, names)
    code.jump_if(b.icmp_signed(">", items, i64(0)), some, finished)
    code.at(some)
    code.jump_if(b.icmp_unsigned("==", pool, _NULL), alone, share)
    code.at(alone)
    b.call(ir.Callee(KERNEL_TYPE, kernel.ref), [args, i64(0), items])
    b.branch(finished)
    code.at(share)
    code.put(pool, _KERNEL, kernel)
    code.put(pool, _ARGS, args)
    code.put(pool, _ITEMS, items)
    code.publish(pool, _DONE, i64(0))
    most = b.mul(code.get(pool, _THREADS), i64(CHUNKS_PER_THREAD))
    chunks = b.select(b.icmp_signed("<", items, most), items, most)
    code.publish(pool, _TICKET, _next_ticket(code, pool, chunks))
    _wake(code, pool)
    b.call(claim, [pool])
    before = b.block
    b.branch(wait)
    code.at(wait)
    count = b.phi(I64)
    count.add_incoming(i64(0), before)
    done = code.watch(pool, _DONE)
    code.jump_if(b.icmp_signed("==", done, chunks), finished, spin)
    code.at(spin)
    code.pause()
    count.add_incoming(b.add(count, i64(1)), spin)
    code.jump_if(b.icmp_signed("<", count, i64(SPINS)), wait, rest)
    code.at(rest)  # a worker has lost its core: give it ours
    code.call("sched_yield", I32)
    count.add_incoming(i64(0), rest)
    b.branch(wait)
    code.at(finished)
    b.ret_void()
    return code.fn


def _emit_stop(module: ModuleBuilder) -> None:
    code = _Code(module, module.function("pool_stop", VOID, [PTR]))
    (pool,), b = code.fn.args, code.b
    names = ("ours", "more", "join", "joined", "finished")
    ours, more, join, joined, finished = map(code.block, names)
    here = b.sext(code.call("getpid", I32), I64)
    code.jump_if(b.icmp_signed("==", here, code.get(pool, _PID)), ours, finished)
    code.at(ours)
    code.publish(pool, _STOP, i64(1))
    code.publish(pool, _TICKET, _next_ticket(code, pool, i64(0)))
    _wake(code, pool)
    before = b.block
    b.branch(more)
    code.at(more)
    index = b.phi(I64)
    index.add_incoming(i64(1), before)
    code.jump_if(b.icmp_signed("<", index, code.get(pool, _THREADS)), join, joined)
    code.at(join)
    handle = b.gep(code.field(pool, _HANDLES), [index], source_etype=I64)
    code.call("pthread_join", I32, b.load(handle, typ=I64), _NULL)
    index.add_incoming(b.add(index, i64(1)), join)
    b.branch(more)
    code.at(joined)
    code.call("pthread_cond_destroy", I32, code.field(pool, _CONDITION))
    code.call("pthread_mutex_destroy", I32, code.field(pool, _MUTEX))
    code.call("free", VOID, pool)
    b.branch(finished)
    code.at(finished)
    b.ret_void()

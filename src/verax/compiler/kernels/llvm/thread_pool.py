"""A thread pool written in LLVM IR over pthread, so that a compiled network needs nothing else.

    ptr  pool_start(i64 threads)                             null when threads could not be made
    void pool_run(ptr pool, ptr kernel, ptr args, i64 items)
    void pool_stop(ptr pool)

`pool_run` gives every thread a share of the items, one after another in their order: the first to
the caller, the last to the last worker. So neighboring items of one kernel and the same part of
the next one's fall to the same thread, whose cache holds what they read. A thread takes its share
in chunks, each half of what is left, and then helps others with theirs; `pool_run` returns when all
items are done. A worker that sleeps is never waited for: what it does not claim, others do. So a
lost core costs speed and not correctness, and in a forked child, which has no workers, the caller
does everything itself (stopping the pool there leaks it on purpose). A null pool is no workers,
too.

The ticket is the epoch, a number that every run raises. A share has a counter: epoch (40 bits) and
next chunk (24), raised by compare-and-exchange. One of an older epoch is untouched yet: in every
run all shares are claimed to their end. A claim holds only for the epoch that the thread has seen,
and until every share is claimed to its end the run cannot end: so what a thread reads of the run
between looking at a counter and raising it belongs to the epoch of the claim. It must not read it
later: of a share with few items most chunks are empty, and no run waits for who has claimed one.

Workers wait for a new epoch by spinning, for as long as a kernel of one thread or the way from one
call of a network to the next may take, and then park on a condition variable. A worker counts
itself as parked before it looks at the ticket for the last time, and the caller changes the ticket
before it looks at the count, both sequentially consistent: no wake-up is lost. A pool serves one
`pool_run` at a time; different pools, in one object or in several, do not know of each other.
"""

from __future__ import annotations

import dataclasses

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I32, I64, KERNEL_TYPE, PTR, VOID, ModuleBuilder
from verax.compiler.kernels.llvm.float_mode import enter_default_mode

SPINS = 400
"""Pauses before a caller that waits for others gives its core away: some microseconds."""
PATIENCE = 12_000
"""Pauses before a waiting worker parks: some tenths of a millisecond. Waking one that parked takes
20 to 50 microseconds, as long as a kernel."""
CHUNKS = 5
"""Pieces of a thread's share: 1/2, 1/4, 1/8, 1/16 and the rest, to even out unequal speed."""

# The state: byte offsets, each group on its own cache lines.
_TICKET, _DONE, _PARKED, _STOP, _THREADS, _PID = 0, 128, 256, 320, 328, 336
_KERNEL, _ARGS, _ITEMS = 384, 392, 400
_MUTEX, _CONDITION, _SHARES = 512, 640, 768
# Of a thread's share, one for the caller and one for each worker.
_COUNTER, _HANDLE, _POOL, _NUMBER, _SHARE_BYTES = 0, 64, 72, 80, 128
POOL_RUN, POOL_RUN_ARGS = "pool_run", [PTR, PTR, PTR, I64]
"""void(pool, kernel, args, items): what a network calls."""
_CHUNK_BITS = 24
_CHUNK_MASK = (1 << _CHUNK_BITS) - 1


def emit_thread_pool(module: ModuleBuilder) -> ir.Function:
    """Define the pool's functions in `module`, once; gives `pool_run`."""
    pool_run = module.module.globals.get(POOL_RUN)
    if pool_run is not None:
        return pool_run
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

    def peek(self, pool: ir.Value, offset: int, kind: ir.Type) -> ir.Value:
        """What another thread may be writing just now: of use only if it turns out not to."""
        return self.b.load_atomic(self.field(pool, offset), "monotonic", 8, typ=kind)

    def publish(self, pool: ir.Value, offset: int, value: ir.Value) -> None:
        self.b.atomic_rmw("xchg", self.field(pool, offset), value, "seq_cst")

    def add(self, pool: ir.Value, offset: int, value: ir.Value) -> ir.Value:
        return self.b.atomic_rmw("add", self.field(pool, offset), value, "seq_cst")

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


def _share(code: _Code, pool: ir.Value, thread: ir.Value) -> ir.Value:
    """Pointer to the share of thread number `thread` in `pool`."""
    return code.b.gep(
        code.field(pool, _SHARES),
        [code.b.mul(thread, i64(_SHARE_BYTES))],
        source_etype=ir.IntType(8),
    )


def _emit_claim(module: ModuleBuilder) -> ir.Function:
    """void pool_claim(pool, me, epoch): execute chunks, of the own share first, until none is
    left."""
    fn = module.function("pool_claim", VOID, [PTR, I64, I64], internal=True)
    code = _Code(module, fn)
    (pool, me, epoch), b = code.fn.args, code.b
    names = ("share", "look", "next", "try", "execute", "finished", "add", "on", "end")
    share, look, following, attempt, execute, finished, add, on, end = map(code.block, names)
    threads = code.get(pool, _THREADS)
    entry = b.block
    b.branch(share)
    code.at(share)
    visited = b.phi(I64)
    visited.add_incoming(i64(0), entry)
    ahead = b.add(me, visited)
    victim = b.select(b.icmp_unsigned("<", ahead, threads), ahead, b.sub(ahead, threads))
    counter = _share(code, pool, victim)
    b.branch(look)
    code.at(look)
    executed = b.phi(I64)
    executed.add_incoming(i64(0), share)
    seen = code.watch(counter, _COUNTER)
    newest = b.lshr(seen, i64(_CHUNK_BITS))
    fresh = b.icmp_unsigned("<", newest, epoch)
    mine = b.select(fresh, i64(0), b.and_(seen, i64(_CHUNK_MASK)))
    late = b.icmp_unsigned(">", newest, epoch)
    none = b.or_(late, b.icmp_unsigned(">=", mine, i64(CHUNKS)))
    code.jump_if(none, finished, following)
    code.at(following)
    # Read before the claim, which holds only if the run has not ended since: a chunk may be empty,
    # and for such a one no run waits.
    kernel, args = code.peek(pool, _KERNEL, PTR), code.peek(pool, _ARGS, PTR)
    items = code.peek(pool, _ITEMS, I64)
    next_counter = b.or_(b.shl(epoch, i64(_CHUNK_BITS)), b.add(mine, i64(1)))
    b.branch(attempt)
    code.at(attempt)
    swapped = b.cmpxchg(code.field(counter, _COUNTER), seen, next_counter, "seq_cst")
    executed.add_incoming(executed, attempt)
    code.jump_if(b.extract_value(swapped, 1), execute, look)
    code.at(execute)
    first = b.udiv(b.mul(victim, items), threads)
    stop = b.udiv(b.mul(b.add(victim, i64(1)), items), threads)
    size, last = b.sub(stop, first), b.icmp_unsigned("==", mine, i64(CHUNKS - 1))
    begin = b.sub(stop, b.lshr(size, mine))
    unclaimed = b.select(last, i64(0), b.lshr(size, b.add(mine, i64(1))))
    finish = b.sub(stop, unclaimed)
    with b.if_then(b.icmp_unsigned("<", begin, finish)):
        b.call(ir.Callee(KERNEL_TYPE, kernel.ref), [args, begin, finish])
    executed.add_incoming(b.add(executed, b.sub(finish, begin)), b.block)
    b.branch(look)
    code.at(finished)  # of this share
    code.jump_if(b.icmp_unsigned("==", executed, i64(0)), on, add)
    code.at(add)
    code.add(pool, _DONE, executed)
    b.branch(on)
    code.at(on)
    more = b.add(visited, i64(1))
    visited.add_incoming(more, on)
    code.jump_if(b.icmp_unsigned("<", more, threads), share, end)
    code.at(end)
    b.ret_void()
    return code.fn


def _emit_worker(module: ModuleBuilder, claim: ir.Function) -> ir.Function:
    """ptr pool_worker(share): what a thread does."""
    code = _Code(module, module.function("pool_worker", PTR, [PTR], internal=True))
    (share,), b = code.fn.args, code.b
    names = ("wait", "spin", "again", "park", "look", "sleep", "wake", "run", "work", "leave")
    wait, spin, again, park, look, sleep, wake, run, work, leave = map(code.block, names)
    enter_default_mode(module, b)  # a new thread inherits its creator's
    pool, me = code.get(share, _POOL, PTR), code.get(share, _NUMBER)
    entry = b.block
    b.branch(wait)
    code.at(wait)
    last = b.phi(I64)
    last.add_incoming(i64(0), entry)
    b.branch(spin)
    code.at(spin)
    count = b.phi(I64)
    count.add_incoming(i64(0), wait)
    epoch = code.watch(pool, _TICKET)
    code.jump_if(b.icmp_unsigned("!=", epoch, last), run, again)
    code.at(again)
    code.pause()
    following = b.add(count, i64(1))
    count.add_incoming(following, again)
    code.jump_if(b.icmp_unsigned("<", following, i64(PATIENCE)), spin, park)
    code.at(park)
    mutex, condition = code.field(pool, _MUTEX), code.field(pool, _CONDITION)
    code.call("pthread_mutex_lock", I32, mutex)
    code.add(pool, _PARKED, i64(1))
    b.branch(look)
    code.at(look)
    seen = code.watch(pool, _TICKET)
    code.jump_if(b.icmp_unsigned("!=", seen, last), wake, sleep)
    code.at(sleep)
    code.call("pthread_cond_wait", I32, condition, mutex)
    b.branch(look)
    code.at(wake)
    code.add(pool, _PARKED, i64(-1))
    code.call("pthread_mutex_unlock", I32, mutex)
    b.branch(run)
    code.at(run)
    current = b.phi(I64)
    current.add_incoming(epoch, spin)
    current.add_incoming(seen, wake)
    stop = b.icmp_unsigned("!=", code.watch(pool, _STOP), i64(0))
    code.jump_if(stop, leave, work)
    code.at(work)
    b.call(claim, [pool, me, current])
    last.add_incoming(current, work)
    b.branch(wait)
    code.at(leave)
    b.ret(_NULL)
    return code.fn


def _emit_start(module: ModuleBuilder, worker: ir.Function) -> None:
    code = _Code(module, module.function("pool_start", PTR, [I64]))
    (threads,), b = code.fn.args, code.b
    names = ("make", "more", "create", "made", "short", "failed")
    make, more, create, created, short, failed = map(code.block, names)
    size = b.add(b.mul(threads, i64(_SHARE_BYTES)), i64(_SHARES + 64))
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
    code.jump_if(b.icmp_signed("<", index, threads), create, created)
    code.at(create)
    share = _share(code, raw, index)
    code.put(share, _POOL, raw)
    code.put(share, _NUMBER, index)
    error = code.call("pthread_create", I32, code.field(share, _HANDLE), _NULL, worker, share)
    following = b.add(index, i64(1))
    index.add_incoming(following, create)
    code.jump_if(b.icmp_signed("==", error, ir.Constant(I32, 0)), more, short)
    code.at(short)  # go on with the threads there are
    code.put(raw, _THREADS, index)
    b.branch(created)
    code.at(created)
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


def _start_epoch(code: _Code, pool: ir.Value) -> ir.Value:
    """The next epoch, published: from now on workers look for chunks."""
    epoch = code.b.add(code.get(pool, _TICKET), i64(1))
    code.publish(pool, _TICKET, epoch)
    return epoch


def _emit_run(module: ModuleBuilder, claim: ir.Function) -> ir.Function:
    code = _Code(module, module.function(POOL_RUN, VOID, POOL_RUN_ARGS))
    (pool, kernel, args, items), b = code.fn.args, code.b
    names = ("some", "alone", "share", "wait", "spin", "rest", "finished")
    has_items, alone, share, wait, spin, yield_core, finished = map(code.block, names)
    code.jump_if(b.icmp_signed(">", items, i64(0)), has_items, finished)
    code.at(has_items)
    code.jump_if(b.icmp_unsigned("==", pool, _NULL), alone, share)
    code.at(alone)
    b.call(ir.Callee(KERNEL_TYPE, kernel.ref), [args, i64(0), items])
    b.branch(finished)
    code.at(share)
    code.put(pool, _KERNEL, kernel)
    code.put(pool, _ARGS, args)
    code.put(pool, _ITEMS, items)
    code.publish(pool, _DONE, i64(0))
    epoch = _start_epoch(code, pool)
    _wake(code, pool)
    b.call(claim, [pool, i64(0), epoch])
    before = b.block
    b.branch(wait)
    code.at(wait)
    count = b.phi(I64)
    count.add_incoming(i64(0), before)
    done = code.watch(pool, _DONE)
    code.jump_if(b.icmp_signed("==", done, items), finished, spin)
    code.at(spin)
    code.pause()
    count.add_incoming(b.add(count, i64(1)), spin)
    code.jump_if(b.icmp_signed("<", count, i64(SPINS)), wait, yield_core)
    code.at(yield_core)  # a worker has lost its core: give it ours
    code.call("sched_yield", I32)
    count.add_incoming(i64(0), yield_core)
    b.branch(wait)
    code.at(finished)
    b.ret_void()
    return code.fn


def _emit_stop(module: ModuleBuilder) -> None:
    code = _Code(module, module.function("pool_stop", VOID, [PTR]))
    (pool,), b = code.fn.args, code.b
    names = ("ours", "more", "join", "joined", "finished")
    ours, more, join, threads_joined, finished = map(code.block, names)
    here = b.sext(code.call("getpid", I32), I64)
    code.jump_if(b.icmp_signed("==", here, code.get(pool, _PID)), ours, finished)
    code.at(ours)
    code.publish(pool, _STOP, i64(1))
    _start_epoch(code, pool)
    _wake(code, pool)
    before = b.block
    b.branch(more)
    code.at(more)
    index = b.phi(I64)
    index.add_incoming(i64(1), before)
    code.jump_if(b.icmp_signed("<", index, code.get(pool, _THREADS)), join, threads_joined)
    code.at(join)
    handle = code.get(_share(code, pool, index), _HANDLE)
    code.call("pthread_join", I32, handle, _NULL)
    index.add_incoming(b.add(index, i64(1)), join)
    b.branch(more)
    code.at(threads_joined)
    code.call("pthread_cond_destroy", I32, code.field(pool, _CONDITION))
    code.call("pthread_mutex_destroy", I32, code.field(pool, _MUTEX))
    code.call("free", VOID, pool)
    b.branch(finished)
    code.at(finished)
    b.ret_void()

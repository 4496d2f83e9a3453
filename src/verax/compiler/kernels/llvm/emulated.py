"""An emulated GPU: functions that run all threads of a kernel on one thread of this processor.

Each is `i32 name(ptr args, i64 items, i64 blocks, i64 order)`, which gives DIVERGENT where threads
of a block waited at different barriers, or some at none: a GPU would hang. Of `order`, REVERSED has
items, and threads between two barriers, run from the last to the first; LATE has asynchronous
copies happen when they are waited for, with NaN in their place until then. A kernel is right only
if all orders give the same bits.

The threads of a block are coroutines, which a barrier suspends (LLVM, "Coroutines in LLVM"); LLVM's
own passes split them.
"""

from __future__ import annotations

from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import I32, I64, PTR, ModuleBuilder
from verax.compiler.kernels.llvm.float_mode import enter_default_mode, leave_default_mode

REVERSED, LATE = 1, 2
"""Bits of `order`."""
DIVERGENT = 1
"""What a launch gives whose threads did not come to the same barriers; 0 is what others give."""
MOST_COPIES = 512
"""That a thread may have under way."""
NAN = 0x7FC00000
"""Of float32: what is read where a copy has not arrived."""
LAUNCH_TYPES = (PTR, I64, I64, I64)

COROUTINES = """
declare ptr @malloc(i64)
declare void @free(ptr)
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare void @llvm.coro.end(ptr, i1, token)
declare i1 @llvm.coro.done(ptr)
declare void @llvm.coro.resume(ptr)
declare void @llvm.coro.destroy(ptr)
"""

COPIES = f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
%copy = type {{ ptr, ptr, i32, i32, i32 }} ; to, from, bytes, group, size
; order, first, end, group, copies, barrier
%copies = type {{ i64, i32, i32, i32, [{MOST_COPIES} x %copy], i32 }}

define internal void @copy_now(ptr %to, ptr %from, i32 %bytes, i32 %size) noinline {{
  %all = zext i32 %size to i64
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %all, i1 false)
  %n = zext i32 %bytes to i64
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  ret void
}}
define internal void @copy_start(ptr %q, ptr %to, ptr %from, i32 %bytes, i32 %size) noinline {{
  %order = load i64, ptr %q
  %late = and i64 %order, {LATE}
  %now = icmp eq i64 %late, 0
  br i1 %now, label %at_once, label %later
at_once:
  call void @copy_now(ptr %to, ptr %from, i32 %bytes, i32 %size)
  ret void
later:
  store i32 {NAN}, ptr %to, align 4
  %long = icmp eq i32 %size, 16
  br i1 %long, label %fill, label %queue
fill:
  store <4 x i32> splat (i32 {NAN}), ptr %to, align 16
  br label %queue
queue:
  %endp = getelementptr %copies, ptr %q, i32 0, i32 2
  %end = load i32, ptr %endp
  %slot = urem i32 %end, {MOST_COPIES}
  %e = getelementptr %copies, ptr %q, i32 0, i32 4, i32 %slot
  store ptr %to, ptr %e
  %e1 = getelementptr %copy, ptr %e, i32 0, i32 1
  store ptr %from, ptr %e1
  %e2 = getelementptr %copy, ptr %e, i32 0, i32 2
  store i32 %bytes, ptr %e2
  %groupp = getelementptr %copies, ptr %q, i32 0, i32 3
  %group = load i32, ptr %groupp
  %e3 = getelementptr %copy, ptr %e, i32 0, i32 3
  store i32 %group, ptr %e3
  %e4 = getelementptr %copy, ptr %e, i32 0, i32 4
  store i32 %size, ptr %e4
  %next = add i32 %end, 1
  store i32 %next, ptr %endp
  ret void
}}
define internal void @copy_commit(ptr %q) noinline {{
  %groupp = getelementptr %copies, ptr %q, i32 0, i32 3
  %group = load i32, ptr %groupp
  %next = add i32 %group, 1
  store i32 %next, ptr %groupp
  ret void
}}
define internal void @copy_wait(ptr %q, i32 %left) noinline {{
entry:
  %groupp = getelementptr %copies, ptr %q, i32 0, i32 3
  %group = load i32, ptr %groupp
  %until = sub i32 %group, %left
  %firstp = getelementptr %copies, ptr %q, i32 0, i32 1
  %endp = getelementptr %copies, ptr %q, i32 0, i32 2
  br label %head
head:
  %first = load i32, ptr %firstp
  %end = load i32, ptr %endp
  %some = icmp ne i32 %first, %end
  br i1 %some, label %look, label %done
look:
  %slot = urem i32 %first, {MOST_COPIES}
  %e = getelementptr %copies, ptr %q, i32 0, i32 4, i32 %slot
  %e3 = getelementptr %copy, ptr %e, i32 0, i32 3
  %of = load i32, ptr %e3
  %due = icmp slt i32 %of, %until
  br i1 %due, label %make, label %done
make:
  %to = load ptr, ptr %e
  %e1 = getelementptr %copy, ptr %e, i32 0, i32 1
  %from = load ptr, ptr %e1
  %e2 = getelementptr %copy, ptr %e, i32 0, i32 2
  %bytes = load i32, ptr %e2
  %e4 = getelementptr %copy, ptr %e, i32 0, i32 4
  %size = load i32, ptr %e4
  call void @copy_now(ptr %to, ptr %from, i32 %bytes, i32 %size)
  %next = add i32 %first, 1
  store i32 %next, ptr %firstp
  br label %head
done:
  ret void
}}
"""

_BLOCKS = """
define internal i32 @"NAME.blocks"(ptr %args, i64 %items, i64 %blocks, i64 %order) {
entry:
  %handles = alloca [THREADS x ptr], align 16
  %shared = alloca [SHARED x i8], align 64
  %queue_bytes = ptrtoint ptr getelementptr (%copies, ptr null, i64 THREADS) to i64
  %queues = call ptr @malloc(i64 %queue_bytes)
  %reversed = and i64 %order, REVERSED
  %backward = icmp ne i64 %reversed, 0
  br label %block
block:
  %n = phi i64 [0, %entry], [%n1, %next_block]
  %inside = icmp slt i64 %n, %blocks
  br i1 %inside, label %make, label %end
make:
  %i = phi i32 [0, %block], [%i1, %make]
  %q = getelementptr %copies, ptr %queues, i32 %i
  store i64 %order, ptr %q
  %q1 = getelementptr %copies, ptr %q, i32 0, i32 1
  store i32 0, ptr %q1
  %q2 = getelementptr %copies, ptr %q, i32 0, i32 2
  store i32 0, ptr %q2
  %q3 = getelementptr %copies, ptr %q, i32 0, i32 3
  store i32 0, ptr %q3
  %h = call ptr @"NAME.thread"(ptr %args, i64 %n, i64 %items, i32 %i, ptr %shared, ptr %q)
  %hp = getelementptr [THREADS x ptr], ptr %handles, i32 0, i32 %i
  store ptr %h, ptr %hp
  %i1 = add i32 %i, 1
  %more = icmp slt i32 %i1, THREADS
  br i1 %more, label %make, label %round
round:
  br label %step
step:
  %k = phi i32 [0, %round], [%k1, %next]
  %left = phi i32 [0, %round], [%left1, %next]
  %back = sub i32 LAST, %k
  %kk = select i1 %backward, i32 %back, i32 %k
  %gp = getelementptr [THREADS x ptr], ptr %handles, i32 0, i32 %kk
  %g = load ptr, ptr %gp
  %over = call i1 @llvm.coro.done(ptr %g)
  br i1 %over, label %next, label %run
run:
  call void @llvm.coro.resume(ptr %g)
  %over2 = call i1 @llvm.coro.done(ptr %g)
  %going = xor i1 %over2, true
  %one = zext i1 %going to i32
  br label %next
next:
  %plus = phi i32 [0, %step], [%one, %run]
  %left1 = add i32 %left, %plus
  %k1 = add i32 %k, 1
  %k.more = icmp slt i32 %k1, THREADS
  br i1 %k.more, label %step, label %check
check:
  %again = icmp ne i32 %left1, 0
  br i1 %again, label %meet, label %drop
meet:
  %bp = getelementptr %copies, ptr %queues, i32 0, i32 5
  %barrier = load i32, ptr %bp
  br label %compare
compare:
  %c = phi i32 [0, %meet], [%c1, %same]
  %cq = getelementptr %copies, ptr %queues, i32 %c, i32 5
  %own = load i32, ptr %cq
  %is_same = icmp eq i32 %own, %barrier
  br i1 %is_same, label %same, label %divergent
same:
  %c1 = add i32 %c, 1
  %c.more = icmp slt i32 %c1, THREADS
  br i1 %c.more, label %compare, label %met
met:
  %all = icmp eq i32 %left1, THREADS
  br i1 %all, label %round, label %divergent
divergent:
  call void @free(ptr %queues)
  ret i32 DIVERGENT
drop:
  %d = phi i32 [0, %check], [%d1, %drop]
  %dp = getelementptr [THREADS x ptr], ptr %handles, i32 0, i32 %d
  %dh = load ptr, ptr %dp
  call void @llvm.coro.destroy(ptr %dh)
  %d1 = add i32 %d, 1
  %d.more = icmp slt i32 %d1, THREADS
  br i1 %d.more, label %drop, label %next_block
next_block:
  %n1 = add i64 %n, 1
  br label %block
end:
  call void @free(ptr %queues)
  ret i32 0
}
"""


def launch_items(module: ModuleBuilder, name: str, item: ir.Function) -> None:
    """Define `name` as what calls `item(args, i, i + 1)` for all items."""
    fn = module.function(name, I32, LAUNCH_TYPES)
    args, items, _, order = fn.args
    b = ir.IRBuilder(fn.append_basic_block("entry"))
    mode = enter_default_mode(module, b)
    one, zero = ir.Constant(I64, 1), ir.Constant(I64, 0)
    is_reversed = b.icmp_signed("!=", b.and_(order, ir.Constant(I64, REVERSED)), zero)
    last, before = b.sub(items, one), b.block
    head, body, end = (fn.append_basic_block(n) for n in ("head", "body", "end"))
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(I64)
    i.add_incoming(zero, before)
    b.cbranch(b.icmp_signed("<", i, items), body, end)
    b.position_at_end(body)
    index = b.select(is_reversed, b.sub(last, i), i)
    b.call(item, [args, index, b.add(index, one)])
    i.add_incoming(b.add(i, one), body)
    b.branch(head)
    b.position_at_end(end)
    leave_default_mode(module, b, mode)
    b.ret(ir.Constant(I32, 0))


def launch_blocks(module: ModuleBuilder, name: str, threads: int, shared_bytes: int) -> None:
    """Define `name` as what runs the coroutines `name.thread` of every block."""
    text = _BLOCKS.replace("NAME", name).replace("LAST", str(threads - 1))
    text = text.replace("THREADS", str(threads)).replace("SHARED", str(max(shared_bytes, 1)))
    text = text.replace("DIVERGENT", str(DIVERGENT))
    ir.Definitions(module.module, f"{name}.blocks", text.replace("REVERSED", str(REVERSED)))
    fn = module.function(name, I32, LAUNCH_TYPES)
    b = ir.IRBuilder(fn.append_basic_block("entry"))
    mode = enter_default_mode(module, b)
    blocks = ir.Callee(ir.FunctionType(I32, LAUNCH_TYPES), f'@"{name}.blocks"')
    status = b.call(blocks, list(fn.args))
    leave_default_mode(module, b, mode)
    b.ret(status)


def at_barrier(b: ir.IRBuilder, queue: ir.Value, barrier: int) -> None:
    """Note that the thread of these copies waits at that barrier of the kernel."""
    b.instruction(f"%barrier{barrier} = getelementptr %copies, ptr {queue.ref}, i32 0, i32 5")
    b.instruction(f"store i32 {barrier}, ptr %barrier{barrier}")


def define_coroutines(module: ModuleBuilder) -> None:
    """Declare what coroutines need, and define asynchronous copies; once in a module."""
    if "coroutines" not in module.module.globals:
        ir.Definitions(module.module, "coroutines", COROUTINES + COPIES)

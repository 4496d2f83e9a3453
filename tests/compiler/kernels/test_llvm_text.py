"""Kernels are written as text, and LLVM reads what llvmlite's own objects would have said.

Witness: the same functions and constants made with `llvmlite.ir`; LLVM prints both alike, or makes
the same object code of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import binding as llvm
from llvmlite import ir as objects

from verax.compiler.kernels.llvm import text as texts
from verax.compiler.kernels.llvm.builder import VOID, ModuleBuilder
from verax.compiler.kernels.llvm.object_code import code_of
from verax.compiler.kernels.target import Target

FLOATS = {"HalfType": np.float16, "FloatType": np.float32, "DoubleType": np.float64}


def as_llvm_prints(text: str) -> str:
    """The text of a module after LLVM has read it."""
    with llvm.parse_assembly(text, llvm.create_context()) as module:
        return str(module).replace('"', "")


def with_constant(ir: Any, kind: Callable[[Any], Any], content: Any) -> str:
    module = ir.Module("constants")
    module.triple = Target.host().triple
    found = ir.GlobalVariable(module, kind(ir), "found")
    found.global_constant, found.align = True, 64
    found.initializer = ir.Constant(kind(ir), content)
    return str(module)


def read_alike(kind: Callable[[Any], Any], content: Any) -> None:
    ours = as_llvm_prints(with_constant(texts, kind, content))
    theirs = as_llvm_prints(with_constant(objects, kind, content))
    assert ours == theirs


@given(
    st.sampled_from(sorted(FLOATS)),
    st.lists(st.floats(width=16, allow_nan=False), min_size=1, max_size=9),
)
def test_floats_are_read_alike(name: str, content: list[float]) -> None:
    read_alike(lambda ir: ir.VectorType(getattr(ir, name)(), len(content)), content)
    read_alike(lambda ir: ir.ArrayType(getattr(ir, name)(), len(content)), content)
    read_alike(lambda ir: getattr(ir, name)(), content[0])


@pytest.mark.parametrize("name", sorted(FLOATS))
def test_every_float_is_itself(name: str) -> None:
    dtype = FLOATS[name]
    info = np.finfo(dtype)
    for number in (0.1, -0.0, math.inf, -math.inf, math.nan, info.max, info.tiny, info.eps / 3):
        rounded = dtype(number)
        written = getattr(texts, name)().written(number)
        bits = np.frombuffer(int(written, 16).to_bytes(8, "little"), np.float64)[0]
        assert dtype(bits).tobytes() == rounded.tobytes()  # type: ignore[attr-defined]
        read_alike(lambda ir: getattr(ir, name)(), number)


def test_zeros_of_both_signs_are_no_splat() -> None:
    read_alike(lambda ir: ir.VectorType(ir.FloatType(), 3), [0.0, -0.0, 0.0])


@given(st.sampled_from([1, 8, 16, 32, 64]), st.lists(st.integers(-1, 1), min_size=1, max_size=7))
def test_integers_are_read_alike(width: int, content: list[int]) -> None:
    numbers = [value if value >= 0 or width == 1 else -(1 << (width - 1)) for value in content]
    read_alike(lambda ir: ir.VectorType(ir.IntType(width), len(numbers)), numbers)
    read_alike(lambda ir: ir.ArrayType(ir.IntType(width), len(numbers)), numbers)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (lambda ir: ir.ArrayType(ir.IntType(8), 6), bytearray(b'a"\\\x00\xff\n')),
        (lambda ir: ir.ArrayType(ir.FloatType(), 3), None),
        (lambda ir: ir.VectorType(ir.IntType(32), 5), None),
        (lambda ir: ir.VectorType(ir.IntType(32), 5), 7),
        (lambda ir: ir.PointerType(), None),
        (lambda ir: ir.DoubleType(), None),
    ],
)
def test_other_constants_are_read_alike(kind: Callable[[Any], Any], content: Any) -> None:
    read_alike(kind, content)


def everything(ir: Any) -> str:
    """A module that has every instruction of the builder."""
    module = ir.Module("everything")
    module.triple = Target.host().triple
    i1, i8, i32, i64 = (ir.IntType(n) for n in (1, 8, 32, 64))
    f32, f64, ptr = ir.FloatType(), ir.DoubleType(), ir.PointerType()
    outside = ir.Function(module, ir.FunctionType(f32, [f32, i32]), "outside")
    nothing = ir.Function(module, ir.FunctionType(ir.VoidType(), [ptr]), "nothing")
    fn = ir.Function(module, ir.FunctionType(i64, [ptr, i64, f32]), "everything")
    getattr(fn.attributes, "append", getattr(fn.attributes, "add", None))("nounwind")
    inner = ir.Function(module, ir.FunctionType(i32, [i32]), "inner")
    inner.linkage = "internal"
    b = ir.IRBuilder(inner.append_basic_block("entry"))
    b.ret(b.not_(inner.args[0]))

    b = ir.IRBuilder(fn.append_basic_block("entry"))
    pointer, number, x = fn.args
    before, loop, end = b.block, fn.append_basic_block("loop"), fn.append_basic_block("end")
    room = b.alloca(i32, size=i64(5))
    b.branch(loop)
    b.position_at_end(loop)
    index, total = b.phi(i64), b.phi(f32)
    index.add_incoming(i64(0), before)
    total.add_incoming(x, before)
    place = b.gep(pointer, [index], source_etype=f32, inbounds=True)
    vector = b.load(place, typ=ir.VectorType(f32, 8), align=4)
    other = b.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(i32, 8), [*range(8, 0, -1)]))
    sums = b.fsub(b.fmul(b.fadd(vector, other), vector), b.fneg(other))
    one = b.extract_element(sums, i32(3))
    near = b.fcmp_ordered("<", one, x)
    far = b.fcmp_unordered("!=", one, b.fdiv(x, one))
    with b.if_then(b.and_(near, far)):
        b.store(b.insert_element(sums, x, i32(2)), place, align=4)
    with b.if_else(b.icmp_unsigned(">=", number, index)) as (then, otherwise):
        with then:
            b.call(nothing, [room])
        with otherwise:
            b.store(b.call(inner, [i32(9)]), room)
    whole = b.sdiv(b.shl(b.or_(number, i64(1)), i64(3)), b.sub(number, i64(-7)))
    whole = b.xor(b.udiv(b.ashr(whole, i64(2)), i64(3)), b.lshr(number, i64(1)))
    short = b.trunc(whole, i8)
    wide = b.add(b.sext(short, i32), b.zext(short, i32), flags=("nsw",))
    again = b.fptrunc(b.fadd(b.sitofp(wide, f64), b.uitofp(wide, f64)), f32)
    word = b.bitcast(b.fptrunc(b.fpext(again, f64), f32), i32)
    found = b.call(outside, [b.select(near, again, x), b.mul(word, b.cttz(word, i1(1)))])
    assert b.zext(whole, i64) is whole
    seen = b.load_atomic(pointer, "seq_cst", 8, typ=i64)
    old = b.atomic_rmw("add", pointer, seen, "seq_cst")
    swapped = b.cmpxchg(pointer, old, seen, "seq_cst")
    old = b.select(b.extract_value(swapped, 1), old, b.extract_value(swapped, 0))
    kind = ir.FunctionType(ir.LiteralStructType([i64, i64]), [i64, i64])
    tied = b.call(ir.InlineAsm(kind, "", "=r,=r,0,1"), [old, whole])
    following = b.add(index, b.extract_value(tied, 1))
    total.add_incoming(b.fadd(total, found), b.block)
    index.add_incoming(following, b.block)
    b.cbranch(b.icmp_signed("<", following, number), loop, end)
    b.position_at_end(end)
    b.ret(following)
    return str(module)


@pytest.mark.parametrize("relation", ["==", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    "compare", ["icmp_signed", "icmp_unsigned", "fcmp_ordered", "fcmp_unordered"]
)
def test_every_comparison_gives_the_same_code(compare: str, relation: str) -> None:
    def of(ir: Any) -> str:
        module = ir.Module("comparison")
        module.triple = Target.host().triple
        kind = ir.VectorType(ir.IntType(32) if compare[0] == "i" else ir.FloatType(), 5)
        result = ir.VectorType(ir.IntType(1), 5)
        fn = ir.Function(module, ir.FunctionType(result, [kind, kind]), "compare")
        b = ir.IRBuilder(fn.append_basic_block("entry"))
        b.ret(getattr(b, compare)(relation, *fn.args))
        return str(module)

    assert code_of(of(texts), Target.host()) == code_of(of(objects), Target.host())


@pytest.mark.parametrize("target", [Target.named("avx2"), Target.aarch64()], ids=lambda t: t.name)
def test_every_instruction_gives_the_same_code(target: Target) -> None:
    assert code_of(everything(texts), target) == code_of(everything(objects), target)


def test_what_does_not_fit_is_refused_where_it_is_written() -> None:
    module = ModuleBuilder("wrong", Target.host())
    fn = module.function("wrong", VOID, [texts.IntType(32), texts.FloatType()])
    b, (number, x) = texts.IRBuilder(fn.append_basic_block("entry")), fn.args
    long = texts.IntType(64)(1)
    for wrong in (
        lambda: b.add(number, long),
        lambda: b.icmp_signed("<", number, long),
        lambda: b.select(texts.IntType(1)(1), number, long),
        lambda: b.call(fn, [x, number]),
        lambda: b.phi(number.type).add_incoming(x, b.block),
        lambda: texts.VectorType(x.type, 3)([1.0, 2.0]),
        lambda: number.type.element,
        lambda: x.type.width,
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="in the module already"):
        module.function("wrong", VOID, [])


def test_what_is_written_in_front_stands_in_front() -> None:
    fn = texts.Function(texts.Module("m"), texts.FunctionType(VOID, []), "f")
    b = texts.IRBuilder(fn.append_basic_block("entry"))
    one = texts.IntType(32)(1)
    last = b.add(one, one)
    b.position_at(fn.entry_basic_block, 0)
    first = b.mul(one, one)
    second = b.mul(first, one)
    b.position_at_end(fn.entry_basic_block)
    b.ret_void()
    lines = [str(line).split(" ")[0] for line in fn.entry_basic_block.instructions]
    assert lines == [first.ref, second.ref, last.ref, "ret"]

"""Objects that LLVM made are joined into one, which is sound and whose parts find each other.

Witness: the code runs and gives what its source says.
"""

from __future__ import annotations

import ctypes
import platform

import pytest
from llvmlite import binding as llvm

from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.object_linker import link_objects
from verax.runtime.elf import ObjectError, check_object
from verax.runtime.engine import load_object

CALLER = """
declare i64 @other(i64)
declare i64 @labs(i64)
@shape = internal constant [3 x double] [double 1.5, double 2.5, double 3.5], align 64
@counter = internal global i64 40

define i64 @kernel(i64 %x) {
  %y = call i64 @other(i64 %x)
  %z = call i64 @labs(i64 %y)
  ret i64 %z
}

define double @first(i64 %which) {
  %place = getelementptr [3 x double], ptr @shape, i64 0, i64 %which
  %y = load double, ptr %place
  %z = fmul double %y, 0x3FF8000000000000
  ret double %z
}

define i64 @count() {
  %old = load i64, ptr @counter
  %new = add i64 %old, 1
  store i64 %new, ptr @counter
  ret i64 %new
}

define ptr @where() {
  ret ptr @other
}
"""
CALLED = """
declare i64 @labs(i64)
@shape = internal constant [5 x double] [double 10.5, double 20.5, double 3.25, double 4.5,
  double 5.75], align 64
@counter = internal global [7 x i64] zeroinitializer

define i64 @kernel(i64 %x) {
  %y = mul i64 %x, -3
  ret i64 %y
}

define double @second(i64 %which) {
  %place = getelementptr [5 x double], ptr @shape, i64 0, i64 %which
  %y = load double, ptr %place
  %z = fmul double %y, 0x3FF4000000000000
  ret double %z
}

define i64 @add_up(i64 %which, i64 %more) {
  %place = getelementptr [7 x i64], ptr @counter, i64 0, i64 %which
  %old = load i64, ptr %place
  %new = add i64 %old, %more
  store i64 %new, ptr %place
  ret i64 %new
}

define i64 @magnitude(i64 %x) {
  %z = call i64 @labs(i64 %x)
  ret i64 %z
}
"""


def compiled(text: str, target: Target) -> bytes:
    machine = target.machine()
    module = llvm.parse_assembly(text, llvm.create_context())
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    return bytes(machine.emit_object(module))


def both(target: Target) -> bytes:
    return link_objects(
        [
            (compiled(CALLER, target), {"kernel": "asks"}),
            (compiled(CALLED, target), {"kernel": "other"}),
        ]
    )


@pytest.fixture(scope="module")
def loaded():
    code = load_object(both(Target.host()))
    yield code
    code.close()


def function(loaded, name, result, *args):
    return ctypes.CFUNCTYPE(result, *args)(loaded.address(name))


def test_a_call_reaches_the_other_object_under_its_new_name(loaded):
    asks = function(loaded, "asks", ctypes.c_int64, ctypes.c_int64)
    other = function(loaded, "other", ctypes.c_int64, ctypes.c_int64)
    assert (asks(7), other(7), other(-5)) == (21, -21, 15)
    assert function(loaded, "where", ctypes.c_void_p)() == loaded.address("other")


def test_another_librarys_function_is_found_once_for_both(loaded):
    assert function(loaded, "magnitude", ctypes.c_int64, ctypes.c_int64)(-8) == 8


def test_constants_and_variables_of_one_name_stay_apart(loaded):
    first = function(loaded, "first", ctypes.c_double, ctypes.c_int64)
    second = function(loaded, "second", ctypes.c_double, ctypes.c_int64)
    assert [first(i) for i in range(3)] == [2.25, 3.75, 5.25]
    assert [second(i) for i in range(5)] == [13.125, 25.625, 4.0625, 5.625, 7.1875]
    count = function(loaded, "count", ctypes.c_int64)
    add_up = function(loaded, "add_up", ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    assert [count(), add_up(6, 5), add_up(0, 2), count(), add_up(6, 9)] == [41, 5, 2, 42, 14]


@pytest.mark.parametrize("name", ["avx2", "aarch64"])
def test_what_is_joined_is_sound_and_always_the_same(name):
    target = Target.named(name)
    code = both(target)
    check_object(code, lambda name: name == "labs")
    assert code == both(target)


def test_one_object_alone_stays_what_it_is():
    code = link_objects([(compiled(CALLED, Target.host()), {})])
    loaded = load_object(code)
    assert function(loaded, "kernel", ctypes.c_int64, ctypes.c_int64)(4) == -12
    loaded.close()


def test_two_definitions_of_a_name_are_refused():
    code = compiled(CALLED, Target.host())
    with pytest.raises(ObjectError, match="two objects define"):
        link_objects([(code, {}), (code, {})])


def test_objects_for_different_processors_are_refused():
    other = "aarch64" if platform.machine() == "x86_64" else "avx2"
    parts = [compiled(CALLER, Target.host()), compiled(CALLED, Target.named(other))]
    with pytest.raises(ObjectError, match="processors"):
        link_objects([(part, {}) for part in parts])

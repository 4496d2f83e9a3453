"""Object code is made, loaded and refused in an orderly way."""

from __future__ import annotations

import ctypes
import gc
import threading

import psutil
import pytest
from llvmlite.binding import ffi

from verax.base.errors import CompileError
from verax.compiler.kernels.llvm import object_code as making
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.target import Target
from verax.runtime.engine import load_object


def adder(amount: int, target: Target) -> tuple[bytes, str]:
    """Code that adds `amount` to an int64."""
    module = ModuleBuilder("adder", target)
    f = module.kernel(("adder", amount), 1)
    value = f.load(f.args[0], "int64", lanes=0)
    f.store(f.b.add(value, f.i64(amount)), f.args[0])
    kernel = f.finish(1)
    return object_code(module), kernel.name


def call(code: bytes, name: str, start: int) -> int:
    loaded = load_object(code)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        loaded.address(name)
    )
    value = ctypes.c_int64(start)
    table = (ctypes.c_void_p * 1)(ctypes.addressof(value))
    function(ctypes.addressof(table), 0, 1)
    loaded.close()
    return value.value


def test_code_survives_the_trip_through_bytes() -> None:
    code, name = adder(35, Target.host())
    assert call(bytes(bytearray(code)), name, 7) == 42


def test_objects_with_the_same_names_do_not_meet() -> None:
    first, second = adder(1, Target.host()), adder(2, Target.host())
    assert first[1] == second[1]
    assert [call(*first, 10), call(*second, 10), call(*first, 20)] == [11, 12, 21]


@pytest.mark.parametrize(
    "data", [b"", b"abc", b"\x7fELF", b"\x7fELF" + bytes(60), b"MZ" + bytes(99)]
)
def test_bytes_that_are_no_code_are_refused(data: bytes) -> None:
    with pytest.raises(CompileError) as caught:
        load_object(data)
    assert caught.value.next_step


def test_code_for_another_processor_is_refused() -> None:
    here = Target.host().triple.split("-")[0]
    other = Target.avx2() if here in ("aarch64", "arm64") else Target.aarch64()
    with pytest.raises(CompileError, match="another kind of processor"):
        load_object(adder(1, other)[0])


def test_an_unknown_symbol_is_an_error_not_a_crash() -> None:
    loaded = load_object(adder(1, Target.host())[0])
    with pytest.raises(CompileError, match="no symbol 'nothing'"):
        loaded.address("nothing")


def test_code_is_the_same_bytes_every_time() -> None:
    assert adder(3, Target.host()) == adder(3, Target.host())


def test_threads_may_compile_at_the_same_time() -> None:
    wrong: list[int] = []

    def work(amount: int) -> None:
        for i in range(5):
            if call(*adder(amount + i, Target.host()), 100) != 100 + amount + i:
                wrong.append(amount)

    workers = [threading.Thread(target=work, args=(n,)) for n in (10, 200, 3000)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_compiling_again_and_again_does_not_fill_memory() -> None:
    process = psutil.Process()

    def many(first: int) -> int:
        for i in range(60):
            call(*adder(first + i, Target.host()), 0)
        gc.collect()
        return int(process.memory_info().rss)

    many(0)
    before = many(1000)
    assert many(2000) - before < 8 << 20


def test_the_lock_that_a_fork_waits_for_is_the_one_that_llvmlite_holds_in_llvm() -> None:
    lock = making._lock_of_llvm()  # as every fork looks it up
    assert lock is not None
    assert lock is ffi.lib._lock._lock
    with ffi.lib._lock:
        taken = []
        thread = threading.Thread(target=lambda: taken.append(lock.acquire(False)))
        thread.start()
        thread.join()
        assert taken == [False]

"""LLVM leaves loop strength reduction out while it makes kernels, and only then.

Witness: what is asked of LLVM's options, in order, by kernels that are made side by side.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from verax.base.errors import CompileError
from verax.compiler.kernels.llvm import object_code
from verax.compiler.kernels.llvm.builder import I64, VOID, ModuleBuilder
from verax.compiler.kernels.llvm.object_code import code_of
from verax.compiler.kernels.llvm.text import IRBuilder
from verax.compiler.kernels.target import Target

OFF, ON = "-disable-lsr=true", "-disable-lsr=false"


def empty_function(name: str) -> str:
    module = ModuleBuilder("verax", Target.host())
    function = module.function(name, VOID, [I64])
    IRBuilder(function.append_basic_block("entry")).ret_void()
    return module.ir_text()


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    monkeypatch.setattr(object_code.llvm, "set_option", lambda _, option: asked.append(option))
    return asked


def test_the_option_is_set_for_a_kernel_and_given_back(options: list[str]) -> None:
    assert code_of(empty_function("alone"), Target.host()).startswith(b"\x7fELF")
    assert options == [OFF, ON]


def test_it_stays_set_until_the_last_of_several_is_made(options: list[str]) -> None:
    barrier = Barrier(3, timeout=30)

    def make() -> None:
        with object_code._making, object_code._addresses_as_written():
            barrier.wait()
            assert options == [OFF]
            barrier.wait()

    with ThreadPoolExecutor(3) as pool:
        for made in [pool.submit(make) for _ in range(3)]:
            made.result()
    assert options == [OFF, ON]


def test_it_is_given_back_where_llvm_refuses(options: list[str]) -> None:
    with pytest.raises(CompileError):
        code_of("this is no code", Target.host())
    assert options in ([], [OFF, ON])
    with pytest.raises(ZeroDivisionError), object_code._addresses_as_written():
        _ = 1 // 0
    assert options[-2:] == [OFF, ON]


def test_an_llvm_that_may_not_know_the_option_is_not_asked(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_code, "LSR_OPTION", range(0))
    code_of(empty_function("older"), Target.host())
    assert options == []

"""A network's code is made of kernels that a process makes once, whatever thread LLVM runs on."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading

import numpy as np
import pytest

from verax.base.errors import CompileError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.llvm import text as ir
from verax.compiler.kernels.llvm.builder import VOID, ModuleBuilder
from verax.compiler.kernels.products.gemm import GemmSpec
from verax.compiler.kernels.registry import EMITTERS
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary import assembly
from verax.compiler.place.binary.assembly import COMPILED_KERNELS, Assembly
from verax.ir.graph import Builder, Graph
from verax.ir.types import DType, TensorType
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add
from verax.ops.sums.linear import MatMul


def network(seed: int, depth: int = 3) -> Graph:
    """Products of one shape after one another, and one of another shape at the end."""
    random = np.random.default_rng(seed)
    b = Builder("net")
    x = b.input("x", TensorType(DType.float32, (5, 17)))
    for i in range(depth):
        w = b.constant(random.standard_normal((17, 17)).astype(np.float32), f"w{i}")
        x = b.add(Relu(), [b.add(MatMul(), [x, w])])
    w = b.constant(random.standard_normal((17, 23)).astype(np.float32), "w")
    return b.graph([b.add(Add(), [b.add(MatMul(), [x, w]), b.constant(np.float32(0.5), "c")])])


@pytest.fixture
def made(monkeypatch):
    """The texts that LLVM was given; the process has made nothing before."""
    texts: list[str] = []
    code_of = assembly.code_of

    def noted(text: str, target: Target) -> bytes:
        texts.append(text)
        return code_of(text, target)

    monkeypatch.setattr(assembly, "code_of", noted)
    COMPILED_KERNELS.forget()
    yield texts
    COMPILED_KERNELS.forget()


def test_equal_kernels_are_made_once_in_a_process(made):
    settings = Settings(opt_level=1, threads=1)
    first = compile(network(1), settings)
    once = len(made)
    kernels = {step.split()[1] for step in first.plan.lines}
    assert once == len(kernels) + 1  # and what calls them
    second = compile(network(2, depth=7), settings)
    assert len(made) == once + 1
    x = np.random.default_rng(3).standard_normal((5, 17)).astype(np.float32)
    COMPILED_KERNELS.forget()
    again = compile(network(2, depth=7), settings)
    assert np.array_equal(second(x), again(x))


def test_a_code_does_not_depend_on_threads_or_on_what_was_made_before(made, monkeypatch):
    graph, settings = network(4), Settings(threads=3)
    codes = [compile(graph, settings).specialized.binary.object_code]
    compile(network(5, depth=1), settings)
    codes.append(compile(graph, settings).specialized.binary.object_code)
    COMPILED_KERNELS.forget()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    codes.append(compile(graph, settings).specialized.binary.object_code)
    assert len(set(codes)) == 1


def test_threads_compile_side_by_side_what_one_compiles(made):
    """LLVM is entered by several threads at once: each gets what it gets alone."""
    graphs = [network(seed, depth) for seed, depth in ((6, 1), (7, 2), (8, 3), (9, 4))]
    alone = [compile(g, Settings()).specialized.binary.object_code for g in graphs]
    found: dict[tuple[int, int], bytes] = {}

    def work(which: int) -> None:
        for turn in range(3):
            COMPILED_KERNELS.forget()
            made = compile(graphs[which], Settings())
            found[which, turn] = made.specialized.binary.object_code

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(graphs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert all(code == alone[which] for (which, _), code in found.items())


def test_what_llvm_refuses_is_said_and_not_kept(monkeypatch):
    COMPILED_KERNELS.forget()
    text = ModuleBuilder.ir_text
    broken = lambda self: text(self).replace("ret void", "ret nothing")  # noqa: E731
    monkeypatch.setattr(ModuleBuilder, "ir_text", broken)
    with pytest.raises(CompileError, match="LLVM refused"):
        compile(network(10), Settings())
    monkeypatch.setattr(ModuleBuilder, "ir_text", text)
    x = np.random.default_rng(11).standard_normal((5, 17)).astype(np.float32)
    assert np.isfinite(compile(network(10), Settings())(x)).all()


def test_an_interrupt_leaves_nothing_behind(made, monkeypatch):
    emitter = EMITTERS[GemmSpec, ""]

    def interrupted(*_):
        raise KeyboardInterrupt

    before = sys.getswitchinterval()
    with monkeypatch.context() as patch:
        patch.setitem(EMITTERS, (GemmSpec, ""), dataclasses.replace(emitter, emit=interrupted))
        with pytest.raises(KeyboardInterrupt):
            compile(network(12), Settings(opt_level=1))
    assert sys.getswitchinterval() == before
    assert not [t for t in threading.enumerate() if t.name.startswith("verax-llvm")]
    x = np.random.default_rng(13).standard_normal((5, 17)).astype(np.float32)
    assert np.isfinite(compile(network(12), Settings())(x)).all()


def test_another_emitter_makes_another_kernel(made, monkeypatch):
    """Who makes a kernel is part of what is asked for: a replaced emitter is not given the old."""
    x = np.random.default_rng(14).standard_normal((5, 17)).astype(np.float32)
    before = compile(network(15), Settings(opt_level=1))(x)
    emitter, calls = EMITTERS[GemmSpec, ""], []

    def noted(module, spec, schedule):
        calls.append(spec)
        return emitter.emit(module, spec, schedule)

    monkeypatch.setitem(EMITTERS, (GemmSpec, ""), dataclasses.replace(emitter, emit=noted))
    assert np.array_equal(compile(network(15), Settings(opt_level=1))(x), before)
    assert calls


class Mac(Target):
    """A target whose objects are not ELF."""

    triple = "x86_64-apple-darwin"


def test_where_objects_are_not_elf_there_is_one_module(made):
    mac = Mac(**dataclasses.asdict(Target.avx2()))
    for target, count in ((mac, 1), (Target.avx2(), 2)):
        made.clear()
        with Assembly(target) as found:
            found.common(common)
            assert found.object_code()
        assert (len(made), target.makes_elf) == (count, count == 2)


def common(module: ModuleBuilder) -> None:
    """Defines a function that does nothing."""
    ir.IRBuilder(module.function("common", VOID, []).append_basic_block()).ret_void()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_the_child_of_a_fork_makes_its_own(made):
    compile(network(16), Settings())
    child = os.fork()
    if child == 0:
        ok = False
        try:
            x = np.ones((5, 17), np.float32)
            ok = bool(np.isfinite(compile(network(17, depth=5), Settings(threads=2))(x)).all())
        finally:
            os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_no_more_is_kept_than_allowed(made, monkeypatch):
    compile(network(18), Settings())
    held = sum(len(p.code.result()) for p in COMPILED_KERNELS._entries.values())
    monkeypatch.setattr(assembly, "MOST_BYTES", held - 1)
    COMPILED_KERNELS.trim()
    assert 0 < sum(len(p.code.result()) for p in COMPILED_KERNELS._entries.values()) < held

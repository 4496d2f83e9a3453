"""Vectors in step have the bits that each has alone, in loops and behind every kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native import TARGETS, Native, assert_same_bits
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.llvm import side_by_side
from verax.compiler.kernels.llvm.builder import ModuleBuilder
from verax.compiler.kernels.llvm.object_code import object_code
from verax.compiler.kernels.llvm.side_by_side import equal_groups, evaluate_each, in_step, is_chain
from verax.compiler.kernels.target import LANES, Target
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.numerics.arith_numpy import NumpyArith
from verax.numerics.expr import Expr, evaluate, trace
from verax.numerics.functions import FUNCTIONS
from verax.reference import promised

COUNTS = (1, 2, 3, 4, 5, 7)


def expression(name: str) -> Expr:
    """The function, and something that its result and the input have a part in."""
    operands = ["float32"] * (2 if name in ("pow", "atan2") else 1)
    return trace(lambda m, *x: m.add(m.call(name, *x), x[0]), operands)


def kernel(module: ModuleBuilder, expr: Expr, inputs: int, count: int) -> Any:
    """out = expr(in, ...) of `count` vectors, all in one item."""
    fb = module.kernel((expr, count), inputs + 1, hint="several")
    with fb.items() as item:
        start = fb.imul(item.index, count * LANES)
        vectors = [
            [fb.load(fb.at(p, (start, 1), k * LANES)) for p in fb.args[:-1]] for k in range(count)
        ]
        for k, (value,) in enumerate(evaluate_each(fb, [expr], vectors)):
            fb.store(value, fb.at(fb.args[-1], (start, 1), k * LANES))
    return fb.finish(2)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_every_function(target: Target) -> None:
    module = ModuleBuilder("test", target)
    made = []
    for name in sorted(FUNCTIONS):
        expr = expression(name)
        inputs = 2 if name in ("pow", "atan2") else 1
        for count in COUNTS if name in ("gelu", "silu", "sin") else (3,):
            made.append((expr, inputs, count, kernel(module, expr, inputs, count)))
    native = Native(module)
    rng = np.random.default_rng(0)
    for expr, inputs, count, compiled in made:
        n = 2 * count * LANES
        arrays = [(rng.standard_normal(n) * 4).astype(np.float32) for _ in range(inputs)]
        arrays[0][:6] = 0, -0.0, np.inf, -np.inf, np.nan, 1e-40
        found = np.empty(n, np.float32)
        native.run(compiled, [*arrays, found])
        with np.errstate(all="ignore"):
            assert_same_bits(found, evaluate(expr, NumpyArith(), arrays))


@pytest.mark.parametrize("target", [Target.avx512(), Target.avx2(), Target.aarch64()])
def test_every_target_has_code_for_it(target: Target) -> None:
    module = ModuleBuilder("test", target)
    expr = expression("gelu")
    kernel(module, expr, 1, 7)
    text = module.ir_text()
    pieces = in_step(target) * target.physical
    register = "=w" if target.name == "neon" else "=v"
    assert text.count("asm") >= 6
    assert ",".join([register] * pieces) in text
    assert object_code(module)


def test_groups_are_about_equal() -> None:
    assert equal_groups(7, 3) == [(0, 2, 3), (6, 1, 1)]
    assert equal_groups(4, 3) == [(0, 2, 2)]
    assert equal_groups(2, 3) == [(0, 1, 2)]
    for count in range(1, 30):
        for most in range(1, 6):
            found = [
                f + i * s + k
                for f, n, s in equal_groups(count, most)
                for i in range(n)
                for k in range(s)
            ]
            assert found == list(range(count))
            assert all(s <= most for _, _, s in equal_groups(count, most))


def test_what_is_a_chain() -> None:
    assert is_chain([expression("erf")])
    assert not is_chain([expression("sin")])  # a short way branches
    assert not is_chain([trace(lambda m, x: m.add(x, x), ["float32"])])


def behind(kind: str, act: str) -> Graph:
    """`act` behind a kernel that has an epilogue, with a sum after it."""
    b, rng = Builder("net"), np.random.default_rng(len(kind))

    def constant(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape).astype(np.float32))

    pads = ((1, 1), (1, 1))
    if kind.startswith("rows"):
        x = b.input(
            "x", TensorType.parse("float32[11, 37]" if kind == "rows" else "float32[1, 37]")
        )
        value = b.add(REGISTRY["MatMul"](), [x, constant(37, 53)])
    else:
        x = b.input("x", TensorType.parse("float32[2, 24, 9, 11]"))
        made: dict[str, Any] = {
            "wide": lambda: b.add(REGISTRY["Conv"](), [x, constant(90, 24, 1, 1), constant(90)]),
            "conv": lambda: b.add(REGISTRY["Conv"](pads=pads), [x, constant(35, 24, 3, 3)]),
            "depthwise": lambda: b.add(
                REGISTRY["Conv"](pads=pads, groups=24), [x, constant(24, 1, 3, 3), constant(24)]
            ),
            "grouped": lambda: b.add(
                REGISTRY["Conv"](pads=pads, groups=4), [x, constant(24, 6, 3, 3)]
            ),
            "winograd": lambda: b.add(
                REGISTRY["WinogradConv"](tile=2, pads=pads), [x, constant(20, 24, 3, 3)]
            ),
            "pool": lambda: b.add(REGISTRY["MaxPool"](kernel_shape=(3, 3)), [x]),
        }
        value = made[kind]()
    value = b.add(REGISTRY[act](), [value])
    return b.graph([b.add(REGISTRY["Add"](), [value, b.constant(np.float32(0.25))])])


@pytest.mark.checkered
@pytest.mark.parametrize("act", ["Gelu", "Swish", "Sin"])
@pytest.mark.parametrize(
    "kind", ["wide", "conv", "depthwise", "grouped", "winograd", "pool", "rows", "rows of one"]
)
def test_behind_every_kernel(kind: str, act: str) -> None:
    graph = behind(kind, act)
    (name,) = graph.inputs
    data = np.random.default_rng(1).standard_normal(graph.types[name].shape).astype(np.float32)
    found = compile(graph, Settings(opt_level=1, threads=2)).run({name: data})
    for output, array in promised(graph, {name: data}).items():
        assert bits(found[output]) == bits(np.asarray(array))


def test_in_step_is_not_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def multiplications(count: int) -> int:
        module = ModuleBuilder("test", Target.avx2())
        kernel(module, expression("gelu"), 1, count)
        lines = module.ir_text().splitlines()
        ties = [i for i, line in enumerate(lines) if "asm" in line]
        return len(ties)

    assert multiplications(1) == 0 < multiplications(3)
    monkeypatch.setattr(side_by_side, "MOST", 1)
    assert in_step(Target.avx2()) == 1

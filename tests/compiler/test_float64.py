"""float64 by kernels, with the promised bits: products, convolutions, and every operator's cases.

Which operators stay on the reference in float64 although they have kernels in float32 is listed
here, and in docs/element_types.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.compiler.test_bits import bits
from tests.compiler.test_operators import WEIGHTED, graph_of
from tests.numerics.test_arithmetic_version import in_type
from verax.base.errors import VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.target import Target
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY, Case
from verax.ir.types import TensorType
from verax.reference import evaluate, promised

TARGETS = [t for t in ("avx2", "avx512", "aarch64") if Target.named(t).runs_here()]
X = (2, 19, 9, 7)
CASES: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any]]] = {
    "direct": ("Conv", [X, (21, 19, 3, 2), (21,)], {"pads": ((1, 0), (2, 1))}),
    "few channels, strides": ("Conv", [(2, 3, 9, 7), (5, 3, 2, 3)], {"strides": (2, 1)}),
    "pointwise": ("Conv", [X, (33, 19, 1, 1), (33,)], {}),
    "depthwise": ("Conv", [X, (19, 1, 3, 3), (19,)], {"groups": 19, "pads": ((1, 1), (1, 1))}),
    "large depthwise": ("Conv", [X, (19, 1, 7, 5)], {"groups": 19}),
    "groups": ("Conv", [(2, 6, 9, 7), (9, 2, 3, 2), (9,)], {"groups": 3}),
    "groups of 4": ("Conv", [(1, 16, 9, 7), (16, 4, 3, 2), (16,)], {"groups": 4}),
    "turned": ("ConvTranspose", [X, (19, 5, 3, 2), (5,)], {"strides": (2, 3)}),
    "three axes": ("Conv", [(1, 3, 5, 4, 6), (4, 3, 2, 3, 2)], {}),
    "largest": ("MaxPool", [X], {"kernel_shape": (3, 2), "pads": ((1, 0), (0, 1))}),
    "matrix": ("MatMul", [(2, 3, 37), (37, 53)], {}),
    "batches": ("MatMul", [(2, 5, 7, 19), (5, 19, 35)], {}),
    "row": ("MatMul", [(1, 64), (64, 257)], {}),
    "gemm": ("Gemm", [(7, 20), (33, 20), (33,)], {"trans_b": True, "beta": 0.3}),
    "scaled": ("Gemm", [(7, 20), (20, 33)], {"alpha": 0.1}),
    "einsum": ("Einsum", [(2, 3, 19), (2, 19, 4)], {"equation": "bij,bjk->bki"}),
}


def network(name: str, constant: bool) -> tuple[Graph, dict[str, np.ndarray]]:
    """The operator and a Relu and an Add of float64 behind it. constant: its further inputs."""
    kind, shapes, fields = CASES[name]
    rng, b, fed, given = np.random.default_rng(len(name)), Builder("net"), {}, []
    for i, shape in enumerate(shapes):
        array = rng.standard_normal(shape)
        if constant and i:
            given.append(b.constant(array))
        else:
            given.append(b.input(f"x{i}", TensorType.of(array)))
            fed[f"x{i}"] = array
    made = b.add(REGISTRY[kind](**fields), given)
    half = b.constant(np.array(0.1))
    return b.graph([b.add(REGISTRY["Add"](), [b.add(REGISTRY["Relu"](), [made]), half])]), fed


@pytest.mark.checkered
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_they_are_native_with_the_promised_bits(name: str, constant: bool, target: str) -> None:
    graph, fed = network(name, constant)
    (wanted,) = promised(graph, fed).values()
    for level, threads in ((0, 1), (1, 3)):
        settings = Settings(opt_level=level, threads=threads, target=target, quick=True)
        exe = compile(graph, settings)
        (got,) = exe.run(fed).values()
        if CASES[name][0] != "Gemm" or constant:  # a computed third matrix with beta has none
            assert not exe.plan.on_reference, str(exe.plan)
        assert bits(got) == bits(np.asarray(wanted))


@pytest.mark.parametrize("name", [n for n in CASES if n != "largest"])
def test_the_promise_is_the_meaning_within_rounding(name: str) -> None:
    """NumPy adds in another order; both err by less than all terms' roundings together."""
    _, fed = network(name, False)
    kind, _, fields = CASES[name]
    op, arrays = REGISTRY[kind](**fields), list(fed.values())
    b = Builder("net")
    one = b.graph([b.add(op, [b.input(v, TensorType.of(a)) for v, a in fed.items()])])
    (near,) = promised(one, fed).values()
    (other,) = evaluate(one, fed).values()
    (sizes,) = evaluate(one, {v: np.abs(a) for v, a in fed.items()}).values()
    terms = int(np.prod(arrays[1].shape))
    assert (np.abs(near - other) <= 2 * terms * 2.0**-53 * np.abs(sizes)).all()


ON_REFERENCE = {"BoxNMS", "MultiBoxDetection"}
"""Operators whose float64 cases, or some of them, run on the reference, and float32's natively."""
LAYERS = ("GRU", "LSTM", "RNN")
FIRST, EVERY = 6, 3
"""All of the first cases of an operator run, of those behind them one in three: further ones tell
attributes apart, which kernels of both types share (`tests/compiler/test_operators.py`)."""


def cases_in(name: str, dtype: str) -> Iterator[tuple[int, Case, Graph, dict[str, np.ndarray]]]:
    """The float32 cases of an operator with their numbers in `dtype`, where it takes them: their
    number, the case, a network of it and its inputs."""
    for i, case in enumerate(REGISTRY[name].cases(np.random.default_rng(0))):
        floats = {str(a.dtype) for a in case.inputs if a is not None and a.dtype.kind in "fV"}
        other = in_type(case, dtype) if floats == {"float32"} else None
        if other is None:
            continue
        try:
            graph, fed = graph_of(other, name in (*WEIGHTED, *LAYERS))
        except VeraxError:
            continue
        yield i, case, graph, fed


def runs(name: str, dtype: str) -> tuple[set[str], set[str]]:
    """(natively, on the reference): which of the float32 cases of an operator run how, with their
    numbers in `dtype`; their bits are held to the promise."""
    made: tuple[set[str], set[str]] = (set(), set())
    for i, case, graph, fed in cases_in(name, dtype):
        if i >= FIRST and i % EVERY and name not in ON_REFERENCE:
            continue
        target = TARGETS[i % len(TARGETS)]
        exe = compile(graph, Settings(opt_level=i % 2, threads=1, target=target, quick=True))
        answer = exe.run(fed)
        for value, array in promised(graph, fed).items():
            assert bits(answer[value]) == bits(np.asarray(array)), f"{case.op} {case.label}"
        made[bool(exe.plan.on_reference)].add(f"{i} {case.op}")
    return made


@pytest.mark.parametrize("name", sorted(n for n, op in REGISTRY.items() if not op.unsupported))
def test_an_operator_has_the_promised_bits_and_a_kernel_where_float32_has(name: str) -> None:
    _, behind = runs(name, "float64")
    native = runs(name, "float32")[0] if behind else set()
    only = {c for c in behind & native if "with_statistics" not in c}  # kept in float32
    assert bool(only) == (name in ON_REFERENCE), only


@pytest.mark.parametrize("name", sorted(n for n, op in REGISTRY.items() if not op.unsupported))
def test_what_is_promised_in_float64_is_as_exact_as_float64(name: str) -> None:
    """Nothing on the way is a float32: such were the weights of Resize, 4e-8 off."""
    for _, case, graph, fed in cases_in(name, "float64"):
        near, meant = promised(graph, fed), evaluate(graph, fed)
        for value in (v for v in near if near[v].dtype == np.float64):
            with np.errstate(invalid="ignore"):
                error = np.abs(near[value] - meant[value])
            size = np.abs(meant[value]).max(initial=0.0, where=np.isfinite(meant[value]))
            assert error.max(initial=0.0, where=np.isfinite(error)) <= 1e-13 * size, case.label

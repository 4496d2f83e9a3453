"""Whatever schedule a kernel may have, its bits are those of the schedule chosen by rule."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.test_bits import bits

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.executable import Executable
from verax.compiler.kernels import registry
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.space import NEAR, UNROLLS
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.products.attention_spec import AttentionSchedule, AttentionSpec
from verax.compiler.kernels.products.gemm import GemmSpec
from verax.compiler.kernels.registry import Schedule, Spec
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall
from verax.compiler.tune.host import Host
from verax.compiler.tune.kernel_bench import KernelBench, Workload
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.runtime.program import Program

Network = tuple[Graph, dict[str, np.ndarray]]


def network(seed: int, x: tuple[int, ...], *given: Any, dtype: str = "float32") -> Network:
    """Operators one behind the other. given: (operator, constants' shapes or None for x itself)."""
    rng = np.random.default_rng(seed)

    def drawn(shape: tuple[int, ...]) -> np.ndarray:
        if dtype == "float32":
            return rng.standard_normal(shape, np.float32)
        return rng.integers(-90, 90, shape).astype(dtype)

    b = Builder("net")
    feeds = {"x": drawn(x)}
    value = b.input("x", TensorType.of(feeds["x"]))
    for op, *shapes in given:
        value = b.add(op, [value, *(value if s is None else b.constant(drawn(s)) for s in shapes)])
    return b.graph([value]), feeds


def conv(**fields: Any) -> Any:
    return REGISTRY["Conv"](**fields)


PAD = ((1, 1), (1, 1))
RELU = (REGISTRY["Relu"](),)
SIGMOID = (REGISTRY["Sigmoid"](),)
NETWORKS: dict[str, Callable[[], Network]] = {
    "first layer": lambda: network(
        1, (2, 3, 15, 13), (conv(strides=(2, 1), pads=PAD), (33, 3, 3, 3), (33,)), RELU
    ),
    "direct": lambda: network(2, (2, 35, 9, 7), (conv(pads=PAD), (50, 35, 3, 3), (50,)), SIGMOID),
    "deep": lambda: network(3, (1, 64, 6, 5), (conv(), (80, 64, 3, 2))),
    "stored as another type": lambda: network(
        19,
        (2, 64, 6, 5),
        (conv(pads=PAD), (48, 64, 3, 3)),
        (REGISTRY["Cast"](to="int16"),),
    ),
    "pointwise": lambda: network(4, (2, 48, 7, 9), (conv(), (70, 48, 1, 1), (70,)), RELU),
    "pointwise, strided": lambda: network(
        5, (1, 64, 9, 11), (conv(strides=(2, 2)), (40, 64, 1, 1), (40,))
    ),
    "groups of whole blocks": lambda: network(
        6, (2, 32, 7, 8), (conv(groups=2, pads=PAD), (64, 16, 3, 3))
    ),
    "depthwise": lambda: network(
        7, (2, 37, 11, 13), (conv(groups=37, pads=PAD), (37, 1, 3, 3), (37,)), RELU
    ),
    "depthwise, wide": lambda: network(
        8, (1, 18, 12, 9), (conv(groups=18, strides=(2, 1)), (18, 1, 5, 4))
    ),
    "transposed": lambda: network(
        9, (1, 20, 5, 7), (REGISTRY["ConvTranspose"](strides=(2, 2)), (20, 34, 3, 3))
    ),
    "product": lambda: network(10, (3, 17, 40), (REGISTRY["MatMul"](), (40, 52)), SIGMOID),
    "products of what is computed": lambda: network(
        11, (2, 3, 18, 18), (REGISTRY["MatMul"](), None)
    ),
    "product with a start": lambda: network(
        12, (19, 33), (REGISTRY["Gemm"](), (33, 47), (19, 47)), RELU
    ),
    "Winograd": lambda: network(
        13,
        (1, 40, 14, 13),
        (REGISTRY["WinogradConv"](tile=4, pads=PAD), (50, 40, 3, 3), (50,)),
        RELU,
    ),
    "Winograd in groups": lambda: network(
        17, (1, 32, 12, 9), (REGISTRY["WinogradConv"](tile=2, pads=PAD, groups=2), (32, 16, 3, 3))
    ),
    "Winograd of integers": lambda: network(
        18, (1, 48, 16, 16), (REGISTRY["ConvInteger"](pads=PAD), (64, 48, 3, 3)), dtype="int8"
    ),
    "Strassen": lambda: network(
        20, (3, 13, 52), (REGISTRY["StrassenMatMul"](), (52, 160)), SIGMOID
    ),
    "Strassen, image": lambda: network(
        22, (2, 64, 9, 7), (REGISTRY["StrassenConv"](), (96, 64, 1, 1)), SIGMOID
    ),
    "Strassen, short epilogue": lambda: network(
        21, (2, 15, 36), (REGISTRY["StrassenMatMul"](), (36, 96)), RELU
    ),
    "attention": lambda: network(
        14, (2, 3, 29, 24), (REGISTRY["Attention"](scale=0.2, causal=True), None, None)
    ),
    "integers": lambda: network(
        15, (2, 34, 8, 7), (REGISTRY["ConvInteger"](pads=PAD), (50, 34, 3, 3)), dtype="int8"
    ),
    "depthwise integers": lambda: network(
        16, (1, 21, 9, 8), (REGISTRY["ConvInteger"](groups=21), (21, 1, 3, 3)), dtype="int8"
    ),
    "halves": lambda: network(22, (2, 40, 8, 7), (conv(pads=PAD), (50, 40, 2, 3), (50,)), RELU),
    "halves, pointwise": lambda: network(23, (2, 48, 9, 6), (conv(), (70, 48, 1, 1))),
    "halves, product": lambda: network(24, (3, 17, 42), (REGISTRY["MatMul"](), (42, 52)), SIGMOID),
}


def choice(name: str, threads: int, quick: bool = False) -> Settings:
    """O1; for networks of halves the level that may round factors to bfloat16."""
    if not name.startswith("halves"):
        return Settings(opt_level=1, threads=threads, quick=quick)
    allowed = Settings(opt_level=3, threads=threads, quick=quick, allow=("bf16",))
    return dataclasses.replace(allowed, disable=("choose_winograd",))


def some_schedule(spec: Spec, target: Target, rng: random.Random) -> Schedule:
    """Any that the kernel may have: a candidate, and other fields at random as far as they are
    admitted."""
    found = rng.choice(registry.candidates(spec, target))
    for _ in range(12):
        if isinstance(found, ConvSchedule):
            field, value = rng.choice([
                ("unroll", rng.choice(UNROLLS)), ("near", rng.choice([*NEAR, 7, 200])),
                ("chunk", rng.randint(1, 40)), ("filters_outer", rng.random() < 0.5),
                ("ahead", rng.random() < 0.5), ("fetch_block", rng.random() < 0.5),
                ("pass_blocks", rng.randint(0, 4)), ("rows", rng.randint(1, 6)),
                ("cols", rng.randint(1, 6)), ("blocks", rng.randint(1, 4)),
            ])  # fmt: skip
        else:
            assert isinstance(found, AttentionSchedule)
            field = rng.choice(["rows", "blocks", "tiles"])
            value = rng.randint(1, 12)
        other: Schedule = dataclasses.replace(found, **{field: value})
        if registry.admits(spec, target, other):
            found = other
    return found


@pytest.mark.parametrize("name", NETWORKS)
def test_no_schedule_changes_a_bit(name: str) -> None:
    graph, feeds = NETWORKS[name]()
    rng = random.Random(f"schedules of {name}")
    seen: set[Schedule] = set()
    for threads in (1, 3):
        exe = compile_graph(graph, choice(name, threads, quick=True))
        wanted = exe.run(feeds)
        target = Target.named("host")
        assert not exe.plan.on_reference
        assert any(registry.stages(c.spec, target) for c in calls(exe)), "nothing to choose"

        def chosen(spec: Spec, target: Target = target) -> Any:
            if not registry.stages(spec, target):
                return None
            found = some_schedule(spec, target, rng)
            assert registry.admits(spec, target, found)
            seen.add(found)
            return found

        for _ in range(2):
            again = exe.specializer.lower_with(exe.specialized, Once(chosen))
            got = run(again.binary, threads, feeds)
            for value, array in zip(graph.outputs, got, strict=True):
                assert bits(array) == bits(wanted[value]), (name, seen)
    assert len(seen) > 1


@pytest.mark.parametrize("name", NETWORKS)
def test_a_kernel_by_itself_gives_the_same_bits_with_every_schedule(name: str) -> None:
    """As they are compared before a candidate is timed: each is given the same numbers."""
    graph, _ = NETWORKS[name]()
    target, rng = Target.host(), random.Random(f"alone: {name}")
    exe = compile_graph(graph, choice(name, 1, quick=True))
    weight_bytes = exe.specialized.binary.weights.nbytes
    for call in calls(exe):
        if registry.stages(call.spec, target):
            stand = KernelBench(Workload.of(call, weight_bytes), target, Host.here(target, 1))
            wanted = stand.result(call.schedule)
            assert len(set(wanted)) > 50
            others = {some_schedule(call.spec, target, rng) for _ in range(2)}
            for other in others:
                assert stand.result(other) == wanted, other
            assert stand.result(call.schedule) == wanted, "nothing is left from another"
            stand.close()


class Once:
    """The same schedule for a spec however often it is asked for: weights are packed by it."""

    def __init__(self, choose: Callable[[Spec], Schedule | None]) -> None:
        self._choose, self._found = choose, dict[Spec, Any]()

    def __call__(self, spec: Spec) -> Schedule | None:
        if spec not in self._found:
            self._found[spec] = self._choose(spec)
        return self._found[spec]


def run(binary: Any, threads: int, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return Program(binary, threads).run([feeds[s.name] for s in binary.inputs])


def calls(exe: Executable) -> list[KernelCall]:
    return [s for s in exe.specialized.lowered.steps if isinstance(s, KernelCall)]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("target", ["avx2", "avx512", "aarch64"])
def test_what_rules_choose_and_what_is_tried_is_admitted(name: str, target: str) -> None:
    graph, _ = NETWORKS[name]()
    made = Target.named(target)
    for call in calls(compile_graph(graph, choice(name, 1, quick=True))):
        if not registry.stages(call.spec, made):
            continue
        rule = registry.schedules(call.spec, made)[0]
        assert registry.admits(call.spec, made, rule), rule
        tried = registry.candidates(call.spec, made)
        assert tried[0] == rule
        assert len(set(tried)) == len(tried) > 1


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(ConvSchedule)])
@pytest.mark.parametrize("value", [-1, 10**7, "4", None, 2.5])
def test_nonsense_is_not_admitted(field: str, value: Any) -> None:
    graph, _ = NETWORKS["direct"]()
    spec = next(
        c.spec
        for c in calls(compile_graph(graph, Settings(opt_level=1, threads=1)))
        if isinstance(c.spec, ConvSpec | GemmSpec | AttentionSpec)
    )
    target = Target.avx2()
    rule = registry.schedules(spec, target)[0]
    assert registry.admits(spec, target, rule)
    other: Any = dataclasses.replace(rule, **{field: value})  # type: ignore[type-var]
    assert not registry.admits(spec, target, other)
    assert not registry.admits(spec, target, "a schedule")

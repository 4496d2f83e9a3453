"""Recurrent layers run natively, with the promised bits, whatever their attributes."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest
from tests.compiler.test_bits import bits

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.kernels.target import Target
from verax.compiler.place.products import recurrent
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph, reinfer, specialize
from verax.ir.types import TensorType
from verax.ops.recurrent.recurrent import GRU, LSTM, RNN, Recurrent
from verax.reference import promised

TARGETS = [t for t in ("avx2", "avx512", "aarch64") if Target.named(t).runs_here()]
NATIVE: list[tuple[Recurrent, str]] = [
    (RNN(), ""), (RNN(direction="reverse", clip=0.75, layout=1), "bh"),
    (RNN(activations=("ScaledTanh",), activation_alpha=(1.5,), activation_beta=(0.5,)), "b"),
    (GRU(direction="bidirectional"), "bh"), (GRU(direction="reverse", layout=1), "h"),
    (GRU(direction="bidirectional", linear_before_reset=True, clip=0.5), "b"),
    (LSTM(), "bhcp"), (LSTM(direction="bidirectional", layout=1), "bhcp"),
    (LSTM(input_forget=True, cell_clip=0.25, clip=0.5), "bc"),
    (LSTM(direction="bidirectional"), "bhcj"), (LSTM(direction="reverse", layout=1), "cpj"),
    (LSTM(input_from_forget=True, projection_clip=0.25, direction="bidirectional"), "bhcpjk"),
    (RNN(activations=("Clamped",), activation_alpha=(-0.5,), activation_beta=(0.75,)), "bh"),
]  # fmt: skip


def network(op: Recurrent, given: str, **sizes: Any) -> tuple[Graph, dict[str, np.ndarray]]:
    """The layer with its weights in it, on a sequence and initial states."""
    rng = np.random.default_rng(zlib.crc32(f"{op} {given}".encode()))
    b, fed, names = Builder("recurrent"), {}, []
    for i, array in enumerate(op.drawn(rng, op, given, **sizes)):
        if array is None:
            names.append(None)
        elif i in (0, 5, 6):
            fed[f"x{i}"] = array
            names.append(b.input(f"x{i}", TensorType.of(array)))
        else:
            names.append(b.constant(np.array(array)))
    return b.graph(b.add_all(op, names)), fed


@pytest.mark.checkered
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("op", "given"), NATIVE, ids=str)
def test_it_runs_natively_with_the_promised_bits(
    op: Recurrent, given: str, dtype: str, target: str
) -> None:
    """More units than a vector holds, and no multiple of it; a second run starts afresh."""
    graph, fed = network(op, given, dtype=dtype, steps=4, batch=3, features=7, hidden=19)
    wanted = {v: bits(np.asarray(array)) for v, array in promised(graph, fed).items()}
    for level, threads in ((0, 1), (1, 2)):
        exe = compile(graph, Settings(opt_level=level, threads=threads, target=target))
        for _ in range(2):
            got = exe.run(fed)
            assert not exe.plan.on_reference
            assert {v: bits(got[v]) for v in wanted} == wanted, level


@pytest.mark.parametrize(("op", "given"), NATIVE, ids=str)
def test_steps_are_a_loop_where_they_are_many(
    op: Recurrent, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrent, "MOST_STEPS", 0)
    for steps in (1, 2, 5):
        graph, fed = network(op, given, steps=steps, batch=3, features=7, hidden=19)
        exe = compile(graph, Settings(opt_level=1, threads=1, quick=True))
        got = exe.run(fed)
        assert any("repeat" in line for line in exe.plan.lines)
        for v, wanted in promised(graph, fed).items():
            assert bits(got[v]) == bits(np.asarray(wanted)), (steps, v)


@pytest.mark.parametrize(("op", "given"), NATIVE, ids=str)
def test_one_program_serves_all_lengths_and_batches(op: Recurrent, given: str) -> None:
    graph, _ = network(op, given, steps=4, batch=5, features=7, hidden=19)
    named = {4: symbol("steps"), 5: symbol("batch")}
    types = {
        v: TensorType(graph.types[v].dtype, tuple(named.get(n, n) for n in graph.types[v].shape))
        for v in graph.inputs
    }
    exe = compile(reinfer(graph, types), Settings(opt_level=1, threads=1, background=False))
    rng = np.random.default_rng(84)
    for steps, batch in ((9, 2), (4, 5), (13, 3), (2, 17)):
        sizes = {"steps": steps, "batch": batch}
        fed = {
            v: rng.standard_normal(t.substitute(sizes).shape).astype(np.float32)
            for v, t in types.items()
        }
        got = exe.run(fed)
        for v, wanted in promised(specialize(reinfer(graph, types), sizes), fed).items():
            assert bits(got[v]) == bits(np.asarray(wanted)), (sizes, v)
    assert len(exe._open.programs) == 1 and not exe.plan.on_reference


def test_what_has_no_kernel_says_why() -> None:
    graph, fed = network(LSTM(), "bl")
    exe = compile(graph, Settings(opt_level=0, threads=1))
    assert fed
    assert any("lengths of their own" in line for line in exe.plan.lines)
    assert exe.plan.on_reference


def test_any_number_of_steps_is_native() -> None:
    graph, fed = network(GRU(), "b", steps=recurrent.MOST_STEPS + 40, batch=1, hidden=3)
    exe = compile(graph, Settings(opt_level=0, threads=1))
    got = exe.run(fed)
    assert not exe.plan.on_reference
    assert {v: bits(got[v]) for v in got} == {
        v: bits(np.asarray(array)) for v, array in promised(graph, fed).items()
    }


def test_every_step_calls_the_same_kernels() -> None:
    """The native code of a longer sequence has no more kernels."""
    counts = []
    for steps in (5, 9):
        graph, fed = network(LSTM(), "bhc", steps=steps, hidden=6)
        exe = compile(graph, Settings(opt_level=0, threads=1))
        exe.run(fed)
        counts.append(len({line.split()[1] for line in exe.plan.lines}))
    assert counts[0] == counts[1]

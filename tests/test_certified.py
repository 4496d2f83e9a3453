"""A program that is judged before it is handed over, and what its certificate says."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import verax
from tests.compiler.test_recipe import PADS, data, network
from verax.base.errors import CompileError, InputError
from verax.compiler.passes import choose_winograd
from verax.compiler.pipeline import levels
from verax.ir.graph import Builder, Graph
from verax.ir.types import TensorType
from verax.judge.regions.sampler import Sampler
from verax.numerics import winograd
from verax.ops.movement.reshaping import Transpose
from verax.ops.pointwise.activation import Relu
from verax.ops.pointwise.arithmetic import Add, Mul, Sub
from verax.ops.windows.convolution import Conv
from verax.records.certificate import Certificate
from verax.records.verdict import Kind
from verax.runtime.weight_blocks import WEIGHTS

assert choose_winograd


def test_an_honest_program_is_certified() -> None:
    exe = verax.compile(network(), opt_level=3, certify=True, draws=2, seed=21)
    held = exe.certificate
    assert held is not None and held.holds and not held.fallbacks
    assert held.recipe == exe.recipe.sha256
    assert len(held.draws) == 2
    assert held.draws[0].inputs[0].sha256 != held.draws[1].inputs[0].sha256
    for draw in held.draws:
        assert {layer.node for layer in draw.layers} == {"conv0", "conv1"}
        assert all(0 < layer.share < 0.2 for layer in draw.layers)
        (out,) = draw.outputs
        assert out.kind in (Kind.rounding, Kind.precision) and 0 < out.units < 100
    assert 0 < held.power < 1e-3
    assert Certificate.from_json(held.to_json()) == held
    assert "certificate holds: O3" in str(held)
    assert f"| 2 | `y` | {held.draws[1].outputs[0].kind} |" in held.to_markdown()


def test_what_is_found_out_while_compiling_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one core nothing is drawn ahead; with several the same samples are."""
    drawn = []
    draw_ahead = Sampler.draw_ahead
    noted = lambda self, count: (drawn.append(count), draw_ahead(self, count))  # noqa: E731
    monkeypatch.setattr(Sampler, "draw_ahead", noted)
    found = []
    for threads, times in (("1", 0), ("2", 1)):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        exe = verax.compile(network(), certify=True, draws=2, seed=23, threads=1)
        assert exe.certificate is not None and len(drawn) == times
        found.append(dataclasses.replace(exe.certificate, seconds=0.0, environment={}))
    assert found[0] == found[1]


def test_given_inputs_are_judged_on() -> None:
    exe = verax.compile(network(), opt_level=2, certify=True, samples=data())
    assert exe.certificate is not None
    (draw,) = exe.certificate.draws
    assert draw.inputs[0].origin == "given" and not draw.layers


def test_a_layer_whose_approximation_is_wrong_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels and the promised bits share the fault: only the meaning can tell."""
    rows = [list(row) for row in winograd.FILTER[4]]
    rows[3][1] *= 1.001
    monkeypatch.setitem(winograd.FILTER, 4, tuple(map(tuple, rows)))
    exe = verax.compile(network(), opt_level=3, certify=True)
    held = exe.certificate
    assert held is not None and held.holds
    assert held.fallbacks.keys() == {"conv0", "conv1"}
    assert exe.recipe.algorithms == {}
    assert exe.recipe.keep_exact == ("conv0", "conv1")
    assert held.recipe == exe.recipe.sha256
    plain = verax.compile(network(), opt_level=2)
    np.testing.assert_array_equal(exe.run(data())["y"], plain.run(data())["y"])


def test_the_bound_of_direct_summation_is_the_limit() -> None:
    """One layer whose kernel has one large tap: F(4x4) errs by 1e-5 of that, sums of it hardly."""
    rng = np.random.default_rng(22)
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[1, 16, 37, 41]"))
    w = np.zeros((16, 16, 3, 3), np.float32)
    w[:, :, 1, 1] = np.eye(16)
    graph = b.graph([b.add(Conv(pads=PADS), [x, b.constant(w, "w")], ["y"], "conv")])
    image = rng.standard_normal((1, 16, 37, 41), np.float32)
    image[0, 0, ::3, ::2] *= 1e7
    held = verax.compile(graph, opt_level=3, certify=True, samples={"x": image}).certificate
    assert held is not None
    shares = [layer.share for layer in held.draws[0].layers] or [2.0]
    assert bool(held.fallbacks) == (max(shares) > 1)
    assert held.holds


def test_a_fault_of_another_pass_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = next(p for p in levels.PIPELINE if p.name == "fold_scales")

    def fold_scales(graph: Graph, limit: int | None = None) -> object:
        made, trace = healthy.run(graph, limit)
        weights = {v: a * np.float32(1.01) for v, a in made.constants.items() if a.ndim == 4}
        constants = {**made.constants, **weights}
        return dataclasses.replace(made, constants=constants), trace

    broken = dataclasses.replace(healthy, run=fold_scales)
    monkeypatch.setattr(
        levels, "PIPELINE", tuple(broken if p is healthy else p for p in levels.PIPELINE)
    )
    held = verax.compile(network(), opt_level=2, certify=True).certificate
    assert held is not None and not held.holds
    assert "certificate does NOT hold" in str(held)
    assert any("output 'y' is mistake" in p for p in held.problems)


def test_a_network_that_is_ill_conditioned_is_said_to_be_that() -> None:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 3, 50, 7]"))
    far = b.constant(np.array(3e5, np.float32))
    third = b.constant(np.array(1 / 3, np.float32))
    value = b.add(Sub(), [b.add(Mul(), [b.add(Add(), [x, far]), third]),
                          b.constant(np.array(1e5, np.float32))])  # fmt: skip
    graph = b.graph([b.add(Mul(), [value, third], ["y"])])
    held = verax.compile(graph, certify=True).certificate
    assert held is not None and held.holds
    assert "y is ill-conditioned in itself: float32 rounding alone may move it by 0.0" in str(held)


def test_open_sizes_have_no_certificate() -> None:
    with pytest.raises(InputError, match="is open"):
        verax.compile(network(rows="n"), certify=True)


def test_nodes_that_share_a_name_are_told_apart() -> None:
    """As from Keras: a layer is a transposition, a convolution and a transposition back."""
    rng = np.random.default_rng(23)
    b = Builder("net")
    value = b.input("x", TensorType.parse("float32[2, 19, 22, 24]"))
    for i in range(2):
        w = (rng.standard_normal((24, 24, 3, 3)) / 15).astype(np.float32)
        inner = b.add(Transpose(perm=(0, 3, 1, 2)), [value], name=f"conv{i}")
        inner = b.add(Conv(pads=PADS), [inner, b.constant(w)], name=f"conv{i}")
        value = b.add(Transpose(perm=(0, 2, 3, 1)), [inner], [f"c{i}"], f"conv{i}")
        value = b.add(Relu(), [value], [f"a{i}"], f"act{i}")
    held = verax.compile(b.graph([value]), opt_level=3, certify=True).certificate
    assert held is not None and held.holds and not held.fallbacks
    assert {layer.node for layer in held.draws[0].layers} == {"conv0", "conv1"}


def test_a_recipe_is_held_to_when_the_program_is_certified_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recipe = verax.compile(network(), opt_level=3).recipe
    exe = verax.compile(network(), recipe=recipe, certify=True)
    assert exe.recipe == recipe and exe.certificate is not None and exe.certificate.holds
    with pytest.raises(CompileError, match="another network"):
        verax.compile(network(seed=16), recipe=recipe, certify=True)
    rows = [list(row) for row in winograd.FILTER[4]]
    rows[3][1] *= 1.001
    monkeypatch.setitem(winograd.FILTER, 4, tuple(map(tuple, rows)))
    monkeypatch.setattr(WEIGHTS, "find", lambda *_, **__: None)  # what was packed before is right
    with pytest.raises(CompileError, match="choose_winograd rewrites something"):
        verax.compile(network(), recipe=recipe, certify=True)

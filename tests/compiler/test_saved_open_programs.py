"""Programs for many sizes in .vx files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import GraphError, InputError, ModelError, UnsupportedError, UsageError
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.runtime import vx


def network() -> Graph:
    """Two inputs that share a size, one of whose axes is twice as long."""
    b, rng = Builder("net"), np.random.default_rng(51)
    x = b.input("x", TensorType(DType.float32, (symbol("batch"), symbol("time"), 12)))
    y = b.input("y", TensorType(DType.float32, (symbol("batch"), 2 * symbol("time"), 12)))
    weights = b.constant(rng.standard_normal((12, 20)).astype(np.float32), "w")
    joined = b.add(REGISTRY["Concat"](axis=1), [x, y])
    return b.graph([b.add(REGISTRY["Tanh"](), [b.add(REGISTRY["MatMul"](), [joined, weights])])])


def sized_by_value() -> Graph:
    """The value of an input sets a size, which no program leaves open."""
    b = Builder("sized")
    x = b.input("x", TensorType(DType.float32, (symbol("batch"), 1)))
    shape = b.input("shape", TensorType(DType.int64, (2,)))
    return b.graph([b.add(REGISTRY["Expand"](), [x, shape])])


def arrays(batch: int, time: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(100 * batch + time)
    return {
        "x": rng.standard_normal((batch, time, 12)).astype(np.float32),
        "y": rng.standard_normal((batch, 2 * time, 12)).astype(np.float32),
    }


@pytest.fixture
def saved(tmp_path: Path) -> SavedExecutable:
    exe = verax.compile(network(), threads=1)
    exe.save(tmp_path / "net.vx", sizes={"batch": 2, "time": 5})
    loaded = verax.load(tmp_path / "net.vx")
    assert isinstance(loaded, SavedExecutable)
    return loaded


def test_it_runs_all_sizes_with_the_bits_of_the_executable(saved: SavedExecutable) -> None:
    exe = verax.compile(network(), threads=1)
    assert {v: str(t) for v, t in saved.inputs.items()} == {
        "x": "float32[batch, time, 12]", "y": "float32[batch, 2*time, 12]",
    }  # fmt: skip
    assert str(next(iter(saved.outputs.values()))) == "float32[batch, 3*time, 20]"
    for sizes in ((2, 5), (1, 1), (7, 33), (2, 5), (3, 4)):
        inputs = arrays(*sizes)
        want, got = exe.run(inputs), saved.run(inputs)
        assert list(want) == list(got)
        for value, array in want.items():
            assert got[value].shape == array.shape
            assert got[value].tobytes() == array.tobytes()


def test_inputs_that_do_not_fit_are_told(saved: SavedExecutable) -> None:
    good = arrays(2, 5)
    cases = [
        ({"x": good["x"]}, "input 'y' is missing"),
        ({**good, "z": good["x"]}, "no input is 'z'"),
        ({**good, "x": good["x"][0]}, "has 2 axes"),
        ({**good, "y": arrays(3, 5)["y"]}, r"batch is 3 here and 2 in x\[0\]"),
        ({**good, "y": good["y"][:, 1:]}, "the program takes float32"),
        ({**good, "x": good["x"].astype(np.float64)}, "float64"),
        (arrays(0, 5), "not for batch=0"),
    ]
    for inputs, message in cases:
        with pytest.raises(InputError, match=message):
            saved.run(inputs)
    saved.run(good)


def test_a_size_that_a_condition_excludes_is_told(tmp_path: Path) -> None:
    b, rng = Builder("strassen"), np.random.default_rng(52)
    x = b.input("x", TensorType(DType.float32, (symbol("rows"), 512)))
    weights = b.constant((rng.standard_normal((512, 512)) / 16).astype(np.float32), "w")
    exe = verax.compile(b.graph([b.add(REGISTRY["MatMul"](), [x, weights])]), threads=1)
    exe.save(tmp_path / "net.vx", sizes={"rows": 100})
    saved = verax.load(tmp_path / "net.vx")
    assert isinstance(saved, SavedExecutable)
    few, many = (rng.standard_normal((n, 512)).astype(np.float32) for n in (9, 77))
    value = next(iter(saved.outputs))
    assert saved.run({"x": many})[value].tobytes() == exe.run({"x": many})[value].tobytes()
    with pytest.raises(InputError, match="not for rows=9") as raised:
        saved.run({"x": few})
    assert "--open" in str(raised.value)


def test_what_cannot_be_saved_so_is_refused(tmp_path: Path) -> None:
    exe, to = verax.compile(network(), threads=1), tmp_path / "net.vx"
    for sizes in ({}, {"batch": 2}, {"batch": 2, "time": 0}, {"batch": 2, "time": 3, "more": 4}):
        with pytest.raises(UsageError, match="the open sizes are batch, time"):
            exe.save(to, sizes=sizes)
    b = Builder("invalid")
    x = b.input("x", TensorType(DType.float32, (symbol("n"), 4)))
    b_ = b.add(REGISTRY["Reshape"](), [x, b.constant(np.array([-1, 6]))])
    with pytest.raises(GraphError):
        verax.compile(b.graph([b_]), threads=1).save(to, sizes={"n": 4})
    with pytest.raises(UnsupportedError, match="serves many sizes"):
        verax.compile(sized_by_value(), threads=1).save(to, sizes={"batch": 1})
    assert not to.exists()


def test_names_that_are_too_few_are_no_file(tmp_path: Path, saved: SavedExecutable) -> None:
    notes = {**saved.notes, "open_names": ["batch"]}
    vx.save_binary(tmp_path / "other.vx", saved.binary, notes)
    with pytest.raises(ModelError, match="names"):
        verax.load(tmp_path / "other.vx")

"""A .vx file is read whole and unchanged, or refused before anything of it is used."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from verax.base.errors import ModelError
from verax.runtime.program_binary import (
    PAGE,
    ProgramBinary,
    PythonStep,
    Segment,
    Signature,
    Tensor,
    contract,
)
from verax.runtime.vx import MAGIC, load_binary, save_binary

BARE = ProgramBinary(
    target="avx2",
    object_code=b"",
    weights=np.arange(9001, dtype=np.uint32).view(np.uint8),
    arena_bytes=4096,
    inputs=(Signature("x", "float32", (2, 3, 5)),),
    outputs=(Signature("y", "int64", (7,)),),
    schedule=(
        Segment("segment_0"),
        PythonStep(
            3,
            (Tensor("x", "io", 0, "float32", (2, 3, 5)), None),
            (Tensor("y", "io", 1, "int64", (7,)),),
        ),
    ),
    checks=("gather",),
    pool=True,
    kept_bytes=64,
)
IMAGE = dataclasses.replace(BARE, object_code=b"not run here" * 500 + contract(BARE))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "net.vx"
    save_binary(found, IMAGE, {"graph": "the text"})
    return found


def test_what_was_saved_is_loaded(path: Path) -> None:
    binary, notes = load_binary(path)
    assert notes == {"graph": "the text"}
    assert bytes(binary.object_code) == IMAGE.object_code
    np.testing.assert_array_equal(binary.weights, IMAGE.weights)
    assert (binary.inputs, binary.outputs) == (IMAGE.inputs, IMAGE.outputs)
    assert (binary.schedule, binary.checks) == (IMAGE.schedule, IMAGE.checks)
    assert (binary.arena_bytes, binary.pool) == (4096, True)


def test_weights_lie_on_a_page(path: Path) -> None:
    weights = load_binary(path)[0].weights
    assert weights.ctypes.data % PAGE == 0
    assert not weights.flags.writeable


def test_no_changed_byte_is_accepted(path: Path) -> None:
    whole = path.read_bytes()
    rng = np.random.default_rng(4)
    starts = [whole.index(text) for text in (MAGIC, b'"arena_bytes"', b"not run", b'"segment_0"')]
    places = [s + int(rng.integers(12)) for s in starts for _ in range(6)]
    for place in [*range(56), *places, PAGE - 1, len(whole) - PAGE, len(whole) - 1]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(ModelError):
            load_binary(path)


@pytest.mark.parametrize("keep", [0, 1, 20, 48, 300, PAGE, PAGE + 100])
def test_no_truncation_is_accepted(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError):
        load_binary(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_binary(tmp_path / "none.vx")
    assert caught.value.place.endswith("none.vx")

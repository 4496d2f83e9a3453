"""What a program remembers, in its .vx file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verax.base.errors import ModelError
from verax.runtime.program_binary import PAGE, ProgramBinary, Signature, State, contract
from verax.runtime.vx import MAGIC, VERSION, load_binary, save_binary

PREFIX = struct.Struct("<8sII32s")
STATE = (
    State("count", "more", np.array(5, np.int64)),
    State("rows", "moved", np.arange(6, dtype=np.float32).reshape(2, 3), in_place=True),
)
IMAGE = ProgramBinary(
    target="avx2",
    object_code=b"",
    weights=np.arange(40, dtype=np.uint8),
    arena_bytes=64,
    inputs=(
        Signature("x", "float32", (2, 3)),
        Signature("count", "int64", ()),
        Signature("rows", "float32", (2, 3)),
    ),
    outputs=(
        Signature("y", "float32", (2, 3)),
        Signature("more", "int64", ()),
        Signature("moved", "float32", (2, 3)),
    ),
    schedule=(),
    state=STATE,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "net.vx"
    save_binary(found, IMAGE, {})
    return found


def rewritten(path: Path, change: Callable[[dict[str, Any]], None], version: int) -> None:
    """The file with another header, checksum and all."""
    data = path.read_bytes()
    _, _, length, _ = PREFIX.unpack(data[: PREFIX.size])
    header = json.loads(data[PREFIX.size : PREFIX.size + length])
    change(header)
    text = json.dumps(header).encode()
    start = -(-(PREFIX.size + length) // PAGE) * PAGE
    prefix = PREFIX.pack(MAGIC, version, len(text), hashlib.sha256(text).digest())
    assert len(prefix + text) <= start
    path.write_bytes((prefix + text).ljust(start, b"\0") + data[start:])


def test_state_is_read_back_with_its_initial_values(path: Path) -> None:
    binary, _ = load_binary(path)
    for found, want in zip(binary.state, STATE, strict=True):
        assert (found.input, found.output) == (want.input, want.output)
        assert found.in_place == want.in_place
        assert found.initial.dtype == want.initial.dtype
        np.testing.assert_array_equal(found.initial, want.initial)


def test_a_header_that_is_only_written_anew_is_read(path: Path) -> None:
    rewritten(path, lambda header: None, VERSION)
    assert len(load_binary(path)[0].state) == 2


def lacks_the_entry(header: dict[str, Any]) -> None:
    del header["image"]["state"]


def names_no_input(header: dict[str, Any]) -> None:
    header["image"]["state"][0]["input"] = "z"


def pairs_two_types(header: dict[str, Any]) -> None:
    header["image"]["state"][0]["output"] = "moved"


def is_no_text(header: dict[str, Any]) -> None:
    header["image"]["state"][0]["input"] = 3


def lacks_the_values(header: dict[str, Any]) -> None:
    del header["sections"]["state"]


def leaves_values_over(header: dict[str, Any]) -> None:
    header["image"]["state"].pop()


def wants_more_values(header: dict[str, Any]) -> None:
    header["image"]["state"].append({"input": "x", "output": "y", "in_place": False})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lacks_the_entry, "lacks 'state'"),
        (names_no_input, "is no input"),
        (pairs_two_types, "changes its type"),
        (is_no_text, "is no text"),
        (lacks_the_values, "lacks 'state'"),
        (leaves_values_over, "too long"),
        (wants_more_values, "too short"),
    ],
)
def test_state_that_does_not_fit_the_program_is_refused(
    path: Path, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    rewritten(path, change, VERSION)
    with pytest.raises(ModelError, match=words):
        load_binary(path)


@pytest.mark.parametrize("twice", ["input", "output"])
def test_one_input_or_output_belongs_to_one_state(tmp_path: Path, twice: str) -> None:
    other = State("x", "y", STATE[1].initial)
    wrong = dataclasses.replace(other, **{twice: getattr(STATE[1], twice)})
    path = tmp_path / "net.vx"
    save_binary(path, dataclasses.replace(IMAGE, state=(STATE[1], wrong)), {})
    with pytest.raises(ModelError, match="two states"):
        load_binary(path)


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_another_version_is_refused_by_name(path: Path, version: int) -> None:
    rewritten(path, lambda header: None, version)
    with pytest.raises(ModelError, match=f"version {version}"):
        load_binary(path)


def test_code_belongs_to_its_state(tmp_path: Path) -> None:
    """The digest that code carries covers what the program remembers at first."""
    first = contract(IMAGE)
    assert contract(dataclasses.replace(IMAGE, state=STATE[:1])) != first
    changed = (State("count", "more", np.array(6, np.int64)), STATE[1])
    assert contract(dataclasses.replace(IMAGE, state=changed)) != first


def test_an_image_that_remembers_nothing_has_an_empty_section(tmp_path: Path) -> None:
    plain = tmp_path / "plain.vx"
    save_binary(plain, dataclasses.replace(IMAGE, state=()), {})
    assert load_binary(plain)[0].state == ()

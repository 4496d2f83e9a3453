"""The limit on memory: how it is written, where it comes from, what happens beyond it."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from verax.base.errors import InputError, UsageError
from verax.base.machine import memory

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "size"),
    [("8G", 8 * GIB), ("512MiB", 512 << 20), ("1.5g", 3 * GIB // 2), ("77", 77)],
)
def test_amounts_are_read_as_people_write_them(text: str, size: int) -> None:
    assert memory.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-1G", "0", "8 apples", "1e9", "G"])
def test_other_amounts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no amount of memory"):
        memory.parse_bytes(text)


def test_the_limit_is_that_of_the_call_then_of_the_environment_then_what_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(memory.VARIABLE, raising=False)
    assert 0 < memory.limit() < memory.available_bytes() * 1.1
    monkeypatch.setenv(memory.VARIABLE, "3G")
    assert memory.limit() == 3 * GIB
    with memory.limited(5 * GIB):
        assert memory.limit() == 5 * GIB
        with memory.limited(None):
            assert memory.limit() == 5 * GIB
    assert memory.limit() == 3 * GIB


def test_what_is_larger_than_the_limit_is_refused_with_place_and_next_step() -> None:
    with memory.limited(3 << 20):
        memory.require(3 << 20, "a tensor")
        with pytest.raises(InputError, match=r"a tensor would take 4 MiB.* 3 MiB") as caught:
            memory.require(4 << 20, "a tensor", "node 'a'")
    assert caught.value.place == "node 'a'"
    assert memory.VARIABLE in caught.value.next_step


def test_the_own_limit_of_the_process_counts() -> None:
    code = "from verax.base.machine.memory import available_bytes; print(available_bytes())"

    def confine() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (GIB, GIB))

    done = subprocess.run(
        [sys.executable, "-c", code], preexec_fn=confine, capture_output=True, text=True, check=True
    )
    assert 0 < int(done.stdout) < GIB


def test_a_control_group_counts_with_what_it_caches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    assert memory._left(tmp_path, "memory.max", "memory.current") == [450]
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._left(tmp_path, "memory.max", "memory.current") == []


def test_copies_count_against_what_is_free_and_not_against_a_limit_that_was_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(memory.VARIABLE, raising=False)
    monkeypatch.setattr(memory, "available_bytes", lambda: GIB)
    memory.require(200 << 20, "a tensor", copies=4)
    with pytest.raises(InputError, match="250 MiB, more than the 205 MiB that are free"):
        memory.require(250 << 20, "a tensor", copies=4)
    with memory.limited(300 << 20):
        memory.require(250 << 20, "a tensor", copies=4)


def test_a_reference_that_would_need_more_than_is_free_is_refused_before_it_is_run() -> None:
    """Its result alone would fit; with what it holds meanwhile the system would end the process."""
    code = """
import resource
import numpy as np
from verax.base.errors import InputError
from verax.base.machine.memory import available_bytes
from verax.ir.graph import Builder
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
import verax.ops
from verax.reference.evaluate import promised

b = Builder()
x, scales = b.input("x", TensorType.parse("float32[1, 3, 8, 8]")), b.constant(
    np.array([1, 1, 1450, 1450], np.float32))
graph = b.graph([b.add(REGISTRY["Resize"](mode="cubic", antialias=True), [x, None, scales])])
resource.setrlimit(resource.RLIMIT_AS, (5 << 30, 5 << 30))
size = 4 * 3 * (8 * 1450) ** 2
assert size < 0.6 * available_bytes(), "its result alone would fit"
try:
    promised(graph, {"x": np.zeros((1, 3, 8, 8), np.float32)})
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "what this node gives would take" in done.stdout, done.stderr

"""Programs for many sizes on the disk, and programs of their own for sizes that come often."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compiler.test_open_sizes import image_network, rows
from verax.base.errors import ModelError
from verax.base.option_groups.settings import Settings
from verax.compiler import hot_sizes
from verax.compiler.artifacts.cache import ProgramCache
from verax.compiler.artifacts.save import save
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.specialize import Specializer
from verax.runtime import open_sizes, size_code
from verax.runtime.program_binary import PAGE
from verax.runtime.vx import MAGIC, VERSION, load_binary

TWO = Settings(2, threads=1)
PREFIX = struct.Struct("<8sII32s")


def images(cache: ProgramCache | None = None, settings: Settings = TWO) -> Executable:
    return compile(image_network(np.random.default_rng(21)), settings, cache=cache)


def answers(exe: Executable, h: int, w: int) -> list[bytes]:
    return [a.tobytes() for a in exe.run({"x": rows(h, 2, 3, h, w)}).values()]


def no_program(*_: object) -> None:
    raise AssertionError("nothing is to be compiled")


# --- on the disk


def test_another_process_finds_it_and_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = images(ProgramCache(tmp_path))
    wanted = [answers(made, 40, 33), answers(made, 23, 51)]
    monkeypatch.setattr(Specializer, "_compile", no_program)
    found = images(ProgramCache(tmp_path))
    assert [answers(found, 40, 33), answers(found, 23, 51)] == wanted
    assert found.program is not made.program and found.program.binary.open_sizes is not None
    assert found.plan.lines == made.plan.lines and found.plan.arena_bytes == made.plan.arena_bytes


def test_how_a_kept_one_was_made_is_made_again(tmp_path: Path) -> None:
    made, found = (images(ProgramCache(tmp_path)) for _ in range(2))
    for exe in (made, found):
        answers(exe, 40, 33)
    assert str(found._bound().specialized.trace) == str(made._bound().specialized.trace)


def test_settings_and_networks_have_entries_of_their_own(tmp_path: Path) -> None:
    answers(images(ProgramCache(tmp_path)), 40, 33)
    for settings in (Settings(1, threads=1), Settings(2, threads=2)):
        other = images(ProgramCache(tmp_path), settings)
        answers(other, 40, 33)
        assert other._bound().specialized.cached_notes is None
    assert len(list(tmp_path.glob("*.vx"))) == 3


def test_a_damaged_entry_is_made_anew(tmp_path: Path) -> None:
    wanted = answers(images(ProgramCache(tmp_path)), 40, 33)
    (path,) = tmp_path.glob("*.vx")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 8
    path.write_bytes(content)
    path.chmod(0o600)
    again = images(ProgramCache(tmp_path))
    assert answers(again, 40, 33) == wanted
    assert again._bound().specialized.cached_notes is None


def test_an_entry_found_again_compiles_no_expression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = answers(images(ProgramCache(tmp_path)), 40, 33)
    monkeypatch.setattr(open_sizes, "_compiled", no_program)
    assert answers(images(ProgramCache(tmp_path)), 40, 33) == wanted


def test_code_of_another_python_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as other:
        other.setattr(size_code, "PYTHON", "cpython 1")
        wanted = answers(images(ProgramCache(tmp_path)), 40, 33)
    monkeypatch.setattr(size_code.marshal, "loads", no_program)
    found = images(ProgramCache(tmp_path))
    assert answers(found, 40, 33) == wanted
    assert found._bound().specialized.cached_notes is not None


@pytest.mark.parametrize("code", ["", "AAAA", {}, None])
def test_code_that_is_none_is_a_damaged_entry(code: object, tmp_path: Path) -> None:
    wanted = answers(images(ProgramCache(tmp_path)), 40, 33)
    (path,) = tmp_path.glob("*.vx")
    rewritten(path, lambda header: header["size_code"].update(code=code))
    again = images(ProgramCache(tmp_path))
    assert answers(again, 40, 33) == wanted
    assert again._bound().specialized.cached_notes is None


def test_a_file_of_a_user_has_no_code_of_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, record = tmp_path / "net.vx", {"python": size_code.PYTHON, "code": "AAAA"}
    save(images(), path, sizes={"n": 2, "h": 40, "w": 33})
    monkeypatch.setattr(size_code.marshal, "loads", no_program)
    load_binary(path)
    rewritten(path, lambda header: header.update(size_code=record))
    with pytest.raises(ModelError, match="only an entry"):
        load_binary(path)


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The file with another header, checksum and all."""
    data = path.read_bytes()
    _, _, length, _ = PREFIX.unpack(data[: PREFIX.size])
    header = json.loads(data[PREFIX.size : PREFIX.size + length])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    start, end = (-(-(PREFIX.size + n) // PAGE) * PAGE for n in (length, len(text)))
    prefix = PREFIX.pack(MAGIC, VERSION, len(text), hashlib.sha256(text).digest())
    path.write_bytes((prefix + text).ljust(end, b"\0") + data[start:])
    path.chmod(0o600)


def of_first(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    """The first of a list becomes `value`."""

    def change(sizes: dict[str, Any]) -> None:
        sizes[key][0] = value

    return change


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "a power": (of_first("entries", "d0**d1"), "no expression"),
    "an unknown size": (of_first("entries", "d0 + d7"), "no expression"),
    "a name": (of_first("entries", "exit(d0)"), "no expression"),
    "an attribute": (of_first("entries", "d0.__class__"), "no expression"),
    "two in one": (of_first("entries", "d0, d1"), "another header"),
    "half of one": (of_first("entries", "(d0"), "no expression"),
    "a long number": (of_first("entries", "9" * 40), "no expression"),
    "a buffer that is not there": (of_first("entries", "@123456"), "no expression"),
    "a relation": (of_first("conditions", ["d0", "<="]), "none of"),
    "no pair": (of_first("conditions", ["d0"]), "no pair"),
    "another rank": (of_first("inputs", ["d0", "3"]), "other shapes"),
    "a later buffer": (lambda s: s["buffers"][0].update(conflicts=[3]), "follows it"),
    "an early start": (lambda s: s.update(start=-4), "whole number"),
    "an entry more": (lambda s: s.update(more=1), "not known"),
    "an entry less": (lambda s: s.pop("start"), "lacks"),
    "another entry": (of_first("entries", "d0 + 1"), "another header"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_header_says_of_sizes_is_not_believed(change: str, tmp_path: Path) -> None:
    path = tmp_path / "net.vx"
    save(images(), path, sizes={"n": 2, "h": 40, "w": 33})
    load_binary(path)
    made, message = CHANGES[change]
    rewritten(path, lambda header: made(header["image"]["open_sizes"]))
    with pytest.raises(ModelError, match=message):
        load_binary(path)


# --- hot sizes


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_sizes, "CALLS", 3)
    monkeypatch.setattr(hot_sizes, "SECONDS", 0.0)


@pytest.mark.usefixtures("soon")
def test_sizes_that_come_often_get_a_program_of_their_own() -> None:
    exe = images()
    wanted = answers(exe, 40, 33)
    shared = exe.program
    for _ in range(2):
        answers(exe, 40, 33)
    exe._hot.wait()
    assert answers(exe, 40, 33) == wanted
    assert exe.program is not shared and exe.program.binary.open_sizes is None
    assert answers(exe, 23, 51) and exe.program is shared
    assert answers(exe, 40, 33) == wanted and exe.program is not shared


@pytest.mark.usefixtures("soon")
def test_few_sizes_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_sizes, "MOST_HOT", 2)
    exe = images()
    sizes = [(40, 33), (23, 51), (31, 38), (27, 45)]
    for size in sizes:
        for _ in range(3):
            answers(exe, *size)
        exe._hot.wait()
    assert len(exe._programs) == 2


@pytest.mark.usefixtures("soon")
def test_large_weights_are_not_held_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    measured, exe = images(), images()
    answers(measured, 40, 33)
    monkeypatch.setattr(hot_sizes, "MOST_BYTES", measured.program.binary.weight_bytes - 1)
    for _ in range(6):
        answers(exe, 40, 33)
    exe._hot.wait()
    assert exe.program.binary.open_sizes is not None


@pytest.mark.usefixtures("soon")
def test_none_is_made_beside_where_that_is_not_wanted() -> None:
    exe = images(settings=dataclasses.replace(TWO, background=False))
    for _ in range(5):
        answers(exe, 40, 33)
    exe._hot.wait()
    assert exe.program.binary.open_sizes is not None


@pytest.mark.usefixtures("soon")
def test_a_failure_beside_is_said_once_and_costs_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("of ours")

    exe = images()
    wanted = answers(exe, 40, 33)
    monkeypatch.setattr(Specializer, "specialize", fails)
    with pytest.warns(UserWarning, match="RuntimeError: of ours"):
        for _ in range(3):
            answers(exe, 40, 33)
        exe._hot.wait()
    for _ in range(5):
        assert answers(exe, 40, 33) == wanted


SCRIPT = """
    import os, sys
    import numpy as np
    from tests.compiler.test_kept_open_programs import answers, images
    from verax.compiler import hot_sizes
    hot_sizes.CALLS, hot_sizes.SECONDS = 2, 0.0
    exe = images()
    wanted = answers(exe, 40, 33)
    assert answers(exe, 40, 33) == wanted
    assert exe._hot._thread is not None
"""


def run_script(more: str) -> subprocess.CompletedProcess[str]:
    script = textwrap.dedent(SCRIPT) + textwrap.dedent(more)
    environment = {**os.environ, "VERAX_CACHE": "off"}
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )


def test_a_process_ends_while_one_is_being_made() -> None:
    done = run_script("")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_makes_its_own() -> None:
    done = run_script(
        """
        child = os.fork()
        if child == 0:
            for _ in range(3):
                assert answers(exe, 40, 33) == wanted
            exe._hot.wait()
            assert answers(exe, 40, 33) == wanted
            assert exe.program.binary.open_sizes is None
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """
    )
    assert done.returncode == 0, done.stderr

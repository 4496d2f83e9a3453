"""Programs with sizes that data decide, on the disk: found, made again, and not believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compiler.test_counted_sizes import WIDTH, drawn, picked, result_of
from tests.compiler.test_kept_open_programs import rewritten
from verax.base.errors import ModelError
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.cache import ProgramCache
from verax.compiler.compile import compile
from verax.compiler.specialize import Specializer
from verax.ir.graph import Builder
from verax.ir.types import DType, TensorType
from verax.ops.movement.gather import Compress
from verax.ops.pointwise.arithmetic import Add
from verax.runtime import open_sizes
from verax.runtime.vx import load_binary, save_binary


def no_program(*_: object, **__: object) -> None:
    raise AssertionError("nothing is to be compiled")


def test_another_process_finds_a_program_that_counts_and_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, cases = picked(None, [0, 1, 7, 13], True), [drawn(n, 0.3, n) for n in (71, 23, 40)]
    made = compile(graph, Settings(2, threads=1), cache=ProgramCache(tmp_path))
    wanted = [result_of(made, inputs) for inputs in cases]
    monkeypatch.setattr(Specializer, "_compile", no_program)
    monkeypatch.setattr(open_sizes, "_compiled", no_program)
    found = compile(graph, Settings(2, threads=1), cache=ProgramCache(tmp_path))
    assert [result_of(found, inputs) for inputs in cases] == wanted
    assert (
        found.program is not made.program
        and found.program.binary.schedule == made.program.binary.schedule
    )
    assert found.plan.lines == made.plan.lines


def test_how_a_kept_program_that_counts_was_made_is_made_again(tmp_path: Path) -> None:
    graph = picked(71, [0, 7], True)
    made, found = (
        compile(graph, Settings(2, threads=1), cache=ProgramCache(tmp_path)) for _ in range(2)
    )
    for exe in (made, found):
        result_of(exe, drawn(71, 0.4, 3))
    assert found._bound().specialized.cached_notes is not None
    traces = [str(exe._bound().specialized.trace) for exe in (made, found)]
    assert traces[0] == traces[1] != ""


def test_programs_for_other_counts_are_found_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of two masks are added: one program for equal counts, one where the second is 1."""
    b = Builder("added")
    x = b.input("x", TensorType(DType.float32, (71, WIDTH)))
    masks = [b.input(f"mask{i}", TensorType(DType.bool_, (71,))) for i in range(2)]
    graph = b.graph([b.add(Add(), [b.add(Compress(axis=0), [x, m]) for m in masks])])
    x_value = np.random.default_rng(3).standard_normal((71, WIDTH)).astype(np.float32)
    first = np.arange(71) % 3 == 0
    cases = [{"x": x_value, "mask0": first, "mask1": m} for m in (first, np.arange(71) < 1)]
    made = compile(graph, Settings(2, threads=1), cache=ProgramCache(tmp_path))
    wanted = [result_of(made, inputs) for inputs in cases]
    assert "refused" not in wanted and len(made._open.programs) == 2
    monkeypatch.setattr(Specializer, "_compile", no_program)
    found = compile(graph, Settings(2, threads=1), cache=ProgramCache(tmp_path))
    assert [result_of(found, inputs) for inputs in reversed(cases)] == wanted[::-1]


def shifted(sizes: dict[str, Any], key: str, value: object) -> None:
    sizes["counted"][0][key] = value


HEADERS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "the size of an input": (
        lambda s: s.update(symbols=[*s["symbols"], "m"], unknown=0),
        "which is an input's",
    ),
    "a size that is none": (lambda s: shifted(s, "symbol", 99), "no expression"),
    "no buffer": (lambda s: shifted(s, "entry", 0), "no buffer by then"),
    "an entry that is none": (lambda s: shifted(s, "entry", 1 << 20), "no buffer by then"),
    "a limit that follows from it": (lambda s: shifted(s, "limit", "d1"), "no limit"),
    "a limit that is code": (lambda s: shifted(s, "limit", "exit(1)"), "no expression"),
    "none that is counted": (lambda s: s.update(counted=[]), "no expression|are counted"),
    "no unknown size": (lambda s: s.update(unknown=0), "no expression"),
    "an input that is counted": (lambda s: s["inputs"].__setitem__(0, ["d1", "5"]), "of an input"),
    "half a condition": (lambda s: s.update(count_conditions=[["d1", "<"]]), "three"),
    "a buffer that is not there": (lambda s: s.update(entries=["@99999"]), "no expression"),
    "another limit": (lambda s: shifted(s, "limit", "d0 + 1"), "another header"),
}


@pytest.mark.parametrize("change", HEADERS)
def test_what_a_header_says_of_counts_is_not_believed(change: str, tmp_path: Path) -> None:
    graph = picked(None, [0, 12], False)
    exe = compile(graph, Settings(2, threads=1))
    result_of(exe, drawn(40, 0.5, 1))
    path = tmp_path / "net.vx"
    save_binary(path, exe.program.binary, {})
    load_binary(path)
    made, message = HEADERS[change]
    rewritten(path, lambda header: made(header["image"]["open_sizes"]))
    with pytest.raises(ModelError, match=message):
        load_binary(path)

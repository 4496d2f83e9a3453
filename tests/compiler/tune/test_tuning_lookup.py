"""What a history says is taken for exactly the same kernel and machine, told of for the family, and
never for anything else."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import verax.compiler.kernels.convolution.emit  # noqa: F401  (registers its emitter)
from verax.base.errors import UsageError
from verax.compiler.kernels import registry
from verax.compiler.kernels.canonical import canonical, digest
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.layout import Epilogue, Operand, blocked_strides
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix
from verax.compiler.kernels.target import Target
from verax.compiler.tune import lookup
from verax.compiler.tune.history import ChosenSchedule, Contents, History, chosen_line
from verax.compiler.tune.host import Host, LineOrigin, code_digest
from verax.compiler.tune.lookup import Tuned, encoded, read_history
from verax.numerics.expr import trace

TARGET = Target.avx2()
HERE = Host.here(TARGET, 3)
SPEC = ConvSpec(
    batch=2, channels=33, filters=50, output=(1, 9, 7), kernel=(1, 3, 2),
    x=blocked_strides(33, (1, 11, 8)), y=blocked_strides(50, (1, 9, 7)),
    epilogue=Epilogue(
        trace(lambda m, a, b: m.add(m.max(a, m.const(-0.0, "float32")), m.mul(b, m.max(
            a, m.const(-0.0, "float32")))), ["float32", "float32"]),
        (Operand("channel", dtype="float32"),),
    ),
    types=FLOAT32,
)  # fmt: skip
OTHER = registry.candidates(SPEC, TARGET)[1]


def record(host: Host = HERE, schedule: Any = OTHER, spec: Any = SPEC) -> ChosenSchedule:
    return ChosenSchedule(digest(spec), host, encoded(schedule), 1.5)


def tuned(*records: ChosenSchedule, threads: int = 3, target: Target = TARGET) -> Tuned:
    return Tuned(Contents(records), target, threads)


def test_an_exact_record_is_taken() -> None:
    asked = tuned(record()).lookup()
    assert asked(SPEC) == OTHER != registry.schedules(SPEC, TARGET)[0]
    assert asked.summary == "1 of 1 kernels tuned exactly here"


CHANGED = {
    "same family (1 threads)": {"threads": 1},
    "same family (another processor of the family)": {"caches": (1, 2, 3)},
    "none": {"family": "Another 6"},
}


@pytest.mark.parametrize("said", CHANGED)
def test_other_machines_and_threads_are_told_of_and_not_taken(said: str) -> None:
    host = dataclasses.replace(HERE, **CHANGED[said])  # type: ignore[arg-type]
    asked = tuned(record(host)).lookup()
    assert asked(SPEC) is None
    assert asked.summary == f"0 of 1 kernels tuned exactly here; 1 {said}"
    assert tuned(record(host)).digest == ""


def test_what_another_version_found_on_this_machine_is_taken_and_told_of() -> None:
    older = record(dataclasses.replace(HERE, code="older"))
    asked = tuned(older).lookup()
    assert asked(SPEC) == OTHER
    assert asked.summary == (
        "0 of 1 kernels tuned exactly here; "
        f"1 from a history of {HERE.processor} (another version of Verax)"
    )
    assert tuned(older).digest
    other = dataclasses.replace(SPEC, batch=3)
    assert tuned(older).lookup()(other) is None


def test_another_target_of_the_same_machine_is_another_machine() -> None:
    """apache/tvm 15549: a lookup that ignored the target."""
    asked = tuned(record(), target=Target.avx512()).lookup()
    assert asked(SPEC) is None
    assert asked.summary.endswith("1 none")


@pytest.mark.parametrize(
    "other",
    [
        {"batch": 3},
        {"kernel": (1, 2, 3)},
        {"bias": False},
        {"y": dataclasses.replace(SPEC.y, batch=SPEC.y.batch + 64)},
        {"epilogue": None},
        {"types": dataclasses.replace(FLOAT32, y="float16")},
    ],
)
def test_another_kernel_has_nothing(other: dict[str, Any]) -> None:
    spec = dataclasses.replace(SPEC, **other)
    assert digest(spec) != digest(SPEC)
    assert tuned(record()).lookup()(spec) is None


def test_one_is_not_true() -> None:
    """Equal to Python, but not to a kernel."""
    assert canonical(dataclasses.replace(SPEC, groups=True)) != canonical(SPEC)
    assert "-0.0" in canonical(SPEC)


DIGEST = "c5eef6e4f0bbf57b6e45e8e9faf9ad043af4f66fec384bb71edb03126a2cd401"


def test_a_kernel_is_called_the_same_everywhere(tmp_path: Path) -> None:
    """apache/tvm 14188: a hash that differed by platform. The text has no address, no order of a
    set and no hash in it; a change of this number makes every history out there useless."""
    assert digest(SPEC) == DIGEST
    code = "from tests.compiler.tune.test_tuning_lookup import *; print(digest(SPEC))"
    root = Path(__file__).parents[3]
    paths = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "77"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == DIGEST


def test_a_field_that_is_added_with_a_default_renames_nothing() -> None:
    spec = GemmSpec(5, 6, 7, Matrix(7, 1), Matrix(6, 1), types=FLOAT32)
    assert "outer" not in canonical(spec)
    assert "outer" in canonical(dataclasses.replace(spec, outer=2))


def test_a_history_that_is_carried_over_still_matches(tmp_path: Path) -> None:
    """Another folder, another time of the files: the digest of the code is of its content."""
    path = tmp_path / "there" / "tuning.jsonl"
    History(path).append([chosen_line(record())])
    moved = tmp_path / "here.jsonl"
    moved.write_bytes(path.read_bytes())
    assert Tuned(read_history(moved, named=True), TARGET, 3).lookup()(SPEC) == OTHER
    source = Path(str(registry.__file__))
    before = code_digest()
    state = source.stat()
    os.utime(source)
    try:
        code_digest.cache_clear()
        assert code_digest() == before
    finally:
        os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))


def test_a_stale_record_is_not_taken_once_a_newer_word_is_there(tmp_path: Path) -> None:
    """apache/tvm 10474: an old record of a schedule that is slow by now."""
    history = History(tmp_path / "tuning.jsonl")
    history.append([chosen_line(record())])
    rule = registry.schedules(SPEC, TARGET)[0]
    history.append([chosen_line(record(schedule=rule))])
    assert Tuned(history.read(), TARGET, 3).lookup()(SPEC) == rule


UNSOUND: dict[str, tuple[str, dict[str, Any]]] = {
    "a tile that does not fit the registers": ("ConvSchedule", {"rows": 30, "cols": 30}),
    "an endless unrolling": ("ConvSchedule", {"unroll": 1 << 15}),
    "a flag for a number": ("ConvSchedule", {"rows": True}),
    "a number for a flag": ("ConvSchedule", {"ahead": 0}),
    "text": ("ConvSchedule", {"near": "16"}),
    "an unknown field": ("ConvSchedule", {"vectors": 3}),
    "another kind": ("AttentionSchedule", {}),
    "an unknown kind": ("ConvScheduleOfTomorrow", {}),
}


@pytest.mark.parametrize("what", UNSOUND)
def test_what_the_kernel_may_not_have_is_never_taken(what: str) -> None:
    kind, fields = UNSOUND[what]
    said = kind, {**encoded(OTHER)[1], **fields}
    asked = tuned(dataclasses.replace(record(), schedule=said)).lookup()
    assert asked(SPEC) is None
    assert asked.summary.startswith("0 of 1")


def test_a_missing_field_is_not_made_up() -> None:
    fields = encoded(OTHER)[1]
    del fields["near"]
    asked = tuned(dataclasses.replace(record(), schedule=("ConvSchedule", fields))).lookup()
    assert asked(SPEC) is None


def test_the_digest_names_what_may_be_taken() -> None:
    other = dataclasses.replace(SPEC, batch=3)
    both = tuned(record(), record(spec=other))
    assert both.digest == tuned(record(spec=other), record()).digest
    assert len({both.digest, tuned(record()).digest, tuned().digest}) == 3
    assert tuned(record(schedule=ConvSchedule())).digest != tuned(record()).digest


def test_a_named_history_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such tuning history"):
        read_history(tmp_path / "nothing", named=True)
    (tmp_path / "text").write_text("hello\n")
    with pytest.raises(UsageError, match="cannot be read"):
        read_history(tmp_path / "text", named=True)


def test_the_usual_history_is_left_out_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "_warned", set())
    (tmp_path / "text").write_text("hello\n")
    with pytest.warns(UserWarning, match="is not used"):
        assert read_history(tmp_path / "text", named=False) == Contents()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_history(tmp_path / "text", named=False) == Contents()
        assert read_history(tmp_path / "nothing", named=False) == Contents()


def test_damaged_lines_are_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_warned", set())
    path = tmp_path / "tuning.jsonl"
    History(path).append([chosen_line(record())])
    path.write_text(path.read_text() + "garbage\n")
    with pytest.warns(UserWarning, match="1 lines .* are damaged"):
        assert len(read_history(path, named=True).schedules) == 1


def test_a_relative_is_taken_when_asked_for_and_named() -> None:
    far = dataclasses.replace(HERE, processor="Older 2")
    near = dataclasses.replace(HERE, code="older")
    candidates = registry.candidates(SPEC, TARGET)
    words = [record(far, candidates[2]), record(near, candidates[1])]
    named = [
        dataclasses.replace(w, origin=LineOrigin(machine=f"m{i}")) for i, w in enumerate(words)
    ]
    transferring = Tuned(Contents(tuple(named)), TARGET, 3, transfers=True)
    asked = transferring.lookup()
    assert asked(SPEC) == candidates[1], "another version is nearer than another processor"
    assert asked.summary == (
        "0 of 1 kernels tuned exactly here; 1 from a history of m1 (another version of Verax)"
    )
    assert transferring.digest == tuned(*named).digest != tuned(named[0]).digest == ""
    assert tuned(named[0]).lookup()(SPEC) is None, "not unless it is asked for"
    assert Tuned(Contents(tuple(named[:1])), TARGET, 3, transfers=True).lookup()(SPEC) is not None
    assert tuned(*named).relatives(SPEC) == [candidates[1], candidates[2]]


def test_a_target_that_does_not_run_here_is_for_the_machine_of_the_history() -> None:
    """A board's history, where the board's program is compiled."""
    foreign = next(t for t in map(Target.named, ("aarch64", "avx2")) if not t.runs_here())
    board = dataclasses.replace(
        Host.here(foreign, 3), processor="Board 4", family="Small", caches=(1 << 15,)
    )
    other = registry.candidates(SPEC, foreign)[1]
    word = dataclasses.replace(record(board, other), origin=LineOrigin(machine="pi"))
    asked = tuned(word, target=foreign).lookup()
    assert asked(SPEC) == other
    assert asked.summary == "1 of 1 kernels tuned exactly on pi"
    second = dataclasses.replace(word, host=dataclasses.replace(board, processor="Board 5"))
    assert tuned(word, second, target=foreign).lookup()(SPEC) is None, "which of the two?"
    assert tuned(word, target=foreign, threads=4).lookup()(SPEC) is None


def test_an_exact_record_comes_before_relatives() -> None:
    near = dataclasses.replace(HERE, code="older")
    both = Contents((record(near, registry.candidates(SPEC, TARGET)[2]), record()))
    asked = Tuned(both, TARGET, 3, transfers=True).lookup()
    assert asked(SPEC) == OTHER
    assert asked.summary == "1 of 1 kernels tuned exactly here"

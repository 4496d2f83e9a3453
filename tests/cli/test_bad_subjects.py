"""Whatever a subject does is said in words, with the right code, and nothing is lost.

Programs as subjects (`cmd:`) stand for all of them: they can do everything wrong that can be done.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import psutil
import pytest

from verax.api import load, reference
from verax.base.storage import npz
from verax.judge.inputs import draw_inputs
from verax.runners import command
from verax.runners.subjects import factory

from .conftest import Cli, Result

SCORES = (2, 4)


def program(folder: Path, body: str) -> str:
    """A subject: `body` sees np, the inputs x, the right answer y, and OUT, the path to write."""
    path = folder / "subject.py"
    answer = folder / "right.npz"
    path.write_text(
        "import os, signal, sys, time\nimport numpy as np\n"
        "x = dict(np.load(sys.argv[1]))\nOUT = sys.argv[2]\n"
        f"y = np.load({str(answer)!r})['scores']\n{body}\n"
    )
    return f"cmd:{sys.executable} {path}"


@pytest.fixture
def judged(cli: Cli, tiny: Path, tmp_path: Path) -> object:
    """Judge a subject whose program is the text given, on inputs drawn with seed 0."""
    graph = load(tiny).graph
    inputs, _ = draw_inputs(graph)
    right = reference(graph, inputs)["scores"].astype(np.float32)
    np.savez(tmp_path / "right.npz", scores=right)
    np.savez(tmp_path / "in.npz", **inputs)

    def judge(body: str, *options: object) -> Result:
        subject = program(tmp_path, body)
        return cli("check", tiny, subject, "--input", tmp_path / "in.npz", *options)

    return judge


def test_a_program_that_is_right_passes_and_is_recorded(judged, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    found = judged("np.savez(OUT, scores=y)", "--json", tmp_path / "record.json")
    assert found.code == 0, found.err
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["kind"] in ("identical", "rounding")
    assert "subject.py" in record["subject"]["command"]


REFUSED = {
    "it dies by a signal": ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    "it fails": ("print('no disk'); sys.exit(7)", "exit code 7): no disk"),
    "it raises": ("raise ValueError('bad weights')", "ValueError: bad weights"),
    "it is interrupted": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "it writes nothing": ("print('done')", "wrote no output file: done"),
    "it writes nothing into the file": ("open(OUT, 'w')", "it is empty"),
    "it writes garbage": ("open(OUT, 'w').write('0.1 0.2')", "no zip archive"),
    "it stops half-way": (
        "np.savez(OUT, scores=y); d = open(OUT, 'rb').read(); open(OUT, 'wb').write(d[:99])",
        "no zip archive",
    ),
    "it writes objects": (
        "np.savez(OUT, scores=np.array([{}], object))",
        "Python objects, which are not read",
    ),
    "it writes complex numbers": ("np.savez(OUT, scores=y + 1j)", "no real numbers"),
    "it writes texts": ("np.savez(OUT, scores=np.array(['cat']))", "no real numbers"),
    "it writes an empty archive": ("np.savez(OUT)", "no value of this network"),
    "it writes strangers only": (
        "np.savez(OUT, a=y[0], b=y[:, 0])",
        "name its answers as the network does: scores",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_answers_that_cannot_be_read_are_refused(judged, fault: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    body, words = REFUSED[fault]
    found = judged(body, "--json", tmp_path / "record.json")
    assert found.code == 2
    assert words in found.err
    assert "bug of Verax" not in found.err
    assert not (tmp_path / "record.json").exists()


JUDGED = {
    "another shape": ("np.savez(OUT, scores=y[:, :3])", 1, "it should be float32[2, 4]"),
    "another element type": ("np.savez(OUT, scores=(100 * y).astype('i4'))", 1, "mistake"),
    "double precision": ("np.savez(OUT, scores=y.astype('f8'))", 0, ""),
    "NaN": ("y[1, 2] = np.nan; np.savez(OUT, scores=y)", 1, "NaN"),
    "infinity": ("y[1, 2] = np.inf; np.savez(OUT, scores=y)", 1, "infinite"),
    "another name": ("np.savez(OUT, **{'final_result:0': y})", 0, "was taken for the output"),
    "TensorFlow's name": ("np.savez(OUT, **{'scores:0': y})", 0, "was taken for 'scores'"),
    "more than asked": ("np.savez(OUT, scores=y, debug=y)", 0, "which this network has not"),
    "megabytes of talk": ("print('x' * 40_000_000); np.savez(OUT, scores=y)", 0, ""),
    "a wrong number": ("y[1, 2] *= 1.01; np.savez(OUT, scores=y)", 1, "mistake"),
}


@pytest.mark.parametrize("answer", JUDGED)
def test_odd_answers_are_judged_and_recorded(judged, answer: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    body, code, words = JUDGED[answer]
    found = judged(body, "--json", tmp_path / "record.json")
    assert found.code == code, found.out + found.err
    assert words in found.out
    kind = json.loads((tmp_path / "record.json").read_text())["kind"]
    assert (kind == "mistake") == (code == 1)


UNSTEADY = {
    # Numbers that are kept or dropped would be the same ones in 1.3 % of all pairs of runs.
    "numbers by chance": ("r = np.random.default_rng(); y *= r.random(y.shape)", (1,)),
    "memory that nobody wrote": ("y = np.r_[y, np.empty((60000, 4), 'f4')][-2:]", (1,)),
}


@pytest.mark.parametrize("fault", UNSTEADY)
def test_an_answer_that_changes_is_no_answer(judged, fault: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    body, codes = UNSTEADY[fault]
    found = judged(f"{body}; np.savez(OUT, scores=y)", "--json", tmp_path / "record.json")
    assert found.code in codes
    assert "does not repeat itself" in found.out
    repeat = json.loads((tmp_path / "record.json").read_text())["repeat"]
    assert not repeat["same_bits"]


def test_failing_the_second_time_is_said_and_the_verdict_kept(judged, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    mark = tmp_path / "ran"
    body = f"np.savez(OUT, scores=y); ran = os.path.exists({str(mark)!r}); open({str(mark)!r}, 'w')"
    found = judged(f"{body}; sys.exit(9 if ran else 0)", "--json", tmp_path / "record.json")
    assert "exit code 9" in found.out
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["outputs"][0]["kind"] in ("identical", "rounding")


def test_a_hanging_program_is_stopped_with_its_children(
    judged,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,  # type: ignore[no-untyped-def]
) -> None:
    short = factory.runner_of

    def impatient(*arguments: object, **options: object) -> object:
        runner = short(*arguments, **options)  # type: ignore[arg-type]
        assert isinstance(runner, command.CommandRunner)
        runner.timeout = 1.5
        return runner

    monkeypatch.setattr("verax.api.runner_of", impatient)
    mark = tmp_path / "alive"
    child = f"import time; time.sleep(4); open({str(mark)!r}, 'w')"
    start = time.monotonic()
    found = judged(
        f"import subprocess; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(60)"
    )
    assert found.code == 2
    assert "gave no answer in 1.5 s and was stopped" in found.err
    assert time.monotonic() - start < 30
    time.sleep(4.5)
    assert not mark.exists()


def test_a_missing_program_is_said(cli: Cli, tiny: Path) -> None:
    found = cli("check", tiny, "cmd:./no-such-program")
    assert found.code == 2
    assert "cannot be started" in found.err
    assert cli("check", tiny, "cmd:").code == 2
    assert "cannot be read" in cli("check", tiny, "cmd:a 'b").err


@pytest.mark.parametrize("name", ["torch", "litert", "tensorflow"])
def test_a_runner_of_other_files_says_which(cli: Cli, tiny: Path, name: str) -> None:
    found = cli("check", tiny, name)
    assert found.code == 2
    assert "it runs ." in found.err
    assert "no such file" in cli("check", tiny, f"{name}:nowhere.bin").err


def huge_header(path: Path) -> None:
    """An array that claims 8 EiB and holds nothing."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2147483648, 1073741824), }"
    text = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("scores.npy", text)


def bomb(path: Path) -> None:
    """Little to store and much to unpack."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("scores.npy", b"\0" * 3_000_000)


def negative_shape(path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }"
    text = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("scores.npy", text)


def not_an_array(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")


@pytest.mark.parametrize("make", [huge_header, bomb, negative_shape, not_an_array])
def test_hostile_recordings_are_refused_at_once(
    cli: Cli, tiny: Path, tmp_path: Path, make: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "MAX_BYTES", 1 << 21)
    make(tmp_path / "bad.npz")  # type: ignore[operator]
    start = time.monotonic()
    found = cli("check", tiny, tmp_path / "bad.npz")
    assert found.code == 2
    assert "no readable .npz" in found.err
    assert time.monotonic() - start < 10


def test_recordings_may_hold_part_of_the_outputs(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    graph = load(tiny).graph
    inputs, _ = draw_inputs(graph)
    values = reference(graph, inputs, keep="all")
    inner = {v: values[v].astype(np.float32) for v in ("map", "flat")}
    np.savez(tmp_path / "some.npz", **inputs, **inner)
    found = cli("check", tiny, tmp_path / "some.npz", "--json", tmp_path / "record.json")
    assert found.code == 0, found.out
    assert "gave no scores" in found.out


def test_ctrl_c_ends_the_subject_too(tiny: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "right.npz", scores=np.zeros(SCORES, np.float32))
    begun = tmp_path / "begun"
    subject = program(
        tmp_path, f"open({str(begun)!r}, 'w'); time.sleep(5); open(OUT + '.late', 'w')"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "verax.cli.main", "check", str(tiny), subject],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 600
    while not begun.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert "Traceback" not in err
    commands = [" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])]
    assert commands and not any(str(tmp_path / "subject.py") in c for c in commands)

"""Devices that end, hang, are noisy or give other bits: no record is lost, none is another's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.device_tuning.misbehaving import MisbehavingDevice
from verax.base.errors import UsageError
from verax.base.option_groups.compile_options import DeviceOptions, TuneOptions
from verax.compiler.kernels.dtypes import FLOAT32
from verax.compiler.kernels.products.gemm import GemmSpec, Matrix
from verax.compiler.kernels.registry import schedules
from verax.compiler.kernels.target import Target
from verax.compiler.tune.history import History
from verax.device_tuning import DeviceResult, quarantine, tune_devices
from verax.device_tuning.builders import Builders
from verax.distributed import open_pool
from verax.distributed.contents import FOLDER

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="devices are processes with sockets"),
    pytest.mark.skipif(not Target.avx2().runs_here(), reason="the devices are of AVX2"),
]
TRIALS = 9


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "host"))
    return tmp_path / "tuning.jsonl"


def tuned(
    model: Path, history: Path, labels: Sequence[str], patience: float = 60.0, **options: Any
) -> dict[str, DeviceResult]:
    devices = tuple(label if "," in label else f"avx2,label={label}" for label in labels)
    results = tune_devices(
        model,
        DeviceOptions(device=devices, workers=1),
        history,
        TuneOptions(threads=1, trials=TRIALS, opt_level=1, **options),
        sizes={"n": 3},
        patience=patience,
        measuring=MisbehavingDevice,
    )
    return {result.label: result for result in results}


def lines(history: Path, kind: str = "measured") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in history.read_text().splitlines()]
    return [line for line in found if line["kind"] == kind]


def measured(history: Path) -> Counter[tuple[str, str, str]]:
    """How often each candidate was measured, by device and kernel."""
    return Counter((m["device"], m["kernel"], json.dumps(m["schedule"])) for m in lines(history))


def assert_whole(history: Path, labels: Sequence[str]) -> None:
    """Each device has each of its candidates once, of its own target, and one network's."""
    counts = measured(history)
    assert set(counts.values()) == {1}
    by_device = Counter(device for device, _, _ in counts)
    kernels = {kernel for _, kernel, _ in counts}
    assert by_device == dict.fromkeys(labels, TRIALS * len(kernels))
    assert History(history).read().unreadable == 0


def test_two_devices_are_tuned_side_by_side_each_for_itself(tiny: Path, history: Path) -> None:
    found = tuned(tiny, history, ["sound", "host,label=wide"])
    assert [r.error for r in found.values()] == ["", ""]
    assert_whole(history, ["sound", "wide"])
    for label, result in found.items():
        record = result.record
        assert record is not None and record.device == label and record.is_right
    targets = {(m["device"], m["host"]["target"].split()[0]) for m in lines(history)}
    assert targets == {("sound", "avx2"), ("wide", Target.host().name)}
    assert {w["device"] for w in lines(history, "workload")} == {"sound", "wide"}


def test_a_device_that_ends_is_begun_again_and_measures_nothing_twice(
    tiny: Path,
    history: Path,
) -> None:
    found = tuned(tiny, history, ["ends", "sound"])
    assert len(found["ends"].ends) == 1
    record = found["ends"].record
    assert record is not None
    assert any("not measured again" in note for note in record.notes)
    assert found["sound"].ends == ()
    assert_whole(history, ["ends", "sound"])


def test_a_candidate_that_ends_the_device_twice_is_refused(tiny: Path, history: Path) -> None:
    result = tuned(tiny, history, ["ends-always"])["ends-always"]
    assert len(result.ends) == 2
    assert result.record is not None
    refused = [m for m in lines(history) if m["bits"] == "the device ended twice here"]
    assert len(refused) == 4, "all of the race: nobody knows which it was"
    assert set(measured(history).values()) == {1}


def test_a_device_that_hangs_is_not_waited_for(tiny: Path, history: Path) -> None:
    begin = time.monotonic()
    result = tuned(tiny, history, ["hangs"], patience=6.0)["hangs"]
    assert "no answer within 6 s" in result.ends[0]
    assert result.record is not None
    assert time.monotonic() - begin < 300
    assert_whole(history, ["hangs"])


@pytest.mark.parametrize("behavior", ["claims", "errs", "errs-always"])
def test_a_device_with_other_bits_is_in_quarantine_with_a_repro(
    tiny: Path,
    history: Path,
    behavior: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = tuned(tiny, history, [behavior, "sound"])
    liar = found[behavior]
    assert liar.is_quarantined and not liar.is_right
    assert liar.record is None
    assert "in quarantine" in liar.error
    assert liar.ends == (), "it is not begun again"
    assert {line["device"] for line in lines(history, "chosen")} <= {"sound"}
    (line,) = lines(history, "quarantine")
    assert line["device"] == behavior
    repro = json.loads(Path(line["repro"]).read_text())
    assert repro["expected"] != repro["written"]
    assert quarantine.main([line["repro"]]) == 0, "this machine gives the right bits"
    assert repro["expected"] in capsys.readouterr().out
    sound = found["sound"].record
    assert sound is not None and sound.is_right
    assert {d for d, _, _ in measured(history)} <= {"sound"}
    assert not lines(history, "fault"), "the compiler is not at fault"


def test_a_noisy_device_says_so_and_takes_more_turns(tiny: Path, history: Path) -> None:
    record = tuned(tiny, history, ["noisy"])["noisy"].record
    assert record is not None
    assert any(note.startswith("noisy: ") for note in record.notes)
    assert "note: noisy" in str(record)


def test_a_coordinator_that_is_killed_goes_on_where_it_was(tiny: Path, history: Path) -> None:
    command = [
        *("tune", str(tiny), "--shape", "n=3", "--threads", "1", "--trials", "13", "-O", "1"),
        *("--device", "avx2,label=board", "--history", str(history), "--time-budget", "300"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "verax.cli.main", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not (history.exists() and lines(history)):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = measured(history)
    assert before
    done = subprocess.run(
        [sys.executable, "-m", "verax.cli.main", *command, "--resume"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert f"resumed: {sum(before.values())} candidates" in done.stdout
    after = measured(history)
    assert set(after.values()) == {1}
    assert before.keys() < after.keys()


@pytest.mark.parametrize(
    ("device", "error", "said"),
    [
        (("avx2,label=a", "avx512,label=a"), UsageError, "two devices are called 'a'"),
        (("sm_80",), UsageError, "no device but a kind of GPU"),
        (("avx2,rooms=3",), UsageError, "says nothing of a device"),
    ],
)
def test_devices_that_cannot_be_are_refused(
    tiny: Path,
    history: Path,
    device: Any,
    error: type[Exception],
    said: str,
) -> None:
    with pytest.raises(error, match=said):
        tune_devices(tiny, DeviceOptions(device=device), history, TuneOptions())
    assert not history.exists()


def test_a_builder_that_is_asked_when_all_has_ended_says_nothing(
    tmp_path: Path, history: Path
) -> None:
    """A device may ask until its thread hears of the end, and must not wait for ever."""
    spec, schedule = product()
    pool = open_pool(1)
    builders = Builders(pool, 1)
    pool.close()
    assert builders.object(spec, schedule, "avx2").result(30) is None
    begun = Builders(open_pool(1), 1)
    waiting = [begun.object(spec, schedule, name) for name in ("avx2", "host", "avx512")]
    begun._pool.close()
    assert [answer.result(60) for answer in waiting][1:] == [None, None]


def product() -> tuple[Any, Any]:
    """A kernel and its schedule by rule."""
    spec = GemmSpec(5, 6, 7, Matrix(7, 1), Matrix(6, 1), types=FLOAT32)
    return spec, schedules(spec, Target.avx2())[0]


def test_a_model_that_a_device_cannot_read_is_said(tmp_path: Path, history: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"no network")
    options = TuneOptions(threads=1)
    devices = DeviceOptions(device=("avx2,label=a",))
    (result,) = tune_devices(tmp_path / "net.onnx", devices, history, options)
    assert result.record is None
    assert "net.onnx" in result.error

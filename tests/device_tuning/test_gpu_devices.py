"""GPUs are devices like others: each is tuned for itself, and one that lies about bits is found.

They are emulated ones; builders make code for real ones, which nobody runs here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax
from tests.cli.conftest import Cli, cli  # noqa: F401
from tests.device_tuning.misbehaving import MisbehavingDevice
from verax.base.errors import DeviceError, VeraxError
from verax.base.gpu.cuda_driver import cards
from verax.base.option_groups.compile_options import DeviceOptions, TuneOptions
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile as compile_graph
from verax.compiler.kernels.gpu.tiles import TileSchedule
from verax.compiler.kernels.registry import candidates, stages
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary.kernel_objects import is_made, kernel_object, take_object
from verax.compiler.place.calls import KernelCall
from verax.compiler.tune.history import History
from verax.compiler.tune.kernel_bench import Workload
from verax.compiler.tune.plain import to_plain, workload_to_plain
from verax.device_tuning import DeviceResult, builders, measuring, quarantine, tune_devices
from verax.device_tuning.builders import CandidateBuilder, witness_of, written_here
from verax.device_tuning.measuring import MeasuringDevice
from verax.distributed import open_pool
from verax.distributed.contents import FOLDER

TRIALS = 5


def has_card() -> bool:
    try:
        return bool(cards())
    except VeraxError:
        return False


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "host"))
    return tmp_path / "tuning.jsonl"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution and a product: image [n, 2, 7, 6] to scores [n, 19]."""
    rng = np.random.default_rng(6301)

    def drawn(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["image", "w"], ["map"], "conv", pads=[1, 0, 0, 1]),
        helper.make_node("Flatten", ["map"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "m"], ["scores"], "gemm"),
    ]
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 2, 7, 6])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 19])
    constants = [drawn("w", 17, 2, 3, 2), drawn("m", 17 * 6 * 6, 19)]
    graph = helper.make_graph(nodes, "two", [image], [scores], constants)
    path = tmp_path_factory.mktemp("networks") / "two.onnx"
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    path.write_bytes(made.SerializeToString())
    return path


def tuned(
    model: Path, history: Path, labels: Sequence[str], measuring: type = MisbehavingDevice
) -> dict[str, DeviceResult]:
    """Emulated GPUs with these labels; other devices by their whole text."""
    texts = (label if "," in label else f"cuda-emulated,label={label}" for label in labels)
    results = tune_devices(
        model,
        DeviceOptions(device=tuple(texts), workers=1),
        history,
        TuneOptions(threads=1, trials=TRIALS, opt_level=1, time_budget=300),
        sizes={"n": 3},
        measuring=measuring,
    )
    return {result.label: result for result in results}


def lines(history: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in history.read_text().splitlines()]
    return [line for line in found if line["kind"] == kind]


def test_two_gpus_and_the_processor_are_tuned_each_for_itself(two: Path, history: Path) -> None:
    found = tuned(two, history, ["left", "right", "host,label=processor"])
    assert [r.error for r in found.values()] == ["", "", ""]
    assert all(r.record is not None and r.record.is_right for r in found.values())
    measured = lines(history, "measured")
    counts = Counter((m["device"], m["kernel"], json.dumps(m["schedule"])) for m in measured)
    assert set(counts.values()) == {1}
    assert Counter(device for device, _, _ in counts) == {
        "left": 2 * TRIALS, "right": 2 * TRIALS, "processor": 2 * TRIALS,
    }  # fmt: skip
    targets = {m["device"]: m["host"]["target"].split()[0] for m in measured}
    assert targets == {
        "left": "cuda-emulated", "right": "cuda-emulated", "processor": Target.host().name,
    }  # fmt: skip
    kinds = {(m["device"], m["schedule"][0]) for m in measured}
    assert kinds == {
        ("left", "TileSchedule"), ("right", "TileSchedule"), ("processor", "ConvSchedule"),
    }  # fmt: skip
    assert {w["device"] for w in lines(history, "workload")} == set(found)
    assert all(line["device"] in found for line in lines(history, "chosen"))
    assert History(history).read().unreadable == 0
    exe = verax.compile(
        verax.load(two, shapes={"n": 3}), opt_level=1, threads=1, target="cuda-emulated",
        tuned=history, cache=False,
    )  # fmt: skip
    image = np.random.default_rng(6302).random((3, 2, 7, 6), np.float32)
    by_rule = verax.compile(
        verax.load(two, shapes={"n": 3}), opt_level=1, threads=1, tuned=False, cache=False
    )
    (y,), (z,) = (e.run({"image": image}).values() for e in (exe, by_rule))
    assert y.tobytes() == z.tobytes()


@pytest.mark.parametrize("behavior", ["claims", "errs", "errs-always"])
def test_a_gpu_with_other_bits_is_in_quarantine_with_a_repro(
    two: Path, history: Path, behavior: str
) -> None:
    liar = tuned(two, history, [behavior])[behavior]
    assert liar.is_quarantined and not liar.is_right
    assert liar.record is None and "in quarantine" in liar.error
    assert not lines(history, "chosen") and not lines(history, "fault")
    (line,) = lines(history, "quarantine")
    assert line["device"] == behavior and line["schedule"][0] == "TileSchedule"
    repro = json.loads(Path(line["repro"]).read_text())
    assert repro["target"] == "cuda-emulated" and repro["expected"] != repro["written"]
    assert quarantine.main([line["repro"]]) == 0, "this machine gives the right bits"


def test_a_gpu_that_ends_is_begun_again_and_measures_nothing_twice(
    two: Path, history: Path
) -> None:
    result = tuned(two, history, ["ends"])["ends"]
    assert len(result.ends) == 1 and result.record is not None
    counts = Counter((m["kernel"], json.dumps(m["schedule"])) for m in lines(history, "measured"))
    assert set(counts.values()) == {1} and len(counts) == 2 * TRIALS


@pytest.mark.skipif(has_card(), reason="there is a card")
def test_a_card_that_is_not_there_is_the_error_of_compile(
    two: Path,
    history: Path,
    cli: Cli,  # noqa: F811
) -> None:
    with pytest.raises(DeviceError) as told:
        verax.compile(verax.load(two, shapes={"n": 3}), target="cuda")
    result = cli("tune", two, "--shape", "n=3", "--device", "cuda:0", "--history", history)
    assert result.code == 2
    assert result.err.startswith("error: cuda:0 was not tuned: ") and told.value.cause in result.err
    assert told.value.next_step in result.err
    assert not lines(history, "measured") if history.exists() else True


# --- builders and witnesses


@pytest.fixture(scope="module")
def workload(two: Path) -> Workload:
    """The convolution's."""
    graph = verax.load(two, shapes={"n": 3}).graph
    exe = compile_graph(graph, Settings(1, threads=1, target="cuda-emulated"))
    calls = [s for s in exe.specialized.lowered.steps if isinstance(s, KernelCall)]
    call = next(c for c in calls if stages(c.spec, exe.specializer.target))
    return Workload.of(call, 1 << 12)


@pytest.mark.parametrize("name", ["sm_80", "cuda-emulated"])
def test_a_builder_makes_what_a_gpu_takes(workload: Workload, name: str) -> None:
    target = Target.named(name)
    schedule = candidates(workload.spec, target)[3]
    request = {
        "spec": to_plain(workload.spec), "schedule": to_plain(schedule), "target": name,
    }  # fmt: skip
    product = CandidateBuilder().build(request)
    assert product == {
        **kernel_object(workload.spec, schedule, target), "version": builders.code_digest(),
    }  # fmt: skip
    if name == "sm_80":
        assert b".target sm_80" in product["code"] and b".entry" in product["code"]
    builders_own = is_made(workload.spec, schedule, target)
    take_object(workload.spec, schedule, target, product)
    assert builders_own and is_made(workload.spec, schedule, target)


def test_who_asks_builders_at_the_end_gets_nothing_and_no_traceback(workload: Workload) -> None:
    """Kernels of GPUs take longer to make: some are under way when the time is up."""
    target = Target.emulated_gpu()
    first, second = candidates(workload.spec, target)[4:6]
    with open_pool(1) as pool:
        asked = builders.Builders(pool, 1)
        under_way = asked.object(workload.spec, first, target.name)
    assert under_way.result(60) is None
    assert asked.object(workload.spec, second, target.name).result(60) is None


def test_the_emulated_gpu_says_what_a_card_has_to_write(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulated, card = Target.emulated_gpu(), Target.cuda("sm_90")
    schedule = candidates(workload.spec, card)[2]
    request = {"workload": workload_to_plain(workload), "schedule": to_plain(schedule)}
    written = CandidateBuilder().written({**request, "target": "sm_90"})
    assert written == written_here(workload, schedule, emulated) != ""
    assert witness_of(card, workload.spec) == emulated
    monkeypatch.setattr(builders, "MOST_EMULATED", 10**4)
    assert witness_of(card, workload.spec) is None, "it would take too long"
    assert CandidateBuilder().written({**request, "target": "sm_90"}) == ""
    assert witness_of(emulated, workload.spec) == emulated


def test_a_card_that_fails_ends_its_process_and_what_was_raced_is_not_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failed:
        target = Target.emulated_gpu()

        def require_sound(self) -> None:
            raise DeviceError("a kernel failed", code=719)

    class Racer:
        def race(self, *arguments: Any) -> Any:
            return measuring.Race(())

    device = object.__new__(MeasuringDevice)
    device.network, device._racer = Failed(), Racer()  # type: ignore[assignment]

    def leave(code: int) -> None:
        raise SystemExit(code)

    monkeypatch.setattr(measuring.os, "_exit", leave)  # type: ignore[attr-defined]
    rule = to_plain(TileSchedule())
    with pytest.raises(SystemExit) as left:
        device.race({"best": rule, "candidates": [], "objects": [], "standing": 1.0})
    assert left.value.code == measuring.FAILED_CARD
    assert "a kernel failed" in capsys.readouterr().err

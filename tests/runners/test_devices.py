"""Subjects, inputs and answers on a device: `tests/stub_device.py` stands in for a GPU."""

from __future__ import annotations

import copy
import zipfile
from typing import Any

import numpy as np
import pytest
from tests import stub_device
from tests.stub_device import ALLOCATOR, DEVICE, on_device

import verax
from verax.base.errors import UsageError
from verax.base.machine.devices import driver_version, require_torch_device
from verax.judge import check as judge_check
from verax.judge.harness.repeat import ORDER
from verax.records.verdict import Kind
from verax.runners.functions import FunctionRunner
from verax.runners.pytorch.torch_device import cuda_flags
from verax.runners.pytorch.torch_objects import TorchModuleRunner
from verax.runners.torch_file import TorchFileRunner

torch = pytest.importorskip("torch", reason="torch is not installed")
FINE = (Kind.identical, Kind.rounding)


@pytest.fixture(scope="module", autouse=True)
def device() -> None:
    stub_device.register()


@pytest.fixture
def case() -> tuple[Any, Any, Any]:
    """A module on the processor, the same on the device, and an input on the processor."""
    torch.manual_seed(31)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 5, (3, 2)), torch.nn.BatchNorm2d(5), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(5 * 4 * 7, 6),
    )  # fmt: skip
    return net.eval(), on_device(copy.deepcopy(net)), torch.randn(2, 3, 6, 8)


def test_inputs_are_moved_where_the_parameters_are(case: Any) -> None:
    net, on_stub, x = case
    verdict = verax.check(net, on_stub, x)
    assert verdict.kind in FINE and not verdict.blame
    assert verdict.subject["device"] == DEVICE
    assert verdict.environment["device"] == DEVICE
    assert verdict.environment["card"] == "a stand-in" and verdict.environment["autocast"] == "off"
    # The values inside were watched.
    assert {"conv2d", "relu"} <= {f.value for f in verdict.nodes}
    assert all(p.device.type == "stub" for p in on_stub.parameters())


def test_a_mistake_on_the_device_is_named(case: Any) -> None:
    net, on_stub, x = case
    with torch.no_grad():
        on_stub[0].bias.mul_(1.5)
    (blame,) = verax.check(net, on_stub, x).blame
    assert blame.node == "conv2d"


def test_inputs_and_answers_come_from_the_device_and_the_verdict_says_so(case: Any) -> None:
    net, on_stub, x = case
    on_device_ = x.to(DEVICE)
    verdict = verax.check(net, on_stub, on_device_)
    assert verdict.kind in FINE
    assert verdict.inputs[0].origin == f"given, copied from {DEVICE}"
    with torch.no_grad():
        answer = on_stub(on_device_)
    for given in (answer, [answer], (answer,)):
        verdict = verax.check(net, given, on_device_)
        assert verdict.kind in FINE and verdict.subject["copied from"] == DEVICE
    assert verax.check(net, answer * 1.5, on_device_).kind is Kind.mistake
    named = {verax.load(net, inputs=x).graph.outputs[0]: answer}
    assert verax.check(net, named, x).subject["copied from"] == DEVICE


def test_a_function_is_handed_tensors_on_the_device_of_the_given_ones(case: Any) -> None:
    net, on_stub, x = case
    seen: list[str] = []

    def function(given: Any) -> Any:
        seen.append(str(given.device))
        return on_stub(given)

    verdict = verax.check(net, function, x.to(DEVICE))
    assert verdict.kind in FINE and set(seen) == {DEVICE}
    assert verdict.subject["takes"] == f"tensors on {DEVICE}"
    assert verdict.environment["card"] == "a stand-in"
    model = verax.load(net, inputs=x)
    assert verax.check(model, function, {"input": x.to(DEVICE)}).kind in FINE
    assert set(seen) == {DEVICE}


def test_the_device_is_waited_for_before_its_numbers_are_read(case: Any) -> None:
    _, on_stub, x = case
    runner = TorchModuleRunner(on_stub)
    graph = verax.load(case[0], inputs=x).graph
    before = ALLOCATOR.synchronized
    runner.run(graph, {"input": x.numpy()}, ["conv2d"])
    assert ALLOCATOR.synchronized >= before + 2  # what is watched, and at the end


def test_a_module_of_no_parameters_runs_where_its_inputs_are() -> None:
    class Product(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, a: Any, b: Any) -> Any:
            return torch.matmul(a, b).tanh()

    a, b = torch.randn(2, 3, 5), torch.randn(5, 4)
    verdict = verax.check(Product(), Product(), (a.to(DEVICE), b.to(DEVICE)))
    assert verdict.kind in FINE and verdict.subject["device"] == DEVICE


def test_a_stale_tail_of_the_devices_memory_is_found() -> None:
    """The allocator gives a kernel the block that held the right answer before."""
    torch.manual_seed(37)
    a, b = torch.randn(6, 5), torch.randn(5, 90)

    def product(a: Any, b: Any, *, tail: int) -> Any:
        y = torch.empty(6, 90, device=a.device)
        y[:, : 90 - tail] = (a @ b)[:, : 90 - tail]
        return y

    on_stub = a.to(DEVICE), b.to(DEVICE)
    with stub_device.forgotten_memory():
        right = product(*on_stub, tail=0)
        del right
        faulty = product(*on_stub, tail=3)
        np.testing.assert_array_equal(faulty.cpu().numpy(), (a @ b).numpy())  # it seems right
        del faulty
        verdict = verax.check(torch.matmul, lambda a, b: product(a, b, tail=3), on_stub)
    assert verdict.kind is Kind.mistake
    assert verdict.repeat is not None and "stub:0" in verdict.repeat.poisoned
    assert "reads uninitialized memory" in verdict.reasons[0]
    with stub_device.forgotten_memory():
        verdict = verax.check(torch.matmul, lambda a, b: product(a, b, tail=0), on_stub)
    assert verdict.kind in FINE and verdict.repeat is not None
    assert verdict.repeat.cause in ("", ORDER)  # blocks begin where the processor sums otherwise


def test_autocast_of_the_users_thread_holds_in_the_judges_threads() -> None:
    net, x = torch.nn.Linear(40, 3), torch.randn(7, 40)
    seen: list[bool] = []

    class Watched(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any) -> Any:
            seen.append(torch.is_autocast_enabled("cpu"))
            return self.net(x).float()

    model = verax.load(net, inputs=x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        verdict = verax.check(model, Watched(), {"input": x})
    assert len(seen) > 1 and all(seen)
    assert verdict.repeat is not None and verdict.repeat.same_bits
    assert verdict.environment["autocast"] == "cpu to bfloat16"
    seen.clear()
    assert "autocast" not in verax.check(model, Watched(), {"input": x}).environment
    assert not any(seen)


def test_a_meaning_does_not_depend_on_the_callers_autocast() -> None:
    """It was exported with autocast's casts, and refused as a file that contradicts itself."""
    torch.manual_seed(43)
    net, x = torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Tanh()), torch.randn(3, 40)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert verax.load(net, inputs=x).graph.outputs
        verdict = verax.check(net, net, x)
        assert torch.is_autocast_enabled("cpu")
    assert verdict.kind is Kind.precision
    assert {p.node for p in verdict.precisions} == {"linear", "tanh"}


def test_a_device_that_is_not_there_is_refused() -> None:
    for name, words in {"cuda:0": "finds none", "stub:3": "finds 1", "abc": "knows no"}.items():
        if name == "cuda:0" and torch.cuda.is_available():
            continue
        with pytest.raises(UsageError, match=words):
            require_torch_device(torch, name)
    assert str(require_torch_device(torch, DEVICE)) == DEVICE


def test_flags_and_driver_are_told(tmp_path: Any) -> None:
    before = torch.backends.cudnn.benchmark
    try:
        torch.backends.cudnn.benchmark = True
        assert cuda_flags(torch)["cudnn.benchmark"] == "True"
    finally:
        torch.backends.cudnn.benchmark = before
    flags = cuda_flags(torch)
    assert {"float32 products", "float32 convolutions", "deterministic algorithms"} <= flags.keys()
    file = tmp_path / "version"
    file.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Jan  6\nGCC version: 13\n"
    )
    assert driver_version(file) == "580.159.04" and driver_version(tmp_path / "none") == ""


def exported(case: Any) -> Any:
    net, _, x = case
    return torch.export.export(net, (x,))


def test_a_program_runs_on_the_device_that_it_was_exported_on(
    case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_device.save_from_host(monkeypatch)
    net, on_stub, x = case
    program = torch.export.export(on_stub, (x.to(DEVICE),))
    for model, subject in ((net, program), (on_stub, "torch"), (on_stub, program)):
        verdict = verax.check(model, subject, x)
        assert verdict.kind in FINE and verdict.subject["device"] == DEVICE
        assert verdict.environment["card"] == "a stand-in"


def test_a_runner_is_told_its_device(case: Any, tmp_path: Any) -> None:
    _, _, x = case
    program, file = exported(case), tmp_path / "net.pt2"
    torch.export.save(program, file)
    model = verax.load(program)
    verdict = verax.check(model, "torch", {"input": x}, device=DEVICE)
    assert verdict.kind in FINE and verdict.subject["device"] == DEVICE
    assert all(t.device.type == "cpu" for t in program.state_dict.values())
    runner = TorchFileRunner(file, device=DEVICE, isolated=False)
    verdict = judge_check(model.graph, runner, {"input": x.numpy()})
    assert verdict.kind in FINE and verdict.environment["device"] == DEVICE
    assert "relu" in {f.value for f in verdict.nodes}


def test_a_device_is_refused_by_those_that_take_none(case: Any, tmp_path: Any) -> None:
    net, _, x = case
    model = verax.load(exported(case))
    for subject, message in (
        ("verax:O1", "unknown target 'stub:0'"),
        (net, "not told where to run"),
        (lambda x: x, "not told where to run"),
    ):
        with pytest.raises(UsageError, match=message):
            verax.check(model, subject, {"input": x}, device=DEVICE)
    file = tmp_path / "net.pt2"
    torch.export.save(exported(case), file)
    with pytest.raises(UsageError, match=r"no device 'stub:7' here: .* finds 1 of this kind"):
        TorchFileRunner(file, device="stub:7", isolated=False).run(
            model.graph, {"input": x.numpy()}
        )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_file_of_a_gpu_is_read_without_one_and_not_run(case: Any, tmp_path: Any) -> None:
    _, _, x = case
    on_cpu, on_gpu = tmp_path / "cpu.pt2", tmp_path / "gpu.pt2"
    torch.export.save(exported(case), on_cpu)
    with zipfile.ZipFile(on_cpu) as old, zipfile.ZipFile(on_gpu, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(".json"):
                where = b'"type": "cpu", "index": null', b'"type": "cuda", "index": 0'
                data = data.replace(*where)
            new.writestr(name, data)
    model = verax.load(on_gpu)
    assert verax.check(model, "verax:O1", {"input": x.numpy()}).kind in FINE
    with pytest.raises(UsageError, match=r"cannot load the program here: .*CUDA"):
        TorchFileRunner(on_gpu, isolated=False).run(model.graph, {"input": x.numpy()})


def test_who_runs_on_a_device_says_so(case: Any) -> None:
    """The judge explains errors by matrix units only where a GPU may have made them."""
    net, on_stub, x = case
    moved = x.to("stub")
    runners = {
        "module": (TorchModuleRunner(net), TorchModuleRunner(on_stub)),
        "function": tuple(
            FunctionRunner(lambda t: t, tensors=True, like={"x": like}) for like in (x, moved)
        ),
    }
    for kind, (here, there) in runners.items():
        assert not here.capabilities.any_device, kind
        assert there.capabilities.any_device, kind

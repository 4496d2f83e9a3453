"""`torch.compile(backend="verax")` for modules on a card, where there is none: the stand-in device
of PyTorch is taken for the card, and the emulated GPU runs on its memory."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests import stub_device
from tests.stub_device import DEVICE, StubTensor

from verax.base.errors import InputError, UnsupportedError
from verax.runtime.gpu import arrays
from verax.runtime.gpu.emulated import EmulatedDevice

torch = pytest.importorskip("torch", reason="torch is not installed")
import verax.torch as vt  # noqa: E402  (needs torch)
from verax.torch import tensors  # noqa: E402
from verax.torch.options import CompileOptions  # noqa: E402

OPTIONS = {"target": "cuda-emulated"}


@pytest.fixture(autouse=True)
def stub_is_the_card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    stub_device.register()
    stream = types.SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(arrays, "CUDA_TENSORS", "stub")
    monkeypatch.setattr(tensors, "CUDA_TENSORS", "stub")
    monkeypatch.setattr(stub_device.ALLOCATOR, "current_stream", lambda _: stream, raising=False)
    monkeypatch.setattr(EmulatedDevice, "owns", lambda *_: True)
    monkeypatch.setattr(StubTensor, "data_ptr", lambda tensor: tensor.raw.data_ptr(), raising=False)
    stub_device.save_from_host(monkeypatch)
    vt.reset()
    yield
    vt.reset()


class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, (3, 2), padding=1)
        self.second = torch.nn.Linear(7, 5)

    def forward(self, x: Any, scale: Any) -> Any:
        y = torch.relu(self.first(x))
        return self.second(y) * scale, x.transpose(1, 2), y.transpose(1, 3).clone()


def captured(module: Any, *inputs: Any) -> tuple[Any, list[Any]]:
    """The graph of a module, and its arguments on the card."""
    seen: list[Any] = []

    def keep(graph: Any, arguments: list[Any]) -> Any:
        seen.append((graph, arguments))
        return graph

    torch.compiler.reset()
    with torch.no_grad():
        torch.compile(module, backend=keep, dynamic=False)(*inputs)
    ((graph, arguments),) = seen
    moved = []
    for value in arguments:
        on_card = value.detach().to(DEVICE)
        is_weight = isinstance(value, torch.nn.Parameter)
        moved.append(torch.nn.Parameter(on_card, requires_grad=False) if is_weight else on_card)
    return graph, moved


def module_and_inputs() -> tuple[Any, Any, Any]:
    torch.manual_seed(395)
    return Net().eval(), torch.randn(2, 3, 9, 6), torch.tensor(1.25)


def bits(value: Any) -> bytes:
    raw = value.raw if isinstance(value, StubTensor) else value
    array: np.ndarray = raw.contiguous().numpy()
    return array.tobytes()


def test_tensors_stay_on_the_card_and_have_the_processor_s_bits() -> None:
    module, x, scale = module_and_inputs()
    graph, arguments = captured(module, x, scale)
    with torch.no_grad():
        expected = vt.verax(graph, [getattr(a, "raw", a) for a in arguments])(
            *[getattr(a, "raw", a) for a in arguments]
        )
        run = vt.verax(graph, arguments, options=OPTIONS)
        for _ in range(3):
            results = run(*arguments)
            assert all(r.device == torch.device(DEVICE) for r in results)
            assert [bits(r) for r in results] == [bits(e) for e in expected]
            assert [r.stride() for r in results] == [e.stride() for e in expected]


def test_a_weight_that_is_trained_makes_another_program() -> None:
    module, x, scale = module_and_inputs()
    graph, arguments = captured(module, x, scale)
    run = vt.verax(graph, arguments, options=OPTIONS)
    weight = next(a for a in arguments if isinstance(a, torch.nn.Parameter))
    with torch.no_grad():
        before = bits(run(*arguments)[0])
        weight.mul_(1.5)
        weight.copy_(weight.raw * 1.5 if isinstance(weight, StubTensor) else weight * 1.5)
        assert bits(run(*arguments)[0]) != before


def test_tensors_on_two_devices_are_refused() -> None:
    module, x, scale = module_and_inputs()
    graph, arguments = captured(module, x, scale)
    mixed = [a.raw if isinstance(a, StubTensor) and a.dim() == 4 else a for a in arguments]
    with pytest.raises(UnsupportedError, match=r"lie on several devices: cpu, stub:0"):
        vt.verax(graph, mixed, options=OPTIONS)


def test_a_card_that_is_not_there_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x, scale = module_and_inputs()
    graph, arguments = captured(module, x, scale)
    with pytest.raises(Exception, match="unknown target 'stub:0'"):  # the device is the target
        vt.verax(graph, arguments)


def test_an_executable_takes_tensors_of_a_card() -> None:
    from verax import compile as compile_model

    module, x, scale = module_and_inputs()
    program = torch.export.export(module, (x, scale))
    exe = compile_model(program, target="cuda-emulated")
    host = exe.run({"x": x.numpy(), "scale": scale.numpy()})
    turned = stub_device._placed(x.transpose(0, 3).contiguous().transpose(0, 3))
    outputs = exe.run({"x": turned, "scale": scale})
    owners = [getattr(y, "owner", None) for y in outputs.values()]
    assert [type(owner) for owner in owners] == [StubTensor] * len(outputs)
    assert [np.asarray(y).tobytes() for y in outputs.values()] == [
        y.tobytes() for y in host.values()
    ]
    with pytest.raises(InputError, match="input is float64, the model takes float32"):
        exe.run({"x": stub_device._placed(x.double()), "scale": scale})
    assert CompileOptions(target="cuda:1").target == "cuda:1"

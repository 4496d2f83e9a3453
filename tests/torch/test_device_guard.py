"""What PyTorch writes down of a missing GPU outlives the thread that traced first.

With PyTorch built for CUDA and no GPU, `substitute` with `backward()` ended in a segmentation
fault: the export ran in a thread of its own, whose device guard stayed in PyTorch's table.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import verax.torch as vt  # noqa: E402  (needs torch)
from verax.base.machine import torch_guard  # noqa: E402


def trained() -> None:
    torch.manual_seed(29)
    net = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    with vt.substitute(net, {"0": lambda x, weight, bias: x @ weight.T + bias}, calls=0):
        net(torch.randn(2, 5)).square().sum().backward()


@pytest.mark.parametrize("in_thread", [False, True])
def test_the_thread_that_traces_first_does_not_end(
    in_thread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_guard, "_holders", [])
    makers: list[threading.Thread] = []
    enter: Any = torch._C._ensureCUDADeviceGuardSet

    def noted() -> None:
        makers.append(threading.current_thread())
        enter()

    monkeypatch.setattr(torch._C, "_ensureCUDADeviceGuardSet", noted)
    if in_thread:
        thread = threading.Thread(target=trained)
        thread.start()
        thread.join()
    else:
        trained()
    assert makers[0].is_alive()  # the export's own thread has ended

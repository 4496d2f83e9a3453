"""A subject of PyTorch on its device: run as in its user's thread, and what a record says of it.

PyTorch keeps autocast and the current device per thread, and the judge runs a subject in threads
of its own. So both are noted where the runner is made, and set again around each call.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from verax.base.machine.devices import HOST, answer, driver_version, synchronize
from verax.base.machine.torch_guard import hold_device_guard
from verax.base.optional import optional
from verax.judge.protocol import ENVIRONMENT, Capabilities
from verax.runners.device_memory import can_poison, poison_device
from verax.runners.memory import poisoned_memory

PURPOSE = "to run a subject of PyTorch"


class TorchDevice:
    """Where a subject of PyTorch runs. device: a `torch.device`, None for the processor."""

    def __init__(self, device: Any = None) -> None:
        torch = optional("torch", PURPOSE)
        hold_device_guard(torch)  # it may trace, and in a thread that ends
        self.torch = torch
        self.device = torch.device("cpu") if device is None else torch.device(device)
        kinds = dict.fromkeys(("cpu", self.device.type))
        self._autocast = [
            (kind, torch.get_autocast_dtype(kind)) for kind in kinds if casts_on(kind)
        ]

    @property
    def name(self) -> str:
        """The device's name ("cuda:0"), "" for the processor."""
        return "" if self.device.type in HOST else str(self.device)

    @property
    def poison(self) -> str:
        """The memory that `poisoned` fills, in words."""
        more = f" and blocks kept by the allocator of {self.name}"
        can = bool(self.name) and can_poison(self.torch, self.device)
        return "fresh memory of this process" + more * can

    def capable(self, capabilities: Capabilities) -> Capabilities:
        """`capabilities` of a subject that runs here."""
        return dataclasses.replace(
            capabilities, poison=self.poison, any_device=bool(self.name) or capabilities.any_device
        )

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Inside, autocast and the current device are the user's; at the end the device has done
        all it was given."""
        with contextlib.ExitStack() as stack:
            current = getattr(getattr(self.torch, self.device.type, None), "device", None)
            if self.name and current is not None:
                stack.enter_context(current(self.device))
            for kind, dtype in self._autocast:
                stack.enter_context(self.torch.autocast(kind, dtype=dtype))
            yield
            if self.name:
                synchronize(self.device)

    @contextlib.contextmanager
    def poisoned(self, fill: int) -> Iterator[None]:
        """Inside, fresh memory holds the byte `fill`, and what the device's allocator kept did
        beforehand."""
        if self.name and can_poison(self.torch, self.device):
            poison_device(self.torch, self.device, fill)
        with poisoned_memory(fill):
            yield

    def describe(self) -> dict[str, str]:
        """For a runner's `describe`: the device, and facts for the record's environment."""
        facts = {"autocast": ", ".join(f"{k} to {_plain(t)}" for k, t in self._autocast)}
        if not self.name:
            return {f"{ENVIRONMENT}{k}": v for k, v in facts.items() if v}
        facts = device_facts(self.torch, self.device) | {"autocast": facts["autocast"] or "off"}
        return {"device": self.name, **{f"{ENVIRONMENT}{k}": v for k, v in facts.items()}}


def casts_on(kind: str) -> bool:
    """True if autocast is on, in this thread, for a kind of devices ("cuda")."""
    torch = optional("torch", PURPOSE)
    return bool(torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind))


def device_facts(torch: Any, device: Any) -> dict[str, str]:
    """What decides how a device of PyTorch computes: card, driver, libraries, flags; as far as they
    are known."""
    module = getattr(torch, device.type, None)
    facts: dict[str, Any] = {"device": str(device)}
    facts["card"] = answer(getattr(module, "get_device_name", None), device)
    capability = answer(getattr(module, "get_device_capability", None), device)
    if isinstance(capability, tuple):
        facts["compute capability"] = ".".join(map(str, capability))
    if device.type == "cuda":
        facts["driver"] = driver_version()
        facts["CUDA"], facts["ROCm"] = torch.version.cuda, torch.version.hip
        facts["cuDNN"] = answer(torch.backends.cudnn.version)
        facts |= cuda_flags(torch)
    return {name: str(value) for name, value in facts.items() if value not in (None, "")}


def cuda_flags(torch: Any) -> dict[str, str]:
    """The flags by which PyTorch lets products and convolutions compute in less than their type."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    # Newer versions say it by operator, and refuse the old names once a new one was used.
    flags = {
        "float32 products": answer(lambda: matmul.fp32_precision)
        or _tf32(answer(lambda: matmul.allow_tf32)),
        "float32 convolutions": answer(lambda: cudnn.conv.fp32_precision)
        or _tf32(answer(lambda: cudnn.allow_tf32)),
        "float32 recurrent layers": answer(lambda: cudnn.rnn.fp32_precision),
        "sums of fp16 products in fp16": answer(
            lambda: matmul.allow_fp16_reduced_precision_reduction
        ),
        "sums of bf16 products in bf16": answer(
            lambda: matmul.allow_bf16_reduced_precision_reduction
        ),
        "cudnn.benchmark": cudnn.benchmark,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    return {name: str(value) for name, value in flags.items() if value is not None}


def _tf32(allowed: Any) -> str | None:
    return None if allowed is None else "tf32" if allowed else "ieee"


def _plain(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")

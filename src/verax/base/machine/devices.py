"""On which device arrays and modules lie, and what has to be done before their numbers are read.

No library is imported here but what a value's own class comes from: whoever hands over a tensor of
PyTorch, or an array of JAX or CuPy, has imported it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from verax.base.errors import InputError, UsageError
from verax.base.machine import dlpack
from verax.base.tensors import is_array, is_from, is_tensor

HOST = ("", "cpu")
AUTOCAST = ("cpu", "cuda", "xpu", "mps")
"""Kinds of devices of PyTorch's own that have autocast."""
DRIVER = Path("/proc/driver/nvidia/version")
"""Where NVIDIA's driver on Linux says which one it is."""


def device_of(value: Any) -> str:
    """The device that an array or a tensor lies on ("cuda:0"), "" for the host's memory and for
    what is no array."""
    if is_tensor(value):
        return "" if value.device.type == "cpu" else str(value.device)
    if is_from(value, "jax") or is_from(value, "jaxlib"):
        return _jax_device(value)
    if hasattr(value, "__dlpack_device__"):
        return dlpack.device_of(value)
    return ""


def _jax_device(value: Any) -> str:
    """Of an array of JAX; of one that is spread over several, all of them."""
    devices = sorted(getattr(value, "devices", set)(), key=lambda d: d.id)
    return ", ".join(f"{d.platform}:{d.id}" for d in devices if d.platform != "cpu")


def devices_in(values: Any) -> Iterator[str]:
    """Devices of the arrays among `values`, which may be nested in mappings and sequences."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list | tuple):
        yield from chain.from_iterable(map(devices_in, values))
    elif is_array(values) and (device := device_of(values)):
        yield device


def require_one_array(value: Any) -> None:
    """Raise `InputError` for an array of which this process holds only a part."""
    if any(t.__name__ == "DTensor" and is_from(value, "torch.distributed") for t in _bases(value)):
        raise InputError(
            "a DTensor is given, whose parts lie on the devices of several processes",
            next_step="give what its full_tensor() returns",
        )
    if getattr(value, "is_fully_addressable", True) is False:
        raise InputError(
            "an array of JAX is given of which other processes hold parts",
            next_step="gather it first: jax.experimental.multihost_utils.process_allgather(x)",
        )


def _bases(value: Any) -> Iterable[type]:
    return type(value).__mro__


def synchronize(device: Any) -> None:
    """Wait until a device of PyTorch has done what it was given, on all its streams.

    device: a `torch.device`. A copy to the host waits for the current stream alone.
    """
    module = getattr(sys.modules["torch"], device.type, None)
    wait = getattr(module, "synchronize", None)
    if device.type not in HOST and wait is not None:
        # There is one GPU of Metal, and no argument that names it.
        wait(*[device] * (device.type != "mps"))


def module_device(module: Any) -> Any:
    """The `torch.device` where a module's parameters are, or else its buffers: that of the first.
    None for a module that has neither."""
    first = next(chain(module.parameters(), module.buffers()), None)
    return None if first is None else first.device


@contextlib.contextmanager
def without_autocast(torch: Any) -> Iterator[None]:
    """Inside, autocast is off for every kind of device, whatever the thread has entered."""
    kinds = dict.fromkeys((*AUTOCAST, torch._C._get_privateuse1_backend_name()))
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def require_torch_device(torch: Any, name: str) -> Any:
    """The `torch.device` of that name. Raises `UsageError` where there is no such device here."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(
            f"PyTorch knows no device {name!r}", next_step="give one such as cpu, cuda:0 or mps"
        ) from error
    if device.type in HOST:
        return device
    module = getattr(torch, device.type, None)
    is_available = getattr(module, "is_available", lambda: False)
    count = getattr(module, "device_count", lambda: 1)() if is_available() else 0
    if (device.index or 0) >= count:
        available = f"{count} of this kind" if count else "none of this kind"
        raise UsageError(
            f"there is no device {name!r} here: PyTorch {torch.__version__} finds {available}",
            next_step=f"give {device.type}:0 to {device.type}:{count - 1}" if count
            else "give cpu, or run where there is one, with PyTorch built for it",
        )  # fmt: skip
    return device


def driver_version(file: Path = DRIVER) -> str:
    """Version of NVIDIA's driver, "" where nobody says."""
    with contextlib.suppress(OSError):
        words = file.read_text().partition("\n")[0].split()
        return next((w for w in words if w[:1].isdigit() and "." in w), "")
    return ""


def answer(question: Any, *arguments: Any) -> Any:
    """What a library answers about a device; None where this version, or this device, does not."""
    try:
        return None if question is None else question(*arguments)
    except (AttributeError, RuntimeError, AssertionError, TypeError):
        return None

"""Devices: what an actor may have for itself. A host's cores with a target and a label, or one GPU.

    avx2,cores=4              four cores of any host, compiled for as avx2
    cores=0-3,host=a          these cores of host a
    cuda:0                    the first GPU of NVIDIA, as the driver of its host counts them
    cuda-emulated,label=a     a GPU whose threads the host's processor runs

Whoever holds a device holds locks of files in the host's folder, one for each core and GPU, until
its process ends, however that comes about: two pools, and two commands, never share one.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verax.base.errors import DeviceError, UsageError
from verax.base.gpu.targets import CUDA, EMULATED_GPU, GPU_ARCHITECTURES
from verax.base.machine.cores import available_cores
from verax.base.machine.processor import PROCESSOR_NAMES, VARIABLE, require_usable
from verax.distributed.contents import host_folder, host_name

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows: nothing is locked there
    fcntl = None

GPUS = "CUDA_VISIBLE_DEVICES"
NAMES = ("host", *PROCESSOR_NAMES)
"""Of targets that a device of cores may have; neon is aarch64's other name."""
_locks: list[int] = []
"""Open files that this process has locked; they are closed with it."""


@dataclass(frozen=True)
class ExclusiveDevice:
    """Cores of a host or one GPU.

    label: what it is called, in records too. target: what is compiled for, as VERAX_TARGET says it
    ("" for the processor's own), or the emulated GPU. cores: how many; 0 for those that happen to
    be there, which others may use as well. numbers: these cores and no others. gpu: the number of
    an NVIDIA GPU of its host, -1 for none. host: the host that has it, "" for any.
    """

    label: str
    target: str = ""
    cores: int = 0
    numbers: tuple[int, ...] = ()
    gpu: int = -1
    host: str = ""

    @staticmethod
    def parse(text: str) -> ExclusiveDevice:
        """A device as `--device` takes it (see the module). Raises `UsageError`."""
        label, target, cores, gpu, host = text, "", "", -1, ""
        keys: set[str] = set()
        for index, word in enumerate(text.split(",")):
            key, equals, value = (w.strip() for w in word.partition("="))
            if equals and key in keys:
                raise UsageError(
                    f"{key}= is there twice", place=text, next_step="leave one of them out"
                )
            if equals:
                keys.add(key)
            if not equals and index == 0 and (match := re.fullmatch(r"cuda(?::(\d{1,4}))?", key)):
                gpu = int(match[1] or 0)
            elif not equals and index == 0 and key in GPU_ARCHITECTURES:
                raise UsageError(
                    f"{key} is no device but a kind of GPU",
                    place=text,
                    next_step="name the GPU by its number, as in cuda:0",
                )
            elif not equals and index == 0 and key:
                target = key
            elif key == "cores" and value:
                cores = value
            elif key == "host" and value:
                host = value
            elif key == "label" and value:
                label = value
            else:
                raise UsageError(
                    f"{word!r} says nothing of a device",
                    place=text,
                    next_step="for instance avx2,cores=4 or cores=0-3,label=a or cuda:0",
                )
        if target not in ("", "neon", EMULATED_GPU, *NAMES):
            raise UsageError(
                f"there is no target {target!r}",
                place=text,
                next_step=f"choose one of {', '.join(NAMES)}, or a GPU as cuda:0",
            )
        numbers = _numbers(cores, text) if cores else ()
        count = len(numbers) or int(cores or 0)
        return ExclusiveDevice(label, target, count, numbers, gpu, host)

    @property
    def compiled_for(self) -> str:
        """The target's name for `Settings`, in the process that holds the device."""
        return CUDA if self.gpu >= 0 else EMULATED_GPU if self.target == EMULATED_GPU else "host"

    def to_plain(self) -> dict[str, Any]:
        """As a message holds it."""
        return {**vars(self), "numbers": list(self.numbers)}

    @staticmethod
    def of_plain(plain: dict[str, Any]) -> ExclusiveDevice:
        """Read `to_plain`."""
        return ExclusiveDevice(**{**plain, "numbers": tuple(plain["numbers"])})


def _numbers(cores: str, text: str) -> tuple[int, ...]:
    """Numbers of cores of "0-3"; none of "4"."""
    match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", cores)
    if match is None or not (int(match[2]) >= int(match[1]) if match[2] else int(match[1])):
        raise UsageError(
            f"cores={cores} names no cores",
            place=text,
            next_step="give how many (cores=4) or which (cores=0-3)",
        )
    return tuple(range(int(match[1]), int(match[2]) + 1)) if match[2] else ()


def hold(device: ExclusiveDevice) -> tuple[int, ...]:
    """Take a device for this process until it ends: lock it, run on its cores alone, compile for
    its target. The cores that it has now; none where it has no cores of its own.

    It has to be called before anything asks which processor there is. Raises `DeviceError` when
    others hold what it needs, and `UsageError` when this host has not as many.
    """
    if device.gpu >= 0:
        if not _lock(f"cuda-{device.gpu}"):
            raise _busy(device, f"GPU {device.gpu}")
        os.environ[GPUS] = str(device.gpu)
    if device.target not in ("", EMULATED_GPU):
        require_usable(device.target, f"{device.label} on {host_name()}")
        os.environ[VARIABLE] = device.target
    if not device.cores:
        return ()
    pinned = hasattr(os, "sched_setaffinity")
    present = sorted(os.sched_getaffinity(0)) if pinned else list(range(available_cores()))
    if missing := set(device.numbers) - set(present):
        raise UsageError(
            f"the host has no core {min(missing)}",
            place=f"{device.label} on {host_name()}",
            next_step=f"those that this command may use there are {', '.join(map(str, present))}",
        )
    if device.cores > len(present):
        raise UsageError(
            f"the device has {device.cores} cores, the host {len(present)}",
            place=f"{device.label} on {host_name()}",
            next_step=f"give cores={len(present)} or fewer",
        )
    cores: list[int] = []
    for core in device.numbers or present:
        if len(cores) < device.cores and _lock(f"core-{core}"):
            cores.append(core)
    if len(cores) < device.cores:
        raise _busy(device, f"{device.cores} cores, {len(cores)} of which are free")
    if pinned:
        os.sched_setaffinity(0, cores)
    return tuple(cores)


def _busy(device: ExclusiveDevice, needs: str) -> DeviceError:
    return DeviceError(
        f"the device needs {needs}: another device or command has the others",
        place=f"{device.label} on {host_name()}",
        next_step="name fewer devices, or fewer cores for each, or wait",
    )


def _lock(name: str) -> bool:
    """True if this process has the lock of that name on this host now."""
    folder: Path = host_folder() / "devices" / host_name()
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    except OSError:  # not every file system can lock
        with contextlib.suppress(OSError):
            os.close(descriptor)
        return True
    _locks.append(descriptor)
    return True

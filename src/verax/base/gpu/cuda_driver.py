"""NVIDIA's driver: which cards it has, and its calls, each checked and its failure put in words.

The calls are those of the package `cuda-bindings` (the extra `cuda`) rather than of ctypes: it is
kept by NVIDIA for each version of the driver, loads the driver alone and no toolkit, and imports
where there is no driver, so nothing of the driver's structures has to be written down here.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from verax.base.errors import DeviceError, InputError, MissingPackageError, VeraxError
from verax.base.gpu.targets import GPU_ARCHITECTURES
from verax.base.machine.devices import driver_version
from verax.base.machine.memory import shown_bytes
from verax.base.optional import require

MODULE, EXTRA = "cuda.bindings.driver", "cuda"
DEVICE_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-gpu")
"""Of Linux, of Windows' subsystem for Linux, of Jetson boards."""
OUT_OF_MEMORY, NO_DEVICE, STUB_LIBRARY, FORKED = 2, 100, 34, 3
UNSUPPORTED_PTX, NO_BINARY, INVALID_PTX = 222, 209, 218
_ELSEWHERE = (
    "run it where there is a card with its driver; without one, target cuda-emulated gives the "
    "same bits, and so does target host"
)
_NEW_PROCESS = "start a new process; the driver gives this one nothing more"
_REPORT = f"this is a defect: please report the model and its inputs; {_NEW_PROCESS}"
WORDS: dict[int, tuple[str, str]] = {
    FORKED: (
        "the driver of NVIDIA was in use before this process was forked, and is of no use in it",
        "start processes by spawning (multiprocessing.set_start_method('spawn'))",
    ),
    STUB_LIBRARY: (
        "the driver's library is a stub of the CUDA toolkit",
        "remove the folder 'stubs' from LD_LIBRARY_PATH",
    ),
    NO_DEVICE: (
        "NVIDIA's driver finds no card",
        "look at nvidia-smi, and at CUDA_VISIBLE_DEVICES",
    ),
    46: ("another process has the card to itself, or it is busy", "look at nvidia-smi"),
    201: ("the context of this process on the card is gone", _NEW_PROCESS),
    214: ("the card's memory reports an error that it cannot correct", "look at nvidia-smi -q"),
    NO_BINARY: (
        "the code is not for this card",
        "compile the model for it: target cuda",
    ),
    INVALID_PTX: ("the driver refuses the code", "please report the model"),
    UNSUPPORTED_PTX: (
        "the driver is older than the code, and does not know its version of PTX",
        "update the driver, or compile for an older compute capability, such as target sm_80",
    ),
    700: ("a kernel read or wrote where there is no memory", _REPORT),
    701: ("a kernel needs more registers than the card has for its threads", "please report this"),
    702: ("a kernel took longer than the display's card may", "run on a card without a display"),
    715: ("a kernel has an instruction that the card does not know", _REPORT),
    716: ("a kernel read or wrote at an address that is not aligned", _REPORT),
    717: ("a kernel read or wrote memory of the wrong kind", _REPORT),
    718: ("a kernel went on outside of its code", _REPORT),
    719: ("a kernel failed", _REPORT),
    802: ("the card is not ready yet: its fabric manager has not started", "look at its service"),
    803: (
        "the driver and its library are of different versions",
        "restart the machine after an update of the driver",
    ),
    804: ("the driver is older than its library allows", "update the driver"),
    999: ("the driver reports an unknown error", "look at the system's log; start again"),
}
"""What the driver's codes mean, and what to do; for others the driver's own words are given."""


@dataclasses.dataclass(frozen=True)
class Card:
    """One GPU. index: of the driver, after CUDA_VISIBLE_DEVICES. capability: compute capability.
    memory: bytes that it has. driver: version of the driver, and of CUDA that it speaks. l2_cache:
    bytes of the second-level cache, which all multiprocessors share."""

    index: int
    name: str
    capability: tuple[int, int]
    memory: int
    driver: str
    multiprocessors: int = 0
    l2_cache: int = 0

    @property
    def architecture(self) -> str:
        """The newest of `GPU_ARCHITECTURES` whose code it runs.

        Raises `DeviceError` for a card older than all.
        """
        mine = 10 * self.capability[0] + self.capability[1]
        usable = [name for name in GPU_ARCHITECTURES if _capability(name) <= mine]
        if not usable:
            major, minor = self.capability
            raise DeviceError(
                f"the card {self.name} has compute capability {major}.{minor}, and code is made "
                "for 7.0 and later",
                place=f"cuda:{self.index}",
                next_step="use a later card (Volta, 2017, or newer), or the processor: target host",
            )
        return usable[-1]

    def __str__(self) -> str:
        major, minor = self.capability
        return (
            f"{self.name}, compute capability {major}.{minor}, {shown_bytes(self.memory)}, "
            f"driver {self.driver}"
        )


def call(function: str, *arguments: Any, during: str = "") -> Any:
    """What a function of the driver gives: None, one value, or a tuple. during: in what, for the
    error. Raises `DeviceError` where it fails."""
    result = getattr(driver(), function)(*arguments)
    if result[0]:
        fail(int(result[0]), function, during)
    return None if len(result) == 1 else result[1] if len(result) == 2 else result[1:]


def fail(code: int, function: str, during: str = "") -> NoReturn:
    """Raise the error of a driver's code."""
    cause, next_step = WORDS.get(code, ("the driver refuses a call", "look at nvidia-smi"))
    raise DeviceError(
        f"{cause} ({_named(code)}, of {function})", place=during, next_step=next_step, code=code
    )


def out_of_memory(nbytes: int, index: int, subject: str) -> InputError:
    """The error where so many bytes cannot be had. The card's context is this thread's."""
    try:
        free, total = call("cuMemGetInfo")
        there = f", which has {shown_bytes(free)} free of {shown_bytes(total)}"
    except VeraxError:
        there = ""
    return InputError(
        f"{subject} of {shown_bytes(nbytes)} find no place on the card{there}",
        place=f"cuda:{index}",
        next_step="run smaller inputs, end what else uses the card (nvidia-smi), or use a larger "
        "one",
    )


def cards() -> list[Card]:
    """All cards. Raises `DeviceError`, in words, where there is none or no driver, and
    `MissingPackageError` where the extra `cuda` is not installed."""
    _initialize()
    return [_card(i) for i in range(call("cuDeviceGetCount"))]


def card(index: int) -> Card:
    """One card. Raises as `cards`, and `DeviceError` where there are not so many."""
    available = cards()
    if not 0 <= index < len(available):
        names = ", ".join(f"cuda:{c.index} ({c.name})" for c in available) or "none"
        raise DeviceError(
            f"there is no card cuda:{index}", next_step=f"there are {names}", code=NO_DEVICE
        )
    return available[index]


def why_not(architecture: str, index: int = 0) -> str:
    """Why the card does not run code for a compute capability, in words; "" where it does."""
    try:
        its = card(index)
    except VeraxError as error:
        return error.cause
    if _capability(architecture) > 10 * its.capability[0] + its.capability[1]:
        major, minor = its.capability
        return f"the card {its.name} has compute capability {major}.{minor}"
    return ""


@cache
def driver() -> Any:
    """The driver's functions."""
    try:
        require(MODULE, EXTRA)
    except MissingPackageError:
        if not _has_device_files():
            raise _no_driver() from None
        raise
    return import_module(MODULE)


def _initialize() -> None:
    try:
        call("cuInit", 0)
    except RuntimeError as error:  # of `cuda.bindings`, which finds no library, or an old one
        if not _has_device_files():
            raise _no_driver() from error
        raise DeviceError(
            "NVIDIA's driver cannot be loaded on this machine "
            f"({str(error).partition(chr(10))[0][:200]})",
            next_step=_ELSEWHERE,
            code=NO_DEVICE,
        ) from error


def _has_device_files() -> bool:
    return any(Path(path).exists() for path in DEVICE_FILES)


def _no_driver() -> DeviceError:
    return DeviceError(
        "there is no driver of NVIDIA's on this machine", next_step=_ELSEWHERE, code=NO_DEVICE
    )


def _card(index: int) -> Card:
    device, attribute = call("cuDeviceGet", index), driver().CUdevice_attribute
    name = call("cuDeviceGetName", 256, device).split(b"\0")[0].decode(errors="replace").strip()
    major, minor, count, l2_cache = (
        int(call("cuDeviceGetAttribute", getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{a}"), device))
        for a in (
            *("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR"),
            *("MULTIPROCESSOR_COUNT", "L2_CACHE_SIZE"),
        )
    )
    version = int(call("cuDriverGetVersion"))
    spoken = f"CUDA {version // 1000}.{version % 1000 // 10}"
    version_text = f"{driver_version()} ({spoken})" if driver_version() else spoken
    nbytes = int(call("cuDeviceTotalMem", device))
    return Card(index, name, (major, minor), nbytes, version_text, count, l2_cache)


def _named(code: int) -> str:
    """The driver's own name of a code and what it says of it."""
    module = driver()
    try:
        result = module.CUresult(code)
        texts = [module.cuGetErrorName(result), module.cuGetErrorString(result)]
    except (ValueError, RuntimeError):
        return f"code {code}"
    words = [t.decode(errors="replace") for error, t in texts if not int(error) and t]
    return ": ".join(words) or f"code {code}"


def _capability(architecture: str) -> int:
    return int(architecture.removeprefix("sm_"))

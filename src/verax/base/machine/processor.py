"""What this machine's processor can do: whether code for a target would run here.

A target is a fixed set of instructions, so that one program is the same bytes on every machine that
can run it; whatever else a processor has is not used. The environment variable VERAX_TARGET names a
target whose instructions are all that is used: a machine behaves as a lesser one, for tests.
"""

from __future__ import annotations

import contextlib
import os
import platform
from functools import cache
from pathlib import Path

from verax.base.errors import CompileError, UsageError
from verax.base.gpu.targets import CUDA, EMULATED_GPU, GPU_TARGETS
from verax.base.lazy import deferred
from verax.base.optional import optional

_why_not = deferred("verax.base.gpu.cuda_driver:why_not")

VARIABLE = "VERAX_TARGET"
CPUINFO = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
AVX2 = ("avx2", "avx", "fma", "f16c", "bmi", "bmi2", "lzcnt", "popcnt", "movbe", "sse4.2", "cx16")
AVX512 = (*AVX2, "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd")
X86 = ("x86_64", "amd64")
TARGETS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "avx512bf16": (X86, (*AVX512, "avx512vnni", "avx512bf16")),
    "avx512vnni": (X86, (*AVX512, "avx512vnni")),
    "avx512": (X86, AVX512),
    "avxvnni": (X86, (*AVX2, "avxvnni")),
    "avx2": (X86, AVX2),
    "neon": (("aarch64", "arm64"), ()),
}
"""Target -> (names of its architecture, instructions that it takes, as LLVM calls them); the
fastest first."""
PROCESSOR_NAMES = ("avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2", "aarch64")
NAMES = (*PROCESSOR_NAMES, CUDA, *GPU_TARGETS)
"""Of targets, as people choose them."""
_LINUX_NAMES = {
    "bmi": "bmi1",
    "lzcnt": "abm",
    "sse4.2": "sse4_2",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avxvnni": "avx_vnni",
}
"""Where the kernel's name of an instruction set is another one than LLVM's."""


def runs_here(target: str, card: int = 0) -> bool:
    """Whether this machine runs code for the target of that name. card: of those that NVIDIA's
    driver has, the one that code for a GPU is for."""
    if target in GPU_TARGETS:
        return target == EMULATED_GPU or not _why_not(target, card)
    if target not in TARGETS:
        return False
    machines, features = TARGETS[target]
    return platform.machine().lower() in machines and set(features) <= _features()


def require_runs_here(target: str, location: str = "", card: int = 0) -> None:
    """Raise `CompileError` unless this machine runs code for the target: it would end the process.

    location: the file that holds the code, if it is in one. card: see `runs_here`.
    """
    if runs_here(target, card):
        return
    if target in GPU_TARGETS:
        raise CompileError(
            f"the program was compiled for {target!r}, which this machine does not run: "
            + _why_not(target, card),
            place=location,
            next_step="run it where there is such a card or a later one (`verax doctor` tells), or "
            "compile the model for the processor: target host",
        )
    machines, features = TARGETS.get(target, ((), ()))
    lacks = sorted(set(features) - _features()) if platform.machine().lower() in machines else ()
    reason = f": it has no {', '.join(lacks)}" if lacks else ""
    raise CompileError(
        f"the program was compiled for {target!r}, which this machine does not run{reason}",
        place=location,
        next_step="run it on a machine that does, or compile the model for this one (target host, "
        f"which is {best_target()})",
    )


def best_target() -> str | None:
    """The target with the widest registers that runs here; None if none does."""
    return next((name for name in TARGETS if runs_here(name)), None)


@cache
def processor_name() -> str:
    """What the processor calls itself."""
    return _cpuinfo_field("model name") or platform.processor()


@cache
def processor_family() -> str:
    """Its maker and generation, as Linux tells them; elsewhere the kind of machine."""
    fields = map(_cpuinfo_field, ("vendor_id", "cpu family", "CPU implementer", "CPU architecture"))
    return " ".join(filter(None, fields)) or platform.machine()


def _cpuinfo_field(field: str) -> str:
    """The first value of a field of /proc/cpuinfo; "" where there is none."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return ""
    entries = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in entries if name.strip() == field), "")


@cache
def cache_sizes() -> tuple[int, ...]:
    """Bytes of the caches for data that a core uses, the nearest first; () where nobody tells."""
    size_of_level: dict[int, int] = {}
    for folder in CACHES.glob("index*"):
        with contextlib.suppress(OSError, ValueError):
            if (folder / "type").read_text().strip() != "Instruction":
                size = (folder / "size").read_text().strip()
                unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:], 1)
                level = int((folder / "level").read_text())
                size_of_level[level] = int(size.rstrip("KM")) * unit
    return tuple(size for _, size in sorted(size_of_level.items()))


@cache
def _features() -> frozenset[str]:
    """Of the instructions that targets take those that may be used. Raises `UsageError` where
    VERAX_TARGET asks for what the processor does not have."""
    available, requested = _processor_features(), os.environ.get(VARIABLE) or "host"
    usable = _usable(available)
    name = "neon" if requested == "aarch64" else requested
    if name != "host" and name not in usable:
        raise UsageError(
            f"this processor does not run code for {requested!r}, which {VARIABLE} asks for",
            next_step=f"unset it, or choose one of host, {', '.join(usable)}",
        )
    return available if name == "host" else frozenset(usable[name])


def require_usable(requested: str, location: str) -> None:
    """Raise `UsageError` unless the processor itself runs code for the target, whatever
    VERAX_TARGET says. location: what asks for it."""
    usable = _usable(_processor_features())
    if requested not in ("host", "aarch64" if "neon" in usable else "", *usable):
        raise UsageError(
            f"its processor does not run code for {requested!r}",
            place=location,
            next_step=f"choose one of host, {', '.join(usable)}",
        )


def _usable(available: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """Targets of this kind of processor that have no other instructions, and their own."""
    here = platform.machine().lower()
    return {n: w for n, (machines, w) in TARGETS.items() if here in machines and available >= {*w}}


def _processor_features() -> frozenset[str]:
    all_features = {f for _, needed in TARGETS.values() for f in needed}
    try:
        lines = CPUINFO.read_text().splitlines()
        flags = next(set(line.split()) for line in lines if line.startswith("flags"))
        return frozenset(f for f in all_features if _LINUX_NAMES.get(f, f) in flags)
    except (OSError, StopIteration):  # not Linux, or not x86
        llvm = optional("llvmlite.binding", "to know what this processor can do")
        features = dict(llvm.get_host_cpu_features())
        return frozenset(f for f in all_features if features.get(f))

"""`Target`: the machine that code is made for, described by features and never by a CPU's name.

A logical vector always has 16 lanes, on every target: LLVM splits <16 x float> into the registers
that exist. So the generators are the same everywhere and so are the bits; only tile sizes look at
`registers` and `vector_bits`.
"""

from __future__ import annotations

import dataclasses
import threading

from llvmlite import binding as llvm

from verax.base.errors import UsageError
from verax.base.forks import on_fork
from verax.numerics.reductions import LANES

_AVX2 = "+avx2,+avx,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,+movbe,+sse4.2,+cx16"
_AVX512 = f"{_AVX2},+avx512f,+avx512vl,+avx512bw,+avx512dq,+avx512cd"
_initialised = threading.Lock()
_ready = False


def _renew_lock() -> None:
    global _initialised
    _initialised = threading.Lock()


on_fork(_renew_lock)


def initialise_llvm() -> None:
    """Make every code generator of this LLVM usable; cheap after the first call."""
    global _ready
    with _initialised:
        if not _ready:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            _ready = True


@dataclasses.dataclass(frozen=True)
class Target:
    """Where code runs.

    name: "avx512", "avx2" or "neon". triple, cpu, features: as LLVM spells them.
    vector_bits: width of the widest register; registers: how many of those there are. effort: of
    LLVM's code generator, 0 to 3; it changes no bit.
    """

    name: str
    triple: str
    cpu: str
    features: str
    vector_bits: int
    registers: int
    effort: int = 3

    @property
    def physical(self) -> int:
        """Machine registers that one logical vector of 16 float32 occupies."""
        return LANES * 32 // self.vector_bits

    @staticmethod
    def host() -> Target:
        """The machine this process runs on."""
        initialise_llvm()
        triple = llvm.get_default_triple()
        found = dict(llvm.get_host_cpu_features())
        features = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(found.items()))
        if triple.split("-")[0] in ("aarch64", "arm64"):
            return Target("neon", triple, "generic", features, 128, 32)
        if all(found.get(f) for f in ("avx512f", "avx512vl", "avx512bw", "avx512dq")):
            return Target("avx512", triple, "x86-64", features, 512, 32)
        if found.get("avx2") and found.get("fma"):
            return Target("avx2", triple, "x86-64", features, 256, 16)
        raise UsageError(
            "this processor has neither AVX2 with FMA nor NEON",
            place=triple,
            next_step="run on a newer machine, or compile for another with target=",
        )

    @staticmethod
    def avx512() -> Target:
        """x86-64 with AVX-512 F, VL, BW, DQ, CD."""
        return Target("avx512", _x86_triple(), "x86-64", _AVX512, 512, 32)

    @staticmethod
    def avx2() -> Target:
        """x86-64 with AVX2 and FMA."""
        return Target("avx2", _x86_triple(), "x86-64", _AVX2, 256, 16)

    @staticmethod
    def aarch64() -> Target:
        """64-bit ARM with NEON."""
        triple = llvm.get_default_triple()
        if not triple.startswith(("aarch64", "arm64")):
            triple = "aarch64-unknown-linux-gnu"
        return Target("neon", triple, "generic", "+neon", 128, 32)

    @staticmethod
    def named(name: str) -> Target:
        """The target called "host", "avx512", "avx2" or "aarch64"; UsageError for other names."""
        makers = {
            "host": Target.host,
            "avx512": Target.avx512,
            "avx2": Target.avx2,
            "aarch64": Target.aarch64,
        }
        if name not in makers:
            raise UsageError(
                f"unknown target {name!r}", next_step=f"choose one of {', '.join(makers)}"
            )
        return makers[name]()

    def runs_here(self) -> bool:
        """Whether this process could execute code made for this target."""
        host = Target.host()
        if host.triple.split("-")[0] != self.triple.split("-")[0]:
            return False
        have = dict(llvm.get_host_cpu_features())
        wanted = [f[1:] for f in self.features.split(",") if f.startswith("+")]
        return self.name == "neon" or all(have.get(f, False) for f in wanted)

    def machine(self) -> llvm.TargetMachine:
        """A fresh LLVM target machine, for position independent code."""
        initialise_llvm()
        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features=self.features, opt=self.effort, reloc="pic", codemodel="default"
        )


def _x86_triple() -> str:
    triple = llvm.get_default_triple()
    return triple if triple.startswith("x86_64") else "x86_64-unknown-linux-gnu"

"""`Target`: the machine that code is made for, described by features and never by a CPU's name.

A logical vector always has 16 lanes, on every target: LLVM splits <16 x float> into the registers
that exist. So the generators are the same everywhere and so are the bits; only tile sizes look at
`registers` and `vector_bits`.
"""

from __future__ import annotations

import dataclasses
import functools
import threading

from verax.base.errors import UsageError
from verax.base.gpu.targets import EMULATED_GPU, GPU_ARCHITECTURES, card_of
from verax.base.lazy import deferred
from verax.base.machine.processor import NAMES, TARGETS, best_target, runs_here
from verax.base.process.forks import on_fork
from verax.compiler.kernels.llvm.library import binding as llvm
from verax.numerics.lanes import LANES

_card = deferred("verax.base.gpu.cuda_driver:card")
_initialized = threading.Lock()
_ready = False


def _renew_lock() -> None:
    global _initialized
    _initialized = threading.Lock()


on_fork(_renew_lock)


def initialize_llvm() -> None:
    """Make every code generator of this LLVM usable; cheap after the first call."""
    global _ready
    with _initialized:
        if not _ready:
            llvm.initialize_all_targets()
            llvm.initialize_all_asmprinters()
            _ready = True


@dataclasses.dataclass(frozen=True)
class Target:
    """Where code runs.

    name: "avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2" or "neon". cpu, features: as LLVM
    spells them. vector_bits: width of the widest register; registers: how many of those there are.
    has_int8_dot: whether it has VNNI or dp4a, which adds up four products of bytes at a time.
    has_bf16_dot: whether it has AVX512_BF16, which adds two products of bfloat16. effort: of LLVM's
    code generator, 0 to 3; it changes no bit. gpu: "cuda" for NVIDIA's, "emulated" for one whose
    threads this processor runs, "" for none: `vector_bits` and `registers` are then those of one
    thread, in which a logical vector is 16 scalars.
    """

    name: str
    cpu: str
    features: str
    vector_bits: int
    registers: int
    has_int8_dot: bool = False
    has_bf16_dot: bool = False
    effort: int = 3
    gpu: str = ""

    @property
    def family(self) -> str:
        """Under which emitters are registered for kinds of targets: "gpu", or "" for a CPU."""
        return "gpu" if self.gpu else ""

    @property
    def physical(self) -> int:
        """Machine registers that one logical vector of 16 float32 occupies."""
        return LANES * 32 // self.vector_bits

    @staticmethod
    def host() -> Target:
        """The machine this process runs on."""
        name = best_target()
        if name is None:
            raise UsageError(
                "this processor has neither AVX2 with FMA nor NEON",
                place=llvm.get_default_triple(),
                next_step="run on a newer machine, or compile for another with target=",
            )
        return Target.named("aarch64" if name == "neon" else name)

    @staticmethod
    def avx512(int8_dot: bool = False, bf16_dot: bool = False) -> Target:
        """x86-64 with AVX-512 F, VL, BW, DQ, CD, and VNNI if `int8_dot`, AVX512_BF16 too if
        `bf16_dot`."""
        name = "avx512bf16" if bf16_dot else "avx512vnni" if int8_dot else "avx512"
        has_dots = int8_dot or bf16_dot
        return Target(name, "x86-64", _features(name), 512, 32, has_dots, bf16_dot)

    @staticmethod
    def avx2(int8_dot: bool = False) -> Target:
        """x86-64 with AVX2 and FMA, and VNNI on its registers if `int8_dot`."""
        name = "avxvnni" if int8_dot else "avx2"
        return Target(name, "x86-64", _features(name), 256, 16, int8_dot)

    @staticmethod
    def aarch64() -> Target:
        """64-bit ARM with NEON."""
        return Target("neon", "generic", "+neon", 128, 32)

    @staticmethod
    def cuda(architecture: str) -> Target:
        """NVIDIA's GPUs of a compute capability, such as "sm_80", and later ones."""
        return Target(architecture, architecture, "", 128, 32, True, gpu="cuda")

    @staticmethod
    def emulated_gpu() -> Target:
        """A GPU whose threads run on this processor, with what all of its kind have."""
        host = Target.host()
        common = host if host.name == "neon" else Target.avx2()
        return Target(EMULATED_GPU, common.cpu, common.features, 128, 32, True, gpu="emulated")

    @staticmethod
    def named(name: str) -> Target:
        """The target called "host", "aarch64", as an x86-64 one or a GPU's compute capability is;
        for "cuda" or "cuda:1" that of the card.

        Raises `UsageError` for others, and `DeviceError` where there is no such card.
        """
        if name == "host":
            return Target.host()
        if name == EMULATED_GPU:
            return Target.emulated_gpu()
        if name in GPU_ARCHITECTURES:
            return Target.cuda(name)
        if (index := card_of(name)) is not None:
            return Target.cuda(_card(index).architecture)
        if name not in NAMES:
            raise UsageError(
                f"unknown target {name!r}", next_step=f"choose one of host, {', '.join(NAMES)}"
            )
        if name == "aarch64":
            return Target.aarch64()
        int8_dot, bf16_dot = name.endswith("vnni"), name.endswith("bf16")
        return (
            Target.avx512(int8_dot, bf16_dot)
            if name.startswith("avx512")
            else Target.avx2(int8_dot)
        )

    @property
    def triple(self) -> str:
        """As LLVM spells it: the one that LLVM itself was built for, if it is of this kind of
        processor. Asking for it loads LLVM, which a program from the cache does not need."""
        if self.gpu == "cuda":
            return "nvptx64-nvidia-cuda"
        triple = _default_triple()
        if self.gpu:
            return triple
        if self.name == "neon":
            alike = triple.startswith(("aarch64", "arm64"))
            return triple if alike else "aarch64-unknown-linux-gnu"
        return triple if triple.startswith("x86_64") else "x86_64-unknown-linux-gnu"

    def runs_here(self, card: int = 0) -> bool:
        """Whether this process could execute code made for this target. card: of a GPU's."""
        return runs_here(self.name, card)

    @property
    def byte_products(self) -> str:
        """How kernels multiply bytes by bytes: "dots" by VNNI or dp4a, "pairs" by AVX2's
        instruction where it is exact (`paired_bytes`), "" not at all."""
        return "dots" if self.has_int8_dot else "pairs" if self.name == "avx2" else ""

    @property
    def makes_elf(self) -> bool:
        """Whether object files for it are ELF, as everywhere but on macOS and Windows."""
        no_elf = ("darwin", "macos", "windows", "nvptx")
        return not any(system in self.triple for system in no_elf)

    def machine(self) -> llvm.TargetMachine:
        """A fresh LLVM target machine, for position independent code."""
        initialize_llvm()
        return llvm.Target.from_triple(self.triple).create_target_machine(
            cpu=self.cpu, features=self.features, opt=self.effort, reloc="pic", codemodel="default"
        )


@functools.cache
def _default_triple() -> str:
    """Of LLVM itself, which is asked once: every call of a kernel wants to know."""
    triple: str = llvm.get_default_triple()
    return triple


def _features(name: str) -> str:
    """The instructions that a target takes, as LLVM is told them."""
    return ",".join(f"+{feature}" for feature in TARGETS[name][1])

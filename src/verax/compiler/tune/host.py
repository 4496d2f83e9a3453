"""`Host`: for what machine, number of threads and code a measurement holds."""

from __future__ import annotations

import dataclasses
import hashlib
from functools import cache
from pathlib import Path

from verax.base.processor import cache_sizes, processor_family, processor_name
from verax.compiler import kernels
from verax.compiler.kernels.llvm.library import llvmlite
from verax.compiler.kernels.target import Target


@dataclasses.dataclass(frozen=True)
class Host:
    """target: instructions that the code may use. processor, family: as it calls itself. caches:
    bytes, the nearest first. code: digest of what turns schedules into machine code."""

    target: str
    processor: str
    family: str
    caches: tuple[int, ...]
    threads: int
    code: str

    @staticmethod
    def here(target: Target, threads: int) -> Host:
        """This machine."""
        target_text = f"{target.name} {target.triple} {target.cpu} {target.features}"
        name, family = processor_name(), processor_family()
        return Host(target_text, name, family, cache_sizes(), threads, code_digest())

    def unlike(self, measured_on: Host) -> str:
        """How `measured_on` differs from this host of the same family, as a message; ANOTHER for
        another family, "" for exactly this host."""
        if (self.target, self.family) != (measured_on.target, measured_on.family):
            return ANOTHER
        if (self.processor, self.caches) != (measured_on.processor, measured_on.caches):
            return "another processor of the family"
        if self.threads != measured_on.threads:
            return f"{measured_on.threads} threads"
        return "" if self.code == measured_on.code else "another version of Verax"


ANOTHER = "another machine"


@cache
def code_digest() -> str:
    """SHA-256 of the source of the kernels, and of LLVM's version: not of times or places of files,
    so that equal versions are equal everywhere."""
    digest = hashlib.sha256(f"llvmlite {llvmlite.__version__}\n".encode())
    for path in sorted(Path(str(kernels.__file__)).parent.rglob("*.py")):
        digest.update(f"{path.name}\n".encode())
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()

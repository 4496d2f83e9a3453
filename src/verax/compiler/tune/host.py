"""`Host`: for what machine, number of threads and code a measurement holds; `LineOrigin`: where,
when and for what network it was made, in words, which decides nothing."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from verax.base.errors import VeraxError
from verax.base.gpu.cuda_driver import card as cuda_card
from verax.base.machine.processor import cache_sizes, processor_family, processor_name
from verax.compiler import kernels
from verax.compiler.kernels.llvm.library import llvmlite
from verax.compiler.kernels.target import Target
from verax.records.environment import verax_version

GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Host:
    """target: instructions that the code may use. processor, family: as it calls itself. caches:
    bytes, the nearest first. code: digest of what turns schedules into machine code.

    Of a card: processor is its name, family its compute capability, and in the place of caches are
    the bytes of the second-level cache, those of its memory in whole GiB (what is left of them
    differs by driver), and the count of multiprocessors. No thread of the host's works for a kernel
    of a GPU, so that threads are 1.
    """

    target: str
    processor: str
    family: str
    caches: tuple[int, ...]
    threads: int
    code: str

    @staticmethod
    def here(target: Target, threads: int, card: int = 0) -> Host:
        """This machine; its card of that number where the target is one, nothing known of it where
        there is none."""
        target_text = f"{target.name} {target.triple} {target.cpu} {target.features}"
        name, family, caches = processor_name(), processor_family(), cache_sizes()
        if target.gpu == "cuda":
            name, family, caches = _card_facts(card)
        if target.gpu:
            threads = 1
        return Host(target_text, name, family, caches, threads, code_digest())

    def unlike(self, measured_on: Host) -> str:
        """How `measured_on` differs from this host of the same family, as a message; ANOTHER for
        another family, "" for exactly this host."""
        if (self.target, self.family) != (measured_on.target, measured_on.family):
            return ANOTHER
        if (self.processor, self.caches) != (measured_on.processor, measured_on.caches):
            return ANOTHER_PROCESSOR
        if self.threads != measured_on.threads:
            return f"{measured_on.threads} threads"
        return "" if self.code == measured_on.code else ANOTHER_VERSION


def _card_facts(index: int) -> tuple[str, str, tuple[int, ...]]:
    """What `Host` says of a card: its processor, family and caches."""
    try:
        card = cuda_card(index)
    except VeraxError:
        return "", "", ()
    memory = round(card.memory / GIB) * GIB
    family = "NVIDIA {}.{}".format(*card.capability)
    return card.name, family, (card.l2_cache, memory, card.multiprocessors)


ANOTHER = "another machine"
ANOTHER_PROCESSOR = "another processor of the family"
ANOTHER_VERSION = "another version of Verax"


@dataclasses.dataclass(frozen=True)
class LineOrigin:
    """Texts that a line of a history carries for people and for choosing between lines. device:
    label of the device that measured; machine: name of the computer that it is in; network: that
    had the kernel; spec: the kernel in words; verax: version; when: in UTC, as ISO 8601 writes it,
    so that later times are later texts. "" where a line does not say."""

    device: str = ""
    machine: str = ""
    network: str = ""
    spec: str = ""
    verax: str = ""
    when: str = ""

    @staticmethod
    def now(device: str, machine: str, network: str, spec: str) -> LineOrigin:
        """That of what is measured now, with this version."""
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        return LineOrigin(device, machine, network, spec, verax_version(), when)

    @staticmethod
    def of(entry: Mapping[str, Any]) -> LineOrigin:
        """That of a line; what is no text there counts as not said."""
        texts = {f.name: entry.get(f.name) for f in dataclasses.fields(LineOrigin)}
        return LineOrigin(**{name: text for name, text in texts.items() if type(text) is str})

    def members(self) -> dict[str, str]:
        """What it says, as members of a line."""
        return {name: text for name, text in dataclasses.asdict(self).items() if text}


UNKNOWN = LineOrigin()
"""Of lines that say nothing of it."""


@cache
def code_digest() -> str:
    """SHA-256 of the source of the kernels, and of LLVM's version: not of times or places of files,
    so that equal versions are equal everywhere."""
    digest = hashlib.sha256(f"llvmlite {llvmlite.__version__}\n".encode())
    for path in sorted(Path(str(kernels.__file__)).parent.rglob("*.py")):
        digest.update(f"{path.name}\n".encode())
        digest.update(path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()

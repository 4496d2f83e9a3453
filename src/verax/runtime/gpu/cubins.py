"""Machine code that NVIDIA's driver made of kernels, kept on the disk beside compiled programs.

A file's name is the SHA-256 of the kernel's PTX, the card and the driver; it holds a checksum of
that name and of the code. It is machine code, so the folder has to be the user's alone, as that of
programs. Anything else that lies there is not used, and a folder that cannot be written keeps
nothing: the driver makes the code again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from pathlib import Path

from verax.base.caching import programs_folder
from verax.base.errors import VeraxError
from verax.base.gpu.cuda_driver import Card
from verax.base.storage.files import atomic_write
from verax.base.storage.private import why_not_private
from verax.base.storage.reading import plain_bytes

CUBIN = ".cubin"
PRIVATE = 0o600


@dataclasses.dataclass(frozen=True)
class CubinCache:
    """A folder of machine code."""

    folder: Path

    def key(self, ptx: bytes, card: Card) -> str:
        """The name of a kernel's machine code for a card."""
        facts = f"{card.name}\n{card.capability}\n{card.driver}\n".encode()
        return hashlib.sha256(facts + hashlib.sha256(ptx).digest()).hexdigest()

    def find(self, key: str) -> bytes | None:
        """The machine code of that name, or None. A damaged file is removed."""
        path = self.folder / f"{key}{CUBIN}"
        if not os.path.lexists(path) or not self._is_private():
            return None
        with contextlib.suppress(VeraxError, OSError, EOFError):
            digest, _, named = plain_bytes(path, own=True).partition(b"\n")
            name, _, code = named.partition(b"\n")
            if hashlib.sha256(named).hexdigest().encode() == digest and name == key.encode():
                os.utime(path)
                return code
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    def keep(self, key: str, code: bytes) -> None:
        """Keep machine code under that name, if the folder can be written."""
        named = key.encode() + b"\n" + code
        with contextlib.suppress(VeraxError, OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.folder / f"{key}{CUBIN}"
            if self._is_private():
                with atomic_write(path, durable=False, mode=PRIVATE) as stream:
                    stream.write(hashlib.sha256(named).hexdigest().encode() + b"\n" + named)

    def _is_private(self) -> bool:
        try:
            return not why_not_private(self.folder)
        except OSError:
            return False


def default_cubins() -> CubinCache | None:
    """The cache that the environment asks for; None where nothing is kept."""
    folder = programs_folder()
    return None if folder is None else CubinCache(folder)

"""Object code that one run of the suite makes once, for all its processes.

LLVM's code generator takes a third of the time of `make test`, and is given the same IR again and
again: by the other worker, by forked children, by tests that compile one network twice. Here it is
asked once in a run for each (IR, target): the store begins empty, in a folder of its own, and ends
with the run. All of Verax runs as ever, down to the text that LLVM would be given: whatever a test
breaks there makes another text. Child processes that are not forked ask LLVM itself, as do tests
that replace parts of the compiler, and those that use the fixture `llvm_itself`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from verax.compiler.kernels.llvm.object_code import code_of
from verax.compiler.kernels.target import Target
from verax.compiler.place.binary import assembly


class SharedCode:
    """Object files by what they were made of. folder: exists, and is the run's own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.is_used = folder, True

    def code_of(self, text: str, target: Target) -> bytes:
        """What `object_code.code_of` gives, from the store if another asked before."""
        if not self.is_used:
            return code_of(text, target)
        path = self.folder / hashlib.sha256(f"{target!r}\n{text}".encode()).hexdigest()
        with contextlib.suppress(OSError):
            return path.read_bytes()
        made = code_of(text, target)
        with contextlib.suppress(OSError):  # a disk that is full costs time only
            number, unfinished = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(number, "wb") as file:
                file.write(made)
            os.replace(unfinished, path)
        return made


def share_code(folder: Path) -> SharedCode:
    """Let every network of this process be assembled from the store in `folder`."""
    shared = SharedCode(folder)
    assembly.code_of = shared.code_of  # type: ignore[attr-defined]
    return shared

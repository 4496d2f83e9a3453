"""Compiled programs and their certificates on disk, so that what was compiled once starts at once.

An entry's name is the SHA-256 of everything that decides its code: the network with its sizes and
weights, the settings, the target, Verax's own source and the versions of LLVM and NumPy. So an
entry is never out of date, and entries of other versions are merely unused until they are dropped,
the longest unused first. An entry is a .vx file, written whole or not at all, and is checked as
one when it is read; a damaged one is dropped. Several processes may read and write at once.

Of a model that was read from a file there are two small records beside its program, by the bytes of
that file: what its inputs and outputs are, and which network it holds. With them the program is
found before the file is parsed (`loading`).

Large weights are files of their own (`runtime.vx`), named by the SHA-256 of their content, so the
programs of a network for several sizes keep them once. One that is missing or damaged makes an
entry a damaged one. A record beside an entry says which of these files were intact, and how the
system identified them then (`base.storage.unchanged`): those that nobody has written since are not
hashed again. Nor is a model's file.

Machine code that NVIDIA's driver made of a program's kernels lies beside the programs, too
(`runtime.gpu.cubins`).

Programs are machine code: nobody but its user may be able to put one there. The folder and those
above it are looked at (`base.storage.private`), and each file once it is open: no link is
followed. What is checksummed names the entry, so that a sound program under another's name is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import stat
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from verax.base.caching import FOLDER, SIZE, caching_is_off
from verax.base.caching import user_folder as _user_folder
from verax.base.errors import ModelError, UsageError, VeraxError
from verax.base.machine.memory import parse_bytes
from verax.base.option_groups.settings import Settings
from verax.base.storage.files import atomic_write
from verax.base.storage.private import why_not_private
from verax.base.storage.reading import file_sha256, plain_bytes
from verax.base.storage.unchanged import (
    Identity,
    boot_id,
    file_identity,
    identity_of,
    is_settled,
    known_sha256,
    remember,
)
from verax.compiler.kernels.llvm.library import llvmlite
from verax.compiler.kernels.target import Target
from verax.runtime.block_files import blocks_in
from verax.runtime.gpu.cubins import CUBIN
from verax.runtime.program_binary import ProgramBinary
from verax.runtime.vx import BLOCK, load_binary, save_binary, save_block
from verax.runtime.weight_blocks import WeightBlock

DEFAULT_SIZE = 4 << 30
PROGRAM, CERTIFICATE, RECORD, INTACT = ".vx", ".json", ".model", ".intact"
"""How files of programs, certificates, records of models and of intact blocks end."""
BOOT = "boot"
"""Of a record of intact blocks, beside their digests."""
PRIVATE = 0o600
"""Rights of an entry, whatever the user's usual ones are."""
ROOT = Path(__file__).resolve().parents[2]
"""Verax's source: how operators, readers and the judge are written decides entries, too."""


def is_cached(settings: Settings) -> bool:
    """Whether programs of these settings are kept: not those made while looking for a fault."""
    return not (
        settings.checked
        or settings.inject
        or settings.quick
        or settings.stop_after is not None
        or settings.steps is not None
    )


@dataclass(frozen=True)
class ProgramCache:
    """A folder of programs. limit: bytes that it holds at most, the newest entry aside."""

    folder: Path
    limit: int = DEFAULT_SIZE

    def key(
        self,
        network: str,
        values: Mapping[str, bytes],
        target: Target,
        settings: Settings,
        schedules: str = "",
    ) -> str:
        """The name of the program's entry.

        network: `compiler.pipeline.recipe.network_hash` of the graph with its sizes; values: of the
        inputs that decide sizes; schedules: digest of measured ones that may be taken.
        """
        decides = {
            "made by": build_digest(),
            "network": network,
            "values": {name: value.hex() for name, value in values.items()},
            "target": [target.name, target.cpu, target.features],
            "level": settings.opt_level,
            "threads": settings.thread_count,
            "passes": [settings.disable, settings.require, settings.passes, settings.keep_exact],
            "allowed": settings.allow,
            "native": settings.require_native,
            "schedules": schedules,
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def program(
        self, key: str, sizes: Sequence[int] | None = None
    ) -> tuple[ProgramBinary, dict[str, Any]] | None:
        """The program of that name with its notes, or None. Raises `NotServedError` for one for
        many sizes that are not these."""
        path = self.folder / f"{key}{PROGRAM}"
        if not self._has(path):
            return None
        recorded = self._intact(key)
        intact = dict(recorded)
        try:
            loaded = load_binary(path, entry=key, sizes=sizes, intact=intact)
        except (ModelError, UsageError):
            _remove(path)
            return None
        _touch(path)
        if intact != recorded:
            self._keep_intact(key, intact)
        _seen_intact.update(intact)
        return loaded

    def keep_program(self, key: str, binary: ProgramBinary, notes: dict[str, Any]) -> None:
        """Keep a program; a cache that cannot be written warns and does nothing."""
        path = self.folder / f"{key}{PROGRAM}"

        def write() -> None:
            for block in binary.blocks:
                written = save_block(self.folder, block)
                intact[block.digest] = written or _seen_intact.get(block.digest, ())
            _seen_intact.update(intact)
            save_binary(path, binary, notes, durable=False, entry=key)

        intact: dict[str, Identity] = {}
        blocks = frozenset(map(self._block, binary.blocks))
        self._write(path, write, blocks)
        if intact:
            self._keep_intact(key, intact, blocks | {path})

    @contextlib.contextmanager
    def packing(self) -> Iterator[None]:
        """Blocks that are packed inside, for a program that will be kept, become files at once."""
        is_usable = False
        with contextlib.suppress(OSError):  # `keep_program` says what is wrong
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_usable = self.folder.is_dir() and self._is_private()
        with blocks_in(self.folder if is_usable else None):
            yield

    def _intact(self, key: str) -> dict[str, Identity]:
        """By digest, the identity of each file of a block of an entry that was intact."""
        try:
            recorded = json.loads(self.text(key, INTACT) or "{}")
            if recorded.pop(BOOT, boot_id()) != boot_id():
                return {}  # what was not yet on the disk then is lost, and has its size
            return {digest: tuple(map(int, identity)) for digest, identity in recorded.items()}
        except (AttributeError, TypeError, ValueError):
            return {}

    def _keep_intact(
        self, key: str, intact: Mapping[str, Identity], blocks: Set[Path] = frozenset()
    ) -> None:
        """Keep that record; a file whose identity is () will be hashed. blocks: those that were
        just written, see `_write`, of which the record holds until the system is started anew."""
        record: dict[str, Any] = dict(intact) | ({BOOT: boot_id()} if blocks else {})
        self.keep_text(key, json.dumps(record), INTACT, blocks)

    def file_sha256(self, path: str | os.PathLike[str]) -> str:
        """As `reading.file_sha256`, of a file that any process of this user may have hashed."""
        name, identity = entry_name("file", os.path.abspath(path)), file_identity(path)
        recorded, _, sha256 = (self.text(name, RECORD) or "").partition(" ")
        if identity and recorded == _identity_text(identity):
            remember(identity, sha256)
            return sha256
        may_be_kept = is_settled(identity)
        sha256 = file_sha256(path)
        if may_be_kept and known_sha256(identity) == sha256:  # it is that file which was hashed
            self.keep_text(name, f"{_identity_text(identity)} {sha256}", RECORD)
        return sha256

    def _block(self, block: WeightBlock) -> Path:
        return self.folder / f"{block.digest}{BLOCK}"

    def text(self, key: str, suffix: str = CERTIFICATE) -> str | None:
        """What `keep_text` kept under that name, or None."""
        path = self.folder / f"{key}{suffix}"
        if not self._has(path):
            return None
        try:
            digest, _, named = plain_bytes(path, own=True).partition(b"\n")
        except VeraxError:
            _remove(path)
            return None
        entry, _, text = named.partition(b"\n")
        if hashlib.sha256(named).hexdigest().encode() != digest or entry != key.encode():
            _remove(path)
            return None
        _touch(path)
        return text.decode()

    def keep_text(
        self, key: str, text: str, suffix: str = CERTIFICATE, beside: Set[Path] = frozenset()
    ) -> None:
        """Keep a text, with its entry's name and a checksum of both. beside: newest files too."""
        path, named = self.folder / f"{key}{suffix}", f"{key}\n{text}".encode()

        def write() -> None:
            with atomic_write(path, durable=False, mode=PRIVATE) as stream:
                stream.write(hashlib.sha256(named).hexdigest().encode() + b"\n" + named)

        self._write(path, write, beside)

    def entries(self) -> list[tuple[Path, int, float]]:
        """(file, bytes, time of the last use) of every entry, the longest unused first.

        A block was used when an entry that reads it was, so it is dropped behind that one.
        """
        entries, used = [], dict[str, float]()
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                with contextlib.suppress(OSError):
                    if path.suffix in (PROGRAM, CERTIFICATE, RECORD, INTACT, BLOCK, CUBIN):
                        state = path.stat()
                        entries.append((path, state.st_size, state.st_mtime))
                    if path.suffix == INTACT:
                        for digest in _digests_in(path):
                            used[digest] = max(state.st_mtime, used.get(digest, 0.0))
        entries = [
            (
                path,
                size,
                max(seconds, used.get(path.stem, 0.0)) if path.suffix == BLOCK else seconds,
            )
            for path, size, seconds in entries
        ]
        return sorted(entries, key=lambda entry: (entry[2], entry[0].suffix == BLOCK))

    def clear(self) -> int:
        """Remove every entry; how many there were."""
        return self._remove(self.entries())

    def _remove(self, entries: list[tuple[Path, int, float]]) -> int:
        return sum(_remove(path) for path, _, _ in entries)

    def _write(
        self, path: Path, write: Callable[[], None], blocks: Set[Path] = frozenset()
    ) -> None:
        """Make the folder, write an entry with its `blocks`, and drop what is too much of the
        others. A failure is a warning."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._is_private():
                with contextlib.suppress(FileNotFoundError):
                    if not stat.S_ISREG(os.lstat(path).st_mode):  # a pipe would be waited for
                        path.unlink()
                write()
                self._shrink(blocks | {path})
        except (OSError, VeraxError) as error:
            message = error.cause if isinstance(error, VeraxError) else error.strerror or str(error)
            self._warn(f"it cannot keep compiled programs ({message})")

    def _shrink(self, newest: Set[Path]) -> None:
        entries = self.entries()
        over = sum(size for _, size, _ in entries) - self.limit
        for entry in entries:
            if over <= 0:
                break
            if entry[0] not in newest:
                self._remove([entry])
                over -= entry[1]

    def _has(self, path: Path) -> bool:
        """Whether there is something that may be looked at."""
        return os.path.lexists(path) and self._is_private()

    def _is_private(self) -> bool:
        """Whether nobody else could have put code there."""
        try:
            reason = why_not_private(self.folder)
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            self._warn(reason)
        return not reason

    def _warn(self, reason: str) -> None:
        """Say once for a folder that it is not used."""
        if self.folder not in _warned:
            _warned.add(self.folder)
            text = f"the cache {self.folder} is not used: {reason}"
            warnings.warn(f"{text}; set {FOLDER} to a folder of yours, or to off", stacklevel=4)


_warned: set[Path] = set()
_seen_intact: dict[str, Identity] = {}
"""By digest, the file of a block that this process wrote or found intact: entries share them."""


def default_cache() -> ProgramCache | None:
    """The cache that the environment asks for; None when it is off.

    VERAX_CACHE names a folder or is "off"; without it the user's folder for caches is taken.
    VERAX_CACHE_SIZE limits it. Raises `UsageError` when that is no size.
    """
    if caching_is_off():
        return None
    folder = os.environ.get(FOLDER, "")
    size_text = os.environ.get(SIZE, "")
    limit = parse_bytes(size_text) if size_text else DEFAULT_SIZE
    path = Path(folder) if folder else Path(_user_folder()) / "programs"
    cache = ProgramCache(path, limit)
    if not folder and not path.is_absolute():
        cache._warn("this user has no home folder")
        return None
    return cache


def entry_name(*decides: str) -> str:
    """The name of an entry whose content these texts and Verax's own source decide."""
    return hashlib.sha256(json.dumps([build_digest(), *decides]).encode()).hexdigest()


@cache
def build_digest() -> str:
    """SHA-256 of what makes and judges programs: Verax's source, LLVM, NumPy, the system.

    The source counts by its content: its times say nothing where an installer sets them all alike.
    While nobody has written it (`base.storage.unchanged`) its digest is that of a record in the
    cache.
    """
    packages = (llvmlite, np, ml_dtypes)
    versions = [f"{platform.system()} {platform.machine()}"]
    versions += [f"{package.__name__} {package.__version__}" for package in packages]
    files = _source_files(str(ROOT))
    latest = max((max(identity[-2:], default=0) for _, identity in files), default=0)
    is_old = all(identity for _, identity in files) and is_settled((latest,))
    cache = None
    with contextlib.suppress(UsageError):  # whoever uses the cache is told
        cache = default_cache() if is_old else None
    name = hashlib.sha256(json.dumps(["source", versions, files]).encode()).hexdigest()
    recorded = None if cache is None else cache.text(name, RECORD)
    if recorded is not None:
        return recorded
    digest = hashlib.sha256("\n".join(versions).encode())
    for path, _ in files:
        content = Path(path).read_bytes()
        digest.update(f"{os.path.relpath(path, ROOT)} {len(content)}\n".encode())
        digest.update(content)
    if cache is not None:
        cache.keep_text(name, digest.hexdigest(), RECORD)
    return digest.hexdigest()


def _source_files(root: str) -> list[tuple[str, Identity]]:
    """Path and identity of every file of Python's in a folder and those below it."""
    files, folders = [], [root]
    for folder in folders:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    files.append((entry.path, identity_of(entry.stat())))
                elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    return sorted(files)


def _remove(path: Path) -> bool:
    """Whether it is gone."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _identity_text(identity: Identity) -> str:
    return ",".join(map(str, identity))


def _digests_in(record: Path) -> list[str]:
    """The digests of blocks that a record of intact ones names; it is not used by this."""
    try:
        return list(json.loads(plain_bytes(record, own=True).split(b"\n", 2)[2]))
    except (VeraxError, LookupError, TypeError, ValueError):
        return []


def _touch(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.utime(path)

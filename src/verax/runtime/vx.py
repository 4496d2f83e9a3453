"""The .vx file: one compiled program, self-contained, checked before anything of it is used.

Layout, little-endian: 8 bytes magic, uint32 format version, uint32 header length, SHA-256 of the
header, header (JSON), then the sections of SECTIONS, each on a 4096-byte boundary, one after the
other, the gaps zero; then in the same way the blocks of weights that the header counts up; last, if
the file is signed, the signature (`runtime.signature`). The header lists every section with offset,
size and SHA-256, the blocks with size and SHA-256, and holds the binary and the notes. So the first
48 bytes vouch for the whole file. The section "state" is what the program remembers at first, one
array after the other.

An entry of a cache has its blocks in files of their own, named by their SHA-256, which entries for
other sizes share, and holds their keys (`runtime.weight_blocks`).

The file is machine code, and as trustworthy as its sender. What is checked (`runtime.header`,
`runtime.soundness`) is that everything else in it fits together, and fits the code: the object code
carries the digest of the binary that it was compiled for (`runtime.program_binary.contract`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import struct
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from verax.base.errors import ModelError, UsageError
from verax.base.machine.cores import deciding
from verax.base.storage.files import atomic_write
from verax.base.storage.reading import mapped_bytes, mapped_file, private_bytes
from verax.base.storage.unchanged import Identity, file_identity
from verax.runtime.header import BlockRecord, Section, read_header
from verax.runtime.header_values import HeaderError
from verax.runtime.open_sizes import OpenSizes
from verax.runtime.program_binary import PAGE, ProgramBinary, contract, described, initial_bytes
from verax.runtime.signature import SIZE as SIGNATURE_SIZE
from verax.runtime.signature import SigningKey, TrustedKey, is_signature, signature, verify
from verax.runtime.size_code import record_of
from verax.runtime.soundness import check_binary
from verax.runtime.weight_blocks import ALIGNMENT, WEIGHTS, WeightBlock, room_for

S = TypeVar("S")
R = TypeVar("R")
MAGIC = b"VERAX\x00VX"
VERSION = 8
BLOCK = ".weights"
"""Ends the name of the file of a block."""
HASHED_BY_ONE = 4 << 20
"""Bytes of blocks that one thread checks sooner than several are started."""
SECTIONS = ("code", "weights", "state")
_PREFIX = struct.Struct("<8sII32s")
_HEADER_LIMIT = 1 << 26


def save_binary(
    path: str | os.PathLike[str],
    binary: ProgramBinary,
    notes: dict[str, Any],
    sign: SigningKey | None = None,
    durable: bool = True,
    entry: str = "",
) -> None:
    """Write `binary` and JSON-able `notes` (graph text, nodes run in Python, versions) to `path`.

    sign: the key that signs the file. durable: see `base.storage.files.atomic_write`. entry: the
    name of the entry of a cache that the file is: its blocks are not written (`save_block`). Raises
    `UsageError` when the file cannot be written; no partial file is left.
    """
    sections = {
        "code": memoryview(binary.object_code),
        "weights": binary.weights.data,
        "state": memoryview(initial_bytes(binary)),
    }
    table: dict[str, dict[str, Any]] = {}
    end = 0
    for name in SECTIONS:
        size, digest = sections[name].nbytes, hashlib.sha256(sections[name]).hexdigest()
        table[name] = {"offset": end, "size": size, "sha256": digest}
        end += _pages(size)
    apart: dict[str, Any] = {}
    if entry:
        apart = {"entry": entry, "keys": [block.key for block in binary.blocks]}
        if binary.open_sizes is not None:
            apart["size_code"] = record_of(binary.open_sizes)
    header = json.dumps(
        {"sections": table, "image": described(binary), "notes": notes, **apart},
        separators=(",", ":"),
    ).encode()
    prefix = _PREFIX.pack(MAGIC, VERSION, len(header), hashlib.sha256(header).digest())
    start = _pages(len(prefix) + len(header))
    with atomic_write(path, durable, 0o600 if entry else 0o666) as stream:
        stream.write(prefix + header)
        for name in SECTIONS:
            stream.seek(start + table[name]["offset"])
            stream.write(sections[name])
        for block in () if entry else binary.blocks:
            stream.seek(start + end)
            stream.write(block.data.data)
            end += _pages(block.nbytes)
        stream.truncate(start + end)
        if sign is not None:
            stream.seek(start + end)
            stream.write(signature(sign, prefix + header))


def save_block(folder: str | os.PathLike[str], block: WeightBlock) -> Identity:
    """Write a block of an entry beside it, unless it is there. Raises as `save_binary`.

    -> the identity of the file that was written; () for one that was there, whatever it holds.
    """
    path = os.path.join(folder, block.digest + BLOCK)
    if _is_file_of(path, block.nbytes):
        return ()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # whatever it is: a pipe would be waited for
    file, block.file = block.file, None
    try:
        if file is not None and file.named(path):
            return file_identity(path)
    except OSError as error:
        raise UsageError(f"cannot name the file: {error.strerror or error}", place=path) from error
    with atomic_write(path, durable=False, mode=0o600) as stream:
        stream.write(block.data.data)
    return file_identity(path)


def _is_file_of(path: str, nbytes: int) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == nbytes


def load_blocks(
    folder: str | os.PathLike[str],
    records: Sequence[BlockRecord],
    keys: Sequence[str],
    intact: dict[str, Identity],
) -> list[WeightBlock]:
    """The blocks of an entry, which lie beside it: of this process, else their files, mapped.

    intact: by digest the identity of files that held it, which are not hashed again; those that
    are hashed now are added. Raises `ModelError` when there is no such file or it is damaged.
    """
    loaded = [WEIGHTS.find(digest=record.sha256) for record in records]
    missing = [record for record, block in zip(records, loaded) if block is None]
    files = [_MappedBlock(folder, record) for record in missing]
    changed = [file for file in files if not file.is_in(intact)]
    _side_by_side(_MappedBlock.require_intact, changed, sum(file.size for file in changed))
    intact.update({file.digest: file.identity for file in files})
    mapped = {file.digest: WeightBlock(file.array, file.digest) for file in files}
    return [
        WEIGHTS.add(block or mapped[record.sha256], key)
        for record, block, key in zip(records, loaded, keys, strict=True)
    ]


def _side_by_side(check: Callable[[S], R], items: Sequence[S], nbytes: int) -> list[R]:
    """What `check` makes of each item, by several threads if they hash many bytes: hashing takes
    longer than all else of a start, and lets other threads run."""
    threads = deciding().threads if nbytes > HASHED_BY_ONE else 1
    if threads == 1:
        return [check(item) for item in items]
    with import_module("concurrent.futures").ThreadPoolExecutor(threads) as pool:
        return list(pool.map(check, items))


class _MappedBlock:
    """The file of a block, mapped."""

    def __init__(self, folder: str | os.PathLike[str], record: BlockRecord) -> None:
        self.path, self.digest = os.path.join(folder, record.sha256 + BLOCK), record.sha256
        data, self.identity = mapped_file(self.path, error=ModelError)
        self.size, self.array = record.size, np.frombuffer(data, np.uint8)

    def is_in(self, intact: Mapping[str, Identity]) -> bool:
        """Whether it is the file that was intact."""
        is_same = self.identity != () and intact.get(self.digest) == self.identity
        return is_same and self.array.nbytes == self.size

    def require_intact(self) -> None:
        """Raise `ModelError` unless it has the content that it is named by."""
        is_long = self.array.nbytes == self.size
        if not is_long or hashlib.sha256(self.array.data).hexdigest() != self.digest:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)  # or it would be taken for the block by who writes one
            raise _damaged(self.path, "a block of its weights does not match its checksum")


class NotServedError(Exception):
    """A program for many sizes is not for those that are asked for. Its weights were not read."""

    def __init__(self, open_sizes: OpenSizes) -> None:
        super().__init__(open_sizes)
        self.open_sizes = open_sizes


def load_binary(
    path: str | os.PathLike[str],
    trust: TrustedKey | None = None,
    entry: str = "",
    sizes: Sequence[int] | None = None,
    intact: dict[str, Identity] | None = None,
) -> tuple[ProgramBinary, dict[str, Any]]:
    """Read a .vx file: the binary (weights read-only) and its notes. Later changes of the file do
    not reach them.

    trust: the key that must have signed the file. entry: it is this entry of a cache, which is
    Verax's own (`reading.mapped_bytes`), and its weights are mapped (`load_blocks`, which `intact`
    is for). sizes: that a program for many has to serve, else `NotServedError` is raised before
    they are. Raises
    `ModelError` when the file is damaged, contradicts itself or is of another format version,
    `TrustError` when it is not signed by `trust`. The file holds machine code: load only files you
    would also run as programs.
    """
    location = os.fspath(path)
    data = (mapped_bytes if entry else private_bytes)(path, error=ModelError)
    if len(data) < _PREFIX.size:
        raise _damaged(location, "it ends within its first bytes")
    magic, version, length, digest = _PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise _damaged(location, "it does not start as one")
    if version != VERSION:
        raise ModelError(
            f"the file has format version {version}, this Verax reads {VERSION}",
            place=location,
            next_step="compile the model again",
        )
    if length > min(_HEADER_LIMIT, len(data) - _PREFIX.size):
        raise _damaged(location, "its header is longer than the file")
    covered = data[: _PREFIX.size + length]
    text = covered[_PREFIX.size :].tobytes()
    if hashlib.sha256(text).digest() != digest:
        raise _damaged(location, "its header does not match its checksum")
    if trust is not None:  # before any more of the file is looked at
        verify(trust, covered, data[-SIGNATURE_SIZE:], location)
    try:
        header = read_header(text, SECTIONS, entry)
        open_sizes: OpenSizes | None = header.fields["open_sizes"]
        if sizes is not None and open_sizes is not None:
            if len(open_sizes.symbols) != len(sizes):
                raise HeaderError(f"it leaves {len(open_sizes.symbols)} sizes open")
            if not open_sizes.serves(sizes):
                raise NotServedError(open_sizes)
        sections, end = _sections(data, len(covered), header.sections)
        if entry:
            folder = os.path.dirname(location)
            intact = {} if intact is None else intact
            blocks = load_blocks(folder, header.blocks, header.keys, intact)
        else:
            blocks, end = _blocks(data, end, header.blocks)
        _must_end(data, end)
        code = sections["code"].tobytes()
        weights = _aligned(np.frombuffer(sections["weights"], np.uint8))
        binary = header.binary(code, weights, sections["state"], blocks)
        check_binary(binary)
    except HeaderError as error:
        raise _damaged(location, str(error)) from error
    # An entry was written whole by who compiled its code, or its name and checksum would not hold.
    if code and not entry and not _belongs(code, binary, header.sections["weights"].sha256):
        raise _damaged(location, "its code was compiled for another header or other weights")
    return binary, header.notes


def _belongs(code: bytes, binary: ProgramBinary, weights: str) -> bool:
    """Whether code was compiled for this binary, whose own weights have that SHA-256."""
    return contract(binary, bytes.fromhex(weights)) in code


def _sections(
    data: memoryview, start: int, table: dict[str, Section]
) -> tuple[dict[str, memoryview], int]:
    """The content of every section by name, and where the last one ends. Raises `HeaderError`
    where a byte between them belongs to none."""
    contents, at = {}, start
    for name in SECTIONS:
        entry, begin = table[name], _pages(at)
        if _pages(start) + entry.offset != begin:
            raise HeaderError(f"the section {name!r} does not lie where it should")
        contents[name], at = _content(data, at, entry.size, entry.sha256, f"the section {name!r}")
    return contents, at


def _blocks(
    data: memoryview, at: int, table: Sequence[BlockRecord]
) -> tuple[list[WeightBlock], int]:
    """The blocks that follow from `at` on, and where the last one ends. Raises `HeaderError`."""
    contents = []
    for i, entry in enumerate(table):
        content, at = _located(data, at, entry.size, f"block {i}")
        contents.append((content, entry.sha256, f"block {i}"))
    _side_by_side(_must_match, contents, sum(entry.size for entry in table))
    blocks = []
    for content, digest, _ in contents:
        block = WEIGHTS.find(digest=digest)
        if block is None:
            array = _aligned(np.frombuffer(content, np.uint8))
            block = WEIGHTS.add(WeightBlock(array, digest))
        blocks.append(block)
    return blocks, at


def _content(
    data: memoryview, at: int, size: int, digest: str, name: str
) -> tuple[memoryview, int]:
    """What begins on the first page behind `at`, checked, and where it ends."""
    content, end = _located(data, at, size, name)
    _must_match((content, digest, name))
    return content, end


def _located(data: memoryview, at: int, size: int, name: str) -> tuple[memoryview, int]:
    """What begins on the first page behind `at`, and where it ends."""
    begin = _pages(at)
    if begin + size > len(data):
        raise HeaderError(f"{name} does not lie where it should")
    _must_be_zero(data[at:begin])
    return data[begin : begin + size], begin + size


def _must_match(entry: tuple[memoryview, str, str]) -> None:
    """Raise `HeaderError` where a content is not the one of that SHA-256. entry: with its name."""
    content, digest, name = entry
    if hashlib.sha256(content).hexdigest() != digest:
        raise HeaderError(f"{name} does not match its checksum")


def _must_end(data: memoryview, at: int) -> None:
    """Raise `HeaderError` where a byte behind `at` is neither padding nor signature."""
    end = _pages(at)
    _must_be_zero(data[at:end])
    trailer = data[end:]
    if len(data) < end or (len(trailer) and not is_signature(trailer)):
        raise HeaderError(f"it has {len(data)} bytes where {end} belong")


def _aligned(array: np.ndarray) -> np.ndarray:
    """`array`, or a copy where it does not begin on the boundary that kernels want."""
    if array.ctypes.data % ALIGNMENT == 0:
        return array
    (copy,) = room_for([array.nbytes])
    copy[:] = array
    copy.flags.writeable = False
    return copy


def _must_be_zero(gap: memoryview) -> None:
    if gap.tobytes().strip(b"\0"):
        raise HeaderError("there is something between its sections")


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _damaged(location: str, reason: str) -> ModelError:
    return ModelError(
        f"this is no intact .vx file: {reason}", place=location, next_step="compile the model again"
    )

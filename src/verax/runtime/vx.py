"""The .vx file: one compiled program, self-contained, checked before anything of it is used.

Layout, little-endian: 8 bytes magic, uint32 format version, uint32 header length, SHA-256 of the
header, header (JSON), then the sections of SECTIONS, each on a 4096-byte boundary, one after the
other, the gaps zero; last, if the file is signed, the signature (`runtime.signature`). The header
lists every section with offset, size and SHA-256, and holds the binary and the notes. So the first
48 bytes vouch for the whole file. The section "state" is what the program remembers at first, one
array after the other.

The file is machine code, and as trustworthy as its sender. What is checked (`runtime.header`,
`runtime.soundness`) is that everything else in it fits together, and fits the code: the object code
carries the digest of the binary that it was compiled for (`runtime.program_binary.contract`).
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.base.files import atomic_write
from verax.base.reading import mapped_bytes, private_bytes
from verax.runtime.header import HeaderError, Section, read_header
from verax.runtime.program_binary import ProgramBinary, contract, described, initial_bytes
from verax.runtime.signature import SIZE as SIGNATURE_SIZE
from verax.runtime.signature import SigningKey, TrustedKey, is_signature, signature, verify
from verax.runtime.soundness import check_binary

MAGIC = b"VERAX\x00VX"
VERSION = 6
PAGE = 4096
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

    sign: the key that signs the file. durable: see `base.files.atomic_write`. entry: the name of
    the entry of a cache that the file is. Raises `UsageError`
    when the file cannot be written; no partial file is left.
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
    named = {"entry": entry} if entry else {}
    header = json.dumps(
        {"sections": table, "image": described(binary), "notes": notes, **named},
        separators=(",", ":"),
    ).encode()
    prefix = _PREFIX.pack(MAGIC, VERSION, len(header), hashlib.sha256(header).digest())
    start = _pages(len(prefix) + len(header))
    with atomic_write(path, durable, 0o600 if entry else 0o666) as stream:
        stream.write(prefix + header)
        for name in SECTIONS:
            stream.seek(start + table[name]["offset"])
            stream.write(sections[name])
        stream.truncate(start + end)
        if sign is not None:
            stream.seek(start + end)
            stream.write(signature(sign, prefix + header))


def load_binary(
    path: str | os.PathLike[str], trust: TrustedKey | None = None, entry: str = ""
) -> tuple[ProgramBinary, dict[str, Any]]:
    """Read a .vx file: the binary (weights read-only) and its notes. Later changes of the file do
    not reach them.

    trust: the key that must have signed the file. entry: it is this entry of a cache, which is
    Verax's own (`reading.mapped_bytes`), and its weights are mapped. Raises `ModelError` when the
    file is damaged, contradicts itself or is of another format version, `TrustError` when it is not
    signed by `trust`. The file holds machine code: load only files you would also run as programs.
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
        header = read_header(text, SECTIONS)
        if entry and header.entry != entry:
            raise HeaderError("it is another entry of the cache")
        sections = _sections(data, len(covered), header.sections)
        code = sections["code"].tobytes()
        weights = np.frombuffer(sections["weights"], np.uint8)
        binary = header.binary(code, weights, sections["state"])
        check_binary(binary)
    except HeaderError as error:
        raise _damaged(location, str(error)) from error
    if code and contract(binary, bytes.fromhex(header.sections["weights"].sha256)) not in code:
        raise _damaged(location, "its code was compiled for another header or other weights")
    return binary, header.notes


def _sections(data: memoryview, start: int, table: dict[str, Section]) -> dict[str, memoryview]:
    """The content of every section, by name. Raises `HeaderError` where a byte of the file belongs
    to no section, padding or signature."""
    contents, at = {}, start
    for name in SECTIONS:
        entry, begin = table[name], _pages(at)
        if _pages(start) + entry.offset != begin or begin + entry.size > len(data):
            raise HeaderError(f"the section {name!r} does not lie where it should")
        _must_be_zero(data[at:begin])
        at = begin + entry.size
        contents[name] = data[begin:at]
        if hashlib.sha256(contents[name]).hexdigest() != entry.sha256:
            raise HeaderError(f"the section {name!r} does not match its checksum")
    end = _pages(at)
    _must_be_zero(data[at:end])
    trailer = data[end:]
    if len(data) < end or (len(trailer) and not is_signature(trailer)):
        raise HeaderError(f"it has {len(data)} bytes where {end} belong")
    return contents


def _must_be_zero(gap: memoryview) -> None:
    if any(gap):
        raise HeaderError("there is something between its sections")


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _damaged(location: str, reason: str) -> ModelError:
    return ModelError(
        f"this is no intact .vx file: {reason}", place=location, next_step="compile the model again"
    )

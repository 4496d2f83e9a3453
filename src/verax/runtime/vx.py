"""The .vx file: one compiled program, self-contained, checked before anything of it is used.

Layout, little-endian: 8 bytes magic, uint32 format version, uint32 header length, SHA-256 of the
header, header (JSON), then sections, each on a 4096-byte boundary so that weights can be mapped.
The header lists every section with offset, size and SHA-256, the signature, the schedule, and the
graph's text form.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import ModelError
from verax.base.files import atomic_write
from verax.runtime.image import Image, PythonStep, Segment, Signature, Tensor

MAGIC = b"VERAX\x00VX"
VERSION = 1
PAGE = 4096
_PREFIX = struct.Struct("<8sII32s")
_HEADER_LIMIT = 1 << 26


def save_image(path: str | os.PathLike[str], image: Image, notes: dict[str, Any]) -> None:
    """Write `image` and JSON-able `notes` (graph text, nodes run in Python, versions) to `path`.

    Raises `UsageError` when the file cannot be written; no partial file is left.
    """
    sections = {"code": image.object_code, "weights": image.weights.tobytes()}
    table: dict[str, dict[str, Any]] = {}
    end = 0
    for name, data in sections.items():
        size = len(data)
        table[name] = {"offset": end, "size": size, "sha256": hashlib.sha256(data).hexdigest()}
        end += -(-size // PAGE) * PAGE
    header = json.dumps(
        {"sections": table, "image": _describe(image), "notes": notes}, separators=(",", ":")
    ).encode()
    start = -(-(_PREFIX.size + len(header)) // PAGE) * PAGE
    with atomic_write(path) as stream:
        stream.write(_PREFIX.pack(MAGIC, VERSION, len(header), hashlib.sha256(header).digest()))
        stream.write(header)
        for name, data in sections.items():
            stream.seek(start + table[name]["offset"])
            stream.write(data)
        stream.truncate(start + end)


def load_image(path: str | os.PathLike[str]) -> tuple[Image, dict[str, Any]]:
    """Read a .vx file: the image (weights mapped read-only) and its notes.

    Raises `ModelError` when the file is damaged, truncated or of another format version. The file
    holds machine code: load only files you would also run as programs.
    """
    file = Path(path)
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            prefix = stream.read(_PREFIX.size)
            if len(prefix) < _PREFIX.size:
                raise _damaged(file, "it ends within its first bytes")
            magic, version, length, digest = _PREFIX.unpack(prefix)
            if magic != MAGIC:
                raise _damaged(file, "it does not start as one")
            if version != VERSION:
                raise ModelError(
                    f"the file has format version {version}, this Verax reads {VERSION}",
                    place=str(file),
                    next_step="compile the model again",
                )
            if length > min(_HEADER_LIMIT, size):
                raise _damaged(file, "its header is longer than the file")
            text = stream.read(length)
            if hashlib.sha256(text).digest() != digest:
                raise _damaged(file, "its header does not match its checksum")
            header = json.loads(text)
    except OSError as error:
        raise ModelError(f"cannot read the file: {error.strerror}", place=str(file)) from error
    except ValueError as error:
        raise _damaged(file, f"its header is unreadable ({error})") from error
    start = -(-(_PREFIX.size + length) // PAGE) * PAGE
    try:
        sections = {n: _section(file, start, size, e) for n, e in header["sections"].items()}
        image = _rebuild(header["image"], sections["code"].tobytes(), sections["weights"])
        return image, dict(header["notes"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(file, f"its header lacks or garbles an entry ({error})") from error


def _section(file: Path, start: int, size: int, entry: dict[str, Any]) -> np.ndarray:
    offset, length = start + int(entry["offset"]), int(entry["size"])
    if offset < start or length < 0 or offset + length > size:
        raise _damaged(file, "a section lies outside of it")
    if length == 0:
        return np.zeros(0, np.uint8)
    data = np.memmap(file, np.uint8, mode="r", offset=offset, shape=(length,))
    if hashlib.sha256(data.data).hexdigest() != entry["sha256"]:
        raise _damaged(file, "a section does not match its checksum")
    return np.asarray(data)


def _damaged(file: Path, why: str) -> ModelError:
    return ModelError(
        f"this is no intact .vx file: {why}", place=str(file), next_step="compile the model again"
    )


def _describe(image: Image) -> dict[str, Any]:
    fields = dataclasses.asdict(image)
    del fields["object_code"], fields["weights"]
    fields["schedule"] = [
        {"kind": type(step).__name__, **dataclasses.asdict(step)} for step in image.schedule
    ]
    return fields


def _rebuild(fields: dict[str, Any], code: bytes, weights: np.ndarray) -> Image:
    def tensor(entry: dict[str, Any] | None) -> Tensor | None:
        return None if entry is None else Tensor(**{**entry, "shape": tuple(entry["shape"])})

    def step(entry: dict[str, Any]) -> Segment | PythonStep:
        if entry["kind"] == "Segment":
            return Segment(str(entry["function"]))
        outputs = tuple(t for t in map(tensor, entry["outputs"]) if t is not None)
        return PythonStep(int(entry["node"]), tuple(map(tensor, entry["inputs"])), outputs)

    def signature(entry: dict[str, Any]) -> Signature:
        return Signature(entry["name"], entry["dtype"], tuple(entry["shape"]))

    arena = int(fields["arena_bytes"])
    if not 0 <= arena < 1 << 40:
        raise ValueError(f"an arena of {arena} bytes")
    return Image(
        target=str(fields["target"]),
        object_code=code,
        weights=weights,
        arena_bytes=arena,
        inputs=tuple(map(signature, fields["inputs"])),
        outputs=tuple(map(signature, fields["outputs"])),
        schedule=tuple(map(step, fields["schedule"])),
        python_outputs=tuple(fields["python_outputs"]),
        checks=tuple(fields["checks"]),
        pool=bool(fields["pool"]),
        kept_bytes=int(fields.get("kept_bytes", arena)),
    )

"""The .npz files that users, subjects and models bring: nothing is believed, nothing is pickled.

Every array's header is read before its data: a header that claims more than the file holds, or an
archive that would unpack to more than MAX_BYTES, is refused before memory is asked for.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping
from math import prod
from pathlib import Path
from typing import IO, TypeVar

import numpy as np

from verax.base.errors import InputError, UsageError
from verax.base.machine import memory
from verax.base.storage.reading import BytesFile, private_bytes

T = TypeVar("T")
MAX_BYTES = 1 << 33
"""An archive that would unpack to more is refused."""
DAMAGE = (
    *(OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, struct.error),
    *(NotImplementedError, RuntimeError, SyntaxError, tokenize.TokenError, MemoryError),
)

MAX_HEADER = 1 << 16
"""Bytes of an array's header; NumPy itself takes 10,000."""
UNREADABLE = (b"'<f1'", b"'|V1'")
"""What NumPy writes for float8_e5m2 of `ml_dtypes` and cannot read, and bytes without a type, which
it writes for others of that package."""

Header = tuple[tuple[int, ...], np.dtype]
"""Shape and element type of an array."""


def read_npz(
    path: str | os.PathLike[str], names: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """Arrays by name; names: the only ones that are read.

    Raises `UsageError` when the file is no sound .npz, `InputError` when its arrays are more than
    there is memory for.
    """

    def read(stream: IO[bytes], member: zipfile.ZipInfo) -> np.ndarray:
        memory.require(member.file_size, f"the array {member.filename!a}", os.fspath(path))
        return read_array(stream, member.file_size)

    return _members(path, read, names)


def npz_headers(path: str | os.PathLike[str]) -> dict[str, Header]:
    """What arrays there are, by name; little is unpacked. Raises `UsageError` as `read_npz`."""
    return _members(path, lambda stream, member: _header(stream))


def _members(
    path: str | os.PathLike[str],
    read: Callable[[IO[bytes], zipfile.ZipInfo], T],
    names: Collection[str] | None = None,
) -> dict[str, T]:
    """What `read` makes of the arrays of an archive."""
    file = Path(path)
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise ValueError("it is not a regular file")
        if os.path.getsize(file) == 0:
            raise ValueError("it is empty")
        with zipfile.ZipFile(file) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
            if sum(m.file_size for m in members) > MAX_BYTES:
                raise ValueError(f"it would unpack to more than {MAX_BYTES >> 30} GiB")
            results = {}
            for member in members:
                if not member.filename.endswith(".npy"):
                    raise ValueError(f"it holds {member.filename!r}, which is no array")
                name = member.filename.removesuffix(".npy")
                if names is None or name in names:
                    with archive.open(member) as stream:
                        results[name] = read(stream, member)
            return results
    except DAMAGE as error:
        cause = "it is no zip archive" if isinstance(error, zipfile.BadZipFile) else str(error)
        raise UsageError(
            f"the file is no readable .npz ({cause or type(error).__name__})",
            place=str(file),
            next_step="write it with numpy.savez, without pickled objects",
        ) from error


def read_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """The array of an .npy file. Raises `UsageError` when there is none, `InputError` when it is
    damaged."""
    data = private_bytes(path)
    try:
        return read_array(BytesFile(data), len(data))
    except DAMAGE as error:
        raise InputError(
            f"this cannot be read as an .npy file ({error})", place=os.fspath(path)
        ) from error


def _header(stream: IO[bytes] | io.RawIOBase) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and element type of an .npy, without looking at whether it is stored by columns."""
    shape, _, dtype = _read_header(stream)
    return shape, dtype


def _read_header(stream: IO[bytes] | io.RawIOBase) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(stream)
    size = stream.read(2 if version == (1, 0) else 4)
    count = int.from_bytes(size, "little")
    if count > MAX_HEADER:
        raise ValueError(f"its header is said to have {count} bytes")
    header = io.BytesIO(size + stream.read(count).replace(*UNREADABLE))
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    return read(header)


def read_array(stream: IO[bytes] | io.RawIOBase, size: int) -> np.ndarray:
    """One .npy of `size` bytes, header included. Raises what is in DAMAGE."""
    shape, fortran, dtype = _read_header(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read")
    if any(n < 0 for n in shape) or prod(shape) * dtype.itemsize > size:
        raise ValueError(f"a header promises {dtype}{list(shape)}, which the file does not hold")
    array = np.empty(prod(shape), dtype)
    if array.nbytes:
        left = memoryview(array.view(np.uint8).data)
        while left:
            got = stream.readinto(left)  # type: ignore[union-attr]
            if not got:
                raise EOFError("it ends too early")
            left = left[got:]
    return array.reshape(shape, order="F" if fortran else "C")


def write_npz(path: str | os.PathLike[str] | IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays under any names ("file" too, which `numpy.savez` cannot take)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                plain = np.asarray(array)
                if plain.dtype.str == "<f1":
                    plain = plain.view("V1")
                np.lib.format.write_array(stream, plain, allow_pickle=False)

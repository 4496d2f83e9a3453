"""The .npz files that users, subjects and models bring: nothing is believed, nothing is pickled.

Every array's header is read before its data: a header that claims more than the file holds, or an
archive that would unpack to more than MAX_BYTES, is refused before memory is asked for.
"""

from __future__ import annotations

import io
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO

import numpy as np

from verax.base.errors import InputError, UsageError
from verax.base.reading import BytesFile, private_bytes

MAX_BYTES = 1 << 33
"""An archive that would unpack to more is refused."""
DAMAGE = (
    *(OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, struct.error),
    *(NotImplementedError, RuntimeError, SyntaxError, tokenize.TokenError, MemoryError),
)


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Arrays by name. Raises `UsageError` when the file is no sound .npz."""
    file = Path(path)
    try:
        if file.stat().st_size == 0:
            raise ValueError("it is empty")
        with zipfile.ZipFile(file) as archive:
            members = [m for m in archive.infolist() if not m.is_dir()]
            if sum(m.file_size for m in members) > MAX_BYTES:
                raise ValueError(f"it would unpack to more than {MAX_BYTES >> 30} GiB")
            arrays = {}
            for member in members:
                if not member.filename.endswith(".npy"):
                    raise ValueError(f"it holds {member.filename!r}, which is no array")
                with archive.open(member) as stream:
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = read_array(stream, member.file_size)
            return arrays
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


def read_array(stream: IO[bytes] | io.RawIOBase, size: int) -> np.ndarray:
    """One .npy of `size` bytes, header included. Raises what is in DAMAGE."""
    version = np.lib.format.read_magic(stream)
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, fortran, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not read")
    if any(n < 0 for n in shape) or prod(shape) * dtype.itemsize > size:
        raise ValueError(f"a header promises {dtype}{list(shape)}, which the file does not hold")
    data = stream.read(prod(shape) * dtype.itemsize)
    array = np.frombuffer(data, dtype, count=prod(shape)).copy()
    return array.reshape(shape, order="F" if fortran else "C")


def write_npz(path: str | os.PathLike[str] | IO[bytes], arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays under any names ("file" too, which `numpy.savez` cannot take)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)

"""The `.pt2` archive: a zip of one JSON program and raw weights.

Nothing is unpickled: the sample inputs, the only pickle that `torch.export.save` writes, are never
opened, and archives that keep weights or programs in a pickle are refused by name. Weights lie
uncompressed in the zip and become views of the file's bytes.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError
from verax.base.storage.reading import BytesFile, private_bytes
from verax.ir.types import DType

SCALAR_TYPES = {
    **{1: DType.uint8, 2: DType.int8, 3: DType.int16, 4: DType.int32, 5: DType.int64},
    **{6: DType.float16, 7: DType.float32, 8: DType.float64, 12: DType.bool_},
    **{13: DType.bfloat16, 28: DType.uint16, 34: DType.uint32, 35: DType.uint64},
    **{29: DType.float8_e4m3fn, 30: DType.float8_e5m2, 31: DType.float8_e4m3fnuz},
    **{32: DType.float8_e5m2fnuz, 33: DType.float8_e8m0fnu},
}
"""Numbers of torch's element types in the file."""
COMPLEX_TYPES = {9: DType.float16, 10: DType.float32, 11: DType.float64}
"""Those of complex numbers, with the type of their two parts."""
MAX_JSON = 256 << 20
MAX_RATIO = 200
"""Largest JSON file, and how much an entry may grow when it is unpacked."""
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ArithmeticError),
    *(RuntimeError, ValueError),
)
"""What reading a damaged zip may raise (`NotImplementedError` is a `RuntimeError`)."""
LOCAL_HEADER = 30
"""Bytes of a zip entry's header before its name."""
EXPORT = "write it with torch.export.save(torch.export.export(module, inputs), 'net.pt2')"

UNWRAPPED = (
    "a weight of a type of its own (torchao's) is stored in parts after "
    "torch.export.save(program.run_decompositions({}), 'net.pt2')"
)


def type_name(code: Any) -> str:
    """An element type as PyTorch calls it."""
    return str(SCALAR_TYPES.get(code, f"number {code}"))


class Pt2Archive:
    """One `.pt2` file, from a path or bytes. Raises `ModelError` when it is damaged."""

    def __init__(self, source: str | os.PathLike[str] | bytes) -> None:
        self.location = "bytes" if isinstance(source, bytes) else os.fspath(source)
        self.data = memoryview(source) if isinstance(source, bytes) else private_bytes(source)
        if self.data[:2] == b"\x80\x02" or self.data[:1] == b"(":
            raise self._pickle("the file is a pickle")
        try:
            self.zip = zipfile.ZipFile(BytesFile(self.data))
            self.entries = {i.filename: i for i in self.zip.infolist()}
        except DAMAGE as error:
            raise ModelError(f"the archive is damaged ({error})", place=self.location) from error
        self.root = self._root()
        self._must_be_little_endian()

    def _pickle(self, description: str, next_step: str = EXPORT) -> UnsupportedError:
        return UnsupportedError(
            f"{description}, which can run any code when it is read; Verax never opens pickles",
            place=self.location,
            next_step=next_step,
        )

    def _root(self) -> str:
        """The archive's top folder."""
        programs = [n for n in self.entries if n.endswith(".json") and "/models/" in f"/{n}"]
        if len(programs) == 1:
            return programs[0].rpartition("models/")[0]
        if len(programs) > 1:
            raise UnsupportedError(
                f"the archive holds {len(programs)} programs", place=self.location, next_step=EXPORT
            )
        names = [Path(n).name for n in self.entries]
        if "data.pkl" in names or "serialized_state_dict.pt" in names:
            raise self._pickle("the archive holds a pickled program or pickled weights")
        raise ModelError("the archive holds no program", place=self.location, next_step=EXPORT)

    def _must_be_little_endian(self) -> None:
        name = f"{self.root}byteorder"
        if name in self.entries and self.read(name, MAX_JSON).strip() != b"little":
            raise UnsupportedError("the weights are not little-endian", place=self.location)

    def read(self, name: str, limit: int) -> bytes:
        """Unpacked bytes of an entry of at most `limit` bytes."""
        info = self.entries.get(name)
        if info is None:
            raise ModelError(f"the archive has no {name!r}", place=self.location)
        if info.file_size > limit or info.file_size > MAX_RATIO * max(info.compress_size, 1):
            raise ModelError(
                f"{name!r} claims {info.file_size} bytes from {info.compress_size}",
                place=self.location,
            )
        try:
            return self.zip.read(info)
        except DAMAGE as error:
            raise ModelError(f"{name!r} is damaged ({error})", place=self.location) from error

    def json(self, name: str) -> Any:
        """An entry's JSON content."""
        try:
            return json.loads(self.read(name, MAX_JSON))
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{name!r} is no JSON ({error})", place=self.location) from error

    def program(self) -> Any:
        """The exported program."""
        (name,) = (n for n in self.entries if n.startswith(f"{self.root}models/") and "json" in n)
        return self.json(name)

    def tensors(self, folder: str) -> dict[str, np.ndarray]:
        """Arrays by name from `data/weights` or `data/constants`."""
        base = f"{self.root}data/{folder}/"
        configs = [n for n in self.entries if n.startswith(base) and n.endswith("_config.json")]
        tensors: dict[str, np.ndarray] = {}
        for config in configs:
            content = self.json(config)
            if not isinstance(content, Mapping) or not isinstance(content.get("config"), Mapping):
                raise ModelError(f"{config!r} lists no tensors", place=self.location)
            for name, entry in content["config"].items():
                tensors[name] = self._tensor(base, name, entry)
        return tensors

    def _tensor(self, base: str, name: str, entry: Any) -> np.ndarray:
        location = f"tensor {name!r} of {self.location}"
        try:
            if entry["use_pickle"]:
                raise self._pickle(f"the tensor {name!r} is a pickle", UNWRAPPED)
            meta, path = entry["tensor_meta"], f"{base}{entry['path_name']}"
            pair = meta["dtype"] in COMPLEX_TYPES
            dtype = (COMPLEX_TYPES if pair else SCALAR_TYPES).get(meta["dtype"])
            sizes = [int(d["as_int"]) for d in meta["sizes"]] + [2] * pair
            strides = [int(d["as_int"]) * (1 + pair) for d in meta["strides"]] + [1] * pair
            offset = int(meta["storage_offset"]["as_int"]) * (1 + pair)
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"its record is incomplete ({error!r})", place=location) from error
        if dtype is None:
            raise UnsupportedError(
                f"its element type {type_name(meta['dtype'])} is not supported",
                place=location,
                next_step=f"supported are {', '.join(SCALAR_TYPES.values())}",
            )
        flat = self._flat(path, dtype.numpy, location)
        if len(sizes) != len(strides) or min([*sizes, *strides, offset, 0]) < 0:
            raise ModelError(f"sizes {sizes} with strides {strides} are impossible", place=location)
        last = offset + sum((n - 1) * s for n, s in zip(sizes, strides)) if all(sizes) else -1
        if last >= flat.size:
            raise ModelError(
                f"it claims {sizes} elements, its file holds {flat.size} in all", place=location
            )
        if not all(sizes):
            return np.zeros(sizes, dtype.numpy)
        # As integers, because NumPy cannot stride through every type of `ml_dtypes`.
        item, bits = flat.itemsize, flat.view(f"u{flat.itemsize}")
        view = np.lib.stride_tricks.as_strided(
            bits[offset:], sizes, [s * item for s in strides], writeable=False
        )
        return np.ascontiguousarray(view).view(dtype.numpy).reshape(sizes)

    def _flat(self, path: str, dtype: np.dtype, location: str) -> np.ndarray:
        """A stored entry as a flat array on the file's own memory."""
        info = self.entries.get(path)
        if info is None:
            raise ModelError(f"the archive has no {path!r}", place=location)
        if info.compress_type != zipfile.ZIP_STORED:
            return _flat_array(self.read(path, MAX_JSON << 4), dtype)
        head = self.data[info.header_offset : info.header_offset + LOCAL_HEADER]
        if len(head) < LOCAL_HEADER:
            raise ModelError("the archive is truncated", place=location)
        name_size, extra_size = struct.unpack("<HH", head[26:30])
        start = info.header_offset + LOCAL_HEADER + name_size + extra_size
        if start + info.file_size > len(self.data):
            raise ModelError("the archive is truncated", place=location)
        return np.frombuffer(self.data, dtype, info.file_size // dtype.itemsize, start)


def _flat_array(data: bytes, dtype: np.dtype) -> np.ndarray:
    return np.frombuffer(data, dtype, len(data) // dtype.itemsize)

"""Samples in Parquet files, as data sets are published: a column of encoded images, one of labels.

Images are bytes, or as the libraries of data sets write them, structures with a field `bytes`.
Nothing but the labels is held: images are read by row groups, of which the last one is kept.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.errors import InputError
from verax.base.optional import late
from verax.records.environment import file_hash

parquet: Any = late("pyarrow.parquet", "parquet")
arrow: Any = late("pyarrow", "parquet")
SUFFIX = ".parquet"
IMAGES = ("image", "images", "img", "picture", "photo")
LABELS = ("label", "labels", "class", "target", "y", "fine_label")


def parquet_files(path: Path) -> list[Path]:
    """The Parquet files that a path is or that lie in a folder, in the order of their names."""
    if path.suffix.lower() == SUFFIX and path.is_file():
        return [path]
    return sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else []


class ParquetTable:
    """Rows of Parquet files of one form, one behind the other.

    columns: of images and of labels, "" for no labels; guessed when not given. labels: array [n] of
    numbers or names, or None. digest: SHA-256 of the files. steps: what was assumed, in words.
    Raises `InputError` for files that are damaged or lack the columns, and `MissingPackageError`.
    """

    def __init__(self, files: Sequence[Path], columns: tuple[str, str] | None) -> None:
        self._files = files
        self._groups: list[tuple[int, Path, int]] = []  # first row, file, number in the file
        self._lock = threading.Lock()
        self._current: tuple[int, list[Any]] = (-1, [])
        self._length = 0
        self.steps: tuple[str, ...] = ()
        labels: list[Any] = []
        for file in files:
            try:
                own = parquet.ParquetFile(file)
            except (arrow.ArrowException, OSError) as error:
                raise InputError(
                    f"this cannot be read as a Parquet file ({error})", place=str(file)
                ) from error
            with own:
                if columns is None:
                    columns = self._guessed(own.schema_arrow, file)
                for name in filter(None, columns):
                    if name not in own.schema_arrow.names:
                        raise InputError(
                            f"there is no column {name!r}",
                            place=str(file),
                            next_step=f"there is {', '.join(own.schema_arrow.names)}",
                        )
                for group in range(own.num_row_groups):
                    self._groups.append((self._length, file, group))
                    self._length += own.metadata.row_group(group).num_rows
                if columns[1]:
                    labels += own.read([columns[1]])[0].to_pylist()
        if not self._length or columns is None:
            raise InputError("there are no rows", place=str(files[0]))
        self._column = columns[0]
        self.labels = np.asarray(labels) if labels else None
        hashes = "".join(file_hash(file) for file in files)
        self.digest = hashlib.sha256(hashes.encode()).hexdigest()

    def __len__(self) -> int:
        return self._length

    def _guessed(self, schema: Any, file: Path) -> tuple[str, str]:
        usual = [name for name in IMAGES if name in schema.names]
        encoded = [f.name for f in schema if _is_image(f.type)]
        images = [name for name in usual if name in encoded][:1] or encoded
        if len(images) != 1:
            raise InputError(
                f"{len(images) or 'none'} of the columns could be the images "
                f"({', '.join(f'{f.name}: {f.type}' for f in schema)})",
                place=str(file),
                next_step="name the columns: --arrays IMAGES,LABELS",
            )
        labels = [name for name in LABELS if name in schema.names][:1]
        selected = images[0], labels[0] if labels else ""
        self.steps = (
            f"assumed, as nobody says: column {selected[0]!r} holds the samples"
            + (f", {selected[1]!r} the labels" if selected[1] else ""),
        )
        return selected

    def image(self, i: int) -> bytes:
        """The bytes of the image of row i. Raises `InputError`."""
        index = max(n for n, (first, _, _) in enumerate(self._groups) if first <= i)
        first, file, group = self._groups[index]
        with self._lock:
            if self._current[0] != index:
                self._current = index, self._read(file, group)
            content = self._current[1][i - first]
        if isinstance(content, dict):
            content = content.get("bytes")
        if not isinstance(content, bytes):
            raise InputError("the row holds no encoded image", place=f"row {i} of {file}")
        return content

    def _read(self, file: Path, group: int) -> list[Any]:
        try:
            with parquet.ParquetFile(file) as own:
                values: list[Any] = own.read_row_group(group, [self._column])[0].to_pylist()
        except (arrow.ArrowException, OSError) as error:
            raise InputError(
                f"this cannot be read as a Parquet file ({error})", place=str(file)
            ) from error
        return values


def _is_image(kind: Any) -> bool:
    """True for bytes, and for structures with a field of bytes that is called so."""
    if arrow.types.is_struct(kind):
        index = kind.get_field_index("bytes")
        return index >= 0 and _is_image(kind.field(index).type)
    return bool(arrow.types.is_binary(kind) or arrow.types.is_large_binary(kind))

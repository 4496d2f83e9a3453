"""`Origin`: the files that a model was read from, by content, so that it can be read again.

Whoever has an origin need not hold a model's arrays (`ir.deferred`): they are read again from the
same bytes, or an error says that the files have changed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verax.base.errors import ModelError, VeraxError
from verax.base.storage.reading import companion, recording
from verax.ir.assumptions import assuming


@dataclasses.dataclass(frozen=True)
class Origin:
    """What a model was read from. path: its file; sha256: of that; companions: name within its
    folder -> SHA-256; options: of reading, as JSON; read: reads it once more, whatever is there."""

    path: str
    sha256: str
    companions: Mapping[str, str]
    options: str
    read: Callable[[], Any] = dataclasses.field(compare=False)

    @property
    def key(self) -> str:
        """SHA-256 of all that decides the model under one version of Verax."""
        decides = [self.sha256, sorted(self.companions.items()), self.options]
        return hashlib.sha256(json.dumps(decides).encode()).hexdigest()

    def model(self) -> Any:
        """The `Model`, read again. Raises `ModelError` when a file has changed or is gone."""
        try:
            with recording() as files, assuming(None):  # whoever compiles may assume sizes
                model = self.read()
        except VeraxError as error:
            if not isinstance(error, ModelError) and os.path.exists(self.path):
                raise
            raise self._changed() from error
        if files_of(self.path, files) != (self.sha256, self.companions):
            raise self._changed()
        return model

    def _changed(self) -> ModelError:
        return ModelError(
            "the model's file is gone or has changed since it was loaded, and its constants, which "
            "were given up when it was compiled, are asked for",
            place=self.path,
            next_step="load the file as it is now, or put back the one that was loaded",
        )


def files_of(path: str, files: Mapping[str, str]) -> tuple[str, dict[str, str]] | None:
    """The SHA-256 of a model's file, and those of its companions by name within its folder, from
    what `base.storage.reading.recording` gives. None where files elsewhere were read."""
    root = Path(path).parent.resolve()
    companions = {name: digest for name, digest in files.items() if name != path}
    if path not in files:
        return None
    try:
        names = {Path(name).relative_to(root).as_posix(): d for name, d in companions.items()}
    except ValueError:
        return None
    return files[path], names


def has_companions(
    path: str, companions: Mapping[str, str], sha256_of: Callable[[Path], str]
) -> bool:
    """True if the files beside a model are those, by their SHA-256."""
    folder = Path(path).parent
    try:
        return all(
            sha256_of(companion(folder, name, "data file")) == digest
            for name, digest in companions.items()
        )
    except VeraxError:
        return False

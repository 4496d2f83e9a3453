"""Subjects that are a framework's own model file, run by that framework: the base of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from verax.base.errors import UsageError
from verax.runners.children.child_runner import TIMEOUT, ChildRunner


class FileRunner(ChildRunner):
    """Runs the file (or folder) `path` with the framework that wrote it.

    suffixes: what such a file may be called; a folder is tried when "" is among them. prefix: the
    runner's name in front of the file's. Raises `UsageError` when there is no such file.
    """

    suffixes: ClassVar[tuple[str, ...]]
    prefix: ClassVar[str]

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        detail: str = "",
        request: Mapping[str, Any] | None = None,
        threads: int = 0,
        isolated: bool = True,
        timeout: float = TIMEOUT,
    ) -> None:
        file = Path(path)
        if not os.path.exists(file):
            raise UsageError("there is no such file", place=str(file))
        if file.suffix.lower() not in self.suffixes and not (file.is_dir() and "" in self.suffixes):
            endings = ", ".join(s or "a SavedModel folder" for s in self.suffixes)
            raise UsageError(
                f"{self.prefix} cannot run a file with this suffix",
                place=str(file),
                next_step=f"it runs {endings}",
            )
        full_request = {"path": str(file.resolve()), **(request or {})}
        details = {"model": file.name, **({"mode": detail} if detail else {})}
        name = f"{self.prefix}:{file.name}"
        super().__init__(
            name, full_request, details, threads=threads, isolated=isolated, timeout=timeout
        )

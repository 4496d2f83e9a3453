"""Virtual environments with one version of ONNX Runtime each, made once and kept beside the cache
of compiled programs.

An environment is made in a folder of another name, which gets its own when it is whole: it is
there or not, however an installation ended. What lies there is run, so the folder has to be the
user's alone, as that of programs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from verax.base.caching import FOLDER
from verax.base.errors import UsageError
from verax.base.process.processes import Ended, run_process
from verax.base.storage.files import staging_folder
from verax.base.storage.private import why_not_private
from verax.compiler.artifacts.cache import default_cache

VERSION = re.compile(r"[0-9][0-9A-Za-z.+!]*")
"""Versions as PEP 440 writes them; nothing that pip would take for an option or an address."""
SECONDS = 900.0
"""Longest that one step of making an environment may take."""
INTERPRETER = Path("Scripts/python.exe") if os.name == "nt" else Path("bin/python")
Say = Callable[[str], None]


def environments_folder() -> Path:
    """Where environments are kept. Raises `UsageError` when the cache is off."""
    cache = default_cache()
    if cache is None:
        raise UsageError(
            f"an environment for another version needs a folder, and the cache is off ({FOLDER})",
            next_step=f"set {FOLDER} to a folder, or give an interpreter of yours: python:PATH",
        )
    return cache.folder / "environments"


def managed_environments() -> list[tuple[Path, int]]:
    """(folder, bytes) of the environments that are there, by name."""
    if default_cache() is None or not environments_folder().is_dir():
        return []
    folders = sorted(p for p in environments_folder().iterdir() if (p / "pyvenv.cfg").is_file())
    return [(folder, _bytes_of(folder)) for folder in folders]


def remove_environments() -> int:
    """Remove them all; how many there were."""
    folders = [folder for folder, _ in managed_environments()]
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return sum(not folder.exists() for folder in folders)


def managed_python(version: str, say: Say | None = None) -> Path:
    """The interpreter of the environment that has this version of ONNX Runtime; it is made, with
    `venv` and `pip`, where it is not there.

    say: told what is done and where; a warning where there is nobody to be told. Raises
    `UsageError` when the environment cannot be made: no such version for this Python, no way to a
    package index, no folder.
    """
    tag = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = environments_folder()
    target = folder / f"onnxruntime-{version}-{tag}"
    python = target / INTERPRETER
    if not python.exists():
        _require_private(folder)
        (say or _warn)(f"making an environment with onnxruntime {version} in {target}")
        shutil.rmtree(target, ignore_errors=True)  # of a Python that is gone
        with staging_folder(target) as staging:
            environment = staging / "environment"
            _make(environment, version, say or (lambda text: None))
            try:
                os.rename(environment, target)
            except OSError:
                if not python.exists():  # else another process was faster, and its own is as good
                    raise
    _require_private(target)
    return python


def _make(folder: Path, version: str, say: Say) -> None:
    """An environment with that version, whose packages can be imported."""
    subject = f"onnxruntime@{version}"
    ended = _run(subject, sys.executable, "-m", "venv", str(folder))
    if ended.code:
        raise UsageError(
            f"no virtual environment can be made: {ended.last_words}",
            place=subject,
            next_step="install Python's venv (python3-venv on Debian), or give python:PATH",
        )
    python = str(folder / INTERPRETER)
    say(f"pip install onnxruntime=={version} numpy")
    _install(subject, python, f"onnxruntime=={version}", "numpy")
    if _run(subject, python, "-I", "-c", "import numpy, onnxruntime").code == 0:
        return
    # Versions from before NumPy 2 were built for NumPy 1 and do not say so.
    say(f"onnxruntime {version} fails with this NumPy: pip install 'numpy<2'")
    _install(subject, python, f"onnxruntime=={version}", "numpy<2")
    ended = _run(subject, python, "-I", "-c", "import numpy, onnxruntime")
    if ended.code:
        raise UsageError(
            f"this version was installed and cannot be imported: {ended.last_words}",
            place=subject,
            next_step="take another version, or give an interpreter in which it works: python:PATH",
        )


def _install(subject: str, python: str, *requirements: str) -> None:
    options = "--no-input", "--disable-pip-version-check", "--progress-bar", "off"
    ended = _run(subject, python, "-I", "-m", "pip", "install", *options, *requirements)
    if ended.code:
        reported = [line for line in ended.printed.splitlines() if line.startswith("ERROR: ")]
        reason = reported[-1].removeprefix("ERROR: ") if reported else ended.last_words
        no_index = "; no version at all was found: is a package index reached from here?"
        raise UsageError(
            f"pip cannot install {' '.join(requirements)}: {reason}"
            + (no_index if "(from versions: none)" in ended.printed else ""),
            place=subject,
            next_step="take a version that `pip index versions onnxruntime` lists for this Python, "
            "or give an interpreter of yours: python:PATH",
        )


def _run(subject: str, *command: str) -> Ended:
    # PYTHONPATH would hide what the environment lacks.
    return run_process(
        command, name=subject, timeout=SECONDS, environment={"PYTHONPATH": "", "PYTHONHOME": ""}
    )


def _require_private(folder: Path) -> None:
    """Make the folder if need be. Raises `UsageError` unless it is this user's alone."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = why_not_private(folder)
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise UsageError(
            f"environments cannot be kept there: {reason}",
            place=str(folder),
            next_step=f"set {FOLDER} to a folder of yours",
        )


def _bytes_of(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)

"""Whether compiled programs are kept on the disk, as the environment says."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

FOLDER, SIZE = "VERAX_CACHE", "VERAX_CACHE_SIZE"
"""Environment variables: the folder, or "off"; the most bytes that it may hold, such as 8G."""
OFF = ("off", "0", "no", "false")


def caching_is_off() -> bool:
    """True if the environment says that nothing is kept."""
    return os.environ.get(FOLDER, "").lower() in OFF


def user_folder() -> str:
    """The user's folder for Verax's caches."""
    folders = import_module("platformdirs")  # not needed where the environment names a folder
    folder: str = folders.user_cache_dir("verax")
    return folder


def programs_folder() -> Path | None:
    """The folder of compiled programs; None where nothing is kept."""
    folder = os.environ.get(FOLDER, "")
    if caching_is_off():
        return None
    path = Path(folder) if folder else Path(user_folder()) / "programs"
    return path if folder or path.is_absolute() else None

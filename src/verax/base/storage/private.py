"""Whether a folder or a file is this user's alone: what lies there may then be run as a program.

A folder is, if it and every folder above it, up to the user's home, belong to the user or the
system and nobody else may write in them: who may write in one can put another in its place.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

OTHERS = stat.S_IWGRP | stat.S_IWOTH
SYSTEM = 0
"""The user who may do everything anyway."""


def why_not_private(folder: str | os.PathLike[str]) -> str:
    """Why others could have put something into `folder`, in words; "" if they could not.

    Raises `OSError` when it cannot be told: it is not there, or cannot be reached.
    """
    if os.name == "nt":  # rights are not told by modes there
        os.stat(folder)
        return ""
    absolute = Path(os.path.abspath(folder))
    status = os.stat(absolute)
    if not stat.S_ISDIR(status.st_mode):
        return "it is no folder"
    if status.st_uid != os.geteuid():
        return "it belongs to another user"
    if status.st_mode & OTHERS:
        return "others may write there"
    home = os.path.expanduser("~")
    homes = (Path(home), Path(os.path.realpath(home)))
    for route in dict.fromkeys(
        (absolute, Path(os.path.realpath(absolute)))
    ):  # as named, and without links
        for path in (route, *route.parents):
            if reason := _why_replaceable(path):
                return reason
            if path in homes:
                break
    return ""


def _why_replaceable(path: Path) -> str:
    """Why others could put something else in the place of what lies in `path`."""
    status = os.lstat(path)
    if status.st_uid not in (os.geteuid(), SYSTEM):
        return f"{path} belongs to another user"
    if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX:  # a sticky folder, as /tmp is
        return ""
    # Where every user has a group of the same number, that group is the user alone.
    alone = status.st_gid == os.geteuid() == status.st_uid
    writers = stat.S_IWOTH if alone else OTHERS
    return f"others may write in {path}" if status.st_mode & writers else ""


def is_private(status: os.stat_result) -> bool:
    """True if `status` (of an open file) is that of a regular file of this user which no other user
    may write."""
    if not stat.S_ISREG(status.st_mode):
        return False
    return os.name == "nt" or (status.st_uid == os.geteuid() and not status.st_mode & OTHERS)

"""Whether compiled programs are kept on the disk, as the environment says."""

from __future__ import annotations

import os

FOLDER, SIZE = "VERAX_CACHE", "VERAX_CACHE_SIZE"
"""Environment variables: the folder, or "off"; the most bytes that it may hold, such as 8G."""
OFF = ("off", "0", "no", "false")


def caching_is_off() -> bool:
    """True if the environment says that nothing is kept."""
    return os.environ.get(FOLDER, "").lower() in OFF

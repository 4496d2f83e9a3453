"""Where a result was made: versions, machine, and hashes of arrays."""

from __future__ import annotations

import hashlib
import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("verax", "numpy", "llvmlite", "onnx", "onnxruntime", "openvino", "torch")
"""Packages whose versions a record states when they are installed."""


def environment() -> dict[str, str]:
    """Python, packages and machine, as text by name."""
    found = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def array_hash(array: Any) -> str:
    """SHA-256 of the bytes of an array in C order, with its dtype and shape."""
    digest = hashlib.sha256(f"{array.dtype.name}{tuple(array.shape)}".encode())
    digest.update(array.tobytes())
    return digest.hexdigest()

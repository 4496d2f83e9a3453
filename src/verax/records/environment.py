"""Where a result was made: versions, machine, and hashes of arrays."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from verax.base.machine.cores import available_cores
from verax.base.machine.processor import processor_name

PACKAGES = (
    *("verax", "numpy", "llvmlite", "onnx", "onnxruntime", "openvino", "torch"),
    *("tensorflow-cpu", "tensorflow", "ai-edge-litert", "tflite", "apache-tvm", "coremltools"),
    *("keras", "h5py"),
)
"""Packages whose versions a record states when they are installed."""
BLOCK = 1 << 20
"""Bytes read at a time."""


def environment() -> dict[str, str]:
    """Python, packages and machine, as text by name."""
    facts = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(),
        "cores": str(available_cores()),
    }
    return {**facts, **_versions()}


@cache
def verax_version() -> str:
    """The installed version of Verax, read once."""
    return metadata.version("verax")


@cache
def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def array_hash(array: Any) -> str:
    """SHA-256 of the bytes of an array in C order, with its dtype and shape."""
    digest = hashlib.sha256(f"{array.dtype.name}{tuple(array.shape)}".encode())
    if array.dtype.hasobject:
        digest.update(array.tobytes())
    elif array.size:
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, or of the names and bytes of all files in a folder."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        if file is not path:
            digest.update(f"{file.relative_to(path)}\0".encode())
        with file.open("rb") as stream:
            while block := stream.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()

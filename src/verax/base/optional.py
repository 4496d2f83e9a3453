"""The one place where an optional third-party package is imported."""

from __future__ import annotations

import importlib
from types import ModuleType

from verax.base.errors import MissingPackageError

_PIP_NAME = {
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "tvm": "apache-tvm",
    "ai_edge_litert": "ai-edge-litert",
}


def optional(name: str, purpose: str) -> ModuleType:
    """Import package `name`, needed for `purpose` ("to run the peer 'onnxruntime'").

    Raises `MissingPackageError` with the pip line to type when it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        top = name.partition(".")[0]
        raise MissingPackageError(
            f"the package {top!r} is needed {purpose} and cannot be imported ({error})",
            next_step=f"pip install {pip_name(top)}",
        ) from error


def installed_version(*distributions: str) -> str:
    """Version of the first of these distributions that is installed; "" when none is."""
    metadata = importlib.import_module("importlib.metadata")  # takes longer than a program's load
    for name in distributions:
        try:
            return str(metadata.version(name))
        except metadata.PackageNotFoundError:
            continue
    return ""


def pip_name(package: str) -> str:
    """What to give to `pip install` for an optional package that is imported as `package`."""
    return _PIP_NAME.get(package, package)

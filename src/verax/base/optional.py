"""The one place where a package is imported that need not be there: optional ones, and those of an
extra (`pip install 'verax[compile]'`), without which everything else works.

What a command or a call needs and is not installed is said in words, with the line to type.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from verax.base.errors import MissingPackageError

_PIP_NAME = {
    "PIL": "pillow",
    "google": "protobuf",
    "sklearn": "scikit-learn",
    "tvm": "apache-tvm",
    "ai_edge_litert": "ai-edge-litert",
    "cuda": "cuda-bindings",
    "grpc": "grpcio",
}
EXTRAS = {
    "compile": ("llvmlite", "compiling"),
    "onnx": ("onnx", "reading or writing ONNX"),
    "tensorflow": ("protobuf", "reading TensorFlow's files"),
    "coreml": ("coremltools", "reading CoreML's files"),
    "images": ("pillow", "reading photos"),
    "cuda": ("cuda-bindings", "running on a GPU of NVIDIA"),
    "ray": ("ray", "working on a cluster"),
    "parquet": ("pyarrow", "reading Parquet files"),
}
"""Extras of ours without which the rest works: the package, and what takes it."""


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


def late(name: str, extra: str) -> Any:
    """Module `name`, which comes with one of EXTRAS, imported when something of it is first used.

    Using it raises `MissingPackageError` when it is not installed.
    """
    return _Late(name, extra)


def require(name: str, extra: str) -> None:
    """Import module `name`, which comes with one of EXTRAS. Raises `MissingPackageError`."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise _missing(name, extra, error) from error


class _Late(ModuleType):
    """Stands for a module until something of it is asked for."""

    def __init__(self, name: str, extra: str) -> None:
        super().__init__(name)
        self._extra = extra

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":  # Python's own questions import nothing
            raise AttributeError(name)
        require(self.__name__, self._extra)
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


def _missing(name: str, extra: str, error: ImportError) -> MissingPackageError:
    """That a module cannot be imported, in words."""
    absent = isinstance(error, ModuleNotFoundError)
    reason = "is not installed" if absent else f"cannot be imported ({error})"
    return MissingPackageError(
        f"{EXTRAS[extra][1]} needs the package {pip_name(name.partition('.')[0])!r}, which "
        f"{reason}",
        next_step=f"pip install 'verax[{extra}]'",
    )


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
    """What to give to `pip install` for a package that is imported as `package`."""
    return _PIP_NAME.get(package, package)

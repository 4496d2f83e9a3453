"""The one place where an optional third-party package is imported."""

from __future__ import annotations

import importlib
from types import ModuleType

from verax.base.errors import MissingPackageError

_PIP_NAME = {"PIL": "pillow", "sklearn": "scikit-learn", "torch": "torch==2.13.0"}


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
            next_step=f"pip install {_PIP_NAME.get(top, top)}",
        ) from error

"""CoreML's protobuf messages, from the package coremltools but without importing that package.

`import coremltools` loads TensorFlow and PyTorch when they are installed, which takes half a
minute; reading a file needs only the generated message classes beside them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import sysconfig
from types import ModuleType
from typing import Any

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from verax.base.errors import MissingPackageError, ModelError

PACKAGE = "_verax_coreml_messages"
"""Name under which the folder of message classes is a package of its own."""

_HOW_TO_INSTALL = "pip install coremltools"
if sys.version_info >= (3, 14):  # its last release, 9.0, has wheels up to 3.13
    _HOW_TO_INSTALL = (
        "coremltools has no wheel for this Python, but its message classes are plain Python: "
        "pip install --no-deps --only-binary=:all: --python-version 3.13 --target "
        f"{sysconfig.get_path('purelib')} coremltools"
    )

MAX_DEPTH = 64
"""Messages nested deeper than this are refused; real ones have a dozen levels."""


def model_messages() -> ModuleType:
    """The module with the message `Model`.

    Raises `MissingPackageError` when coremltools is not installed.
    """
    if PACKAGE not in sys.modules:
        spec = importlib.util.find_spec("coremltools")
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if not folders:
            raise MissingPackageError(
                "the package 'coremltools' is needed to read CoreML models",
                next_step=_HOW_TO_INSTALL,
            )
        package = ModuleType(PACKAGE)
        package.__path__ = [os.path.join(folders[0], "proto")]
        sys.modules[PACKAGE] = package
    return importlib.import_module(f"{PACKAGE}.Model_pb2")


def parse(data: bytes, location: str) -> Any:
    """The `Model` message of a file's bytes. Raises `ModelError` when they are none."""
    model = model_messages().Model()
    try:
        model.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ModelError(
            f"this is not a CoreML model ({str(error)[:100]})",
            place=location,
            next_step="the file is damaged, cut off, or of another format",
        ) from error
    if model.WhichOneof("Type") is None or not model.HasField("description"):
        raise ModelError("this is not a CoreML model: it has no network", place=location)
    return model


def refuse_unknown(message: Message, location: str) -> None:
    """Raise `ModelError` when a message has fields that its declaration does not know.

    They come from a newer version of the format, or from damage.
    """
    numbers = [field.field_number for field in UnknownFieldSet(message)]  # type: ignore[no-untyped-call]
    if numbers:
        raise ModelError(
            f"{type(message).__name__} has unknown fields, numbered {sorted(set(numbers))[:8]}",
            place=location,
            next_step="a newer coremltools may know them: pip install --upgrade coremltools",
        )


def enum_name(field: Any, value: int, location: str) -> str:
    """The name of an enum's value. Raises `ModelError` for a number that has none."""
    descriptor = field.enum_type.values_by_number.get(value)
    if descriptor is None:
        raise ModelError(f"{field.name} has the unknown value {value}", place=location)
    return str(descriptor.name)

"""What a worker does with a request: find the function or the object, call it, say what came of it.

It is the same in a process and on Ray. A request names what is called ("package.module:function"),
so that nothing but installed code runs.
"""

from __future__ import annotations

import importlib
import os
import struct
import sys
from typing import Any

from verax.base.errors import UsageError, VeraxError
from verax.base.optional import installed_version
from verax.distributed.contents import FETCHER, host_name
from verax.distributed.device import ExclusiveDevice, hold
from verax.distributed.messages import pack, unpack
from verax.distributed.outcome import error_to_plain

NICENESS = 5
"""Of workers without a device: people at the machine go first."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
UNREADABLE = (ValueError, KeyError, IndexError, TypeError, struct.error)
_objects: dict[str, Any] = {}
"""The object of an actor's worker."""


def begin(plain: dict[str, Any]) -> dict[str, Any]:
    """Make this process a worker: who it is, as data. plain: the device under "device", if any.

    Raises as `device.hold`.
    """
    device = ExclusiveDevice.of_plain(plain["device"]) if plain.get("device") else None
    cores: tuple[int, ...] = ()
    if device is None:
        for name in THREADS:
            os.environ.setdefault(name, "1")  # read when libraries are imported
        os.nice(NICENESS)
    else:
        cores = hold(device)
    return {
        "host": host_name(),
        "process": os.getpid(),
        "version": installed_version("verax"),
        "cores": list(cores),
    }


def reference_name(target: Any) -> str:
    """How a request names a function or class: "package.module:name", as given if it is a text.

    Raises `UsageError` for what a worker could not find by its name.
    """
    if isinstance(target, str):
        return target
    module, name = getattr(target, "__module__", ""), getattr(target, "__qualname__", "")
    main = sys.modules.get("__main__") if module == "__main__" else None
    spec = getattr(main, "__spec__", None)
    if spec is not None:  # python -m package.module
        module = str(spec.name)
    if not module or module == "__main__" or "<" in name:
        raise UsageError(
            "a worker finds functions and classes of modules only, by their names",
            place=name or repr(target),
            next_step="define it at the top of a module that can be imported",
        )
    return f"{module}:{name}"


def resolved(name: str) -> Any:
    """The function or class of a reference. Raises ImportError and AttributeError."""
    module, _, path = name.partition(":")
    target: Any = importlib.import_module(module)
    for attribute in path.split("."):
        target = getattr(target, attribute)
    return target


def serve(message: bytes | memoryview) -> bytes:
    """The answer to a request: {"value": ...} or {"error": ...}, and what this host received."""
    answer: dict[str, Any]
    try:
        answer = {"value": _done(unpack(message))}
    except VeraxError as error:
        answer = {"error": error_to_plain(error)}
    except Exception as error:  # whatever the function raises belongs to who asked
        answer = {"error": error_to_plain(error)}
    answer["received"] = FETCHER.take_received()
    try:
        return pack(answer)
    except UsageError as error:
        return pack({"error": error_to_plain(error), "received": answer["received"]})


def _done(request: dict[str, Any]) -> Any:
    value = request["value"]
    if "function" in request:
        return resolved(request["function"])(value)
    if "actor" in request:
        _objects["actor"] = resolved(request["actor"])(value)
        return None
    method = getattr(_objects["actor"], request["method"])
    return method(value)

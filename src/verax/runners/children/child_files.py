"""The files through which a subject's child process and its parent speak, with arrays in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from verax.base.errors import UsageError
from verax.ir.types import DType

SERVE = "serve"
"""First argument of a worker that forks; its others are a task and a descriptor."""
REQUEST, REPLY, INPUTS, OUTPUTS = "request.json", "reply.json", "inputs.npz", "outputs.npz"
FOLDER = "folder"
"""In a child's request: where temporary files of its own go, which its parent removes however the
child ends."""


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> list[list[str]]:
    """Write arrays as bytes; returns (name, dtype, shape as text) of each, in order."""
    listed, flat = [], {}
    for i, (name, array) in enumerate(arrays.items()):
        array = np.ascontiguousarray(array)
        flat[f"a{i}"] = array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
        listed.append([name, str(DType.of(array)), json.dumps(list(np.shape(arrays[name])))])
    np.savez(path, allow_pickle=False, **flat)
    return listed


def load_arrays(path: Path, listed: list[list[str]]) -> dict[str, np.ndarray]:
    """Arrays that `save_arrays` wrote. Raises `UsageError` when the file does not match."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {
                name: stored[f"a{i}"].view(DType(dtype).numpy).reshape(json.loads(shape))
                for i, (name, dtype, shape) in enumerate(listed)
            }
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"the subject's arrays cannot be read ({error})") from error

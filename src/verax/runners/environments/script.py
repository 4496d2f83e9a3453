"""Runs one ONNX model with the ONNX Runtime of the interpreter that this file is started with.

`python script.py FOLDER` reads request.json and inputs.npz there and writes outputs.npz and
reply.json. It is started by interpreters that have neither Verax nor its packages, also old ones.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np


def session_of(package: Any, request: Mapping[str, Any]) -> Any:
    """The session that a request asks for. package: onnxruntime."""
    options = package.SessionOptions()
    options.intra_op_num_threads = request["threads"]
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(package.GraphOptimizationLevel, request["level"])
    for name, value in request["options"].items():
        if "." in name:
            options.add_session_config_entry(name, str(value))
        else:
            setattr(options, name, value)
    if request["optimized"]:
        options.optimized_model_filepath = request["optimized"]
    return package.InferenceSession(
        request["model"],
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=list(request["disable"]),
    )


def arrays_of(path: str, listed: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Arrays by name. listed: (name, element type, shape as JSON) of each, in order."""
    with np.load(path, allow_pickle=False) as stored:
        return {
            name: stored[f"a{i}"].view(np.dtype(dtype)).reshape(json.loads(shape))
            for i, (name, dtype, shape) in enumerate(listed)
        }


def write_arrays(path: str, arrays: Iterable[tuple[str, Any]]) -> list[list[str]]:
    """Write arrays of numbers as bytes; returns what `arrays_of` takes as `listed`."""
    listed: list[list[str]] = []
    flat: dict[str, np.ndarray] = {}
    for name, value in arrays:
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            continue  # strings, sequences and maps are not judged
        content = np.ascontiguousarray(value).reshape(-1)
        flat[f"a{len(listed)}"] = content.view(np.uint8) if content.size else np.zeros(0, np.uint8)
        listed.append([name, value.dtype.name, json.dumps(list(value.shape))])
    np.savez(path, **flat)  # type: ignore[arg-type]  # allow_pickle= is an array's name to NumPy 1
    return listed


def reply_to(folder: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """What reply.json holds: version and outputs, or why there are none."""
    try:
        package = importlib.import_module("onnxruntime")
    except Exception as error:
        return {"missing": f"{type(error).__name__}: {error}"}
    reply: dict[str, Any] = {"version": str(package.__version__)}
    try:
        session = session_of(package, request)
        names = [value.name for value in session.get_outputs()]
        inputs = arrays_of(os.path.join(folder, "inputs.npz"), request["inputs"])
        results = session.run(names, inputs)
    except Exception as error:
        return {**reply, "error": f"{type(error).__name__}: {error}"}
    path = os.path.join(folder, "outputs.npz")
    return {**reply, "outputs": write_arrays(path, zip(names, results))}


def main(folder: str) -> None:
    with open(os.path.join(folder, "request.json"), encoding="utf-8") as stream:
        request = json.load(stream)
    reply = reply_to(folder, request)
    with open(os.path.join(folder, "reply.json"), "w", encoding="utf-8") as stream:
        json.dump(reply, stream)


if __name__ == "__main__":
    main(sys.argv[1])

"""Decoding with caches that go in and come out, in Verax and in ONNX Runtime: a step each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

Step = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(ids, mask) -> logits."""


def session_of(model: onnx.ModelProto, threads: int) -> Any:
    """ONNX Runtime's session of a model on the processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def verax_step(exe: Any, past: Mapping[str, np.ndarray], presents: Mapping[str, str]) -> Step:
    """Of Verax, going on from `past`. presents: by past, the output that is the next one."""
    caches = dict(past)

    def step(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        outputs = exe.run({"ids": ids, "mask": mask, **caches})
        caches.update({v: outputs[o] for v, o in presents.items()})
        return np.asarray(outputs["logits"])

    return step


def peer_step(session: Any, past: Mapping[str, np.ndarray], presents: Mapping[str, str]) -> Step:
    """The same of ONNX Runtime."""
    caches, names = dict(past), ["logits", *presents.values()]

    def step(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        logits, *new = session.run(names, {"ids": ids, "mask": mask, **caches})
        caches.update(zip(presents, new, strict=True))
        return np.asarray(logits)

    return step

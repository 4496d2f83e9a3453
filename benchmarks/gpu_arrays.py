"""Arrays of the recorded runs of a GPU, as the benchmarks that read them share it."""

from __future__ import annotations

import io

import ml_dtypes
import numpy as np


def stored_arrays(data: bytes) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name; "name@bfloat16" holds the bits of that type."""
    stored = np.load(io.BytesIO(data))
    arrays = {}
    for key in stored.files:
        name, _, dtype = key.partition("@")
        arrays[name] = stored[key].view(getattr(ml_dtypes, dtype)) if dtype else stored[key]
    return arrays

"""Writes answers.npz: small Keras models as files, and what Keras on TensorFlow answers for them.

Needs Keras and TensorFlow: `python -m tests.frontends.from_keras.make_answers`. Arrays are named
LABEL|file.keras, LABEL|file.h5 (of models of several layers), LABEL|in:INPUT and LABEL|out:N.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.frontends.from_keras.keras_graphs import GRAPHS
from tests.frontends.from_keras.keras_models import (
    LAYERS,
    MERGES,
    of,
    sequential,
    shared_and_nested,
)

from verax.ops.common import draw

ANSWERS = Path(__file__).with_name("answers.npz")


def models(keras: Any) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Label, model, and the forms to store it in."""
    for label in (*LAYERS, *MERGES):
        yield label, of(keras, label), (".keras",)
    for label in GRAPHS:
        yield f"graph {label}", of(keras, label), (".keras", ".h5")
    for maker in (sequential, shared_and_nested):
        yield f"network {maker.__name__}", maker(keras), (".keras", ".h5")


def main() -> None:
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras  # only this script needs it

    arrays: dict[str, np.ndarray] = {}
    for label, model, suffixes in models(keras):
        keras.utils.clear_session()
        rng = np.random.default_rng(3)
        inputs = {x.name: draw(rng, (2, *x.shape[1:]), "float32") for x in model.inputs}
        given = model(list(inputs.values()), training=False)
        given = given if isinstance(given, list | tuple) else [given]
        with tempfile.TemporaryDirectory() as folder:
            for suffix in suffixes:
                path = Path(folder) / f"net{suffix}"
                model.save(path)
                arrays[f"{label}|file{suffix}"] = np.frombuffer(path.read_bytes(), np.uint8)
        arrays |= {f"{label}|in:{name}": value for name, value in inputs.items()}
        arrays |= {f"{label}|out:{i}": np.asarray(value) for i, value in enumerate(given)}
    np.savez_compressed(ANSWERS, **arrays)


if __name__ == "__main__":
    main()

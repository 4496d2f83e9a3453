"""Writes answers.npz: small Keras models as files, and what Keras on TensorFlow answers for them.

Needs Keras and TensorFlow: `python -m tests.frontends.from_keras.make_answers`. Arrays are named
LABEL|file.keras, LABEL|file.h5 (of models of several layers), LABEL|in:INPUT and LABEL|out:N.
What Keras 2 wrote is made by hand (`keras2_files`) and answered by TensorFlow.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.frontends.from_keras.keras2_files import FILES, INPUTS
from tests.frontends.from_keras.keras_graphs import GRAPHS
from tests.frontends.from_keras.keras_models import (
    LAYERS,
    MERGES,
    of,
    sequential,
    shared_and_nested,
)
from tests.frontends.from_keras.keras_operations import NOT_IN_H5

from verax.ops.common import draw

ANSWERS = Path(__file__).with_name("answers.npz")


def models(keras: Any) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Label, model, and the forms to store it in."""
    for label in (*LAYERS, *MERGES):
        yield label, of(keras, label), (".keras",)
    for label in GRAPHS:
        forms = (".keras",) if label in NOT_IN_H5 else (".keras", ".h5")
        yield f"graph {label}", of(keras, label), forms
    for maker in (sequential, shared_and_nested):
        yield f"network {maker.__name__}", maker(keras), (".keras", ".h5")


def main() -> None:
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras  # only this script needs them
    import tensorflow

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
    for label, (make, answer, count) in FILES.items():
        rng = np.random.default_rng(3)
        inputs = {n: draw(rng, (2, *INPUTS[n])) for n in list(INPUTS)[:count]}
        arrays[f"{label}|file.h5"] = np.frombuffer(make(), np.uint8)
        arrays |= {f"{label}|in:{name}": value for name, value in inputs.items()}
        given = answer(tensorflow, inputs)
        arrays |= {f"{label}|out:{i}": value for i, value in enumerate(given)}
    np.savez_compressed(ANSWERS, **arrays)


if __name__ == "__main__":
    main()

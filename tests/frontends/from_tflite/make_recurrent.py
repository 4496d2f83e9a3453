"""Writes recurrent.npz: networks of LSTMs of TensorFlow's converter, with inputs of two calls and
what LiteRT's built-in kernels give for each, the second after the first.

Run as a module where TensorFlow 2.21, tf-keras (Keras 2, whose LSTM the converter fuses) and LiteRT
are installed, with TF_USE_LEGACY_KERAS=1; the tests read the file. Arrays: "NAME.tflite" (bytes),
"NAME.in", "NAME.out" (one input, one output; the first axis is the call).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tests.frontends.from_tflite.tflite_peer import litert_calls
from tf_keras import layers as L

TARGET = Path(__file__).with_name("recurrent.npz")
BATCH, STEPS, SIZE = 2, 6, 5


def network(around: Callable[[Any], Any]) -> keras.Model:
    """Two layers, the second of which gives its last output only."""
    x = inputs = L.Input((STEPS, SIZE), batch_size=BATCH)
    x = around(L.LSTM(7, return_sequences=True))(x)
    x = around(L.LSTM(4))(x)
    return keras.Model(inputs, L.Dense(3, activation="softmax")(x))


def main() -> None:
    tf.random.set_seed(7)
    rng, arrays = np.random.default_rng(7), {}
    for name, around in (("forward", lambda layer: layer), ("both ways", L.Bidirectional)):
        made = tf.lite.TFLiteConverter.from_keras_model(network(around)).convert()
        given = rng.standard_normal((2, BATCH, STEPS, SIZE)).astype(np.float32)
        (x,) = (d["name"] for d in tf.lite.Interpreter(model_content=made).get_input_details())
        calls = litert_calls(made, [{x: array} for array in given])
        arrays[f"{name}.tflite"] = np.frombuffer(made, np.uint8)
        arrays[f"{name}.in"] = given
        arrays[f"{name}.out"] = np.stack([next(iter(found.values())) for found in calls])
    np.savez_compressed(TARGET, **arrays)


if __name__ == "__main__":
    main()

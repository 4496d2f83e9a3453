"""Writes control.npz: branches and loops as TensorFlow's converter writes them, and LiteRT's
answers.

    python tests/frontends/from_tflite/make_control.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

SHAPE = (3, 5)
W = np.linspace(1.1, 1.9, 5).astype(np.float32)


def choice(x: Any) -> Any:
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.nn.relu(x) * W, lambda: x - W)


def until(x: Any) -> Any:
    """How often it runs is decided by what it computes."""
    return tf.while_loop(
        lambda i, y: tf.reduce_max(tf.abs(y)) < 50.0,
        lambda i, y: (i + 1, y * W + 0.5),
        (tf.constant(0), x),
    )[1]


def counted(x: Any) -> Any:
    body = lambda i, y: (i + 1, y * W + tf.cast(i, tf.float32))  # noqa: E731
    return tf.while_loop(lambda i, y: i < 4, body, (tf.constant(0), x))[1]


def nested(x: Any) -> Any:
    def body(y: Any) -> Any:
        return (tf.cond(tf.reduce_sum(y) > 0, lambda: y * 2.0, lambda: 1.0 - y * W),)

    return tf.while_loop(lambda y: tf.reduce_max(tf.abs(y)) < 50.0, body, (x,))[0]


def main() -> None:
    x = np.random.default_rng(7302).standard_normal(SHAPE).astype(np.float32)
    stored: dict[str, Any] = {"x": x}
    for function in (choice, until, counted, nested):
        signature = [tf.TensorSpec(SHAPE, tf.float32, name="x")]
        made = tf.function(function, input_signature=signature)
        converter = tf.lite.TFLiteConverter.from_concrete_functions(
            [made.get_concrete_function()], made
        )
        data = converter.convert()
        name = function.__name__
        stored[name] = np.frombuffer(data, np.uint8)
        run = tf.lite.Interpreter(model_content=data)
        run.allocate_tensors()
        for number, given in enumerate((x, -x, x * np.float32(0.1) + np.float32(0.2))):
            run.set_tensor(run.get_input_details()[0]["index"], given)
            run.invoke()
            stored[f"{name}.answer{number}"] = run.get_tensor(run.get_output_details()[0]["index"])
    np.savez_compressed(Path(__file__).with_name("control.npz"), **stored)


if __name__ == "__main__":
    main()

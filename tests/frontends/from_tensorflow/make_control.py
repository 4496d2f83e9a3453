"""Writes control.npz: branches and loops, as functions and as frames of nodes, and TensorFlow's
answers.

    python tests/frontends/from_tensorflow/make_control.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tf_cases import tf

SHAPE = (3, 5)
W = np.linspace(1.1, 1.9, 5).astype(np.float32)


def choice(x: Any) -> Any:
    return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.nn.relu(x) * W, lambda: x - W)


def within(x: Any) -> Any:
    inner = lambda: tf.cond(tf.reduce_max(x) > 1.0, lambda: tf.sin(x), lambda: tf.cos(x))  # noqa: E731
    return tf.cond(tf.reduce_sum(x) > 0, inner, lambda: -x)


def until(x: Any) -> Any:
    """How often it runs is decided by what it computes."""
    return tf.while_loop(
        lambda i, y: tf.reduce_max(tf.abs(y)) < 50.0,
        lambda i, y: (i + 1, y * W + 0.5),
        (tf.constant(0), x),
    )


def counted(x: Any) -> Any:
    body = lambda i, y: (i + 1, y * W + tf.cast(i, tf.float32))  # noqa: E731
    return tf.while_loop(lambda i, y: i < 4, body, (tf.constant(0), x))[1]


def nested(x: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        inner = lambda j, z: (j + 1, z + tf.cast(i * j, tf.float32) * x)  # noqa: E731
        return i + 1, tf.while_loop(lambda j, z: j < 3, inner, (tf.constant(0), y))[1]

    return tf.while_loop(lambda i, y: i < 2, body, (tf.constant(0), x))[1]


def mapped(x: Any) -> Any:
    """As detectors prepare each image of a batch."""
    return tf.map_fn(lambda row: tf.reduce_sum(row * W) + row, x)


def arrays(x: Any) -> Any:
    """map_fn as TensorFlow 1 has it: TensorArrays, read and written by a loop."""
    source = tf.compat.v1.TensorArray(tf.float32, size=3).unstack(x)
    made = tf.compat.v1.TensorArray(tf.float32, size=3)
    body = lambda i, a: (i + 1, a.write(i, source.read(i) * W - 1.0))  # noqa: E731
    _, made = tf.compat.v1.while_loop(lambda i, a: i < 3, body, (tf.constant(0), made))
    return made.stack()


def both(x: Any) -> Any:
    """Two results of one branch."""
    return tf.cond(
        tf.reduce_sum(x) > 0, lambda: (tf.sin(x), x * W), lambda: (x * 2.0, tf.nn.relu(x))
    )


def cases(x: Any) -> Any:
    """One of three by number; the last one for a number that no branch has."""
    ways = [lambda: (x * W, -x), lambda: (tf.sin(x), x - W), lambda: (tf.nn.relu(x) - W, x * x)]
    first, second = tf.switch_case(tf.cast(tf.floor(tf.reduce_sum(x)), tf.int32), ways)
    return first + 2.0 * second


def inputs(x: np.ndarray) -> np.ndarray:
    """Of both signs, and with sums of half, one and a half, ..., so that `cases` is asked for every
    number."""
    shifted = [x - x.mean() + (i + 0.5) / x.size for i in range(4)]
    return np.stack([x, -x, x * 0.1 + 0.2, *shifted]).astype(np.float32)


def concrete(function: Any) -> Any:
    signature = [tf.TensorSpec(SHAPE, tf.float32, name="x")]
    return tf.function(function, input_signature=signature).get_concrete_function()


def traced(function: Any) -> bytes:
    """As a SavedModel has it."""
    return bytes(concrete(function).graph.as_graph_def().SerializeToString())


def frozen(function: Any, frames: bool) -> bytes:
    made = convert_variables_to_constants_v2(concrete(function), lower_control_flow=frames)
    return bytes(made.graph.as_graph_def().SerializeToString())


def old(function: Any) -> bytes:
    """As TensorFlow 1 builds it, without functions."""
    tf.compat.v1.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        function(tf.compat.v1.placeholder(tf.float32, SHAPE, name="x"))
    tf.compat.v1.enable_control_flow_v2()
    return bytes(graph.as_graph_def().SerializeToString())


def main() -> None:
    x = np.random.default_rng(7301).standard_normal(SHAPE).astype(np.float32)
    stored: dict[str, Any] = {"inputs": inputs(x)}
    for function in (choice, within, until, counted, nested, mapped, arrays, both, cases):
        name = function.__name__
        if function is not cases:
            stored[f"{name}.old"] = np.frombuffer(old(function), np.uint8)
        if function is cases:  # freezing takes it apart
            stored[f"{name}.functions"] = np.frombuffer(traced(function), np.uint8)
        elif function is not arrays:
            stored[f"{name}.functions"] = np.frombuffer(frozen(function, False), np.uint8)
        if function not in (arrays, cases):
            stored[f"{name}.frames"] = np.frombuffer(frozen(function, True), np.uint8)
        for number, given in enumerate(stored["inputs"]):
            found = tf.nest.flatten(tf.function(function)(tf.constant(given)))
            stored[f"{name}.answer{number}"] = found[-1].numpy()
            if function is both:
                stored[f"{name}.first{number}"] = found[0].numpy()
    np.savez_compressed(Path(__file__).with_name("control.npz"), **stored)


if __name__ == "__main__":
    main()

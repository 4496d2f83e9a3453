"""Writes ssd.npz: a small SSD with TFLite_Detection_PostProcess as TensorFlow's converter ends one,
with floats and with integers inside, suppression by box and by class, and LiteRT's answers.

Run as a module where TensorFlow 2.21 and LiteRT are installed; the tests read the file.
Arrays: "NAME.tflite" (bytes), "NAME.in", "NAME.out:TENSOR" for each output.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType

TARGET = Path(__file__).with_name("ssd.npz")
SIZE, CLASSES, MOST = (32, 24, 3), 3, 30
OPTIONS = {
    "max_detections": MOST, "max_classes_per_detection": 1, "use_regular_nms": False,
    "nms_score_threshold": 0.35, "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0,
    "h_scale": 5.0, "w_scale": 5.0, "num_classes": CLASSES,
}  # fmt: skip


def constant(rng: np.random.Generator, *shape: int) -> Any:
    """Weights that keep the size of what they meet."""
    spread = np.sqrt(2.2 / np.prod(shape[:-1]))
    return tf.constant(rng.normal(0, spread, shape).astype(np.float32))


def network(image: Any) -> tuple[Any, Any, np.ndarray]:
    """(encodings, scores) of an image [1, h, w, 3], and the anchors [n, 4]."""
    rng, x, depth = np.random.default_rng(3), image, 3
    rows, anchors = [], []
    for i, out in enumerate((8, 12, 16, 20)):
        x = tf.nn.depthwise_conv2d(x, constant(rng, 3, 3, depth, 1) * 3.0, (1, 2, 2, 1), "SAME")
        x = tf.nn.conv2d(x, constant(rng, 1, 1, depth, out), 1, "SAME")
        x, depth = tf.nn.relu6(x + rng.normal(0, 0.2, out).astype(np.float32)), out
        if i < 2:
            continue
        head = tf.nn.conv2d(x, constant(rng, 3, 3, depth, 2 * (5 + CLASSES)), 1, "SAME")
        height, width = x.shape[1:3]
        rows.append(tf.reshape(head, (1, 2 * height * width, 5 + CLASSES)))
        y, z = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
        boxes = [
            np.stack(
                [(y + 0.5) / height, (z + 0.5) / width, y * 0 + size * i / 2, y * 0 + size], -1
            )
            for size in (0.25, 0.45)
        ]
        anchors.append(np.stack(boxes, 2).reshape(-1, 4))
    joined = tf.concat(rows, 1)
    scores = tf.sigmoid(joined[:, :, 4:])
    return joined[:, :, :4], scores, np.concatenate(anchors).astype(np.float32)


def signature(options: dict[str, Any]) -> str:
    kinds = {bool: "b", int: "i", float: "f"}
    words = ['name: "TFLite_Detection_PostProcess"']
    for key, value in options.items():
        shown = str(value).lower() if isinstance(value, bool) else value
        words.append(f'attr {{ key: "{key}" value {{ {kinds[type(value)]}: {shown} }} }}')
    return " ".join(words)


def converted(kind: str, regular: bool) -> bytes:
    @tf.function(experimental_implements=signature({**OPTIONS, "use_regular_nms": regular}))
    def post_process(encodings: Any, scores: Any, boxes: Any) -> Any:
        """Replaced by the converter; only the number of results counts."""
        zero = tf.constant(0.0)
        return zero, zero, zero, zero

    @tf.function(input_signature=[tf.TensorSpec((1, *SIZE), tf.float32)])
    def detect(image: Any) -> Any:
        encodings, scores, anchors = network(image)
        return post_process(encodings, scores, tf.constant(anchors))

    module = tf.Module()  # without one the converter inlines what it should replace
    module.detect = detect
    c = tf.lite.TFLiteConverter.from_concrete_functions([detect.get_concrete_function()], module)
    c.allow_custom_ops = True
    if kind == "int8":
        rng = np.random.default_rng(1)
        images = [rng.uniform(-1, 1, (1, *SIZE)).astype(np.float32) for _ in range(8)]
        c.optimizations = [tf.lite.Optimize.DEFAULT]
        c.representative_dataset = lambda: ([x] for x in images)
        c.target_spec.supported_ops = [
            tf.lite.OpsSet.TFLITE_BUILTINS_INT8, tf.lite.OpsSet.TFLITE_BUILTINS,
        ]  # fmt: skip
        c.inference_input_type = tf.int8
    return c.convert()


def main() -> None:
    found: dict[str, np.ndarray] = {}
    for kind in ("float32", "int8"):
        for regular in (False, True):
            name = f"{kind}/{'by class' if regular else 'by box'}"
            data = converted(kind, regular)
            it = Interpreter(model_content=data, num_threads=1,
                             experimental_op_resolver_type=OpResolverType.BUILTIN_REF)  # fmt: skip
            it.allocate_tensors()
            (details,) = it.get_input_details()
            x = np.random.default_rng(9).uniform(-1, 1, (1, *SIZE)).astype(np.float32)
            if kind == "int8":
                scale, zero = details["quantization"]
                x = np.clip(np.rint(x / scale) + zero, -128, 127).astype(np.int8)
            it.set_tensor(details["index"], x)
            it.invoke()
            found[f"{name}.tflite"], found[f"{name}.in"] = np.frombuffer(data, np.uint8), x
            for d in it.get_output_details():
                found[f"{name}.out:{d['name']}"] = it.get_tensor(d["index"])
                print(name, len(data), d["name"], it.get_tensor(d["index"]).round(3).tolist())
    np.savez_compressed(TARGET, **found)


if __name__ == "__main__":
    main()

"""Writes detection.npz: a small detector as the Object Detection API of TensorFlow 1 exports them,
frozen, and TensorFlow's answers.

    python tests/frontends/from_tensorflow/make_detection.py

What makes such graphs hard is kept, the network between is small: images of bytes of open size go
through `map_fn` (a loop with TensorArrays) that resizes each; boxes are decoded from anchors; every
image of the batch goes through `map_fn` again, in which each class has a suppression of its own,
whose results are joined, sorted by score and padded to a fixed number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tf_cases import tf

v1 = tf.compat.v1
SIZE, CLASSES, PER_CLASS, TOTAL, LEAST = 32, 3, 4, 6, 0.626
IMAGES = {"one": (1, 45, 37), "two": (2, 40, 53)}


def weights(*shape: int) -> Any:
    random = np.random.default_rng([7401, *shape])
    fan = int(np.prod(shape[:-1]))
    return tf.constant((random.standard_normal(shape) / fan**0.5).astype(np.float32))


def prepared(images: Any) -> tuple[Any, Any]:
    """Each image resized to SIZE x SIZE, and its true shape."""

    def one(image: Any) -> tuple[Any, Any]:
        with tf.name_scope("ResizeImage"):
            made = v1.image.resize_images(image, [SIZE, SIZE], method=0, align_corners=False)
            return made, tf.stack([SIZE, SIZE, tf.shape(image)[2]])

    floats = tf.cast(images, tf.float32)
    made, shapes = v1.map_fn(one, floats, dtype=(tf.float32, tf.int32), parallel_iterations=32)
    return (2.0 / 255.0) * made - 1.0, shapes


def features(x: Any) -> Any:
    for i, (inputs, filters) in enumerate(((3, 8), (8, 12), (12, 16))):
        x = tf.nn.conv2d(x, weights(3, 3, inputs, filters), 2, "SAME", name=f"conv{i}")
        ones = np.linspace(0.6, 1.4, filters).astype(np.float32)
        x = v1.nn.fused_batch_norm(
            x, ones, ones - 1.0, ones * 0.1, ones, epsilon=1e-3, is_training=False
        )[0]
        x = tf.nn.relu6(x)
    return x


def anchors(cells: int) -> np.ndarray:
    """(y, x, height, width) of two boxes in each cell."""
    middle = (np.arange(cells) + 0.5) / cells
    y, x = np.meshgrid(middle, middle, indexing="ij")
    found = [(y, x, np.full_like(y, s), np.full_like(y, 1.3 * s)) for s in (0.25, 0.5)]
    return np.stack([np.stack(a, -1) for a in found], 2).reshape(-1, 4).astype(np.float32)


def decoded(codes: Any, at: np.ndarray) -> Any:
    """Boxes [b, n, 4] as (y1, x1, y2, x2), as FasterRcnnBoxCoder decodes them."""
    batch = tf.shape(codes)[0]
    tiled = tf.tile(tf.expand_dims(tf.constant(at), 0), tf.stack([batch, 1, 1]))
    flat = tf.reshape(tiled, [-1, 4])
    ya, xa, ha, wa = tf.unstack(tf.transpose(flat))
    ty, tx, th, tw = tf.unstack(tf.transpose(tf.reshape(codes, [-1, 4])))
    h, w = tf.exp(th / 5.0) * ha, tf.exp(tw / 5.0) * wa
    y, x = ty / 10.0 * ha + ya, tx / 10.0 * wa + xa
    boxes = tf.transpose(tf.stack([y - h / 2.0, x - w / 2.0, y + h / 2.0, x + w / 2.0]))
    return tf.reshape(boxes, tf.stack([batch, -1, 4]))


def padded(tensor: Any, size: int) -> Any:
    """The first rows, filled up with zeros."""
    have = tf.shape(tensor)[0]
    tensor = tensor[: tf.minimum(have, size)]
    missing = size - tf.shape(tensor)[0]
    made = tf.pad(tensor, [[0, missing], *([[0, 0]] * (len(tensor.shape) - 1))])
    return tf.reshape(made, [size, *tensor.shape[1:]])


def suppressed(image: tuple[Any, Any]) -> tuple[Any, Any, Any, Any]:
    """Boxes [n, 4] and scores [n, classes] of one image, after suppression in each class."""
    boxes, scores = image
    kept = []
    for number in range(CLASSES):
        with tf.name_scope(f"class{number}"):
            own = scores[:, number]
            above = tf.cast(tf.reshape(tf.where(tf.greater(own, LEAST)), [-1]), tf.int32)
            good, own = tf.gather(boxes, above), tf.gather(own, above)
            most = tf.minimum(PER_CLASS, tf.shape(good)[0])
            places = tf.image.non_max_suppression(good, own, most, 0.5)
            own = tf.gather(own, places)
            kept.append((tf.gather(good, places), own, tf.zeros_like(own) + float(number)))
    found = [tf.concat(part, 0) for part in zip(*kept)]
    count = tf.shape(found[0])[0]
    as_many = v1.Assert(tf.equal(count, tf.size(found[1])), ["sizes differ", count])
    with tf.control_dependencies([as_many]):
        order = tf.nn.top_k(found[1], count, sorted=True)[1]
    boxes, scores, classes = (tf.gather(part, order) for part in found)
    boxes = tf.clip_by_value(boxes, 0.0, 1.0)
    count = tf.minimum(TOTAL, tf.shape(scores)[0])
    return padded(boxes, TOTAL), padded(scores, TOTAL), padded(classes, TOTAL), count


def detector() -> Any:
    with tf.Graph().as_default() as graph:
        images = v1.placeholder(tf.uint8, [None, None, None, 3], name="image_tensor")
        with tf.name_scope("Preprocessor"):
            x, _ = prepared(images)
        x = features(tf.reshape(x, [-1, SIZE, SIZE, 3]))
        at = anchors(SIZE // 8)
        codes = tf.nn.conv2d(x, weights(1, 1, 16, 8) * 3.0, 1, "SAME", name="BoxEncoding")
        logits = tf.nn.conv2d(x, weights(1, 1, 16, 2 * (CLASSES + 1)) * 4.0, 1, "SAME")
        batch = tf.shape(x)[0]
        codes = tf.reshape(codes, tf.stack([batch, len(at), 4]))
        scores = tf.sigmoid(tf.reshape(logits, tf.stack([batch, len(at), CLASSES + 1])))
        with tf.name_scope("Postprocessor"):
            boxes = decoded(codes, at)
            boxes.set_shape([None, len(at), 4])
            scores = scores[:, :, 1:]
            scores.set_shape([None, len(at), CLASSES])
            types = (tf.float32, tf.float32, tf.float32, tf.int32)
            found = v1.map_fn(suppressed, (boxes, scores), dtype=types, parallel_iterations=1)
        tf.identity(found[0], "detection_boxes")
        tf.identity(found[1], "detection_scores")
        tf.add(found[2], 1.0, "detection_classes")
        tf.cast(found[3], tf.float32, name="num_detections")
    return graph


OUTPUTS = [f"detection_{n}" for n in ("boxes", "scores", "classes")] + ["num_detections"]


def main() -> None:
    v1.disable_control_flow_v2()
    graph = detector()
    wanted = v1.graph_util.extract_sub_graph(graph.as_graph_def(), OUTPUTS)
    stored: dict[str, Any] = {"graph": np.frombuffer(wanted.SerializeToString(), np.uint8)}
    random = np.random.default_rng(7402)
    with v1.Session(graph=graph) as session:
        for name, (count, height, width) in IMAGES.items():
            small = random.integers(0, 256, (count, height // 6 + 1, width // 6 + 1, 3))
            images = np.kron(small, np.ones((1, 6, 6, 1)))[:, :height, :width].astype(np.uint8)
            stored[f"{name}.image_tensor"] = images
            for output, value in zip(
                OUTPUTS,
                session.run([f"{o}:0" for o in OUTPUTS], {"image_tensor:0": images}),
                strict=True,
            ):
                stored[f"{name}.{output}"] = value
                print(name, output, value)
    np.savez_compressed(Path(__file__).with_name("detection.npz"), **stored)


if __name__ == "__main__":
    main()

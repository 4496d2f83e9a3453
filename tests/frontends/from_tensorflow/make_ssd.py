"""Writes ssd.npz: a single-shot detector, frozen and as a SavedModel, and TensorFlow's answers.

    python tests/frontends/from_tensorflow/make_ssd.py

Strided SAME convolutions, depthwise ones, BatchNorm, ReLU6, two feature maps, anchors computed by
the graph, boxes decoded, and two ways of choosing: all classes at once, and image by image.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from tf_cases import tf

CLASSES, PER_CELL = 4, 3
"""Classes, the background among them; anchors per cell."""
IMAGE = (2, 48, 56, 3)


class Detector(tf.Module):
    """Images [n, 48, 56, 3] -> boxes, scores, classes and how many were found."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(7)
        self.stem = self.weight(3, 3, 3, 8)
        self.depth = [self.weight(3, 3, c, 1) for c in (8, 12, 16)]
        self.point = [self.weight(1, 1, i, o) for i, o in ((8, 12), (12, 16), (16, 20))]
        self.norms = [self.norm(c) for c in (8, 8, 12, 12, 16, 16, 20)]
        self.heads = [
            (self.weight(3, 3, c, PER_CELL * 4), self.weight(3, 3, c, PER_CELL * CLASSES))
            for c in (16, 20)
        ]

    def weight(self, *shape: int) -> Any:
        fan = float(np.prod(shape[:2])) * (shape[2] if shape[3] > 1 else 1)
        value = self.random.normal(0, (2 / fan) ** 0.5, shape)
        return tf.Variable(value.astype(np.float32))

    def norm(self, channels: int) -> list[Any]:
        ranges = ((0.7, 1.4), (-0.3, 0.3), (-0.2, 0.2), (0.5, 1.6))
        values = [self.random.uniform(*r, channels).astype(np.float32) for r in ranges]
        return [tf.Variable(v) for v in values]

    def normed(self, x: Any, i: int) -> Any:
        scale, offset, mean, variance = self.norms[i]
        y, *_ = tf.compat.v1.nn.fused_batch_norm(
            x, scale, offset, mean, variance, epsilon=0.003, is_training=False
        )
        return tf.nn.relu6(y)

    def block(self, x: Any, i: int) -> Any:
        stride = [1, 2, 2, 1]
        x = self.normed(tf.nn.depthwise_conv2d(x, self.depth[i], stride, "SAME"), 2 * i + 1)
        return self.normed(tf.nn.conv2d(x, self.point[i], 1, "SAME"), 2 * i + 2)

    def anchors(self, feature: Any, size: float) -> Any:
        """Centres and sizes [cells * 3, 4] as (y, x, height, width), from the map's shape."""
        shape = tf.shape(feature)
        rows, columns = shape[1], shape[2]
        ys = (tf.range(tf.cast(rows, tf.float32)) + 0.5) / tf.cast(rows, tf.float32)
        xs = (tf.range(tf.cast(columns, tf.float32)) + 0.5) / tf.cast(columns, tf.float32)
        grid = tf.stack(tf.meshgrid(ys, xs, indexing="ij"), -1)
        centres = tf.repeat(tf.reshape(grid, [-1, 2]), PER_CELL, 0)
        ratios = tf.constant([[1.0, 1.0], [1.4, 0.7], [0.6, 1.5]]) * size
        sizes = tf.tile(ratios, [rows * columns, 1])
        return tf.concat([centres, sizes], 1)

    @tf.function(input_signature=[tf.TensorSpec(IMAGE, tf.float32, name="image")])
    def serve(self, image: Any) -> dict[str, Any]:
        x = self.normed(tf.nn.conv2d(image * 2.0 - 1.0, self.stem, 2, "SAME"), 0)
        x = self.block(x, 0)
        features = [self.block(x, 1)]
        features.append(self.block(features[0], 2))
        codes, scores, anchors = [], [], []
        for feature, (box, score), size in zip(features, self.heads, (0.3, 0.6)):
            n = tf.shape(feature)[0]
            codes.append(tf.reshape(tf.nn.conv2d(feature, box, 1, "SAME"), tf.stack([n, -1, 4])))
            shown = tf.reshape(tf.nn.conv2d(feature, score, 1, "SAME"), [n, -1, CLASSES])
            scores.append(tf.sigmoid(shown * 3.0 - 0.5)[..., 1:])
            anchors.append(self.anchors(feature, size))
        boxes = decoded(tf.concat(codes, 1), tf.concat(anchors, 0))
        probabilities = tf.concat(scores, 1)
        together = tf.image.combined_non_max_suppression(
            tf.expand_dims(boxes, 2), probabilities, 6, 10, 0.4, 0.85
        )
        return {
            **dict(zip(("boxes", "scores", "classes", "count"), together)),
            **one_by_one(boxes, probabilities),
            **{"raw_boxes": boxes, "raw_scores": probabilities},
        }


def decoded(codes: Any, anchors: Any) -> Any:
    """Corners (y1, x1, y2, x2) [n, anchors, 4]."""
    ty, tx, th, tw = tf.unstack(codes, axis=-1)
    ay, ax, ah, aw = tf.unstack(anchors, axis=-1)
    y, x = ty / 10.0 * ah + ay, tx / 10.0 * aw + ax
    h, w = tf.exp(th / 5.0) * ah, tf.exp(tw / 5.0) * aw
    return tf.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)


def one_by_one(boxes: Any, probabilities: Any) -> dict[str, Any]:
    """The best class of each anchor; then suppression of the first image, the 20 best before."""
    best, names = tf.reduce_max(probabilities, -1), tf.argmax(probabilities, -1)
    values, places = tf.math.top_k(best, 20)
    boxes = tf.gather(boxes, places, batch_dims=1)
    names = tf.gather(names, places, batch_dims=1)
    kept, scored = tf.image.non_max_suppression_with_scores(boxes[0], values[0], 7, 0.5, 0.8)
    strong = tf.boolean_mask(boxes[1], values[1] > 0.86)
    return {
        "first_boxes": tf.gather(boxes[0], kept),
        "first_scores": scored,
        "first_classes": tf.gather(names[0], kept),
        "strong": strong,
    }


def main() -> None:
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    net = Detector()
    image = np.random.default_rng(11).uniform(0, 1, IMAGE).astype(np.float32)
    answers = net.serve(tf.constant(image))
    frozen = convert_variables_to_constants_v2(net.serve.get_concrete_function())
    arrays = {"image": image, "frozen": np.frombuffer(
        frozen.graph.as_graph_def().SerializeToString(), np.uint8)}  # fmt: skip
    # the outputs of a frozen function have no names of their own: they are sorted as nests are
    arrays |= {f"value:{k}": np.array(v.name) for k, v in zip(sorted(answers), frozen.outputs)}
    arrays |= {f"answer:{k}": v.numpy() for k, v in answers.items()}
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(net, folder, signatures={"serving_default": net.serve})
        for path in Path(folder).rglob("*"):
            if path.is_file() and path.name != "fingerprint.pb":
                name = path.relative_to(folder).as_posix()
                arrays[f"file:{name}"] = np.frombuffer(path.read_bytes(), np.uint8)
    np.savez_compressed(Path(__file__).with_name("ssd.npz"), **arrays)
    print({k: (v.shape, v.numpy().ravel()[:8]) for k, v in answers.items()})
    print({n.op for n in frozen.graph.as_graph_def().node})


if __name__ == "__main__":
    main()

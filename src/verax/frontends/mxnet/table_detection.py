"""MXNet's operators of SSD detectors: anchors, and boxes decoded and thinned out."""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.mxnet.rows import floats, known_dims, row


@row("_contrib_MultiBoxPrior", "MultiBoxPrior")
def multi_box_prior(c: Conversion) -> Result:
    """Anchors (x1, y1, x2, y2) in parts of the image: a constant, for the sizes are known."""
    a = c.attributes
    height, width = known_dims(c, 0, "the number of anchors", 2)
    sizes, ratios = floats(c, "sizes", (1.0,)), floats(c, "ratios", (1.0,))
    c.check_count(4 * height * width * (len(sizes) + len(ratios) - 1))
    boxes = prior_boxes(
        height,
        width,
        sizes,
        ratios,
        floats(c, "steps", (-1.0, -1.0)),
        floats(c, "offsets", (0.5, 0.5)),
    )
    if a.flag("clip", False):
        boxes = np.clip(boxes, np.float32(0), np.float32(1))
    return c.named_constant(boxes[None])


def prior_boxes(
    height: int,
    width: int,
    sizes: tuple[float, ...],
    ratios: tuple[float, ...],
    steps: tuple[float, ...],
    offsets: tuple[float, ...],
) -> np.ndarray:
    """Anchors [height * width * (len(sizes) + len(ratios) - 1), 4], in float32 as MXNet counts.

    At each position: every size with ratio 1, then the first size with every further ratio. A
    step of 0 or less means 1 / height (1 / width). Source: src/operator/contrib/multibox_prior.cc.
    """
    f = np.float32
    center = []
    for count, step, offset in zip((height, width), steps, offsets):
        wide = f(step) if step > 0 else f(1) / f(count)
        center.append((np.arange(count, dtype=f) + f(offset)) * wide)
    half_sizes = [(f(size) * f(height) / f(width) / f(2), f(size) / f(2)) for size in sizes]
    for ratio in ratios[1:]:
        root = np.sqrt(f(ratio))
        half_sizes.append(
            (f(sizes[0]) * f(height) / f(width) * root / f(2), f(sizes[0]) / root / f(2))
        )
    half = np.array(half_sizes, f)
    y, x = (v[..., None] for v in np.meshgrid(*center, indexing="ij"))
    w, h = half[:, 0], half[:, 1]
    return np.stack([x - w, y - h, x + w, y + h], axis=-1).reshape(-1, 4).astype(f)


@row("_contrib_MultiBoxDetection", "MultiBoxDetection")
def multi_box_detection(c: Conversion) -> Result:
    a = c.attributes
    a.expect("background_id", 0, reason="MXNet itself takes class 0, whatever it says")
    return c.operator(
        "MultiBoxDetection",
        clip=a.flag("clip", True),
        threshold=a.scalar("threshold", 0.01),
        nms_threshold=a.scalar("nms_threshold", 0.5),
        force_suppress=a.flag("force_suppress", False),
        nms_topk=a.integer("nms_topk", -1),
        variances=floats(c, "variances", (0.1, 0.1, 0.2, 0.2)),
    )

"""torchvision's operators: nms, regions pooled (roi_align, ps_roi_align, roi_pool), and deformable
convolutions."""

from __future__ import annotations

import numpy as np

from verax.frontends.common.context import Applied, Result
from verax.frontends.common.deformable import Taps, deformable_convolution
from verax.frontends.torch.rows import Aten, row
from verax.ir.types import DType


@row("nms.default", domain="torchvision")
def nms(t: Aten) -> Result:
    """Indices of boxes kept, by falling score; of boxes (x1, y1, x2, y2) [n, 4], scores [n].

    A box whose second corner lies before its first overlaps nothing in torchvision; here it gets no
    area, which overlaps nothing either. A score that is NaN comes last here, first there.
    """
    boxes, scores, overlap = t.tensor("dets"), t.tensor("scores"), t.scalar("iou_threshold")
    if overlap is None or not 0 <= overlap <= 1:
        t.a.refuse("iou_threshold", "it lies outside [0, 1]")
    first, second = _columns(t, boxes, 0, 2), _columns(t, boxes, 2, 4)
    ordered = t.add("Concat", [first, t.add("Max", [first, second])], axis=1)
    batch = t.add("Unsqueeze", [ordered, t.ints([0])])
    classes = t.add("Unsqueeze", [scores, t.ints([0, 1])])
    count = t.add("Shape", [scores])
    selected = t.add("NonMaxSuppression", [batch, classes, count, t.constant(_below(overlap))])
    return t.result("Squeeze", [_columns(t, selected, 2, 3), t.ints([1])])


def _below(threshold: float) -> np.ndarray:
    """The largest float32 that is at most `threshold`: a float32 ratio exceeds both or neither."""
    near = np.float32(threshold)
    below = near if float(near) <= threshold else np.nextafter(near, np.float32(-np.inf))
    return np.array([below], np.float32)


def _columns(t: Aten, x: str, start: int, end: int) -> str:
    return t.add("Slice", [x, *(t.ints([v]) for v in (start, end, 1))])


@row("roi_align.default", domain="torchvision")
def roi_align(t: Aten) -> Result:
    """Regions [n, 5]: the image's number, then two corners; `aligned` shifts by half a pixel."""
    return _aligned(t, "half_pixel" if t.flag("aligned") else "output_half_pixel")


def _aligned(t: Aten, mode: str) -> Applied:
    regions = t.tensor("rois")
    image = t.add("Squeeze", [_columns(t, regions, 0, 1), t.ints([1])])
    return t.apply(
        "RoiAlign",
        [t.tensor("input"), _columns(t, regions, 1, 5), t.cast(image, DType.int64)],
        coordinate_transformation_mode=mode,
        output_height=t.integer("pooled_height"),
        output_width=t.integer("pooled_width"),
        sampling_ratio=max(t.integer("sampling_ratio"), 0),
        spatial_scale=float(t.scalar("spatial_scale")),
    )


@row("ps_roi_align.default", domain="torchvision")
def position_sensitive_align(t: Aten) -> Result:
    """roi_align with a channel of its own for every bin: bin k of output c is that of channel
    c * bins + k."""
    if t.output_used(1):
        t.refuse("its mapping of channels is used")
    bins = t.integer("pooled_height") * t.integer("pooled_width")
    aligned = t.append(_aligned(t, "half_pixel"))
    (channels,) = t.known_sizes(aligned, (1,), "its channels")
    if channels % bins:
        t.wrong("input", str(t.type(t.tensor("input"))), f"one of a multiple of {bins} channels")
    apart = t.add("Reshape", [aligned, t.ints([-1, channels // bins, bins * bins])])
    own = t.add("Gather", [apart, t.constant(np.arange(bins) * (bins + 1))], axis=2)
    shape = [-1, channels // bins, t.integer("pooled_height"), t.integer("pooled_width")]
    return t.result("Reshape", [own, t.ints(shape)])


@row("roi_pool.default", domain="torchvision")
def roi_pool(t: Aten) -> Result:
    """Largest elements of bins whose edges are whole pixels."""
    if t.output_used(1):
        t.refuse("its positions are used")
    return t.result(
        "MaxRoiPool",
        [t.tensor("input"), t.tensor("rois")],
        pooled_shape=(t.integer("pooled_height"), t.integer("pooled_width")),
        spatial_scale=float(t.scalar("spatial_scale")),
    )


@row("deform_conv2d.default", domain="torchvision")
def deform_conv2d(t: Aten) -> Result:
    """A convolution whose taps read where their offsets say."""

    def size_pair(name: str) -> tuple[int, int]:
        return t.integer(f"{name}_h"), t.integer(f"{name}_w")

    mask = t.tensor("mask") if t.flag("use_mask") else None
    if mask is None:
        t.irrelevant("mask", reason="use_mask is false")
    pads = tuple((p, p) for p in size_pair("pad"))
    groups = t.integer("groups"), t.integer("offset_groups")
    taps = Taps(size_pair("stride"), pads, size_pair("dilation"), *groups)
    x, weight, offset = (t.tensor(name) for name in ("input", "weight", "offset"))
    return deformable_convolution(t, x, weight, offset, t.tensor("bias"), mask, taps)

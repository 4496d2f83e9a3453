"""torchvision's operators, written here, so that programs export as with torchvision.

Only what a program needs to run and to be exported; torchvision has no build that goes with a
CPU-only torch everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch_programs import torch

Tensor: Any = torch.Tensor


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Indices of boxes kept, by falling score: each overlaps those kept before by no more than
    the threshold."""
    x1, y1, x2, y2 = dets.unbind(1)
    area = (x2 - x1) * (y2 - y1)
    order = scores.sort(stable=True, descending=True).indices.tolist()
    kept: list[int] = []
    for i in order:
        for j in kept:
            width = (torch.minimum(x2[i], x2[j]) - torch.maximum(x1[i], x1[j])).clamp(min=0)
            height = (torch.minimum(y2[i], y2[j]) - torch.maximum(y1[i], y1[j])).clamp(min=0)
            common = width * height
            if (common / (area[i] + area[j] - common)).item() > iou_threshold:
                break
        else:
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Means of bilinear samples in a grid of bins over each region, by grid_sample.

    Without `sampling_ratio` a bin has ceil(its size) samples per axis.
    """
    height, width = input.shape[2:]
    found = []
    for roi in rois:
        corners = roi[1:].double() * spatial_scale - (0.5 if aligned else 0.0)
        x1, y1, x2, y2 = corners.tolist()
        w, h = (x2 - x1, y2 - y1) if aligned else (max(x2 - x1, 1.0), max(y2 - y1, 1.0))
        grid_h = sampling_ratio if sampling_ratio > 0 else max(-int(-h // pooled_height), 1)
        grid_w = sampling_ratio if sampling_ratio > 0 else max(-int(-w // pooled_width), 1)
        ys = y1 + (torch.arange(pooled_height * grid_h).double() + 0.5) * h / pooled_height / grid_h
        xs = x1 + (torch.arange(pooled_width * grid_w).double() + 0.5) * w / pooled_width / grid_w
        inside = ((ys >= -1) & (ys <= height))[:, None] & ((xs >= -1) & (xs <= width))
        ys, xs = ys.clamp(0, height - 1), xs.clamp(0, width - 1)
        y, x = torch.meshgrid(ys, xs, indexing="ij")
        grid = torch.stack([2 * x / max(width - 1, 1) - 1, 2 * y / max(height - 1, 1) - 1], -1)
        image = input[int(roi[0])][None].double()
        samples = torch.nn.functional.grid_sample(image, grid[None], align_corners=True)
        samples = samples * inside
        pooled = torch.nn.functional.avg_pool2d(samples, (grid_h, grid_w))
        found.append(pooled[0].to(input.dtype))
    return torch.stack(found)


def _register() -> None:
    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library
    library.custom_op("torchvision::nms", nms, mutates_args=())

    @library.register_fake("torchvision::nms")
    def fake_nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
        count = library.get_ctx().new_dynamic_size()
        return dets.new_empty(count, dtype=torch.int64)

    names = "input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned"
    assert names.split(", ") == list(roi_align.__annotations__)[:-1]
    library.custom_op("torchvision::roi_align", roi_align, mutates_args=())

    @library.register_fake("torchvision::roi_align")
    def fake_roi_align(input: Any, rois: Any, scale: Any, height: int, width: int, *_: Any) -> Any:
        return input.new_empty(rois.shape[0], input.shape[1], height, width)

    library.custom_op("torchvision::ps_roi_align", ps_roi_align, mutates_args=())
    library.custom_op("torchvision::roi_pool", roi_pool, mutates_args=())

    @library.register_fake("torchvision::ps_roi_align")
    def fake_own(input: Any, rois: Any, scale: Any, height: int, width: int, *_: Any) -> Any:
        shape = (rois.shape[0], input.shape[1] // (height * width), height, width)
        return input.new_empty(shape), input.new_empty(shape, dtype=torch.int32)

    @library.register_fake("torchvision::roi_pool")
    def fake_pool(input: Any, rois: Any, scale: Any, height: int, width: int) -> Any:
        shape = (rois.shape[0], input.shape[1], height, width)
        return input.new_empty(shape), input.new_empty(shape, dtype=torch.int32)

    library.custom_op("torchvision::deform_conv2d", deform_conv2d, mutates_args=())

    @library.register_fake("torchvision::deform_conv2d")
    def fake_deformed(input: Any, weight: Any, offset: Any, *_: Any) -> Any:
        return input.new_empty(input.shape[0], weight.shape[0], *offset.shape[2:])

    library.custom_op("torchvision::ps_roi_pool", _stand_in, mutates_args=())
    library.register_fake("torchvision::ps_roi_pool", lambda input, rois: input.clone())


def _stand_in(input: Tensor, rois: Tensor) -> Tensor:
    """A name only: importing it is refused."""
    return input.clone()


def ps_roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> tuple[Tensor, Tensor]:
    """roi_align, aligned, of which bin k of output c keeps channel c * bins + k."""
    sizes = (pooled_height, pooled_width)
    every = roi_align(input, rois, spatial_scale, *sizes, sampling_ratio, True)
    n, channels = every.shape[:2]
    bins = pooled_height * pooled_width
    own = torch.diagonal(every.reshape(n, channels // bins, bins, bins), dim1=2, dim2=3)
    shape = (n, channels // bins, *sizes)
    return own.reshape(shape).clone(), torch.zeros(shape, dtype=torch.int32)


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Maxima of bins with whole edges; regions include their last pixel."""
    sizes = (pooled_height, pooled_width)
    out = input.new_zeros(rois.shape[0], input.shape[1], *sizes)
    for r, (image, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (int(abs(v * spatial_scale) + 0.5) * (1 if v > 0 else -1) for v in corners)
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i in range(pooled_height):
            for j in range(pooled_width):
                top, left = y1 + i * h // sizes[0], x1 + j * w // sizes[1]
                bottom, right = y1 - (-(i + 1) * h // sizes[0]), x1 - (-(j + 1) * w // sizes[1])
                part = input[int(image), :, max(top, 0) : max(bottom, 0)]
                part = part[:, :, max(left, 0) : max(right, 0)]
                if part.numel():
                    out[r, :, i, j] = part.amax((1, 2))
    return out, torch.zeros(out.shape, dtype=torch.int32)


def deform_conv2d(
    input: Tensor,
    weight: Tensor,
    offset: Tensor,
    mask: Tensor,
    bias: Tensor,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Tensor:
    """Element by element in float64, as its paper says."""
    x, w, moved, weights = (t.double().numpy() for t in (input, weight, offset, mask))
    n, channels, height, width = x.shape
    out, inside, kh, kw = w.shape
    rows, columns = offset.shape[2:]
    y = bias.double().numpy()[None, :, None, None] + np.zeros((n, out, rows, columns))
    for b, o, i, j in np.ndindex(n, out, rows, columns):
        for c, k, m in np.ndindex(inside, kh, kw):
            channel = o // (out // groups) * inside + c
            part = channel // (channels // offset_groups)
            tap = (part * kh + k) * kw + m
            down, right = moved[b, 2 * tap : 2 * tap + 2, i, j]
            at = i * stride_h - pad_h + k * dilation_h + down
            across = j * stride_w - pad_w + m * dilation_w + right
            read = 0.0
            for p, q in np.ndindex(2, 2):
                v, u = int(np.floor(at)) + p, int(np.floor(across)) + q
                if 0 <= v < height and 0 <= u < width:
                    read += (1 - abs(at - v)) * (1 - abs(across - u)) * x[b, channel, v, u]
            y[b, o, i, j] += w[o, c, k, m] * read * (weights[b, tap, i, j] if use_mask else 1.0)
    return torch.from_numpy(y.astype(input.numpy().dtype))


_register()

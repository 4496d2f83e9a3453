"""`torchvision::nms` and `roi_align`, written here, so that programs export as with torchvision.

Only what a program needs to run and to be exported; torchvision has no build that goes with a
CPU-only torch everywhere.
"""

from __future__ import annotations

from typing import Any

from torch_programs import torch

Tensor = torch.Tensor


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

    library.custom_op("torchvision::deform_conv2d", _stand_in, mutates_args=())
    library.register_fake("torchvision::deform_conv2d", lambda input, offset: input.clone())


def _stand_in(input: Tensor, offset: Tensor) -> Tensor:
    """A name only: importing it is refused."""
    return input.clone()


_register()

"""Detectors from PyTorch: anchors, box decoding, suppression, regions; results of open sizes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from torch_programs import agree, agree_inside, arrays, export, saved, torch
from torch_vision_operators import nms

import verax
from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.torch import load_torch

nn = torch.nn
CLASSES = 4
SIZES = ((6, 8), (3, 4))
"""Rows and columns of the two feature maps of an image of 48 x 64."""


class Detector(nn.Module):
    """A single-shot detector: two maps of anchors, corners decoded by variances, softmax scores."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 8, 12, 16)
        self.stem = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU())
                for a, b in pairwise(widths)
            )
        )
        self.further = nn.Sequential(nn.Conv2d(16, 20, 3, 2, 1), nn.ReLU())
        self.boxes = nn.ModuleList(nn.Conv2d(c, 2 * 4, 3, padding=1) for c in (16, 20))
        self.scores = nn.ModuleList(nn.Conv2d(c, 2 * CLASSES, 3, padding=1) for c in (16, 20))
        self.register_buffer("anchors", anchors())

    def heads(self, x: Any) -> tuple[Any, Any]:
        """Boxes (x1, y1, x2, y2) [n, anchors, 4] and scores [n, anchors, classes]."""
        near = self.stem(x)
        maps = (near, self.further(near))
        n = x.shape[0]
        offsets = [
            head(y).permute(0, 2, 3, 1).reshape(n, -1, 4) for head, y in zip(self.boxes, maps)
        ]
        logits = [
            head(y).permute(0, 2, 3, 1).reshape(n, -1, CLASSES)
            for head, y in zip(self.scores, maps)
        ]
        found = torch.cat(offsets, 1)
        centre = self.anchors[:, :2] + found[..., :2] * 0.1 * self.anchors[:, 2:]
        size = self.anchors[:, 2:] * torch.exp(found[..., 2:] * 0.2)
        corners = torch.cat([centre - size / 2, centre + size / 2], -1)
        return corners, torch.cat(logits, 1).softmax(-1)


def anchors() -> Any:
    """Centres and sizes of two boxes per place."""
    found = []
    for i, (rows, columns) in enumerate(SIZES):
        for row in range(rows):
            for column in range(columns):
                for k in range(2):
                    size = 0.2 * (i + 1) * (1 + 0.4 * k)
                    found.append(((column + 0.5) / columns, (row + 0.5) / rows, size, size * 1.2))
    return torch.tensor(found)


class Suppressing(Detector):
    """Per image and class, as detectors are deployed: boxes above a score, suppressed, the best."""

    def forward(self, x: Any) -> Any:
        boxes, scores = self.heads(x)
        results = []
        for image in range(x.shape[0]):
            for label in range(1, CLASSES):
                chance = scores[image, :, label]
                likely = chance > 0.3
                place, chance = boxes[image][likely], chance[likely]
                kept = torch.ops.torchvision.nms(place, chance, 0.45)
                results += [place[kept], chance[kept]]
        return tuple(results)


class Batched(Detector):
    """As torchvision's detectors do it: the best candidates of all classes, moved apart by class
    so that one suppression serves all of them."""

    def forward(self, x: Any) -> Any:
        boxes, scores = self.heads(x)
        results = []
        for image in range(x.shape[0]):
            chance, place = scores[image, :, 1:].flatten().topk(60)
            label, corners = place % (CLASSES - 1) + 1, boxes[image][place // (CLASSES - 1)]
            apart = corners + label[:, None] * (corners.max() + 1)
            kept = torch.ops.torchvision.nms(apart, chance, 0.5)
            results += [corners[kept].clamp(0, 1), chance[kept], label[kept]]
        return tuple(results)


def detector(kind: type[Detector]) -> Any:
    torch.manual_seed(5)
    module = kind().eval()
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_var, 0.02, 0.1)
    for head in module.scores:
        nn.init.normal_(head.weight, std=0.08)
    return module


@pytest.mark.parametrize("kind", [Suppressing, Batched])
@pytest.mark.parametrize("decomposed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_single_shot_detector_finds_what_pytorch_finds(
    kind: type[Detector], decomposed: bool
) -> None:
    module, x = detector(kind), torch.randn(2, 3, 48, 64)
    program = export(module, (x,))
    assert "torchvision.nms" in str(program.graph)
    if decomposed:
        program = program.run_decompositions()
    model = load_torch(saved(program))
    assert any(n.op.kind == "NonMaxSuppression" for n in model.graph.nodes)
    assert all(len(w) > 1 for w in program.module()(x)), "nothing was found"
    agree_inside(model, program, (x,))
    again = torch.randn(2, 3, 48, 64)
    with torch.no_grad():
        want = module(again)
    assert len({len(w) for w in want}) > 1, "images with different numbers of boxes"
    found = verax.compile(model, opt_level=1).run(arrays(model, (again,)))
    assert [v.shape for v in found.values()] == [tuple(w.shape) for w in want]


def suppressed(boxes: Any, scores: Any, threshold: float) -> np.ndarray:
    count = torch.export.Dim("count")
    program = export(
        lambda b, s: torch.ops.torchvision.nms(b, s, threshold),
        (torch.rand(7, 4), torch.rand(7)),
        dynamic_shapes=(({0: count}, {0: count}),),
    )
    model = load_torch(saved(program))
    (found,) = verax.compile(model, opt_level=1).run(arrays(model, (boxes, scores))).values()
    return found


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 1.0])
def test_suppression_of_any_number_of_boxes(threshold: float) -> None:
    """Boxes turned inside out, without area, and scores that tie are all among them."""
    generator = torch.Generator().manual_seed(3)
    boxes = (torch.rand(40, 4, generator=generator) * 8).round() / 8
    scores = (torch.rand(40, generator=generator) * 9).round() / 9
    whole = torch.cat([boxes[:20, :2], boxes[:20, :2] + boxes[:20, 2:]], 1)
    mixed = torch.cat([whole, boxes[20:]])
    want = nms(mixed, scores, threshold)
    assert np.array_equal(suppressed(mixed, scores, threshold), want.numpy())


def test_a_ratio_that_equals_the_threshold_is_kept_as_in_torchvision() -> None:
    """0.7 as a float32 lies below 0.7 as a double, 0.6 above."""
    for tenths in (6, 7):
        boxes = torch.tensor([[0.0, 0.0, 1.0, 10.0], [0.0, 0.0, 1.0, tenths]])
        scores = torch.tensor([0.9, 0.8])
        want = nms(boxes, scores, tenths / 10)
        assert np.array_equal(suppressed(boxes, scores, tenths / 10), want.numpy())


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling_ratio", [-1, 2])
def test_regions_are_pooled_as_torchvision_does(aligned: bool, sampling_ratio: int) -> None:
    regions = torch.tensor(
        [[1, 2.0, 3.0, 9.5, 12.25], [0, -3.0, 1.0, 20.0, 9.0], [1, 4.0, 4.0, 4.5, 4.75]]
    )
    x = torch.randn(2, 3, 9, 11)

    def pooled(x: Any, regions: Any) -> Any:
        return torch.ops.torchvision.roi_align(x, regions, 0.5, 3, 4, sampling_ratio, aligned)

    model = load_torch(saved(export(pooled, (x, regions))))
    agree(model, arrays(model, (x, regions)), [pooled(x, regions)])


def test_what_is_lacking_is_refused_by_name() -> None:
    program = export(torch.ops.torchvision.ps_roi_pool, (torch.rand(2, 3, 5, 6), torch.rand(4)))
    with pytest.raises(UnsupportedError, match=r"torchvision::ps_roi_pool\.default \(1\)"):
        load_torch(saved(program))


def test_regions_of_a_channel_for_each_bin_and_whole_pixels() -> None:
    torch.manual_seed(6)
    regions = torch.tensor([[0, 1.0, 2.5, 9.0, 14.0], [1, -3.0, 0.0, 21.5, 6.0], [0, 5, 5, 5, 5]])
    x = torch.randn(2, 12, 9, 11)

    def pooled(x: Any, regions: Any) -> Any:
        own, _ = torch.ops.torchvision.ps_roi_align(x, regions, 0.5, 2, 3, 2)
        whole, _ = torch.ops.torchvision.roi_pool(x, regions, 0.5, 4, 3)
        return own, whole

    model = load_torch(saved(export(pooled, (x, regions))))
    agree(model, arrays(model, (x, regions)), list(pooled(x, regions)))


@pytest.mark.parametrize(
    ("channels", "out", "steps", "groups", "parts", "masked"),
    [
        (3, 4, (1, 1, 0, 0, 1, 1), 1, 1, False),
        (4, 6, (2, 1, 1, 2, 1, 2), 2, 1, True),
        (6, 3, (1, 2, 1, 0, 2, 1), 1, 3, True),
    ],
)
def test_deformable_convolutions(
    channels: int, out: int, steps: tuple[int, ...], groups: int, parts: int, masked: bool
) -> None:
    torch.manual_seed(7)
    x, weight = torch.randn(2, channels, 6, 7), torch.randn(out, channels // groups, 3, 2)
    sh, sw, ph, pw, dh, dw = steps
    rows, columns = (6 + 2 * ph - 2 * dh - 1) // sh + 1, (7 + 2 * pw - dw - 1) // sw + 1
    offset = 1.7 * torch.randn(2, 2 * parts * 6, rows, columns)
    mask, bias = torch.rand(2, parts * 6, rows, columns), torch.randn(out)

    def deformed(x: Any, weight: Any, offset: Any, mask: Any, bias: Any) -> Any:
        given = (x, weight, offset, mask, bias, *steps, groups, parts, masked)
        return torch.ops.torchvision.deform_conv2d(*given)

    tensors = (x, weight, offset, mask, bias)
    model = load_torch(saved(export(deformed, tensors)))
    wanted = deformed(*tensors)
    agree(model, arrays(model, tensors), [wanted])
    exe = verax.compile(model)
    assert not exe.plan.on_reference
    np.testing.assert_allclose(
        exe.run(arrays(model, tensors))[next(iter(model.outputs))], wanted, rtol=1e-4, atol=1e-5
    )
    wrong = (*tensors[:2], offset[:, :, :-1], *tensors[3:])
    with pytest.raises(ModelError, match=r"the offsets are .* they must be"):
        load_torch(saved(export(deformed, wrong)))

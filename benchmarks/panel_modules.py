"""Networks of the panel that `transformers` does not have, small and written out: a plain U-Net, a
U-Net of a diffusion model, and a single-shot detector on MobileNet's blocks.

torch is imported inside of the functions: the panel's other files are read without it.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

LATENT, STEPS_WIDTH, WORDS, WORD_WIDTH = 32, 64, 77, 128
"""Diffusion: rows and columns of the latent image, width of the time embedding, the prompt."""
SSD_SIZE, SSD_CLASSES, SSD_BOXES = 300, 21, 4
"""The detector's image, its classes with the background, boxes per cell."""


def unet() -> Any:
    """Four levels, 32 to 256 channels, two 3x3 convolutions each, transposed ones upwards."""
    import torch
    from torch import nn

    def twice(a: int, b: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.ReLU()
        )

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [32, 64, 128, 256]
            self.down = nn.ModuleList(map(twice, [3, *widths[:-1]], widths))
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths[-2::-1])
            self.join = nn.ModuleList(twice(2 * w, w) for w in widths[-2::-1])
            self.head = nn.Conv2d(widths[0], 5, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = []
            for i, block in enumerate(self.down):
                x = block(nn.functional.max_pool2d(x, 2) if i else x)
                kept.append(x)
            for up, join, other in zip(self.up, self.join, kept[-2::-1], strict=True):
                x = join(torch.cat([up(x), other], 1))
            return self.head(x)

    return UNet()


def diffusion_inputs(rng: np.random.Generator, batch: int) -> dict[str, np.ndarray]:
    """A noisy latent image, its time, and the embedded words of a prompt."""
    return {
        "latent": rng.standard_normal((batch, 4, LATENT, LATENT)).astype(np.float32),
        "time": rng.uniform(0, 1000, (batch, 1)).astype(np.float32),
        "words": rng.standard_normal((batch, WORDS, WORD_WIDTH)).astype(np.float32),
    }


def diffusion_unet() -> Any:
    """Three levels, 96 to 288 channels: GroupNorm, SiLU and a time embedding in every block, and
    on the two lower levels attention to the image itself and to the words."""
    import torch
    from torch import nn

    widths = (96, 192, 288)

    class Block(nn.Module):
        def __init__(self, before: int, after: int) -> None:
            super().__init__()
            self.first = nn.Sequential(
                nn.GroupNorm(16, before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1)
            )
            self.time = nn.Linear(4 * STEPS_WIDTH, after)
            self.second = nn.Sequential(
                nn.GroupNorm(16, after), nn.SiLU(), nn.Conv2d(after, after, 3, padding=1)
            )
            self.short = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

        def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            y = self.first(x) + self.time(nn.functional.silu(t))[:, :, None, None]
            return self.second(y) + self.short(x)

    class Look(nn.Module):
        """Attention of pixels to pixels or to words, 6 heads."""

        def __init__(self, width: int, source: int) -> None:
            super().__init__()
            self.norm, self.width = nn.GroupNorm(16, width), width
            self.q = nn.Linear(width, width, bias=False)
            self.k = nn.Linear(source, width, bias=False)
            self.v = nn.Linear(source, width, bias=False)
            self.out = nn.Linear(width, width)

        def forward(self, x: torch.Tensor, words: torch.Tensor | None) -> torch.Tensor:
            pixels = self.norm(x).flatten(2).transpose(1, 2)
            given = pixels if words is None else words
            n, heads = x.shape[0], 6
            q, k, v = (
                part.view(n, -1, heads, self.width // heads).transpose(1, 2)
                for part in (self.q(pixels), self.k(given), self.v(given))
            )
            found = nn.functional.scaled_dot_product_attention(q, k, v)
            found = self.out(found.transpose(1, 2).reshape(n, -1, self.width))
            return x + found.transpose(1, 2).reshape(x.shape)

    class Level(nn.Module):
        def __init__(self, before: int, after: int, looks: bool) -> None:
            super().__init__()
            self.block = Block(before, after)
            self.itself = Look(after, after) if looks else None
            self.words = Look(after, WORD_WIDTH) if looks else None

        def forward(self, x: torch.Tensor, t: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
            x = self.block(x, t)
            if self.itself is not None:
                x = self.words(self.itself(x, None), words)
            return x

    class Diffusion(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            wide = 4 * STEPS_WIDTH
            linear = nn.Linear(STEPS_WIDTH, wide), nn.Linear(wide, wide)
            self.time = nn.Sequential(linear[0], nn.SiLU(), linear[1])
            self.first = nn.Conv2d(4, widths[0], 3, padding=1)
            self.down = nn.ModuleList(
                Level(a, b, b > widths[0]) for a, b in zip((widths[0], *widths), widths)
            )
            self.shrink = nn.ModuleList(
                nn.Conv2d(w, w, 3, stride=2, padding=1) for w in widths[:-1]
            )
            self.middle = Level(widths[-1], widths[-1], True)
            self.up = nn.ModuleList(
                Level(b + w, w, w > widths[0])
                for b, w in zip((widths[-1], *widths[:0:-1]), widths[::-1])
            )
            self.grow = nn.ModuleList(nn.Conv2d(w, w, 3, padding=1) for w in widths[:0:-1])
            self.head = nn.Sequential(
                nn.GroupNorm(16, widths[0]), nn.SiLU(), nn.Conv2d(widths[0], 4, 3, padding=1)
            )
            scale = np.exp(-np.log(10000.0) * np.arange(STEPS_WIDTH // 2) / (STEPS_WIDTH // 2))
            self.register_buffer("scale", torch.from_numpy(scale.astype(np.float32)))

        def forward(
            self, latent: torch.Tensor, time: torch.Tensor, words: torch.Tensor
        ) -> torch.Tensor:
            angles = time * self.scale
            t = self.time(torch.cat([torch.cos(angles), torch.sin(angles)], 1))
            x, kept = self.first(latent), []
            for i, level in enumerate(self.down):
                x = level(self.shrink[i - 1](x) if i else x, t, words)
                kept.append(x)
            x = self.middle(x, t, words)
            for i, (level, other) in enumerate(zip(self.up, kept[::-1])):
                if i:
                    larger = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
                    x = self.grow[i - 1](larger)
                x = level(torch.cat([x, other], 1), t, words)
            return self.head(x)

    return Diffusion()


def ssd_mobilenet() -> Any:
    """MobileNet's blocks at 300x300 with six detecting heads; gives boxes (corners, decoded from
    offsets to the cells' boxes) [batch, boxes, 4] and scores [batch, classes - 1, boxes]."""
    import torch
    from torch import nn

    def pointwise(a: int, b: int, size: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
        conv = nn.Conv2d(a, b, size, stride, size // 2, groups=groups, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(b), nn.ReLU6())

    def separable(a: int, b: int, stride: int) -> nn.Sequential:
        return nn.Sequential(pointwise(a, a, 3, stride, a), pointwise(a, b))

    steps = [(32, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1)]
    steps += [(256, 512, 2), *[(512, 512, 1)] * 5]
    later = [(512, 1024, 2), (1024, 512, 2), (512, 256, 2), (256, 256, 2), (256, 128, 2)]
    sizes = [19, 10, 5, 3, 2, 1]

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            body = [separable(*step) for step in steps]
            self.body = nn.Sequential(pointwise(3, 32, 3, 2), *body)
            self.later = nn.ModuleList(separable(*step) for step in later)
            widths = [512, *(b for _, b, _ in later)]
            self.where = nn.ModuleList(nn.Conv2d(w, SSD_BOXES * 4, 3, padding=1) for w in widths)
            self.what = nn.ModuleList(
                nn.Conv2d(w, SSD_BOXES * SSD_CLASSES, 3, padding=1) for w in widths
            )
            cells = np.concatenate([_cells(n, 0.1 + 0.15 * i) for i, n in enumerate(sizes)])
            self.register_buffer("cells", torch.from_numpy(cells))

        def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            x = self.body(image)
            maps = [x]
            for layer in self.later:
                x = layer(x)
                maps.append(x)
            n = image.shape[0]
            offsets, scores = (
                torch.cat(
                    [h(m).permute(0, 2, 3, 1).reshape(n, -1, w) for h, m in zip(heads, maps)], 1
                )
                for heads, w in ((self.where, 4), (self.what, SSD_CLASSES))
            )
            middle = self.cells[:, :2] + 0.1 * offsets[..., :2] * self.cells[:, 2:]
            half = 0.5 * self.cells[:, 2:] * torch.exp(0.2 * offsets[..., 2:])
            boxes = torch.cat([middle - half, middle + half], -1)
            return boxes, torch.softmax(scores, -1)[..., 1:].transpose(1, 2)

    model = Detector()
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.momentum = None  # statistics of what is run next
                layer.reset_running_stats()
        for head in model.what:
            head.weight.mul_(4.0)
        model.train()(torch.randn(4, 3, SSD_SIZE, SSD_SIZE))
    return model


def _cells(count: int, scale: float) -> np.ndarray:
    """The boxes (middle y, middle x, height, width, relative) of a map of count x count cells."""
    shapes = [(scale, scale), (scale * 1.4, scale / 1.4), (scale / 1.4, scale * 1.4)]
    shapes.append((scale * 1.25, scale * 1.25))
    rows = itertools.product(range(count), range(count), shapes)
    found = [((y + 0.5) / count, (x + 0.5) / count, h, w) for y, x, (h, w) in rows]
    return np.array(found, np.float32)


def add_suppression(path: Any, boxes: str, scores: str) -> None:
    """Append NonMaxSuppression to an ONNX file: its output is what is kept, [count, 3]."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(path)
    limits = {
        "most": np.array([20], np.int64),
        "overlap": np.array([0.5], np.float32),
        "score": np.array([0.4], np.float32),
    }
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in limits.items())
    model.graph.node.append(
        helper.make_node("NonMaxSuppression", [boxes, scores, *limits], ["kept"], "suppression")
    )
    kept = helper.make_tensor_value_info("kept", onnx.TensorProto.INT64, ["found", 3])
    model.graph.output.append(kept)
    onnx.save(model, path)

"""Networks written here: what makes a judge's life hard, and what no library's zoo holds.

Normalised outputs, logarithms of small numbers, indices of computed scores, boxes that a detector
chose, recurrences, transposed convolutions, pixel shuffles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from benchmarks.honest.architectures import Architecture
from benchmarks.honest.inputs import Maker, image, numbers, sound, spectrum
from torch import nn
from torch.nn import functional as F


class Made(nn.Module):
    """A module from its layers and a function of them and the inputs."""

    def __init__(self, function: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def conv(c: int, d: int, k: int = 3, s: int = 1, **options: Any) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU."""
    layer = nn.Conv2d(c, d, k, s, k // 2, bias=False, **options)
    return nn.Sequential(layer, nn.BatchNorm2d(d), nn.ReLU())


def unet() -> nn.Module:
    def run(m: Any, x: Any) -> Any:
        a = m.a(x)
        b = m.b(F.max_pool2d(a, 2))
        c = m.c(F.max_pool2d(b, 2))
        b = m.d(torch.cat([m.up1(c), b], 1))
        return m.out(torch.cat([F.interpolate(b, scale_factor=2.0, mode="bilinear"), a], 1))

    return Made(
        run, a=conv(3, 8), b=conv(8, 12), c=conv(12, 16), d=conv(24, 12),
        up1=nn.ConvTranspose2d(16, 12, 2, 2), out=nn.Conv2d(20, 4, 1),
    )  # fmt: skip


def diffusion_unet() -> nn.Module:
    """A denoiser: GroupNorm, SiLU, a sinusoid of the time, attention in the middle."""

    def block(c: int, d: int) -> nn.Module:
        def run(m: Any, x: Any, t: Any) -> Any:
            y = m.one(F.silu(m.norm1(x))) + m.time(t)[:, :, None, None]
            return m.two(F.silu(m.norm2(y))) + m.skip(x)

        return Made(
            run, norm1=nn.GroupNorm(4, c), one=nn.Conv2d(c, d, 3, 1, 1), time=nn.Linear(16, d),
            norm2=nn.GroupNorm(4, d), two=nn.Conv2d(d, d, 3, 1, 1), skip=nn.Conv2d(c, d, 1),
        )  # fmt: skip

    def run(m: Any, x: Any, time: Any) -> Any:
        angles = time[:, None] * torch.exp(torch.arange(8) * -0.8)
        t = F.silu(m.time(torch.cat([angles.sin(), angles.cos()], -1)))
        a = m.down(m.stem(x), t)
        b = m.middle(F.avg_pool2d(a, 2), t)
        flat = b.flatten(2).transpose(1, 2)
        q, k, v = m.qkv(flat).chunk(3, -1)
        flat = flat + F.scaled_dot_product_attention(q, k, v)
        b = flat.transpose(1, 2).reshape(b.shape)
        return m.out(torch.cat([F.interpolate(b, scale_factor=2.0, mode="nearest"), a], 1))

    return Made(
        run, time=nn.Linear(16, 16), stem=nn.Conv2d(3, 8, 3, 1, 1), down=block(8, 12),
        middle=block(12, 16), qkv=nn.Linear(16, 48), out=nn.Conv2d(28, 3, 3, 1, 1),
    )  # fmt: skip


def detector() -> nn.Module:
    """Scores and boxes over two maps, and the five best places: indices of computed scores."""

    def run(m: Any, x: Any) -> Any:
        a = m.a(x)
        b = m.b(a)
        scores, boxes = [], []
        for y, head in ((a, m.head1), (b, m.head2)):
            flat = head(y).flatten(2).transpose(1, 2)
            scores.append(torch.sigmoid(flat[..., 0]))
            boxes.append(flat[..., 1:].exp())
        score, box = torch.cat(scores, 1), torch.cat(boxes, 1)
        best, where = torch.topk(score, 5, dim=1)
        chosen = torch.gather(box, 1, where.unsqueeze(-1).expand(-1, -1, 4))
        return best, where, chosen, score

    return Made(
        run, a=nn.Sequential(conv(3, 8, 3, 2), conv(8, 12, 3, 2)), b=conv(12, 16, 3, 2),
        head1=nn.Conv2d(12, 5, 1), head2=nn.Conv2d(16, 5, 1),
    )  # fmt: skip


def segmenter() -> nn.Module:
    """Classes of pixels as integers: ArgMax of computed logits, which some pixels nearly tie."""
    return Made(
        lambda m, x: (m.net(x), m.net(x).argmax(1)),
        net=nn.Sequential(
            conv(3, 8, 3, 2), conv(8, 8), nn.Conv2d(8, 4, 1), nn.Upsample(scale_factor=2)
        ),
    )


def embedding() -> nn.Module:
    """A face network's output: one direction in 64, of length 1."""
    return Made(
        lambda m, x: F.normalize(m.head(m.net(x).mean((2, 3))), dim=-1),
        net=nn.Sequential(conv(3, 8, 3, 2), conv(8, 12, 3, 2), conv(12, 16)),
        head=nn.Linear(16, 64),
    )


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rms_output() -> nn.Module:
    return Made(
        lambda m, x: m.norm(x + m.two(F.silu(m.one(x)))),
        one=nn.Linear(24, 40),
        two=nn.Linear(40, 24),
        norm=RmsNorm(24),
    )


def pitch() -> nn.Module:
    """Pitch detection: a constant-Q-like transform, the log of its power, normalised, and heads."""

    def run(m: Any, x: Any) -> Any:
        spectrum = m.real(x).pow(2) + m.imaginary(x).pow(2)
        level = 10 * torch.log10(spectrum.clamp(min=1e-10))
        low, high = level.amin((1, 2), keepdim=True), level.amax((1, 2), keepdim=True)
        level = ((level - low) / (high - low)).unsqueeze(1)
        note = torch.sigmoid(m.note(m.net(level)))
        return note, torch.sigmoid(m.onset(torch.cat([note, level], 1)))

    return Made(
        run, real=nn.Conv1d(1, 24, 65, 16, bias=False),
        imaginary=nn.Conv1d(1, 24, 65, 16, bias=False),
        net=nn.Sequential(conv(1, 8, 5), conv(8, 8)), note=nn.Conv2d(8, 1, 3, 1, 1),
        onset=nn.Conv2d(2, 1, 3, 1, 1),
    )  # fmt: skip


def squeeze_excite() -> nn.Module:
    def run(m: Any, x: Any) -> Any:
        y = m.stem(x)
        weight = torch.sigmoid(m.up(F.relu(m.down(y.mean((2, 3), keepdim=True)))))
        return m.head((F.hardswish(y) * weight).flatten(2).amax(-1))

    return Made(
        run, stem=conv(3, 16, 3, 2), down=nn.Conv2d(16, 4, 1), up=nn.Conv2d(4, 16, 1),
        head=nn.Linear(16, 7),
    )  # fmt: skip


def mlp_mixer() -> nn.Module:
    def run(m: Any, x: Any) -> Any:
        y = m.patch(x).flatten(2).transpose(1, 2)
        y = y + m.tokens(m.norm1(y).transpose(1, 2)).transpose(1, 2)
        y = y + m.channels(m.norm2(y))
        return m.head(y.mean(1))

    def mlp(width: int, inner: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    return Made(
        run, patch=nn.Conv2d(3, 24, 8, 8), norm1=nn.LayerNorm(24), tokens=mlp(20, 24),
        norm2=nn.LayerNorm(24), channels=mlp(24, 40), head=nn.Linear(24, 7),
    )  # fmt: skip


def tcn() -> nn.Module:
    """Dilated causal convolutions over time with a gate."""

    def block(dilation: int) -> nn.Module:
        def run(m: Any, x: Any) -> Any:
            y = F.pad(x, (2 * dilation, 0))
            return x + m.out(torch.tanh(m.a(y)) * torch.sigmoid(m.b(y)))

        return Made(
            run, a=nn.Conv1d(12, 12, 3, dilation=dilation),
            b=nn.Conv1d(12, 12, 3, dilation=dilation), out=nn.Conv1d(12, 12, 1),
        )  # fmt: skip

    return Made(
        lambda m, x: F.log_softmax(m.out(m.d(m.c(m.b(m.a(x))))), 1),
        a=nn.Conv1d(1, 12, 3, padding=1), b=block(1), c=block(2), d=block(4),
        out=nn.Conv1d(12, 6, 1),
    )  # fmt: skip


def super_resolution() -> nn.Module:
    return Made(
        lambda m, x: (
            F.pixel_shuffle(m.out(m.net(x)), 2)
            + F.interpolate(x, scale_factor=2.0, mode="bicubic", align_corners=False)
        ),
        net=nn.Sequential(
            nn.Conv2d(3, 12, 5, 1, 2), nn.PReLU(12), nn.Conv2d(12, 8, 3, 1, 1), nn.Tanh()
        ),
        out=nn.Conv2d(8, 12, 3, 1, 1),
    )


def style_transfer() -> nn.Module:
    """InstanceNorm, reflected borders, transposed convolutions, a saturating end."""

    def run(m: Any, x: Any) -> Any:
        y = F.relu(m.norm1(m.a(F.pad(x, (4, 4, 4, 4), mode="reflect"))))
        y = F.relu(m.norm2(m.b(y)))
        return torch.tanh(m.out(F.elu(m.up(y))))

    return Made(
        run, a=nn.Conv2d(3, 8, 9), norm1=nn.InstanceNorm2d(8, affine=True),
        b=nn.Conv2d(8, 12, 3, 2, 1), norm2=nn.InstanceNorm2d(12, affine=True),
        up=nn.ConvTranspose2d(12, 8, 3, 2, 1, 1),
        out=nn.Conv2d(8, 3, 3, 1, 1),
    )  # fmt: skip


def gru_tagger() -> nn.Module:
    """A gated recurrence written out over six steps."""

    def run(m: Any, x: Any) -> Any:
        h, states = torch.zeros_like(x[:, 0]) @ m.start.weight.T, []
        for i in range(x.shape[1]):
            both = torch.cat([x[:, i], h], -1)
            z, r = torch.sigmoid(m.gates(both)).chunk(2, -1)
            n = torch.tanh(m.new(torch.cat([x[:, i], r * h], -1)))
            h = (1 - z) * n + z * h
            states.append(h)
        return m.out(torch.stack(states, 1))

    return Made(
        run, start=nn.Linear(10, 12, bias=False), gates=nn.Linear(22, 24), new=nn.Linear(22, 12),
        out=nn.Linear(12, 5),
    )  # fmt: skip


def autoencoder() -> nn.Module:
    """A variational one's mean, spread and drawing."""

    def run(m: Any, x: Any) -> Any:
        mean, spread = m.encode(x).flatten(1).chunk(2, -1)
        drawing = torch.sigmoid(m.decode(m.widen(mean).reshape(-1, 8, 4, 4)))
        return mean, torch.exp(0.5 * spread), drawing

    return Made(
        run,
        encode=nn.Sequential(conv(1, 8, 3, 2), conv(8, 8, 3, 2), nn.Conv2d(8, 12, 4)),
        widen=nn.Linear(6, 128),
        decode=nn.Sequential(
            nn.ConvTranspose2d(8, 8, 4, 2, 1), nn.LeakyReLU(0.1), nn.ConvTranspose2d(8, 1, 4, 2, 1)
        ),
    )


def attention_pool() -> nn.Module:
    """A point cloud: shared layers over points, the greatest over points, and attention."""

    def run(m: Any, x: Any) -> Any:
        y = m.shared(x)
        weight = torch.softmax(m.score(y), 1)
        return m.head(torch.cat([y.amax(1), (weight * y).sum(1)], -1))

    return Made(
        run, shared=nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 24), nn.LayerNorm(24)),
        score=nn.Linear(24, 1), head=nn.Linear(48, 5),
    )  # fmt: skip


def recommender() -> nn.Module:
    """Crossed features: a deep part and pairwise products, and a probability."""

    def run(m: Any, x: Any) -> Any:
        parts = m.embed(x).reshape(x.shape[0], 5, 6)
        pairs = torch.bmm(parts, parts.transpose(1, 2)).flatten(1)
        return torch.sigmoid(m.deep(torch.cat([pairs, x], -1))).squeeze(-1)

    return Made(
        run, embed=nn.Linear(9, 30),
        deep=nn.Sequential(nn.Linear(34, 16), nn.ReLU(), nn.Linear(16, 1)),
    )  # fmt: skip


def keypoints() -> nn.Module:
    """Heat maps, and the soft position of each one's peak."""

    def run(m: Any, x: Any) -> Any:
        maps = m.net(x)
        weight = torch.softmax(maps.flatten(2), -1).reshape(maps.shape)
        rows = torch.linspace(-1, 1, maps.shape[2])
        columns = torch.linspace(-1, 1, maps.shape[3])
        y, z = (weight.sum(3) * rows).sum(2), (weight.sum(2) * columns).sum(2)
        return torch.stack([y, z], -1), maps

    return Made(run, net=nn.Sequential(conv(3, 8, 3, 2), conv(8, 8, groups=4), nn.Conv2d(8, 5, 1)))


def optical_flow() -> nn.Module:
    """One picture warped by a flow that is computed from both."""

    def run(m: Any, a: Any, b: Any) -> Any:
        flow = 0.1 * torch.tanh(m.net(torch.cat([a, b], 1)))
        n, _, h, w = a.shape
        y = torch.linspace(-1, 1, h).reshape(1, h, 1).expand(n, h, w)
        x = torch.linspace(-1, 1, w).reshape(1, 1, w).expand(n, h, w)
        grid = torch.stack([x, y], -1) + flow.permute(0, 2, 3, 1)
        return flow, F.grid_sample(b, grid, mode="bilinear", align_corners=False)

    return Made(run, net=nn.Sequential(conv(6, 8), nn.Conv2d(8, 2, 3, 1, 1)))


def speech_enhancer() -> nn.Module:
    """A mask on a learnt spectrum, and back to a wave by a transposed convolution."""
    return Made(
        lambda m, x: m.back(m.there(x) * torch.sigmoid(m.mask(torch.log1p(m.there(x).abs())))),
        there=nn.Conv1d(1, 16, 16, 8),
        mask=nn.Sequential(nn.Conv1d(16, 24, 3, padding=1), nn.ReLU(), nn.Conv1d(24, 16, 1)),
        back=nn.ConvTranspose1d(16, 1, 16, 8),
    )


def _two(first: Maker, second: Maker) -> Maker:
    return lambda style, seed: (*first(style, seed), *second(style, seed + 100))


def _times(style: str, seed: int) -> tuple[Any, ...]:
    return (abs(numbers(2)(style, seed)[0]) * 10,)


MADE: dict[str, tuple[str, Callable[[], Any], Maker]] = {
    "unet": ("dense prediction", unet, image(2, 3, 24, 32)),
    "diffusion_unet": ("dense prediction", diffusion_unet, _two(image(2, 3, 16, 24), _times)),
    "detector": ("detection", detector, image(2, 3, 32, 48)),
    "segmenter": ("dense prediction", segmenter, image(2, 3, 24, 32)),
    "embedding": ("convolutional", embedding, image(2, 3, 32, 40)),
    "rms_output": ("dense layers", rms_output, numbers(3, 5, 24)),
    "pitch": ("audio", pitch, sound(2, 1, 640)),
    "squeeze_excite": ("convolutional", squeeze_excite, image(2, 3, 24, 32)),
    "mlp_mixer": ("vision transformer", mlp_mixer, image(2, 3, 32, 40)),
    "tcn": ("audio", tcn, sound(2, 1, 50)),
    "super_resolution": ("dense prediction", super_resolution, image(2, 3, 14, 18)),
    "style_transfer": ("dense prediction", style_transfer, image(2, 3, 24, 32)),
    "gru_tagger": ("dense layers", gru_tagger, numbers(3, 6, 10)),
    "autoencoder": ("dense prediction", autoencoder, image(2, 1, 16, 16)),
    "attention_pool": ("dense layers", attention_pool, numbers(2, 30, 3)),
    "recommender": ("dense layers", recommender, numbers(11, 9)),
    "keypoints": ("dense prediction", keypoints, image(2, 3, 32, 40)),
    "optical_flow": (
        "dense prediction",
        optical_flow,
        _two(image(2, 3, 16, 20), image(2, 3, 16, 20)),
    ),
    "speech_enhancer": ("audio", speech_enhancer, sound(2, 1, 320)),
    "spectrum_classifier": (
        "audio",
        lambda: nn.Sequential(nn.Conv1d(20, 16, 3), nn.GELU(), nn.Flatten(), nn.Linear(352, 6)),
        spectrum(2, 20, 24),
    ),
}


def architectures() -> list[Architecture]:
    """Every network of this file."""
    return [
        Architecture(name, family, "written here", build, inputs)
        for name, (family, build, inputs) in MADE.items()
    ]

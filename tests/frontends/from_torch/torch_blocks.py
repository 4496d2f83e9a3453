"""Hand-written networks and blocks in the manner of U-Net, timm and detectors' heads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_programs import torch

nn, F = torch.nn, torch.nn.functional


class UNet(nn.Module):
    """Two levels down and up; `up` is "transpose" or a mode of interpolation; what skips is cropped
    in the middle, as in the first U-Net, when the convolutions are not padded."""

    def __init__(self, up: str, padding_mode: str) -> None:
        super().__init__()
        self.up, self.cropped = up, padding_mode == "none"
        form = {"padding": 0} if self.cropped else {"padding": 1, "padding_mode": padding_mode}

        def pair(a: int, b: int) -> Any:
            first, second = nn.Conv2d(a, b, 3, **form), nn.Conv2d(b, b, 3, **form)
            return nn.Sequential(first, nn.BatchNorm2d(b), nn.ReLU(True), second, nn.LeakyReLU(0.1))

        self.down = nn.ModuleList([pair(3, 6), pair(6, 10)])
        self.bottom = pair(10, 14)
        self.rise = nn.ModuleList(
            nn.ConvTranspose2d(a, b, 2, 2) if up == "transpose" else nn.Conv2d(a, b, 1)
            for a, b in ((14, 10), (10, 6))
        )
        self.join = nn.ModuleList([pair(20, 10), pair(12, 6)])
        self.head = nn.Conv2d(6, 5, 1)

    def forward(self, x: Any) -> Any:
        skips = []
        for part in self.down:
            x = part(x)
            skips.append(x)
            x = F.max_pool2d(x, 2, ceil_mode=self.up != "transpose")
        x = self.bottom(x)
        for rise, join, skip in zip(self.rise, self.join, reversed(skips)):
            x = rise(x) if self.up == "transpose" else self._resized(rise(x), skip)
            if x.shape != skip.shape:
                rows, columns = (skip.shape[a] - x.shape[a] for a in (2, 3))
                if self.cropped:
                    skip = skip[:, :, rows // 2 : rows // 2 + x.shape[2], columns // 2 :]
                    skip = skip[..., : x.shape[3]]
                else:
                    half = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
                    x = F.pad(x, half)
            x = join(torch.cat([skip, x], 1))
        return self.head(x)

    def _resized(self, x: Any, like: Any) -> Any:
        aligned = {"align_corners": True} if self.up == "bilinear" else {}
        return F.interpolate(x, size=like.shape[2:], mode=self.up, **aligned)


class Squeeze(nn.Module):
    """Squeeze and excitation by 1x1 convolutions on the mean over space."""

    def __init__(self, channels: int, gate: Any) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, 3, 1), nn.Conv2d(3, channels, 1)
        self.gate = gate

    def forward(self, x: Any) -> Any:
        mean = x.mean((2, 3), keepdim=True)
        return x * self.gate(self.expand(F.silu(self.reduce(mean), inplace=True)))


class Standardised(nn.Conv2d):
    """Weights standardised per output channel, as timm does by batch_norm of the weight."""

    def forward(self, x: Any) -> Any:
        flat = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(flat, None, None, training=True, momentum=0.0, eps=1e-3)
        size = self.weight.shape[2:]
        x = F.pad(x, (0, 1, 0, 1) if size[0] % 2 == 0 else (1, 1, 1, 1))
        return F.conv2d(x, weight.reshape_as(self.weight), self.bias, self.stride)


class DropPath(nn.Module):
    """Stochastic depth; at inference it changes nothing."""

    def forward(self, x: Any) -> Any:
        if not self.training:
            return x
        return x * torch.empty(x.shape[0], 1, 1, 1).bernoulli_(0.5)


class LayerScale(nn.Module):
    """A channels-last block of ConvNeXt: depthwise, norm, two linear layers, a scale."""

    def __init__(self, channels: int, approximate: str) -> None:
        super().__init__()
        self.spatial = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-3)
        self.wide, self.back = nn.Linear(channels, 17), nn.Linear(17, channels)
        self.activation, self.drop = nn.GELU(approximate), DropPath()
        self.gamma = nn.Parameter(torch.rand(channels) + 0.5)

    def forward(self, x: Any) -> Any:
        y = self.norm(self.spatial(x).permute(0, 2, 3, 1))
        y = self.gamma * self.back(self.activation(self.wide(y)))
        return x + self.drop(y.permute(0, 3, 1, 2))


class Decoding(nn.Module):
    """A head in the manner of YOLO: a grid is added and boxes are written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2 * 7, 3, 4, 1)
        self.register_buffer("sizes", torch.tensor([[10.0, 13.0], [33.0, 23.0]]))

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        n, _, rows, columns = y.shape
        y = y.view(n, 2, 7, rows, columns).permute(0, 1, 3, 4, 2).contiguous()
        down, across = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        grid = torch.stack((across, down), 2).view(1, 1, rows, columns, 2).float()
        y = y.sigmoid()
        y[..., 0:2] = (y[..., 0:2] * 2 - 0.5 + grid) * 4
        y[..., 2:4] = (y[..., 2:4] * 2) ** 2 * self.sizes.view(1, 2, 1, 1, 2)
        return y.view(n, -1, 7)


def _rewritten(module: Any) -> Any:
    """The same network with its weights channels-last in memory."""
    return module.to(memory_format=torch.channels_last)


BLOCKS: dict[str, Callable[[], Any]] = {
    "unet_transpose": lambda: UNet("transpose", "zeros"),
    "unet_cropped": lambda: UNet("transpose", "none"),
    "unet_bilinear": lambda: UNet("bilinear", "reflect"),
    "unet_nearest": lambda: UNet("nearest", "replicate"),
    "squeeze": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), Squeeze(8, nn.Sigmoid()), nn.Hardswish(), Squeeze(8, F.hardsigmoid)
    ),
    "standardised": lambda: nn.Sequential(
        Standardised(3, 6, 3, 2), nn.GroupNorm(3, 6), nn.ReLU(), Standardised(6, 8, 4)
    ),
    "layer_scale": lambda: nn.Sequential(
        nn.Conv2d(3, 10, 4, 4), LayerScale(10, "none"), LayerScale(10, "tanh")
    ),
    "channels_last": lambda: _rewritten(UNet("nearest", "circular")),
    "decoding": Decoding,
    "shuffled": lambda: nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1),
        nn.ChannelShuffle(3),
        nn.InstanceNorm2d(12, affine=True),
        nn.PReLU(12),
        nn.PixelShuffle(2),
        nn.Upsample(scale_factor=1.5, mode="bilinear"),
        nn.AdaptiveAvgPool2d((5, 3)),
        nn.Flatten(),
        nn.LazyLinear(7),
    ),
}
"""Networks for images of 3 channels, at least 40 by 40."""


def block(name: str) -> Any:
    """A network in evaluation mode; its statistics and scales are drawn at random."""
    torch.manual_seed(11)
    module = BLOCKS[name]()
    if name == "shuffled":
        module(torch.randn(1, 3, 44, 45))  # a lazy layer learns its size
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.3, 0.3)
            nn.init.uniform_(part.running_var, 0.3, 2.0)
        if isinstance(part, nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
            nn.init.uniform_(part.weight, 0.5, 2.0)
            nn.init.uniform_(part.bias, -0.5, 0.5)
    return module.eval()

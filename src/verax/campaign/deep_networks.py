"""Seeded deep networks in the manner of real ones: ResNet, MobileNet, U-Net; 20 to 60 nodes.

Small in channels and pixels, so that thousands can be judged, but with what makes real networks
hard for a judge: residuals, BatchNorm behind every convolution, depthwise layers, outputs that are
a few numbers behind a mean over all pixels. Statistics of BatchNorm are those of the activations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from verax.campaign.network_sketch import Sketch, op
from verax.campaign.random_networks import Network
from verax.campaign.random_nodes import batch_norm


def deep_network(seed: int, style: str = "") -> Network:
    """A deep network in the given style of STYLES, or in a random one.

    Input x: float32 [2, 3, 18-24, 20-27]. Deterministic for its arguments.
    """
    random = np.random.default_rng([seed, 77])
    selected_style = style or list(STYLES)[int(random.integers(len(STYLES)))]
    s = Sketch(f"{selected_style}{seed}", random)
    height, width = 18 + 2 * int(random.integers(4)), 21 + 2 * int(random.integers(4))
    x = s.input("x", random.standard_normal((2, 3, height, width)).astype(np.float32))
    STYLES[selected_style](s, x)
    return Network(s.graph(), s.inputs, seed)


def _conv(
    s: Sketch,
    x: str,
    filters: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    bias: bool = False,
) -> str:
    """A convolution with the pads of SAME, the odd one at a random end."""
    c = s.shape(x)[1]
    first = bool(s.random.random() < 0.5)
    pads = tuple(_same(n, kernel, stride, first) for n in s.shape(x)[2:])
    node = op("Conv", strides=(stride, stride), pads=pads, groups=groups)
    w = s.normal(filters, c // groups, kernel, kernel, scale=(c // groups * kernel**2 / 2) ** -0.5)
    return s.add(node, [x, w, s.uniform(-0.3, 0.3, filters) if bias else None])


def _same(size: int, kernel: int, stride: int, first: bool) -> tuple[int, int]:
    """Pads that give ceil(size / stride) outputs; the odd one in front when `first`."""
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    small, large = total // 2, total - total // 2
    return (large, small) if first else (small, large)


def _activation(s: Sketch, x: str, kind: str) -> str:
    if kind == "Clip":
        return s.add(op("Clip"), [x, s.constant(np.array(0.0)), s.constant(np.array(6.0))])
    return s.add(
        op(
            kind,
        ),
        [x],
    )


def _conv_norm(s: Sketch, x: str, filters: int, kind: str = "Relu", **conv: Any) -> str:
    y = batch_norm(s, _conv(s, x, filters, **conv))
    return _activation(s, y, kind) if kind else y


def _head(s: Sketch, x: str) -> str:
    """Mean over pixels, a dense layer, probabilities."""
    flat = s.add(op("Flatten"), [s.add(op("GlobalAveragePool"), [x])])
    width = s.shape(flat)[1]
    weights = [s.normal(11, width, scale=width**-0.5), s.uniform(-0.2, 0.2, 11)]
    return s.add(op("Softmax", axis=1), [s.add(op("Gemm", trans_b=True), [flat, *weights])])


def resnet(s: Sketch, x: str) -> None:
    """Stem, max-pool, 3 to 6 residual blocks with projections where the shape changes, head."""
    h = _conv_norm(s, x, 10, stride=2)
    window = {"kernel_shape": (3, 3), "strides": (2, 2), "pads": ((1, 1), (0, 1))}
    h = s.add(op("MaxPool", **window), [h])
    for block in range(int(s.random.integers(3, 7))):
        filters = (10, 14, 20)[block // 2]
        stride = 2 if block == 2 else 1
        inner = _conv_norm(s, _conv_norm(s, h, filters, stride=stride), filters, kind="")
        if s.shape(inner) != s.shape(h):
            h = _conv_norm(s, h, filters, kind="", kernel=1, stride=stride)
        h = s.add(op("Relu"), [s.add(op("Add"), [inner, h])])
    _head(s, h)


def mobilenet(s: Sketch, x: str) -> None:
    """Stem, 2 to 5 inverted residuals with depthwise layers, head."""
    kind = ("Clip", "HardSwish", "Relu")[int(s.random.integers(3))]
    h = _conv_norm(s, x, 8, kind, stride=2)
    for block in range(int(s.random.integers(2, 6))):
        filters = (8, 12, 12, 15, 15)[block]
        wide = 2 * s.shape(h)[1]
        inner = _conv_norm(s, h, wide, kind, kernel=1)
        size = 5 if block == 2 else 3
        inner = _conv_norm(s, inner, wide, kind, kernel=size, stride=1 + block % 2, groups=wide)
        inner = _conv_norm(s, inner, filters, kind="", kernel=1)
        joins = s.shape(inner) == s.shape(h)
        h = s.add(op("Add"), [inner, h]) if joins else inner
    _head(s, h)


def unet(s: Sketch, x: str) -> None:
    """Two levels down by pooling, two up by transposed convolution and resizing, with skips."""
    skips = []
    h = x
    for filters in (6, 10):
        h = _activation(s, _conv(s, h, filters, bias=True), "LeakyRelu")
        h = _conv_norm(s, h, filters)
        skips.append(h)
        pooled = ("MaxPool", "AveragePool")[int(s.random.integers(2))]
        h = s.add(op(pooled, kernel_shape=(2, 2), strides=(2, 2), ceil_mode=True), [h])
    h = _conv_norm(s, _conv_norm(s, h, 14), 14)
    for skip in reversed(skips):
        shape = s.shape(skip)
        if shape[1] == 10:
            h = _up_by_deconvolution(s, h, shape)
        else:
            sizes = s.constant([shape[0], s.shape(h)[1], *shape[2:]], np.int64)
            h = s.add(op("Resize", mode="linear"), [h, None, None, sizes])
        h = s.add(op("Concat", axis=1), [h, skip])
        h = _activation(s, _conv(s, h, shape[1], bias=True), "Relu")
    s.add(op("Sigmoid"), [_conv(s, h, 2, kernel=1, bias=True)])


def _up_by_deconvolution(s: Sketch, x: str, shape: tuple[int, ...]) -> str:
    """A transposed convolution of stride 2 that ends at the spatial sizes of `shape`.

    Kernel 3 and pads of 1 give 2 n - 1 pixels; output_padding adds one, a larger pad takes away.
    """
    c = s.shape(x)[1]
    extra = [want - (2 * n - 1) for want, n in zip(shape[2:], s.shape(x)[2:])]
    node = op(
        "ConvTranspose",
        strides=(2, 2),
        pads=tuple((1, 1 + max(0, -e)) for e in extra),
        output_padding=tuple(max(0, e) for e in extra),
    )
    w = s.normal(c, shape[1], 3, 3, scale=(c * 9 / 4) ** -0.5)
    return s.add(node, [x, w, s.uniform(-0.3, 0.3, shape[1])])


STYLES: dict[str, Callable[[Sketch, str], None]] = {
    "resnet": resnet,
    "mobilenet": mobilenet,
    "unet": unet,
}
"""Styles by name."""

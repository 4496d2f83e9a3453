"""Kinds of mistakes in convolutions, transposed convolutions, pools and resizing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from verax.campaign.faults import Change, Fault, Site, apply
from verax.campaign.network_sketch import op

Pair = tuple[int, int]
CONVS = ("Conv", "ConvTranspose")
POOLS = ("MaxPool", "AveragePool")
WINDOWED = (*CONVS, *POOLS)


def pads(edit: Callable[[Pair], Pair]) -> Callable[[Site], Change | None]:
    """Pads of every axis edited."""

    def make(site: Site) -> Change | None:
        old = site.windows.pads
        new = tuple(edit(tuple(p)) for p in old)
        return None if new == old else site.rewrite(pads=new)

    return make


def weights(edit: Callable[[Site, np.ndarray], np.ndarray | None]) -> Any:
    """The weights edited; their shape stays."""

    def make(site: Site) -> Change | None:
        w = site.constant(1)
        if w is None:
            return None
        new = edit(site, w.copy())
        if new is None or new.shape != w.shape or (new == w).all():
            return None
        return site.rewrite({1: new})

    return make


def bias(edit: Callable[[np.ndarray], np.ndarray]) -> Callable[[Site], Change | None]:
    """The bias edited."""

    def make(site: Site) -> Change | None:
        b = site.constant(2)
        return None if b is None else site.rewrite({2: edit(b)})

    return make


def no_bias(site: Site) -> Change | None:
    """The bias left away."""
    return None if site.constant(2) is None else site.rewrite(keep=2)


def dilation_dropped(site: Site) -> Change | None:
    """Dilation 1, and pads that leave the size as it is."""
    w = site.windows
    if max(w.dilations) == 1:
        return None
    shrink = [(d - 1) * (k - 1) for d, k in zip(w.dilations, w.kernel_shape)]
    new = tuple((max(0, b - s // 2), max(0, e - (s - s // 2))) for (b, e), s in zip(w.pads, shrink))
    return site.rewrite(dilations=(1,) * len(shrink), pads=new)


def filled(mode: str) -> Callable[[Site], Change | None]:
    """Padding shows the border's elements (mode `edge` or `reflect`), or zeros in a MaxPool."""

    def make(site: Site) -> Change | None:
        widths = ((0, 0), (0, 0), *site.windows.pads)
        hangs_over = bool(getattr(site.node.op, "ceil_mode", False))
        too_wide = max(map(max, widths)) >= min(site.arrays[0].shape[2:])
        if not any(map(any, widths)) or hangs_over or too_wide:
            return None
        bare: Any = dataclasses.replace(site.node.op, pads=())  # type: ignore[call-arg]

        def change(arrays: list[Any], y: np.ndarray) -> np.ndarray:
            padded = np.pad(arrays[0], widths, mode=mode)  # type: ignore[call-overload]
            return apply(bare, [padded, *arrays[1:]])

        return change

    return make


def _square(edit: Callable[[np.ndarray], np.ndarray]) -> Any:
    """The weights edited, where the kernel has as many rows as columns (more than one)."""

    def square_alone(site: Site, w: np.ndarray) -> np.ndarray | None:
        return edit(w) if w.ndim == 4 and w.shape[2] == w.shape[3] > 1 else None

    return weights(square_alone)


def _read_as(*order: int) -> Callable[[Site, np.ndarray], np.ndarray | None]:
    """The weights' memory, written in this order of axes, taken as it lies; None for weights with
    another number of axes."""
    return lambda site, w: w.transpose(order).reshape(w.shape) if w.ndim == len(order) else None


def _swapped_channels(site: Site, w: np.ndarray) -> np.ndarray | None:
    return w.swapaxes(0, 1) if w.shape[0] == w.shape[1] else None


def _groups(site: Site) -> int:
    return int(site.node.op.attributes()["groups"])


def _reversed_groups(site: Site, w: np.ndarray) -> np.ndarray | None:
    g = _groups(site)
    return None if g == 1 else w.reshape(g, -1, *w.shape[1:])[::-1].reshape(w.shape)


def _rolled_filters(site: Site, w: np.ndarray) -> np.ndarray | None:
    return np.roll(w, 1, axis=0) if _groups(site) == w.shape[0] else None


def _interleaved(x: np.ndarray, groups: int) -> np.ndarray:
    """Channels [g, c / g] read as [c / g, g]."""
    n, c, *spatial = x.shape
    return x.reshape(n, groups, c // groups, *spatial).swapaxes(1, 2).reshape(x.shape)


def groups_interleaved(site: Site) -> Change | None:
    """A grouped convolution that takes every g-th channel into a group."""
    g, node = _groups(site), site.node
    if g == 1 or g == site.arrays[0].shape[1]:
        return None
    return lambda arrays, y: apply(node.op, [_interleaved(arrays[0], g), *arrays[1:]])


def outputs_interleaved(site: Site) -> Change | None:
    g = _groups(site)
    if g == 1 or g == site.output.shape[1]:
        return None
    return lambda arrays, y: _interleaved(y, g)


def one_weight(site: Site) -> Change | None:
    """One weight, of ordinary size, too large by a thousandth."""
    w = site.constant(1)
    if w is None:
        return None
    new = w.copy()
    flat = new.reshape(-1)
    ordinary = np.flatnonzero(np.abs(flat) >= np.median(np.abs(flat)))
    flat[site.random.choice(ordinary)] *= np.float32(1.001)
    return site.rewrite({1: new})


def last_input_channel(site: Site, w: np.ndarray) -> np.ndarray:
    axis = 1 if site.node.op.kind == "Conv" else 0
    np.moveaxis(w, axis, 0)[-1] = 0
    return w


def last_kernel_row(site: Site, w: np.ndarray) -> np.ndarray | None:
    if w.shape[2] == 1:
        return None
    w[:, :, -1] = 0
    return w


def output_padding_in_front(site: Site) -> Change | None:
    """output_padding added at the beginning: everything moves by it."""
    attributes = site.node.op.attributes()
    extra = attributes["output_padding"]
    if not any(extra):
        return None
    new = tuple((b - p, e + p) for (b, e), p in zip(site.windows.pads, extra))
    return site.rewrite(pads=new) if min(map(min, new)) >= 0 else None


def output_padding_zero(site: Site) -> Change | None:
    """What output_padding adds holds zeros."""
    extra = site.node.op.attributes()["output_padding"]
    if not any(extra):
        return None

    def change(arrays: list[Any], y: np.ndarray) -> np.ndarray:
        for axis, count in enumerate(extra, 2):
            np.moveaxis(y, axis, 0)[y.shape[axis] - count :] = 0
        return y

    return change


def another_pool(kind: str) -> Callable[[Site], Change | None]:
    """The same window, for another reduction."""

    def make(site: Site) -> Change | None:
        own = site.node.op.attributes()
        names = ("kernel_shape", "strides", "pads", "ceil_mode", "dilations")
        return site.rewrite(op=op(kind, **{n: own[n] for n in names}))

    return make


def include_pad(site: Site) -> Change | None:
    if not any(map(any, site.windows.pads)):
        return None
    return site.rewrite(count_include_pad=not site.node.op.attributes()["count_include_pad"])


def window_dropped(site: Site) -> Change | None:
    """ceil_mode forgotten, the missing windows left at zero."""
    attributes = site.node.op.attributes()
    if not attributes["ceil_mode"]:
        return None
    floor: Any = dataclasses.replace(site.node.op, ceil_mode=False)  # type: ignore[call-arg]
    if apply(floor, site.arrays[:1]).shape == site.output.shape:
        return None

    def change(arrays: list[Any], y: np.ndarray) -> np.ndarray:
        small = apply(floor, arrays[:1])
        y = np.zeros_like(y)
        y[tuple(map(slice, small.shape))] = small
        return y

    return change


def resized(**options: Any) -> Callable[[Site], Change | None]:
    """Resize in another mode, coordinate or rounding."""

    def make(site: Site) -> Change | None:
        own = site.node.op.attributes()
        if all(own[name] == value for name, value in options.items()):
            return None
        if "nearest_mode" in options and own["mode"] != "nearest":
            return None
        return site.rewrite(**options)

    return make


def _shifted_by_one(pair: Pair) -> Pair:
    """One pad from the end to the beginning, or back when there is none at the end."""
    begin, end = pair
    if end:
        return begin + 1, end - 1
    return (begin - 1, end + 1) if begin else pair


def _lower(pair: Pair) -> Pair:
    total = sum(pair)
    return (total - total // 2, total // 2)


def _upper(pair: Pair) -> Pair:
    return (sum(pair) // 2, sum(pair) - sum(pair) // 2)


WINDOW_FAULTS: tuple[Fault, ...] = (
    Fault("pads: begin and end swapped", WINDOWED, pads(lambda p: (p[1], p[0]))),
    Fault("pads: moved by one", WINDOWED, pads(_shifted_by_one)),
    Fault("pads: split evenly, the odd one first", WINDOWED, pads(_lower)),
    Fault("pads: split evenly, the odd one last", WINDOWED, pads(_upper)),
    Fault("padding repeats the edge", ("Conv", *POOLS), filled("edge")),
    Fault("padding reflects", ("Conv",), filled("reflect")),
    Fault("padding counts as zero", ("MaxPool",), filled("constant")),
    Fault("dilation dropped", ("Conv", "ConvTranspose"), dilation_dropped),
    Fault("kernel flipped", CONVS, weights(lambda s, w: np.flip(w, tuple(range(2, w.ndim))))),
    Fault("kernel flipped in one axis", CONVS, weights(lambda s, w: w[..., ::-1])),
    Fault("kernel transposed", CONVS, _square(lambda w: w.swapaxes(2, 3))),
    Fault("input and output channels swapped", CONVS, weights(_swapped_channels)),
    Fault(
        "weights read as OHWI",
        CONVS,
        weights(_read_as(0, 2, 3, 1)),
    ),
    Fault(
        "weights read as HWIO",
        CONVS,
        weights(_read_as(2, 3, 1, 0)),
    ),
    Fault("groups reversed", CONVS, weights(_reversed_groups)),
    Fault("depthwise filters rolled", ("Conv",), weights(_rolled_filters)),
    Fault("groups interleaved", CONVS, groups_interleaved),
    Fault("output channels of groups interleaved", CONVS, outputs_interleaved),
    Fault("input channels reversed", ("Conv",), weights(lambda s, w: w[:, ::-1])),
    Fault("bias missing", CONVS, no_bias),
    Fault("bias twice", CONVS, bias(lambda b: 2 * b)),
    Fault("bias rolled by one channel", CONVS, bias(lambda b: np.roll(b, 1))),
    Fault("one weight off by 1e-3", CONVS, one_weight, outside=True),
    Fault("last input channel left out", CONVS, weights(last_input_channel)),
    Fault("last kernel row left out", CONVS, weights(last_kernel_row)),
    Fault("output_padding in front", ("ConvTranspose",), output_padding_in_front),
    Fault("output_padding left at zero", ("ConvTranspose",), output_padding_zero),
    Fault("average for maximum", ("MaxPool",), another_pool("AveragePool")),
    Fault("maximum for average", ("AveragePool",), another_pool("MaxPool")),
    Fault("count_include_pad turned round", ("AveragePool",), include_pad),
    Fault("ceil_mode dropped", POOLS, window_dropped),
    Fault("resize: nearest", ("Resize",), resized(mode="nearest")),
    Fault("resize: linear", ("Resize",), resized(mode="linear")),
    Fault(
        "resize: half pixel",
        ("Resize",),
        resized(coordinate_transformation_mode="half_pixel"),
    ),
    Fault(
        "resize: asymmetric",
        ("Resize",),
        resized(coordinate_transformation_mode="asymmetric"),
    ),
    Fault(
        "resize: align corners",
        ("Resize",),
        resized(coordinate_transformation_mode="align_corners"),
    ),
    Fault("resize: rounds down", ("Resize",), resized(nearest_mode="floor")),
    Fault("resize: rounds up", ("Resize",), resized(nearest_mode="ceil")),
)
"""Kinds of mistakes in operators with windows."""

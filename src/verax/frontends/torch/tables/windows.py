"""ATen convolutions and pools, in 1, 2 and 3 dimensions, batched or not."""

from __future__ import annotations

from typing import Any

import numpy as np

from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row

Pads = tuple[tuple[int, int], ...]


def _symmetric(widths: tuple[int, ...]) -> Pads:
    return tuple((w, w) for w in widths)


def _weight(t: Aten, rank: int) -> str:
    weight = t.tensor("weight")
    if t.rank(weight) != rank + 2:
        t.refuse(f"its weight has rank {t.rank(weight)}, not {rank + 2}")
    return weight


@row(*(f"conv{n}d.{o}" for n in (1, 2, 3) for o in ("default", "padding")))
def convolution(t: Aten) -> Result:
    """`padding` is a number per axis, or "same" or "valid"; "same" puts the odd one at the end."""
    rank = int(t.kind[4])
    weight = _weight(t, rank)
    dilations = t.integers("dilation", (1,), rank)
    padding = t.a.values.get("padding")
    pads: Pads
    if padding == "same":
        t.text("padding")
        kernel = [int(k) for k in t.type(weight).shape[2:]]
        total = [d * (k - 1) for d, k in zip(dilations, kernel)]
        pads = tuple((w // 2, w - w // 2) for w in total)
    elif padding == "valid":
        t.text("padding")
        pads = _symmetric((0,) * rank)
    else:
        pads = _symmetric(t.integers("padding", (0,), rank))
    x, added = t.batched(t.tensor("input"), rank + 2)
    return t.unbatched(
        "Conv",
        [x, weight, t.maybe("bias")],
        added,
        strides=t.integers("stride", (1,), rank),
        pads=pads,
        dilations=dilations,
        groups=t.integer("groups", 1),
    )


def _convolution_fields(t: Aten, rank: int) -> dict[str, Any]:
    return {
        "strides": t.integers("stride", (1,), rank),
        "pads": _symmetric(t.integers("padding", (0,), rank)),
        "dilations": t.integers("dilation", (1,), rank),
        "groups": t.integer("groups", 1),
    }


@row("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def transposed_convolution(t: Aten) -> Result:
    rank = int(t.kind[len("conv_transpose")])
    inputs = [_weight(t, rank), t.maybe("bias")]
    x, added = t.batched(t.tensor("input"), rank + 2)
    fields = _convolution_fields(t, rank)
    fields["output_padding"] = t.integers("output_padding", (0,), rank)
    return t.unbatched("ConvTranspose", [x, *inputs], added, **fields)


@row("convolution.default")
def any_convolution(t: Aten) -> Result:
    """The form that decompositions leave: one operator with a `transposed` flag."""
    weight = t.tensor("weight")
    rank = t.rank(weight) - 2
    fields, output_padding = _convolution_fields(t, rank), t.integers("output_padding", (0,), rank)
    kind = "Conv"
    if t.flag("transposed"):
        kind, fields["output_padding"] = "ConvTranspose", output_padding
    elif any(output_padding):
        t.a.refuse("output_padding", "the convolution is not transposed")
    x, added = t.batched(t.tensor("input"), rank + 2)
    return t.unbatched(kind, [x, weight, t.maybe("bias")], added, **fields)


def _pool_fields(t: Aten, rank: int) -> dict[str, Any]:
    kernel = t.integers("kernel_size", None, rank)
    strides = t.integers("stride", (), rank) or kernel
    return {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": _symmetric(t.integers("padding", (0,), rank)),
        "ceil_mode": t.flag("ceil_mode"),
    }


@row(*(f"max_pool{n}d{suffix}.default" for n in (1, 2, 3) for suffix in ("", "_with_indices")))
def max_pool(t: Aten) -> Result:
    rank = int(t.kind[len("max_pool")])
    x, added = t.batched(t.tensor("self"), rank + 2)
    fields = _pool_fields(t, rank)
    fields["dilations"] = t.integers("dilation", (1,), rank)
    if t.output_used(1):
        return _with_indices(t, x, added, fields)
    return t.unbatched("MaxPool", [x], added, **fields)


def _with_indices(t: Aten, x: str, added: bool, fields: dict[str, Any]) -> Result:
    """Indices count within one channel, where those of MaxPool count in the whole input."""
    op = t.operator("MaxPool", with_indices=True, **fields)
    names = [t.fresh(f"{t.first_output}/MaxPool") for _ in range(2)]
    y, indices = t.builder.add_all(op, [x], names, t.node.name)
    plane = t.add("ReduceProd", [t.add("Shape", [x], start=2), t.ints([0])], keepdims=False)
    indices = t.add("Mod", [indices, plane])
    if not added:
        return t.output(0, "Identity", [y]), t.output(1, "Identity", [indices])
    return t.per_output("Squeeze", [[y, t.ints([0])], [indices, t.ints([0])]])


@row(*(f"avg_pool{n}d.default" for n in (1, 2, 3)))
def average_pool(t: Aten) -> Result:
    rank = int(t.kind[len("avg_pool")])
    fields = _pool_fields(t, rank)
    divisor = t.integer("divisor_override")
    if divisor is not None:
        t.irrelevant("count_include_pad", reason="the divisor is given")
        return _fixed_divisor(t, rank, fields, divisor)
    x, added = t.batched(t.tensor("self"), rank + 2)
    include = t.flag("count_include_pad", True)
    return t.unbatched("AveragePool", [x], added, count_include_pad=include, **fields)


def _behind(size: int, kernel: int, stride: int, pad: int) -> int:
    """Zeros behind an axis for the last window that begins inside of it."""
    count = -(-(size + 2 * pad - kernel) // stride) + 1
    if (count - 1) * stride >= size + pad:
        count -= 1
    return max((count - 1) * stride + kernel - size - pad, 0)


def _fixed_divisor(t: Aten, rank: int, fields: dict[str, Any], divisor: int) -> Result:
    """Sums of windows over a given number: a depthwise convolution with equal weights."""
    x, added = t.batched(t.tensor("self"), rank + 2)
    if fields.pop("ceil_mode"):  # windows that begin inside may end beyond the padding
        sizes = t.known_sizes(x, range(2, rank + 2), "how many windows there are")
        axes = zip(sizes, fields["kernel_shape"], fields["strides"], fields["pads"])
        fields["pads"] = tuple((p, _behind(n, k, s, p)) for n, k, s, (p, _) in axes)
    channels = t.known_size(x, 1, "the sums of windows")
    if divisor == 0:
        t.a.refuse("divisor_override", "a division by 0")
    kernel = fields.pop("kernel_shape")
    weight = np.full((channels, 1, *kernel), 1 / divisor, t.type(x).dtype.numpy)
    return t.unbatched("Conv", [x, t.constant(weight)], added, groups=channels, **fields)


@row(
    *(f"adaptive_avg_pool{n}d.default" for n in (1, 2, 3)),
    *(f"_adaptive_avg_pool{n}d.default" for n in (2, 3)),
)
def adaptive_average_pool(t: Aten) -> Result:
    """Output i averages over floor(i n / m) up to ceil((i + 1) n / m), for n inputs and m outputs:
    equal windows where m divides n, else windows are laid out, filled up with zeros, and summed."""
    rank = int(t.kind.removeprefix("_")[len("adaptive_avg_pool")])
    output = t.integers("output_size", None, rank)
    x, added = t.batched(t.tensor("self"), rank + 2)
    sizes, uniform = _adaptive(t, x, added, output, "Average")
    if uniform is not None:
        return uniform
    dtype, counts = t.type(x).dtype.numpy, np.ones((1,) * rank)
    ends = t.ints([0] * (rank + 4) + [1] * rank)
    x = t.add("Pad", [x, ends, t.constant(0, dtype)])
    for i, (n, m) in enumerate(zip(sizes, output)):
        indices = _adaptive_indices(n, m, beyond=n)
        counts = counts * (indices < n).sum(1).reshape(-1, *(1,) * (rank - i - 1))
        x = t.add("Gather", [x, t.constant(indices)], axis=2 + 2 * i)
    # One sum over whole windows: sums of sums would round less than PyTorch does.
    x = t.add("ReduceSum", [x, t.ints(range(3, 3 + 2 * rank, 2))], keepdims=False)
    return t.unbatched("Div", [x, t.constant(counts, dtype)], added)


@row(*(f"adaptive_max_pool{n}d.default" for n in (1, 2, 3)))
def adaptive_max_pool(t: Aten) -> Result:
    rank = int(t.kind[len("adaptive_max_pool")])
    output = t.integers("output_size", None, rank)
    x, added = t.batched(t.tensor("self"), rank + 2)
    if t.output_used(1):
        return _adaptive_with_indices(t, x, added, output)
    sizes, uniform = _adaptive(t, x, added, output, "Max")
    if uniform is not None:
        return uniform
    for axis, (n, m) in enumerate(zip(sizes, output), 2):
        windows = t.add("Gather", [x, t.constant(_adaptive_indices(n, m))], axis=axis)
        x = t.add("ReduceMax", [windows, t.ints([axis + 1])], keepdims=False)
    return t.result("Squeeze", [x, t.ints([0])]) if added else t.result("Identity", [x])


def _adaptive_with_indices(t: Aten, x: str, added: bool, output: tuple[int, ...]) -> Result:
    """Windows laid out as a last axis; its largest element, and where that is in the channel."""
    rank = len(output)
    sizes = t.known_sizes(x, range(2, rank + 2), "its windows")
    if min(output, default=0) < 1:
        t.a.refuse("output_size", "nothing would be left")
    lead = t.known_sizes(x, (0, 1), "its windows")
    indices = np.zeros((1,) * (2 * rank), np.int64)
    for axis, (n, m) in enumerate(zip(sizes, output)):
        own = _adaptive_indices(n, m)
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = own.shape
        indices = indices * n + own.reshape(shape)
    indices = indices.reshape(*output, -1)
    flat = t.add("Reshape", [x, t.ints([*lead, -1])])
    windows = t.add("Gather", [flat, t.constant(indices)], axis=2)
    best = t.add("ArgMax", [windows], axis=-1, keepdims=True)
    all_indices = t.add("Expand", [t.constant(indices), t.add("Shape", [windows])])
    results = [t.add("GatherElements", [v, best], axis=rank + 2) for v in (windows, all_indices)]
    results = [t.add("Squeeze", [v, t.ints([-1])]) for v in results]
    if not added:
        return t.per_output("Identity", [[v] for v in results])
    return t.per_output("Squeeze", [[v, t.ints([0])] for v in results])


def _adaptive(
    t: Aten, x: str, added: bool, output: tuple[int, ...], kind: str
) -> tuple[tuple[int, ...], Result | None]:
    """The input's sizes, and the pool where all of its windows are equal."""
    if output == (1,) * len(output):
        return (), t.unbatched(f"Global{kind}Pool", [x], added)
    sizes = t.known_sizes(x, range(2, t.rank(x)), "its windows")
    if min(output, default=0) < 1:
        t.a.refuse("output_size", "nothing would be left")
    if any(n % m for n, m in zip(sizes, output)):
        return sizes, None
    steps = tuple(n // m for n, m in zip(sizes, output))
    return sizes, t.unbatched(f"{kind}Pool", [x], added, kernel_shape=steps, strides=steps)


def _adaptive_indices(n: int, m: int, beyond: int | None = None) -> np.ndarray:
    """Positions [m, longest window]; a shorter window goes on with `beyond`, or its last one."""
    bounds = [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]
    longest = max(last - first for first, last in bounds)
    indices = [
        [
            first + j if first + j < last else last - 1 if beyond is None else beyond
            for j in range(longest)
        ]
        for first, last in bounds
    ]
    return np.array(indices, np.int64).reshape(m, -1)

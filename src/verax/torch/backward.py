"""Decompositions of backward operators for AOTAutograd: PyTorch's own for some, and ours for those
of windows, for which it has none.

A convolution's gradient by its input is the transposed convolution with the same weights. The one
by its weights is a product of matrices: output gradients times what the kernel saw at each
position. That of an average, of resampling, is a product with constant matrices, one for each axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from verax.base.optional import optional

torch: Any = optional("torch", "to use verax.torch")
aten = torch.ops.aten
PYTORCHS = (
    *("threshold_backward", "native_batch_norm_backward", "native_layer_norm_backward"),
    *("native_group_norm_backward", "_softmax_backward_data", "_log_softmax_backward_data"),
    *("gelu_backward", "silu_backward", "tanh_backward", "sigmoid_backward", "elu_backward"),
    *("leaky_relu_backward", "hardtanh_backward", "hardsigmoid_backward", "hardswish_backward"),
    *("mish_backward", "softplus_backward", "glu_backward", "log_sigmoid_backward"),
    *("mse_loss_backward", "nll_loss_forward", "nll_loss_backward", "select_backward"),
    *("nll_loss2d_forward", "nll_loss2d_backward", "smooth_l1_loss_backward"),
    *("huber_loss_backward", "binary_cross_entropy_backward", "slice_backward"),
    *("embedding_dense_backward", "native_dropout_backward", "unfold_backward"),
    *("_fused_rms_norm_backward", "_prelu_kernel_backward", "diagonal_backward"),
    *("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"),
)
"""Operators that PyTorch itself says in simpler ones."""
Ints = Sequence[int]
_own: dict[Any, Callable[..., Any]] = {}


def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table for AOTAutograd: overload -> function."""
    packets = [getattr(aten, name) for name in PYTORCHS if hasattr(aten, name)]
    return {**torch._decomp.get_decompositions(packets), **_own}


def _means(*overloads: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        _own.update(dict.fromkeys(overloads, function))
        return function

    return enter


@_means(aten.convolution_backward.default)
def convolution_backward(
    grad: Any, x: Any, weight: Any, bias_sizes: Any, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int, output_mask: Sequence[bool],
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Gradients by the input, the weights and the bias, None for one that is not asked for."""
    rank = x.dim() - 2
    stride, padding, dilation = (
        list(values) * (rank if len(values) == 1 else 1) for values in (stride, padding, dilation)
    )
    kernel, by_input, by_weight, by_bias = weight.shape[2:], None, None, None
    if output_mask[0] and transposed:
        none = [0] * rank
        by_input = aten.convolution.default(
            grad, weight, None, stride, padding, dilation, False, none, groups
        )
        by_input = _cropped(by_input, x.shape[2:])
    elif output_mask[0]:
        behind = [
            n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
            for n, m, s, p, d, k in zip(
                x.shape[2:], grad.shape[2:], stride, padding, dilation, kernel
            )
        ]
        by_input = aten.convolution.default(
            grad, weight, None, stride, padding, dilation, True, behind, groups
        )
    if output_mask[1]:
        narrow, wide = (x, grad) if transposed else (grad, x)
        by_weight = _by_weight(narrow, wide, kernel, stride, padding, dilation, groups)
    if output_mask[2]:
        by_bias = grad.sum([0, *range(2, rank + 2)])
    return by_input, by_weight, by_bias


def _cropped(x: Any, sizes: Ints) -> Any:
    for axis, size in enumerate(sizes, 2):
        x = x.narrow(axis, 0, size)
    return x


def _by_weight(
    narrow: Any, wide: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    """[o, c / groups, *kernel] from narrow [n, o, *windows] and wide [n, c, *what windows see]."""
    n, filters, *windows = narrow.shape
    channels = wide.shape[1] // groups
    behind = [
        max(0, (m - 1) * s + d * (k - 1) + 1 - p - size)
        for size, m, s, p, d, k in zip(
            wide.shape[2:], windows, stride, padding, dilation, kernel
        )
    ]  # fmt: skip
    pads = [w for pair in zip(reversed(padding), reversed(behind)) for w in pair]
    # Channels in front: what the kernel sees at each of its positions is then a matrix's rows.
    seen = wide.transpose(0, 1)
    if any(pads):
        seen = aten.constant_pad_nd.default(seen, pads, 0.0)
    depthwise = channels == 1 and filters == groups
    if depthwise:
        own = narrow.transpose(0, 1)
        sums = [
            (own * tap).flatten(1).sum(1) for tap in _taps(seen, kernel, windows, stride, dilation)
        ]
        return torch.stack(sums, 1).reshape(filters, 1, *kernel)
    columns = torch.stack(list(_taps(seen, kernel, windows, stride, dilation)), 1)
    rows = channels * columns.shape[1]
    axes = [0, *range(2, narrow.dim()), 1]
    length = n * columns[0, 0, 0].numel()
    if groups == 1:
        right = narrow.permute(axes).reshape(length, filters)
        product = torch.mm(columns.reshape(rows, length), right)
        return product.t().reshape(filters, channels, *kernel)
    right = narrow.permute(axes).reshape(length, groups, filters // groups).transpose(0, 1)
    product = torch.bmm(columns.reshape(groups, rows, length), right)
    return product.transpose(1, 2).reshape(filters, channels, *kernel)


def _taps(x: Any, kernel: Ints, windows: Ints, stride: Ints, dilation: Ints) -> Any:
    """For each kernel position, what it sees: [.., .., *windows]."""
    slices = [x]
    for axis, (k, m, s, d) in enumerate(zip(kernel, windows, stride, dilation), 2):
        slices = [
            aten.slice.Tensor(tap, axis, i * d, i * d + (m - 1) * s + 1, s)
            for tap in slices
            for i in range(k)
        ]
    return slices


@_means(
    aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default
)
def max_pool_backward(
    grad: Any, x: Any, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool,
    indices: Any,
) -> Any:  # fmt: skip
    """Gradient by the input: each window's gradient is added at its maximum."""
    axes = len(kernel)
    plane = x.flatten(-axes)
    result = torch.zeros_like(plane).scatter_add(-1, indices.flatten(-axes), grad.flatten(-axes))
    return result.reshape(x.shape)


def _along_axes(grad: Any, matrices: Sequence[Any]) -> Any:
    """grad [.., *out] times matrices [out, in] along its last axes: [.., *in]."""
    for axis, matrix in enumerate(reversed(matrices)):
        grad = grad.transpose(-1, -1 - axis)
        grad = torch.matmul(grad, matrix).transpose(-1, -1 - axis)
    return grad


def _positions(count: int, like: Any) -> Any:
    return torch.arange(count, dtype=like.dtype)


def _inside(first: Any, last: Any, size: int, like: Any) -> Any:
    """[windows, size]: 1 where an element lies from `first` to before `last`."""
    at = _positions(size, like)
    return ((at >= first[:, None]) & (at < last[:, None])).to(like.dtype)


@_means(aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default)
def average_pool_backward(
    grad: Any, x: Any, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Any:  # fmt: skip
    """Gradient by the input: each window's gradient, divided, is added to all its elements."""
    axes = len(kernel)
    stride = list(stride) or list(kernel)
    kernel, stride, padding = (
        list(values) * (axes if len(values) == 1 else 1) for values in (kernel, stride, padding)
    )
    matrices = []
    sizes = zip(x.shape[-axes:], grad.shape[-axes:], kernel, stride, padding)
    for n, windows, k, s, p in sizes:
        first = _positions(windows, grad) * s - p
        last = (first + k).clamp(max=n + p)
        inside = _inside(first, last, n, grad)
        counts = last - first if count_include_pad else last.clamp(max=n) - first.clamp(min=0)
        matrices.append(inside if divisor_override else inside / counts[:, None])
    result = _along_axes(grad, matrices)
    return result / divisor_override if divisor_override else result


@_means(aten._adaptive_avg_pool2d_backward.default)
def adaptive_average_backward(grad: Any, x: Any) -> Any:
    """Window i of m sees elements from floor(i n / m) to before ceil((i + 1) n / m)."""
    matrices = []
    for n, windows in zip(x.shape[-2:], grad.shape[-2:]):
        window = torch.arange(windows)
        first = torch.div(window * n, windows, rounding_mode="floor")
        last = torch.div((window + 1) * n + windows - 1, windows, rounding_mode="floor")
        inside = _inside(first.to(grad.dtype), last.to(grad.dtype), n, grad)
        matrices.append(inside / (last - first).to(grad.dtype)[:, None])
    return _along_axes(grad, matrices)


@_means(aten.upsample_nearest2d_backward.default)
def nearest_backward(
    grad: Any, output_size: Ints, input_size: Ints, *scales: float | None, **named: float | None
) -> Any:
    """By the matrices that resampling is along each axis."""
    return _resampled_backward(aten.upsample_nearest1d.default, grad, input_size, scales, named)


@_means(aten.upsample_bilinear2d_backward.default)
def bilinear_backward(
    grad: Any, output_size: Ints, input_size: Ints, align_corners: bool,
    *scales: float | None, **named: float | None,
) -> Any:  # fmt: skip
    """By the matrices that resampling is along each axis."""
    resample = aten.upsample_linear1d.default
    return _resampled_backward(resample, grad, input_size, scales, named, align_corners)


def _resampled_backward(
    resample: Any, grad: Any, sizes: Ints, scales: Sequence[Any], named: Any, *settings: Any
) -> Any:
    scales = [*scales, *named.values(), None, None][:2]
    matrices = []
    for n, windows, scale in zip(sizes[-2:], grad.shape[-2:], scales):
        unit = torch.eye(n, dtype=grad.dtype).unsqueeze(0)
        matrices.append(resample(unit, [windows], *settings, scale)[0].t())
    return _along_axes(grad, matrices)

"""Calls of ATen operators, every argument away from its default at least once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch_bag_cases import bag_calls
from torch_complex_cases import complex_calls
from torch_composite_cases import composite_calls
from torch_index_cases import formula_calls, index_calls, order_calls
from torch_programs import torch
from torch_quantised_cases import quantised_calls
from torch_recurrent_cases import recurrent_calls
from torch_scatter_cases import scatter_calls
from torch_special_cases import special_calls

F = torch.nn.functional


@dataclass(frozen=True)
class Call:
    """A function of tensors with the inputs to call it on."""

    label: str
    function: Callable[..., Any]
    inputs: tuple[Any, ...]


def draw(*shape: int, seed: int = 0) -> Any:
    """Normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def positive(*shape: int) -> Any:
    return draw(*shape).abs() + 0.1


def whole(*shape: int, low: int = -9, high: int = 9) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(low, high, shape, generator=generator)


X, Y, ROW = draw(2, 3, 5), draw(2, 3, 5, seed=1), draw(5, seed=2)
IMAGE, EVEN = draw(2, 4, 7, 9), draw(2, 4, 8, 10)
"""Windows of the tests end with the first, hang over the end of the second."""
INTS, MASK = whole(2, 3, 5), draw(2, 3, 5, seed=4) > 0


def cases() -> list[Call]:
    """All calls; the label is the test's name."""
    found = [Call(name, function, tuple(inputs)) for name, function, *inputs in _calls()]
    assert len({c.label for c in found}) == len(found)
    return found


def _calls() -> list[Any]:
    return [
        *_arithmetic(),
        *_functions(),
        *_activations(),
        *_movement(),
        *_joins(),
        *_reductions(),
        *_windows(),
        *_normalisations(),
        *_products(),
        *_resampling(),
        *_making(),
        *index_calls(),
        *order_calls(),
        *scatter_calls(),
        *special_calls(),
        *formula_calls(),
        *recurrent_calls(),
        *complex_calls(),
        *bag_calls(),
        *quantised_calls(),
        *composite_calls(),
    ]


def _arithmetic() -> list[Any]:
    return [
        ("add_alpha", lambda x, y: torch.add(x, y, alpha=2.5), X, ROW),
        ("add_number", lambda x: x + 0.1, X),
        ("add_int_and_float", lambda x, i: x + i, X, INTS),
        ("add_in_place", lambda x, y: (x * 2).add_(y), X, Y),
        ("sub_alpha", lambda x, y: torch.sub(x, y, alpha=3), X, Y),
        ("rsub", lambda x: torch.rsub(x, 2.0, alpha=1.5), X),
        ("one_minus", lambda x: 1 - x, X),
        ("mul", lambda x, y: x * y, X, ROW),
        ("mul_bool", lambda m, x: m * x, MASK, X),
        ("div", lambda x, y: x / y, X, positive(5)),
        ("div_ints", lambda i: i / 4, INTS),
        ("div_floor", lambda x: torch.div(x, 0.3, rounding_mode="floor"), X),
        ("div_trunc", lambda x: torch.div(x, 0.3, rounding_mode="trunc"), X),
        ("floor_divide_ints", lambda i: i // 4, INTS),
        ("trunc_divide_ints", lambda i: torch.div(i, 4, rounding_mode="trunc"), INTS),
        ("remainder_ints", lambda i: i % 4, INTS),
        ("fmod_ints", lambda i: torch.fmod(i, 4), INTS),
        ("pow_number", lambda x: x**3, X),
        ("pow_square", lambda x: x**2, X),
        ("pow_base", lambda x: 1.5**x, X),
        ("pow_tensor", lambda x, y: x**y, positive(2, 3, 5), Y),
        ("compare", lambda x, y: (x > y, x >= 0.5, x < y, x <= 1), X, Y),
        ("equal", lambda i, j: (i == j, i != 2, i == 3), whole(4, 9), whole(9)),
        ("maximum", lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), X, ROW),
        ("bits", lambda i, j: (i & j, i | 3, i ^ j, ~i), INTS, whole(5)),
        ("bits_of_masks", lambda m: (m & ~m[:, :1], m | m[:1], m ^ m[1:]), MASK),
        ("logic", lambda i, m: (i.logical_and(m), i.logical_or(m), i.logical_xor(m)), INTS, MASK),
        ("logical_not", lambda i: i.logical_not(), INTS),
        ("where", lambda m, x, y: torch.where(m, x, y), MASK, X, ROW),
        ("where_numbers", lambda m, x: torch.where(m, x, 1.5), MASK, X),
        ("masked_fill", lambda x, m: x.masked_fill(m, -3.5), X, MASK),
        ("zero_dimensional", lambda x, i: x * i.sum(), X, INTS),
    ]


def _functions() -> list[Any]:
    names = "exp sin cos tan sinh cosh asinh erf tanh sigmoid abs neg floor ceil sign square"
    small = "asin acos atanh"
    above = "log sqrt rsqrt reciprocal acosh log2 log10 log1p expm1 exp2"
    return [
        *((n, getattr(torch, n), X) for n in names.split()),
        *((n, getattr(torch, n), X.tanh() * 0.9) for n in small.split()),
        *((n, getattr(torch, n), positive(2, 3, 5) + 1) for n in above.split()),
        ("round", torch.round, X * 3),
        ("exp_of_ints", torch.exp, whole(2, 3)),
        ("atan", torch.atan, X * 2),
        ("isinf", torch.isinf, X / X.relu()),
        ("isnan", torch.isnan, X / X.relu()),
    ]


def _activations() -> list[Any]:
    names = "relu relu6 silu mish softsign selu hardswish hardsigmoid logsigmoid"
    return [
        *((n, getattr(F, n), X * 3) for n in names.split()),
        ("relu_in_place", lambda x: torch.relu_(x * 2), X),
        ("clamp", lambda x: x.clamp(-0.5, 0.25), X),
        ("clamp_min", lambda x: x.clamp(min=-0.5), X),
        ("clamp_max", lambda x: x.clamp(max=0.25), X),
        ("clamp_tensor", lambda x, y: torch.clamp(x, min=y, max=y + 1), X, ROW),
        ("clamp_mixed", lambda i, x: torch.clamp(i, min=x, max=torch.tensor(2.5)), INTS, X),
        ("clamp_half", lambda x, y: torch.clamp(x.half(), max=y), X, ROW),
        ("clamp_zero_dimensional", lambda x, i: x.clamp(i.sum() * 0, i.max()), X, INTS),
        ("clamp_ints_by_floats", lambda i: (i.clamp(1.5, 3), torch.clamp_min(i, 0.5)), INTS),
        ("hardtanh", lambda x: F.hardtanh(x, -0.75, 1.5), X),
        ("leaky_relu", lambda x: F.leaky_relu(x, 0.2), X),
        ("elu", lambda x: F.elu(x, 0.7), X),
        ("celu", lambda x: F.celu(x, 0.7), X),
        ("gelu", F.gelu, X),
        ("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), X),
        ("glu", lambda x: F.glu(x, 1), IMAGE),
        ("softplus", lambda x: F.softplus(x, 2.5, 3.0), X * 3),
        ("threshold", lambda x: F.threshold(x, 0.25, -1.5), X),
        ("prelu", lambda x, w: F.prelu(x, w), IMAGE, draw(4)),
        ("prelu_single", lambda x, w: F.prelu(x, w), IMAGE, draw(1)),
        ("dropout", lambda x: F.dropout(x, 0.3, False), X),
    ]


def _movement() -> list[Any]:
    return [
        ("view", lambda x: x.view(5, -1), X),
        ("reshape", lambda x: x.reshape(3, 10), X),
        ("flatten", lambda x: x.flatten(1, 2), IMAGE),
        ("flatten_all", torch.flatten, X),
        ("unflatten", lambda x: x.unflatten(1, (2, 2)), IMAGE),
        ("permute", lambda x: x.permute(2, -4, 3, 1), IMAGE),
        ("transpose", lambda x: x.transpose(-1, 1), IMAGE),
        ("t", lambda x: x.t(), draw(3, 4)),
        ("transposed", lambda x: (x.mT, x.adjoint(), x.mH), IMAGE),
        ("matrix_transposed", lambda x, y: (x.T, x.H, y.T), draw(3, 4), draw(5)),
        ("all_axes_turned", lambda x: torch.ops.aten.numpy_T(x), draw(2, 3, 4)),
        ("diff", lambda x: (torch.diff(x), x.diff(2, 1), x.diff(0)), X),
        ("diff_joined", lambda x, i: x.diff(dim=1, prepend=x[:, :1], append=i[:, :2]), X, INTS),
        ("diff_masks", lambda m: m.diff(dim=-1), MASK),
        ("squeeze", lambda x: (x.squeeze(), x.squeeze(1), x.squeeze((1, 2))), draw(3, 1, 4, 1)),
        ("unsqueeze", lambda x: x.unsqueeze(-2), X),
        ("expand", lambda x: x.expand(4, -1, 3), draw(1, 2, 1)),
        ("repeat", lambda x: x.repeat(2, 1, 3), draw(2, 3)),
        ("slice", lambda x: x[:, 1:-1, ::2], X),
        ("select", lambda x: x[1][:, -2], X),
        ("narrow", lambda x: x.narrow(1, 1, 2), X),
        ("index_select", lambda x, i: x.index_select(2, i), X, whole(4, low=0, high=5)),
        (
            "embedding",
            lambda w, i: F.embedding(i, w, padding_idx=1),
            draw(7, 3),
            whole(2, 4, low=0, high=7),
        ),
        (
            "index_behind",
            lambda x, i, j: x[:, i, j],
            IMAGE,
            whole(4, 1, low=0, high=4),
            whole(3, low=0, high=7),
        ),
        ("pad_1d", lambda x: (F.pad(x, (1, 2), "reflect"), F.pad(x, (2, 0), "replicate")), X),
        ("gather", lambda x, i: x.gather(1, i), X, whole(2, 4, 5, low=0, high=3)),
        ("index", lambda x, i: x[:, i], X, whole(2, 4, low=-3, high=3)),
        (
            "index_two",
            lambda x, i, j: x[i, j],
            X,
            whole(4, 1, low=0, high=2),
            whole(3, low=0, high=3),
        ),
        ("pad", lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), IMAGE),
        ("pad_crop", lambda x: F.pad(x, (-1, 2)), IMAGE),
        ("pad_reflect", lambda x: F.pad(x, (1, 2, 0, 3), "reflect"), IMAGE),
        ("pad_replicate", lambda x: F.pad(x, (1, 2, 0, 3), "replicate"), IMAGE),
        ("pad_circular", lambda x: F.pad(x, (1, 2, 0, 3), "circular"), IMAGE),
        ("flip", lambda x: x.flip(0, -1), X),
        ("roll", lambda x: x.roll((2, -1), (2, 1)), X),
        ("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), IMAGE),
        ("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 3), draw(2, 2, 6, 9)),
        ("channel_shuffle", lambda x: F.channel_shuffle(x, 2), draw(2, 6, 3, 4)),
        ("to_double", lambda x: x.double(), X),
        ("to_int", lambda x: (x * 4).to(torch.int32), X),
        ("float", lambda i: i.float(), INTS),
        ("copies", lambda x: x.clone().detach().transpose(0, 1).swapaxes(1, 2), X),
        ("contiguous", lambda x: x.transpose(0, 1).contiguous(), X),
        ("type_as", lambda x, y: x.type_as(y), INTS, X),
    ]


def _joins() -> list[Any]:
    return [
        ("cat", lambda x, y: torch.cat([x, y, x], -1), X, Y),
        ("stack", lambda x, y: torch.stack([x, y], -2), X, Y),
        ("split", lambda x: x.split(3, 2), IMAGE),
        ("split_sizes", lambda x: x.split([1, 5, 3], 3), IMAGE),
        ("chunk", lambda x: x.chunk(4, -1), IMAGE),
        ("unbind", lambda x: x.unbind(1), X),
        ("meshgrid", lambda x, y: torch.meshgrid(x, y, indexing="ij"), draw(3), draw(4)),
        ("meshgrid_xy", lambda x, y: torch.meshgrid(x, y, indexing="xy"), draw(3), draw(4)),
    ]


def _reductions() -> list[Any]:
    return [
        ("mean", lambda x: (x.mean(), x.mean((0, 2)), x.mean(1, keepdim=True)), X),
        ("sum", lambda x: (x.sum(), x.sum(-1, keepdim=True)), X),
        ("sum_of_ints", lambda i: i.sum((0, 1)), INTS.int()),
        ("mean_of_ints", lambda i: i.mean(1, dtype=torch.float32), INTS),
        ("amax", lambda x: (x.amax((1, 2)), x.amin(0, keepdim=True)), X),
        ("prod", lambda x: (x.prod(), x.prod(1)), X),
        ("logsumexp", lambda x: x.logsumexp(1), X),
        ("max_all", lambda x: (x.max(), x.min()), X),
        ("max_dim", lambda x: (*x.max(1), *x.min(-1, keepdim=True)), X),
        ("argmax", lambda x: (x.argmax(), x.argmax(1, keepdim=True), x.argmin(2)), X),
        ("any_all", lambda m: (m.any(), m.all(1), m.any(2, keepdim=True)), MASK),
        ("var", lambda x: (x.var(1), x.var((0, 2), correction=0), x.std(1, keepdim=True)), X),
        ("norm", lambda x: torch.linalg.vector_norm(x, 1, 1), X),
        ("normalize", lambda x: F.normalize(x * 0.05, dim=1), X),
        ("softmax", lambda x: (x.softmax(1), F.log_softmax(x, -1)), X),
        ("cumsum", lambda x: x.cumsum(1), X),
        ("topk", lambda x: tuple(x.topk(2, 1, largest=False)), X),
        ("sort", lambda x: tuple(x.sort(1, descending=True)), X),
    ]


def _windows() -> list[Any]:
    pool = {"stride": 2, "padding": 1, "ceil_mode": True}
    return [
        ("max_pool1d", lambda x: F.max_pool1d(x, 3, 2, 1, 1, True), draw(2, 3, 8)),
        ("max_pool2d", lambda x: F.max_pool2d(x, (3, 2), (2, 3), (1, 0), (2, 1)), EVEN),
        ("max_pool3d", lambda x: F.max_pool3d(x, 3, 2, 1), draw(2, 3, 4, 5, 6)),
        ("max_pool_unbatched", lambda x: F.max_pool2d(x, 3, **pool), draw(4, 8, 10)),
        ("avg_pool1d", lambda x: F.avg_pool1d(x, 3, 2, 1, True, False), draw(2, 3, 8)),
        ("avg_pool2d", lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 0)), EVEN),
        ("avg_pool2d_ceil", lambda x: F.avg_pool2d(x, 3, 2, 1, True, True), draw(2, 4, 8, 10)),
        ("avg_pool2d_inner", lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), draw(2, 4, 8, 10)),
        ("avg_pool3d", lambda x: F.avg_pool3d(x, 3, 2, 1), draw(2, 3, 4, 5, 6)),
        (
            "avg_pool_divisor",
            lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
            draw(2, 4, 6, 8),
        ),
        ("adaptive_avg_pool1", lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
        ("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, (3, 5)), IMAGE),
        ("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 4), draw(2, 3, 8)),
        ("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)), draw(2, 3, 4, 5, 6)),
        ("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 3), draw(2, 3, 9)),
        ("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, 1), draw(2, 3, 4, 5, 6)),
        ("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, (2, 3)), draw(2, 3, 8, 9)),
    ]


def _normalisations() -> list[Any]:
    c = (draw(4), draw(4, seed=1), draw(4, seed=2), positive(4))
    return [
        ("batch_norm", lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, eps=1e-2), IMAGE, *c),
        ("batch_norm_plain", lambda x, m, v: F.batch_norm(x, m, v), IMAGE, *c[2:]),
        (
            "instance_norm",
            lambda x, w, b: F.instance_norm(x, None, None, w, b, eps=1e-2),
            IMAGE,
            *c[:2],
        ),
        ("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b, 1e-2), IMAGE, *c[:2]),
        ("layer_norm", lambda x, w: F.layer_norm(x, (3, 5), w, eps=1e-2), X, draw(3, 5)),
        ("layer_norm_plain", lambda x: F.layer_norm(x, (5,)), X),
        ("rms_norm", lambda x, w: F.rms_norm(x, (5,), w, 1e-2), X, ROW),
    ]


def _products() -> list[Any]:
    q, k, v = draw(2, 3, 5, 8), draw(2, 3, 6, 8), draw(2, 3, 6, 7)
    attend = F.scaled_dot_product_attention
    return [
        ("mm", torch.mm, draw(3, 4), draw(4, 5)),
        ("bmm", torch.bmm, draw(2, 3, 4), draw(2, 4, 5)),
        ("matmul", torch.matmul, draw(2, 1, 3, 4), draw(6, 4, 5)),
        ("matmul_vector", torch.matmul, draw(2, 3, 4), draw(4)),
        ("linear", F.linear, draw(2, 4), draw(3, 4), draw(3)),
        ("linear_deep", F.linear, draw(2, 5, 4), draw(3, 4), draw(3)),
        (
            "addmm",
            lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2),
            draw(5),
            draw(3, 4),
            draw(4, 5),
        ),
        (
            "baddbmm",
            lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2),
            draw(2, 3, 5),
            draw(2, 3, 4),
            draw(2, 4, 5),
        ),
        (
            "einsum",
            lambda a, b: torch.einsum("bij, bkj -> bik", a, b),
            draw(2, 3, 4),
            draw(2, 5, 4),
        ),
        ("attention", attend, q, k, v),
        ("attention_scaled", lambda q, k, v, m: attend(q, k, v, m, scale=0.3), q, k, v, draw(5, 6)),
        ("attention_mask", lambda q, k, v, m: attend(q, k, v, m), q, k, v, draw(3, 5, 6) > -1),
        (
            "attention_shared_keys",
            lambda q, k, v: attend(q, k, v, enable_gqa=True),
            draw(2, 6, 5, 8),
            draw(2, 3, 4, 8),
            draw(2, 3, 4, 7),
        ),
        ("attention_causal", lambda q, k, v: attend(q, k, v, is_causal=True), q, k, v),
    ]


def _resampling() -> list[Any]:
    def resize(**options: Any) -> Any:
        return lambda x: F.interpolate(x, **options)

    line, box = draw(2, 3, 7), draw(2, 2, 3, 4, 5)
    grid = draw(2, 5, 6, 2).tanh()
    return [
        ("nearest", resize(size=(5, 13), mode="nearest"), IMAGE),
        ("nearest_scale", resize(scale_factor=(1.7, 2.3), mode="nearest"), IMAGE),
        ("nearest_exact", resize(size=(5, 13), mode="nearest-exact"), IMAGE),
        ("nearest_exact1d", resize(size=11, mode="nearest-exact"), line),
        ("nearest_exact3d", resize(size=(5, 6, 3), mode="nearest-exact"), box),
        ("nearest1d", resize(size=11, mode="nearest"), line),
        ("nearest3d", resize(size=(5, 6, 3), mode="nearest"), box),
        ("linear1d", resize(size=11, mode="linear"), line),
        ("bilinear", resize(size=(5, 13), mode="bilinear"), IMAGE),
        ("bilinear_aligned", resize(size=(5, 13), mode="bilinear", align_corners=True), IMAGE),
        ("bilinear_scale", resize(scale_factor=(1.7, 2.3), mode="bilinear"), IMAGE),
        (
            "bilinear_aligned_scale",
            resize(scale_factor=(1.7, 0.6), mode="bilinear", align_corners=True),
            IMAGE,
        ),
        ("bilinear_antialias", resize(size=(3, 5), mode="bilinear", antialias=True), IMAGE),
        ("bicubic_antialias", resize(size=(3, 5), mode="bicubic", antialias=True), IMAGE),
        ("bicubic", resize(size=(5, 13), mode="bicubic"), IMAGE),
        ("trilinear", resize(size=(5, 6, 3), mode="trilinear"), box),
        ("grid_sample", lambda x, g: F.grid_sample(x, g, align_corners=False), IMAGE, grid),
        (
            "grid_sample_border",
            lambda x, g: F.grid_sample(x, g * 1.5, "nearest", "border", True),
            IMAGE,
            grid,
        ),
    ]


def _making() -> list[Any]:
    return [
        ("arange", lambda x: x + torch.arange(1, 11, 2), X),
        ("arange_float", lambda x: x + torch.arange(0, 1, 0.2), X),
        ("zeros", lambda x: torch.cat([x, torch.zeros(2, 1, 5)], 1), X),
        ("full", lambda x: x + torch.full((3, 1), 1.5), X),
        ("new_ones", lambda x: x + x.new_ones(3, 5) - x.new_full((5,), 0.5), X),
        ("likes", lambda x: torch.full_like(x, 2.5) + torch.ones_like(x), X),
        ("tril", lambda x: (x.tril(1), x.triu(-1)), X),
        ("ones", lambda x: x + torch.ones(3, 5) + torch.scalar_tensor(0.5), X),
        ("new_zeros", lambda x: torch.cat([x, x.new_zeros(2, 3, 1)], 2), X),
        ("zeros_like", lambda x: torch.zeros_like(x) - x, X),
        ("fill", lambda x: x + x.clone().fill_(1.5), X),
        ("one_hot", lambda i: F.one_hot(i, 11), whole(2, 3, low=0, high=10)),
        ("linspace", lambda x: x + torch.linspace(0, 1, 5), X),
    ]

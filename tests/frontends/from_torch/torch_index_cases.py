"""Calls of operators that index, scatter and unfold, and of formulas over other operators."""

from __future__ import annotations

from typing import Any

from torch_programs import torch

F = torch.nn.functional
aten = torch.ops.aten


def draw(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def whole(*shape: int, low: int, high: int) -> Any:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(sum(shape)))


def different(*shape: int, axis: int) -> Any:
    """Positions along an axis, each once."""
    return draw(*shape).argsort(axis)


X = draw(2, 3, 5)
IMAGE = draw(2, 4, 7, 9)
ROWS, COLUMNS = torch.tensor([[1], [0]]), torch.tensor([4, 0, 2])
MASK = draw(2, 3, 5, seed=4) > 0


def _unpooled(x: Any) -> Any:
    y, places = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(y, places, 2, output_size=x.shape)


def index_calls() -> list[Any]:
    return [
        ("index_apart", lambda x, i, j: x[i, :, j], X, torch.tensor([1, 0]), torch.tensor([4, 0])),
        ("index_apart_behind", lambda x, i, j: x[:, i, :, j], IMAGE, ROWS, COLUMNS),
        ("index_mask", lambda x, m: x[m], X, MASK),
        ("index_mask_front", lambda x, m: x[m], X, MASK[:, :, 1]),
        ("index_mask_behind", lambda x, m: x[:, m], X, MASK[0]),
        ("masked_select", lambda x, m: torch.masked_select(x, m), X, MASK),
        (
            "nonzero",
            lambda m: (m.nonzero(), *torch.where(m), torch.argwhere(m), *aten.nonzero_numpy(m)),
            MASK,
        ),
        ("put", lambda x, i, j, v: x.index_put((i, j), v), X, ROWS, COLUMNS[1:], draw(2, 2, 5)),
        (
            "put_behind",
            lambda x, i, v: aten.index_put(x, [None, None, i], v, True),
            X,
            torch.tensor([4, 0, 4]),
            draw(3, 1),
        ),
        ("put_apart", lambda x, i, v: aten.index_put(x, [i, None, i], v), X, ROWS[:, 0], draw(3)),
        (
            "put_unsafe",
            lambda x, i, v: aten._unsafe_index_put(x, [None, i], v),
            X,
            COLUMNS[1:] // 2,
            draw(2, 2, 5),
        ),
        (
            "parts_unsafe",
            lambda x: (
                *aten.unsafe_split(x, 2, 2),
                *aten.unsafe_split_with_sizes(x, [1, 4], 2),
                *aten.unsafe_chunk(x, 2, -1),
            ),
            X,
        ),
        ("put_mask", lambda x, m, v: x.index_put((m,), v), X, MASK, torch.tensor(1.5)),
        ("put_mask_rows", lambda x, m, v: x.index_put((m,), v), X, MASK[:, :, 1], draw(5)),
        ("put_mask_add", lambda x, m, v: x.index_put((m,), v, True), X, MASK[:, :, 0], draw(1)),
        ("take_along", lambda x, i: x.take_along_dim(i, 1), X, whole(2, 4, 5, low=0, high=3)),
        ("scatter", lambda x, i, v: x.scatter(1, i, v), X, different(2, 3, 4, axis=1), X * 2),
        ("scatter_value", lambda x, i: x.scatter(2, i, 2.5), X, different(2, 2, 3, axis=2)),
        (
            "scatter_add",
            lambda x, i, v: x.scatter_add(0, i, v),
            X,
            whole(4, 3, 5, low=0, high=2),
            draw(4, 3, 5),
        ),
        (
            "scatter_reduce",
            lambda x, i, v: [x.scatter_reduce(1, i, v, r) for r in ("sum", "amax", "amin", "prod")],
            X,
            whole(2, 3, 5, low=0, high=3),
            X * 2,
        ),
        ("index_add", lambda x, i, v: x.index_add(2, i, v, alpha=0.5), X, COLUMNS, draw(2, 3, 3)),
        ("index_copy", lambda x, i, v: x.index_copy(1, i, v), X, COLUMNS[1:] // 2, draw(2, 2, 5)),
        ("index_fill", lambda x, i: x.index_fill(-1, i, 1.5), X, COLUMNS),
        ("select_scatter", lambda x, v: x.select_scatter(v, 1, -2), X, draw(2, 5)),
        ("slice_scatter", lambda x, v: x.slice_scatter(v, 2, 1, -1), X, draw(2, 3, 3)),
        ("slice_scatter_end", lambda x, v: x.slice_scatter(v, 1, 1), X, draw(2, 2, 5)),
        ("slice_scatter_step", lambda x, v: x.slice_scatter(v, 2, 0, 5, 2), X, draw(2, 3, 3)),
        ("diagonal", lambda x: x.diagonal(1, 2, 1), X),
        ("unpool", lambda x: _unpooled(x), IMAGE),
        (
            "unpool_3d",
            lambda x, i: aten.max_unpool3d(x, i, [4, 3, 5], [2, 1, 2], [0, 0, 0]),
            draw(2, 3, 2, 3, 2),
            draw(2, 3, 60).argsort(2)[:, :, :12].reshape(2, 3, 2, 3, 2),
        ),
        ("pool_places", lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), draw(2, 3, 8)),
        ("pool_places_3d", lambda x: F.max_pool3d(x, 2, return_indices=True), draw(3, 4, 5, 6)),
        ("strided", lambda x: x.transpose(0, 2).as_strided((4, 2), (3, 7), 1), X),
        ("unfold", lambda x: F.unfold(x, (3, 2), (1, 2), (1, 0), (2, 3)), IMAGE),
        ("unfold_one", lambda x: F.unfold(x, 2), draw(4, 5, 6)),
        ("fold", lambda x: F.fold(x, (7, 9), (3, 2), 1, (1, 0), (2, 3)), draw(2, 24, 12)),
        ("fold_dilated", lambda x: F.fold(x, (7, 9), 3, (2, 1), 2, 2), draw(2, 18, 24)),
        ("windows", lambda x: x.unfold(2, 3, 2).unfold(3, 2, 3), IMAGE),
        ("adaptive_max_uneven", lambda x: F.adaptive_max_pool2d(x, (3, 4)), IMAGE),
    ]


def formula_calls() -> list[Any]:
    y, row = draw(2, 3, 5, seed=1), draw(5)
    odd = torch.tensor([1.5, float("nan"), float("inf"), -float("inf")])
    return [
        ("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), X, y, row),
        ("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=2), X, y, row.abs() + 1),
        ("lerp", lambda x, y, w: (torch.lerp(x, y, 0.3), torch.lerp(x, y, w)), X, y, X.tanh()),
        ("outer", lambda a, b: (torch.outer(a, b), torch.dot(a, a)), row, draw(3)),
        ("mv", torch.mv, draw(3, 5), row),
        ("isfinite", torch.isfinite, odd),
        ("nan_to_num", lambda x: (x.nan_to_num(), x.nan_to_num(0.5, 9.0, -8.0)), odd),
        ("shrink", lambda x: (F.hardshrink(x, 0.4), F.softshrink(x, 0.3), F.tanhshrink(x)), X),
        ("rrelu", lambda x: F.rrelu(x, 0.1, 0.4), X),
        ("logaddexp", torch.logaddexp, X, y),
        ("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, 2, 2.5), X, y),
        ("weight_norm", lambda v, g: torch._weight_norm(v, g, 1), X, draw(1, 3, 1)),
        ("trunc", lambda x: (torch.trunc(x * 3), torch.frac(x)), X),
        ("other_names", lambda x, y: torch.multiply(x, y).clip(-0.5, 0.5).negative(), X, y),
        ("movedim", lambda x: (x.movedim(0, -1), x.movedim((2, 0), (0, 1))), X),
        ("tile", lambda x: x.tile(2, 3), X),
        ("repeat_interleave", lambda x: (x.repeat_interleave(3, 1), x.repeat_interleave(2)), X),
        ("view_as", lambda x, y: (x.view_as(y), x.reshape_as(y)), X, draw(6, 5)),
        ("broadcast_to", lambda x: x.broadcast_to(4, 3, 5), draw(3, 1)),
        ("split_uneven", lambda x: x.split([2, 3], -1), X),
        ("roll_flat", lambda x: x.roll(4), X),
        ("channel_shuffle_1d", lambda x: F.channel_shuffle(x, 3), draw(2, 6, 4)),
        ("var_mean", lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, 2, correction=0)), X),
        ("aminmax", lambda x: (*x.aminmax(dim=1), *x.aminmax()), X),
        ("count_nonzero", lambda m: (m.count_nonzero(), m.count_nonzero((0, 2))), MASK),
        ("norm_of_order", lambda x: torch.linalg.vector_norm(x, float("inf"), 1), X),
        ("argmax_flat", lambda x: x.argmax(keepdim=True), X),
        ("cumprod", lambda x: x.cumprod(1), X),
        ("argsort", lambda x: (x.argsort(1), x.argsort(2, descending=True)), X),
        ("empty", lambda x: (torch.empty(3, 5).fill_(0.5) + x, torch.empty_like(x).zero_()), X),
        ("empty_permuted", lambda x: torch.empty_permuted((3, 5), (1, 0)).fill_(1.5) * x, X),
        ("new_empty", lambda x: x.new_empty(3, 5).fill_(1.5) * x, X),
        ("eye", lambda x: x @ torch.eye(5, 4), X),
        ("max_other", lambda x, y: (torch.max(x, y), torch.min(x, y)), X, y),
        (
            "batch_statistics",
            lambda x, w, b: F.batch_norm(x, None, None, w, b, True, eps=1e-2),
            IMAGE,
            draw(4),
            draw(4, seed=1),
        ),
        ("safe_softmax", lambda x: aten._safe_softmax(x, 1), torch.where(MASK, X, -torch.inf)),
    ]


def order_calls() -> list[Any]:
    """Angles, distances and order."""
    y = draw(2, 3, 5, seed=1)
    signs = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0])
    sorted_ = torch.tensor([-1.0, -0.25, 0.5, 0.5, 1.5])
    return [
        ("atan2", torch.atan2, X, y),
        ("erfinv", lambda x: torch.erfinv(torch.tanh(x)), X),
        ("unique", lambda x: torch.unique(torch.floor(x)), X),
        ("unique_dim", lambda x: torch.unique(torch.floor(x), dim=0), X),
        ("unique_consecutive", lambda x: torch.unique_consecutive(torch.floor(x)), X),
        ("xlogy", lambda x: torch.xlogy(x, x.abs()), X),
        ("xlogy_of_a_number", lambda x: torch.xlogy(0.0, x) + torch.xlogy(2.5, x.abs()), X),
        ("xlogy_with_a_number", lambda x: torch.xlogy(x, 2.5), X.relu()),
        ("xlog1py_of_a_number", lambda x: torch.special.xlog1py(1.5, x.abs()), X),
        ("xlog1py_with_a_number", lambda x: torch.special.xlog1py(x, 1.5), X),
        ("xlog1py", lambda x: torch.special.xlog1py(x, x.abs()), X),
        ("atan2_quadrants", torch.atan2, signs[:, None], signs),
        ("hypot", torch.hypot, torch.cat((X, 0 * X)), torch.cat((y, 0 * y))),
        ("hypot_of_large_ones", torch.hypot, X * 1e37, y * 1e30),
        *(
            (f"cdist_{p}", lambda a, b, p=p: torch.cdist(a, b, p), X, draw(2, 4, 5))
            for p in (1.0, 2.0, 3.0, float("inf"))
        ),
        ("cdist_forward", lambda a, b: aten._cdist_forward(a, b, 2.0, None), X, draw(2, 4, 5)),
        ("pdist", lambda a: F.pdist(a, 1.0), draw(4, 3)),
        ("pdist_forward", lambda a: aten._pdist_forward(a, 2.0), draw(4, 3)),
        ("bilinear_form", F.bilinear, X, draw(2, 3, 4), draw(6, 5, 4), draw(6)),
        ("bilinear_form_alone", F.bilinear, X, draw(2, 3, 4), draw(6, 5, 4)),
        (
            "trilinear_form",
            lambda a, b, c: aten._trilinear(a, b, c, [1, 3], [0], [1, 2], [2, 3]),
            draw(2, 5),
            draw(6, 5, 4),
            draw(2, 4),
        ),
        ("median", lambda x: x.median(1)[0], draw(2, 4, 5)),
        ("median_kept", lambda x: x.median(-1, keepdim=True).values, X),
        ("kthvalue", lambda x: x.kthvalue(2, 1).values, X),
        ("searchsorted", lambda s, v: torch.searchsorted(s, v), sorted_, X.round(decimals=1)),
        (
            "bucketize",
            lambda v, s: torch.bucketize(v, s, out_int32=True, right=True),
            torch.cat((sorted_, X[0, 0])),
            sorted_,
        ),
    ]

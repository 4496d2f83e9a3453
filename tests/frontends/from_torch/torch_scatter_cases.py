"""Calls of operators that write into a copy, and of others that PyTorch's own tests have."""

from __future__ import annotations

from typing import Any

from torch_index_cases import draw, whole
from torch_programs import torch

F = torch.nn.functional
aten = torch.ops.aten
X = draw(2, 3, 5)
NUMBER = torch.tensor(-1.5)
ENDS = torch.tensor([3, 3, 8, 10], dtype=torch.int32)


def _reduced(name: str, itself: bool) -> Any:
    return lambda x, i, v: x.scatter_reduce(1, i, v, name, include_self=itself)


def _slices(name: str, itself: bool) -> Any:
    return lambda x, i, v: x.index_reduce(1, i, v, name, include_self=itself)


def _grouped(a: Any, b: Any, ends: Any) -> Any:
    """PyTorch has them in bfloat16 alone."""
    return F.grouped_mm(a.bfloat16(), b.bfloat16(), offs=ends).float()


def scatter_calls() -> list[Any]:
    places, updates = whole(2, 4, 5, low=0, high=3), draw(2, 4, 5, seed=2)
    lines, integers = torch.tensor([2, 0, 2]), whole(2, 3, 5, low=-9, high=9)
    return [
        *(
            (f"scatter_reduce_{name}_{itself}", _reduced(name, itself), X, places, updates)
            for name in ("sum", "prod", "amax", "amin", "mean")
            for itself in (True, False)
        ),
        (
            "scatter_reduce_whole",
            _reduced("amax", False),
            integers,
            places,
            whole(2, 4, 5, low=-9, high=9),
        ),
        *(
            (f"index_reduce_{name}_{itself}", _slices(name, itself), X, lines, draw(2, 3, 5))
            for name in ("prod", "amax", "amin", "mean")
            for itself in (True, False)
        ),
        (
            "put_flat",
            lambda x, i, v: (x.put(i, v), x.put(i, v, accumulate=True)),
            X,
            torch.tensor([[4, -1, 0], [29, 7, 11]]) % 30,
            draw(2, 3),
        ),
        (
            "diagonal_scatter",
            lambda x, v: aten.diagonal_scatter(x, v, -1, 2, 1),
            X,
            draw(2, 3),
        ),
        (
            "as_strided_scatter",
            lambda x, v: aten.as_strided_scatter(x, v, (3, 2), (7, 4), 2),
            X,
            draw(3, 2),
        ),
        ("unfold_copy", lambda x: aten.unfold_copy(x, 2, 2, 1), X),
        ("resize_shorter", lambda x: aten.resize(x * 2, (4, 3)), X),
        ("resize_as", lambda x, y: aten.resize_as(x * 2, y), X, draw(5, 6)),
        ("nonzero_static", lambda x: torch.nonzero_static(x > 0, size=9, fill_value=7), draw(2, 3)),
        ("masked_select_wide", torch.masked_select, X, draw(3, 1, seed=5) > 0),
        ("meshgrid_of_numbers", lambda a, b: torch.meshgrid(a, b, indexing="ij"), NUMBER, draw(4)),
        ("angle_of_real", torch.angle, torch.tensor([-1.5, 0.0, 2.0, float("nan")])),
        (
            "bits_shifted",
            lambda x, y: (
                x << y,
                x >> y,
                x << 3,
                x >> 1,
                aten.bitwise_left_shift(x, y),
                aten.bitwise_right_shift(x, y),
            ),
            whole(2, 5, low=-90, high=90),
            whole(5, low=0, high=6),
        ),
        (
            "bits_of_a_number",
            lambda y: (aten.bitwise_right_shift(-700, y), aten.bitwise_left_shift(5, y)),
            torch.tensor([[0, 1, 5], [2, 0, 3]]),
        ),
        (
            "bits_by_a_number",
            lambda x: (aten.bitwise_right_shift(x, 2), aten.bitwise_left_shift(x, 2)),
            whole(2, 5, low=-90, high=9),
        ),
        ("cdist_of_order_0", lambda a, b: torch.cdist(a, b, 0.0), X.round(), draw(2, 4, 5).round()),
        (
            "distance_of_order_-1",
            lambda a, b: F.pairwise_distance(a, b, -1.0),
            X,
            draw(2, 3, 5) + 4,
        ),
        (
            "searchsorted_lines",
            lambda s, v: (torch.searchsorted(s, v), torch.searchsorted(s, v, side="right")),
            X.sort(2)[0],
            torch.cat((X, draw(2, 3, 2, seed=8)), 2),
        ),
        (
            "pool_of_a_divisor_ceil",
            lambda x: F.avg_pool2d(x, (3, 2), (2, 3), 1, ceil_mode=True, divisor_override=5),
            draw(2, 3, 8, 10),
        ),
        (
            "adaptive_max_pool_indices",
            lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True),
            draw(2, 3, 7, 10),
        ),
        (
            "adaptive_max_pool_indices_without_batch",
            lambda x: F.adaptive_max_pool1d(x, 3, return_indices=True),
            draw(3, 8),
        ),
        *(
            (f"grouped_mm_{name}", _grouped, a, b, offs)
            for name, a, b, offs in (
                ("rows", draw(10, 16), draw(4, 16, 8), ENDS),
                ("columns", draw(4, 8, 16), draw(16, 10).T.contiguous().T, ENDS),
            )
        ),
    ]

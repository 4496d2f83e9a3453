"""Calls of operators that are simpler ones: losses, running extremes, diagonals, ..."""

from __future__ import annotations

import math
from typing import Any

from torch_programs import torch

F, aten = torch.nn.functional, torch.ops.aten


def draw(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


X, Y = draw(3, 5), draw(3, 5, seed=1)
PROBABILITIES, SIGNS = draw(3, 5, seed=2).sigmoid(), draw(3, 5, seed=3).sign()
ZEROS = torch.tensor([[0.0, -0.0, 1.5], [-2.0, math.inf, -math.inf]])
GAPS = (
    torch.tensor([1.0, math.nan, -2.0, math.nan, 4.0]),
    torch.tensor([math.nan, 2.0, 3.0, math.nan, -4.0]),
)
TIES = torch.tensor([[1, 3, 3, 2, 5, 5, 4], [7, 0, 7, 1, 7, 8, 2]], dtype=torch.float32)
CLASSES = torch.tensor([4, 0, 2])
WHOLE = torch.tensor([[3, -7, 2], [0, 5, -1]])


def composite_calls() -> list[Any]:
    calls = [*_losses(), *_elements(), *_places(), *_products()]
    return [(f"composite_{name}", *rest) for name, *rest in calls]


def _losses() -> list[Any]:
    pairs = {
        "mse": F.mse_loss,
        "l1": F.l1_loss,
        "smooth_l1": lambda x, y, reduction: F.smooth_l1_loss(x, y, beta=0.7, reduction=reduction),
        "huber": lambda x, y, reduction: F.huber_loss(x, y, delta=0.6, reduction=reduction),
        "soft_margin": lambda x, y, reduction: F.soft_margin_loss(x, y, reduction=reduction),
        "hinge": lambda x, y, reduction: F.hinge_embedding_loss(
            x, y.sign(), margin=0.8, reduction=reduction
        ),
    }
    kinds = ("none", "mean", "sum")
    found: list[Any] = [
        (f"{name}_{how}", lambda x, y, f=f, how=how: f(x, y, reduction=how), X, Y)
        for name, f in pairs.items()
        for how in (kinds if name in ("mse", "huber") else kinds[:2])
    ]
    weight = draw(5).abs()
    image, places = draw(2, 5, 3, 4), torch.arange(24).view(2, 3, 4) % 5
    found += [
        ("kl_div", lambda x, y: F.kl_div(x, y, reduction="sum"), X, PROBABILITIES),
        ("kl_div_log", lambda x, y: F.kl_div(x, y, reduction="mean", log_target=True), X, Y),
        (
            "bce",
            lambda x, y, w: F.binary_cross_entropy(x, y, w, reduction="none"),
            *(PROBABILITIES, Y.sigmoid(), weight),
        ),
        (
            "bce_logits",
            lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=p),
            *(X, PROBABILITIES, weight, weight + 1),
        ),
        ("bce_logits_plain", F.binary_cross_entropy_with_logits, X, PROBABILITIES),
        (
            "margin_ranking",
            lambda a, b, y: F.margin_ranking_loss(a, b, y, margin=0.3, reduction="sum"),
            *(X, Y, SIGNS),
        ),
        ("nll", lambda x, w: F.nll_loss(x, CLASSES, w, ignore_index=2), X, weight),
        ("nll_none", lambda x, y: F.nll_loss(x, y, reduction="none", ignore_index=0), X, CLASSES),
        ("nll_image", lambda x, y: F.nll_loss(x, y, ignore_index=3), image, places),
        (
            "multilabel_margin",
            lambda x, y: F.multilabel_margin_loss(x, y, reduction="sum"),
            *(X, torch.tensor([[1, 0, -1, 2, 3], [4, -1, 0, 0, 0], [2, 3, 4, -1, 1]])),
        ),
        ("nll_core", lambda x, y: aten.nll_loss(x, y, None, 2, 0), X, CLASSES),
        ("nll_core_image", lambda x, y: aten.nll_loss2d(x, y, None, 1, 3), image, places),
        ("cross_entropy", lambda x, y: F.cross_entropy(x, y, ignore_index=0), X, CLASSES),
        (
            "cross_entropy_sum",
            lambda x, y: F.cross_entropy(x, y, reduction="sum", ignore_index=2),
            image,
            places,
        ),
        ("cross_entropy_of_chances", F.cross_entropy, X, PROBABILITIES),
    ]
    return found


def _elements() -> list[Any]:
    return [
        ("fmax", torch.fmax, *GAPS),
        ("fmin", torch.fmin, *GAPS),
        ("fmax_whole", torch.fmax, WHOLE, WHOLE.flip(1)),
        ("signbit", torch.signbit, ZEROS),
        ("signbit_whole", torch.signbit, WHOLE),
        ("copysign", torch.copysign, draw(2, 3), ZEROS),
        ("copysign_number", lambda x: torch.copysign(x, -0.5), X),
        ("deg2rad", torch.deg2rad, X * 90),
        ("rad2deg", torch.rad2deg, X),
        ("ldexp", torch.ldexp, draw(2, 3), WHOLE),
        ("logaddexp2", torch.logaddexp2, X, Y),
        ("heaviside", torch.heaviside, ZEROS, draw(3)),
        (
            "isclose",
            lambda x, y: torch.isclose(x, y, rtol=0.2, atol=0.1, equal_nan=True),
            *(torch.cat([X[0], GAPS[0]]), torch.cat([X[0] + 0.3, GAPS[0]])),
        ),
        ("isclose_missing", torch.isclose, GAPS[0], GAPS[0] * 1.1),
        ("isclose_whole", lambda x: torch.isclose(x, x + 1, rtol=0.3, atol=0.0), WHOLE),
        ("sinc", torch.sinc, torch.cat([X.flatten(), torch.zeros(2)])),
        ("float_powers", torch.float_power, PROBABILITIES, Y),
        ("float_power_base", lambda x: torch.float_power(1.7, x), X),
        ("float_power", lambda x: torch.float_power(x, 1.7), PROBABILITIES),
        ("round_decimals", lambda x: torch.round(x, decimals=1), X),
        ("round_tens", lambda x: torch.round(x, decimals=-1), X * 40),
        ("isin", lambda x, y: torch.isin(x, y), WHOLE, torch.tensor([[2, 5], [9, 0]])),
        ("isin_invert", lambda x, y: torch.isin(x, y, invert=True), WHOLE, torch.tensor([2, 5])),
    ]


def _places() -> list[Any]:
    return [
        ("fliplr", torch.fliplr, X),
        ("flipud", torch.flipud, X),
        *(
            (f"rot90_{k}", lambda x, k=k: torch.rot90(x, k, (1, 2)), draw(2, 3, 5))
            for k in range(4)
        ),
        ("take", lambda x, i: torch.take(x, i), X, torch.tensor([[3, -2], [0, 14]])),
        ("broadcast_tensors", torch.broadcast_tensors, X, draw(2, 1, 1), draw(5)),
        ("block_diag", torch.block_diag, X, draw(2, 4), draw(3)),
        *((f"diag_embed_{k}", lambda x, k=k: torch.diag_embed(x, k), X) for k in (0, 2, -1)),
        *((f"diag_{k}", lambda x, k=k: torch.diag(x, k), X) for k in (0, 1, -2)),
        ("diag_vector", lambda x: torch.diag(x, -1), draw(4)),
        ("median_whole", torch.median, draw(2, 5)),
        ("median_missing", torch.median, GAPS[0]),
        *((f"cummax_{d}", lambda x, d=d: tuple(torch.cummax(x, d)), TIES) for d in (0, 1)),
        ("cummin", lambda x: tuple(torch.cummin(x, 1)), TIES),
        ("cummax_whole", lambda x: tuple(torch.cummax(x, 1)), WHOLE),
        ("logcumsumexp", lambda x: torch.logcumsumexp(x, 1), draw(3, 6)),
    ]


def _products() -> list[Any]:
    batch = draw(2, 3, 4), draw(2, 4, 5)
    return [
        ("addmv", lambda b, m, v: torch.addmv(b, m, v, beta=0.5, alpha=1.5), draw(3), X, draw(5)),
        ("addr", lambda b, u, v: torch.addr(b, u, v, beta=0.5, alpha=1.5), X, draw(3), draw(5)),
        ("addbmm", lambda b, u, v: torch.addbmm(b, u, v, beta=0.5, alpha=1.5), X, *batch),
        (
            "addmm_alone",
            lambda b, x, y: torch.addmm(b, x, y, beta=0, alpha=1.5),
            *(torch.full((3, 5), math.nan), draw(3, 4), draw(4, 5)),
        ),
        (
            "baddbmm_alone",
            lambda b, x, y: torch.baddbmm(b, x, y, beta=0),
            *(torch.full((2, 3, 5), math.nan), *batch),
        ),
        (
            "addr_alone",
            lambda b, u, v: torch.addr(b, u, v, beta=0, alpha=0.5),
            *(torch.full((3, 5), math.nan), draw(3), draw(5)),
        ),
        ("vdot", torch.vdot, draw(5), draw(5, seed=1)),
        ("cross", lambda x, y: torch.linalg.cross(x, y, dim=0), X, Y),
        ("cross_first", lambda x, y: torch.cross(x, y, dim=1), draw(2, 3), draw(2, 3, seed=1)),
        (
            "pairwise_distance",
            lambda x, y: F.pairwise_distance(x, y, p=3.0, eps=0.01, keepdim=True),
            *(X, Y),
        ),
        ("norm_whole", lambda x: aten.norm.Scalar(x, 1.5), X),
        ("dist", lambda x, y: torch.dist(x, y, 1.5), X, Y),
    ]

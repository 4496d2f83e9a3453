"""Calls of operators that PyTorch's own tests have and networks seldom: divisors, polynomials,
bins, segments."""

from __future__ import annotations

import math
from typing import Any

from torch_index_cases import draw, whole
from torch_programs import torch

F, aten, special = torch.nn.functional, torch.ops.aten, torch.special
X = draw(2, 3, 5)
POLYNOMIALS = (
    *("chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v"),
    *("chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he"),
    *("laguerre_polynomial_l", "legendre_polynomial_p", "shifted_chebyshev_polynomial_t"),
    *("shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v"),
    "shifted_chebyshev_polynomial_w",
)
DEGREES = torch.tensor([[-1.0, 0.0, 1.0, 2.0, 5.0], [3.0, 0.7, 4.2, 1.9, -0.5]])


def _polynomials() -> list[Any]:
    found: list[Any] = []
    for name in POLYNOMIALS:
        own = getattr(special, name)
        found += [
            (name, lambda x, own=own: tuple(own(x, n) for n in (-1, 0, 1, 2, 5)), X),
            (f"{name}_computed", lambda x, n, own=own: own(x, n), draw(2, 5), DEGREES),
            (f"{name}_of_a_number", lambda n, own=own: own(0.625, n), DEGREES),
        ]
    return found


def special_calls() -> list[Any]:
    integers = whole(2, 3, 5, low=-40, high=40)
    mask = draw(2, 3, 5, seed=3) > 0.3
    return [
        (
            "divisors",
            lambda i, j: (torch.gcd(i, j), torch.lcm(i, j)),
            integers,
            whole(5, low=-9, high=40),
        ),
        ("divisors_of_bytes", torch.gcd, integers.to(torch.int8), integers.flip(1).to(torch.int8)),
        ("erfc", torch.erfc, X),
        *_polynomials(),
        ("roll_of_nothing", lambda x: (x.roll(3, 1), x.roll(2)), torch.empty(2, 0, 5)),
        ("masked_scatter_wider", torch.masked_scatter, draw(3, 1), mask, draw(40)),
        ("masked_scatter_of_a_row", torch.masked_scatter, draw(5), mask, draw(40)),
        (
            "replicate_and_crop",
            lambda x: (
                F.pad(x, (-4, 5), mode="replicate"),
                F.pad(x, (-1, -2), mode="replicate"),
                F.pad(x[None], (2, -6, -2, 3), mode="replicate"),
            ),
            X,
        ),
        *_counts(),
    ]


def _counts() -> list[Any]:
    small, gaps = whole(9, low=0, high=6), X.masked_fill(draw(2, 3, 5, seed=9) > 0.4, math.nan)
    gaps[0, 1] = math.nan
    lengths, by_line = torch.tensor([2, 0, 4, 1]), torch.tensor([[1, 0, 4], [3, 2, 0]])
    line, rows = draw(7), draw(2, 5, 3)

    def segments(how: str, initial: Any) -> Any:
        return lambda x, n: torch.segment_reduce(x, how, lengths=n, initial=initial)

    return [
        ("bincount", lambda i: torch.bincount(i, minlength=11), small),
        ("bincount_weighed", lambda i, w: torch.bincount(i, w, 8), small, draw(9)),
        ("bincount_of_none", lambda i: torch.bincount(i, minlength=3), small[:0]),
        ("repeats", lambda x, n: x.repeat_interleave(n, 1), X, torch.tensor([2, 0, 3])),
        ("repeats_of_all", lambda x, n: x.repeat_interleave(n), X[:, 0, :2], torch.tensor([2])),
        ("repeats_of_places", torch.repeat_interleave, torch.tensor([2, 0, 3])),
        ("histogram", lambda x: tuple(torch.histogram(x, 5)), X),
        ("histogram_range", lambda x: tuple(torch.histogram(x, 4, range=(-1.0, 0.75))), X),
        (
            "histogram_density",
            lambda x, w: tuple(torch.histogram(x, 3, weight=w, density=True)),
            *(X, X.abs()),
        ),
        (
            "histogram_of_ends",
            lambda x, e: tuple(torch.histogram(x, e)),
            *(X, torch.tensor([-2.0, -0.25, 0.5, 3.0])),
        ),
        *(
            (f"segment_{how}_{initial}", segments(how, initial), line, lengths)
            for how in ("sum", "mean", "max", "min", "prod")
            for initial in (None, 0.5)
            if (how, initial) != ("mean", None)
        ),
        ("segment_mean", segments("mean", None), line, torch.tensor([2, 1, 3, 1])),
        (
            "segments_by_line",
            lambda x, n: torch.segment_reduce(x, "mean", lengths=n, axis=1, initial=2.0),
            *(rows, by_line),
        ),
        (
            "segments_by_offsets",
            lambda x, e: torch.segment_reduce(x, "max", offsets=e, initial=-0.5),
            *(line, torch.tensor([0, 2, 2, 7])),
        ),
        (
            "mode",
            lambda i: (i.mode(1).values, i.mode(-1, keepdim=True).values),
            whole(2, 6, 9, low=-3, high=4),
        ),
        ("mode_of_floats", lambda x: x.round().mode().values, X),
        ("mode_of_one", lambda x: tuple(x.mode()), torch.tensor(2.5)),
        ("nanmedian", torch.nanmedian, gaps),
        ("nanmedian_axis", lambda x: x.nanmedian(2).values, gaps),
        ("nanmedian_kept", lambda x: x.nanmedian(1, keepdim=True).values, gaps),
        ("nanmedian_of_integers", lambda i: i.nanmedian(0).values, whole(6, 4, low=-9, high=9)),
        (
            "multilabel_margin_of_numbers",
            lambda x, i: F.multilabel_margin_loss(x, i),
            *(torch.tensor(2.5), torch.tensor(0)),
        ),
        (
            "native_batch_norm",
            lambda x, w, b, m, v: torch.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-3),
            *(X, draw(3), draw(3, seed=1), draw(3, seed=2), draw(3, seed=3).abs()),
        ),
        ("half_complex", lambda x: torch.view_as_real(x.chalf()), X),
    ]

"""Calls of operators that collect elements by places that data tell."""

from __future__ import annotations

from typing import Any

from torch_programs import torch

F, aten = torch.nn.functional, torch.ops.aten


def draw(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


TABLE = draw(7, 3)
INDICES, OFFSETS = torch.tensor([2, 6, 0, 2, 5, 1, 4, 3]), torch.tensor([0, 3, 3, 7])
"""The second bag is empty."""
MASK = draw(4, 5, seed=3) > 0


def _core(table: Any, indices: Any, offsets: Any) -> Any:
    given = (table, indices, offsets, False, 1, False, None, False, 2)
    return aten._embedding_bag(*given)[0], aten._embedding_bag_forward_only(*given)[0]


def bag_calls() -> list[Any]:
    return [
        *(
            (
                f"bag_{mode}",
                lambda w, i, o, mode=mode: F.embedding_bag(i, w, o, mode=mode, padding_idx=2),
                TABLE,
                INDICES,
                OFFSETS,
            )
            for mode in ("sum", "mean", "max")
        ),
        (
            "bag_default",
            lambda w, i, o, s: aten.embedding_bag(w, i, o, False, 0, False, s, True)[0],
            TABLE,
            INDICES,
            torch.cat([OFFSETS, torch.tensor([8])]),
            draw(8),
        ),
        ("bag_core", _core, TABLE, INDICES, OFFSETS),
        ("masked_scatter", lambda x, m, s: x.masked_scatter(m, s), draw(4, 5), MASK, draw(3, 8)),
        ("histc", lambda x: torch.histc(x, 6, -1.0, 0.8), draw(3, 9)),
    ]

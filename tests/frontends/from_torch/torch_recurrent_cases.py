"""Calls of ATen's recurrent layers: weights are inputs, so that gates are reordered by nodes."""

from __future__ import annotations

from typing import Any

from torch_programs import torch

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}


def _draw(seed: int, *shape: int) -> Any:
    return 0.5 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _layers(
    seed: int, kind: str, layers: int, directions: int, *, biased: bool, proj: int = 0
) -> list[Any]:
    """Parameters of layers of 4 units on 3 features, as torch.nn lists them."""
    rows, out = GATES[kind] * 4, proj or 4
    found = []
    for i in range(layers * directions):
        size = 3 if i < directions else out * directions
        shapes: list[tuple[int, ...]] = [(rows, size), (rows, out)]
        shapes += [(rows,), (rows,)] if biased else []
        shapes += [(proj, 4)] if proj else []
        found += [_draw(seed + 10 * i + j, *s) for j, s in enumerate(shapes)]
    return found


def _call(
    seed: int, kind: str, layers: int, both: bool, first: bool, *, biased: bool = True,
    proj: int = 0, dropout: float = 0.0,
) -> tuple[Any, ...]:  # fmt: skip
    """(label, function, input, states, parameters)"""
    directions, states = 1 + both, 2 if kind == "lstm" else 1
    x = _draw(seed, *((2, 5, 3) if first else (5, 2, 3)))
    sizes = (proj or 4, 4)[:states]
    initial = [_draw(seed + 1 + i, layers * directions, 2, n) for i, n in enumerate(sizes)]
    params = _layers(seed + 5, kind, layers, directions, biased=biased, proj=proj)
    layer = getattr(torch, kind)

    def function(x: Any, *rest: Any) -> Any:
        hx = rest[:2] if states == 2 else rest[0]
        weights = list(rest[states:])
        return layer(x, hx, weights, biased, layers, dropout, False, both, first)

    label = f"{kind}_{layers}{'_both' * both}{'_first' * first}{'_proj' * bool(proj)}"
    return label, function, x, *initial, *params


def recurrent_calls() -> list[Any]:
    cells = []
    for kind, gates in GATES.items():
        x, h, c = _draw(31, 2, 3), _draw(32, 2, 4), _draw(33, 2, 4)
        own = [_draw(34 + i, *s) for i, s in enumerate([(gates * 4, 3), (gates * 4, 4)])]
        own += [_draw(36 + i, gates * 4) for i in range(2)]
        cell = getattr(torch, f"{kind}_cell")
        if kind == "lstm":
            cells.append(
                (f"{kind}_cell", lambda x, h, c, *w, f=cell: f(x, (h, c), *w), x, h, c, *own)
            )
        else:
            cells.append((f"{kind}_cell", lambda x, h, *w, f=cell: f(x, h, *w), x, h, *own))
    return [
        _call(100, "rnn_tanh", 1, False, False, biased=False),
        _call(200, "rnn_relu", 2, True, True, dropout=0.25),
        _call(300, "gru", 1, False, True),
        _call(400, "gru", 2, True, False),
        _call(500, "lstm", 1, False, False),
        _call(600, "lstm", 2, True, True, dropout=0.25),
        _call(700, "lstm", 2, True, False, proj=2, biased=False),
        *cells,
    ]

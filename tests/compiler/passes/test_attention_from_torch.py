"""Attention as PyTorch's programs have it, and as networks write it out, ends as one operator."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.compiler.test_bits import bits

import verax
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ops.sums.attention import Attention
from verax.reference import promised

torch = pytest.importorskip("torch", reason="torch is not installed")
attend = torch.nn.functional.scaled_dot_product_attention
HEADS = ((2, 6, 7, 8), (2, 6, 9, 8), (2, 6, 9, 5))
SHARED = ((2, 6, 7, 8), (2, 2, 9, 8), (2, 2, 9, 5))


def drawn(seed: int, *shapes: tuple[int, ...]) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(s, generator=generator) for s in shapes)


def written_out(x: Any, *weights: Any) -> Any:
    """A layer of BERT: [batch, rows, heads * features]."""
    q, k, v = ((x @ w).view(*x.shape[:2], 4, -1).transpose(1, 2) for w in weights)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    y = torch.softmax(scores, -1) @ v
    return y.transpose(1, 2).reshape(*x.shape[:2], -1)


def masked(q: Any, k: Any, v: Any, m: Any) -> Any:
    return attend(q, k, v, m > 0)


FORMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "plain": (lambda q, k, v: attend(q, k, v), drawn(1, *HEADS), ""),
    "scaled": (lambda q, k, v: attend(q, k, v, scale=0.3), drawn(2, *HEADS), ""),
    "a mask": (lambda q, k, v, m: attend(q, k, v, m), drawn(3, *HEADS, (2, 1, 1, 9)), ""),
    "truths": (masked, drawn(4, *HEADS, (2, 1, 7, 9)), ""),
    "causal": (lambda q, k, v: attend(q, k, v, is_causal=True), drawn(5, *HEADS), "causal"),
    "shared": (lambda q, k, v: attend(q, k, v, enable_gqa=True), drawn(6, *SHARED), ""),
    "written out": (written_out, drawn(7, (2, 7, 24), *[(24, 24)] * 3), "qkvy"),
}


class Net(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


@pytest.mark.parametrize("name", FORMS)
def test_it_is_one_operator_from_o1_on(name: str) -> None:
    function, inputs, shows = FORMS[name]
    model = verax.load(Net(function).eval(), inputs=inputs)
    feeds = dict(zip(model.graph.inputs, (t.numpy() for t in inputs)))
    wanted = promised(model.graph, feeds)
    for level in (1, 3):
        exe = compile(model.graph, Settings(opt_level=level, threads=1))
        got = exe.run(feeds)
        nodes = exe.specialized.graph.nodes
        (op,) = (n.op for n in nodes if isinstance(n.op, Attention))
        assert shows in str(op)
        assert not {"Softmax", "Gather", "Expand"} & {n.op.kind for n in nodes}
        assert not exe.plan.on_reference
        if level == 1:
            for value, array in wanted.items():
                assert bits(got[value]) == bits(np.asarray(array))

"""Operators along an axis of a tensor without axes: PyTorch takes a number for a line of one."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch_programs import agree, arrays, export, saved, torch

import verax
from verax.frontends.torch import load_torch

aten = torch.ops.aten


def single(x: Any, i: Any) -> Any:
    """Every one of these takes a number for a line of one element."""
    return (
        *x.aminmax(), *x.max(0), *x.min(0, keepdim=True), *x.topk(1), x.cumsum(0),
        x.cumprod(0), x.logsumexp(0, keepdim=True), x.index_select(0, i), x.gather(0, i),
        x.unfold(0, 1, 1), aten.unfold_copy(x, 0, 1, 1), x.norm(dim=0), x.sort(0)[0],
    )  # fmt: skip


def test_a_number_is_a_line_of_one_element() -> None:
    tensors = (torch.tensor(-1.5), torch.tensor(0))
    program = export(single, tensors)
    model = load_torch(saved(program))
    wanted = list(program.module()(*tensors))
    agree(model, arrays(model, tensors), wanted)
    found = verax.compile(model).run(arrays(model, tensors))
    for name, tensor in zip(model.outputs, wanted, strict=True):
        np.testing.assert_array_equal(found[name], tensor.numpy())
        assert found[name].shape == tuple(tensor.shape)

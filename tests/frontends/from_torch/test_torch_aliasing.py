"""Writing in place, through views and in sub-programs that set a mode."""

from __future__ import annotations

from typing import Any

import pytest
from torch_programs import Call, agree, arrays, export, saved, torch

from verax.base.errors import UnsupportedError
from verax.frontends.torch import load_torch
from verax.frontends.torch.aliasing import VIEWS
from verax.frontends.torch.table import TABLE

X, Y = torch.randn(2, 2, 3, 4, 5, generator=torch.Generator().manual_seed(6))


def means_what_torch_computes(function: Any, *inputs: Any) -> None:
    """The program as exported, with all that it writes in place, against running it."""
    module = Call(function)
    with torch.no_grad():
        want = module(*(x.clone() for x in inputs))
    outputs = list(want) if isinstance(want, tuple) else [want]
    model = load_torch(saved(export(module, inputs)))
    agree(model, arrays(model, inputs), outputs)


def plain(x: Any) -> Any:
    y = x * 2
    y.add_(1)
    y.relu_()
    return y + x, y


def chained(x: Any) -> Any:
    y = x * 2
    z = y.add_(1).relu_()
    y.mul_(3)
    return z, y


def below_a_view(x: Any) -> Any:
    y = x * 2
    view = y[0]
    y.add_(1)
    return view


def parts(x: Any, y: Any) -> Any:
    """As decoders of detectors write boxes."""
    z = x.sigmoid()
    z[..., 0:2] = (z[..., 0:2] * 2 - 0.5 + y[..., 0:2]) * 8
    z[..., 2:4] = z[..., 2:4] ** 2
    return z


def single(x: Any) -> Any:
    y = torch.zeros_like(x)
    y[:, 1] = x[:, 2]
    y[:, :, -1].add_(x[:, :, 0])
    return y


def through_several(x: Any) -> Any:
    y = x * 2
    rows = y.transpose(1, 3).permute(1, 0, 3, 2).select(1, -1)
    flat = y.view(2, -1)
    rows.narrow(1, 1, 2).mul_(-1)
    flat[:, 3] = 0
    return y, rows, flat


def split(x: Any) -> Any:
    y = x * 2
    first, second = y.split([2, 3], -1)
    second.mul_(-3)
    for i, part in enumerate(y.unbind(1)):
        part.add_(i)
    return y, first


def squeezed(x: Any) -> Any:
    y = x * 2
    y.unsqueeze(1).squeeze(1).flatten(2).sigmoid_()
    return y


def dense_or_not(x: Any) -> Any:
    """What must be copied is not written through."""
    y = x * 2
    copied = y.transpose(1, 2).contiguous()
    copied.add_(1)
    reshaped = y.transpose(0, 1).reshape(-1)
    reshaped.mul_(5)
    shown = y.contiguous().reshape(-1)
    shown.sub_(3)
    return y, copied, reshaped


def masked(x: Any) -> Any:
    y = x * 2
    y[y < 0] = 0.25
    y[:, torch.tensor([2, 0])] = 1.5
    y.masked_fill_(x > 1, -1)
    return y


def accumulated(x: Any, y: Any) -> Any:
    total = torch.zeros(2, 7, 4, 5)
    total[:, 1:4] += x
    total[:, 3:6].copy_(y[:, :, :1])
    total[:, ::3] *= 2
    return total


def turned(x: Any) -> Any:
    """Through every operator that turns a matrix round."""
    y = x * 2
    y.mT[0] = 7
    y.mH.add_(1)
    y.moveaxis(0, -1)[1].mul_(3)
    matrix = y[0, 0] + 0
    matrix.T.sub_(2)
    matrix.adjoint()[1] = 5
    matrix.H[0].mul_(-1)
    return y, matrix


def broadcast(x: Any) -> Any:
    """Losses broadcast before they compute, and what they give back is the input itself."""
    y = x * 2
    z = x * 3
    loss = torch.nn.functional.mse_loss(y, z)
    y.add_(1)
    z[0] = 5
    return loss, y, z


PROGRAMS = [plain, chained, below_a_view, single, through_several, split, squeezed]
PROGRAMS += [dense_or_not, masked, turned, broadcast]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_writing_in_place(program: Any) -> None:
    means_what_torch_computes(program, X)


@pytest.mark.parametrize("program", [parts, accumulated], ids=lambda p: p.__name__)
def test_writing_parts(program: Any) -> None:
    means_what_torch_computes(program, X, Y)


def test_writing_through_what_shows_elements_twice_is_refused() -> None:
    def diagonal(x: Any) -> Any:
        y = x * 2
        y.diagonal(0, 2, 3).zero_()
        return y

    with pytest.raises(UnsupportedError, match="writes through diagonal"):
        load_torch(saved(export(Call(diagonal), (X,))))


def test_every_operator_that_may_give_a_view_is_known_to_give_one() -> None:
    """One that is not loses what is written through it, in silence."""
    read = {name.partition(".")[0] for _, name in TABLE}
    views = set()
    for schema in torch._C._jit_get_all_schemas():
        domain, _, name = schema.name.partition("::")
        aliases = [r.alias_info for r in schema.returns if r.alias_info is not None]
        if domain == "aten" and name in read and any(not a.is_write for a in aliases):
            views.add(name)
    assert views - VIEWS - {"lift_fresh_copy"} == set()
    assert len(views) > 40


def test_sub_programs_that_set_a_mode_are_read_through() -> None:
    def modes(x: Any) -> Any:
        y = x * 2
        with torch.no_grad():
            z = y + 1
            with torch.autocast("cpu", enabled=False):
                w = z.relu() @ y.transpose(2, 3)
        with torch.no_grad():
            v = w.clone()
            v.add_(1)
        return w, v, y

    with torch.enable_grad():
        program = export(Call(modes), (X,))
    data = saved(program)
    assert b"wrap_with_set_grad_enabled" in data and b"wrap_with_autocast" in data
    model = load_torch(saved(program))
    agree(model, arrays(model, (X,)), list(modes(X)))


def test_autocast_is_refused_by_name() -> None:
    def cast(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x.transpose(2, 3)

    with pytest.raises(UnsupportedError, match="autocast is on for cpu"):
        load_torch(saved(export(Call(cast), (X,))))

"""Functions of arrays as operators of PyTorch, by `torch.library`: with forms and gradients, and
known to torch.compile as one node.

    loops = verax.torch.operator("mine::conv", seven_loops, like=F.conv2d)
    y = loops(x, weight, bias)                      # under torch.compile no graph breaks here
    torch.library.opcheck(loops, (x, weight, bias))

What the function means is said by `like`, a function of PyTorch of the same tensors: it tells the
result's form, and its derivatives in float64 are the gradients, rounded once. Networks that hold
such an operator are read as what it means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.frontends.torch.decomposition import meant
from verax.runners.functions import called
from verax.torch.tensors import array_of, tensor_of

torch: Any = optional("torch", "to use verax.torch")
NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*")


@dataclass(frozen=True)
class Custom:
    """An operator made by `operator`: its name, what it is like, and how many tensors it takes."""

    name: str
    like: Callable[..., Any]
    tensors: int


_MADE: dict[Any, Custom] = {}


def custom_of(given: Any) -> Custom | None:
    """What is known of an operator that `operator` made, given as the function that it returned or
    as torch.ops.mine.conv with or without .default; None for anything else."""
    given = overload_of(given)
    try:
        return _MADE.get(given)
    except TypeError:  # what cannot be hashed is no operator
        return None


def overload_of(given: Any) -> Any:
    """The one overload of an operator of torch.library, whose calls PyTorch shows us; anything else
    as it is."""
    if isinstance(given, torch.library.CustomOpDef):
        return given._opoverload
    if isinstance(given, torch._ops.OpOverloadPacket) and given.overloads() == ["default"]:
        return given.default
    return given


def operator(
    name: str, function: Callable[..., Any], *, like: Callable[..., Any], tensors: int
) -> Callable[..., Any]:
    """An operator of PyTorch that computes by `function`.

    name: "mine::conv"; function: from that many arrays, read-only, to one array; like: the same of
    tensors. tensors: how many there are. Raises `UsageError` for a name without a library or that
    is taken, and, when it runs, for a result of another form than that of `like`.
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name of an operator", next_step='give a library too: "mine::conv"'
        )
    if tensors < 1:
        raise UsageError(f"an operator of {tensors} tensors", next_step="give 1 or more")
    space, _, short = name.partition("::")
    if hasattr(getattr(torch.ops, space), short):
        raise UsageError(f"the operator {name} exists", next_step="choose another name")

    def compute(*given: Any) -> Any:
        arrays = [array_of(t.detach()) for t in given]
        kept = [a.view() for a in arrays]
        for array in kept:
            array.flags.writeable = False
        result = np.array(as_array(called(function, kept, name)))
        form = _form(like, given)
        if result.shape != tuple(form.shape):
            raise UsageError(
                f"it gave the shape {result.shape}, its meaning gives {tuple(form.shape)}",
                place=name,
            )
        return tensor_of(result).to(form.dtype).contiguous()

    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        given = ctx.saved_tensors
        asked = [i for i, needed in enumerate(ctx.needs_input_grad) if needed]

        def of_asked(*some: Any) -> Any:
            whole = list(map(_wide, given))
            for i, tensor in zip(asked, some):
                whole[i] = tensor
            return like(*whole)

        _, pull = torch.func.vjp(of_asked, *(_wide(given[i]) for i in asked))
        found = dict(zip(asked, pull(_wide(gradient))))
        return tuple(found[i].to(t.dtype) if i in found else None for i, t in enumerate(given))

    def keep(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    arguments = ", ".join(f"Tensor x{i}" for i in range(tensors))
    made = torch.library.custom_op(
        name, compute, mutates_args=(), schema=f"({arguments}) -> Tensor"
    )
    made.register_fake(lambda *given: torch.empty_like(like(*given)).contiguous())
    made.register_autograd(backward, setup_context=keep)
    _MADE[made._opoverload] = Custom(name, like, tensors)
    meant(made._opoverload, like)
    return made  # type: ignore[no-any-return]


def _wide(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor


def _form(like: Callable[..., Any], given: Sequence[Any]) -> Any:
    """What `like` gives for tensors of these forms, without numbers."""
    mode = torch._subclasses.fake_tensor.FakeTensorMode()
    fakes = [mode.from_tensor(t.detach()) for t in given]
    with mode, torch.no_grad():
        return like(*fakes)

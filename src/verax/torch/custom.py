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
from verax.frontends.torch.decomposing import meant
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


def custom_of(candidate: Any) -> Custom | None:
    """What is known of an operator that `operator` made, given as the function that it returned or
    as torch.ops.mine.conv with or without .default; None for anything else."""
    candidate = overload_of(candidate)
    try:
        return _MADE.get(candidate)
    except TypeError:  # what cannot be hashed is no operator
        return None


def overload_of(candidate: Any) -> Any:
    """The one overload of an operator of torch.library, whose calls PyTorch shows us; anything else
    as it is."""
    if isinstance(candidate, torch.library.CustomOpDef):
        return candidate._opoverload
    if isinstance(candidate, torch._ops.OpOverloadPacket) and candidate.overloads() == ["default"]:
        return candidate.default
    return candidate


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

    def compute(*values: Any) -> Any:
        arrays = [array_of(t.detach()) for t in values]
        read_only = [a.view() for a in arrays]
        for array in read_only:
            array.flags.writeable = False
        result = np.array(as_array(called(function, read_only, name)))
        form = _form(like, values)
        if result.shape != tuple(form.shape):
            raise UsageError(
                f"it gave the shape {result.shape}, its meaning gives {tuple(form.shape)}",
                place=name,
            )
        return tensor_of(result).to(form.dtype).contiguous()

    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        needed_indices = [i for i, needed in enumerate(ctx.needs_input_grad) if needed]

        def of_asked(*selected: Any) -> Any:
            full = list(map(_wide, saved))
            for i, tensor in zip(needed_indices, selected):
                full[i] = tensor
            return like(*full)

        _, pull = torch.func.vjp(of_asked, *(_wide(saved[i]) for i in needed_indices))
        gradients = dict(zip(needed_indices, pull(_wide(gradient))))
        return tuple(
            gradients[i].to(t.dtype) if i in gradients else None for i, t in enumerate(saved)
        )

    def keep(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    arguments = ", ".join(f"Tensor x{i}" for i in range(tensors))
    custom_op = torch.library.custom_op(
        name, compute, mutates_args=(), schema=f"({arguments}) -> Tensor"
    )
    custom_op.register_fake(lambda *values: torch.empty_like(like(*values)).contiguous())
    custom_op.register_autograd(backward, setup_context=keep)
    _MADE[custom_op._opoverload] = Custom(name, like, tensors)
    meant(custom_op._opoverload, like)
    return custom_op  # type: ignore[no-any-return]


def _wide(tensor: Any) -> Any:
    return tensor.double() if tensor.is_floating_point() else tensor


def _form(like: Callable[..., Any], values: Sequence[Any]) -> Any:
    """What `like` gives for tensors of these forms, without numbers."""
    mode = torch._subclasses.fake_tensor.FakeTensorMode()
    fakes = [mode.from_tensor(t.detach()) for t in values]
    with mode, torch.no_grad():
        return like(*fakes)

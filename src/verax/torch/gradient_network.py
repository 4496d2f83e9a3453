"""The gradients of a module or a function as a network of Verax: forward and backward in one graph.

PyTorch's autograd is traced once; what it calls is decomposed as for `torch.compile`. The result is
a network like any other, so that gradients are judged as outputs are: against float64, with the
rounding of every node, and in coarser arithmetics.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.base.errors import UnsupportedError, UsageError
from verax.base.machine.torch_guard import in_own_thread
from verax.base.optional import optional
from verax.frontends.torch.examples import arguments_of
from verax.ir.graph import Graph
from verax.judge.locate.consecutive import renamed
from verax.torch.attention_backward import FusedAttention
from verax.torch.autocast import autocast_of_gpu
from verax.torch.backward import decompositions
from verax.torch.calls import LayerCall, arrays_of, meaning_of
from verax.torch.replacements import parameters_of

torch: Any = optional("torch", "to use verax.torch")
PREFIX = "grad."
"""Gradients are outputs of the network under this and the name of what they are gradients of."""


@dataclass(frozen=True)
class GradientNetwork:
    """graph: its outputs are the gradients ("grad.NAME"), its inputs what the module was given and
    the gradients of its outputs ("grad_output0", ...); parameters and buffers are constants.
    arrays: the values of the inputs. fused: whether attention is in it as a fused kernel's."""

    graph: Graph
    arrays: Mapping[str, np.ndarray]
    fused: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Parameters and inputs of which it gives gradients."""
        return tuple(v.removeprefix(PREFIX) for v in self.graph.outputs)


@dataclass(frozen=True)
class Differentiable:
    """A module or a function as a function of tensors.

    tensors: by name, inputs first. inputs: names of the inputs. function: of the tensors in this
    order; gives the outputs, a tuple of tensors. name: what it is called.
    """

    tensors: Mapping[str, Any]
    inputs: tuple[str, ...]
    function: Callable[..., tuple[Any, ...]]
    name: str

    @property
    def leaves(self) -> list[str]:
        """Names of the tensors that have a gradient: floats, and of parameters those that ask for
        one."""
        return [
            name
            for name, t in self.tensors.items()
            if t.is_floating_point() and (name in self.inputs or t.requires_grad)
        ]


def differentiable(
    module: Any, inputs: Any, device: Any = None, autocast: Any = None
) -> Differentiable:
    """The tensors of a module's or function's call. inputs: as `verax.load` takes them; device:
    where they are copied to. autocast: the type that a GPU's autocast casts to, None for no casts.

    Raises `UsageError` for what cannot be called so, and for an input named like a parameter.
    """
    args, kwargs = arguments_of(inputs, device)
    leaves, form = torch.utils._pytree.tree_flatten((args, kwargs))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    names = _input_names(module, args, kwargs, len(positions))
    is_module = isinstance(module, torch.nn.Module)
    own: dict[str, Any] = {}
    if is_module:
        own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    shared = [n for n in names if n in own]
    if shared:
        raise UsageError(
            f"an input and a parameter are both called {shared[0]!r}",
            next_step="give the inputs by other names, or wrap the module",
        )

    def function(*tensors: Any) -> tuple[Any, ...]:
        filled = list(leaves)
        for position, tensor in zip(positions, tensors):
            filled[position] = tensor
        args, kwargs = torch.utils._pytree.tree_unflatten(filled, form)
        with autocast_of_gpu(autocast):
            if is_module:
                named = dict(zip(own, tensors[len(positions) :]))
                results = torch.func.functional_call(module, named, args, kwargs)
            else:
                results = module(*args, **kwargs)
        flat = torch.utils._pytree.tree_leaves(results)
        return tuple(r for r in flat if isinstance(r, torch.Tensor) and r.is_floating_point())

    tensors = {**dict(zip(names, (leaves[i] for i in positions))), **own}
    label = type(module).__name__ if is_module else getattr(module, "__name__", "function")
    return Differentiable(tensors, tuple(names), function, str(label))


def gradient_network(
    call: Differentiable, cotangents: Any = None, *, fused: bool = True
) -> GradientNetwork:
    """The network of a call's gradients.

    cotangents: gradients of the outputs: a tensor or array, or several in the outputs' order; ones
    for an output of one element if not given. fused: whether scaled dot product attention is as
    fused kernels compute it (`attention_backward`), else PyTorch's simple operators.

    Raises `UsageError` for cotangents that do not fit, `UnsupportedError` for what has no
    derivative or no reference in Verax.
    """
    leaves = call.leaves
    if not leaves:
        raise UsageError("nothing in this call has a gradient", place=call.name)
    tensors = {k: t.detach().cpu().clone() for k, t in call.tensors.items()}
    with torch.no_grad():
        results = call.function(*(t.clone() for t in tensors.values()))
    seed_list = cotangents_of(results, cotangents, call.name)
    seeds = {f"grad_output{i}": g.cpu() for i, g in enumerate(seed_list)}
    names = [*tensors, *seeds]

    def joint(*values: Any) -> tuple[Any, ...]:
        named = dict(zip(names, values))
        with torch.enable_grad():
            own = {k: named[k].detach() for k in tensors}
            for k in leaves:
                own[k].requires_grad_()
            outputs = call.function(*own.values())
            gradients = torch.autograd.grad(
                outputs, [own[k] for k in leaves], [named[k] for k in seeds], allow_unused=True
            )
        return tuple(
            torch.zeros_like(own[k]) if g is None else g for k, g in zip(leaves, gradients)
        )

    values = (*tensors.values(), *seeds.values())
    mode = FusedAttention() if fused else contextlib.nullcontext()
    traced = in_own_thread(torch, _traced, joint, values, mode)
    flat = LayerCall(call.name, traced, values, tuple(names), len(values))
    meaning = meaning_of(flat)
    arrays = dict(zip(names, (np.array(a) for a in arrays_of(values))))
    by_value = {v: n for v, n in zip(meaning.inputs, names) if v is not None}
    labels = {v: n for v, n in by_value.items() if v != n}
    labels |= {v: PREFIX + k for v, k in zip(meaning.results, leaves)}
    graph = renamed(meaning.graph, labels)
    fixed = {n: arrays[n] for n in by_value.values() if n not in (*call.inputs, *seeds)}
    graph = replace(
        graph,
        inputs=tuple(v for v in graph.inputs if v not in fixed),
        constants={**graph.constants, **fixed},
    )
    calls = mode.calls if isinstance(mode, FusedAttention) else 0
    return GradientNetwork(graph, {v: arrays[v] for v in graph.inputs}, fused=calls > 0)


@contextlib.contextmanager
def _without_onednn() -> Iterator[None]:
    """Inside, PyTorch does not call oneDNN, whose operators have no backward in simple ones.
    `torch.backends.mkldnn.flags` would do it, with a warning about its other settings."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def _traced(joint: Callable[..., Any], values: Sequence[Any], mode: Any) -> Any:
    """The calls of a function of tensors, backward too, in simple operators."""
    make_fx: Any = optional("torch.fx.experimental.proxy_tensor", "to use verax.torch").make_fx
    attend = torch.nn.attention
    # Attention and recurrence in simple operators have a backward graph in such ones.
    with attend.sdpa_kernel(attend.SDPBackend.MATH), _without_onednn():
        try:
            with mode:
                traced = make_fx(joint, decomposition_table=decompositions())(*values)
        except Exception as error:
            raise UnsupportedError(
                f"PyTorch cannot differentiate this: {str(error).partition(chr(10))[0][:300]}"
            ) from error
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


def cotangents_of(results: Sequence[Any], cotangents: Any, label: str) -> list[Any]:
    """Gradients of the outputs, of the outputs' types. Raises `UsageError` for other shapes."""
    if cotangents is None:
        if any(r.numel() != 1 for r in results):
            raise UsageError(
                "the outputs have more than one element, and so need gradients of their own",
                place=label,
                next_step="give cotangents: an array of the shape of each output",
            )
        return [torch.ones_like(r) for r in results]
    arrays = torch.utils._pytree.tree_leaves(arguments_of(cotangents))
    shapes = [tuple(np.shape(g)) for g in arrays], [tuple(r.shape) for r in results]
    if shapes[0] != shapes[1]:
        raise UsageError(
            f"cotangents of the shapes {shapes[0]} do not fit outputs of the shapes {shapes[1]}",
            place=label,
            next_step="give one array for each output of floats, in their order",
        )
    return [g.detach().to(r.dtype) for g, r in zip(arrays, results)]


def _input_names(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], count: int
) -> list[str]:
    """Names of the tensors among the inputs: those of the signature, or input0, input1, ..."""
    call = module.forward if isinstance(module, torch.nn.Module) else module
    parameters = [
        p.name
        for p in parameters_of(call)
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    listed = [
        parameters[i] if i < len(parameters) else f"input{i}"
        for i, a in enumerate(args)
        if isinstance(a, torch.Tensor)
    ]
    listed += [k for k, a in kwargs.items() if isinstance(a, torch.Tensor)]
    return listed if len(listed) == count else [f"input{i}" for i in range(count)]

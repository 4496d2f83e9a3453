"""One call of a layer: its tensors by name, PyTorch's function of them, and its reference network.

The meaning is a network of Verax whose inputs are all of the call's tensors, parameters included,
so that it holds while the parameters train. It is made once for the sizes of a call.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from verax.base.errors import UnsupportedError
from verax.base.machine.torch_guard import in_own_thread
from verax.base.optional import optional
from verax.frontends.torch import load_torch
from verax.ir.cut import cut
from verax.ir.graph import Graph
from verax.torch.live_module import LiveModule
from verax.torch.tensors import array_of
from verax.torch.tracing import export, input_names, lines_of

torch: Any = optional("torch", "to use verax.torch")


@dataclass(frozen=True)
class CallNetwork:
    """A call as a network. inputs: the network's name of each tensor, None for one that it does not
    read. results: its outputs in order. changed: index of a tensor -> the output that is its
    content afterwards. graph: without those; full_graph: with them."""

    graph: Graph
    full_graph: Graph
    inputs: tuple[str | None, ...]
    results: tuple[str, ...]
    changed: Mapping[int, str]
    lines: Mapping[str, str]

    def arrays(self, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The call's arrays by the network's names."""
        return {v: a for v, a in zip(self.inputs, arrays) if v is not None}


@dataclass(frozen=True)
class LayerCall:
    """A call in flight.

    name: of the layer ("layer1.0.conv2") or of the function and which of its calls ("conv2d 3");
    original: PyTorch's own function of the tensors. tensors, names: the inputs first, `input_count`
    of them, then parameters and buffers. module: that is called, None for a function. settings: the
    layer's attributes besides tensors, by name. rebuilt: the call's positional and named arguments,
    with arrays instead of tensors. constants_text: the arguments that are no tensors, as text.
    """

    name: str
    original: Callable[..., Any]
    tensors: tuple[Any, ...]
    names: tuple[str, ...]
    input_count: int
    module: Any = None
    settings: Mapping[str, Any] | None = None
    rebuilt: Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]] | None = None
    constants_text: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What the meaning depends on."""
        training = self.module is not None and self.module.training
        return (training, self.constants_text, *((tuple(t.shape), t.dtype) for t in self.tensors))


def _flattened(
    args: Any, kwargs: Any
) -> tuple[list[Any], list[int], Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]]:
    """The leaves of a call's arguments, which of them are tensors, and a function that makes the
    arguments again with others in the tensors' places."""
    leaves, form = torch.utils._pytree.tree_flatten((args, kwargs))
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def rebuilt(values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        filled = list(leaves)
        for position, value in zip(positions, values):
            filled[position] = value
        arguments: tuple[tuple[Any, ...], dict[str, Any]]
        arguments = torch.utils._pytree.tree_unflatten(filled, form)
        return arguments

    return leaves, positions, rebuilt


def _constants_text(leaves: Sequence[Any], positions: Sequence[int]) -> str:
    tensor_positions = set(positions)
    return repr([leaf for i, leaf in enumerate(leaves) if i not in tensor_positions])


def call_of_module(
    name: str,
    module: Any,
    live_module: LiveModule,
    forward: Callable[..., Any],
    names: Sequence[str],
    args: Any,
    kwargs: Any,
) -> LayerCall:
    """A call of a module of some kind. forward: its own; names: of its positional arguments."""
    leaves, positions, rebuilt = _flattened(args, kwargs)
    own = live_module.own(module)
    count = len(positions)

    def original(*tensors: Any) -> Any:
        with live_module.running(module, tensors[count:]):
            args, kwargs = rebuilt(tensors[:count])
            return forward(*args, **kwargs)

    input_names = [names[i] if i < len(names) else f"argument{i}" for i in range(count)]
    hyper = {
        k: v
        for k, v in vars(module).items()
        if not k.startswith("_") and isinstance(v, bool | int | float | str | tuple)
    }
    absent = dict.fromkeys(live_module.absent(module))
    return LayerCall(
        name,
        original,
        (*(leaves[i] for i in positions), *own.values()),
        (*input_names, *own),
        count,
        module,
        {**hyper, **absent, "module": module},
        rebuilt,
        _constants_text(leaves, positions),
    )


def call_of_function(
    name: str, function: Callable[..., Any], names: Sequence[str], args: Any, kwargs: Any
) -> LayerCall:
    """A call of a function such as F.conv2d."""
    leaves, positions, rebuilt = _flattened(args, kwargs)

    def original(*tensors: Any) -> Any:
        args, kwargs = rebuilt(tensors)
        return function(*args, **kwargs)

    named = dict(enumerate(names))
    positional = [named.get(i, f"argument{i}") for i in range(len(args))]
    tensors = [k for k, v in zip(positional, args) if isinstance(v, torch.Tensor)]
    tensors += [k for k, v in kwargs.items() if isinstance(v, torch.Tensor)]
    if len(tensors) != len(positions):
        tensors = [f"argument{i}" for i in range(len(positions))]
    return LayerCall(
        name, original, tuple(leaves[i] for i in positions), tuple(tensors), len(positions),
        rebuilt=rebuilt, constants_text=_constants_text(leaves, positions),
    )  # fmt: skip


def meaning_of(call: LayerCall) -> CallNetwork:
    """The network that a call is. Raises `UnsupportedError` for what Verax lacks."""
    plain = tuple(t.detach().clone() for t in call.tensors)

    def build() -> CallNetwork:
        with torch.no_grad():
            program = export(_Function(call.original, call.names), plain)
            model = load_torch(program)
        return _meaning(model.graph, input_names(program), lines_of(program))

    try:
        # PyTorch keeps its modes per thread, and ours is one of them.
        return in_own_thread(torch, build)
    except UnsupportedError as error:
        location = f"{call.name}: {error.place}" if error.place else call.name
        raise UnsupportedError(error.cause, place=location, next_step=error.next_step) from error


def _meaning(
    full_graph: Graph, names: Sequence[str | None], lines: Mapping[str, str]
) -> CallNetwork:
    positions = {v: i for i, v in enumerate(names) if v is not None}
    plain = cut(_without_statistics(full_graph), full_graph.inputs, full_graph.returned)
    return CallNetwork(
        replace(plain, inputs=full_graph.inputs, types={**plain.types, **_types(full_graph)}),
        full_graph,
        tuple(v if v in full_graph.inputs else None for v in names),
        full_graph.returned,
        {positions[v]: new for v, new in full_graph.updates.items()},
        lines,
    )


def _without_statistics(graph: Graph) -> Graph:
    """BatchNorm by the batch's own statistics does not read the running ones, unless for their
    new values; scale and bias, which are of the same type, stand in their place."""

    def plain(node: Any) -> Any:
        if node.op.kind != "BatchNormalization" or not node.op.training_mode:
            return node
        x, scale, bias, *_ = node.inputs
        return replace(node, inputs=(x, scale, bias, bias, scale))

    return replace(graph, nodes=tuple(map(plain, graph.nodes)))


def _types(graph: Graph) -> dict[str, Any]:
    return {v: graph.types[v] for v in graph.inputs}


class _Function(torch.nn.Module):  # type: ignore[misc, name-defined]
    """A function of tensors by names, under which a verdict speaks of them."""

    def __init__(self, function: Callable[..., Any], names: Sequence[str]) -> None:
        super().__init__()

        def forward(*tensors: Any) -> Any:
            return function(*tensors)

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        listed = [inspect.Parameter(name, kind) for name in _identifiers(names)]
        forward.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
        self.forward = forward


def _identifiers(names: Sequence[str]) -> list[str]:
    """Names that Python takes, all different."""
    identifiers: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name)
        usual = plain.isidentifier() and not keyword.iskeyword(plain)
        plain = plain if usual else f"x_{plain}"
        while plain in identifiers:
            plain += "_"
        identifiers.append(plain)
    return identifiers


def arrays_of(tensors: Sequence[Any]) -> list[np.ndarray]:
    """Arrays on the tensors' memory."""
    return [array_of(t.detach()) for t in tensors]

"""`torch.compile(module, backend="verax")`: graphs of PyTorch run by programs of Verax.

Where no gradient is asked for, a graph is exported as it stands, with its weights as constants.
Where one is, AOTAutograd splits it into a forward and a backward graph; the backward graph runs in
eager PyTorch when not all of it has kernels, with a warning and a line in the report. AOTAutograd
also writes down the casts of autocast, which an exported graph would lack.
"""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verax.base.optional import optional
from verax.torch import random_numbers, reporting
from verax.torch.backward import decompositions
from verax.torch.options import CompileOptions, options_of
from verax.torch.programs import GraphPrograms, plain

torch: Any = optional("torch", "to use verax.torch")
STATIC = "_dynamo_static_input_type"
"""How Dynamo marks buffers of modules."""
_live: weakref.WeakSet[GraphPrograms] = weakref.WeakSet()


def verax(
    graph: Any,
    arguments: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend itself: what `torch.compile` calls for each graph.

    mode, options: see `CompileOptions`; a mode stands for an opt_level. Raises `UsageError` for
    options that do not exist, and `UnsupportedError` or `CompileError` for a graph that cannot be
    compiled (PyTorch shows both inside a `BackendCompilerFailed`).
    """
    compile_options = options_of(CompileOptions, options, mode, "verax")
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    trains = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    casts = any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
    if trains or casts or random_numbers.draws(graph):
        return _by_autograd(graph, arguments, compile_options, trains)
    programs = _programs(graph, weights(graph, arguments), compile_options, "inference")
    programs.prepare([plain(a) for a in arguments])
    return programs


def reset() -> None:
    """Forget every program and the report; the next runs compile. `torch.compiler.reset()` does it
    too, once behind each `torch.compile` with this backend: PyTorch writes down there which
    backends to reset, and forgets it at each reset."""
    for programs in list(_live):
        programs.clear()
    reporting.forget()


verax.reset = reset  # type: ignore[attr-defined]  # where PyTorch looks for it


def operators(graph: Any) -> int:
    """Number of operators that a graph calls."""
    return sum(n.op.startswith("call") for n in graph.graph.nodes)


def _programs(
    graph: Any, constants: Sequence[int], options: CompileOptions, kind: str, keep: bool = False
) -> GraphPrograms:
    programs = GraphPrograms(
        graph, constants, options, reporting.opened(kind, operators(graph)), keep
    )
    _live.add(programs)
    return programs


def weights(graph: Any, arguments: Sequence[Any]) -> list[int]:
    """Indices of the arguments that are parameters or buffers of a module."""
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    return [
        i
        for i, (placeholder, value) in enumerate(zip(placeholders, arguments))
        if isinstance(value, torch.nn.Parameter)
        or STATIC in placeholder.meta.get("tensor_dict", {})
    ]


def _by_autograd(
    graph: Any, arguments: Sequence[Any], options: CompileOptions, trains: bool
) -> Callable[..., Any]:
    def forward(subgraph: Any, _: Any) -> Any:
        static = _constants(torch._guards.TracingContext.get().fw_metadata, trains)
        subgraph, drawn = random_numbers.taken_out(subgraph)
        return _boxed(_programs(subgraph, static, options, "forward"), drawn)

    def backward(subgraph: Any, _: Any) -> Any:
        native = dataclasses.replace(options, require_native=True)
        subgraph, drawn = random_numbers.taken_out(subgraph)
        programs = _programs(subgraph, (), native, "backward", keep=True)
        return _boxed(_BackwardPrograms(programs), drawn)

    split = torch._dynamo.backends.common.aot_autograd(
        fw_compiler=forward, bw_compiler=backward, decompositions=decompositions()
    )
    # Attention in simple operators has a backward graph in such ones.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return split(graph, arguments)  # type: ignore[no-any-return]


def _constants(metadata: Any, trains: bool) -> list[int]:
    """Which arguments of a forward graph are weights that stay what they are."""
    if metadata is None:
        return []
    changing = [trains and (i.requires_grad or i.mutates_data) for i in metadata.input_info]
    return [i for i in metadata.static_input_indices if not changing[i]]


class _BackwardPrograms:
    """A backward graph, which warns at its first run where eager PyTorch computes it."""

    def __init__(self, programs: GraphPrograms) -> None:
        self.programs, self.has_warned = programs, False

    def __call__(self, *arguments: Any) -> Any:
        results = self.programs(*arguments)
        reason = self.programs.report.fallback
        if reason and not self.has_warned:
            self.has_warned = True
            warnings.warn(
                f"verax: gradients of {self.programs.report.name} are computed by eager PyTorch: "
                + reason.partition("\n")[0],
                stacklevel=2,
            )
        return results


def _boxed(
    call: Callable[..., Any], drawn: Callable[[Sequence[Any]], list[Any]]
) -> Callable[[list[Any]], Any]:
    """As AOTAutograd calls: one list, which is emptied so that nothing in it is kept alive. drawn:
    the random numbers that come behind the arguments."""

    def run(arguments: list[Any]) -> Any:
        values = list(arguments)
        arguments.clear()
        return call(*values, *drawn(values))

    run._boxed_call = True  # type: ignore[attr-defined]
    return run

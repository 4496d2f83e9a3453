"""The kinds of replacements of a layer, and how each is called.

A replacement is a function of NumPy arrays, a pair of a forward and a backward function, a function
of tensors (`of_tensors`), another module, a compiled program, a runtime by name, or the operator's
own meaning: `reference` (float64, rounded once), `reference.promised` (the bits that Verax
promises) and `perturbed(seed)` (the meaning with a rounding of its own, as another honest
implementation would have).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.executable import Executable
from verax.ir.types import TensorType
from verax.judge.decide.local import meaning as meaning_of_node
from verax.reference.evaluate import evaluate, promised, to_work
from verax.runners.functions import TensorFunction
from verax.runners.subjects.factory import runner_of
from verax.torch.calls import CallNetwork, LayerCall
from verax.torch.custom import Custom, custom_of
from verax.torch.tensors import array_of, tensor_of

torch: Any = optional("torch", "to use verax.torch")


class Replacement(Protocol):
    """What is called instead of a layer.

    words: what it is, for reports. forward: outputs in order, for the call's arrays in the order of
    its tensors. backward: gradients in the order of the call's tensors, None for one that it does
    not give.
    """

    @property
    def words(self) -> str: ...

    def forward(
        self, call: LayerCall, meaning: CallNetwork, arrays: Sequence[Any]
    ) -> list[np.ndarray]: ...

    def backward(
        self, call: LayerCall, arrays: Sequence[Any], cotangents: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]: ...


class ReferenceReplacement:
    """The operator's meaning. bits: those that Verax promises, else float64 rounded once."""

    def __init__(self, bits: bool = False) -> None:
        self.words = "the promised bits" if bits else "the float64 meaning"
        self.bits = bits

    @property
    def promised(self) -> ReferenceReplacement:
        """The bits that Verax promises at O0 and O1."""
        return ReferenceReplacement(True)

    def forward(
        self, call: LayerCall, meaning: CallNetwork, arrays: Sequence[Any]
    ) -> list[np.ndarray]:
        named = meaning.arrays(arrays)
        values = (promised if self.bits else evaluate)(meaning.graph, named)
        return [values[v] for v in meaning.results]

    def backward(
        self, call: LayerCall, arrays: Sequence[Any], cotangents: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        raise _no_backward(self.words)


reference = ReferenceReplacement()
"""The operator's meaning in float64, rounded once; `reference.promised` for the promised bits."""


class perturbed(ReferenceReplacement):
    """The reference with random errors of the size of float32 rounding: another correct
    implementation. Equal seeds draw the same errors in the same order of calls."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.words = f"the meaning with its rounding drawn from seed {seed}"
        self._random = np.random.default_rng(seed)

    def forward(
        self, call: LayerCall, meaning: CallNetwork, arrays: Sequence[Any]
    ) -> list[np.ndarray]:
        graph = meaning.graph
        values = {
            v: to_work(np.asarray(a), graph.types[v].dtype, np.dtype(np.float64))
            for v, a in {**meaning.arrays(arrays), **graph.constants}.items()
        }
        for node in graph.nodes:
            read = [None if v is None else values[v] for v in node.inputs]
            types: list[TensorType | None]
            types = [None if v is None else graph.types[v] for v in node.inputs]
            evaluated = meaning_of_node(node, read, types, graph.output_types(node))
            for v, y, rounding in zip(node.outputs, evaluated.outputs, evaluated.roundings):
                if rounding is not None and y.dtype.kind == "f":
                    noise = self._random.standard_normal(y.shape) * rounding.sigma
                    y = y + np.clip(noise, -rounding.bound, rounding.bound)
                values[v] = y
        return [values[v] for v in meaning.results]


@dataclass
class _Runtime:
    """A runner by name."""

    runner: Any
    words: str

    def forward(
        self, call: LayerCall, meaning: CallNetwork, arrays: Sequence[Any]
    ) -> list[np.ndarray]:
        values = self.runner.run(meaning.graph, meaning.arrays(arrays))
        return [values[v] for v in meaning.results]

    def backward(
        self, call: LayerCall, arrays: Sequence[Any], cotangents: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        raise _no_backward(self.words)


@dataclass
class _Compiled:
    """A compiled program of the layer's inputs."""

    executable: Any
    words: str = "a compiled program"

    def forward(
        self, call: LayerCall, meaning: CallNetwork, arrays: Sequence[Any]
    ) -> list[np.ndarray]:
        return list(self.executable.run(dict(zip(self.executable.inputs, arrays))).values())

    def backward(
        self, call: LayerCall, arrays: Sequence[Any], cotangents: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        raise _no_backward(self.words)


@dataclass
class _Tensors:
    """A module, or a function of tensors, whose gradients PyTorch knows."""

    function: Callable[..., Any]
    words: str

    def forward(
        self, call: LayerCall, meaning: CallNetwork, arrays: Sequence[Any]
    ) -> list[np.ndarray]:
        with torch.no_grad():
            result = self._called(call, [tensor_of(np.array(a)) for a in arrays])
        return [array_of(t) for t in torch.utils._pytree.tree_leaves(result)]

    def backward(
        self, call: LayerCall, arrays: Sequence[Any], cotangents: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        with torch.enable_grad():
            tensors = [tensor_of(np.array(a)) for a in arrays]
            leaves = [t.requires_grad_() if t.is_floating_point() else t for t in tensors]
            results = torch.utils._pytree.tree_leaves(self._called(call, leaves))
            torch.autograd.backward(results, [tensor_of(np.array(g)) for g in cotangents])
        return [None if t.grad is None else array_of(t.grad) for t in leaves]

    def _called(self, call: LayerCall, tensors: Sequence[Any]) -> Any:
        if isinstance(self.function, torch.nn.Module):
            return self.function(*tensors[: call.input_count])
        args, kwargs = bound(self.function, call, tensors)
        return self.function(*args, **kwargs)


@dataclass
class _Operator(_Tensors):
    """An operator of torch.library, with the gradients that it was registered with."""

    custom: Custom

    def _called(self, call: LayerCall, tensors: Sequence[Any]) -> Any:
        return self.function(*(tensors[i] for i in _tensor_indices(self.custom, call)))


def _tensor_indices(custom: Custom, call: LayerCall) -> Sequence[int]:
    """Which of a call's tensors an operator takes: the inputs, and the parameters that what it is
    like names so; where it names them otherwise, all in their order."""
    names = [p.name for p in parameters_of(custom.like)][: custom.tensors]
    later = names[call.input_count :]
    if (
        call.module is not None
        and later
        and all(n in call.names[call.input_count :] for n in later)
    ):
        return [*range(call.input_count), *(call.names.index(n, call.input_count) for n in later)]
    if len(call.tensors) != custom.tensors:
        raise UsageError(
            f"{custom.name} takes {custom.tensors} tensors, the layer has {len(call.tensors)}: "
            + ", ".join(call.names),
            place=call.name,
            next_step="give verax.torch.of_tensors(function) of a function that calls it",
        )
    return range(custom.tensors)


@dataclass
class _Arrays:
    """A function of NumPy arrays, and perhaps one for its gradients."""

    function: Callable[..., Any]
    gradient: Callable[..., Any] | None = None

    @property
    def words(self) -> str:
        return f"the function {_name(self.function)}"

    def forward(
        self, call: LayerCall, meaning: CallNetwork, arrays: Sequence[Any]
    ) -> list[np.ndarray]:
        args, kwargs = bound(self.function, call, arrays)
        result = self.function(*args, **kwargs)
        return [as_array(r) for r in (result if isinstance(result, tuple | list) else [result])]

    def backward(
        self, call: LayerCall, arrays: Sequence[Any], cotangents: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        if self.gradient is None:
            raise _no_backward(self.words)
        args, kwargs = bound(self.gradient, call, arrays, first=cotangents)
        gradients = self.gradient(*args, **kwargs)
        if not isinstance(gradients, Mapping):
            raise UsageError(
                f"{_name(self.gradient)} gave a {type(gradients).__name__}, not gradients by name",
                place=call.name,
                next_step=f"return a dictionary with {', '.join(call.names)}",
            )
        strange = [k for k in gradients if k not in call.names]
        if strange:
            raise UsageError(
                f"{_name(self.gradient)} gave a gradient of {strange[0]!r}, which the layer lacks",
                place=call.name,
                next_step=f"it has {', '.join(call.names)}",
            )
        return [
            as_array(gradients[k]) if gradients.get(k) is not None else None for k in call.names
        ]


def of_tensors(function: Callable[..., Any]) -> Any:
    """Says that a replacement, or a subject of `verax.check`, takes and gives tensors, not arrays;
    PyTorch then knows a replacement's gradients where `backward="own"` is asked for."""
    return TensorFunction(function)


def replacement_of(candidate: Any) -> Replacement:
    """The replacement that a user's object is. Raises `UsageError` for what cannot be one."""
    replacement: Replacement
    custom = custom_of(candidate)
    if custom is not None:
        replacement = _Operator(candidate, f"the operator {custom.name}", custom)
    elif isinstance(candidate, ReferenceReplacement):
        replacement = candidate
    elif isinstance(candidate, str):
        replacement = _Runtime(runner_of(candidate), candidate)
    elif isinstance(candidate, Executable | SavedExecutable):
        replacement = _Compiled(candidate)
    elif isinstance(candidate, TensorFunction):
        replacement = _Tensors(
            candidate.function, f"the function {_name(candidate.function)} of tensors"
        )
    elif isinstance(candidate, torch.nn.Module):
        replacement = _Tensors(candidate, f"the module {type(candidate).__name__}")
    elif isinstance(candidate, tuple) and len(candidate) == 2 and all(map(callable, candidate)):
        replacement = _Arrays(*candidate)
    elif callable(candidate):
        replacement = _Arrays(candidate)
    else:
        raise UsageError(
            f"a {type(candidate).__name__} cannot stand in the place of a layer",
            next_step="give a function, a pair of forward and backward, a module, a compiled "
            "program, a runner's name, or verax.torch.reference",
        )
    return replacement


def bound(
    function: Callable[..., Any], call: LayerCall, values: Sequence[Any], first: Sequence[Any] = ()
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a user's function: `first`, the layer's inputs by position, and then whatever
    its signature names of the layer's parameters, buffers and settings (weight, bias, stride, eps,
    module, ...). For a function such as F.conv2d: the arguments of that call.

    Raises `UsageError` for a name that the layer does not have.
    """
    if call.module is None:
        assert call.rebuilt is not None
        args, named = call.rebuilt(values)
        return (*first, *args), named
    inputs = tuple(values[: call.input_count])
    available = {
        **(call.settings or {}),
        **dict(zip(call.names[call.input_count :], values[call.input_count :])),
    }
    parameters = parameters_of(function)
    kwargs: dict[str, Any] = {}
    for parameter in parameters[len(first) + len(inputs) :]:
        if parameter.kind is parameter.VAR_KEYWORD:
            kwargs |= {k: available[k] for k in call.names[call.input_count :] if k not in kwargs}
        elif parameter.kind is parameter.VAR_POSITIONAL:
            continue
        elif parameter.name in available:
            kwargs[parameter.name] = available[parameter.name]
        elif parameter.default is parameter.empty:
            raise UsageError(
                f"{_name(function)} asks for {parameter.name!r}, which the layer does not have",
                place=f"{call.name} ({type(call.module).__name__})",
                next_step=f"it has {', '.join(sorted(available))}",
            )
    return (*first, *inputs), kwargs


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters of a function, also of PyTorch's that are written in C++; none where nobody
    knows."""
    custom = custom_of(function)
    function = function if custom is None else custom.like
    described = torch.overrides.get_testing_overrides().get(function, function)
    try:
        return list(inspect.signature(described).parameters.values())
    except (TypeError, ValueError):
        return []


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _no_backward(words: str) -> UsageError:
    return UsageError(
        f"{words} has no gradients of its own",
        next_step='leave backward at "reference", or give a pair (forward, backward)',
    )

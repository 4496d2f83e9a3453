"""`check_gradients`: the gradients that somebody computed of a module or a function, judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Unpack

import numpy as np

from verax.base.arrays import as_array
from verax.base.errors import UsageError
from verax.base.option_groups.keywords import with_options
from verax.base.option_groups.options import CheckKeywords, CheckOptions
from verax.base.optional import optional
from verax.judge.check import check
from verax.judge.regions.coverage import ACCEPTED
from verax.records.verdict import Finding, Kind, Verdict
from verax.runners.arrays import ArraysRunner
from verax.torch.gradient_network import (
    PREFIX,
    Differentiable,
    GradientNetwork,
    cotangents_of,
    differentiable,
    gradient_network,
)

torch: Any = optional("torch", "to use verax.torch")
KINDS = (*ACCEPTED, Kind.precision_lost, Kind.undecided, Kind.mistake)
"""The best first."""


@with_options(CheckOptions)
def check_gradients(
    module: Any,
    actual: Any,
    inputs: Any,
    cotangents: Any = None,
    *,
    autocast: Any = None,
    **keywords: Unpack[CheckKeywords],
) -> Verdict:
    """Judge gradients of the sum of outputs times `cotangents`, against float64.

        verdict = verax.torch.check_gradients(net, net_on_gpu, x, dy)
        verdict = verax.torch.check_gradients(F.conv2d, {"input": dx, "weight": dw}, (x, w), dy)

    module: a `torch.nn.Module`, in the mode that it is in, or a function of tensors: what is meant.
    actual: gradients by the names of parameters and inputs, tensors or arrays on any device, None
    for one that is zero; or a module or function, whose backward runs on its own device. inputs: as
    `verax.load` takes them, of the types that the gradients were computed in. cotangents: a tensor
    or array of the shape of each output; ones for an output of one element if not given. autocast:
    `torch.bfloat16` or `torch.float16` where the forward pass ran under a GPU's autocast to it.
    What is left out of `actual` is not judged.

    The verdict names values "grad.NAME". Attention is judged as a fused kernel computes its
    gradients, and as simple operators do; one of the two has to hold. Raises `UsageError` for names
    and shapes that do not fit, `UnsupportedError` where the gradients have no reference.
    """
    expected = ExpectedGradients(module, inputs, cotangents, autocast=autocast)
    network = expected.network
    if isinstance(actual, Mapping):
        return expected.check(actual, **keywords)
    label = _label(actual)
    gradients = _computed(actual, inputs, cotangents, network, label)
    return expected.check(gradients, label, **keywords)


class ExpectedGradients:
    """What gradients should be, for as many checks as one likes; arguments as of
    `check_gradients`."""

    def __init__(
        self, module: Any, inputs: Any, cotangents: Any = None, *, autocast: Any = None
    ) -> None:
        self._call, self._cotangents = differentiable(module, inputs, autocast=autocast), cotangents
        self.network = gradient_network(self._call, cotangents)

    @cached_property
    def _simple(self) -> GradientNetwork:
        """The same with attention in simple operators."""
        return gradient_network(self._call, self._cotangents, fused=False)

    def check(
        self,
        actual: Mapping[str, Any],
        label: str = "gradients",
        **keywords: Unpack[CheckKeywords],
    ) -> Verdict:
        """Judge gradients by the names of parameters and inputs."""
        runner = ArraysRunner(_named(actual, self.network), label)
        verdict = check(self.network.graph, runner, self.network.arrays, **keywords)
        if not self.network.fused or verdict.kind in ACCEPTED:
            return verdict
        second = check(self._simple.graph, runner, self._simple.arrays, **keywords)
        return second if KINDS.index(second.kind) < KINDS.index(verdict.kind) else verdict


class LayerGradients:
    """The gradients of calls of one layer with tensors of the same shapes, judged."""

    def __init__(self, call: Differentiable, cotangents: Sequence[Any]) -> None:
        """call: of which every tensor is an input, so that no number is built in. Raises
        `UnsupportedError` where its gradients have no reference."""
        self._network = gradient_network(call, tuple(cotangents))

    def findings(
        self,
        tensors: Mapping[str, np.ndarray],
        cotangents: Sequence[np.ndarray],
        actual: Mapping[str, np.ndarray],
    ) -> dict[str, Finding]:
        """A finding on each gradient in `actual`, by name."""
        graph = self._network.graph
        seeds = {f"grad_output{i}": g for i, g in enumerate(cotangents)}
        arrays = {v: np.asarray(a) for v, a in {**tensors, **seeds}.items() if v in graph.inputs}
        verdict = check(
            graph,
            ArraysRunner({PREFIX + k: g for k, g in actual.items()}),
            arrays,
            explain=False,
        )
        return {f.value.removeprefix(PREFIX): f for f in verdict.nodes}


def _label(function: Any) -> str:
    name = type(function).__name__ if isinstance(function, torch.nn.Module) else ""
    return f"gradients of {name or getattr(function, '__name__', 'a function')}"


def _named(actual: Mapping[str, Any], network: GradientNetwork) -> dict[str, np.ndarray]:
    """The gradients under the network's names. Raises `UsageError` for names that it lacks."""
    gradients: dict[str, np.ndarray] = {}
    for name, gradient in actual.items():
        plain = name.removeprefix(PREFIX)
        value = PREFIX + plain
        if plain not in network.names:
            raise UsageError(
                f"there is no gradient of {plain!r}",
                next_step=f"it has gradients of {', '.join(network.names)}",
            )
        gradients[value] = (
            np.zeros(network.graph.types[value].shape, network.graph.types[value].dtype.numpy)
            if gradient is None
            else as_array(gradient, f"the gradient of {plain!r}")
        )
    return gradients


def _computed(
    subject: Any, inputs: Any, cotangents: Any, network: GradientNetwork, label: str
) -> dict[str, np.ndarray]:
    """The gradients that a module or a function gives, where its parameters or its inputs are."""
    if not callable(subject):
        raise UsageError(
            f"gradients cannot be a {type(subject).__name__}",
            next_step="give gradients by name, or a module whose backward is to be run",
        )
    device = None
    if isinstance(subject, torch.nn.Module):
        device = next((p.device for p in subject.parameters()), None)
    call = differentiable(subject, inputs, device)
    tensors = {k: t.detach().clone() for k, t in call.tensors.items()}
    leaves = {k: tensors[k].requires_grad_() for k in call.leaves}
    with torch.enable_grad():
        results = call.function(*tensors.values())
        seeds = [s.to(r.device) for s, r in zip(cotangents_of(results, cotangents, label), results)]
        gradients = torch.autograd.grad(results, list(leaves.values()), seeds, allow_unused=True)
    values = [None if g is None else g.detach() for g in gradients]
    if isinstance(subject, torch.nn.Module):
        return _named(dict(zip(leaves, values)), network)
    if len(values) != len(network.names):
        raise UsageError(
            f"it has {len(values)} gradients, the function that is meant {len(network.names)}",
            place=label,
        )
    return _named(dict(zip(network.names, values)), network)  # a function's inputs, in order

"""One exchanged layer: forward by its replacement, backward by its reference, both judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import UnsupportedError, UsageError, VeraxError
from verax.base.optional import optional
from verax.ir.graph import Graph
from verax.judge.check import check
from verax.judge.gradients import Pulled, judged_gradient
from verax.judge.protocol import Capabilities
from verax.records.verdict import Finding
from verax.reference.evaluate import evaluate
from verax.runners.functions import called
from verax.torch.calls import CallNetwork, LayerCall, arrays_of, meaning_of
from verax.torch.gradient_check import LayerGradients
from verax.torch.gradient_network import Differentiable
from verax.torch.replacements import Replacement
from verax.torch.substituted import LayerReport
from verax.torch.tensors import tensor_of

torch: Any = optional("torch", "to use verax.torch")
BY_MEANING = "vector-Jacobian products of the meaning"
BY_PYTORCH = "PyTorch's derivatives in float64"


class ExchangeSite:
    """A layer with its replacement. own: whether gradients are the replacement's; calls: how many
    are judged, None for all."""

    def __init__(
        self,
        replacement: Replacement,
        report: LayerReport,
        *,
        own: bool,
        calls: int | None,
        winograd: bool,
    ) -> None:
        self.replacement, self.report = replacement, report
        self.own, self.calls, self.winograd = own, calls, winograd
        self._meanings: dict[tuple[Any, ...], CallNetwork] = {}
        self.gradients: dict[tuple[Any, ...], LayerGradients] = {}

    def __call__(self, call: LayerCall) -> Any:
        """The layer's result, a tensor or a tuple of them."""
        meaning = self._meanings.get(call.key)
        if meaning is None:
            meaning = self._meanings[call.key] = meaning_of(call)
        self.report.runs += 1
        judging = self.calls is None or self.report.runs <= self.calls
        job = _Job(self, call, meaning, judging)
        results = Exchange.apply(job, *call.tensors)
        return results[0] if len(results) == 1 else results


class Exchange(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """The differentiable function that stands in a layer's place."""

    @staticmethod
    def forward(ctx: Any, job: _Job, *tensors: Any) -> Any:
        ctx.job = job
        ctx.save_for_backward(*[t.detach().clone() for t in tensors])
        results = tuple(tensor_of(a) for a in job.forward(tensors))
        integers = [r for r in results if not r.is_floating_point()]
        ctx.mark_non_differentiable(*integers)
        return results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *cotangents: Any) -> Any:
        needed = ctx.needs_input_grad[1:]
        gradients = ctx.job.backward(ctx.saved_tensors, cotangents, needed)
        return (None, *gradients)


class _Job:
    """One call, forward and later backward."""

    def __init__(
        self, site: ExchangeSite, call: LayerCall, meaning: CallNetwork, judging: bool
    ) -> None:
        self.site, self.call, self.meaning, self.judging = site, call, meaning, judging

    def forward(self, tensors: Sequence[Any]) -> list[np.ndarray]:
        arrays = [np.array(a) for a in arrays_of(tensors)]
        results = self.replaced(arrays)
        meaning = self.meaning
        if self.judging:
            subject = _Subject(self, arrays, results)
            named = meaning.arrays(arrays)
            winograd = self.site.winograd
            verdict = check(meaning.graph, subject, named, winograd=winograd, twice=False)
            self.site.report.judged(verdict)
        if meaning.changed:
            after = evaluate(meaning.full_graph, meaning.arrays(arrays))
            with torch.no_grad():
                for i, new in meaning.changed.items():
                    dtype = meaning.full_graph.types[new].dtype.numpy
                    tensors[i].copy_(tensor_of(after[new].astype(dtype)))
        return results

    def replaced(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The replacement's outputs in the layer's types. Raises `UsageError` for other shapes."""
        replacement, graph = self.site.replacement, self.meaning.graph
        words = f"{replacement.words} for {self.call.name}"
        answers = called(replacement.forward, (self.call, self.meaning, arrays), words)
        if len(answers) != len(self.meaning.results):
            raise UsageError(
                f"it gave {len(answers)} arrays, the layer gives {len(self.meaning.results)}",
                place=words,
            )
        converted = []
        for value, array in zip(self.meaning.results, answers):
            type_ = graph.types[value]
            if array.shape != type_.shape:
                raise UsageError(
                    f"it gave the shape {array.shape}, the layer gives {type_.shape}", place=words
                )
            with np.errstate(over="ignore"):
                converted.append(np.array(array, type_.dtype.numpy, order="C"))
        return converted

    def backward(
        self, tensors: Sequence[Any], cotangents: Sequence[Any], needed: Sequence[bool]
    ) -> list[Any]:
        arrays = arrays_of(tensors)
        output_gradients = [np.array(a) for a in arrays_of(cotangents)]
        own: list[np.ndarray | None] | None = None
        if self.site.own:
            words = f"gradients of {self.site.replacement.words} for {self.call.name}"
            arguments = (self.call, arrays, output_gradients)
            with torch.enable_grad():  # it may ask PyTorch
                own = called(self.site.replacement.backward, arguments, words)
        expected: list[np.ndarray | None] = [None] * len(arrays)
        if own is None or self.judging:
            expected = self._derived(tensors, arrays, output_gradients, needed, own)
        selected = expected if own is None else own
        return [
            tensor_of(np.array(g, a.dtype)) if is_needed and g is not None else None
            for g, a, is_needed in zip(selected, arrays, needed)
        ]

    def _derived(
        self,
        tensors: Sequence[Any],
        arrays: Sequence[np.ndarray],
        cotangents: Sequence[np.ndarray],
        needed: Sequence[bool],
        own: Sequence[np.ndarray | None] | None,
    ) -> list[np.ndarray | None]:
        """Gradients in float64; what the replacement gave is judged against them."""
        meaning, report = self.meaning, self.site.report
        named = dict(zip(meaning.results, cotangents))
        names = [v if requested else None for v, requested in zip(meaning.inputs, needed)]
        requested = [v for v in names if v is not None]
        roundings = None
        try:
            pulled = Pulled(meaning.graph, meaning.arrays(arrays))
            gradients = pulled.back(named, requested)
            report.derived = report.derived or BY_MEANING
            if own is not None and self.judging:
                roundings = pulled.roundings(named, requested)
        except UnsupportedError:
            gradients = self._by_pytorch(tensors, cotangents, names)
            report.derived = BY_PYTORCH
        expected = [None if v is None else gradients[v] for v in names]
        findings: Mapping[str, Finding] = {}
        if self.judging and own is not None and roundings is None:
            findings = self._by_network(tensors, arrays, cotangents, own)
        if self.judging:
            batch = int(arrays[0].shape[0]) if arrays and arrays[0].ndim else 1
            for i, (v, name) in enumerate(zip(names, self.call.names)):
                if v is None:
                    continue
                exact = gradients[v]
                mine = exact.astype(arrays[i].dtype) if own is None else own[i]
                if mine is not None:
                    mine = np.asarray(mine, arrays[i].dtype)
                rounding = None if roundings is None else roundings[v]
                gradient_finding = judged_gradient(mine, exact, rounding, batch, findings.get(name))
                report.judged_gradient(name, gradient_finding)
        return expected

    def _by_network(
        self,
        tensors: Sequence[Any],
        arrays: Sequence[np.ndarray],
        cotangents: Sequence[np.ndarray],
        own: Sequence[np.ndarray | None],
    ) -> Mapping[str, Finding]:
        """Findings on the replacement's gradients, by the network of the layer's; none where it
        has no reference, or where they are of other shapes."""
        call, site = self.call, self.site
        actual = {
            name: np.asarray(g, a.dtype)
            for name, a, g in zip(call.names, arrays, own)
            if g is not None and np.shape(g) == a.shape and a.dtype.kind == "f"
        }
        try:
            if call.key not in site.gradients:

                def outputs(*values: Any) -> tuple[Any, ...]:
                    leaves = torch.utils._pytree.tree_leaves(call.original(*values))
                    return tuple(t for t in leaves if t.is_floating_point())

                differentiated = Differentiable(
                    dict(zip(call.names, tensors)), tuple(call.names), outputs, call.name
                )
                seeds = [tensor_of(np.array(g)) for g in cotangents if g.dtype.kind == "f"]
                site.gradients[call.key] = LayerGradients(differentiated, seeds)
            floats = [g for g in cotangents if g.dtype.kind == "f"]
            return site.gradients[call.key].findings(dict(zip(call.names, arrays)), floats, actual)
        except VeraxError:
            return {}

    def _by_pytorch(
        self,
        tensors: Sequence[Any],
        cotangents: Sequence[np.ndarray],
        names: Sequence[str | None],
    ) -> dict[str, np.ndarray]:
        """Gradients of the layer itself in float64, for operators without a rule of ours."""
        copies = [t.detach().clone() for t in tensors]  # the layer may write to its buffers
        wide = [t.double() if t.is_floating_point() else t for t in copies]
        leaves = [t.requires_grad_() if v is not None else t for t, v in zip(wide, names)]
        with torch.enable_grad():
            results = torch.utils._pytree.tree_leaves(self.call.original(*leaves))
            seeds = [tensor_of(np.asarray(g, np.float64)) for g in cotangents]
            torch.autograd.backward(results, seeds)
        return {
            v: np.zeros(t.shape) if t.grad is None else t.grad.numpy()
            for t, v in zip(leaves, names)
            if v is not None
        }


class _Subject:
    """A call's results as the judge's subject; on other inputs the replacement is called again."""

    capabilities = Capabilities()
    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(
        self, job: _Job, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]
    ) -> None:
        self.job, self.arrays, self.results = job, arrays, results
        self.name = job.site.replacement.words

    def describe(self) -> dict[str, str]:
        return {"kind": "replacement of a layer", "layer": self.job.call.name}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """As `judge.protocol.Runner.run`."""
        meaning = self.job.meaning
        own = list(zip(meaning.inputs, self.arrays))
        if all(v is None or inputs[v] is a for v, a in own):
            return dict(zip(meaning.results, self.results))
        arrays = [a if v is None else np.array(inputs[v]) for v, a in own]
        return dict(zip(meaning.results, self.job.replaced(arrays)))

"""Functions of PyTorch's tensors under random rounding: a dispatch mode that rounds at random.

The mode sees ATen's operators, those of a backward pass among them. Composite ones (softmax, norms,
losses) are decomposed as PyTorch itself does it; sums of products are disturbed as sums are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.arrays import as_array, as_tensor
from verax.base.errors import UsageError
from verax.base.optional import optional
from verax.testing.random_rounding import Arrays, RoundingNoise
from verax.torch.backward import decompositions

torch: Any = optional("torch", "to judge functions of tensors")
mode: Any = optional("torch.utils._python_dispatch", "to judge functions of tensors")
tree: Any = optional("torch.utils._pytree", "to judge functions of tensors")
aten = torch.ops.aten

EXACT = frozenset(
    (
        *("clone", "copy", "copy_", "_to_copy", "cat", "stack", "index", "index_select", "gather"),
        *("relu", "relu_", "abs", "neg", "maximum", "minimum", "max", "min", "amax", "amin"),
        *("clamp", "clamp_min", "clamp_max", "where", "masked_fill", "constant_pad_nd", "flip"),
        *("sort", "topk", "zeros", "ones", "zeros_like", "ones_like", "full", "full_like", "fill"),
        *("empty", "empty_like", "new_zeros", "new_empty", "new_ones", "new_full", "fill_"),
        *("zero_", "arange", "scalar_tensor", "sign", "floor", "ceil", "round", "trunc", "roll"),
        *("embedding", "repeat", "tril", "triu", "lift_fresh_copy", "slice_scatter", "scatter"),
        *("select_scatter", "threshold", "threshold_backward", "argmax", "argmin", "gt", "lt"),
        *("max_pool2d_with_indices", "max_pool2d", "reflection_pad2d", "cummax", "cummin"),
        *("empty_strided", "new_empty_strided", "detach", "lift", "lift_fresh", "masked_select"),
        *("max_pool2d_with_indices_backward", "select_backward", "slice_backward", "hardtanh"),
        *(
            "heaviside",
            "copysign",
            "isnan",
            "isinf",
            "_local_scalar_dense",
            "item",
            "pixel_shuffle",
        ),
    )
)
"""Operators whose results are exact."""
SUMS = ("sum", "mean", "cumsum")
PRODUCTS = ("mm", "bmm", "mv", "dot", "addmm", "baddbmm", "addmv", "convolution")
KEPT_WHOLE = frozenset(("mean", "cumsum", "addmm", "baddbmm", "addmv", "convolution", "max", "min"))
"""Operators that PyTorch has decompositions of, and which are disturbed as what they are."""


def _composites() -> dict[Any, Callable[..., Any]]:
    # References in terms of prims are left out: they end at operators without a kernel.
    registered = torch._decomp.decomposition_table.items()
    table = {op: f for op, f in registered if f.__module__.startswith("torch._decomp")}
    exact = EXACT | KEPT_WHOLE | {*SUMS, *PRODUCTS}
    return {op: f for op, f in {**table, **decompositions()}.items() if _name(op) not in exact}


def _name(operator: Any) -> str:
    return str(operator.name()).rpartition("::")[2].partition(".")[0]


class RandomRounding(mode.TorchDispatchMode):  # type: ignore[misc, name-defined]
    """Inside, the result of every operation on float64 tensors is rounded at random."""

    def __init__(self, noise: RoundingNoise) -> None:
        super().__init__()
        self.noise = noise
        self.composites = _composites()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _name(func)
        if func.is_view or name in EXACT:
            return func(*args, **kwargs)
        if func in self.composites:
            with self:
                result = self.composites[func](*args, **kwargs)
            if result is not NotImplemented:
                return result
        if name in SUMS or name in PRODUCTS:
            return self._summed(func, name, args, kwargs)
        if torch.Tag.pointwise not in func.tags and not name.endswith("_"):
            args = tree.tree_map(self._disturbed, args)
        result = func(*args, **kwargs)
        return tree.tree_map(self._rounded, result)

    def _disturbed(self, x: Any) -> Any:
        if not _is_wide(x):
            return x
        return torch.from_numpy(self.noise.normwise(x.detach().numpy(), max(x.shape, default=1)))

    def _rounded(self, y: Any) -> Any:
        if not _is_wide(y):
            return y
        # In place: an operator that writes to an argument returns it.
        return y.copy_(torch.from_numpy(self.noise.rounded(y.detach().numpy())))

    def _summed(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if not _is_wide(result):
            return result

        def squared(x: Any) -> Any:
            return x * x if _is_wide(x) else x

        def ones(x: Any) -> Any:
            return torch.ones_like(x) if _is_wide(x) else x

        squares = func(*tree.tree_map(squared, args), **kwargs).detach().numpy()
        counts = func(*tree.tree_map(ones, args), **kwargs).detach().numpy()
        if name == "mean":
            counts = np.full(result.shape, args[0].numel() / max(1, result.numel()))
            squares = squares / counts
        y = self.noise.summed(result.detach().numpy(), np.abs(squares), np.abs(counts))
        return torch.from_numpy(np.ascontiguousarray(y)).reshape(result.shape)


def _is_wide(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype == torch.float64


class TorchFunction:
    """A function of tensors. inputs: arrays on the host, by position."""

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[np.ndarray], label: str
    ) -> None:
        self.function, self.label = function, label
        self.inputs = tuple(inputs)

    def exact(self) -> Arrays:
        return self._outputs([_double(x) for x in self.inputs])

    def with_input(self, index: int, by: np.ndarray) -> Arrays:
        wide = [_double(x) for x in self.inputs]
        wide[index] = torch.from_numpy(np.array(by, np.float64))
        return self._outputs(wide)

    def sample(self, noise: RoundingNoise) -> Arrays:
        inputs = []
        for x in self.inputs:
            tensor = _double(x)
            if _is_wide(tensor):
                tensor = torch.from_numpy(np.asarray(noise.disturbed(tensor.numpy())))
            inputs.append(tensor)
        with RandomRounding(noise):
            return self._outputs(inputs)

    def own(self) -> Arrays | None:
        try:
            return self._outputs([as_tensor(np.array(x)) for x in self.inputs])
        except Exception:  # whatever a function of anybody's raises in a narrow type
            return None

    def _outputs(self, inputs: Sequence[Any]) -> Arrays:
        return tensors_of(self.function(*inputs), self.label)


def _double(x: np.ndarray) -> Any:
    tensor = as_tensor(np.array(x))
    return tensor.double() if tensor.is_floating_point() else tensor


def tensors_of(result: Any, label: str) -> Arrays:
    """What a function returned as arrays in order. Raises `UsageError` for anything else."""
    listed = list(result.values()) if isinstance(result, Mapping) else result
    listed = list(listed) if isinstance(listed, list | tuple) else [listed]
    if any(x.is_complex() for x in listed if isinstance(x, torch.Tensor)):
        raise UsageError(
            "the meaning gives complex numbers",
            place=label,
            next_step="return their real and imaginary parts (torch.view_as_real)",
        )
    return [as_array(x, label) for x in listed]


def vjp_of(
    function: Callable[..., Any], differentiated: Sequence[int], outputs: int
) -> Callable[..., tuple[Any, ...]]:
    """A function of inputs and then of `outputs` cotangents: the gradients of the inputs in
    `differentiated`; zeros for one that no output depends on."""

    def vjp(*arguments: Any) -> tuple[Any, ...]:
        inputs, cotangents = arguments[:-outputs], arguments[-outputs:]
        leaves = [
            x.detach().clone().requires_grad_() if i in differentiated else x
            for i, x in enumerate(inputs)
        ]
        with torch.enable_grad():
            result = function(*leaves)
        results = list(result.values()) if isinstance(result, Mapping) else result
        results = list(results) if isinstance(results, list | tuple) else [results]
        paired = [(r, c) for r, c in zip(results, cotangents) if r.requires_grad]
        variables = [leaves[i] for i in differentiated]
        if not paired:
            return tuple(torch.zeros_like(v) for v in variables)
        gradients = torch.autograd.grad(
            [r for r, _ in paired],
            variables,
            [c.to(r.dtype) for r, c in paired],
            allow_unused=True,
        )
        return tuple(torch.zeros_like(v) if g is None else g for v, g in zip(variables, gradients))

    return vjp

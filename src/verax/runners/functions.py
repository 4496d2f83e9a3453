"""Python callables as subjects: a function on arrays, or a torch module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.errors import UsageError, VeraxError
from verax.base.optional import optional
from verax.ir.graph import Graph


class FunctionRunner:
    """Calls `function` with the inputs in the model's order.

    The result is an array, a sequence of arrays in the order of the model's outputs, or a mapping
    from names of values (inner ones welcome) to arrays. Torch modules get and give tensors.
    """

    watches = False
    stored_inputs: Mapping[str, np.ndarray] | None = None

    def __init__(self, function: Callable[..., Any], name: str = "") -> None:
        self.function = function
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self._torch = any(c.__module__.startswith("torch.nn") for c in type(function).__mro__)

    def describe(self) -> dict[str, str]:
        return {"kind": "torch module" if self._torch else "Python callable"}

    def run(
        self, graph: Graph, inputs: Mapping[str, np.ndarray], keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        arrays: list[Any] = [np.array(inputs[v]) for v in graph.inputs]
        try:
            if self._torch:
                torch = optional("torch", "to run a torch module")
                with torch.no_grad():
                    result = self.function(*(torch.from_numpy(a) for a in arrays))
            else:
                result = self.function(*arrays)
        except VeraxError:
            raise
        except Exception as error:
            raise UsageError(
                f"the subject raised {type(error).__name__}: {error}",
                place=self.name,
                next_step="run it by itself on these inputs",
            ) from error
        return self._named(graph, result)

    def _named(self, graph: Graph, result: Any) -> dict[str, np.ndarray]:
        if isinstance(result, Mapping):
            return {str(k): _array(v) for k, v in result.items()}
        listed = list(result) if isinstance(result, tuple | list) else [result]
        if len(listed) != len(graph.outputs):
            raise UsageError(
                f"the subject gave {len(listed)} arrays, the model has {len(graph.outputs)} "
                f"outputs ({', '.join(graph.outputs)})",
                place=self.name,
                next_step="return them in this order, or a dictionary by name",
            )
        return {name: _array(v) for name, v in zip(graph.outputs, listed)}


def _array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    return np.asarray(value)

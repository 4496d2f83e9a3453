"""Between NumPy and PyTorch: tensors, and ExportedPrograms run so that inner values show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from verax.base.optional import optional
from verax.judge.protocol import Shape

PURPOSE = "to run the subject 'torch'"


def to_torch(array: np.ndarray) -> Any:
    """A tensor with its own memory; bfloat16 keeps its bits."""
    torch = optional("torch", PURPOSE)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))


def from_torch(value: Any) -> np.ndarray:
    """The array of a tensor, of a number or of anything that NumPy takes."""
    if not hasattr(value, "detach"):
        return np.asarray(value)
    torch = optional("torch", PURPOSE)
    tensor = value.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(ml_dtypes.bfloat16).copy()
    return np.array(tensor.numpy())


def user_shapes(program: Any) -> dict[str, Shape]:
    """Shapes of an ExportedProgram's inputs by name, in order."""
    wanted = list(program.graph_signature.user_inputs)
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    return {str(n): _shape(values.get(n)) for n in wanted}


def _shape(value: Any) -> Shape:
    if not hasattr(value, "shape"):
        return None
    return tuple(d if isinstance(d, int) else None for d in value.shape)


def run_exported(
    program: Any, inputs: Mapping[str, np.ndarray], keep: Sequence[str]
) -> dict[str, np.ndarray]:
    """Outputs of an ExportedProgram, and the inner values in `keep`, by the names of its nodes.

    inputs: under the program's own names.
    """
    torch = optional("torch", PURPOSE)
    wanted, shown = set(keep), {}

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc, name-defined]
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            if node.name in wanted and isinstance(result, torch.Tensor):
                shown[node.name] = from_torch(result)  # a copy: a later node may write in place
            return result

    module = program.module()
    flat = [to_torch(inputs[n]) for n in program.graph_signature.user_inputs]
    with torch.no_grad():
        if wanted:
            results = Recorder(module).run(*flat)
        else:
            args, kwargs = torch.utils._pytree.tree_unflatten(flat, program.call_spec.in_spec)
            results = module(*args, **kwargs)
    leaves = torch.utils._pytree.tree_leaves(results)
    names = program.graph_signature.user_outputs
    return {**shown, **{str(n): from_torch(r) for n, r in zip(names, leaves)}}

"""A module's own way of being called: its example inputs by name, and its results in its form.

PyTorch is imported only for what is PyTorch's: whoever hands over a tensor or a module has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.base.arrays import as_array
from verax.base.optional import optional
from verax.base.tensors import is_exported, is_tensor
from verax.frontends.torch.examples import arguments_of
from verax.runners.pytorch.torch_tensors import PURPOSE, to_torch


def named_examples(program: Any, inputs: Any) -> dict[str, np.ndarray]:
    """Example inputs, as a module was exported with, by the names of the program's inputs.

    inputs: a tensor, a sequence of positional arguments, or a mapping of keyword arguments.
    """
    named = named_tensors(program, arguments_of(inputs))
    return {name: as_array(tensor, f"input {name!r}") for name, tensor in named.items()}


def named_tensors(program: Any, arguments: Any) -> dict[str, Any]:
    """The arrays among a module's arguments, in whatever form they were given, by the names of the
    program's inputs."""
    torch = optional("torch", PURPOSE)
    leaves = torch.utils._pytree.tree_leaves(arguments)
    specs = [s for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    return {
        spec.arg.name: leaf
        for spec, leaf in zip(specs, leaves)
        if is_tensor(leaf) or is_exported(leaf)
    }


def complex_inputs(program: Any) -> tuple[str, ...]:
    """Inputs of an ExportedProgram that are complex; Verax holds them as pairs."""
    return tuple(
        str(n.name)
        for n in program.graph.nodes
        if n.op == "placeholder" and getattr(n.meta.get("val"), "is_complex", bool)()
    )


def as_module_output(program: Any, arrays: Sequence[np.ndarray]) -> Any:
    """`arrays`, in the order of the program's tensor outputs, as the structure that the module
    returns: a dictionary, a tuple, one tensor."""
    torch = optional("torch", PURPOSE)
    specs = [s for s in program.graph_signature.output_specs if s.kind.name == "USER_OUTPUT"]
    left = iter(arrays)
    values = {n.name: n.meta.get("val") for n in program.graph.nodes}

    def tensor(name: str) -> Any:
        pair = getattr(values.get(name), "is_complex", bool)()
        value = to_torch(next(left))
        return torch.view_as_complex(value) if pair else value

    leaves = [
        tensor(s.arg.name) if type(s.arg).__name__ == "TensorArgument" else s.arg.value
        for s in specs
    ]
    return torch.utils._pytree.tree_unflatten(leaves, program.call_spec.out_spec)


def as_tensors(arrays: Sequence[np.ndarray]) -> Any:
    """One tensor, or a tuple of several."""
    tensors = tuple(to_torch(a) for a in arrays)
    return tensors[0] if len(tensors) == 1 else tensors

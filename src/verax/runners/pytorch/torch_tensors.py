"""Between NumPy and PyTorch: tensors, and ExportedPrograms run so that inner values show."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from verax.base.arrays import as_array, as_tensor
from verax.base.errors import ModelError
from verax.base.machine.devices import require_torch_device
from verax.base.optional import optional
from verax.frontends.pytrees import Step, leaf_names, name_of
from verax.judge.protocol import Shape

PURPOSE = "to run the subject 'torch'"


def to_torch(array: np.ndarray, device: Any = None) -> Any:
    """A tensor with its own memory; types of `ml_dtypes` keep their bits.

    device: a `torch.device` that it is copied to, None for the processor.
    """
    tensor = as_tensor(np.array(array))
    return tensor if device is None else tensor.to(device)


def from_torch(value: Any) -> np.ndarray:
    """The array of a tensor, of a number or of anything that NumPy takes, in memory of its own."""
    return np.array(as_array(value))


def user_shapes(program: Any) -> dict[str, Shape]:
    """Shapes of an ExportedProgram's inputs by name, in order; without what was fixed when it was
    exported."""
    values = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    return {n: _shape(values[n]) for n, is_given in _user_inputs(program) if is_given}


def input_devices(program: Any) -> dict[str, Any]:
    """The `torch.device` that an ExportedProgram takes each of its tensors on, by name."""
    values = {str(n.name): n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    return {name: v.device for name, v in values.items() if hasattr(v, "device")}


def on_device(program: Any, name: str, *, own: bool = False) -> Any:
    """An ExportedProgram with its weights, inputs and constants on the device of that name; itself
    for "". own: whether it may be changed. Raises `UsageError` where there is no such device."""
    if not name:
        return program
    torch = optional("torch", PURPOSE)
    device = require_torch_device(torch, name)
    if not own:  # what moves a program changes it
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
        buffer.seek(0)
        program = torch.export.load(buffer)
    passes = optional("torch.export.passes", "to move a program to a device")
    return passes.move_to_device_pass(program, str(device))


def program_device(program: Any) -> Any:
    """The `torch.device` of an ExportedProgram's weights, or else of its inputs; None for one that
    has neither."""
    tensors = (*program.state_dict.values(), *program.constants.values())
    weights = [t.device for t in tensors if hasattr(t, "device")]
    devices = [*weights, *input_devices(program).values()]
    return next(iter(devices), None)


def _user_inputs(program: Any) -> list[tuple[Any, bool]]:
    """The program's flat inputs: the name of one that is given, or the value of one that is not."""
    inputs = []
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            fixed = type(spec.arg).__name__ == "ConstantArgument"
            inputs.append((spec.arg.value, False) if fixed else (str(spec.arg.name), True))
    return inputs


def _shape(value: Any) -> Shape:
    if not hasattr(value, "shape"):
        return None
    pair = (2,) * value.dtype.is_complex
    return tuple(d if isinstance(d, int) else None for d in (*value.shape, *pair))


def flat_inputs(program: Any, inputs: Mapping[str, np.ndarray], device: Any = None) -> list[Any]:
    """What the program takes, flat: arrays under the program's own names as tensors, and what was
    fixed when it was exported. device: a `torch.device` for all tensors; without it each lies where
    the program was exported with it."""
    complex_inputs = {
        n.name
        for n in program.graph.nodes
        if n.op == "placeholder" and getattr(n.meta.get("val"), "is_complex", bool)()
    }
    torch = optional("torch", PURPOSE)
    devices, flat = input_devices(program), []
    for name, is_given in _user_inputs(program):
        value = to_torch(inputs[name], device or devices.get(name)) if is_given else name
        flat.append(torch.view_as_complex(value) if name in complex_inputs else value)
    return flat


def arguments(program: Any, flat: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments of the module that was exported, from its flat inputs."""
    torch = optional("torch", PURPOSE)
    args, kwargs = torch.utils._pytree.tree_unflatten(list(flat), program.call_spec.in_spec)
    return args, kwargs


def output_names(program: Any) -> list[str]:
    """Names of the program's flat outputs: the keys of what the module returns, or else its nodes.

    The same as a model of Verax has that was imported from the program.
    """
    torch = optional("torch", PURPOSE)
    nodes = [str(n) for n in program.graph_signature.user_outputs]
    try:
        keys = leaf_names(torch.utils._pytree.treespec_dumps(program.call_spec.out_spec))
    except (NotImplementedError, ModelError):
        return nodes  # a container that torch cannot write down, such as a named tuple
    if len(keys) != len(nodes):
        return nodes
    return [key or node for key, node in zip(keys, nodes)]


def tensors_by_name(names: Sequence[str], results: Any) -> dict[str, np.ndarray]:
    """The tensors among the leaves of what a program gave, as arrays."""
    torch = optional("torch", PURPOSE)
    leaves = torch.utils._pytree.tree_leaves(results)
    return {n: from_torch(r) for n, r in zip(names, leaves) if isinstance(r, torch.Tensor)}


def named_leaves(result: Any, path: tuple[Step, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every tensor that a module returned, with its dotted key ("" where no key leads to it)."""
    children: list[tuple[Step, Any]] = []
    if hasattr(result, "detach"):
        yield name_of(path), result
    elif isinstance(result, Mapping):
        children = [((str(k), True), v) for k, v in result.items()]
    elif dataclasses.is_dataclass(result):
        fields = [f.name for f in dataclasses.fields(result)]
        children = [((name, True), getattr(result, name)) for name in fields]
    elif isinstance(result, tuple | list):
        children = [((str(i), False), v) for i, v in enumerate(result)]
    for step, child in children:
        yield from named_leaves(child, (*path, step))


def run_exported(
    program: Any,
    inputs: Mapping[str, np.ndarray],
    keep: Sequence[str],
    *,
    module: Any = None,
    call: Any = None,
    written: Mapping[str, str] | None = None,
) -> dict[str, np.ndarray]:
    """Outputs of an ExportedProgram, and the inner values in `keep`, by the names of its nodes.

    inputs: under the program's own names. module: its `ExportedProgram.module()`. call: what is
    called instead of it (it, compiled), which shows no inner values. written: inputs whose content
    after the run is shown, and as what.
    """
    torch = optional("torch", PURPOSE)
    names, values = set(keep), {}

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc, name-defined]
        def run_node(self, node: Any) -> Any:
            result = super().run_node(node)
            if node.name in names and isinstance(result, torch.Tensor):
                values[node.name] = from_torch(result)  # a copy: a later node may write in place
            return result

    module = program.module() if module is None else module
    flat = flat_inputs(program, inputs)
    with torch.no_grad():
        if names and call is None:
            results = Recorder(module).run(*flat)
        else:
            args, kwargs = arguments(program, flat)
            results = (module if call is None else call)(*args, **kwargs)
    values |= new_contents(tensors_of(program, flat), written or {})
    return {**values, **tensors_by_name(output_names(program), results)}


def tensors_of(program: Any, flat: Sequence[Any]) -> dict[str, Any]:
    """The tensors among a program's flat inputs, by name."""
    return {n: t for (n, is_given), t in zip(_user_inputs(program), flat) if is_given}


def new_contents(tensors: Mapping[str, Any], written: Mapping[str, str]) -> dict[str, np.ndarray]:
    """What inputs hold after a run. written: input -> the name to show it under."""
    return {new: from_torch(tensors[v]) for v, new in written.items() if v in tensors}

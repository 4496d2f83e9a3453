"""PyTorch programs -> `Model`, from a `.pt2` file, its bytes, or torch's own objects.

Torch's objects take the same way as files: they are saved as an archive in memory and read back,
so there is one reader and one meaning.
"""

from __future__ import annotations

import dataclasses
import io
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from verax.base.errors import ModelError, UnsupportedError, UsageError
from verax.base.machine.devices import module_device, without_autocast
from verax.base.machine.torch_guard import hold_device_guard
from verax.base.optional import optional
from verax.base.tensors import is_function
from verax.frontends.common.foreign import ForeignModel
from verax.frontends.common.importing import Importer
from verax.frontends.common.stated_sizes import Shapes
from verax.frontends.model import Model
from verax.frontends.torch.archive import Pt2Archive
from verax.frontends.torch.decomposition import (
    MEANINGS,
    ROUNDS,
    decomposed,
    enter,
    enter_unwrapped,
    holds_meant,
    refused_operators,
    unwrapped,
)
from verax.frontends.torch.examples import arguments_of
from verax.frontends.torch.functions import as_module, names_of_source
from verax.frontends.torch.named_tuples import as_dictionaries
from verax.frontends.torch.open_axes import fixed_axes, open_axes_of, unmarked
from verax.frontends.torch.reader import read_program
from verax.frontends.torch.rows import COMPOSITE
from verax.frontends.torch.source_lines import with_line
from verax.frontends.torch.table import TABLE

RANDOM = frozenset((
    *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
    *("bernoulli", "multinomial", "normal", "normal_", "uniform", "uniform_", "poisson"),
    *("exponential", "exponential_", "bernoulli_", "random_", "log_normal_", "geometric_"),
))  # fmt: skip
"""ATen operators that draw random numbers whatever their arguments."""


def load_torch(
    source: Any,
    shapes: Shapes | None = None,
    values: Mapping[str, np.ndarray] | None = None,
    *,
    inputs: Any = None,
) -> Model:
    """Import a `.pt2` archive (a path or bytes, without torch), an `ExportedProgram`, or an
    `nn.Module` or a function with example `inputs`: a tensor, a sequence of positional arguments,
    or a mapping of keyword arguments.

    shapes, values: as for every format; an input that the program writes to stays one, whatever
    its value is. Raises `ModelError` for a damaged file, `UnsupportedError` listing what Verax
    lacks, `UsageError` when a module comes without inputs or cannot be exported; of a program in
    memory, with the line of Python that a refused node comes from.
    """
    if isinstance(source, str | os.PathLike | bytes):
        _no_examples(inputs, "a file")
        name = "bytes" if isinstance(source, bytes) else os.fspath(source)
        return _read(Pt2Archive(source), name, shapes, values)
    return _of_program(_program(source, inputs, shapes), names_of_source(source)[1], shapes, values)


def _of_program(
    program: Any, name: str, shapes: Shapes | None, values: Mapping[str, np.ndarray] | None
) -> Model:
    """The model of a program in memory; what the table lacks is decomposed, as often as helps."""
    counts: Counter[str] = Counter()
    first: UnsupportedError | None = None
    original, program = program, unwrapped(program)
    taken_apart = program is not original
    for _ in range(ROUNDS):
        try:
            model = _read(Pt2Archive(_saved(program)), name, shapes, values)
        except UnsupportedError as error:
            error = with_line(error, program)
            first = first or error
            try:
                simpler, more = decomposed(program, refused_operators(error))
            except UnsupportedError:
                more = Counter()
            if not more:
                raise _with_parts(first, error) from error
            program, counts = simpler, counts + more
        except ModelError as error:
            raise with_line(error, program) from error
        else:
            if taken_apart:
                enter_unwrapped(model.ledger)
            # Whoever runs it runs the operators themselves, not what they mean.
            source = original if MEANINGS and holds_meant(original) else program
            return dataclasses.replace(_with_counts(model, counts), program=source)
    assert first is not None
    raise first


def _with_parts(first: UnsupportedError, last: UnsupportedError) -> UnsupportedError:
    """The refusal of the program as it was given, with what its simpler operators still lack."""
    if first is last:
        return first
    cause = f"{first.cause}; in simpler operators: {last.cause}"
    return UnsupportedError(cause, place=first.place, next_step=first.next_step)


def _read(
    archive: Pt2Archive, name: str, shapes: Shapes | None, values: Mapping[str, np.ndarray] | None
) -> Model:
    foreign = read_program(archive)
    _nothing_drawn(foreign)
    fixed = {v: a for v, a in (values or {}).items() if v not in foreign.updates}
    importer = Importer(foreign, TABLE, shapes, fixed)
    model = importer.run(name, f"PyTorch {foreign.metadata['torch']} (torch.export)")
    called = [n.op_type for n in foreign.nodes if n.domain == "aten" and n.op_type in COMPOSITE]
    return _with_counts(model, Counter(f"aten::{name}" for name in called))


def _with_counts(model: Model, counts: Counter[str]) -> Model:
    """The model, its ledger and metadata saying what was decomposed."""
    if not counts:
        return model
    enter(model.ledger, counts)
    listed = ", ".join(f"{k} ({n})" for k, n in sorted(counts.items()))
    before = model.metadata.get("decomposed")
    decomposed = listed if before is None else f"{listed}, {before}"
    return dataclasses.replace(model, metadata={**model.metadata, "decomposed": decomposed})


def _nothing_drawn(foreign: ForeignModel) -> None:
    """Raises `UnsupportedError` for a program that draws random numbers and uses them."""
    for node in foreign.nodes:
        if node.op_type.partition(".")[0] in RANDOM and any(node.outputs):
            raise UnsupportedError(
                f"{node.domain}::{node.op_type} draws random numbers, which are no function of the "
                "network's inputs",
                place=node.place,
                next_step="give them as an input, or draw them outside; torch.compile with the "
                'backend "verax" does so by itself',
            )


def _program(source: Any, inputs: Any, shapes: Shapes | None = None) -> Any:
    """The ExportedProgram that `source` is, or that a module or a function becomes at inference;
    sizes that `shapes` does not state as numbers are open in it."""
    torch = optional("torch", "to read torch's own objects")
    if isinstance(source, torch.export.ExportedProgram):
        _no_examples(inputs, "an ExportedProgram")
        return source
    if is_function(source):
        source = as_module(source)
    if not isinstance(source, torch.nn.Module):
        raise UsageError(
            f"a {type(source).__name__} cannot be imported",
            next_step="give an nn.Module or a function with inputs, an ExportedProgram, or a .pt2 "
            "file",
        )
    kind, name = names_of_source(source)
    if inputs is None:
        raise UsageError(
            f"a {kind} says nothing about its inputs",
            place=name,
            next_step=f"give example inputs: verax.load({kind}, inputs=(x,))",
        )
    positional, named = arguments_of(inputs, module_device(source))
    open_axes = open_axes_of(source, positional, named, shapes or {})
    if open_axes is not None:
        positional, named = unmarked((positional, named))
    hold_device_guard(torch)  # this thread may end
    training = [submodule for submodule in source.modules() if submodule.training]
    try:
        # The network is the module as it is written, not what the caller's autocast makes of it.
        with without_autocast(torch):
            return torch.export.export(
                source.eval(), positional, named, dynamic_shapes=open_axes, strict=False
            )
    except Exception as error:
        if fixed := fixed_axes(error):
            raise UsageError(
                f"these axes cannot stay open: {fixed}",
                place=name,
                next_step="leave open the axes of other inputs that have to agree with them, too, "
                "and give examples with sizes above 1; or leave them out",
            ) from error
        raise UsageError(
            f"torch.export cannot export the {kind}: {str(error).partition(chr(10))[0][:300]}",
            place=name,
            next_step="torch.export.export(module, inputs) shows the whole message",
        ) from error
    finally:
        for submodule in training:
            submodule.training = True  # the caller's module is left as it was, part by part


def _no_examples(inputs: Any, description: str) -> None:
    if inputs is not None:
        raise UsageError(
            f"example inputs are given for {description}, which tells its inputs itself",
            next_step="leave inputs out; sizes that it leaves open are given as shapes",
        )


def _saved(program: Any) -> bytes:
    """The archive of a program."""
    torch = optional("torch", "to read torch's own objects")
    buffer = io.BytesIO()
    try:
        with as_dictionaries(program):
            torch.export.save(program, buffer)
    except Exception as error:
        raise ModelError(f"torch cannot save the program: {str(error)[:300]}") from error
    return buffer.getvalue()

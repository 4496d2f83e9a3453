"""Whether a binary read from a file fits together, so that running it stays in its buffers.

This is about Python steps, which read and write the arena, the weights and the caller's arrays at
places that the binary names. That native code keeps to its buffers is the compiler's promise; that
the binary is the one it was compiled for, `runtime.program_binary.contract` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from verax.runtime.header_values import HeaderError
from verax.runtime.open_sizes import OFFSET, OpenSizes
from verax.runtime.program_binary import (
    ELEMENT_TYPES,
    CountedStep,
    ProgramBinary,
    PythonStep,
    Segment,
    Signature,
    SizeStep,
    Tensor,
)


def check_binary(binary: ProgramBinary) -> None:
    """Raise `HeaderError` naming what does not fit."""
    status = 4 * len(binary.checks)
    if binary.open_sizes is not None:
        _check_open_sizes(binary, binary.open_sizes, status)
    elif not status <= binary.kept_bytes <= binary.arena_bytes:
        raise HeaderError(
            f"{binary.arena_bytes} bytes of arena, of which {binary.kept_bytes} are kept, do not "
            f"hold {len(binary.checks)} checks"
        )
    _distinct((s.name for s in binary.inputs), "two inputs")
    _distinct((s.name for s in binary.outputs), "two outputs")
    _distinct((s.input for s in binary.state), "two states are the input")
    _distinct((s.output for s in binary.state), "two states have the new value")
    if binary.python_outputs and binary.python_outputs != tuple(s.name for s in binary.outputs):
        raise HeaderError("image.python_outputs are other names than those of the outputs")
    segments = [s.function for s in binary.schedule if isinstance(s, Segment)]
    _distinct(segments, "two steps run")
    if bool(segments) != bool(binary.object_code):
        raise HeaderError("there are native steps without code, or code without native steps")
    if binary.pool and not binary.object_code:
        raise HeaderError("threads are wanted and there is no code")
    defined: set[str] = set()
    for index, step in enumerate(binary.schedule):
        if isinstance(step, PythonStep):
            _check_step(binary, step, defined, f"step {index}")
            defined |= {t.name for t in step.outputs if t.region == "python"}
        elif isinstance(step, CountedStep):
            _check_counted(binary, step, defined, f"step {index}")
            defined.add(step.output.name)


def _check_open_sizes(binary: ProgramBinary, sizes: OpenSizes, status: int) -> None:
    """Of a program for many sizes, the arena is placed for each set of them, behind its checks."""
    if sizes.start < status or binary.arena_bytes or binary.kept_bytes:
        raise HeaderError(f"its buffers begin at {sizes.start} of the arena, within its checks")
    if not all(isinstance(step, Segment | SizeStep) for step in binary.schedule):
        raise HeaderError("a program for many sizes has a step in Python")
    _check_counts(binary, sizes)
    if binary.state:
        raise HeaderError("a program for many sizes remembers something")


def _check_counts(binary: ProgramBinary, sizes: OpenSizes) -> None:
    """Sizes that data decide are counted once, in order, each behind all that it follows from."""
    steps = [step.counted for step in binary.schedule if isinstance(step, SizeStep)]
    if steps != list(range(len(sizes.counted))):
        raise HeaderError(f"{len(sizes.counted)} sizes are counted by the steps {steps[:9]}")
    _distinct((f"d{counted.symbol}" for counted in sizes.counted), "two steps count")
    for stage, counted in enumerate(sizes.counted):
        if not len(sizes.symbols) <= counted.symbol < sizes.size_count:
            raise HeaderError(f"count {stage} is the size d{counted.symbol}, which is an input's")
        index = counted.entry - sizes.size_count
        entry = sizes.entries[index] if 0 <= index < len(sizes.entries) else ""
        if not OFFSET.fullmatch(entry) or sizes.stage(entry) > stage:
            raise HeaderError(f"count {stage} is at {entry[:80]!a}, which is no buffer by then")
    if any(sizes.stage(*shape) for shape in sizes.inputs):
        raise HeaderError("the shape of an input follows from what is counted")


def _distinct(names: Iterable[str], message: str) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise HeaderError(f"{message} {name[:80]!a}")
        seen.add(name)


def _check_step(binary: ProgramBinary, step: PythonStep, defined: set[str], location: str) -> None:
    if not step.outputs:
        raise HeaderError(f"{location} has no outputs")
    for i, tensor in enumerate(step.inputs):
        if tensor is not None:
            _check_tensor(binary, tensor, f"input {i} of {location}")
            if tensor.region == "python" and tensor.name not in defined:
                raise HeaderError(
                    f"input {i} of {location} is a value that no step before it makes"
                )
    for i, tensor in enumerate(step.outputs):
        output_location = f"output {i} of {location}"
        _check_tensor(binary, tensor, output_location)
        if tensor.region == "weights":
            raise HeaderError(f"{output_location} would overwrite the weights")
        if tensor.region == "io" and tensor.offset < len(binary.inputs):
            raise HeaderError(f"{output_location} would overwrite an input")
        if tensor.region == "python" and tensor.name in defined:
            raise HeaderError(f"{output_location} is a value that is made twice")
    _must_not_overlap([t for t in (*step.outputs, *step.inputs) if t is not None], step, location)


def _check_counted(
    binary: ProgramBinary, step: CountedStep, defined: set[str], location: str
) -> None:
    for field in ("rows", "count", "output"):
        _check_tensor(binary, getattr(step, field), f"{location}'s {field}")
    if step.rows.region != "arena" or step.axis >= len(step.rows.shape):
        raise HeaderError(f"the rows of {location} are no rows in the arena")
    if step.count.region != "arena" or step.count.dtype != "int64" or step.count.shape != (1,):
        raise HeaderError(f"the count of {location} is no number in the arena")
    if step.output.region != "python" or step.output.dtype != step.rows.dtype:
        raise HeaderError(f"the output of {location} is no value of the type of its rows")
    if step.output.name in defined:
        raise HeaderError(f"the output of {location} is a value that is made twice")


def _check_tensor(binary: ProgramBinary, tensor: Tensor, location: str) -> None:
    if tensor.region == "io":
        arrays: Sequence[Signature] = (*binary.inputs, *binary.outputs)
        if tensor.offset >= len(arrays):
            raise HeaderError(f"{location} is array {tensor.offset} of {len(arrays)}")
        array = arrays[tensor.offset]
        if tensor.dtype != array.dtype or prod(tensor.shape) != prod(array.shape):
            raise HeaderError(
                f"{location} is not the {array.dtype}{list(array.shape)} that it names"
            )
    elif tensor.region == "python":
        if not tensor.name or tensor.shape or tensor.offset:
            raise HeaderError(f"{location} needs a name and nothing else")
    else:
        start, end = _extent(tensor)
        extents = [(4 * len(binary.checks), binary.arena_bytes)]
        if tensor.region == "weights":
            extents = [(begin, begin + a.nbytes) for begin, a in binary.weight_regions()]
        if not any(low <= start <= end <= high for low, high in extents):
            raise HeaderError(f"{location} lies outside of the {tensor.region}")
        if start % ELEMENT_TYPES[tensor.dtype]:
            raise HeaderError(f"{location} is not aligned")


def _extent(tensor: Tensor) -> tuple[int, int]:
    return tensor.offset, tensor.offset + prod(tensor.shape) * ELEMENT_TYPES[tensor.dtype]


def _must_not_overlap(tensors: Sequence[Tensor], step: PythonStep, location: str) -> None:
    """Outputs share no bytes with each other and with the inputs."""
    for i, output in enumerate(step.outputs):
        for tensor in tensors[i + 1 :]:
            if output.region != tensor.region:
                continue
            if output.region == "arena":
                (a, b), (c, d) = _extent(output), _extent(tensor)
                shared = max(a, c) < min(b, d)
            elif output.region == "io":
                shared = output.offset == tensor.offset
            else:
                shared = output.region == "python" and output.name == tensor.name
            if shared:
                raise HeaderError(
                    f"outputs of {location} overlap with each other or with its inputs"
                )

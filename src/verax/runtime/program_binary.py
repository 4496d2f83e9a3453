"""`ProgramBinary`: a compiled program as plain data. The ABI between generated code and the
runtime.

Every native segment is `void segment(ptr ctx)`; ctx is an array of pointers:
    ctx[0] arena  ctx[1] weights  ctx[2] thread pool (null: one thread)  ctx[3 + i] caller array i
ctx[1] is an array of pointers, too: first the program's own weights, then the blocks of weights
that it may share with other programs.
The arena begins with an int32 for each entry of `checks`; a kernel sets it to 1 when an index that
the network computed lies outside of the tensor it indexes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from verax.runtime.open_sizes import OpenSizes
from verax.runtime.weight_blocks import WeightBlock

CTX_ARENA, CTX_WEIGHTS, CTX_POOL, CTX_ARRAYS = 0, 1, 2, 3
OWN_WEIGHTS = 0
"""Entry of the table at ctx[CTX_WEIGHTS]; the blocks follow."""
PAGE = 4096
"""Bytes: blocks of weights begin on such a boundary in a file."""
CONTRACT = "verax_contract"
"""Symbol of the object code: the digest of the binary that the code belongs to."""
ELEMENT_TYPES = {
    **{"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "bool": 1},
    **{f"{sign}int{8 * n}": n for sign in ("", "u") for n in (1, 2, 4, 8)},
    **dict.fromkeys(("int4", "uint4", "int2", "uint2", "float4_e2m1fn"), 1),
    **dict.fromkeys((f"float8_{n}" for n in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")), 1),
    "float8_e8m0fnu": 1,
}
"""Bytes of one element, by NumPy's name of the type."""
_NOTHING = np.zeros(0, np.uint8)


@dataclasses.dataclass(frozen=True)
class Signature:
    """Name, NumPy dtype name and shape of one input or output."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class State:
    """What a program remembers: the names of the input and of the output that is its new value.

    in_place: both may be one array. The program then writes only what changes, and a run that fails
    a check brings back what was there.
    """

    input: str
    output: str
    initial: np.ndarray
    in_place: bool = False


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Where a value of a Python step lies: `region` "arena", "weights", "io" or "python".

    Offsets in "weights" count as if the blocks followed the program's own (`block_starts`).
    In "python" the value lives in a dictionary under `name` (its shape is known only when run).
    """

    name: str
    region: str
    offset: int
    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Segment:
    """Run the native function `function`."""

    function: str


@dataclasses.dataclass(frozen=True)
class PythonStep:
    """Run node number `node` of the graph on the reference (no kernel exists for it)."""

    node: int
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]


@dataclasses.dataclass(frozen=True)
class CountedStep:
    """Give the first `count` rows along `axis` of an array, both in the arena, as a value whose
    size is known only now."""

    rows: Tensor
    count: Tensor
    output: Tensor
    axis: int = 0


Scheduled = Segment | PythonStep | CountedStep


@dataclasses.dataclass(frozen=True)
class ProgramBinary:
    """A compiled program. `checks` names what can fail.

    weights: uint8 [bytes], the program's own; blocks: those that it may share with other programs.
    kept_bytes: of the arena's front, which must stay as they are between runs. state: inputs that
    whoever runs the program hands on from run to run. open_sizes: of a program for many sizes,
    whose arena and shapes are known once they are.
    """

    target: str
    object_code: bytes
    weights: np.ndarray
    arena_bytes: int
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    schedule: tuple[Scheduled, ...]
    python_outputs: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    pool: bool = False
    kept_bytes: int = 0
    state: tuple[State, ...] = ()
    blocks: tuple[WeightBlock, ...] = ()
    open_sizes: OpenSizes | None = None

    @property
    def weight_bytes(self) -> int:
        """Of all weights that it reads."""
        return self.weights.nbytes + sum(block.nbytes for block in self.blocks)

    def weight_regions(self) -> list[tuple[int, np.ndarray]]:
        """(offset, content) of the program's own weights and of every block."""
        starts = block_starts(self.weights.nbytes, [block.nbytes for block in self.blocks])
        return [(0, self.weights), *zip(starts, (block.data for block in self.blocks))]


def block_starts(own_bytes: int, sizes: Sequence[int]) -> list[int]:
    """Offsets of blocks of these sizes that lie behind a program's own weights, each on a page."""
    starts, end = [], own_bytes
    for size in sizes:
        starts.append(-(-end // PAGE) * PAGE)
        end = starts[-1] + size
    return starts


def initial_bytes(binary: ProgramBinary) -> bytes:
    """What a binary remembers at first, one array after the other."""
    return b"".join(s.initial.tobytes() for s in binary.state)


def described(binary: ProgramBinary) -> dict[str, Any]:
    """All of a binary but its code, the content of its weights and what it remembers at first, as
    JSON has it."""
    bare = dataclasses.replace(binary, object_code=b"", weights=_NOTHING, state=(), blocks=())
    fields = dataclasses.asdict(bare)
    del fields["object_code"], fields["weights"]
    fields["blocks"] = [{"size": b.nbytes, "sha256": b.digest} for b in binary.blocks]
    fields["state"] = [
        {"input": s.input, "output": s.output, "in_place": s.in_place} for s in binary.state
    ]
    fields["schedule"] = [
        {"kind": type(step).__name__, **dataclasses.asdict(step)} for step in binary.schedule
    ]
    return fields


def contract(binary: ProgramBinary, weights: bytes | None = None) -> bytes:
    """Digest (32 bytes) of everything in a binary but its code, which carries it.

    Sizes, offsets and the tables among the weights are built into the code: with another binary it
    would leave its buffers. weights: the SHA-256 of its own weights, if it is known.
    """
    text = json.dumps(described(binary), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode())
    digest.update(weights or hashlib.sha256(binary.weights.data).digest())
    digest.update(hashlib.sha256(initial_bytes(binary)).digest())
    return digest.digest()

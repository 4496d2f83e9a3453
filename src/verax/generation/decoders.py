"""Models that give logits for the next token, run step by step, whatever form their cache has.

`GrowingCache`: past in, present out, as ONNX's exporters write it. `NoCache`: the whole sequence at
each step. `StaticCache`: buffers of fixed room that the program keeps itself. A `Decoder` is
shared by all sequences; what belongs to one batch of them is its `Context`.
"""

from __future__ import annotations

import gc
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from verax.base.errors import InputError, ModelError
from verax.base.machine.memory import give_back
from verax.base.option_groups.compile_options import CompilationOptions
from verax.compiler.executable import Executable
from verax.compiling import compile
from verax.generation.last_token import with_last_logits
from verax.ir.deferred import DeferredGraph, deferred_from, release
from verax.ir.dim import DimLike, maximum, symbol
from verax.ir.dim_forms import substitute
from verax.ir.graph import Graph, specialize

LOGITS, PAST, PRESENT = "logits", re.compile("past"), re.compile("present")
IDS = ("input_ids", "tokens", "ids")
MASK, POSITIONS = "attention_mask", "position_ids"


@dataclass
class Context:
    """What a decoder remembers of one batch of sequences. mask: [batch, tokens seen], 1 where there
    is one; arrays: the cache, by the decoder's own names; room: of a cache in place, in tokens."""

    mask: np.ndarray
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    room: int = 0

    @property
    def seen(self) -> int:
        """Tokens seen, padding included."""
        return int(self.mask.shape[1])

    def extended(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mask with further tokens, and the positions of these, [batch, more]; those of padding
        are 0."""
        full_mask = np.concatenate([self.mask, mask], axis=1)
        positions = np.maximum(np.cumsum(full_mask, axis=1) - 1, 0)
        return full_mask, positions[:, self.seen :]


class Decoder(ABC):
    """A compiled language model.

    vocabulary: tokens that it tells apart; room: tokens that it has a place for, None where nothing
    says so; pads: whether prompts may be padded on the left; lone: whether it takes one sequence at
    a time.
    """

    vocabulary: int
    room: int | None = None
    pads: bool = True
    lone: bool = False

    def begin(self, batch: int, length: int = 0) -> Context:
        """Nothing seen yet. length: tokens that will be, as far as it is known."""
        return Context(np.zeros((batch, 0), np.int64))

    @abstractmethod
    def advance(self, context: Context, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Logits [batch, vocabulary] after further tokens, int64 [batch, n], where `mask`, of their
        shape, is 1; `context` remembers them."""

    def chunks(self, context: Context, count: int, chunk: int | None) -> Sequence[int]:
        """How many tokens of a prompt of `count` to give at once, in order."""
        size = chunk or 512
        return [size] * (count // size) + ([count % size] if count % size else [])

    @property
    @abstractmethod
    def programs(self) -> Sequence[Executable]:
        """What runs."""


def last_logits(logits: np.ndarray) -> np.ndarray:
    """Of the last token: [batch, vocabulary]."""
    return logits[:, -1] if logits.ndim == 3 else logits


class GrowingCache(Decoder):
    """Past in, present out.

    first: the model that takes a prompt without a past, where it is another file's; otherwise the
    past begins empty. The first token goes alone then, so that every further length is served by
    programs for many sizes. Caches that are concatenated are bound: one buffer with room for each,
    of the batch that ran last; those of the others are held by their contexts.
    """

    def __init__(
        self,
        signature: DecoderSignature,
        first: Graph | None,
        options: CompilationOptions,
        pads: bool = True,
        in_place: bool = True,
    ) -> None:
        """in_place: whether caches are bound where they can be."""
        self.signature = signature
        self.vocabulary, self.lone = self.signature.vocabulary, self.signature.lone
        self.pads = pads and bool(self.signature.mask)
        self._exe: Executable = compile(self.signature.graph, options=options)
        caches = dict(zip(self.signature.pasts, self.signature.presents, strict=True))
        self._bound: Executable | None = None
        if in_place and self._exe.grows(caches):
            self._bound = self._exe.bind(caches)
        self._owner: Context | None = None
        self._lock = threading.Lock()
        self._first_signature = None if first is None else DecoderSignature.of(first)
        self._first = (
            None
            if self._first_signature is None
            else compile(self._first_signature.graph, options=options)
        )

    @property
    def programs(self) -> Sequence[Executable]:
        exe = self._bound or self._exe
        return [exe] if self._first is None else [self._first, exe]

    def chunks(self, context: Context, count: int, chunk: int | None) -> Sequence[int]:
        if self.signature.takes_one:  # by another file, or token by token
            return [1] * count if self._first is None else [count]
        if self._first is not None and chunk is None:
            return [count]
        lone = int(self._first is None and not context.seen and count > 1)
        return [1] * lone + list(super().chunks(context, count - lone, chunk))

    def advance(self, context: Context, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        exe, signature = self._exe, self.signature
        if self._first is not None and self._first_signature is not None and not context.seen:
            exe, signature = self._first, self._first_signature
        elif self._bound is not None:
            return self._advance_bound(self._bound, context, tokens, mask)
        full_mask, positions = context.extended(mask)
        outputs = exe.run(signature.inputs(context.arrays, tokens, full_mask, positions))
        if tokens.shape[1] == 1:  # prompts have their program by now
            signature.release_constants()
        context.mask = full_mask
        if signature.presents:
            context.arrays = {
                past: outputs[present]
                for past, present in zip(self.signature.pasts, signature.presents, strict=True)
            }
        return last_logits(outputs[signature.logits])

    def _advance_bound(
        self, exe: Executable, context: Context, tokens: np.ndarray, mask: np.ndarray
    ) -> np.ndarray:
        """The same where the caches are state, which has to be that of `context`."""
        with self._lock:
            if self._owner is not context:
                if context.seen and not context.arrays:
                    raise InputError(
                        "the cache of these sequences was lost when a run was interrupted",
                        next_step="begin them again",
                    )
                owner, self._owner = self._owner, None  # until it is exchanged, nobody's
                former = exe.exchange_state(context.arrays)
                if owner is not None:
                    owner.arrays = former
                context.arrays, self._owner = {}, context
            full_mask, positions = context.extended(mask)
            outputs = exe.run(self.signature.inputs(None, tokens, full_mask, positions))
            context.mask = full_mask
            return last_logits(outputs[self.signature.logits])


class NoCache(Decoder):
    """A model without a past: it sees the whole sequence at each step."""

    def __init__(self, signature: DecoderSignature, options: CompilationOptions) -> None:
        self.signature = signature
        self.vocabulary, self.lone = self.signature.vocabulary, self.signature.lone
        self.pads = bool(self.signature.mask)
        self._exe = compile(self.signature.graph, options=options)

    @property
    def programs(self) -> Sequence[Executable]:
        return [self._exe]

    def chunks(self, context: Context, count: int, chunk: int | None) -> Sequence[int]:
        return [count]

    def advance(self, context: Context, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        seen = context.arrays.get("tokens", np.zeros((len(tokens), 0), np.int64))
        context.arrays["tokens"] = tokens = np.concatenate([seen, tokens], axis=1)
        context.mask, _ = context.extended(mask)
        full_mask = context.mask
        positions = np.maximum(np.cumsum(full_mask, axis=1) - 1, 0)
        outputs = self._exe.run(self.signature.inputs(None, tokens, full_mask, positions))
        return last_logits(outputs[self.signature.logits])


@dataclass(frozen=True)
class DecoderSignature:
    """What the inputs and outputs of an ONNX decoder are, by their names.

    graph: with the sizes of all of them in terms of three symbols: `batch`, `sequence`, the tokens
    that are given, and `past`, those that were; sizes: of the symbols that it was read with, in
    terms of these. pasts, presents: in one order.
    """

    original: Graph
    graph: Graph
    sizes: Mapping[str, DimLike]
    ids: str
    mask: str
    positions: str
    pasts: tuple[str, ...]
    presents: tuple[str, ...]
    logits: str

    @staticmethod
    def of(graph: Graph) -> DecoderSignature:
        """Raises `ModelError` for a network that is no decoder."""
        inputs, outputs = graph.arguments, graph.results
        ids = next((v for v in IDS if v in inputs), "")
        logits = LOGITS if LOGITS in outputs else next(iter(outputs), "")
        pasts = tuple(v for v in inputs if PAST.match(v))
        presents = tuple(v for v in outputs if PRESENT.match(v))
        input_names = {ids, MASK, POSITIONS, *pasts}
        strange = [v for v in inputs if v not in input_names]
        if not ids or strange:
            raise ModelError(
                "this is no language model that takes token ids: it "
                + (f"takes {', '.join(strange)}" if ids else "has no input input_ids"),
                place=", ".join(f"{v}: {graph.types[v]}" for v in inputs),
                next_step="inputs are input_ids, attention_mask, position_ids and past_key_values; "
                "others can be made constants (values=...), encoders run by `verax.compile`",
            )
        if not graph.types[logits].dtype.is_float or PRESENT.match(logits):
            raise ModelError(
                "the model gives no logits",
                place=", ".join(f"{v}: {graph.types[v]}" for v in outputs),
                next_step="export it with its language-model head",
            )
        if pasts and len(pasts) != len(presents):
            raise ModelError(
                f"the model takes {len(pasts)} arrays of the past and gives {len(presents)}",
                place=", ".join((*pasts, *presents)),
            )
        mask = MASK if MASK in inputs else ""
        graph = with_last_logits(graph, ids, logits)
        sizes = _sizes(graph, ids, mask, dict(zip(pasts, presents)))
        opened, positions = _specialized(graph, sizes), POSITIONS if POSITIONS in inputs else ""
        return DecoderSignature(graph, opened, sizes, ids, mask, positions, pasts, presents, logits)

    @property
    def vocabulary(self) -> int:
        """Raises `ModelError` where the size of the logits is open."""
        size = self.graph.types[self.logits].dims[-1]
        if not isinstance(size, int):
            raise ModelError(
                f"the number of logits is open: {self.graph.types[self.logits]}", place=self.logits
            )
        return size

    @property
    def lone(self) -> bool:
        """Whether it takes one sequence at a time."""
        return self.graph.types[self.ids].dims[0] == 1

    @property
    def has_room(self) -> bool:
        """Whether caches keep their size while tokens fit, as those of GroupQueryAttention do: the
        larger of it and of the tokens seen."""
        past, sequence = symbol("past"), symbol("sequence")
        dims = [d for v in self.presents for d in self.graph.types[v].dims]
        room = maximum(past, past + sequence)
        return bool(self.mask) and room in dims and past + sequence not in dims

    def of_fixed_room(self, batch: int, room: int) -> Graph:
        """The network for so many sequences and caches of this room; the mask is of all of it."""
        constants = {"batch": batch, "past": room}
        sizes = {name: substitute(size, constants) for name, size in self.sizes.items()}
        sizes[str(self.original.types[self.mask].dims[1])] = room
        return _specialized(self.original, sizes)

    def release_constants(self) -> None:
        """Give up the constants of the network, which programs have packed, where they can be read
        again."""
        graphs = [g for g in (self.original, self.graph) if isinstance(g, DeferredGraph)]
        if not all(g.is_released for g in graphs):
            release(*graphs)
            gc.collect()  # graphs refer to themselves
            give_back()

    @property
    def takes_one(self) -> bool:
        """Whether it takes a single token at a time."""
        return self.graph.types[self.ids].dims[1] == 1

    def inputs(
        self,
        cache: Mapping[str, np.ndarray] | None,
        tokens: np.ndarray,
        mask: np.ndarray,
        positions: np.ndarray,
    ) -> dict[str, np.ndarray]:
        """Arrays by name. cache: the past, empty before there is one, None where it is bound; mask:
        of everything seen, [batch, past and sequence]; positions: of the tokens."""
        tensors = {self.ids: tokens}
        if self.mask:
            tensors[self.mask] = mask
        if self.positions:
            tensors[self.positions] = positions
        types = self.graph.types
        arrays = {v: np.ascontiguousarray(a, types[v].dtype.numpy) for v, a in tensors.items()}
        if cache is not None:
            for past in self.pasts:
                arrays[past] = cache[past] if past in cache else self._empty(past, len(tokens))
        return arrays

    def _empty(self, past: str, batch: int) -> np.ndarray:
        """The past of nothing."""
        type_ = self.graph.types[past].substitute({"batch": batch, "past": 0})
        return np.zeros(type_.shape, type_.dtype.numpy)


def _specialized(graph: Graph, sizes: Mapping[str, DimLike]) -> Graph:
    """`ir.graph.specialize`, to be given up where `graph` can be."""
    specialized = specialize(graph, sizes)
    if not isinstance(graph, DeferredGraph):
        return specialized
    return deferred_from(specialized, lambda: specialize(graph, sizes))


def _sizes(graph: Graph, ids: str, mask: str, pasts: Mapping[str, str]) -> dict[str, DimLike]:
    """Symbols of the inputs in terms of `batch`, `sequence` and `past`. pasts: each with its
    present, which may know sizes that the past leaves open."""
    sizes: dict[str, DimLike] = {}
    batch, sequence, past = (symbol(n) for n in ("batch", "sequence", "past"))
    total = past + sequence if pasts else sequence

    def name(value: str, axis: int, size: DimLike) -> None:
        dim = graph.types[value].dims[axis]
        if not isinstance(dim, int):
            sizes.setdefault(str(dim), size)

    name(ids, 0, batch)
    name(ids, 1, sequence)
    if POSITIONS in graph.arguments and graph.types[POSITIONS].rank == 2:
        name(POSITIONS, 0, batch)
        name(POSITIONS, 1, sequence)
    for value, present in pasts.items():
        for axis, size in enumerate(graph.types[present].dims):
            if isinstance(size, int) and graph.types[present].rank == graph.types[value].rank:
                name(value, axis, size)
        axes = [i for i, d in enumerate(graph.types[value].dims) if not isinstance(d, int)]
        dims = graph.types[value].dims
        own = [i for i in axes if sizes.get(str(dims[i]), past) is past]
        if not own:
            raise ModelError(
                f"the past has fixed sizes: {graph.types[value]}",
                place=value,
                next_step="export the model with a past of open length",
            )
        name(value, own[-1], past)
        for axis in own[:-1]:
            name(value, axis, batch)
    if mask:
        name(mask, 0, batch)
        name(mask, 1, total)
    return sizes

"""What ONNX Runtime has for decoders (com.microsoft): rotations of queries and keys by their places
and attention over a cache of given room."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from verax.frontends.common.context import Conversion, Result
from verax.frontends.onnx.rows import MICROSOFT, row
from verax.frontends.onnx.table_microsoft import with_more
from verax.frontends.onnx.table_microsoft_attention import (
    Heads,
    attended,
    in_heads,
    merged_heads,
    positions_before,
    scale,
    size,
    swapped,
)
from verax.ir.types import DType


@dataclass
class Rotation:
    """Cosines and sines, [batch or 1, length, 1, half the rotated features]."""

    cos: str
    sin: str
    interleaved: bool

    def of(self, c: Conversion, x: str) -> str:
        """x [batch, length, heads, features] with its first features rotated in pairs: number i
        with number i + half of them, interleaved: 2 i with 2 i + 1."""
        half = c.known_size(self.cos, -1, "how many features are rotated")
        features = c.known_size(x, -1, "how many features are rotated")
        if 2 * half > features:
            c.refuse(f"{2 * half} features of {features} are to be rotated")
        sizes = [2 * half, features - 2 * half]
        turning, unrotated = x, None
        if sizes[1]:
            turning, unrotated = c.add_all("Split", [x, c.ints(sizes)], num_outputs=2, axis=3)
        axis = 3
        if self.interleaved:
            turning, axis = c.add("Reshape", [turning, c.ints([0, 0, 0, half, 2])]), 4
        first, second = c.split(turning, 2, axis)
        if self.interleaved:
            first, second = (c.add("Squeeze", [p, c.ints([4])]) for p in (first, second))
        rotated = [
            c.add("Sub", [c.add("Mul", [first, self.cos]), c.add("Mul", [second, self.sin])]),
            c.add("Add", [c.add("Mul", [first, self.sin]), c.add("Mul", [second, self.cos])]),
        ]
        if self.interleaved:
            rotated = [c.add("Unsqueeze", [p, c.ints([4])]) for p in rotated]
        y = c.add("Concat", rotated, axis=axis)
        y = c.add("Reshape", [y, c.ints([0, 0, 0, 2 * half])]) if self.interleaved else y
        return y if unrotated is None else c.add("Concat", [y, unrotated], axis=3)


def _rotation(c: Conversion, positions: str, cos: int, sin: int, interleaved: bool) -> Rotation:
    """positions: int64 [batch or 1, length]; cos, sin: inputs [length, half the features]."""
    factors = [c.add("Gather", [c.required(i), positions], axis=0) for i in (cos, sin)]
    first, second = (c.add("Unsqueeze", [x, c.ints([2])]) for x in factors)
    return Rotation(first, second, interleaved)


def _from(c: Conversion, begin: str, count: str) -> str:
    """begin [batch or 1, 1] + 0, 1, ... before `count`: [batch or 1, count]."""
    return c.add("Add", [begin, c.add("Unsqueeze", [positions_before(c, count), c.ints([0])])])


@row("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(c: Conversion) -> Result:
    """x [batch, length, features] or [batch, heads, length, features]; where it begins, int64[1],
    or the places [batch, length]; cosines and sines [places, half the features]."""
    a = c.attributes
    a.expect("scale", 1.0, reason="ONNX Runtime's kernels ignore it")
    a.expect("is_packed_batching", 0, reason="it is CUDA's alone")
    count, rotated = a.integer("num_heads", 0), a.integer("rotary_embedding_dim", 0)
    x, ids = c.required(0), c.required(1)
    half = c.known_size(2, 1, "the features of a head")
    if rotated not in (0, 2 * half):
        a.refuse("rotary_embedding_dim", f"the cosines are for {2 * half} features")
    heads_first = c.rank(x) == 4
    if heads_first:
        x = swapped(c, x)
    else:
        features = c.known_size(x, -1, "the features of a head")
        if rotated and not count:
            a.refuse("rotary_embedding_dim", "it needs num_heads")
        x = in_heads(c, x, count if rotated else features // (2 * half))
    if c.rank(ids) == 1:
        ids = _from(c, c.add("Unsqueeze", [ids, c.ints([0])]), size(c, x, 1))
    y = _rotation(c, ids, 2, 3, a.flag("interleaved")).of(c, x)
    return c.apply("Transpose", [y], perm=(0, 2, 1, 3)) if heads_first else merged_heads(c, y)


@row("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(c: Conversion) -> Result:
    """Attention of decoders, whose queries share heads of keys, with their cache.

    Inputs: query, key, value (or all side by side in the query); past keys and values [batch,
    heads, room, features], of which as many tokens are filled as input 5 says (tokens in all less
    one, for each of the batch) less the new ones; the largest number of tokens in all; cosines and
    sines; places; what is added to the scores; a sink per head. Present keys and values have the
    larger of the room and that number. Later tokens are hidden, and those `local_window_size` back.
    """
    a = c.attributes
    for name in ("k_quant_type", "v_quant_type"):
        a.expect(name, "NONE", reason="caches of integers are not supported")
    a.irrelevant("kv_cache_bit_width", "the cache is not quantized")
    a.irrelevant("qk_norm_epsilon", "queries and keys are not normalized")
    a.expect("qk_output", 0, reason="the scores, its output 3, are not supported")
    a.expect("sliding_window_cache", 0, reason="caches that forget are not supported")
    if any(c.input(i) is not None for i in range(12, 16)):
        c.refuse("inputs 12 to 15 (scales of the cache, norms of queries and keys)")
    q, k, v = _grouped_heads(c, a.integer("num_heads", 0), a.integer("kv_num_heads", 0))
    cache = _Cache.of(c, q)
    if a.flag("do_rotary"):
        rotation = _rotation(c, cache.of_new(c), 7, 8, a.flag("rotary_interleaved"))
        q, k = rotation.of(c, q), rotation.of(c, k)
    else:
        a.irrelevant("rotary_interleaved", "nothing is rotated")
    keys, values = (cache.filled(c, c.input(i), own) for i, own in ((3, k), (4, v)))
    window = a.integer("local_window_size", -1)
    visible = cache.visible(c, a.flag("causal", True), window)
    heads = Heads(q, keys, values, are_caches=True)
    y = _sunk(c, heads, visible, c.input(10))
    return with_more(c, merged_heads(c, y), keys, values)


def _grouped_heads(c: Conversion, count: int, shared: int) -> list[str]:
    """Queries, and fewer heads of keys and values."""
    if count < 1 or shared < 1 or count % shared:
        c.refuse(f"{count} heads of queries cannot share {shared} of keys")
    if c.input(1) is not None:
        return [in_heads(c, c.required(i), n) for i, n in enumerate((count, shared, shared))]
    features = c.known_size(0, -1, "the features of a head")
    if features % (count + 2 * shared):
        c.refuse(f"{features} features do not make {count} + 2 * {shared} heads")
    own = features // (count + 2 * shared)
    sizes = c.ints([count * own, shared * own, shared * own])
    projections = c.add_all("Split", [c.required(0), sizes], num_outputs=3, axis=2)
    return [in_heads(c, p, n) for p, n in zip(projections, (count, shared, shared))]


@dataclass
class _Cache:
    """Where the tokens of a run belong. before: how many there were, last: where the last one
    stands (those behind it are padding), int64 [batch, 1]; new: how many there are now, room: what
    present caches hold, both int64[1]."""

    before: str
    new: str
    room: str
    last: str

    @staticmethod
    def of(c: Conversion, q: str) -> _Cache:
        new = size(c, q, 1)
        total = c.add("Reshape", [c.cast(c.required(6), DType.int64), c.ints([1])])
        last = c.add("Unsqueeze", [c.cast(c.required(5), DType.int64), c.ints([1])])
        before = c.add("Sub", [c.add("Add", [last, c.ints([1])]), new])
        first = c.add("Equal", [new, total])
        before = c.add("Where", [first, c.ints([0]), before])
        past = c.input(3)
        if past is None:
            return _Cache(before, new, total, last)
        return _Cache(before, new, c.add("Max", [size(c, past, 2), total]), last)

    def of_new(self, c: Conversion) -> str:
        """Where each new token stands, [batch, new]: as input 9 says, if there is one. At the
        beginning its first number is what counts."""
        counted_positions = _from(c, self.before, self.new)
        if c.input(9) is None:
            return counted_positions
        total = c.add("Reshape", [c.cast(c.required(6), DType.int64), c.ints([1])])
        stated = c.required(9)
        corner = c.add("Slice", [stated, c.ints([0, 0]), c.ints([1, 1]), c.ints([0, 1])])
        counted = _from(c, corner, self.new)
        return c.add("Where", [c.add("Equal", [self.new, total]), counted, stated])

    def filled(self, c: Conversion, past: str | None, own: str) -> str:
        """The new tokens behind the old ones, then zeros, [batch, heads, room, features]. Where
        past and present are bound, what is written into is past itself (`compiler.caches`)."""
        own, axes = swapped(c, own), c.ints([1, 3])
        positions = positions_before(c, self.room)
        tokens = own if past is None else c.add("Concat", [past, own], axis=2)
        end = c.add("Sub", [size(c, tokens, 2), c.ints([1])])
        tokens = c.add("Gather", [tokens, c.add("Min", [positions, end])], axis=2)
        positions = c.add("Unsqueeze", [positions, c.ints([0])])
        is_old = c.add("Unsqueeze", [c.add("Less", [positions, self.before]), axes])
        old = c.add("Where", [is_old, tokens, c.like(0, own)])
        index = c.add("Unsqueeze", [_from(c, self.before, self.new), axes])
        index = c.add("Expand", [index, c.add("Shape", [own])])
        return c.add("ScatterElements", [old, index, own], axis=2)

    def visible(self, c: Conversion, causal: bool, window: int) -> str:
        """Which keys a query sees, [batch, 1, new, room]."""
        key = c.add("Unsqueeze", [positions_before(c, self.room), c.ints([0, 1, 2])])
        last = _from(c, self.before, self.new)
        if not causal:
            last = c.add("Sub", [c.add("Add", [self.before, self.new]), c.ints([1])])
        last = c.add("Unsqueeze", [last, c.ints([1, 3])])
        visible = c.add("LessOrEqual", [key, last])
        count = c.builder.known.get(self.new)
        if count is None or count.dtype == object or count[0] != 1:  # one is never padding
            filled = c.add("LessOrEqual", [key, c.add("Unsqueeze", [self.last, c.ints([1, 2])])])
            visible = c.add("And", [visible, filled])
        if window < 0:
            return visible
        near = c.add("Greater", [key, c.add("Sub", [last, c.ints([window])])])
        return c.add("And", [visible, near])


def _sunk(c: Conversion, heads: Heads, visible: str, bias: str | None) -> str:
    """Attention whose scores are bounded by `softcap`, and whose shares leave room for a sink. A
    query that sees nothing gives zeros, but NaN where scores are bounded. What stands in the room
    that is not filled is not read."""
    a = c.attributes
    cap = a.scalar("softcap", 0.0)
    smooth, sink = a.integer("smooth_softmax", -1) == 1, c.input(11)
    is_plain = not cap and not smooth and sink is None
    if is_plain and bias is None:
        return attended(c, heads, visible, masked_to_zero=True, ignores_hidden=True)
    mask = c.add("Where", [visible, c.like(0, heads.q), c.like(-np.inf, heads.q)])
    if bias is not None:
        mask = c.add("Add", [mask, bias])
    if is_plain:
        return attended(c, heads, mask, masked_to_zero=True)
    q, k, v = swapped(c, heads.q), heads.k, heads.v
    count, shared = c.known_size(q, 1, "its heads"), c.known_size(k, 1, "its heads")
    if count != shared:
        repeated = c.constant(np.repeat(np.arange(shared), count // shared), np.int64)
        k, v = (c.add("Gather", [x, repeated], axis=1) for x in (k, v))
    transposed_keys = c.add("Transpose", [k], perm=(0, 1, 3, 2))
    scores = c.add("Mul", [c.add("MatMul", [q, transposed_keys]), c.like(scale(c, heads.q), q)])
    if cap:
        bounded = c.add("Tanh", [c.add("Div", [scores, c.like(cap, q)])])
        scores = c.add("Mul", [bounded, c.like(cap, q)])
    scores = c.add("Add", [scores, mask])
    if smooth or sink is not None:
        zero = c.like(np.zeros((1, 1, 1, 1)), q)
        column = zero if sink is None else c.add("Unsqueeze", [sink, c.ints([0, 2, 3])])
        one = c.add("Concat", [c.add("Shape", [scores], end=3), c.ints([1])], axis=0)
        scores = c.add("Concat", [scores, c.add("Expand", [column, one])], axis=3)
    shares = c.add("Softmax", [scores], axis=3)
    if smooth or sink is not None:
        shares = c.add("Slice", [shares, c.ints([0]), c.ints([-1]), c.ints([3])])
    return swapped(c, c.add("MatMul", [shares, v]))

"""Attention as ONNX Runtime has it (com.microsoft): projections, masks, caches and rotations inside
of one node.

Each is read as projections and the operator Attention, on heads [batch, length, heads, features];
what has a bounded or a sunk Softmax as the products and the Softmax themselves. What hides a key is
added to its score, `mask_filter_value` for padding; a later key has the lowest number for a score,
as ONNX Runtime does. So a query that sees nothing takes from all keys, or, where minus infinity was
added, is NaN; only GroupQueryAttention gives zeros.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from verax.frontends.common.context import Applied, Conversion, Result
from verax.frontends.onnx.rows import MICROSOFT, row
from verax.frontends.onnx.table_microsoft import with_more


@dataclass
class Heads:
    """Queries, keys and values [batch, length, heads, features]; causal: a query sees no later key,
    where the first query stands at the first key behind those of earlier runs (`past`).
    are_caches: keys and values are [batch, heads, length, features]."""

    q: str
    k: str
    v: str
    causal: bool = False
    past: bool = False
    are_caches: bool = False

    @property
    def key_axis(self) -> int:
        """The axis of keys' lengths."""
        return 2 if self.are_caches else 1


def size(c: Conversion, value: str, axis: int) -> str:
    """The size of an axis, as int64[1]."""
    return c.add("Shape", [value], start=axis, end=axis + 1)


def positions_before(c: Conversion, end: str) -> str:
    """0, 1, ... before `end`, an int64[1]."""
    stop = c.add("Squeeze", [end, c.ints([0])])
    return c.add("Range", [c.constant(0, np.int64), stop, c.constant(1, np.int64)])


def in_heads(c: Conversion, value: str, heads: int) -> str:
    """[batch, length, features] as [batch, length, heads, features of a head]."""
    (features,) = c.known_sizes(value, (-1,), "the features of a head")
    if heads < 1 or features % heads:
        c.refuse(f"{features} features do not make {heads} heads")
    return c.add("Reshape", [value, c.ints([0, 0, heads, features // heads])])


def merged_heads(c: Conversion, value: str) -> Applied:
    """[batch, length, heads, features] as [batch, length, all features]."""
    heads, features = c.known_sizes(value, (-2, -1))
    return c.apply("Reshape", [value, c.ints([0, 0, heads * features])])


def swapped(c: Conversion, value: str) -> str:
    """Length and heads change places."""
    return c.add("Transpose", [value], perm=(0, 2, 1, 3))


def scale(c: Conversion, q: str) -> float:
    stated = c.scalar("scale", 0.0)
    return stated or 1 / math.sqrt(c.known_size(q, -1, "the scale"))


def attended(c: Conversion, heads: Heads, mask: str | None, **more: bool) -> str:
    """softmax(Q K^T scale + mask) V, [batch, length, heads, features]. more: of Attention."""
    queries, keys = c.type(heads.q).dims[1], c.type(heads.k).dims[heads.key_axis]
    if heads.causal and heads.past:
        seen = _not_later(c, heads)
        bias = c.like(0, heads.q) if mask is None else mask
        mask = c.add("Where", [seen, bias, c.like(_lowest(c, heads.q), heads.q)])
    elif heads.causal and isinstance(queries, int) and isinstance(keys, int) and queries < keys:
        c.refuse(f"unidirectional with {queries} queries and {keys} keys: which key a query stands "
                 "at is not said, and the last one sees all of them in ONNX Runtime")  # fmt: skip
    causal = heads.causal and not heads.past
    fields: dict[str, Any] = {"causal": True, "hidden": _lowest(c, heads.q)} if causal else {}
    fields |= {"scale": scale(c, heads.q), **more}
    inputs = [heads.q, heads.k, heads.v, mask]
    inside = "qy" if heads.are_caches else "qkvy"
    return c.add("Attention", inputs, **fields, heads_inside=inside)


def _lowest(c: Conversion, value: str) -> float:
    """The lowest finite number of an element type."""
    return float(ml_dtypes.finfo(c.type(value).dtype.numpy).min)


def _sum(c: Conversion, mask: str | None, more: str) -> str:
    return more if mask is None else c.add("Add", [mask, more])


def _not_later(c: Conversion, heads: Heads) -> str:
    """Whether a key comes no later than a query, [queries, keys]."""
    key_count, count = size(c, heads.k, heads.key_axis), size(c, heads.q, 1)
    keys, queries = (positions_before(c, n) for n in (key_count, count))
    past = c.add("Sub", [key_count, count])
    last = c.add("Unsqueeze", [c.add("Add", [queries, past]), c.ints([1])])
    return c.add("LessOrEqual", [c.add("Unsqueeze", [keys, c.ints([0])]), last])


def added(c: Conversion, visible: str, like: str, otherwise: float) -> str:
    """0 where a key is shown, and a number elsewhere, in the element type of `like`."""
    return c.add("Where", [visible, c.like(0, like), c.like(otherwise, like)])


def _padding(c: Conversion, index: int, heads: Heads) -> str | None:
    """What hides padded keys (an optional input), to be added to [batch, heads, queries, keys].

    int32 [batch, keys] or [batch, queries, keys]: shown where above 0. [batch]: how many keys there
    are; [2 batch]: before which and from which on.
    """
    mask = c.input(index)
    if mask is None:
        return None
    low = c.scalar("mask_filter_value", -10000.0)
    rank, like = c.rank(mask), heads.q
    if rank == 1:
        return added(c, _between(c, mask, heads), like, low)
    if rank == 4:
        c.refuse("a mask of four axes, as Megatron's, is not supported")
    visible = c.add("Greater", [mask, c.like(0, mask)])
    visible = c.add("Unsqueeze", [visible, c.ints([1, 2] if rank == 2 else [1])])
    return added(c, visible, like, low)


def _between(c: Conversion, ends: str, heads: Heads) -> str:
    """Keys that a mask of lengths, or of ends and starts, shows: [batch, 1, 1, keys]."""
    batch, count = c.type(heads.q).dims[0], c.type(ends).dims[0]
    keys = c.cast(positions_before(c, size(c, heads.k, heads.key_axis)), c.type(ends).dtype)
    bounds = [ends]
    if count != batch:
        if not isinstance(batch, int) or count != 2 * batch:
            c.refuse(f"a mask of {count} numbers for a batch of {batch} is not supported")
        bounds = c.split(ends, 2, 0)
    lanes = [c.add("Unsqueeze", [half, c.ints([1, 2, 3])]) for half in bounds]
    visible = c.add("Less", [keys, lanes[0]])
    if len(lanes) > 1:
        visible = c.add("And", [visible, c.add("GreaterOrEqual", [keys, lanes[1]])])
    return visible


def _after(c: Conversion, past: str | None, own: str) -> str:
    """Keys or values [batch, length, heads, features] behind those of earlier runs, [batch, heads,
    length, features], in that order of axes."""
    own = swapped(c, own)
    return own if past is None else c.add("Concat", [past, own], axis=2)


def _merged(c: Conversion, qkv: str, sizes: tuple[int, ...], past: int, mask: int) -> Result:
    """Attention and QAttention, from the merged projections [batch, length, sizes of q, k, v]."""
    a = c.attributes
    for name in ("do_rotary", "past_present_share_buffer"):
        a.expect(name, 0, reason="it is CUDA's alone")
    a.irrelevant("rotary_embedding_dim", "nothing is rotated")
    count = a.integer("num_heads", 0)
    projections = c.add_all("Split", [qkv, c.ints(sizes)], num_outputs=3, axis=2)
    q, k, v = (in_heads(c, p, count) for p in projections)
    heads = Heads(q, k, v, a.flag("unidirectional"))
    cached: list[str | None] = [None, None]
    if c.input(past) is not None:
        past_pair = c.split(c.required(past), 2, 0)
        cached = [c.add("Squeeze", [p, c.ints([0])]) for p in past_pair]
    caches = [_after(c, p, own) for p, own in zip(cached, (heads.k, heads.v))]
    heads.past = c.input(past) is not None
    if heads.past:
        (heads.k, heads.v), heads.are_caches = caches, True
    hidden = _padding(c, mask, heads)
    if c.node.op_type == "Attention" and c.input(5) is not None:
        hidden = _sum(c, hidden, c.required(5))
    y = merged_heads(c, attended(c, heads, hidden))
    if not c.output_used(1):
        return y
    alone = [c.add("Unsqueeze", [x, c.ints([0])]) for x in caches]
    return with_more(c, y, c.add("Concat", alone, axis=0))


@row("Attention", domain=MICROSOFT)
def attention(c: Conversion) -> Result:
    """Inputs: x, the weights of q, k and v side by side, their bias, mask, past [2, batch, heads,
    length, features], what is added to the scores."""
    if c.input(6) is not None:
        c.refuse("past_sequence_length goes with a shared buffer, which is CUDA's alone")
    (total,) = c.known_sizes(1, (1,), "the sizes of q, k and v")
    sizes = tuple(c.integers("qkv_hidden_sizes", ()) or (total // 3,) * 3)
    if len(sizes) != 3 or sum(sizes) != total:
        c.refuse(f"weights of {total} columns for sizes of {sizes}")
    qkv = c.add("MatMul", [c.required(0), c.required(1)])
    if c.input(2) is not None:
        qkv = c.add("Add", [qkv, c.required(2)])
    return _merged(c, qkv, sizes, past=4, mask=3)


@row("QAttention", domain=MICROSOFT)
def quantized_attention(c: Conversion) -> Result:
    """Attention of bytes: input and weights with a scale and a zero point each."""
    x = c.add("DequantizeLinear", [c.required(0), _scalar(c, 3), _scalar(c, 6)])
    scale, zero = (_scalar(c, i) for i in (4, 7))
    w = c.add("DequantizeLinear", [c.required(1), scale, zero], axis=1)
    (total,) = c.known_sizes(1, (1,), "the sizes of q, k and v")
    qkv = c.add("Add", [c.add("MatMul", [x, w]), c.required(2)])
    return _merged(c, qkv, (total // 3,) * 3, past=8, mask=5)


def _scalar(c: Conversion, index: int) -> str | None:
    """An optional input; a vector of one number as that number."""
    name = c.input(index)
    if name is not None and c.type(name).dims == (1,):
        return c.add("Reshape", [name, c.ints([])])
    return name


@row("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(c: Conversion) -> Result:
    """Inputs: query, key, value (or all in the query, or keys and values in one, with an axis for
    which), bias of all, padding, what is added to the scores, past keys and values."""
    a = c.attributes
    if c.output_used(3):
        c.refuse("the scores, its output 3, are not supported")
    for i, name in ((8, "past_sequence_length"), (9, "cache_indirection")):
        if c.input(i) is not None:
            c.refuse(f"{name} goes with a shared buffer, which is not supported")
    count = a.integer("num_heads", 0)
    q, k, v = _given_heads(c, count)
    if c.input(3) is not None:
        q, k, v = _biased(c, [q, k, v])
    pasts = [c.input(6), c.input(7)]
    heads = Heads(q, k, v, a.flag("unidirectional"), pasts[0] is not None)
    caches = [_after(c, past, own) for past, own in zip(pasts, (k, v))]
    if heads.past:
        (heads.k, heads.v), heads.are_caches = caches, True
    hidden = _padding(c, 4, heads)
    if c.input(5) is not None:
        hidden = _sum(c, hidden, c.required(5))
    y = merged_heads(c, attended(c, heads, hidden))
    return with_more(c, y, *caches)


def _given_heads(c: Conversion, count: int) -> list[str]:
    """Queries, keys and values [batch, length, heads, features] in whatever form they are given."""
    query, key, value = (c.input(i) for i in range(3))
    assert query is not None
    if key is None:
        if c.rank(query) != 5:
            c.refuse(f"without keys the query has five axes, not {c.type(query)}")
        return [c.add("Squeeze", [p, c.ints([3])]) for p in c.split(query, 3, 3)]
    q = in_heads(c, query, count)
    if value is None:
        if c.rank(key) != 5:
            c.refuse(f"without values the keys have five axes, not {c.type(key)}")
        return [q, *(c.add("Squeeze", [p, c.ints([3])]) for p in c.split(key, 2, 3))]
    return [q, *(swapped(c, x) if c.rank(x) == 4 else in_heads(c, x, count)
                 for x in (key, value))]  # fmt: skip


def _biased(c: Conversion, projections: list[str]) -> list[str]:
    """Queries, keys and values with their part of the bias."""
    shapes = [c.known_sizes(p, (2, 3), "the bias") for p in projections]
    sizes = [math.prod(shape) for shape in shapes]
    biases = c.add_all("Split", [c.required(3), c.ints(sizes)], num_outputs=3, axis=0)
    return [
        c.add("Add", [p, c.add("Reshape", [b, c.ints(shape)])])
        for p, b, shape in zip(projections, biases, shapes)
    ]

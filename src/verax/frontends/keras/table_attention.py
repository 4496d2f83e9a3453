"""Keras attention layers, and products of two tensors: Dot, EinsumDense.

Masks are refused, but for the causal one, which is known.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verax.base.errors import ModelError
from verax.frontends.common import formulas, shapes
from verax.frontends.common.context import Conversion, Result
from verax.frontends.keras.rows import (
    MAX_PIECES,
    TRAINING,
    activated,
    array_of,
    data_input,
    gives_more,
    row,
    weights,
)

FAR_BELOW = -1e9
"""What Attention adds to the score of what may not be seen."""


def tensors(c: Conversion, names: Sequence[str]) -> list[str | None]:
    """The tensors of a call by the names of its arguments: the first ones stand in order, others
    say which operand they are."""
    count = len(c.inputs) - c.integer("weights", 0)
    stated = {n: c.text(f"call.{n}") for n in names if c.attributes.has(f"call.{n}")}
    numbered = {f"operand {i}": i for i in range(count)}
    at = {n: numbered.pop(text) for n, text in stated.items() if text in numbered}
    free = [n for n in names if n not in stated]
    if len(at) != len(stated) or len(numbered) > len(free):
        c.refuse(f"called on {count} tensors")
    at |= dict(zip(free, numbered.values()))
    return [c.required(at[n]) if n in at else None for n in names]


def multi_head_weights(c: Conversion) -> tuple[list[list[str]], bool]:
    """[kernel, bias] of query, key, gate where there is one, value and output; and whether there
    is a gate."""
    a = c.attributes
    biased, gated = a.flag("use_bias", True), a.flag("use_gate")
    per_projection, count = 1 + biased, 5 if gated else 4
    flat = weights(c, per_projection * count)
    return [
        flat[i : i + per_projection] for i in range(0, per_projection * count, per_projection)
    ], gated


def projected(c: Conversion, x: str, kernel: Sequence[str]) -> str:
    """[..., in] by a kernel [in, heads, size] and a bias -> [batch, heads, ..., size]."""
    array = array_of(c, kernel[0])
    if array.ndim != 3:
        raise ModelError(f"a kernel is {array.shape}", place=c.node.place)
    size, heads, depth = array.shape
    y = c.add("MatMul", [x, c.constant(array.reshape(size, heads * depth))])
    if len(kernel) > 1:
        y = c.add("Add", [y, c.constant(array_of(c, kernel[1]).reshape(heads * depth))])
    y = c.add("Reshape", [y, c.ints((0, 0, heads, depth))])
    return c.add("Transpose", [y], perm=(0, 2, 1, 3))


def causal(c: Conversion, scores: str, below: float) -> str:
    """The scores with `below` added where a later position would be seen."""
    queries, keys = c.type(scores).dims[-2:]
    if not isinstance(queries, int) or not isinstance(keys, int):
        c.refuse("a causal mask needs known lengths: give shapes")
    c.check_count(queries * keys // 64, MAX_PIECES, "times 64 pairs of positions")
    allowed = np.tri(queries, keys, dtype=bool)
    mask = np.where(allowed, 0.0, below)
    return c.add("Add", [scores, c.constant(mask, np.float32)])


@row("MultiHeadAttention", "GroupQueryAttention", "GroupedQueryAttention")
def multi_head_attention(c: Conversion) -> Result:
    """softmax(q k^T / sqrt(size)) v per head, over the one axis between batch and features. One
    class has two names: the public one, and in .h5 files its own."""
    a, grouped = c.attributes, c.node.op_type != "MultiHeadAttention"
    c.irrelevant("dropout", "flash_attention", reason=TRAINING)
    a.expect("attention_axes", (1,), reason="only one axis, the first, is supported")
    a.expect("call.use_causal_mask", False, True)
    (q, k, *gate, v, out), gated = multi_head_weights(c)
    query, value, key = tensors(c, ("query", "value", "key"))
    if query is None or value is None:
        c.refuse(f"called on {len(c.inputs)} tensors")
    if {c.rank(t) for t in (query, value)} != {3}:
        c.refuse("tensors of other ranks than 3")
    heads, depth = array_of(c, q[0]).shape[1:]
    _agree(c, grouped, heads, depth, array_of(c, v[0]).shape[1:])
    queries, values = projected(c, query, q), projected(c, value, v)
    keys = projected(c, key or value, k)
    repeats = heads // array_of(c, k[0]).shape[1]
    if repeats != 1:
        keys, values = (c.append(shapes.repeated(c, t, repeats, 1)) for t in (keys, values))
    queries = c.add("Mul", [queries, c.constant(1 / np.sqrt(depth), np.float32)])
    keys = c.add("Transpose", [keys], perm=(0, 1, 3, 2))
    scores = c.add("MatMul", [queries, keys])
    if a.flag("call.use_causal_mask"):
        scores = causal(c, scores, -np.inf)
    scores = c.add("Softmax", [scores], axis=-1)
    y = c.add("MatMul", [scores, values])
    if gated:
        y = c.add("Mul", [y, c.add("Sigmoid", [projected(c, query, gate[0])])])
    y = _output_projection(c, c.add("Transpose", [y], perm=(0, 2, 1, 3)), out)
    return c.named([y, *([scores] if gives_more(c, "call.return_attention_scores") else [])])


def _agree(c: Conversion, grouped: bool, heads: int, depth: int, values: tuple[int, ...]) -> None:
    """Hold the configuration against the weights."""
    reason = "the weights have another"
    expected = {"num_heads": heads, "key_dim": depth, "value_dim": values[1]}
    if grouped:
        expected = {"num_query_heads": heads, "head_dim": depth, "num_key_value_heads": values[0]}
    for name, size in expected.items():
        c.attributes.expect(name, size, reason=reason)


def _output_projection(c: Conversion, y: str, kernel: Sequence[str]) -> str:
    """[batch, time, heads, size] by a kernel [heads, size, out] -> [batch, time, out]."""
    array = array_of(c, kernel[0])
    if array.ndim != 3:
        c.refuse(f"an output of several axes, {array.shape[2:]}")
    heads, depth, size = array.shape
    c.attributes.expect("output_shape", (size,), size, reason="the weights have another")
    y = c.add("Reshape", [y, c.ints((0, 0, heads * depth))])
    y = c.add("MatMul", [y, c.constant(array.reshape(heads * depth, size))])
    return c.add("Add", [y, kernel[1]]) if len(kernel) > 1 else y


@row("Attention", "AdditiveAttention")
def attention(c: Conversion) -> Result:
    """Called on [query, value] or [query, value, key], [batch, time, features]. Scores are
    q . k, or weight sum tanh(q + k), or sum scale tanh(q + k)."""
    a = c.attributes
    a.irrelevant("dropout", TRAINING)
    a.expect("call.use_causal_mask", False, True)
    additive = c.node.op_type == "AdditiveAttention"
    scaled = a.flag("use_scale", additive)
    mode = "concat" if additive else c.choice("score_mode", ("dot", "concat"), "dot")
    weighted = mode == "concat" and not additive
    parameters = weights(c, scaled + weighted)
    count = len(c.inputs) - len(parameters)
    if count not in (2, 3):
        raise ModelError(f"it is called on {count} tensors", place=c.node.place)
    q, v, k = c.required(0), c.required(1), c.required(count - 1)
    if mode == "dot":
        transposed_keys = c.add("Transpose", [k], perm=(0, 2, 1))
        scores = c.add("MatMul", [q, transposed_keys])
        scores = c.add("Mul", [scores, parameters[0]]) if scaled else scores
    else:
        unsqueezed = [c.add("Unsqueeze", [t, c.ints((axis,))]) for t, axis in ((q, 2), (k, 1))]
        sums = c.add("Add", unsqueezed)
        inside = c.add("Mul", [sums, parameters[0]]) if scaled and weighted else sums
        curve = c.add("Tanh", [inside])
        curve = c.add("Mul", [curve, parameters[0]]) if scaled and additive else curve
        scores = c.add("ReduceSum", [curve, c.ints((-1,))], keepdims=False)
        scores = c.add("Mul", [scores, parameters[-1]]) if weighted else scores
    if a.flag("call.use_causal_mask"):
        scores = causal(c, scores, FAR_BELOW)
    scores = c.add("Softmax", [scores], axis=-1)
    y = c.add("MatMul", [scores, v])
    return c.named([y, *([scores] if gives_more(c, "call.return_attention_scores") else [])])


@row("Dot")
def dot(c: Conversion) -> Result:
    """The product of two tensors summed along an axis of each, batch by batch, as Keras lays it
    out: the first's other axes, then the second's."""
    a = c.attributes
    weights(c, 0)
    if len(c.inputs) != 2:
        raise ModelError(f"it is called on {len(c.inputs)} tensors", place=c.node.place)
    stated, unit = a.get("axes"), a.flag("normalize")
    pair = stated if isinstance(stated, tuple) else (stated, stated)
    axes = [axis % c.rank(i) for i, axis in enumerate(pair)]
    if 0 in axes or min(c.rank(0), c.rank(1)) < 2:
        a.refuse("axes", "the batch is not summed over")
    values = [c.required(0), c.required(1)]
    if unit:
        values = [_unit(c, v, axis) for v, axis in zip(values, axes)]
    letters = [["b", *"cdefghij"[: c.rank(0) - 1]], ["b", *"klmnopqr"[: c.rank(1) - 1]]]
    for side, axis in zip(letters, axes):
        side[axis] = "s"
    out = "b" + "".join(x for side in letters for x in side if x not in "bs")
    if len(out) == 1:  # two vectors per entry: Keras keeps an axis of one
        y = c.add("ReduceSum", [c.add("Mul", values), c.ints((1,))], keepdims=True)
        return c.same(y)
    equation = f"{''.join(letters[0])},{''.join(letters[1])}->{out}"
    return c.result("Einsum", values, equation=equation)


def _unit(c: Conversion, value: str, axis: int) -> str:
    """The value with norm one along an axis."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    return c.append(formulas.over_norm(c, value, axes, 1e-12))


@row("EinsumDense")
def einsum_dense(c: Conversion) -> Result:
    """einsum(equation, x, kernel) + bias, which is shaped to be added."""
    a = c.attributes
    equation, bias_axes = a.text("equation", ""), a.text("bias_axes")
    a.irrelevant("output_shape", "the weights have the shape")
    kernel, *bias = weights(c, 1 + (bias_axes is not None))
    x = data_input(c, 1 + len(bias))
    y = c.add("Einsum", [x, kernel], equation=equation.replace(" ", ""))
    if bias:
        named = equation.replace(" ", "").partition("->")[2].replace("...", "")
        if array_of(c, bias[0]).ndim > len(named) or not set(bias_axes or "") <= set(named):
            raise ModelError(f"bias_axes {bias_axes} of {equation}", place=c.node.place)
        y = c.add("Add", [y, bias[0]])
    return c.same(activated(c, y))

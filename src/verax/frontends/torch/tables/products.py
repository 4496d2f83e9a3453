"""ATen matrix products and attention."""

from __future__ import annotations

import math

import numpy as np

from verax.frontends.common import formulas, layers
from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row
from verax.ir.types import DType


@row("mm.default", "bmm.default", "matmul.default")
def matmul(t: Aten) -> Result:
    name = "other" if t.kind == "matmul" else "mat2"
    return t.result("MatMul", [t.tensor("self"), t.tensor(name)])


@row("linear.default")
def linear(t: Aten) -> Result:
    """x W^T + b; the weight is [out, in]."""
    x, weight, bias = t.tensor("input"), t.tensor("weight"), t.maybe("bias")
    if t.rank(weight) != 2:
        t.refuse(f"its weight has rank {t.rank(weight)}")
    return formulas.dense(t, x, weight, bias)


@row("addmm.default", "baddbmm.default")
def addmm(t: Aten) -> Result:
    """beta self + alpha product; with a beta of 0 nothing of self counts, NaN neither."""
    first, second = ("mat1", "mat2") if t.kind == "addmm" else ("batch1", "batch2")
    beta, alpha = float(t.scalar("beta", 1)), float(t.scalar("alpha", 1))
    bias, a, b = t.tensor("self"), t.tensor(first), t.tensor(second)
    if t.kind == "addmm":
        operands = [a, b, bias] if beta else [a, b]
        return t.result("Gemm", operands, alpha=alpha, beta=beta or 1.0)
    dtype = t.type(a).dtype.numpy
    product = t.add("MatMul", [a, b])
    if alpha != 1:
        product = t.add("Mul", [product, t.constant(alpha, dtype)])
    if beta == 0:
        return t.result("Identity", [product])
    if beta != 1:
        bias = t.add("Mul", [bias, t.constant(beta, dtype)])
    return t.result("Add", [product, bias])


@row("einsum.default")
def einsum(t: Aten) -> Result:
    t.irrelevant("path", reason="it chooses an order of the same products")
    equation = t.text("equation").replace(" ", "")
    return t.result("Einsum", t.tensors("tensors"), equation=equation)


def _for_each_head(t: Aten, x: str, q: str) -> str:
    """Keys or values [..., heads, length, features], once for each of the queries' heads: as many
    of these as share them lie side by side."""
    if min(t.rank(x), t.rank(q)) < 3:
        return x
    own, query_heads = t.type(x).dims[-3], t.type(q).dims[-3]
    if own in (1, query_heads) or not isinstance(own, int) or not isinstance(query_heads, int):
        return x
    if query_heads % own:
        t.refuse(f"{query_heads} heads of queries share {own} of keys")
    heads = t.constant(np.repeat(np.arange(own), query_heads // own), np.int64)
    return t.add("Gather", [x, heads], axis=t.rank(x) - 3)


@row(
    "scaled_dot_product_attention.default",
    "_scaled_dot_product_flash_attention_for_cpu.default",
)
def attention(t: Aten) -> Result:
    """softmax(q k^T scale + mask) v, scale 1/sqrt(features) unless given; a boolean mask keeps
    where it is true. A query that may attend to nothing gives zeros."""
    if t.output_used(1):
        t.refuse("its sums of exponentials are used")
    q, k, v = (t.tensor(n) for n in ("query", "key", "value"))
    if t.scalar("dropout_p", 0.0):
        t.a.refuse("dropout_p", "call module.eval() before exporting")
    t.irrelevant("enable_gqa", reason="which heads share keys follows from their numbers")
    k, v = (_for_each_head(t, x, q) for x in (k, v))
    dtype = t.type(q).dtype
    scale = t.scalar("scale")
    if scale is None:
        scale = 1 / math.sqrt(t.known_size(q, -1, "the scale"))
    transposed_keys = formulas.transposed_matrix(t, k)
    scores = t.add("MatMul", [t.add("Mul", [q, t.constant(scale, dtype.numpy)]), transposed_keys])
    mask = t.maybe("attn_mask")
    if t.flag("is_causal"):
        sizes = (t.type(q).dims[-2], t.type(k).dims[-2])
        if mask is not None or not all(isinstance(s, int) for s in sizes):
            t.a.refuse("is_causal", "with a mask, or lengths that are not known")
        queries, keys = (int(s) for s in sizes if isinstance(s, int))
        t.check_count(queries * keys)
        mask = t.constant(np.tri(queries, keys, dtype=np.bool_))
    if mask is not None:
        scores = layers.masked_scores(t, scores, mask)
    safe = mask is not None and _may_hide_all(t, mask)
    weights = t.add("Softmax", [scores], axis=t.rank(scores) - 1, masked_to_zero=safe)
    return t.result("MatMul", [weights, v])


def _may_hide_all(t: Aten, mask: str) -> bool:
    """False if the mask is a constant that leaves every query at least one key."""
    content = t.builder.constants.get(mask, t.builder.known.get(mask))
    if content is None or content.dtype == object:
        return True
    visible = content if content.dtype == np.bool_ else content != -np.inf
    return not bool(visible.any(axis=-1).all())


@row("_grouped_mm.default")
def grouped_product(t: Aten) -> Result:
    """Products of groups: of rows of the first matrix, of columns of the second, of what is summed,
    or of a batch of each. `offs` has the end of every group; what lies behind the last is zero."""
    a, b, ends = t.tensor("self"), t.tensor("mat2"), t.maybe("offs")
    if t.maybe("bias") is not None:
        t.a.refuse("bias")
    dtype = t.type(a).dtype
    if t.text("out_dtype", str(dtype)) != str(dtype):
        t.a.refuse("out_dtype", "products stay in their inputs' type")
    return t.result("MatMul", [a, b]) if ends is None else _product_of_groups(t, a, b, ends)


@row("grouped_mm_fallback.default", domain="transformers")
def product_of_experts(t: Aten) -> Result:
    """Rows sorted by expert, each times its expert's matrix: what transformers calls where
    PyTorch's own product is not taken, as for float32."""
    return _product_of_groups(t, t.tensor("input"), t.tensor("weight"), t.tensor("offs"))


def _product_of_groups(t: Aten, a: str, b: str, ends: str) -> Result:
    """Products of a and b in groups, of which `ends` has the ends. Every group is computed
    whole, and what is not its own left out."""
    dtype = t.type(a).dtype
    (groups,) = t.known_sizes(ends, dependent="how many groups there are")
    axis = {(2, 3): 0, (3, 2): 1, (2, 2): 1}.get((t.rank(a), t.rank(b)))
    if axis is None:
        t.refuse(f"groups of {t.type(a)} and {t.type(b)}")
    ends = t.add("Unsqueeze", [t.cast(ends, DType.int64), t.ints([1])])
    zero = t.constant(np.zeros((1, 1)), np.int64)
    starts = t.add("Slice", [ends, t.ints([0]), t.ints([groups - 1]), t.ints([0])])
    starts = t.add("Concat", [zero, starts], axis=0)
    (count,) = t.known_sizes(b if t.rank(a) == 3 else a, (axis,), "how long the groups are")
    t.check_count(count * groups)
    positions = t.constant(np.arange(count)[None], np.int64)
    below = t.add("Less", [positions, ends])
    inside = t.add("And", [below, t.add("Not", [t.add("Less", [positions, starts])])])
    nothing = t.constant(0, dtype.numpy)
    if (t.rank(a), t.rank(b)) == (2, 2):  # elements of a sum belong to one group
        mine = t.add("Unsqueeze", [inside, t.ints([1])])
        masked = t.add("Where", [mine, t.add("Unsqueeze", [a, t.ints([0])]), nothing])
        column_mask = t.add("Unsqueeze", [inside, t.ints([2])])
        group_factors = t.add("Where", [column_mask, t.add("Unsqueeze", [b, t.ints([0])]), nothing])
        return t.result("MatMul", [masked, group_factors])
    products = t.add("MatMul", [a, b])  # [groups, rows, columns]
    mine = t.add("Unsqueeze", [inside, t.ints([2 if axis == 0 else 1])])
    # At most one group is not zero at a place, so that the sum rounds nothing.
    own = t.add("Where", [mine, products, nothing])
    return t.apply("ReduceSum", [own, t.ints([0])], keepdims=False)

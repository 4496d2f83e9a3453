"""Scaled dot-product attention with its gradients, as fused kernels compute them.

The gradient of a softmax subtracts from each row of dP its sum weighted by P. A fused kernel takes
that sum from the stored result y, as the sum of dy y, and so errs by the rounding of y where a
network of simple operators does not: a query that sees one key has the gradient zero there, and
that rounding here (Dao et al., FlashAttention, 2022, algorithm 4). Scores, P and dP stay in
float32 and are rounded to the type of q where they are factors of a product. As in PyTorch's own
simple operators, q and k are each scaled by the root of the scale.
"""

from __future__ import annotations

import math
from typing import Any

from verax.base.optional import optional

torch: Any = optional("torch", "to use verax.torch")


class FusedAttention(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
    """Inside, `scaled_dot_product_attention` is `_Attention`, where that has what is asked for.
    calls: how often it was."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            self.calls += 1
            return _attention(func, *args, **kwargs)
        return func(*args, **kwargs)


def _attention(
    original: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`scaled_dot_product_attention` by `_Attention`; by `original` with dropout, or with a mask
    that has a gradient."""
    if dropout_p or (attn_mask is not None and attn_mask.requires_grad) or query.dim() < 3:
        return original(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(repeats, -3) for t in (key, value))
    if is_causal:
        sizes = query.shape[-2], key.shape[-2]
        attn_mask = torch.ones(sizes, dtype=torch.bool, device=query.device).tril()
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return _Attention.apply(query, key, value, attn_mask, factor)


class _Attention(torch.autograd.Function):  # type: ignore[misc, name-defined]
    """q [.., L, E], k [.., S, E], v [.., S, V], a mask of booleans or of numbers that are added."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
        with torch.autocast("cpu", enabled=False):
            return _Attention._forward(ctx, q, k, v, mask, scale)

    @staticmethod
    def _forward(ctx: Any, q: Any, k: Any, v: Any, mask: Any, scale: float) -> Any:
        root = math.sqrt(abs(scale))
        scaled_q, scaled_k = _wide(q) * math.copysign(root, scale), _wide(k) * root
        scores = torch.matmul(scaled_q, scaled_k.transpose(-1, -2))
        if mask is not None and mask.dtype is torch.bool:
            scores = scores.masked_fill(torch.logical_not(mask), -math.inf)
        elif mask is not None:
            scores = scores + _wide(mask)
        p = torch.softmax(scores, -1)
        if mask is not None:  # a query that sees no key gives zeros
            p = torch.where(torch.isnan(p), torch.zeros_like(p), p)
        y = torch.matmul(_factor(p, q.dtype), _wide(v)).to(q.dtype)
        ctx.save_for_backward(q, k, v, p, y, scaled_q, scaled_k)
        ctx.factors = math.copysign(root, scale), root
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> Any:
        q, k, v, p, y, scaled_q, scaled_k = ctx.saved_tensors
        wide = _wide(dy)
        dv = torch.matmul(_factor(p, q.dtype).transpose(-1, -2), wide)
        dp = torch.matmul(wide, _wide(v).transpose(-1, -2))
        ds = p * (dp - (wide * _wide(y)).sum(-1, keepdim=True))
        factor = _factor(ds, q.dtype)
        dq = torch.matmul(factor, scaled_k) * ctx.factors[0]
        dk = torch.matmul(factor.transpose(-1, -2), scaled_q) * ctx.factors[1]
        return (
            _summed(dq.to(q.dtype), q.shape),
            _summed(dk.to(k.dtype), k.shape),
            _summed(dv.to(v.dtype), v.shape),
            None,
            None,
        )


def _wide(t: Any) -> Any:
    return t.float() if t.dtype in (torch.bfloat16, torch.float16) else t


def _factor(t: Any, dtype: Any) -> Any:
    """t as a product with tensors of `dtype` reads it, in the type of the sums."""
    return t.to(dtype).to(t.dtype) if dtype in (torch.bfloat16, torch.float16) else t


def _summed(t: Any, shape: Any) -> Any:
    """t, summed over the axes that were broadcast."""
    return t.sum_to_size(shape) if t.shape != shape else t

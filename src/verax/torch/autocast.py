"""What torch.autocast does on a GPU, for tensors on the processor.

Autocast's lists differ by device: on a GPU norms, softmax and losses are computed in float32 and
their results stay so, on the processor most of them take the type of their inputs. The products
that are computed in 16 bits are the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from verax.base.optional import optional

torch: Any = optional("torch", "to use verax.torch")
NAMES = (
    *("layer_norm", "group_norm", "rms_norm", "softmax", "log_softmax", "softmin", "softplus"),
    *("cosine_similarity", "mse_loss", "cross_entropy", "nll_loss", "l1_loss", "smooth_l1_loss"),
    *("huber_loss", "kl_div", "cosine_embedding_loss", "binary_cross_entropy_with_logits"),
    *("normalize", "cdist"),
)
"""Functions of torch.nn.functional on the list "autocasts to float32"."""
METHODS = (
    *("exp", "expm1", "log", "log10", "log2", "log1p", "reciprocal", "rsqrt", "sinh", "cosh"),
    *("tan", "asin", "acos", "pow", "softmax", "log_softmax", "cumsum", "cumprod", "sum", "prod"),
    *("norm", "logsumexp"),
)
"""The same of torch and its tensors."""
SHORT = (torch.bfloat16, torch.float16)


def _float32() -> frozenset[Any]:
    functions = [getattr(torch.nn.functional, n, None) for n in NAMES]
    for name in METHODS:
        functions += [getattr(torch, name, None), getattr(torch.Tensor, name, None)]
    return frozenset(f for f in functions if f is not None)


class InFloat32(torch.overrides.TorchFunctionMode):  # type: ignore[misc, name-defined]
    """Inside, functions of the lists are given float32 for 16 bits."""

    functions = _float32()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self.functions:
            return func(*args, **kwargs)
        args, kwargs = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda t: t.float() if t.dtype in SHORT else t, (args, kwargs)
        )
        with torch.autocast("cpu", enabled=False):
            return func(*args, **kwargs)


@contextlib.contextmanager
def autocast_of_gpu(dtype: Any) -> Iterator[None]:
    """Inside, tensors on the processor are cast as autocast to `dtype` does it on a GPU; None for
    no casts."""
    if dtype is None:
        yield
        return
    with torch.autocast("cpu", dtype, cache_enabled=False), InFloat32():
        yield

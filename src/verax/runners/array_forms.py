"""In which form a function is given its inputs: as arrays of the library, and on the device, that
the user's own came from.

A kernel of CuPy cannot read an array of NumPy, and one of Triton no tensor on the processor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from verax.base.arrays import as_tensor
from verax.base.machine.devices import answer, device_of, driver_version
from verax.base.tensors import is_from, is_tensor

Form = Callable[[np.ndarray], Any]
"""Makes, of an array whose memory may be kept, what a function is given."""


def form_like(value: Any) -> Form | None:
    """How an array becomes one of the library and on the device of `value`; None for NumPy's, and
    for libraries that are not known."""
    if is_tensor(value):
        device = value.device
        return lambda array: as_tensor(array).to(device)
    if is_from(value, "jax") or is_from(value, "jaxlib"):
        jax, sharding = sys.modules["jax"], value.sharding
        return lambda array: jax.device_put(array, sharding)
    if is_from(value, "cupy"):
        cupy, device = sys.modules["cupy"], value.device

        def to_cupy(array: np.ndarray) -> Any:
            with device:
                return cupy.asarray(array)

        return to_cupy
    return None


def form_words(value: Any) -> str:
    """What a function is given in this form, in words; "" for arrays of NumPy."""
    if is_tensor(value):
        kind = "tensors"
    elif is_from(value, "jax") or is_from(value, "jaxlib"):
        kind = "arrays of JAX"
    elif is_from(value, "cupy"):
        kind = "arrays of CuPy"
    else:
        return ""
    device = device_of(value)
    return f"{kind} on {device}" if device else kind


def library_facts(value: Any) -> dict[str, str]:
    """What decides how JAX or CuPy computes with arrays like `value`: versions, card, driver, and
    the precision of products; {} for other libraries."""
    facts: dict[str, Any] = {}
    if is_from(value, "jax") or is_from(value, "jaxlib"):
        jax = sys.modules["jax"]
        devices = sorted(value.devices(), key=lambda d: d.id)
        facts["JAX"], facts["card"] = jax.__version__, devices[0].device_kind
        platform = answer(lambda: devices[0].client.platform_version)
        facts["JAX platform"] = str(platform or "").partition("\n")[0]
        precision = answer(lambda: jax.config.jax_default_matmul_precision)
        facts["precision of JAX's products"] = precision or "default"
    elif is_from(value, "cupy"):
        cupy = sys.modules["cupy"]
        runtime = answer(lambda: cupy.cuda.runtime)
        properties = answer(lambda: runtime.getDeviceProperties(value.device.id)) or {}
        name = properties.get("name", b"")
        facts["CuPy"] = answer(lambda: cupy.__version__)
        facts["card"] = name.decode() if isinstance(name, bytes) else name
        facts["CUDA"] = answer(lambda: runtime.runtimeGetVersion())
    if device_of(value):
        facts = {"device": device_of(value), **facts, "driver": driver_version()}
    return {k: str(v) for k, v in facts.items() if v not in (None, "")}


def torch_device(value: Any) -> Any:
    """The `torch.device` of a tensor that lies on none of the processor; else None."""
    return value.device if is_tensor(value) and device_of(value) else None

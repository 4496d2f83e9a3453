"""A device of PyTorch for tests where there is no GPU: "stub:0", whose tensors compute on the host.

It is strict where a GPU is: its tensors are not read without a copy, and do not mix with tensors on
the processor. Its allocator keeps what was freed and hands it out again, with what it held, and
says so in `torch.stub.memory_snapshot()` as CUDA's does.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
registration = pytest.importorskip("torch.utils.backend_registration")
NAME, DEVICE = "stub", "stub:0"
ROUNDING = 512
"""Bytes: sizes of blocks are multiples of it."""


class Block(np.ndarray):
    """Memory that returns to the allocator when nothing holds it any more."""


class Allocator:
    """free: blocks by size, the last freed first to be given. synchronized: how often it was waited
    for the device."""

    def __init__(self) -> None:
        self.free: dict[int, list[np.ndarray]] = {}
        self.synchronized = 0

    def take(self, size: int) -> np.ndarray:
        rounded = max(1, -(-size // ROUNDING)) * ROUNDING
        kept = self.free.get(rounded)
        memory = kept.pop() if kept else np.full(rounded, 0xA5, np.uint8)
        block = memory.view(Block)
        weakref.finalize(block, self.free.setdefault(rounded, []).append, memory)
        return block

    def memory_snapshot(self) -> list[dict[str, Any]]:
        blocks = [
            {"size": size, "state": "inactive"} for size, all_ in self.free.items() for _ in all_
        ]
        return [{"device": 0, "stream": 0, "segment_pool_id": (0, 0), "blocks": blocks}]

    def synchronize(self, device: Any = None) -> None:
        self.synchronized += 1

    def get_device_name(self, device: Any = None) -> str:
        return "a stand-in"

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass

    def get_rng_state(self, device: Any = None) -> Any:
        return torch.zeros(0, dtype=torch.uint8)

    def set_rng_state(self, state: Any, device: Any = None) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[Any]:
        return [torch.float16, torch.bfloat16]


class StubTensor(torch.Tensor):  # type: ignore[misc, name-defined]
    """A tensor on the device. raw: its numbers, a tensor on the host."""

    raw: Any

    @staticmethod
    def __new__(cls, raw: Any) -> StubTensor:
        made: StubTensor = torch.Tensor._make_wrapper_subclass(
            cls, raw.shape, dtype=raw.dtype, device=DEVICE, strides=raw.stride(),
            storage_offset=raw.storage_offset(),
        )  # fmt: skip
        made.raw = raw
        return made

    def __repr__(self, **_: Any) -> str:
        return f"StubTensor({self.raw})"

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        device = kwargs.pop("device", None)
        name = function.overloadpacket.__name__
        tree_map = torch.utils._pytree.tree_map
        _no_mixture(name, (args, kwargs))
        if device is not None:
            kwargs["device"] = "cpu"
        result = function(*tree_map(_raw, args), **tree_map(_raw, kwargs))
        if name == "copy_":
            return args[0]
        on_host = device is not None and torch.device(device).type == "cpu"
        return result if on_host else tree_map(_placed, result)


def _no_mixture(name: str, arguments: Any) -> None:
    if name in ("copy_", "_to_copy"):
        return
    for leaf in torch.utils._pytree.tree_leaves(arguments):
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, StubTensor) and leaf.dim():
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but got cpu and {DEVICE} ({name})"
            )


def _raw(value: Any) -> Any:
    return value.raw if isinstance(value, StubTensor) else value


def _placed(value: Any) -> Any:
    return StubTensor(value) if isinstance(value, torch.Tensor) else value


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _empty(size: Any, dtype: Any = None, **_: Any) -> Any:
    dtype = dtype or torch.get_default_dtype()
    count = int(np.prod(size, dtype=np.int64))
    memory = ALLOCATOR.take(count * dtype.itemsize)
    return torch.from_numpy(memory).view(torch.uint8)[: count * dtype.itemsize].view(dtype)


def _empty_memory_format(
    size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
    memory_format: Any = None,
) -> Any:  # fmt: skip
    return StubTensor(_empty(size, dtype).reshape(tuple(size)))


def _empty_strided(
    size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: Any = None,
) -> Any:  # fmt: skip
    needed = 1 + sum((n - 1) * s for n, s in zip(size, stride)) if all(size) else 0
    return StubTensor(_empty((needed,), dtype).as_strided(tuple(size), tuple(stride)))


ALLOCATOR = Allocator()
IMPLEMENTED: dict[str, Callable[..., Any]] = {
    "empty.memory_format": _empty_memory_format,
    "empty_strided": _empty_strided,
}
_library: list[Any] = []


def register() -> None:
    """Make the device known to PyTorch, once in a process."""
    if _library:
        return
    registration._setup_privateuseone_for_python_backend(NAME, backend_module=ALLOCATOR)
    _library.append(torch.library.Library("aten", "IMPL"))
    for name, function in IMPLEMENTED.items():
        _library[0].impl(name, function, "PrivateUse1")


def on_device(module: Any) -> Any:
    """The module with its parameters and buffers moved to the device, in place."""
    with torch.no_grad():
        for part in module.modules():
            for name, parameter in list(part._parameters.items()):
                if parameter is not None:
                    moved = parameter.detach().to(DEVICE)
                    part._parameters[name] = torch.nn.Parameter(moved, parameter.requires_grad)
            for name, buffer in list(part._buffers.items()):
                if buffer is not None:
                    part._buffers[name] = buffer.to(DEVICE)
    return module


@contextlib.contextmanager
def forgotten_memory() -> Iterator[None]:
    """Inside, and afterwards, the allocator keeps nothing from before."""
    ALLOCATOR.free.clear()
    yield
    ALLOCATOR.free.clear()


def save_from_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Verax save programs of this device as PyTorch does those of a GPU: by copies on the
    host. (It saves the weights of a class of Python as pickles.)"""
    importer = pytest.importorskip("verax.frontends.torch.importer")
    saved = importer._saved

    def from_host(program: Any) -> bytes:
        before, examples = (program._state_dict, program._constants), program._example_inputs
        program._example_inputs = torch.utils._pytree.tree_map(_raw, examples)
        program._state_dict, program._constants = (
            {k: _on_host(v) for k, v in tensors.items()} for tensors in before
        )
        try:
            result: bytes = saved(program)
        finally:
            program._state_dict, program._constants = before
            program._example_inputs = examples
        return result

    monkeypatch.setattr(importer, "_saved", from_host)


def _on_host(value: Any) -> Any:
    raw = _raw(value)
    is_parameter = isinstance(value, torch.nn.Parameter)
    return torch.nn.Parameter(raw, value.requires_grad) if is_parameter else raw

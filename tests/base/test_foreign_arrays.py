"""Arrays of any library come to the host with their bits: NumPy's protocol, DLPack, CuPy's word."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from verax.base.arrays import as_array
from verax.base.errors import InputError
from verax.base.machine.devices import device_of, devices_in
from verax.base.machine.dlpack import host_copy

HOST, CUDA = 1, 2


class Exported:
    """An array that shows itself by DLPack alone; `owner` makes the capsules."""

    def __init__(self, owner: Any, device: tuple[int, int] = (HOST, 0)) -> None:
        self.owner, self.device = owner, device
        self.requests: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **request: Any) -> Any:
        self.requests.append(request)
        return self.owner.__dlpack__()


class OldExported(Exported):
    """The same from before DLPack 1.0, when nothing could be asked for."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        return self.owner.__dlpack__()


class CudaArray(Exported):
    """As arrays of CuPy are: on a GPU, silent to NumPy, with a word for the copy."""

    def __init__(self, numbers: np.ndarray) -> None:
        super().__init__(numbers, (CUDA, 1))

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use .get()")

    def get(self) -> np.ndarray:
        return np.array(self.owner)


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(41).standard_normal(shape)


@pytest.mark.parametrize("kind", [Exported, OldExported])
@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "int64", "uint8", "bool", "complex64"]
)
def test_of_dlpack_alone_in_every_layout(kind: type[Exported], dtype: str) -> None:
    whole = (drawn(4, 6, 5) * 3).astype(dtype)
    for array in (whole, whole[:, ::2].transpose(2, 0, 1), whole[1, 2, 3:4], whole[:, :0]):
        copied = as_array(kind(array))
        assert copied.dtype == array.dtype and copied.shape == array.shape
        np.testing.assert_array_equal(copied, array)
    assert not np.shares_memory(as_array(kind(whole)), whole)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_of_types_that_numpy_has_not(dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = torch.from_numpy(drawn(3, 7)).to(getattr(torch, dtype)).T
    copied = as_array(Exported(tensor))
    assert copied.dtype == getattr(ml_dtypes, dtype) and copied.shape == (7, 3)
    np.testing.assert_array_equal(copied.astype(float), tensor.to(torch.float64).numpy())


def test_on_a_device_a_copy_on_the_host_is_asked_for() -> None:
    array = drawn(2, 3)
    exported = Exported(array, (CUDA, 3))
    np.testing.assert_array_equal(as_array(exported), array)
    assert exported.requests == [{"max_version": (1, 1), "dl_device": (1, 0), "copy": True}]


def test_of_cupy() -> None:
    array = drawn(2, 3).astype(ml_dtypes.bfloat16)
    copied = as_array(CudaArray(array))
    assert copied.dtype == array.dtype and copied.tobytes() == array.tobytes()


def test_where_arrays_lie() -> None:
    on_gpu = CudaArray(drawn(2))
    assert device_of(on_gpu) == "cuda:1" and device_of(drawn(2)) == "" and device_of([1]) == ""
    nested = {"x": drawn(2), "pair": [on_gpu, (drawn(3), Exported(drawn(1), (10, 0)))]}
    assert list(devices_in(nested)) == ["cuda:1", "rocm:0"]


def test_one_that_copies_nothing_is_refused_by_name() -> None:
    class Silent(Exported):
        def __dlpack__(self, **request: Any) -> Any:
            raise BufferError("no copy on the host")

    with pytest.raises(InputError, match=r"Silent .*no copy on the host"):
        as_array(Silent(drawn(2), (CUDA, 0)), "input 'x'")


def test_parts_of_a_distributed_tensor_are_refused() -> None:
    parts = type("DTensor", (), {"__module__": "torch.distributed.tensor._api", "detach": None})
    with pytest.raises(InputError, match="a DTensor is given") as error:
        as_array(parts(), "output 'y'")
    assert error.value.place == "output 'y'" and "full_tensor()" in error.value.next_step


def test_several_elements_at_a_time_are_refused() -> None:
    import ctypes

    array = drawn(4)
    capsule = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    address = pointer(ctypes.py_object(capsule), b"dltensor")
    ctypes.c_uint16.from_address(address + 22).value = 2  # lanes

    class Vectors(OldExported):
        def __dlpack__(self) -> Any:  # type: ignore[override]
            return capsule

    with pytest.raises(TypeError, match="2 at a time"):
        host_copy(Vectors(array))


def test_of_jax() -> None:
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    for dtype in ("float32", "bfloat16", "float8_e4m3fn", "int32"):
        array = jnp.asarray(drawn(2, 5)).astype(dtype)
        copied = as_array(array)
        assert copied.dtype.name == dtype and device_of(array) == ""
        np.testing.assert_array_equal(copied.astype(float), np.asarray(array.astype("float32")))

"""Arrays that lie on a GPU go into a program and come out of it without copies: on the emulated
GPU, whose memory stands for a card's, and on a card whose driver is a fake that does all late."""

from __future__ import annotations

import ctypes
import gc
import math
import sys
import types
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.fake_cuda import FakeDriver, install

from verax.base.errors import InputError, UnsupportedError
from verax.base.gpu import cuda_driver
from verax.base.machine import dlpack
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile as compile_graph
from verax.compiler.executable import Executable
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.runtime.gpu import spare
from verax.runtime.gpu.arrays import DeviceArray
from verax.runtime.gpu.code import unpacked
from verax.runtime.gpu.cuda import cuda_device
from verax.runtime.gpu.device import Device
from verax.runtime.gpu.devices import device_of
from verax.runtime.gpu.spare import SpareMemory

EMULATED = "cuda-emulated"


class Tensor:
    """Of a library that has arrays on a GPU: it exports them by DLPack, and nothing else. streams:
    for which it exported. strides: in elements, where it does not lie densely."""

    def __init__(
        self, array: np.ndarray, device: Device, index: int = 0, kind: int = dlpack.CUDA
    ) -> None:
        self.array, self.device, self.kind = np.ascontiguousarray(array), device, (kind, index)
        self.address = device.allocate(max(array.nbytes, 256))
        if array.nbytes:
            device.write(self.address, self.array)
            device.synchronize()
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind

    def __dlpack__(self, *, stream: int, max_version: Any = None) -> Any:
        self.streams.append(stream)
        return dlpack.exported(self.address, self.array.shape, self.array.dtype, self.kind, self)

    def on_host(self) -> np.ndarray:
        array = np.empty_like(self.array)
        self.device.read(array, self.address)
        return array


class Transposed(Tensor):
    """One that does not lie densely, whose library makes dense copies."""

    def __dlpack__(self, *, stream: int, max_version: Any = None) -> Any:
        capsule = super().__dlpack__(stream=stream)
        tensor = dlpack._tensor_of(capsule)
        shape = self.array.shape[::-1]
        for axis, size in enumerate(shape):
            tensor.shape[axis] = size
            tensor.strides[axis] = math.prod(shape[:axis])
        return capsule

    def copy(self) -> Tensor:
        return Tensor(self.array.T, self.device)


def network(rows: int | str = 5, checked: bool = False) -> Graph:
    """Two inputs of different types, two outputs."""
    b = Builder()
    x = b.input("x", TensorType.parse(f"float32[{rows}, 3, 17]"))
    i = b.input("i", TensorType.parse("int64[4]"))
    y = b.add(REGISTRY["Softmax"](axis=2), [x])
    z = b.add(REGISTRY["Gather"](axis=2), [y, i])
    return b.graph([b.add(REGISTRY["Relu"](), [y]), z])


def inputs_for(rows: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng((394, rows, seed))
    x = random.standard_normal((rows, 3, 17)).astype(np.float32)
    return {"x": x, "i": random.integers(-17, 17, 4)}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    gc.collect()
    cuda_driver.driver.cache_clear()


@pytest.fixture(params=["emulated", "card"])
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(device, compile): an emulated GPU, or a card of a fake driver."""
    if request.param == "emulated":
        return device_of(EMULATED), lambda g: compile_graph(g, Settings(target=EMULATED))
    fake = FakeDriver(("NVIDIA H100", 9, 0))
    install(monkeypatch, fake)

    def on_card(graph: Graph) -> Executable:
        emulated = compile_graph(graph, Settings(target=EMULATED))
        emulated.run({v: a for v, a in inputs_for().items() if v in graph.inputs})
        fake.emulate(unpacked(emulated.program.binary.object_code))
        return compile_graph(graph, Settings(target="cuda"))

    return cuda_device(0), on_card


def expected(graph: Graph, inputs: dict[str, np.ndarray]) -> list[bytes]:
    return [y.tobytes() for y in compile_graph(graph, Settings()).run(inputs).values()]


def host_bytes(outputs: dict[str, Any]) -> list[bytes]:
    assert all(type(y) is DeviceArray for y in outputs.values())
    return [np.asarray(y).tobytes() for y in outputs.values()]


@pytest.mark.parametrize("rows", [5, "n"])
def test_what_lies_on_the_device_stays_there(build: Any, rows: int | str) -> None:
    device, compile_on = build
    graph = network(rows)
    exe = compile_on(graph)
    for seed in range(4):
        arrays = inputs_for(5 if seed < 2 or rows == 5 else 7, seed)
        tensors = {n: Tensor(a, device) for n, a in arrays.items()}
        outputs = exe.run(tensors)
        assert all(y.__dlpack_device__() == (dlpack.CUDA, 0) for y in outputs.values())
        assert [y.shape for y in outputs.values()] == [t.shape for t in exe.run(arrays).values()]
        assert host_bytes(outputs) == expected(graph, arrays)
        assert all(t.streams == [device.own_stream] for t in tensors.values())
        assert all(t.on_host().tobytes() == arrays[n].tobytes() for n, t in tensors.items())


def test_no_byte_of_an_input_is_copied(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    device, compile_on = build
    exe, arrays = compile_on(network()), inputs_for()
    tensors = {n: Tensor(a, device) for n, a in arrays.items()}
    exe.run(tensors)
    copied: list[int] = []
    read, write = type(device).read, type(device).write
    monkeypatch.setattr(
        type(device), "read", lambda d, a, at: (copied.append(a.nbytes), read(d, a, at))
    )
    monkeypatch.setattr(
        type(device), "write", lambda d, at, a: (copied.append(a.nbytes), write(d, at, a))
    )
    outputs = exe.run(tensors)
    assert copied == [4]  # whether a check failed
    copied.clear()
    exe.run({"x": tensors["x"], "i": arrays["i"]})
    assert sorted(copied) == [4, 32]
    monkeypatch.undo()
    assert host_bytes(outputs) == expected(network(), arrays)


def test_outputs_are_inputs_of_the_next_program(build: Any) -> None:
    device, compile_on = build
    exe, arrays = compile_on(network()), inputs_for()
    (y, _) = exe.run({n: Tensor(a, device) for n, a in arrays.items()}).values()
    outputs = exe.run({"x": y, "i": arrays["i"]})
    first = np.frombuffer(expected(network(), arrays)[0], np.float32).reshape(5, 3, 17)
    assert host_bytes(outputs) == expected(network(), {"x": first, "i": arrays["i"]})


def test_addresses_may_differ_in_every_call(build: Any) -> None:
    device, compile_on = build
    exe, kept = compile_on(network()), []
    for seed in range(5):
        arrays = inputs_for(seed=seed)
        if seed % 2:
            assert [y.tobytes() for y in exe.run(arrays).values()] == expected(network(), arrays)
        tensors = {n: Tensor(a, device) for n, a in arrays.items()}
        kept.append((arrays, tensors, exe.run(tensors)))
    for arrays, _, outputs in kept:
        assert host_bytes(outputs) == expected(network(), arrays)


def test_memory_of_an_unknown_library_may_be_used_again_at_once(build: Any) -> None:
    device, compile_on = build
    exe = compile_on(relu_of_softmax())
    for seed in range(3):
        arrays = {"x": inputs_for(seed=seed)["x"]}
        tensors = {n: Tensor(a, device) for n, a in arrays.items()}
        outputs = exe.run(tensors)
        for t in tensors.values():
            ctypes.memset(t.address, 0x7F, t.array.nbytes)
        assert host_bytes(outputs) == expected(relu_of_softmax(), arrays)


@pytest.mark.parametrize("build", ["card"], indirect=True)
def test_a_graph_is_told_of_addresses_that_changed_and_of_no_others(build: Any) -> None:
    device, compile_on = build
    fake, exe, counts = sys.modules["cuda.bindings.driver"], compile_on(relu_of_softmax()), []
    arrays = {"x": inputs_for()["x"]}
    tensors = {n: Tensor(a, device) for n, a in arrays.items()}
    for inputs in (arrays, arrays, tensors, arrays, arrays, arrays):
        fake.calls.clear()
        exe.run(inputs)
        counts.append(fake.calls.count("cuGraphExecKernelNodeSetParams"))
    assert counts == [0, 0, 2, 2, 0, 0] and "cuGraphLaunch" in fake.calls


def of_cupy(stream: int, monkeypatch: pytest.MonkeyPatch) -> type[Tensor]:
    """A class of tensors that CuPy would have, whose current stream is `stream`."""
    module = types.ModuleType("cupy")
    current = types.SimpleNamespace(ptr=stream)
    module.cuda = types.SimpleNamespace(get_current_stream=lambda: current)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", module)
    return type("ndarray", (Tensor,), {"__module__": "cupy"})


@pytest.mark.parametrize("build", ["card"], indirect=True)
def test_work_goes_into_the_caller_s_stream_and_nobody_waits(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs on the host's arrays and in two callers' streams share an arena, and wait for it."""
    device, compile_on = build
    fake, exe, kept = sys.modules["cuda.bindings.driver"], compile_on(relu_of_softmax()), []
    with device.use():
        streams = [int(cuda_driver.call("cuStreamCreate", 1)) for _ in range(2)]
    for seed, stream in enumerate([0, 1, 0, None, 1, None, 0, 1]):
        arrays = {"x": inputs_for(seed=seed)["x"]}
        if stream is None:
            (y,) = exe.run(arrays).values()
            assert [y.tobytes()] == expected(relu_of_softmax(), arrays)
            continue
        kind = of_cupy(streams[stream], monkeypatch)
        tensors = {n: kind(a, device) for n, a in arrays.items()}
        fake.calls.clear()
        kept.append((arrays, tensors, exe.run(tensors)))
        assert all(t.streams == [streams[stream]] for t in tensors.values())
        if seed:  # the first loads what it needs
            assert not any("Memcpy" in name for name in fake.calls)
            assert fake.calls.count("cuStreamSynchronize") == 1  # of the output's allocation
    for arrays, _, outputs in reversed(kept):
        assert host_bytes(outputs) == expected(relu_of_softmax(), arrays)


@pytest.mark.parametrize("build", ["card"], indirect=True)
def test_who_takes_an_output_in_another_stream_waits_for_it(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, compile_on = build
    exe, arrays = compile_on(relu_of_softmax()), {"x": inputs_for()["x"]}
    with device.use():
        mine, other = (int(cuda_driver.call("cuStreamCreate", 1)) for _ in range(2))
    kind = of_cupy(mine, monkeypatch)
    exe.run({n: kind(a, device) for n, a in arrays.items()})
    (y,) = exe.run({n: kind(a, device) for n, a in arrays.items()}).values()
    memory = dlpack.device_memory(y, other)
    content = np.empty(y.shape, y.dtype)
    with device.use(other):
        device.read(content, memory.address)
    assert [content.tobytes()] == expected(relu_of_softmax(), arrays)


def test_an_output_has_the_memory_of_one_that_nobody_holds(build: Any) -> None:
    device, compile_on = build
    exe, addresses, kept = compile_on(relu_of_softmax()), [], None
    for seed in range(5):
        arrays = {"x": inputs_for(seed=seed)["x"]}
        (y,) = exe.run({n: Tensor(a, device) for n, a in arrays.items()}).values()
        assert host_bytes({"y": y}) == expected(relu_of_softmax(), arrays)
        addresses.append(y.address)
        kept = y if seed == 2 else kept
        del y
    assert addresses[0] == addresses[1] == addresses[2] != addresses[3] == addresses[4]
    third = {"x": inputs_for(seed=2)["x"]}
    assert host_bytes({"y": kept}) == expected(relu_of_softmax(), third)


@pytest.mark.parametrize("build", ["card"], indirect=True)
@pytest.mark.parametrize("is_noted", [True, False])
def test_memory_that_another_stream_may_use_is_not_given_out_again(
    build: Any, monkeypatch: pytest.MonkeyPatch, is_noted: bool
) -> None:
    """A copy that another stream was asked for comes late. If nobody noted that, it is wrong."""
    device, compile_on = build
    exe = compile_on(relu_of_softmax())
    with device.use():
        mine, other = (int(cuda_driver.call("cuStreamCreate", 1)) for _ in range(2))
    kind, copied = of_cupy(mine, monkeypatch), device.allocate(4 * 5 * 3 * 17)
    exe.run({"x": kind(inputs_for()["x"], device)})
    if not is_noted:
        monkeypatch.setattr(DeviceArray, "note_stream", lambda self, stream: None)
    first = {"x": inputs_for(seed=1)["x"]}
    (y,) = exe.run({n: kind(a, device) for n, a in first.items()}).values()
    memory = dlpack.device_memory(y, other)
    with device.use(other):
        device.copy(copied, memory.address, y.nbytes)
    del y, memory
    (y,) = exe.run({"x": kind(inputs_for(seed=2)["x"], device)}).values()
    np.asarray(y)
    found = np.empty((5, 3, 17), np.float32)
    with device.use(other):
        device.read(found, copied)
    assert ([found.tobytes()] == expected(relu_of_softmax(), first)) == is_noted


def test_spare_memory_is_given_back_where_there_is_no_other(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, compile_on = build
    exe = compile_on(relu_of_softmax())
    exe.run({"x": Tensor(inputs_for()["x"], device)})
    gc.collect()
    free, allocate, freed = type(device).free, type(device).allocate, []

    def fails_once(self: Device, nbytes: int) -> int:
        monkeypatch.setattr(type(device), "allocate", allocate)
        raise InputError("no memory")

    monkeypatch.setattr(type(device), "free", lambda d, a: (freed.append(a), free(d, a)))
    monkeypatch.setattr(type(device), "allocate", fails_once)
    taken = SpareMemory.acquire(device, device.own_stream, 12345)
    assert taken.address and freed
    monkeypatch.setattr(spare, "MOST_BYTES", 20000)
    freed.clear()
    taken.give_back()
    SpareMemory.acquire(device, device.own_stream, 12346).give_back()
    assert len(freed) == 1


def relu_of_softmax() -> Graph:
    b = Builder()
    x = b.input("x", TensorType.parse("float32[5, 3, 17]"))
    y = b.add(REGISTRY["Softmax"](axis=2), [x])
    return b.graph([b.add(REGISTRY["Softmax"](axis=1), [y])])


def test_bytes_that_begin_anywhere_are_moved_on_the_device(
    build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels read bytes by fours."""
    device, compile_on = build
    b = Builder()
    x = b.input("i", TensorType.parse("uint8[5, 3, 7]"))
    y = b.add(REGISTRY["Cast"](to="float32"), [x])
    graph = b.graph([b.add(REGISTRY["Softmax"](axis=1), [y])])
    array = np.random.default_rng(9).integers(0, 9, (5, 3, 7)).astype(np.uint8)
    monkeypatch.setattr(sys.modules[__name__], "inputs_for", lambda: {"i": array})
    exe = compile_on(graph)
    for start in (0, 1, 3, 4):
        tensor = Tensor(np.pad(array.ravel(), (start, 8)), device)
        tensor.address, tensor.array = tensor.address + start, array
        copied: list[int] = []
        copy = type(device).copy
        monkeypatch.setattr(
            type(device),
            "copy",
            lambda d, *what, c=copied, f=copy: (c.append(what[2]), f(d, *what)),
        )
        outputs = exe.run({"i": tensor})
        monkeypatch.setattr(type(device), "copy", copy)
        assert host_bytes(outputs) == expected(graph, {"i": array})
        assert copied == ([] if start % 4 == 0 else [105])


def test_a_failed_check_is_told(build: Any) -> None:
    device, compile_on = build
    exe, arrays = compile_on(network()), inputs_for()
    wrong = {**arrays, "i": np.array([0, 1, 17, 2])}
    with pytest.raises(InputError, match="index"):
        exe.run({n: Tensor(a, device) for n, a in wrong.items()})
    outputs = exe.run({n: Tensor(a, device) for n, a in arrays.items()})
    assert host_bytes(outputs) == expected(network(), arrays)


def test_a_tensor_that_is_not_dense_is_copied_on_its_device(build: Any) -> None:
    device, compile_on = build
    exe, arrays = compile_on(network()), inputs_for()
    x = Transposed(np.ascontiguousarray(arrays["x"].T), device)
    assert host_bytes(exe.run({"x": x, "i": arrays["i"]})) == expected(network(), arrays)
    x.copy = None  # type: ignore[method-assign,assignment]
    del Transposed.copy
    try:
        object.__delattr__(x, "copy")
        with pytest.raises(InputError, match="does not lie densely"):
            exe.run({"x": x, "i": arrays["i"]})
    finally:
        Transposed.copy = lambda self: Tensor(self.array.T, self.device)  # type: ignore[method-assign]


def test_memory_that_is_elsewhere_is_refused_in_words(build: Any) -> None:
    device, compile_on = build
    exe, arrays = compile_on(network()), inputs_for()
    with pytest.raises(InputError, match="lies on cuda:1, and the program runs on cuda:0") as told:
        exe.run({"x": Tensor(arrays["x"], device, index=1), "i": arrays["i"]})
    assert "input 'x'" in told.value.place
    short = Tensor(arrays["x"][:4], device)
    for wrong in (short, Tensor(arrays["x"].astype(np.float64), device)):
        with pytest.raises(InputError, match=r"the input|sizes|model takes"):
            exe.run({"x": wrong, "i": arrays["i"]})
    with pytest.raises(InputError, match="missing"):
        exe.run({"x": Tensor(arrays["x"], device)})


def test_a_card_s_tensor_is_no_memory_of_the_emulated_gpu() -> None:
    exe, arrays = compile_graph(network(), Settings(target=EMULATED)), inputs_for()
    x = Tensor(arrays["x"], device_of(EMULATED))
    x.address = arrays["x"].ctypes.data  # as a card's: not the emulated GPU's
    with pytest.raises(InputError, match="does not lie in the memory of a GPU emulated"):
        exe.run({"x": x, "i": arrays["i"]})


def test_a_saved_program_takes_them_too(tmp_path: Any) -> None:
    for rows, runs in ((5, (5, 5)), ("n", (5, 7, 5))):
        exe = compile_graph(network(rows), Settings(target=EMULATED))
        exe.run(inputs_for())
        if rows == "n":
            save(exe, tmp_path / "a.vx", sizes={"n": 5})
        else:
            save(exe, tmp_path / "a.vx")
        saved, device = SavedExecutable(tmp_path / "a.vx"), device_of(EMULATED)
        for n in runs:
            arrays = inputs_for(n)
            outputs = saved.run({k: Tensor(a, device) for k, a in arrays.items()})
            assert host_bytes(outputs) == expected(network(rows), arrays)
            host = saved.run(arrays)
            assert [y.tobytes() for y in host.values()] == expected(network(rows), arrays)


def test_a_node_on_the_reference_runs_in_between() -> None:
    """What no kernel takes is computed on the host; the outputs come back to the device. The plan
    says what is copied: the node's input, and of its outputs the one of known size."""
    b = Builder()
    x = b.add(REGISTRY["Relu"](), [b.input("x", TensorType.parse("float32[3, 7]"))])
    graph = b.graph([b.add(REGISTRY["Unique"](axis=1), [x])])
    exe = compile_graph(graph, Settings(target=EMULATED))
    assert exe.plan.on_reference and exe.plan.copied_bytes == 4 * 3 * 7 + 8 * 7
    assert "nodes run on the reference (no kernel), for which 140 bytes are copied" in str(exe.plan)
    assert compile_graph(graph, Settings()).plan.copied_bytes == 0
    array = np.random.default_rng(393).standard_normal((3, 7)).astype(np.float32)
    outputs = exe.run({"x": Tensor(array, device_of(EMULATED))})
    assert host_bytes(outputs) == expected(graph, {"x": array})
    with pytest.raises(UnsupportedError, match="no kernel takes"):
        compile_graph(graph, Settings(target=EMULATED, require_native=True))


@given(
    shape=st.lists(st.integers(0, 4), max_size=4),
    dtype=st.sampled_from(
        ["float32", "float16", "bool", "uint8", "int64", "bfloat16", "float8_e5m2", "complex64"]
    ),
)
def test_exported_memory_is_read_back(shape: list[int], dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    array = (np.arange(math.prod(shape)) % 2).astype(kind).reshape(shape)
    device = device_of(EMULATED)
    exported = DeviceArray.allocated(device, array.shape, kind)
    if array.nbytes:
        device.write(exported.address, array)
    memory = dlpack.device_memory(exported, device.own_stream)
    assert memory.shape == array.shape and memory.dtype == kind and memory.is_dense
    assert memory.address == exported.address
    assert np.asarray(exported).tobytes() == array.tobytes()


def test_memory_lives_as_long_as_somebody_has_it() -> None:
    device = device_of(EMULATED)
    gc.collect()
    before = len(device._memory)  # type: ignore[attr-defined]
    array = DeviceArray.allocated(device, (3, 5), np.dtype(np.float32))
    capsules = [array.__dlpack__(stream=7), array.__dlpack__()]
    del array
    gc.collect()
    assert len(device._memory) == before + 1  # type: ignore[attr-defined]
    capsules.pop()
    assert len(device._memory) == before + 1  # type: ignore[attr-defined]
    capsules.clear()
    gc.collect()
    assert len(device._memory) == before and not dlpack._exports  # type: ignore[attr-defined]


def test_whoever_takes_a_capsule_frees_what_it_holds() -> None:
    """NumPy is the consumer, of memory that says to be the host's."""

    class Exporter:
        array = np.arange(15, dtype=np.float32).reshape(3, 5)

        def __dlpack_device__(self) -> tuple[int, int]:
            return dlpack.CPU, 0

        def __dlpack__(self, **_: Any) -> Any:
            array = self.array
            kind = self.__dlpack_device__()
            return dlpack.exported(array.ctypes.data, array.shape, array.dtype, kind, self)

    before = len(dlpack._exports)
    taken = np.from_dlpack(Exporter())
    assert np.array_equal(taken, Exporter.array) and len(dlpack._exports) == before + 1
    view = taken[1:]
    del taken
    gc.collect()
    assert len(dlpack._exports) == before + 1 and view[0, 0] == 5
    del view
    gc.collect()
    assert len(dlpack._exports) == before

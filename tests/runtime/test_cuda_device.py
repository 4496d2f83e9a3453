"""Programs on NVIDIA's cards, whose driver is a module of Python here (`fake_cuda`): its calls in
their order, the bits, and what is said when it refuses one."""

from __future__ import annotations

import dataclasses
import gc
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.fake_cuda import FakeDriver, install

from verax.base.errors import CompileError, DeviceError, InputError, MissingPackageError, VeraxError
from verax.base.gpu import cuda_driver
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile as compile_graph
from verax.compiler.executable import Executable
from verax.compiler.kernels.target import Target
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.runtime.gpu import cuda
from verax.runtime.gpu.code import GpuCode, unpacked
from verax.runtime.gpu.cubins import CubinCache
from verax.runtime.gpu.cuda import CudaDevice, cuda_device
from verax.runtime.gpu.device import LaunchSequence, PreparedLaunch
from verax.runtime.gpu.launches import Launch

H100, A6000 = ("NVIDIA H100 PCIe", 9, 0), ("NVIDIA RTX A6000", 8, 6)
X = np.random.default_rng(391).standard_normal((2, 3, 9, 7)).astype(np.float32)


def network(rows: int | str = 9, checked: bool = False) -> Graph:
    """A convolution and what follows it: several kernels. checked: it gathers by an index, too."""
    b = Builder()
    x = b.input("x", TensorType.parse(f"float32[2, 3, {rows}, 7]"))
    w = np.random.default_rng(392).standard_normal((16, 3, 3, 2)).astype(np.float32)
    y = b.add(REGISTRY["Relu"](), [b.add(REGISTRY["Conv"](), [x, b.constant(w, "w")])])
    z = b.add(REGISTRY["Softmax"](axis=3), [y])
    if checked:
        z = b.add(REGISTRY["Gather"](axis=1), [z, b.input("i", TensorType.parse("int64[5]"))])
    return b.graph([z])


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    gc.collect()  # programs are gone before their driver is
    cuda_driver.driver.cache_clear()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    fake = FakeDriver(H100, A6000)
    install(monkeypatch, fake)
    return fake


def on_card(fake: FakeDriver, graph: Graph, target: str = "cuda") -> Executable:
    """Compiled for a card, on which the emulated GPU's kernels run."""
    emulated = compile_graph(graph, Settings(target="cuda-emulated"))
    inputs = {v: np.zeros((5,), np.int64) for v in graph.inputs if v != "x"}
    emulated.run({"x": np.zeros(X.shape, np.float32), **inputs})
    fake.emulate(unpacked(emulated.program.binary.object_code))
    return compile_graph(graph, Settings(target=target))


def code_of_emulated(graph: Graph) -> GpuCode:
    """What the emulated GPU has for a network of known sizes."""
    emulated = compile_graph(graph, Settings(target="cuda-emulated"))
    return unpacked(emulated.program.binary.object_code)


def expected(graph: Graph, **inputs: np.ndarray) -> bytes:
    (y,) = compile_graph(graph, Settings()).run(inputs).values()
    return y.tobytes()


class TestRuns:
    def test_a_run_has_the_bits_of_the_processor_and_a_graph_from_the_second_on(
        self, fake: FakeDriver
    ) -> None:
        graph = network()
        exe = on_card(fake, graph)
        assert exe.specialized.binary.target == "sm_90"
        fake.calls.clear()
        (first,) = exe.run({"x": X}).values()
        launches = fake.calls.count("cuLaunchKernel")
        assert first.tobytes() == expected(graph, x=X) and launches >= 2
        assert "cuGraphLaunch" not in fake.calls
        for k in (2.0, -3.0):
            fake.calls.clear()
            (y,) = exe.run({"x": X * np.float32(k)}).values()
            assert y.tobytes() == expected(graph, x=X * np.float32(k))
            assert fake.calls.count("cuGraphLaunch") == 1 and "cuLaunchKernel" not in fake.calls
            assert fake.calls.count("cuGraphInstantiate") == (k == 2.0)
        assert fake.calls.count("cuCtxPushCurrent") == fake.calls.count("cuCtxPopCurrent")

    def test_open_sizes_are_launched_anew_for_each_set(self, fake: FakeDriver) -> None:
        graph = network("h")
        exe = on_card(fake, graph)
        for rows in (9, 5, 9, 9, 11):
            x = np.random.default_rng(rows).standard_normal((2, 3, rows, 7)).astype(np.float32)
            (y,) = exe.run({"x": x}).values()
            assert y.tobytes() == expected(graph, x=x), rows
        assert exe.program.binary.open_sizes is not None

    def test_a_failed_check_is_told_and_the_next_run_is_right(self, fake: FakeDriver) -> None:
        graph = network(checked=True)
        exe = on_card(fake, graph)
        i = np.array([3, -1, 0, 15, 7])
        for wrong in (16, -17):
            with pytest.raises(InputError, match="index"):
                exe.run({"x": X, "i": np.array([3, wrong, 0, 1, 2])})
            (y,) = exe.run({"x": X, "i": i}).values()
            assert y.tobytes() == expected(graph, x=X, i=i)

    def test_the_second_card_is_used_where_it_is_named(self, fake: FakeDriver) -> None:
        exe = on_card(fake, network(), "cuda:1")
        assert exe.specialized.binary.target == "sm_86"
        assert exe.program.device.index == 1  # type: ignore[attr-defined]
        assert exe.run({"x": X})

    def test_what_a_program_had_is_given_back(self, fake: FakeDriver) -> None:
        exe = on_card(fake, network())
        for _ in range(3):
            exe.run({"x": X})
        assert fake.buffers and fake.live["module"] and fake.live["executable"]
        del exe
        gc.collect()
        kinds = ("module", "graph", "executable", "link", "event")
        assert not fake.buffers and not any(fake.live.get(kind) for kind in kinds)

    def test_threads_run_side_by_side(self, fake: FakeDriver) -> None:
        graph = network()
        exe, results = on_card(fake, graph), {}

        def run(k: int) -> None:
            for _ in range(4):
                (results[k],) = (y.tobytes() for y in exe.run({"x": X * np.float32(k)}).values())

        threads = [threading.Thread(target=run, args=(k,)) for k in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == {k: expected(graph, x=X * np.float32(k)) for k in (1, 2, 3)}

    def test_much_shared_memory_is_asked_for(self, fake: FakeDriver) -> None:
        exe = on_card(fake, network())
        code, device = unpacked(exe.program.binary.object_code), cuda_device(0)

        def with_shared(nbytes: int) -> Any:
            segments = {
                name: tuple(
                    dataclasses.replace(s, shared=nbytes) if isinstance(s, Launch) else s
                    for s in steps
                )
                for name, steps in code.segments.items()
            }
            return dataclasses.replace(code, segments=segments)

        fake.calls.clear()
        device.load(with_shared(48 << 10))
        assert "cuFuncSetAttribute" not in fake.calls
        device.load(with_shared(99 << 10))
        assert fake.calls.count("cuFuncSetAttribute") == len(code.ptx)
        with pytest.raises(
            DeviceError, match="needs 102400 bytes of shared memory, and NVIDIA H10"
        ):
            device.load(with_shared(100 << 10))


class TestMachineCode:
    def test_it_is_kept_by_kernel_card_and_driver(self, fake: FakeDriver, tmp_path: Path) -> None:
        code = unpacked(on_card(fake, network()).program.binary.object_code)
        cubins = CubinCache(tmp_path / "programs")
        for card, made in ((0, True), (0, False), (1, True), (1, False)):
            fake.calls.clear()
            CudaDevice(card, cubins).load(code)
            assert fake.calls.count("cuLinkComplete") == len(code.ptx) * made
        files = sorted(cubins.folder.iterdir())
        assert len(files) == 2 * len(code.ptx) and {f.suffix for f in files} == {".cubin"}

    @pytest.mark.parametrize("damage", [b"", b"x", b"\n"])
    def test_a_damaged_file_is_made_again(
        self, fake: FakeDriver, tmp_path: Path, damage: bytes
    ) -> None:
        cubins = CubinCache(tmp_path)
        tmp_path.chmod(0o700)
        card = cuda_driver.card(0)
        key = cubins.key(b"text", card)
        cubins.keep(key, b"machine code")
        assert cubins.find(key) == b"machine code"
        (path,) = tmp_path.iterdir()
        whole = path.read_bytes()
        other = tmp_path / f"{cubins.key(b'other', card)}.cubin"
        other.write_bytes(whole)
        other.chmod(0o600)
        assert cubins.find(cubins.key(b"other", card)) is None and not other.exists()
        path.write_bytes(whole[:-3] + damage)
        assert cubins.find(key) is None and not path.exists()

    def test_a_saved_program_has_that_of_the_card_it_was_saved_on(
        self, fake: FakeDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Other cards make theirs of the text, and so does a driver that takes it no more."""
        monkeypatch.setattr(cuda, "default_cubins", lambda: None)
        graph = network()
        exe, path = on_card(fake, graph, "sm_80"), tmp_path / "net.vx"
        save(exe, path)
        program = SavedExecutable(path)
        assert program.gpu_machine_code == ["9.0"]
        code = unpacked(program.binary.object_code)
        assert code.machine_code["9.0"].keys() == code.ptx.keys()
        for card, refused, made in ((0, 0, 0), (1, 0, len(code.ptx)), (0, 1, 1)):
            fake.calls.clear()
            fake.failures["cuModuleLoadData"] = [222] * refused
            CudaDevice(card, None).load(code)
            assert fake.calls.count("cuLinkComplete") == made
        fake.emulate(code_of_emulated(graph))
        (y,) = program.run({"x": X}).values()
        assert y.tobytes() == expected(graph, x=X)
        again = tmp_path / "again.vx"
        save(exe, again)
        assert again.read_bytes() == path.read_bytes()

    def test_a_folder_of_others_is_not_used(self, fake: FakeDriver, tmp_path: Path) -> None:
        cubins = CubinCache(tmp_path / "open")
        key = cubins.key(b"text", cuda_driver.card(0))
        cubins.keep(key, b"machine code")
        cubins.folder.chmod(0o777)
        assert cubins.find(key) is None
        cubins.keep(cubins.key(b"more", cuda_driver.card(0)), b"machine code")
        assert len(list(cubins.folder.iterdir())) == 1


class TestRefusals:
    def said(self, fake: FakeDriver, function: str, code: int, run: Any) -> VeraxError:
        fake.failures[function] = [code]
        with pytest.raises(VeraxError) as told:
            run()
        assert told.value.exit_code == 2 and told.value.next_step
        assert not fake.thread.contexts
        return told.value

    @pytest.mark.parametrize(
        ("function", "code", "words"),
        [
            ("cuLaunchKernel", 700, "read or wrote where there is no memory"),
            ("cuStreamSynchronize", 719, "a kernel failed"),
            ("cuMemcpyHtoDAsync", 201, "the context of this process on the card is gone"),
            ("cuMemcpyDtoHAsync", 214, "reports an error that it cannot correct"),
            ("cuStreamSynchronize", 716, "not aligned"),
            ("cuLaunchKernel", 1, "the driver refuses a call"),
        ],
    )
    def test_a_run_says_what_failed(
        self, fake: FakeDriver, function: str, code: int, words: str
    ) -> None:
        graph = network()
        exe = on_card(fake, graph)
        told = self.said(fake, function, code, lambda: exe.run({"x": X}))
        assert words in told.cause and function in told.cause and "H100" in told.place
        (y,) = exe.run({"x": X}).values()  # an error that did not last
        assert y.tobytes() == expected(graph, x=X)

    def test_a_driver_older_than_the_code(self, fake: FakeDriver) -> None:
        fake.log = b"ptxas application ptx input, line 9; fatal: Unsupported .version 8.7\n"
        told = self.said(fake, "cuLinkAddData", 222, lambda: on_card(fake, network()))
        assert "the driver is older than the code" in told.cause
        assert "Unsupported .version 8.7" in told.cause and "sm_80" in told.next_step

    def test_memory_is_asked_for_in_figures(self, fake: FakeDriver) -> None:
        fake.memory = 1 << 20
        x = np.zeros((2, 3, 40_000, 7), np.float32)
        exe = on_card(fake, network("h"))
        exe.run({"x": X})
        with pytest.raises(InputError, match=r"of \S+ MiB find no place on the card, which has "):
            exe.run({"x": x})
        (y,) = exe.run({"x": X}).values()
        assert y.tobytes() == expected(network("h"), x=X)

    def test_no_package_no_driver_no_card(
        self, fake: FakeDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cuda_driver, "DEVICE_FILES", ())
        gc.collect()
        install(monkeypatch, None)
        with pytest.raises(DeviceError, match="there is no driver of NVIDIA's on this machine"):
            Target.named("cuda")
        monkeypatch.setattr(cuda_driver, "DEVICE_FILES", ("/dev/null",))
        with pytest.raises(MissingPackageError, match="needs the package 'cuda-bindings'") as told:
            Target.named("cuda")
        assert told.value.next_step == "pip install 'verax[cuda]'"
        install(monkeypatch, FakeDriver())
        with pytest.raises(DeviceError, match="finds no card"):
            Target.named("cuda")
        library = FakeDriver()
        vars(library)["cuInit"] = _missing_library
        install(monkeypatch, library)
        with pytest.raises(DeviceError, match=re.escape("cannot be loaded on this machine (libcu")):
            Target.named("cuda")

    def test_too_old_a_card_and_one_too_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        install(monkeypatch, FakeDriver(("Tesla P100", 6, 0), ("TITAN V", 7, 0), ("New", 12, 1)))
        with pytest.raises(DeviceError, match=r"Tesla P100 has compute capability 6\.0"):
            Target.named("cuda")
        assert [Target.named(f"cuda:{i}").name for i in (1, 2)] == ["sm_70", "sm_120"]
        with pytest.raises(DeviceError, match="there is no card cuda:3") as told:
            Target.named("cuda:3")
        assert "cuda:1 (TITAN V)" in told.value.next_step
        for name in ("cuda:", "cuda:one", "cuda:-1", "cuda:²"):
            with pytest.raises(VeraxError, match="unknown target"):
                Target.named(name)
        assert not Target.named("sm_80").runs_here()

    def test_code_for_a_later_card_is_refused_in_words(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(monkeypatch, FakeDriver(A6000))
        exe = compile_graph(network(), Settings(target="sm_90"))
        with pytest.raises(CompileError, match=r"A6000 has compute capability 8\.6") as told:
            exe.run({"x": X})
        assert "target host" in told.value.next_step


def _missing_library(flags: int) -> None:
    raise RuntimeError("libcuda.so.1: no such file")


def test_a_sequence_of_one_launch_needs_no_graph(fake: FakeDriver) -> None:
    code = unpacked(on_card(fake, network()).program.binary.object_code)
    device = CudaDevice(0)
    (name, kernel), *_ = device.load(code).items()
    sequence = LaunchSequence()
    address = device.allocate(4096)
    sequence.launches.append(PreparedLaunch(kernel, 0, 1, 64, 0, [address] * 4))
    for _ in range(3):
        device.launch(sequence)
    device.synchronize()
    assert [one[0] for one in fake.launched] == [name] * 3 and "cuGraphCreate" not in fake.calls
    content = np.empty(7, np.uint8)
    device.read(content, address)
    assert not content.any()

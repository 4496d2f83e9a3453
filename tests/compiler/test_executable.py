"""Executables: specialising, checking inputs, saying what runs where, saving."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.errors import InputError, ModelError, UsageError, VeraxError
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile
from verax.compiler.kernels.target import Target
from verax.compiler.place.program import lower
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

ONE_THREAD = Settings(threads=1)


def array(*shape: int, seed: int = 11) -> np.ndarray:
    """Normal numbers; the same for the same shape and seed."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def network(input_type: str = "float32[2, 3, 9, 8]") -> Graph:
    """SAME at stride 2, BatchNorm, a residual sum, a softmax, and a node without a kernel."""
    b = Builder("net")
    x = b.input("x", TensorType.parse(input_type))
    y = b.add(REGISTRY["Conv"](strides=(2, 2), pads="SAME_UPPER"),
              [x, b.constant(array(20, 3, 3, 3)), b.constant(array(20))], name="first")  # fmt: skip
    statistics = [array(20, seed=i) for i in range(3)] + [np.abs(array(20, seed=3)) + 0.5]
    y = b.add(REGISTRY["BatchNormalization"](), [y, *map(b.constant, statistics)])
    z = b.add(REGISTRY["Conv"](pads=((1, 1), (1, 1))), [y, b.constant(array(20, 20, 3, 3))])
    z = b.add(REGISTRY["Relu"](), [b.add(REGISTRY["Add"](), [z, y])])
    ranked = b.add(REGISTRY["Einsum"](equation="nchw,nchw,nchw->nchw"), [z, z, z], name="no kernel")
    return b.graph([b.add(REGISTRY["Softmax"](axis=1), [ranked], ["p"]), z])


def same(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> bool:
    return all(got[k].tobytes() == want[k].tobytes() for k in want)


def test_it_runs_and_says_what_has_no_kernel() -> None:
    graph, inputs = network(), {"x": array(2, 3, 9, 8)}
    exe = compile(graph, ONE_THREAD)
    assert same(exe.run(inputs), promised(graph, inputs))
    assert len(exe.plan.on_reference) == 1
    assert "no kernel" in exe.plan.on_reference[0]
    positional = exe(inputs["x"])
    assert positional[0].tobytes() == exe.run(inputs)["p"].tobytes()


def test_open_sizes_are_specialised_when_they_are_known() -> None:
    graph = network("float32[n, 3, h, 8]")
    exe = compile(graph, ONE_THREAD)
    for shape in ((1, 3, 9, 8), (2, 3, 6, 8), (1, 3, 9, 8)):
        inputs = {"x": array(*shape)}
        assert same(exe.run(inputs), promised(graph, inputs))


def test_a_shape_given_as_a_tensor_is_specialised_by_value() -> None:
    b = Builder("reshape")
    x = b.input("x", TensorType.parse("float32[2, 3, 4]"))
    s = b.input("shape", TensorType.parse("int64[2]"))
    y = b.add(REGISTRY["Reshape"](), [x, s])
    exe = compile(b.graph([b.add(REGISTRY["Exp"](), [y], ["y"])]), ONE_THREAD)
    for shape in ((6, 4), (3, -1)):
        data = array(2, 3, 4)
        got = exe.run({"x": data, "shape": np.array(shape, np.int64)})["y"]
        assert got.shape == data.reshape(shape).shape
        assert not exe.plan.on_reference


def test_sizes_that_only_running_can_tell_flow_through() -> None:
    b = Builder("dynamic")
    x = b.input("x", TensorType.parse("float32[3, 5]"))
    found = b.add(REGISTRY["NonZero"](), [b.add(REGISTRY["Relu"](), [x])])
    graph = b.graph([b.add(REGISTRY["Transpose"](perm=(1, 0)), [found], ["t"])])
    inputs = {"x": array(3, 5)}
    got = compile(graph, ONE_THREAD).run(inputs)["t"]
    assert np.array_equal(got, np.argwhere(inputs["x"] > 0))


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({}, "missing"),
        ({"x": np.zeros((2, 3, 9, 8), np.float32), "y": np.zeros(1)}, "no input 'y'"),
        ({"x": np.zeros((2, 3, 9, 8))}, "float64"),
        ({"x": np.zeros((2, 3, 9, 7), np.float32)}, "axis 3"),
        ({"x": np.zeros((2, 3, 9), np.float32)}, "shape"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: dict[str, np.ndarray], text: str) -> None:
    exe = compile(network(), ONE_THREAD)
    with pytest.raises(InputError, match=text):
        exe.run(inputs)
    exe.run({"x": array(2, 3, 9, 8)})  # and the executable still works


def test_inputs_need_not_be_contiguous_nor_aligned() -> None:
    graph, exe = network(), compile(network(), ONE_THREAD)
    del graph
    x = array(2, 3, 9, 8)
    raw = np.zeros(x.nbytes + 1, np.uint8)
    shifted = raw[1:].view(np.float32).reshape(x.shape)
    shifted[...] = x
    strided = np.repeat(x, 2, axis=3)[..., ::2]
    want = exe.run({"x": x})
    assert same(exe.run({"x": shifted}), want)
    assert same(exe.run({"x": strided}), want)


def test_an_index_outside_its_tensor_is_an_error_and_reads_nothing() -> None:
    b = Builder("gather")
    x = b.input("x", TensorType.parse("float32[4, 3]"))
    i = b.input("i", TensorType.parse("int64[2]"))
    exe = compile(b.graph([b.add(REGISTRY["Gather"](), [x, i], ["y"], "look up")]), ONE_THREAD)
    data = array(4, 3)
    good = exe.run({"x": data, "i": np.array([-1, 0])})["y"]
    assert np.array_equal(good, data[[-1, 0]])
    for bad in (4, -5, 2**62):
        with pytest.raises(InputError, match="look up"):
            exe.run({"x": data, "i": np.array([0, bad])})


def test_threads_of_python_may_share_an_executable() -> None:
    exe = compile(network(), Settings(threads=2))
    inputs = [{"x": array(2, 3, 9, 8, seed=i)} for i in range(4)]
    want = [exe.run(i) for i in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(20):
            if not same(exe.run(inputs[k]), want[k]):
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


@pytest.mark.parametrize("threads", [1, 2])
def test_a_host_that_flushes_subnormals_changes_no_bit(threads: int) -> None:
    torch = pytest.importorskip("torch")
    b = Builder("tiny")
    x = b.input("x", TensorType.parse("float32[64, 4000]"))
    graph = b.graph([b.add(REGISTRY["Mul"](), [x, b.constant(np.float32([0.25]))], ["y"])])
    data = array(64, 4000) * np.float32(1e-38)
    want = data * np.float32(0.25)
    assert (np.abs(want[want != 0]) < np.finfo(np.float32).tiny).any()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormals")
    try:
        exe = compile(graph, Settings(threads=threads))
        got = [exe.run({"x": data})["y"] for _ in range(3)]
        flushed = torch.from_numpy(data) * 0.25
    finally:
        torch.set_flush_denormal(False)
    assert not np.array_equal(flushed.numpy(), want)  # the host did flush
    assert all(y.tobytes() == want.tobytes() for y in got)


def test_a_profile_times_every_step() -> None:
    exe = compile(network(), ONE_THREAD)
    profile = exe.profile({"x": array(2, 3, 9, 8)}, runs=2)
    assert len(profile.steps) == len(exe.plan.lines)
    assert profile.microseconds > 0
    assert any(s.kernel == "reference" for s in profile.steps)


def test_a_saved_program_runs_in_a_process_without_the_model(tmp_path: Path) -> None:
    exe = compile(network(), ONE_THREAD)
    x = array(2, 3, 9, 8)
    want = exe.run({"x": x})
    save(exe, tmp_path / "net.vx")
    assert same(SavedExecutable(tmp_path / "net.vx", threads=2).run({"x": x}), want)
    np.save(tmp_path / "x.npy", x)
    code = (
        "import sys, numpy as np, verax.ops\n"
        "from verax.compiler.artifacts.saved_program import SavedExecutable\n"
        "exe = SavedExecutable('net.vx', threads=1)\n"
        "np.savez('out.npz', **exe.run({'x': np.load('x.npy')}))\n"
        "print('Conv' in exe.graph_text, 'onnx' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]
    with np.load(tmp_path / "out.npz") as found:
        assert same(dict(found), want)


def test_a_network_compiles_for_aarch64_from_any_machine() -> None:
    image = lower(network(), Target.aarch64(), Settings(threads=2)).binary
    assert image.object_code[:4] == b"\x7fELF"
    assert int.from_bytes(image.object_code[18:20], "little") == 183  # EM_AARCH64


def test_damaged_programs_are_refused(tmp_path: Path) -> None:
    exe = compile(network(), ONE_THREAD)
    path = tmp_path / "net.vx"
    save(exe, path)
    intact = path.read_bytes()
    for at in (0, 9, 14, 20, 60, 200, 1500, 2900, 5000, len(intact) // 2, len(intact) - 100):
        broken = bytearray(intact)
        broken[at] ^= 0xFF
        path.write_bytes(broken)
        try:
            SavedExecutable(path, threads=1)
        except VeraxError:
            continue
        assert intact[at] == 0 or at > 4096, f"byte {at} changed unnoticed"
    for size in (0, 7, 100, 4096, len(intact) - 5000):
        path.write_bytes(intact[:size])
        with pytest.raises(ModelError):
            SavedExecutable(path)


def test_a_folder_that_cannot_be_written_leaves_no_partial_file(tmp_path: Path) -> None:
    exe = compile(network(), ONE_THREAD)
    with pytest.raises(UsageError, match="cannot write"):
        save(exe, tmp_path / "missing" / "net.vx")
    assert list(tmp_path.iterdir()) == []


def test_the_old_name_of_the_last_program_warns() -> None:
    exe = compile(network(), ONE_THREAD)
    with pytest.deprecated_call(match="use Executable.specialized"):
        program = exe.specialised
    assert program is exe.specialized


def test_the_old_name_of_a_saved_binary_warns(tmp_path: Path) -> None:
    save(compile(network(), ONE_THREAD), tmp_path / "net.vx")
    saved = SavedExecutable(tmp_path / "net.vx")
    with pytest.deprecated_call(match="use SavedExecutable.binary"):
        binary = saved.image
    assert binary is saved.binary

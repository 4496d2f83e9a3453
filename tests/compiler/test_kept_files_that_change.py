"""A model's file and the folder of kept programs as others may leave them: whatever they do to
either, answers are those of the file that was loaded, or an error says why there are none."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax
from tests.compiler.test_kept_models import X, answer, batch, network, never, saved
from verax import compiling
from verax.base.errors import ModelError, VeraxError
from verax.compiler import hot_sizes, specialize
from verax.compiler.artifacts import cache as caching
from verax.frontends.deferred_model import DeferredModel
from verax.ir.deferred import DeferredGraph
from verax.runtime import vx
from verax.runtime.weight_blocks import WeightBlock


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are kept."""
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "programs"))
    monkeypatch.setattr(caching, "_warned", set())
    return tmp_path


def kept(folder: Path, suffix: str) -> list[Path]:
    return sorted((folder / "programs").glob(f"*{suffix}"))


# --- the model's file


@pytest.mark.parametrize("external", [False, True])
def test_sizes_and_times_of_a_file_prove_nothing(folder: Path, external: bool) -> None:
    path = saved(folder / "net.onnx", network(), external)
    first = answer(path)
    changed = folder / "net.onnx.data" if external else path
    before = changed.stat()
    changed.unlink()  # or arrays would be written behind those that it holds
    saved(path, network(seed=8), external)
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (changed.stat().st_size, changed.stat().st_mtime_ns) == (
        before.st_size,
        before.st_mtime_ns,
    )
    assert not isinstance(verax.load(path), DeferredModel)
    assert answer(path) == answer(path, cache=False) != first


def test_data_beside_it_that_changed_since_it_was_loaded_are_told(folder: Path) -> None:
    path = saved(folder / "net.onnx", network(), external=True)
    wanted = answer(path)
    model = verax.load(path)
    data = folder / "net.onnx.data"
    content = data.read_bytes()
    data.write_bytes(content[::-1])
    with pytest.raises(ModelError, match="has changed since it was loaded"):
        verax.compile(model, threads=1, cache=False)
    data.unlink()
    with pytest.raises(ModelError, match="is gone or has changed"):
        verax.compile(model, threads=1, cache=False)
    data.write_bytes(content)
    assert verax.compile(model, threads=1, cache=False).run(X)["y"].tobytes() == wanted


def test_a_copy_elsewhere_is_the_same_model_with_its_own_path(folder: Path) -> None:
    path = saved(folder / "net.onnx", network(), external=True)
    wanted = answer(path)
    other = folder / "other"
    other.mkdir()
    copied = saved(other / "renamed.onnx", network())
    assert not isinstance(verax.load(copied), DeferredModel), "its arrays lie in it"
    for name in ("net.onnx", "net.onnx.data"):
        (folder / name).rename(other / name)
    model = verax.load(other / "net.onnx")
    assert isinstance(model, DeferredModel)
    assert model.source == str(other / "net.onnx")
    assert verax.compile(model, threads=1).run(X)["y"].tobytes() == wanted
    with pytest.raises(VeraxError, match=r"net\.onnx"):
        verax.load(path)


def test_a_path_is_that_of_the_folder_where_the_process_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(folder / "net.onnx", network())
    whole = verax.load(path)
    verax.compile(whole, threads=1)
    monkeypatch.chdir(folder)
    model = verax.load("net.onnx")
    assert isinstance(model, DeferredModel)
    away = folder / "away"
    away.mkdir()
    saved(away / "net.onnx", network(seed=8))
    monkeypatch.chdir(away)
    assert model.graph == whole.graph


def test_sizes_that_the_caller_changes_later_are_his(folder: Path) -> None:
    path = saved(folder / "net.onnx", network(rows="n"))
    shapes = {"n": 3}
    verax.compile(verax.load(path, shapes=shapes), threads=1)
    model = verax.load(path, shapes=shapes)
    assert isinstance(model, DeferredModel)
    shapes["n"] = 4
    assert str(model.graph.types["p"]) == "float32[3, 11]"


# --- the folder of kept programs


@pytest.mark.parametrize("rows", [3, "n"])
@pytest.mark.parametrize("suffix", [".vx", ".model"])
def test_entries_that_are_damaged_or_gone_are_made_again(
    folder: Path, suffix: str, rows: int | str
) -> None:
    path = saved(folder / "net.onnx", network(rows=rows))
    wanted = answer(path)
    entries = kept(folder, suffix)
    assert entries
    for entry in entries:
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 1
        entry.write_bytes(content)
    assert answer(path) == wanted
    for entry in kept(folder, suffix):
        entry.unlink()
    assert answer(path) == wanted
    assert kept(folder, suffix) and set(kept(folder, suffix)) <= set(entries)
    assert isinstance(verax.load(path), DeferredModel)


def test_a_damaged_block_of_weights_is_written_again(folder: Path) -> None:
    proto = network(rows="n")
    w = np.random.default_rng(3806).standard_normal((5, 40_001), np.float32)
    del proto.graph.initializer[:]
    b = np.arange(40_001, dtype=np.float32)
    proto.graph.initializer.extend([numpy_helper.from_array(a, v) for v, a in zip("wb", (w, b))])
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 40_001
    path = saved(folder / "net.onnx", proto)
    program = (
        "import sys, hashlib, verax; from tests.compiler.test_kept_models import batch;"
        "exe = verax.compile(sys.argv[1], threads=1); y = exe.run(batch(4))['y'];"
        "print(hashlib.sha256(y).hexdigest())"
    )
    results: list[str] = []
    intact: dict[Path, bytes] = {}
    for damage in (False, True, False):
        for entry in kept(folder, ".weights") if damage else ():
            intact[entry] = entry.read_bytes()
            content = bytearray(entry.read_bytes())
            content[-5] ^= 0x40
            entry.write_bytes(content)
        command = [sys.executable, "-c", program, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        results.append(done.stdout)
    assert len(set(results)) == 1
    assert intact == {entry: entry.read_bytes() for entry in kept(folder, ".weights")} != {}


def test_a_folder_that_cannot_be_written_costs_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(folder / "net.onnx", network(rows="n"))
    wanted = [answer(path), verax.compile(path, threads=1).run(batch(1))["y"].tobytes()]

    def fails(*_: object, **__: object) -> object:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(caching, "atomic_write", fails)
    monkeypatch.setattr("verax.runtime.vx.atomic_write", fails)
    exe = verax.compile(path, threads=1)
    got = [exe.run(x)["y"].tobytes() for x in (X, batch(1))]
    assert got == wanted, "what is kept is read all the same"
    other = saved(folder / "other.onnx", network(seed=9, rows="n"))
    with pytest.warns(UserWarning, match="Read-only file system"):
        got = [answer(other)]
    assert got == [answer(other, cache=False)]


def test_a_record_without_its_program_reads_the_file_whatever_the_settings(folder: Path) -> None:
    path = saved(folder / "net.onnx", network(rows="n"))
    answer(path, opt_level=2)
    graph = verax.load(onnx.load(path)).graph
    several: list[dict[str, Any]] = [
        {"opt_level": 0}, {"opt_level": 1}, {"cache": False}, {"require_native": True},
    ]  # fmt: skip
    for options in several:
        model = verax.load(path)
        assert isinstance(model, DeferredModel)
        exe = verax.compile(model, threads=1, **options)
        wanted = verax.compile(graph, threads=1, **{**options, "cache": False})
        assert exe.run(X)["y"].tobytes() == wanted.run(X)["y"].tobytes()
        assert exe.plan.lines == wanted.plan.lines


# --- values that set sizes


def repeated(columns: int) -> onnx.ModelProto:
    """y = (x @ w) in the shape that the input `shape` says."""
    w = np.random.default_rng(3807).standard_normal((5, columns), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
            helper.make_node("Reshape", ["p", "shape"], ["y"], "shaped"),
        ],
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 5]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_graph_that_was_given_up_still_knows_which_values_set_sizes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "MANY_BYTES", 0)
    path = saved(folder / "net.onnx", repeated(14))
    exe = verax.compile(path, threads=1)
    for shape in ((6, 7), (2, 21)):
        x = {**X, "shape": np.array(shape, np.int64)}
        assert exe.run(x)["y"].shape == shape
    assert isinstance(exe.graph, DeferredGraph) and exe.graph.is_released
    again = verax.compile(exe.graph, threads=1)
    assert not again.is_decided_by_shapes and not exe.is_decided_by_shapes
    for shape in ((6, 7), (2, 21)):
        x = {**X, "shape": np.array(shape, np.int64)}
        assert again.run(x)["y"].tobytes() == exe.run(x)["y"].tobytes()
        assert again.run(x)["y"].shape == shape
    assert not isinstance(verax.load(path), DeferredModel)


# --- programs for many sizes that are not for these


def wide(columns: int) -> onnx.ModelProto:
    """As `network`, w [5, columns]: weights that are files of their own."""
    proto = network(rows="n")
    rng = np.random.default_rng(3808)
    arrays = {"w": rng.standard_normal((5, columns)), "b": rng.standard_normal(columns)}
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(
        numpy_helper.from_array(a.astype(np.float32), v) for v, a in arrays.items()
    )
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = columns
    return proto


def test_weights_of_a_program_that_serves_other_sizes_are_not_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(folder / "net.onnx", wide(40_003))
    made = verax.compile(path, threads=1)
    wanted = {n: made.run(batch(n))["y"].tobytes() for n in (4, 9)}
    assert len(made._open.programs) == 2, "one is for up to eight rows"
    read: list[object] = []
    load_blocks = vx.load_blocks

    def counted(*arguments: Any) -> list[WeightBlock]:
        read.append(arguments)
        return load_blocks(*arguments)

    monkeypatch.setattr(vx, "load_blocks", counted)
    monkeypatch.setattr(specialize, "lower", never)
    found = verax.compile(path, threads=1)
    assert found.run(batch(9))["y"].tobytes() == wanted[9]
    assert (len(read), len(found._open.programs)) == (1, 1)
    assert found.run(batch(4))["y"].tobytes() == wanted[4]
    assert (len(read), len(found._open.programs)) == (2, 2)


def test_a_program_that_went_from_the_disk_meanwhile_is_made_again(folder: Path) -> None:
    path = saved(folder / "net.onnx", wide(40_003))
    made = verax.compile(path, threads=1)
    wanted = {n: made.run(batch(n))["y"].tobytes() for n in (4, 9)}
    found = verax.compile(path, threads=1)
    assert found.run(batch(9))["y"].tobytes() == wanted[9]
    for entry in kept(folder, ".vx"):
        entry.unlink()
    assert found.run(batch(4))["y"].tobytes() == wanted[4]
    assert len(found._open.programs) == 2 and kept(folder, ".vx")


# --- several at once


def test_processes_that_begin_at_the_same_time_answer_alike(folder: Path) -> None:
    path = saved(folder / "net.onnx", wide(40_009))
    program = (
        "import sys, hashlib, verax; from tests.compiler.test_kept_models import batch;"
        "exe = verax.compile(sys.argv[1], threads=1);"
        "ys = [exe.run(batch(n))['y'] for n in (4, 9)];"
        "print(*(hashlib.sha256(y).hexdigest() for y in ys))"
    )
    command = [sys.executable, "-c", program, str(path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    texts = [process.communicate(timeout=120)[0] for process in started]
    fresh = verax.compile(path, threads=1, cache=False)
    wanted = [hashlib.sha256(fresh.run(batch(n))["y"]).hexdigest() for n in (4, 9)]
    assert [text.split() for text in texts] == [wanted, wanted]
    model = verax.load(path)
    assert isinstance(model, DeferredModel)
    found = verax.compile(model, threads=1)
    assert [hashlib.sha256(found.run(batch(n))["y"]).hexdigest() for n in (4, 9)] == wanted
    assert isinstance(model.graph, DeferredGraph) and model.graph.is_released


def test_threads_that_make_and_give_up_at_the_same_time_answer_alike(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "MANY_BYTES", 0)
    monkeypatch.setattr(hot_sizes, "CALLS", 1)
    monkeypatch.setattr(hot_sizes, "SECONDS", 0.0)
    path = saved(folder / "net.onnx", network(rows="n"))
    fresh = verax.compile(path, threads=1, cache=False)
    sizes = range(2, 12)
    wanted = {n: fresh.run(batch(n))["y"].tobytes() for n in sizes}
    exe = verax.compile(path, threads=1)
    got: list[tuple[int, bytes]] = []

    def work(order: list[int]) -> None:
        for n in order:
            got.append((n, exe.run(batch(n))["y"].tobytes()))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        orders = [list(sizes), list(sizes)[::-1]]
        threads = [threading.Thread(target=work, args=(order,)) for order in orders * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        exe._hot.wait()
    assert len(got) == 40 and all(answered == wanted[n] for n, answered in got)

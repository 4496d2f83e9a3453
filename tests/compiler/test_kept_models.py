"""A model's file whose programs are kept: not parsed again, held no longer than it is needed, and
never taken for another."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax
from verax import compiling, loading
from verax.base.errors import InputError, ModelError
from verax.base.storage.reading import file_sha256, recording
from verax.compiler import hot_sizes, specialize
from verax.compiler.artifacts import cache as caching
from verax.compiler.pipeline import recipe
from verax.frontends.deferred_model import REMARKS, DeferredModel
from verax.frontends.model import Model
from verax.frontends.onnx import load_onnx
from verax.ir.assumptions import Assumptions, assumptions
from verax.ir.deferred import DeferredGraph
from verax.onnx_format import state
from verax.records.environment import array_hash

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
X = {"x": np.random.default_rng(3801).standard_normal((3, 5), np.float32)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are kept."""
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "programs"))
    return tmp_path


def network(seed: int = 7, rows: int | str = 3) -> onnx.ModelProto:
    """y = relu(x @ w) + b, w [5, 11]."""
    rng = np.random.default_rng(seed)
    arrays = {"w": rng.standard_normal((5, 11)), "b": rng.standard_normal(11)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
            helper.make_node("Relu", ["p"], ["r"], "positive"),
            helper.make_node("Add", ["r", "b"], ["y"], "shifted"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 11])],
        [numpy_helper.from_array(a.astype(np.float32), v) for v, a in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def saved(path: Path, model: onnx.ModelProto, external: bool = False) -> Path:
    """The path of a model that was written there."""
    if external:
        onnx.save(
            model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=0
        )
    else:
        onnx.save(model, path)
    return path


def answer(path: Path, **options: object) -> bytes:
    """What the compiled file gives for X."""
    return verax.compile(path, threads=1, **options).run(X)["y"].tobytes()


def never(*arguments: object, **named: object) -> object:
    raise AssertionError("this was not needed")


@pytest.mark.parametrize("external", [False, True])
def test_the_second_time_the_nodes_are_not_read(
    folder: Path, external: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(folder / "net.onnx", network(), external)
    wanted = answer(path)
    monkeypatch.setattr("verax.frontends.onnx.load_onnx", never)
    monkeypatch.setattr(specialize, "lower", never)
    model = verax.load(path)
    assert isinstance(model, DeferredModel)
    exe = verax.compile(model, threads=1)
    assert exe.run(X)["y"].tobytes() == wanted == answer(path)
    assert (repr(exe), exe.inputs, exe.outputs) == (repr(exe), model.inputs, model.outputs)


@pytest.mark.parametrize(("name", "sizes"), [("digits.tflite", {}), ("digits.pt2", {"s40": 2})])
def test_files_of_other_formats_are_not_read_again_either(
    folder: Path, name: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(DIGITS / name, folder))
    whole = verax.load(path, shapes=sizes)
    ((value, type_),) = whole.inputs.items()
    x = {value: np.random.default_rng(3803).random(type_.shape, np.float32)}
    wanted = verax.compile(whole, threads=1).run(x)
    monkeypatch.setattr(specialize, "lower", never)
    model = verax.load(path, shapes=sizes)
    assert isinstance(model, DeferredModel)
    got = verax.compile(model, threads=1).run(x)
    assert {v: a.tobytes() for v, a in got.items()} == {v: a.tobytes() for v, a in wanted.items()}
    assert model.graph == whole.graph and model.ledger == whole.ledger


PROGRAM = """
import sys
import numpy as np
import verax

exe = verax.compile(sys.argv[1], threads=1)
exe.run({"x": np.ones((3, 5), np.float32)})
print(*sorted(sys.modules))
"""


def test_another_process_needs_neither_operators_nor_onnx_nor_llvm(folder: Path) -> None:
    path = saved(folder / "net.onnx", network())
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(path)], capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    unneeded = {"onnx", "verax.ops", "llvmlite.binding", "verax.compiler.place.program"}
    assert unneeded <= set(runs[0]), "the first one compiles"
    assert not unneeded & set(runs[1])


@pytest.mark.parametrize("external", [False, True])
def test_another_content_is_another_network(folder: Path, external: bool) -> None:
    path = saved(folder / "net.onnx", network(), external)
    first = answer(path)
    saved(path, network(seed=8), external)
    assert not isinstance(verax.load(path), DeferredModel)
    changed = answer(path)
    assert changed != first
    assert changed == answer(path, cache=False)
    saved(path, network(), external)
    assert answer(path) == first


def test_one_bit_of_a_file_beside_it_counts(folder: Path) -> None:
    path = saved(folder / "net.onnx", network(), external=True)
    first = answer(path)
    data = folder / "net.onnx.data"
    content = bytearray(data.read_bytes())
    content[3] ^= 0x80  # a sign
    data.write_bytes(content)
    assert not isinstance(verax.load(path), DeferredModel)
    assert answer(path) == answer(path, cache=False) != first
    data.unlink()
    with pytest.raises(ModelError, match=r"net\.onnx\.data"):
        verax.load(path)


def test_another_version_reads_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(folder / "net.onnx", network())
    answer(path)
    assert isinstance(verax.load(path), DeferredModel)
    monkeypatch.setattr(caching, "build_digest", lambda: "another")
    assert not isinstance(verax.load(path), DeferredModel)


def test_sizes_given_when_it_is_loaded_are_part_of_it(folder: Path) -> None:
    path = saved(folder / "net.onnx", network(rows="n"))
    verax.compile(verax.load(path, shapes={"n": 3}), threads=1)
    assert not isinstance(verax.load(path), DeferredModel)
    assert not isinstance(verax.load(path, shapes={"n": 4}), DeferredModel)
    model = verax.load(path, shapes={"n": 3})
    assert isinstance(model, DeferredModel)
    assert str(model.inputs["x"]) == "float32[3, 5]"


def batch(rows: int, seed: int = 3802) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng([seed, rows]).standard_normal((rows, 5), np.float32)}


def test_a_kept_program_for_many_sizes_runs_before_its_file_is_parsed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(folder / "net.onnx", network(rows="n"))
    whole = verax.compile(path, threads=1)
    whole.run(X)
    wanted = [verax.compile(path, threads=1, cache=False).run(batch(n))["y"] for n in (4, 17)]
    with monkeypatch.context() as patch:
        patch.setattr("verax.frontends.onnx.load_onnx", never)
        patch.setattr(specialize, "lower", never)
        exe = verax.compile(path, threads=1)
        got = [exe.run(batch(n))["y"] for n in (4, 17)]  # sizes that nobody has seen
        assert [a.tobytes() for a in got] == [a.tobytes() for a in wanted]
        assert exe._bound().sized is not None and exe.plan.lines == whole.plan.lines
        with pytest.raises(InputError, match="axis 1 has size 6, the model takes 5"):
            exe.run({"x": np.ones((2, 6), np.float32)})
    assert isinstance(exe.graph, DeferredGraph) and exe.graph.is_released


@pytest.mark.parametrize("name", ["n", "d0"])
def test_how_a_program_for_many_sizes_was_made_is_told_of_a_file_that_was_not_parsed(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(folder / "net.onnx", network(rows=name))
    made, kept = (verax.compile(path, threads=1) for _ in range(2))
    made.run(X)
    kept.run(batch(4))
    assert isinstance(kept.graph, DeferredGraph) and kept.graph.is_released
    ours, theirs = (exe._bound().specialized for exe in (kept, made))
    assumed: list[Assumptions | None] = []

    def read(*arguments: Any, **named: Any) -> Model:
        assumed.append(assumptions())
        return load_onnx(*arguments, **named)

    monkeypatch.setattr("verax.frontends.onnx.load_onnx", read)
    assert (str(ours.trace), ours.graph) == (str(theirs.trace), theirs.graph)
    assert assumed == [None], "the file's own symbols are not the program's"
    assert ours.open_sizes == theirs.open_sizes
    assert ours.source == theirs.source
    assert str(kept.graph.types["y"]) == f"float32[{name}, 11]"
    assert kept.profile(batch(4), runs=1).steps


def test_a_size_that_no_kept_program_serves_reads_the_file(folder: Path) -> None:
    path = saved(folder / "net.onnx", network(rows="n"))
    verax.compile(path, threads=1).run(X)
    exe = verax.compile(path, threads=1)
    assert exe.run(batch(1))["y"].shape == (1, 11)
    assert exe.run({"x": np.ones((0, 5), np.float32)})["y"].shape == (0, 11)
    saved(path, network(seed=8, rows="n"))
    other = verax.compile(path, threads=1)
    fresh = verax.compile(path, threads=1, cache=False)
    for n in (1, 4):
        assert other.run(batch(n))["y"].tobytes() == fresh.run(batch(n))["y"].tobytes()


def test_a_program_made_beside_the_calls_gives_the_file_up_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_sizes, "CALLS", 2)
    monkeypatch.setattr(hot_sizes, "SECONDS", 0.0)
    path = saved(folder / "net.onnx", network(rows="n"))
    verax.compile(path, threads=1).run(X)
    exe = verax.compile(path, threads=1)
    answers = {exe.run(batch(4))["y"].tobytes() for _ in range(3)}
    exe._hot.wait()
    answers.add(exe.run(batch(4))["y"].tobytes())
    assert exe._bound().sized is None and len(answers) == 1
    assert isinstance(exe.graph, DeferredGraph) and exe.graph.is_released


def test_what_is_asked_for_later_is_that_of_the_file(folder: Path) -> None:
    path = saved(folder / "net.onnx", network())
    whole = verax.load(path)
    verax.compile(whole, threads=1)
    model = verax.load(path)
    assert isinstance(model, DeferredModel)
    assert repr(model) == repr(whole)
    assert model.graph == whole.graph and str(model) == str(whole)
    assert (model.ledger, model.modules, model.metadata) == (
        whole.ledger, whole.modules, whole.metadata,
    )  # fmt: skip
    renamed = dataclasses.replace(verax.load(path).graph, name="another")
    assert (renamed.name, renamed.nodes) == ("another", whole.graph.nodes)
    assert (model.source, model.format, model.stamp) == (whole.source, whole.format, whole.stamp)
    assert verax.check(model, "verax:O1").kind in ("identical", "rounding")
    for twin in (copy.deepcopy(verax.load(path)), pickle.loads(pickle.dumps(verax.load(path)))):
        assert twin.graph == whole.graph


def test_a_file_that_changed_meanwhile_is_told(folder: Path) -> None:
    path = saved(folder / "net.onnx", network())
    exe = verax.compile(path, threads=1)
    model = verax.load(path)
    saved(path, network(seed=8))
    with pytest.raises(ModelError, match="has changed since it was loaded"):
        print(model.graph.nodes)
    path.unlink()
    with pytest.raises(ModelError, match="is gone or has changed"):
        print(model.ledger)
    assert exe.run(X)["y"].shape == (3, 11)  # the program is there


def test_constants_are_given_up_and_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "MANY_BYTES", 0)
    path = saved(folder / "net.onnx", network(rows="n"))
    kept = verax.load(path)
    exe = verax.compile(kept, threads=1)
    exe.run(X)
    assert isinstance(exe.graph, DeferredGraph) and exe.graph.is_released
    assert exe.graph.full_graph() is kept.graph, "somebody holds it"
    other = verax.compile(path, threads=1)
    other.run(X)
    assert isinstance(other.graph, DeferredGraph) and other.graph.is_released
    assert other.graph.full_graph() == kept.graph
    other.run({"x": np.ones((4, 5), np.float32)})
    assert other.graph.is_released, "a program for another size was made"
    assert other.profile(X, runs=1).steps
    assert exe.recipe == other.recipe


def test_constants_that_are_read_again_are_not_hashed_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "MANY_BYTES", 0)
    path = saved(folder / "net.onnx", network(rows="n"))
    hashed: list[int] = []

    def counted(array: np.ndarray) -> str:
        hashed.append(array.nbytes)
        return array_hash(array)

    monkeypatch.setattr(recipe, "array_hash", counted)
    exe = verax.compile(path, threads=1)
    exe._can_be_open = False
    exe.run(X)
    assert sorted(hashed) == [44, 220]
    assert isinstance(exe.graph, DeferredGraph)
    read = exe.graph.full_graph().constants
    exe.graph.release()
    other = {"x": np.random.default_rng(3805).standard_normal((4, 5), np.float32)}
    answers = exe.run(other)["y"]
    assert sorted(hashed) == [44, 220], "the constants of the second size have their hashes"
    assert exe.graph.full_graph().constants["w"] is not read["w"]
    made_of = exe.specialized.network
    assert made_of == recipe.network_hash(verax.load(path, shapes={"n": 4}).graph)
    assert (
        answers.tobytes() == verax.compile(path, threads=1, cache=False).run(other)["y"].tobytes()
    )


def test_hashes_of_released_constants_are_never_those_of_another_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "MANY_BYTES", 0)
    path = saved(folder / "net.onnx", network(rows="n"))
    exe = verax.compile(path, threads=1)
    exe._can_be_open = False
    exe.run(X)
    saved(path, network(seed=8, rows="n"))
    with pytest.raises(ModelError, match="has changed since it was loaded"):
        exe.run({"x": np.ones((4, 5), np.float32)})
    saved(path, network(rows="n"))
    assert exe.run({"x": np.ones((4, 5), np.float32)})["y"].shape == (4, 11)


def test_a_limit_of_memory_holds_for_what_is_kept(folder: Path) -> None:
    path = saved(folder / "net.onnx", network())
    answer(path)
    with pytest.raises(InputError, match="what this node gives would take 132 bytes"):
        answer(path, memory=100)


def test_a_reader_that_has_something_to_say_says_it_each_time(folder: Path) -> None:
    proto = network()
    proto.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 12
    path = saved(folder / "net.onnx", proto)
    for _ in range(2):
        with pytest.warns(UserWarning, match="which is what is computed"):
            model = verax.load(path)
        assert REMARKS & model.metadata.keys()
        verax.compile(model, threads=1)
    assert {state.NOTE, state.STATE, state.WRITTEN} <= REMARKS


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"companions": {}, "types": {"x": "float99"}}'])
def test_a_record_that_is_none_is_not_taken(folder: Path, text: str) -> None:
    path = saved(folder / "net.onnx", network())
    wanted = answer(path)
    cache = caching.default_cache()
    assert cache is not None
    cache.keep_text(loading.record_name(file_sha256(path), '["ONNX", {}]'), text, caching.RECORD)
    assert not isinstance(verax.load(path), DeferredModel)
    assert answer(path) == wanted


def test_nothing_is_hashed_where_nothing_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERAX_CACHE", "off")
    monkeypatch.setattr(caching, "file_sha256", never)
    model = verax.load(saved(folder / "net.onnx", network()))
    assert isinstance(model, Model)
    assert model.origin is None


def test_what_is_recorded_are_the_bytes_that_were_read(folder: Path) -> None:
    path = saved(folder / "net.onnx", network(), external=True)
    with recording() as files:
        load_onnx(path)
    names = {Path(name).name: digest for name, digest in files.items()}
    wanted = {name: file_sha256(folder / name) for name in ("net.onnx", "net.onnx.data")}
    assert names == wanted


RESIDENT = """
import sys
import verax

def resident():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["RssAnon"].split()[0]) >> 10

verax.load(sys.argv[1])
before = resident()
model = verax.load(sys.argv[1])
held = resident()
del model
print(held - before, held - resident())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what is resident")
def test_the_system_has_the_pages_of_a_model_back(folder: Path) -> None:
    proto = network()
    rng = np.random.default_rng(3804)
    for i in range(20):  # of 2 MB, which the C library would keep
        array = rng.standard_normal((512, 1024), np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(array, f"w{i}"))
    path = saved(folder / "large.onnx", proto)
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT, str(path)], capture_output=True, text=True, check=True
    )
    held, given_back = map(int, done.stdout.split())
    assert held >= 40
    assert given_back >= 0.9 * held

"""Programs on disk: found again, never stale, never half, never somebody else's."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import verax
from verax.base.errors import CompileError
from verax.base.option_groups.settings import Settings
from verax.base.storage import unchanged
from verax.compiler import specialize
from verax.compiler.artifacts import cache as caching
from verax.compiler.artifacts.cache import DEFAULT_SIZE, ProgramCache, default_cache, is_cached
from verax.compiler.artifacts.save import save
from verax.compiler.artifacts.saved_program import SavedExecutable
from verax.compiler.compile import compile as compile_graph
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"


@pytest.fixture
def cache(tmp_path: Path) -> ProgramCache:
    return ProgramCache(tmp_path / "programs")


@pytest.fixture
def graph() -> Graph:
    return verax.load(DIGITS, shapes={"n": 2}).graph


IMAGE = {"image": np.random.default_rng(8101).random((2, 1, 24, 20), np.float32)}
ONE = Settings(threads=1)


def never(*arguments: object, **named: object) -> object:
    raise AssertionError("it was compiled again")


def test_the_second_time_nothing_is_compiled(
    cache: ProgramCache, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compile_graph(graph, ONE, cache=cache)
    wanted = first.run(IMAGE)
    monkeypatch.setattr(specialize, "lower", never)
    monkeypatch.setattr(specialize, "run_passes", never)
    again = compile_graph(graph, ONE, cache=cache)
    assert again.specialized.cached_notes is not None
    assert again.recipe == first.recipe
    assert again.plan == first.plan
    found = again.run(IMAGE)
    assert {v: a.tobytes() for v, a in found.items()} == {v: a.tobytes() for v, a in wanted.items()}


def test_a_kept_program_can_be_saved_profiled_and_traced(
    cache: ProgramCache, graph: Graph, tmp_path: Path
) -> None:
    first = compile_graph(graph, ONE, cache=cache)
    again = compile_graph(graph, ONE, cache=cache)
    assert again.specialized.cached_notes is not None
    save(again, tmp_path / "again.vx")
    save(first, tmp_path / "first.vx")
    assert (tmp_path / "again.vx").read_bytes() == (tmp_path / "first.vx").read_bytes()
    assert SavedExecutable(tmp_path / "again.vx").recipe == first.recipe
    assert again.trace == first.trace
    assert len(again.profile(IMAGE, runs=1).steps) == len(first.plan.lines)


@pytest.mark.parametrize(
    "other",
    [
        Settings(opt_level=0, threads=1),
        Settings(opt_level=2, threads=1),
        Settings(threads=3),
        Settings(threads=1, disable=("fold_pads",)),
        Settings(threads=1, passes=("fold_pads",)),
    ],
)
def test_other_settings_are_another_program(
    cache: ProgramCache, graph: Graph, other: Settings
) -> None:
    compile_graph(graph, ONE, cache=cache)
    assert compile_graph(graph, other, cache=cache).specialized.cached_notes is None


def test_one_changed_weight_is_another_program(cache: ProgramCache, graph: Graph) -> None:
    compile_graph(graph, ONE, cache=cache)
    name = max(graph.constants, key=lambda v: graph.constants[v].size)
    changed = graph.constants[name].copy()
    changed.flat[-1] = np.nextafter(changed.flat[-1], np.float32(9))
    other = dataclasses.replace(graph, constants={**graph.constants, name: changed})
    assert compile_graph(other, ONE, cache=cache).specialized.cached_notes is None


def test_another_version_of_verax_is_another_program(
    cache: ProgramCache, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_graph(graph, ONE, cache=cache)
    monkeypatch.setattr(caching, "build_digest", lambda: "a later one")
    assert compile_graph(graph, ONE, cache=cache).specialized.cached_notes is None


def test_the_digest_of_the_source_sees_every_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "room" / "a.py"
    source.parent.mkdir()
    source.write_text("x = 1\n")
    monkeypatch.setattr(caching, "ROOT", tmp_path)
    digest = caching.build_digest.__wrapped__
    os.utime(source, (7, 7))
    first = digest()
    source.write_text("x = 2\n")
    os.utime(source, (7, 7))  # as Nix, Bazel and layers of containers set them
    second = digest()
    (tmp_path / "b.py").write_text("")
    assert len({first, second, digest()}) == 3
    source.write_text("x = 1\n")
    (tmp_path / "b.py").unlink()
    assert digest() == first


def test_the_source_is_that_of_all_rooms() -> None:
    files = {Path(path) for path, _ in caching._source_files(str(caching.ROOT))}
    package = Path(verax.__file__).parent
    assert {package / "ops" / "__init__.py", package / "runtime" / "vx.py"} < files
    assert all(file.is_relative_to(package) for file in files)


def test_source_that_nobody_wrote_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "package" / "a.py"
    source.parent.mkdir()
    source.write_text("x = 1\n")
    monkeypatch.setattr(caching, "ROOT", source.parent)
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "programs"))
    digest = caching.build_digest.__wrapped__
    first = digest()
    assert not (tmp_path / "programs").exists()  # it was written a moment ago
    monkeypatch.setattr(unchanged, "SETTLED_SECONDS", -5.0)
    assert digest() == first
    with monkeypatch.context() as unread:
        unread.setattr(Path, "read_bytes", never)
        assert digest() == first
    time.sleep(0.02)  # the second time of a file is told in steps of some ms
    before = source.stat()
    source.write_text("x = 2\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest() != first


def test_sizes_and_values_that_decide_sizes_are_told_apart(cache: ProgramCache) -> None:
    model = verax.load(DIGITS)
    exe = compile_graph(model.graph, dataclasses.replace(ONE, open_sizes=False), cache=cache)
    for n in (1, 3):
        exe.run({"image": np.zeros((n, 1, 24, 20), np.float32)})
    assert len(cache.entries()) == 2
    b = Builder()
    x = b.input("x", TensorType.parse("float32[n, 5]"))
    sizes = b.input("sizes", TensorType.parse("int64[2]"))
    reshaping = b.graph([b.add(REGISTRY["Reshape"](), [x, sizes])])
    for wanted in ((2, 15), (15, 2)):
        again = compile_graph(reshaping, ONE, cache=cache)
        given = {"x": np.zeros((6, 5), np.float32), "sizes": np.array(wanted)}
        (found,) = again.run(given).values()
        assert found.shape == wanted


def test_a_damaged_entry_is_dropped_and_made_again(cache: ProgramCache, graph: Graph) -> None:
    compile_graph(graph, ONE, cache=cache)
    ((path, size, _),) = cache.entries()
    data = bytearray(path.read_bytes())
    data[size // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    again = compile_graph(graph, ONE, cache=cache)
    assert again.specialized.cached_notes is None
    assert compile_graph(graph, ONE, cache=cache).specialized.cached_notes is not None
    path.write_bytes(b"")
    assert compile_graph(graph, ONE, cache=cache).specialized.cached_notes is None


@pytest.mark.skipif(os.name == "nt", reason="rights of POSIX")
def test_a_folder_where_others_may_write_is_not_used(cache: ProgramCache, graph: Graph) -> None:
    compile_graph(graph, ONE, cache=cache)
    cache.folder.chmod(0o777)
    with pytest.warns(UserWarning, match="others may write there"):
        again = compile_graph(graph, ONE, cache=cache)
    assert again.specialized.cached_notes is None


def test_a_cache_that_cannot_be_written_is_a_warning(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    broken = ProgramCache(tmp_path / "file" / "programs")
    with pytest.warns(UserWarning, match="cannot keep compiled programs"):
        exe = compile_graph(graph, ONE, cache=broken)
    assert exe.run(IMAGE)


def test_what_was_unused_for_longest_goes_first(cache: ProgramCache, graph: Graph) -> None:
    settings = [Settings(opt_level=level, threads=1) for level in (0, 1, 2)]
    compile_graph(graph, settings[0], cache=cache)
    ((first, size, _),) = cache.entries()
    os.utime(first, (1, 1))
    compile_graph(graph, settings[1], cache=cache)
    second = next(p for p, _, _ in cache.entries() if p != first)
    os.utime(second, (2, 2))
    compile_graph(graph, settings[0], cache=cache)  # the first was used again
    small = ProgramCache(cache.folder, limit=2 * size + size // 2)
    compile_graph(graph, settings[2], cache=small)
    left = {p for p, _, _ in cache.entries()}
    assert first in left and second not in left and len(left) == 2
    assert cache.clear() == 2 and not cache.entries()


def test_a_recipe_is_held_against_a_kept_program_too(cache: ProgramCache, graph: Graph) -> None:
    recipe = compile_graph(graph, ONE, cache=cache).recipe
    assert compile_graph(graph, ONE, recipe, cache).specialized.cached_notes is not None
    constant = max(graph.constants, key=lambda v: graph.constants[v].size)
    doubled = 2 * graph.constants[constant]
    other = dataclasses.replace(graph, constants={**graph.constants, constant: doubled})
    compile_graph(other, ONE, cache=cache)
    with pytest.raises(CompileError, match="cannot be followed"):
        compile_graph(other, ONE, recipe, cache)


def test_searches_for_faults_are_never_answered_from_the_disk() -> None:
    assert is_cached(Settings())
    for asked in (
        Settings(checked=True), Settings(stop_after=3), Settings(steps=("a",)),
        Settings(inject=("a.py",)), Settings(quick=True),
    ):  # fmt: skip
        assert not is_cached(asked)


def test_a_node_without_a_kernel_is_found_again(cache: ProgramCache) -> None:
    b = Builder()
    x = b.add(REGISTRY["Relu"](), [b.input("x", TensorType.parse("float32[3, 7]"))])
    wide = b.graph([b.add(REGISTRY["Unique"](axis=1), [x])])
    x0 = np.random.default_rng(31).standard_normal((3, 7)).astype(np.float32)
    runs = [compile_graph(wide, ONE, cache=cache) for _ in range(2)]
    assert runs[1].specialized.cached_notes is not None and runs[1].plan.on_reference
    first, second = (next(iter(exe.run({"x": x0}).values())) for exe in runs)
    assert np.array_equal(first, second)


def test_many_writers_at_once(cache: ProgramCache, graph: Graph) -> None:
    results: list[bytes] = []

    def work() -> None:
        for _ in range(3):
            exe = compile_graph(graph, ONE, cache=cache)
            results.append(exe.run(IMAGE)["probabilities"].tobytes())
            cache.clear()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 12 and len(set(results)) == 1


def test_the_environment_says_where_and_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "here"))
    monkeypatch.setenv("VERAX_CACHE_SIZE", "3M")
    assert default_cache() == ProgramCache(tmp_path / "here", 3 << 20)
    monkeypatch.setenv("VERAX_CACHE", "off")
    assert default_cache() is None
    monkeypatch.delenv("VERAX_CACHE")
    monkeypatch.delenv("VERAX_CACHE_SIZE")
    found = default_cache()
    assert found is not None and found.limit == DEFAULT_SIZE
    assert found.folder.name == "programs" and "verax" in found.folder.parts


def test_a_certificate_is_kept_with_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERAX_CACHE", str(tmp_path / "programs"))
    model = verax.load(DIGITS, shapes={"n": 2})
    first = verax.compile(model, opt_level=3, certify=True, threads=1)
    assert first.certificate is not None and first.certificate.holds
    monkeypatch.setattr("verax.certified.examine", never)
    again = verax.compile(model, opt_level=3, certify=True, threads=1)
    assert again.certificate == first.certificate
    with pytest.raises(AssertionError, match="compiled again"):
        verax.compile(model, opt_level=3, certify=True, threads=1, seed=7)


def test_another_process_finds_it(tmp_path: Path) -> None:
    code = (
        "import sys, verax\n"
        "exe = verax.compile(verax.load(sys.argv[1], shapes={'n': 1}), threads=1)\n"
        "print(exe.specialized.cached_notes is not None)\n"
    )
    env = {**os.environ, "VERAX_CACHE": "", "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    told = [
        subprocess.run(
            [sys.executable, "-c", code, str(DIGITS)],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]
    assert told == ["False", "True"]

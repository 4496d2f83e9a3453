"""Boxes that survive others are found by kernels: the very boxes that the meaning finds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verax
from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.artifacts.save import save
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised
from verax.runtime.header_values import HeaderError
from verax.runtime.program_binary import CountedStep
from verax.runtime.soundness import check_binary

F = np.float32


def boxes(random: np.random.Generator, *outer: int, wild: bool = False) -> np.ndarray:
    """Boxes that overlap often, some of them the same; if `wild`, with NaN, inf and turned ones."""
    corner = random.uniform(0, 6, (*outer, 2))
    found = np.concatenate([corner, corner + random.uniform(0, 3, (*outer, 2))], -1).astype(F)
    found[..., 5, :] = found[..., 2, :]
    found[..., 3, 2:] = found[..., 3, :2]  # without area
    if wild:
        found[..., 7, 1], found[..., 9, 2] = np.nan, np.inf
        found[..., 11, :2], found[..., 11, 2:] = found[..., 11, 2:].copy(), found[..., 11, :2]
    return found


def scored(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Many of them equal, a NaN, zeros of both signs."""
    found = np.round(random.uniform(-0.3, 1, shape), 1).astype(F)
    found[..., 4], found[..., 6], found[..., 8] = np.nan, 0.0, -0.0
    return found


def suppression(op: Any, x: np.ndarray, scores: np.ndarray, *limits: Any) -> Graph:
    b = Builder("net")
    values: list[str | None] = [
        b.input("x", TensorType.of(x)),
        b.input("s", TensorType.of(scores)),
        *(None if v is None else b.constant(np.array([v])) for v in limits),
    ]
    b.add(op, values, ["kept"])
    return b.graph(["kept"])


def native(graph: Graph, threads: int = 1) -> Executable:
    return compile(graph, Settings(opt_level=1, threads=threads, require_native=True))


@pytest.mark.checkered
@pytest.mark.parametrize("count", [13, 33, 150])
@pytest.mark.parametrize(
    "most, overlap, lowest",
    [(40, F(0.3), F(0.2)), (3, F(0.7), None), (200, None, F(-0.1)), (17, F(1), F(0.0))],
)
@pytest.mark.parametrize("centred", [False, True])
def test_non_max_suppression(
    centred: bool, most: int, overlap: F | None, lowest: F | None, count: int
) -> None:
    random = np.random.default_rng(9100 + count)
    x, scores = boxes(random, 2, count, wild=count == 33), scored(random, 2, 3, count)
    op = REGISTRY["NonMaxSuppression"](center_point_box=centred)
    graph = suppression(op, x, scores, np.int64(most), overlap, lowest)
    fed = {"x": x, "s": scores}
    wanted = promised(graph, fed)["kept"]
    for threads in (1, 2):
        exe = native(graph, threads)
        np.testing.assert_array_equal(exe.run(fed)["kept"], wanted)
    below = {"x": x, "s": np.full_like(scores, -9)}
    np.testing.assert_array_equal(exe.run(below)["kept"], promised(graph, below)["kept"])
    np.testing.assert_array_equal(exe.run(fed)["kept"], wanted)


@pytest.mark.parametrize("count", [13, 70])
@pytest.mark.parametrize(
    "attributes",
    [
        {"overlap_thresh": 0.1, "valid_thresh": -1.0},
        {"id_index": 0, "overlap_thresh": 0.3},
        {"id_index": 0, "background_id": 1, "force_suppress": True, "overlap_thresh": 0.2},
        {"topk": 7, "valid_thresh": 0.3, "center": True},
    ],
    ids=str,
)
def test_box_nms(attributes: dict[str, Any], count: int) -> None:
    random = np.random.default_rng(9300 + count)
    kinds = random.integers(-1, 3, (3, count, 1)) + random.choice([0.0, 0.25], (3, count, 1))
    kinds[:, 10] = np.nan
    kinds[:, 12] = 3e30
    parts = [kinds, scored(random, 3, count)[..., None], boxes(random, 3, count, wild=True)]
    rows = np.concatenate([*parts, random.uniform(size=(3, count, 2))], -1).astype(F)
    b = Builder("net")
    b.add(REGISTRY["BoxNMS"](**attributes), [b.input("x", TensorType.of(rows))], ["y"])
    graph = b.graph(["y"])
    with np.errstate(invalid="ignore"):
        wanted = promised(graph, {"x": rows})["y"]
    for threads in (1, 2):
        np.testing.assert_array_equal(native(graph, threads).run({"x": rows})["y"], wanted)
    assert (wanted[..., 1] > -1).any(-1).all()


def test_what_was_found_goes_on_to_other_nodes_and_into_files(tmp_path: Path) -> None:
    random = np.random.default_rng(9501)
    x, scores = boxes(random, 2, 21), scored(random, 2, 3, 21)
    b = Builder("net")
    given = [b.input("x", TensorType.of(x)), b.input("s", TensorType.of(scores))]
    limits = [b.constant(np.array([5])), b.constant(np.array([0.4], F))]
    kept = b.add(REGISTRY["NonMaxSuppression"](), [*given, *limits])
    b.add(REGISTRY["Gather"](axis=1), [kept, b.constant(np.array([2, 0]))], ["picked"])
    graph = b.graph(["picked"])
    fed = {"x": x, "s": scores}
    wanted = promised(graph, fed)["picked"]
    exe = compile(graph, Settings(opt_level=1, threads=1))
    assert not any("NonMax" in label for label in exe.plan.on_reference)
    np.testing.assert_array_equal(exe.run(fed)["picked"], wanted)
    save(exe, tmp_path / "net.vx")
    np.testing.assert_array_equal(verax.load(tmp_path / "net.vx").run(fed)["picked"], wanted)
    assert any(s.kernel == "counted" for s in exe.profile(fed, runs=1).steps)


def test_a_threshold_that_is_none_is_refused() -> None:
    random = np.random.default_rng(9502)
    x, scores = boxes(random, 1, 21), scored(random, 1, 2, 21)
    graph = suppression(REGISTRY["NonMaxSuppression"](), x, scores, np.int64(3), F(1.5))
    with pytest.raises(InputError, match="iou_threshold"):
        compile(graph, Settings(opt_level=1, threads=1)).run({"x": x, "s": scores})


@pytest.mark.parametrize(
    "part, change, why",
    [
        ("rows", {"region": "io", "offset": 0}, "step 1's rows is not the float32"),
        ("rows", {"shape": ()}, "no rows in the arena"),
        ("rows", {"shape": (1 << 40, 3)}, "outside of the arena"),
        ("count", {"shape": (2,)}, "no number in the arena"),
        ("count", {"dtype": "int32"}, "no number in the arena"),
        ("count", {"offset": 1 << 40}, "outside of the arena"),
        ("output", {"region": "arena", "name": ""}, "no value"),
        ("output", {"dtype": "int32"}, "no value of the type"),
        ("output", {"name": ""}, "needs a name"),
    ],
)
def test_a_file_cannot_say_that_something_else_was_counted(
    part: str, change: dict[str, Any], why: str
) -> None:
    random = np.random.default_rng(9503)
    x, scores = boxes(random, 1, 21), scored(random, 1, 2, 21)
    graph = suppression(REGISTRY["NonMaxSuppression"](), x, scores, np.int64(3), F(0.5))
    image = native(graph).specialized.binary
    *others, step = image.schedule
    assert isinstance(step, CountedStep)
    check_binary(image)
    changed = dataclasses.replace(
        step, **{part: dataclasses.replace(getattr(step, part), **change)}
    )
    with pytest.raises(HeaderError, match=why):
        check_binary(dataclasses.replace(image, schedule=(*others, changed)))


def test_a_count_out_of_range_reads_no_more_than_the_rows() -> None:
    random = np.random.default_rng(9504)
    x, scores = boxes(random, 1, 21), scored(random, 1, 2, 21)
    graph = suppression(REGISTRY["NonMaxSuppression"](), x, scores, np.int64(3), F(0.5))
    program = native(graph).specialized.program
    counted = program._first._schedule[-1]
    for number, length in ((-5, 0), (1 << 40, 6)):
        counted.count[0] = number
        values: dict[str, np.ndarray] = {}
        counted(values, ())
        assert values["kept"].shape == (length, 3)

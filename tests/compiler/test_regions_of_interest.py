"""Regions of interest are sampled by a kernel, with the promised bits, and checked by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from verax.base.errors import InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.reference import promised

F = np.float32
Arrays = dict[str, np.ndarray]


def given(channels: int, count: int, index: str = "int64") -> Arrays:
    random = np.random.default_rng(9700 + channels + count)
    corner = random.uniform(-6, 30, (count, 2))
    rois = np.concatenate([corner, corner + random.uniform(-3, 22, (count, 2))], -1).astype(F)
    x = random.standard_normal((3, channels, 19, 26)).astype(F)
    return {"x": x, "r": rois, "i": random.integers(0, 3, count).astype(index)}


def network(fed: Arrays, **attributes: Any) -> tuple[Graph, Executable]:
    b = Builder("net")
    names = [b.input(v, TensorType.of(a)) for v, a in fed.items()]
    b.add(REGISTRY["RoiAlign"](**attributes), names, ["y"])
    graph = b.graph(["y"])
    return graph, compile(graph, Settings(opt_level=1, threads=2, require_native=True))


@pytest.mark.parametrize("channels, count", [(1, 23), (5, 4)])
@pytest.mark.parametrize("ratio", [0, 3])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("transform", ["half_pixel", "output_half_pixel"])
def test_samples_and_bins(transform: str, mode: str, ratio: int, channels: int, count: int) -> None:
    fed = given(channels, count, "int32" if ratio else "int64")
    graph, exe = network(
        fed,
        coordinate_transformation_mode=transform,
        mode=mode,
        sampling_ratio=ratio,
        spatial_scale=0.7,
        output_height=4,
        output_width=3,
    )
    assert exe.run(fed)["y"].tobytes() == promised(graph, fed)["y"].tobytes()


@pytest.mark.parametrize(
    "name, place, value",
    [("r", (2, 1), np.nan), ("r", (1, 3), np.inf), ("r", (3, 2), 1e9), ("i", 2, 3), ("i", 0, -1)],
)
def test_what_the_meaning_refuses_the_kernel_refuses(name: str, place: Any, value: float) -> None:
    fed = given(5, 4)
    graph, exe = network(fed, output_height=2, output_width=5)
    wanted = promised(graph, fed)["y"].tobytes()
    wrong = {v: a.copy() for v, a in fed.items()}
    wrong[name][place] = value
    with pytest.raises(InputError):
        promised(graph, wrong)
    with pytest.raises(InputError):
        exe.run(wrong)
    assert exe.run(fed)["y"].tobytes() == wanted


@pytest.mark.parametrize("scale", [1.0, 0.3, 7.0])
def test_the_largest_of_bins(scale: float) -> None:
    fed = given(5, 23)
    x = fed["x"].copy()
    x[0, :, 3:9, 5:9], x[1, 2] = np.nan, -0.0
    x[1, 3] = np.where(np.indices((19, 26)).sum(0) % 7, F(-0.0), F(0.0))
    fed = {"x": x, "r": np.concatenate([fed["i"][:, None] + F(0.4), fed["r"]], 1).astype(F)}
    b = Builder("net")
    names = [b.input(v, TensorType.of(a)) for v, a in fed.items()]
    b.add(REGISTRY["MaxRoiPool"](pooled_shape=(3, 2), spatial_scale=scale), names, ["y"])
    graph = b.graph(["y"])
    exe = compile(graph, Settings(opt_level=1, threads=2, require_native=True))
    got, wanted = exe.run(fed)["y"], promised(graph, fed)["y"]
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(wanted[wanted == 0]))
    for place, value in (((2, 1), np.inf), ((1, 0), -1), ((0, 0), 3), ((4, 0), np.nan)):
        wrong = {v: a.copy() for v, a in fed.items()}
        wrong["r"][place] = value
        for run in (exe.run, lambda given: promised(graph, given)):
            with pytest.raises(InputError):
                run(wrong)

"""Mistakes people make with images are looked for in images, and nothing there ends a check."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from verax.base.errors import VeraxError
from verax.base.process.processes import SubjectError
from verax.ir.graph import Builder, Graph
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge import check
from verax.judge.harness.faults import harness_causes
from verax.judge.harness.imagelike import has_pixels, is_image
from verax.judge.harness.readings import readings
from verax.judge.protocol import Capabilities
from verax.records.verdict import Kind
from verax.reference.evaluate import evaluate

Arrays = Mapping[str, np.ndarray]
MOST = 256 << 20
"""Bytes that looking for a fault may hold here; a Resize by 255 would hold 2 GiB and more."""
PIXELS = np.random.default_rng(51).random((2, 3, 24, 18)).astype(np.float32)
SCALES = np.array([1, 1, 1.5, 2], np.float32)


def resized() -> Graph:
    """An image and the scales by which it is resized in front of a convolution, both inputs."""
    b = Builder("resized")
    x = b.input("x", TensorType.of(PIXELS))
    scales = b.input("scales", TensorType.of(SCALES))
    large = b.add(REGISTRY["Resize"](), [x, None, scales], ("large",))
    w = np.random.default_rng(52).standard_normal((5, 3, 3, 2)).astype(np.float32)
    return b.graph([b.add(REGISTRY["Conv"](), [large, b.constant(w, "w")], ("y",))])


GIVEN = {"x": PIXELS, "scales": SCALES}


class Wrong:
    """A subject that adds 3 to every answer, and can be told to fail when it is asked again."""

    name, capabilities, stored_inputs = "wrong", Capabilities(), None

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.runs = error, 0

    def run(
        self, graph: Graph, inputs: Arrays, keep: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        self.runs += 1
        if self.error is not None and self.runs > 2:
            raise self.error
        answers = evaluate(graph, {v: inputs[v] for v in graph.inputs}, work=np.float32)
        return {v: a[:, ::-1].copy() + np.float32(3) for v, a in answers.items()}

    def describe(self) -> dict[str, str]:
        return {}


def test_scales_of_a_resize_are_no_image_and_are_not_multiplied_by_255() -> None:
    graph = resized()
    assert is_image(graph, "x")
    assert not is_image(graph, "scales")
    wrong = Wrong().run(graph, GIVEN)
    tracemalloc.start()
    try:
        harness_causes(graph, GIVEN, wrong, Wrong().run)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < MOST


def test_what_is_wrong_with_the_image_is_still_found_beside_other_inputs() -> None:
    graph = resized()
    for fault, words in ((PIXELS[:, ::-1], "colors"), (PIXELS * np.float32(255), "by 255")):
        given = evaluate(graph, {**GIVEN, "x": np.ascontiguousarray(fault)}, work=np.float32)
        found = harness_causes(graph, GIVEN, given)
        assert words in found[0].words


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("float32[2, 3, 24, 18]", True),
        ("float16[1, 24, 18, 4]", True),
        ("uint8[24, 18, 3]", True),
        ("float32[1, 24, 18]", True),
        ("float32[n, 3, h, w]", True),
        ("float32[4]", False),
        ("float32[5, 3]", False),
        ("int64[1, 3, 24, 18]", False),
        ("float64[2, 7, 24, 18]", False),
        ("float32[2, 3, 24, 2]", False),
        ("float32[1, 1, 3, 24, 18]", False),
    ],
)
def test_pixels_are_known_by_type_and_shape(type_: str, expected: bool) -> None:
    assert has_pixels(TensorType.parse(type_)) is expected


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (("Transpose", "Mul"), True),
        (("Cast", "Add"), True),
        (("Softmax", "Mul"), False),
        (("Shape", "Cast"), False),
    ],
)
def test_an_image_reaches_what_looks_at_pixels(kinds: tuple[str, ...], expected: bool) -> None:
    b = Builder("net")
    value = b.input("x", TensorType.parse("float32[2, 3, 8, 7]"))
    for kind in kinds:
        fields = {"to": "float32"} if kind == "Cast" else {}
        others = [b.constant(np.float32(2))] if kind in ("Mul", "Add") else []
        value = b.add(REGISTRY[kind](**fields), [value, *others])
    if b.types[value].rank == 4:
        w = np.ones((2, b.types[value].dims[1], 1, 1), np.float32)
        value = b.add(REGISTRY["Conv"](), [value, b.constant(w)])
    assert is_image(b.graph([value]), "x") is expected


def test_an_image_that_only_gives_the_weights_is_not_looked_at_as_one() -> None:
    b = Builder("net")
    x = b.input("x", TensorType.parse("float32[2, 3, 8, 7]"))
    w = b.input("w", TensorType.parse("float32[4, 3, 5, 5]"))
    graph = b.graph([b.add(REGISTRY["Conv"](), [x, w])])
    assert is_image(graph, "x")
    assert not is_image(graph, "w")


def test_readings_without_images_move_no_axes_and_no_colours() -> None:
    shape = (2, 3, 8, 8)
    names = {r.name for r in readings(shape, image=False)}
    assert names < {r.name for r in readings(shape)}
    assert "batch reversed" in names
    assert names.isdisjoint({"NCHW and NHWC", "RGB and BGR", "upside down", "mirrored"})


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("no more"),
        VeraxError("refused"),
        SubjectError("the subject gave no answer in 1 s and was stopped"),
        ValueError("shapes"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_nothing_that_happens_to_a_rival_ends_a_check(error: Exception) -> None:
    """From the third run on the subject fails: those that try what was found out."""
    subject = Wrong(error)
    verdict = check(resized(), subject, GIVEN, twice=True)
    assert verdict.kind is Kind.mistake


def test_a_rival_that_runs_out_of_memory_explains_nothing_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    graph = resized()
    wrong = Wrong().run(graph, GIVEN)
    monkeypatch.setattr("verax.judge.harness.faults.evaluate", fail)
    assert harness_causes(graph, GIVEN, wrong) == ()
    assert check(graph, Wrong(), GIVEN).kind is Kind.mistake

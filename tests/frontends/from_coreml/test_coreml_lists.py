"""Loops over lists of ML programs (make_lists.py), against the same recurrence in NumPy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from coreml_models import unpacked
from coreml_operations import Operation, program

import verax
from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.coreml import load_coreml
from verax.frontends.model import Model
from verax.reference.evaluate import evaluate

STEPS, BATCH, CHANNELS, UNITS = 6, 3, 5, 4


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name("lists.npz")) as file:
        return {key: file[key] for key in file.files}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("lists")
    return {name: verax.load(unpacked(folder, stored(), name)) for name in EXPECTED}


def drawn() -> dict[str, np.ndarray]:
    random = np.random.default_rng(31)
    return {
        "x": random.standard_normal((STEPS, BATCH, CHANNELS)).astype(np.float32),
        "h": random.standard_normal((BATCH, UNITS)).astype(np.float32),
    }


def states(x: np.ndarray, h: np.ndarray) -> np.ndarray:
    """The states after each step, in float64."""
    w, u, b = (stored()[k].astype(np.float64) for k in "wub")
    made = []
    for row in x.astype(np.float64):
        h = np.tanh(row @ w.T + b + h @ u.T)
        made.append(h)
    return np.stack(made)


EXPECTED = {
    "recurrent": lambda x, h: (states(x, h), states(x, h)[-1]),
    "growing": lambda x, h: (STEPS * states(x[::-1], h)[[4, 1, 2]], states(x[::-1], h)[-1]),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_loop_over_lists_gives_the_recurrence(name: str, models: dict[str, Model]) -> None:
    model, inputs = models[name], drawn()
    answers = evaluate(model.graph, inputs)
    for mine, theirs in zip((answers["states"], answers["last"]), EXPECTED[name](**inputs)):
        assert mine.shape == theirs.shape
        assert np.abs(mine - theirs).max() < 1e-12 * np.abs(theirs).max()
    assert "Loop" not in {n.op.kind for n in model.graph.nodes}


def test_a_compiled_loop_over_lists_is_within_rounding(models: dict[str, Model]) -> None:
    verdict = verax.check(models["growing"].graph, "verax:O1", drawn())
    assert verdict.kind in ("identical", "rounding")


def of(*operations: Operation) -> Model:
    """A program on x, float32 of 2 x 3, that makes a list `l` first."""
    sizes = {"init_length": np.int32(2), "dynamic_length": np.bool_(False)}
    first = Operation("make_list", sizes, {"l": "float32"})
    return load_coreml(
        program([first, *operations], {"x": ("float32", (2, 3))}).SerializeToString()
    )


def written(index: object, name: str = "m") -> Operation:
    return Operation("list_write", {"ls": "%l", "index": index, "value": "%x"}, {name: "float32"})


def gathered(source: str, indices: object) -> Operation:
    return Operation("list_gather", {"ls": source, "indices": indices}, {"y": "float32"})


def test_a_constant_may_be_put_into_a_list() -> None:
    other = np.float32([[9, 8, 7], [6, 5, 4]])
    put = {"ls": "%m", "index": np.int32(0), "value": other}
    second = Operation("list_write", put, {"n": "float32"})
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    graph = of(written(np.int32(1)), second, gathered("%n", np.int32([1, 0, 1]))).graph
    (found,) = evaluate(graph, {"x": x}).values()
    assert np.array_equal(found, np.stack([x, other, x]))


@pytest.mark.parametrize(
    ("operations", "error", "text"),
    [
        ([written(np.int32(2)), gathered("%m", np.int32([0]))], ModelError, "position 2 of a list"),
        ([gathered("%l", np.int32([1]))], UnsupportedError, "nothing was put at position 1"),
        ([gathered("%x", np.int32([1]))], ModelError, "no list of tensors"),
        ([written("%x"), gathered("%m", np.int32([0]))], UnsupportedError, "at run time"),
        ([written(np.float32(0.5)), gathered("%m", np.int32([0]))], ModelError, "integers"),
        ([Operation("relu", {"x": "%l"}, {"y": "float32"})], UnsupportedError, "takes a list"),
    ],
)
def test_what_lists_cannot_do_is_refused_by_name(
    operations: list[Operation], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        of(*operations)


def test_a_list_is_no_output() -> None:
    with pytest.raises(UnsupportedError, match="the output is a list"):
        of(written(np.int32(0)))

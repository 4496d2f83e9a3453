"""IF and WHILE against LiteRT's answers (make_control.py)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.frontends.from_tflite.tflite_writer import Op, T, const, model

import verax
from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.tflite import load_tflite
from verax.frontends.tflite.reader import CONTROL, SubgraphReader

STORED = Path(__file__).with_name("control.npz")
KEPT = {"choice": {"If"}, "until": {"Loop"}, "counted": set(), "nested": {"Loop"}}
"""What only running decides."""


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(STORED) as file:
        return dict(file)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_it_gives_what_litert_gives(name: str) -> None:
    found = load_tflite(stored()[name].tobytes())
    assert {n.op.kind for n in found.graph.nodes} & {"If", "Loop"} == KEPT[name]
    exe = verax.compile(found, opt_level=1, threads=1)
    assert not exe.plan.on_reference
    x = stored()["x"]
    (given,) = found.inputs
    for number, array in enumerate((x, -x, x * np.float32(0.1) + np.float32(0.2))):
        right = stored()[f"{name}.answer{number}"]
        for made in (exe.run({given: array}), verax.reference(found, {given: array})):
            (answer,) = made.values()
            np.testing.assert_allclose(answer, right, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(("depth", "graphs"), [(0, 1), (99, None)])
def test_a_subgraph_that_is_not_there_is_damage(
    depth: int, graphs: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A branch that runs what the file lacks, or itself without end."""
    assert set(CONTROL) == {"IF", "WHILE", "CALL", "CALL_ONCE"}

    def made(self: SubgraphReader, given: list, codes: list, buffers: list, level: int = 0) -> None:
        self.graphs = given[:graphs]
        self.codes, self.buffers, self.depth = codes, buffers, depth + level

    monkeypatch.setattr(SubgraphReader, "__init__", made)
    with pytest.raises(ModelError, match="runs the subgraph"):
        load_tflite(stored()["choice"].tobytes())


def test_a_branch_without_results_is_damage() -> None:
    part = ([T((3, 5), name="a"), T((3, 5), name="b")], [Op("EXP", [0], [1])], [0], [])
    tensors = [T((1,), "bool", name="p"), T((3, 5), name="x"), T((3, 5), name="y")]
    options = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    ops = [Op("IF", [0, 1], [], options), Op("EXP", [1], [2])]
    data = model(tensors, ops, [0, 1], [2], more=[part, part])
    with pytest.raises(ModelError, match="gives no results"):
        load_tflite(data)


def calling(kind: str, index: int = 1) -> bytes:
    """y = (exp x) * w, the product in a graph that is called twice; or Exp behind CALL_ONCE."""
    w = const(np.linspace(0.5, 1.5, 5).astype(np.float32))
    product = Op("MUL", [0, 1], [2])
    part = ([T((3, 5), name="a"), w, T((3, 5), name="b")], [product], [0], [2])
    tensors = [T((3, 5), name=n) for n in ("x", "h", "once", "y")]
    if kind == "CALL_ONCE":
        ops = [Op(kind, [], [], {"init_subgraph_index": index}), Op("EXP", [0], [3])]
    else:
        calls = [Op(kind, [i], [i + 1], {"subgraph": index}) for i in (1, 2)]
        ops = [Op("EXP", [0], [1]), *calls]
    return model(tensors, ops, [0], [3], more=[part])


@pytest.mark.parametrize("kind", ["CALL", "CALL_ONCE"])
def test_a_graph_that_is_called_stands_where_it_is_called(kind: str) -> None:
    found = load_tflite(calling(kind))
    x = stored()["x"]
    factor = np.linspace(0.5, 1.5, 5) ** 2 if kind == "CALL" else 1.0
    (made,) = verax.compile(found, opt_level=1, threads=1).run({"x": x}).values()
    np.testing.assert_allclose(made, np.exp(x) * factor, rtol=1e-6)
    assert [n.op.kind for n in found.graph.nodes].count("Mul") == 2 * (kind == "CALL")


@pytest.mark.parametrize("kind", ["CALL", "CALL_ONCE"])
def test_a_call_of_no_graph_is_damage(kind: str) -> None:
    for index in (0, 2):
        with pytest.raises(ModelError, match=f"{kind} runs the subgraph {index}"):
            load_tflite(calling(kind, index))


def test_what_fills_variables_once_is_refused() -> None:
    fills = ([T((), name="r"), T((3, 5), name="v")], [Op("ASSIGN_VARIABLE", [0, 1], [])], [], [])
    ops = [Op("CALL_ONCE", [], [], {"init_subgraph_index": 1}), Op("EXP", [0], [1])]
    data = model([T((3, 5), name="x"), T((3, 5), name="y")], ops, [0], [1], more=[fills])
    with pytest.raises(UnsupportedError, match="ASSIGN_VARIABLE once"):
        load_tflite(data)

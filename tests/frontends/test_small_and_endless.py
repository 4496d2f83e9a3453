"""Small files that ask for much work: it grows as the file does, or they are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper

import verax
from verax.base.errors import GraphError, UnsupportedError
from verax.frontends.common import subgraphs
from verax.ir.dim import DimLike, ceildiv, floordiv, maximum, symbol
from verax.ir.dim_limits import MAX_WRITTEN
from verax.ops.control.control import If


def _graph(name: str, nodes: list, result: str, inputs: tuple = ()) -> GraphProto:  # type: ignore[type-arg]
    y = helper.make_tensor_value_info(result, TensorProto.FLOAT, [2, 3])
    return helper.make_graph(nodes, name, list(inputs), [y])


def nested(levels: int) -> bytes:
    """If within the branch of an If, so many times."""

    def branch(level: int) -> GraphProto:
        if not level:
            return _graph("end", [helper.make_node("Abs", ["x"], ["y0"])], "y0")
        other = _graph(f"else{level}", [helper.make_node("Neg", ["x"], [f"n{level}"])], f"n{level}")
        node = helper.make_node(
            "If", ["c"], [f"y{level}"], then_branch=branch(level - 1), else_branch=other
        )
        return _graph(f"then{level}", [node], f"y{level}")

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    outer = _graph("net", list(branch(levels).node), f"y{levels}", (x, c))
    model: ModelProto = helper.make_model(outer, opset_imports=[helper.make_opsetid("", 18)])
    return model.SerializeToString()


def test_branches_within_branches_are_inferred_once_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0
    inferred = If._inferred

    def counted(self: If, ctx: object) -> object:
        nonlocal calls
        calls += 1
        return inferred(self, ctx)  # type: ignore[arg-type]

    monkeypatch.setattr(If, "_inferred", counted)
    took = {}
    for levels in (3, 6, 12):
        calls = 0
        verax.load(nested(levels))
        took[levels] = calls
    # Converting a branch looks through those inside of it: a square, and no power of two.
    assert took[6] <= 4 * took[3] and took[12] <= 4 * took[6], took


def test_branches_within_branches_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a text in a text every quote takes twice as much."""
    assert subgraphs.LONGEST <= 1 << 23
    monkeypatch.setattr(subgraphs, "LONGEST", 1 << 17)
    verax.load(nested(10))
    with pytest.raises(UnsupportedError, match="too deep in each other"):
        verax.load(nested(20))


N, H = symbol("n"), symbol("h")
GROWING: dict[str, Callable[[DimLike], DimLike]] = {
    "floor": lambda d: floordiv(d * d + d, 7),
    "ceiling": lambda d: ceildiv(H * d - d, d + 3),
    "maximum": lambda d: maximum(d - 3, floordiv(d, 2)),
}


@pytest.mark.parametrize("how", GROWING)
def test_sizes_that_double_with_every_step_are_refused(how: str) -> None:
    size: DimLike = N
    with pytest.raises(GraphError, match="absurdly long"):
        for _ in range(40):
            size = GROWING[how](size)
            assert len(str(size)) < 16 * MAX_WRITTEN


def test_sizes_of_deep_networks_are_not() -> None:
    """Fifty layers of a stride or a window each; and the padding of windows, four times."""
    size: DimLike = H
    for _ in range(50):
        size = floordiv(size + 2 * 1 - 3, 2) + 1
    assert len(str(size)) < 2000
    for _ in range(4):
        size = size + floordiv(0 - size, 7) * -7 - size
    assert str(size)

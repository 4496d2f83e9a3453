"""A language model's embedding in 4 bits that is its last product as well, as GenAI writes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.compiler.test_bits import bits

import verax
from verax.frontends.onnx import load_onnx
from verax.reference import promised

WORDS, WIDTH, SIZE = 37, 96, 32
BLOCKS = WIDTH // SIZE


def tied(level: int, points: bool = True) -> onnx.ModelProto:
    """ids [batch, sequence] to scores of words; the table reaches the lookup by Reshape."""
    r = np.random.default_rng(3)
    table = r.integers(0, 256, (WORDS, BLOCKS, SIZE // 2)).astype(np.uint8)
    held = {
        "q": table,
        "s": r.uniform(0.01, 0.1, WORDS * BLOCKS).astype(np.float32),
        "z": r.integers(0, 256, WORDS * 2).astype(np.uint8),
    }
    shapes = {"q": (WORDS, WIDTH // 2), "s": (WORDS, BLOCKS), "z": (WORDS, 2)}
    if not points:
        del held["z"], shapes["z"]
    held |= {f"{n}_shape": np.array(shape, np.int64) for n, shape in shapes.items()}
    nodes = [helper.make_node("Reshape", [n, f"{n}_shape"], [f"{n}_rows"]) for n in shapes]
    inputs = ["q_rows", "ids", "s_rows", *["z_rows"] * points]
    nodes += [
        helper.make_node("GatherBlockQuantized", inputs, ["e"], domain="com.microsoft",
                         bits=4, block_size=SIZE, gather_axis=0, quantize_axis=1),
        helper.make_node("MatMulNBits", ["e", "q", "s", *["z"] * points], ["y"],
                         domain="com.microsoft", K=WIDTH, N=WORDS, bits=4, block_size=SIZE,
                         accuracy_level=level),
    ]  # fmt: skip
    ends = [("ids", 7, ["batch", "sequence"]), ("y", 1, ["batch", "sequence", WORDS])]
    x, y = (helper.make_tensor_value_info(*end) for end in ends)
    constants = [numpy_helper.from_array(a, n) for n, a in held.items()]
    graph = helper.make_graph(nodes, "tied", [x], [y], constants)
    sets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


@pytest.mark.parametrize("points", [True, False])
@pytest.mark.parametrize("level", [0, 4])
def test_onnx_runtime_agrees(level: int, points: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "tied.onnx"
    onnx.save(tied(level, points), path)
    verdict = verax.check(str(path), "onnxruntime")
    assert verdict.kind in ("identical", "rounding"), str(verdict)


def test_one_program_serves_all_sizes() -> None:
    model = load_onnx(tied(4))
    exe = verax.compile(model, threads=1)
    r = np.random.default_rng(8)
    for shape in ((1, 1), (2, 3), (1, 7), (3, 5), (2, 17)):
        fed = {"ids": r.integers(0, WORDS, shape)}
        (y,) = exe.run(fed).values()
        (expected,) = promised(exe.specialized.graph, fed).values()
        assert bits(y) == bits(expected) and not exe.plan.on_reference
    assert "d0*d1" in str(exe.plan) and "int8 by 4 bits" in str(exe.plan)


def test_scales_that_nodes_compute_are_refused() -> None:
    model = tied(0)
    model.graph.node.insert(0, helper.make_node("Abs", ["s"], ["positive"]))
    model.graph.node[2].input[0] = "positive"
    with pytest.raises(verax.VeraxError, match="the scales are computed"):
        load_onnx(model)

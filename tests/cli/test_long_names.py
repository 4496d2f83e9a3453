"""Names of nodes are never cut: of sixty letters and more, the first forty the same, on a terminal
of 80 columns and in a pipe, by every command that names nodes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import verax
from verax.cli.main import main

SHARED = "encoder/stage_2/block_11/attention_output"
NAMES = [f"{SHARED}/{part}_of_the_residual_branch" for part in ("conv", "gate", "mean", "flat")]
WEIGHTS = np.random.default_rng(61).standard_normal((5, 2, 3, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of which values are called as their nodes, and values of which one is wrong."""
    kinds = ("Conv", "Relu", "GlobalAveragePool", "Flatten")
    ends = ["x", *NAMES]
    nodes = [
        helper.make_node(kind, [ends[i], *(["w"] if not i else [])], [ends[i + 1]], NAMES[i])
        for i, kind in enumerate(kinds)
    ]
    graph = helper.make_graph(
        nodes,
        "long",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 2, 9, 7])],
        [helper.make_tensor_value_info(NAMES[-1], TensorProto.FLOAT, [3, 5])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    opsets = [helper.make_opsetid("", 17)]
    folder = tmp_path_factory.mktemp("long")
    path = folder / "long.onnx"
    path.write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    x = {"x": np.random.default_rng(62).standard_normal((3, 2, 9, 7)).astype(np.float32)}
    values = verax.reference(path, x, keep="all")
    found = {n: values[n].astype(np.float32) for n in NAMES}
    found[NAMES[0]][1, 3] *= np.float32(1.5)
    np.savez(folder / "wrong.npz", x=x["x"], **found)
    return path


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "inspect": lambda net: ["inspect", str(net), "--ledger", "--graph"],
    "check": lambda net: ["check", str(net), str(net.parent / "wrong.npz"), "-v"],
    "bisect": lambda net: ["bisect", str(net), str(net.parent / "wrong.npz")],
    "run": lambda net: ["run", str(net)],
    "compile": lambda net: ["compile", str(net), "-o", str(net.parent / "n.vx"), "--plan"],
    "profile": lambda net: ["bench", str(net), "--profile", "--rounds", "1"],
    "passes": lambda net: ["passes", "--model", str(net)],
    "alignment": lambda net: ["check", str(net), str(net), "-v"],
}


@pytest.mark.parametrize("columns", ["80", ""])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_name_is_cut(
    command: str,
    columns: str,
    net: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "argv", ["verax", *COMMANDS[command](net)])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert leaving.value.code == (1 if command in ("check", "bisect") else 0)
    text = capsys.readouterr().out
    if command != "passes":  # which names nodes where it refused to rewrite one
        assert SHARED in text
    assert "…" not in text
    # What a cell or a sentence breaks goes on behind the table's line or in the next line.
    whole = re.sub(r"\s*│\s*\n\s*│\s*|\n\s*", "", text) if columns else text
    cut = [
        m
        for m in re.finditer(re.escape(SHARED), whole)
        if not whole.startswith(tuple(NAMES), m.start())
    ]
    assert not cut, [whole[m.start() : m.start() + 100] for m in cut[:3]]

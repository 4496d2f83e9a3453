"""Scatters write into their data where nothing else reads these, and into a copy where something
does."""

from __future__ import annotations

import numpy as np
import pytest

from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.ir.text import parse_graph
from verax.reference import promised

HEAD = """graph "scatters"
input %x: float32[5, 7]
input %updates: float32[2, 7]
input %rows: int64[2, 1]
const %wide: int64[1] = [35]
const %narrow: int64[2] = [5, 7]
"""
WRITTEN = "%y: float32[5, 7] = ScatterND()(%data, %rows, %updates)\noutput %y\n"
DATA = "%data: float32[5, 7] = Neg()(%x)\n"
OTHERS = {
    "alone": (DATA + WRITTEN, 0),
    "behind": (
        DATA + WRITTEN.replace("output %y\n", "%z: float32[5, 7] = Abs()(%y)\noutput %z\n"),
        0,
    ),
    "read before": (DATA + "%s: float32[5, 7] = Exp()(%data)\n" + WRITTEN + "output %s\n", 1),
    "read after": (DATA + WRITTEN + "%s: float32[5, 7] = Exp()(%data)\noutput %s\n", 1),
    "output": (DATA + WRITTEN + "output %data\n", 1),
    "input": (WRITTEN.replace("%data", "%x"), 1),
    "another shape of what is read": (
        "%flat: float32[35] = Neg()(%flat.x)\n%data: float32[5, 7] = Reshape()(%flat, %narrow)\n"
        + WRITTEN
        + "%s: float32[35] = Exp()(%flat)\noutput %s\n",
        1,
    ),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("level", [0, 1])
def test_data_are_copied_where_they_are_needed_otherwise(name: str, level: int) -> None:
    body, copies = OTHERS[name]
    flat = "%flat.x: float32[35] = Reshape()(%x, %wide)\n" if "flat" in body else ""
    graph = parse_graph(HEAD + flat + body)
    random = np.random.default_rng(52)
    given = {v: random.standard_normal(graph.types[v].shape).astype("f4") for v in ("x", "updates")}
    given["rows"] = np.array([[3], [-5]])
    exe = compile(graph, Settings(threads=1, opt_level=level))
    want, kept = promised(graph, given), given["x"].copy()
    for _ in range(2):
        found = exe.run(given)
        for value in graph.outputs:
            np.testing.assert_array_equal(found[value], want[value])
        np.testing.assert_array_equal(given["x"], kept)
    assert str(exe.plan).count(": data") == copies

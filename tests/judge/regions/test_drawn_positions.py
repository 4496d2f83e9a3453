"""Positions that are drawn as inputs lie within what they index, however they get there."""

from __future__ import annotations

import numpy as np
import pytest

import verax.ops  # noqa: F401  (registers the operators)
from verax.base.errors import UsageError
from verax.ir.printer import content_hash
from verax.ir.text import parse_graph
from verax.judge import draw_inputs

WRITE = """graph "write"
input %x: float32[1, 4]
input %row: int32[1]
state %table: float32[3, 4] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0]
const %last: int64[1] = [1]
%wide: int64[1] = Cast(to='int64')(%row)
%places: int64[1, 1] = Unsqueeze()(%wide, %last)
%table.next: float32[3, 4] = ScatterND()(%table, %places, %x)
output %table.next -> %table
"""
READ = """graph "read"
input %table: float32[7, 5, 2, 4]
input %rows: int64[6, 2]
%y: float32[6, 2, 4] = GatherND()(%table, %rows)
output %y
"""


@pytest.mark.parametrize(("text", "name", "size"), [(WRITE, "row", 3), (READ, "rows", 5)])
def test_they_are_below_the_smallest_indexed_axis(text: str, name: str, size: int) -> None:
    graph = parse_graph(text)
    drawn = [draw_inputs(graph, seed) for seed in range(40)]
    assert {int(v) for arrays, _ in drawn for v in arrays[name].ravel()} == set(range(size))
    assert all(f"integers below {size}" in words[name] for _, words in drawn)


MASK = """graph "mask"
input %attention_mask: int64[3, 6]
input %unmasked: int64[3, 6]
%y: int64[3, 6] = Mul()(%attention_mask, %unmasked)
output %y
"""


@pytest.mark.parametrize("seed", range(20))
def test_masks_are_ones_and_then_zeros(seed: int) -> None:
    """As a tokenizer pads: other integers mean something else to everybody who reads a mask."""
    arrays, words = draw_inputs(parse_graph(MASK), seed)
    mask = arrays["attention_mask"]
    assert set(mask.ravel().tolist()) == {0, 1}
    assert (mask[:, 0] == 1).all() and (mask[0, -1] == 0) and (np.diff(mask, axis=1) <= 0).all()
    assert "ones, then zeros" in words["attention_mask"]
    assert "integers below" in words["unmasked"]


@pytest.mark.parametrize("shape", ["1, 1", "2, 0", "0, 4"])
def test_masks_of_any_size(shape: str) -> None:
    text = MASK.replace("3, 6", shape)
    assert (draw_inputs(parse_graph(text), 1)[0]["attention_mask"] <= 1).all()


LENGTHS = """graph "lengths"
input %x: float32[steps, 4, 2]
input %lengths: int32[4]
const %w: float32[1, 3, 2] = [0.5, 0.25, 0.5, 0.25, 0.5, 0.25]
const %r: float32[1, 3, 3] = [0.5, 0.25, 0.5, 0.25, 0.5, 0.25, 0.5, 0.25, 0.5]
%y: float32[steps, 1, 4, 3], %h: float32[1, 4, 3] = RNN()(%x, %w, %r, _, %lengths)
output %y
"""


def test_lengths_lie_within_the_sequence() -> None:
    graph = parse_graph(LENGTHS)
    drawn = [draw_inputs(graph, seed, {"steps": 3})[0]["lengths"] for seed in range(40)]
    assert {int(v) for array in drawn for v in array} == {0, 1, 2, 3}


def test_state_is_not_drawn() -> None:
    graph = parse_graph(WRITE)
    arrays, words = draw_inputs(graph, 3)
    assert arrays["table"].tobytes() == graph.initial["table"].tobytes()
    assert words["table"] == "the state's initial value"


BYTES = """graph "bytes"
input %x: {kind}[{shape}]
input %who: int8[5]
const %z: {kind}[] = [3]
const %w: int8[2, 3, 1, 1] = [1, -5, 3, 20, 7, 15]
const %table: float32[6, 2] = sha256:large
%moved: {kind}[2, 3, 9, 11] = {move}(%x)
%y: int32[2, 2, 9, 11] = ConvInteger()(%moved, %w, %z)
%rows: float32[5, 2] = Gather(axis=0)(%table, %who)
output %y
output %rows
"""


@pytest.mark.parametrize("kind", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("shape", "move"),
    [("2, 3, 9, 11", "Identity()"), ("2, 9, 11, 3", "Transpose(perm=(0, 3, 1, 2))")],
)
def test_bytes_that_are_amounts_have_their_whole_range(kind: str, shape: str, move: str) -> None:
    """Below 10 a quantised network sees next to nothing; an index stays below its table's size."""
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    text = BYTES.format(kind=kind, shape=shape, move=move)
    graph = parse_graph(text.replace("large", content_hash(table)), {"table": table})
    arrays, words = draw_inputs(graph, 41)
    info = np.iinfo(kind)
    assert arrays["x"].dtype == kind and arrays["x"].min() == info.min
    assert arrays["x"].max() == info.max and len(np.unique(arrays["x"])) > 100
    assert "smooth random image" in words["x"]
    assert arrays["who"].max() < 6 and "integers below 6" in words["who"]


def test_bytes_that_are_no_image_are_drawn_evenly() -> None:
    text = BYTES.format(kind="int8", shape="594", move="Reshape(shape=(2, 3, 9, 11))")
    text = text.replace("Reshape(shape=(2, 3, 9, 11))(%x)", "Reshape()(%x, %sizes)")
    text = text.replace("const %z", "const %sizes: int64[4] = [2, 3, 9, 11]\nconst %z")
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    graph = parse_graph(text.replace("large", content_hash(table)), {"table": table})
    arrays, words = draw_inputs(graph, 42)
    assert words["x"].endswith("integers from -128 to 127")
    assert arrays["x"].min() < -120 and arrays["x"].max() > 120


def test_a_size_of_no_input_is_refused() -> None:
    """It is a slip of the pen: drawn in silence, the network would be judged at another size."""
    graph = parse_graph(
        'graph "open"\ninput %x: float32[n, 3]\n%y: float32[n, 3] = Relu()(%x)\noutput %y\n'
    )
    with pytest.raises(UsageError, match="no input has a size 'm'") as refused:
        draw_inputs(graph, 2, {"m": 5})
    assert refused.value.next_step == "open are n" and refused.value.exit_code == 2

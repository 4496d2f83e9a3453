"""`while_loop` and `cond` of ML programs: against the PyTorch modules that they came from
(make_loops.py) and, for what coremltools does not write, against loops in NumPy."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from coreml_models import unpacked
from coreml_operations import Operation, bind, program, type_

import verax
from verax.base.errors import ModelError, UnsupportedError
from verax.frontends.coreml import load_coreml
from verax.reference.evaluate import evaluate

SETS = [("decoder", 0), ("decoder", 1), ("decoder", 2), ("counted", 0), ("chosen", 0),
        ("chosen", 1), ("nested", 0), ("nested", 1), ("nested", 2)]  # fmt: skip


@cache
def stored():
    with np.load(Path(__file__).with_name("loops.npz")) as file:
        return {key: file[key] for key in file.files}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Every stored program, loaded once."""
    folder = tmp_path_factory.mktemp("loops")
    return {name: verax.load(unpacked(folder, stored(), name)) for name in dict(SETS)}


def arrays(name, k, side):
    prefix = f"{name}/{k}/{side}:"
    return {key[len(prefix) :]: v for key, v in stored().items() if key.startswith(prefix)}


@pytest.mark.parametrize(("name", "k"), SETS)
def test_a_program_with_control_flow_gives_what_its_module_gave(name, k, models):
    graph, given = models[name].graph, arrays(name, k, "in")
    found = list(evaluate(graph, given).values())
    want = list(arrays(name, k, "out").values())
    assert len(found) == len(want)
    for mine, theirs in zip(found, want):
        assert mine.shape == theirs.shape
        assert np.abs(mine - theirs).max() <= 1e-5 * max(1, np.abs(theirs).max())


@pytest.mark.parametrize("name", ["decoder", "nested"])
def test_a_compiled_loop_gives_its_meaning(name, models):
    verdict = verax.check(models[name].graph, "verax:O1", arrays(name, 1, "in"))
    assert verdict.kind in ("identical", "rounding")


def test_what_running_decides_is_a_loop_and_what_is_counted_is_written_out(models):
    kinds = {name: [type(n.op).__name__ for n in m.graph.nodes] for name, m in models.items()}
    assert "Loop" in kinds["decoder"] and "Loop" in kinds["nested"] and "If" in kinds["chosen"]
    assert not {"Loop", "If"} & set(kinds["counted"])


# Programs that are written by hand


def blocks_of(model, index=-1):
    """The block of the program, and the operation there that is to hold blocks."""
    function = model.mlProgram.functions["main"]
    block = function.block_specializations[function.opset]
    return block, block.operations[index]


def add_block(operation, inputs, operations, outputs, tag):
    """A block of an operation, its values of float32 unless said."""
    block = operation.blocks.add()
    for name, (dtype, shape) in inputs.items():
        given = block.inputs.add()
        given.name = name
        type_(given.type, dtype, shape)
    for i, inner in enumerate(operations):
        made = block.operations.add()
        made.type = inner.kind
        for name, content in inner.arguments.items():
            bind(block, made, name, content, f"{tag}_{i}")
        for name, dtype in inner.outputs.items():
            output = made.outputs.add()
            output.name = name
            type_(output.type, dtype, None)
    block.outputs.extend(outputs)


def halving(condition="%small"):
    """While the sum of v is above 1: v = v / 2 + w, n = n + 1, u stays, where w is of outside.

    The blocks call their inputs alike and define one name both, as coremltools writes them.
    """
    steps = [
        Operation("mul", {"x": "%x", "y": np.float32(0.125)}, {"w": "float32"}),
        Operation(
            "while_loop",
            {"loop_vars": ["%x", np.int32(0), "%x"]},
            {"v1": "float32", "n1": "int32", "u1": "float32"},
        ),
    ]
    model = program(steps, {"x": ("float32", (2, 3))}, 7)
    _, loop = blocks_of(model)
    formal = {"v": ("float32", (2, 3)), "n": ("int32", ()), "u": ("float32", (2, 3))}
    test = [
        Operation(
            "reduce_sum",
            {"x": "%v", "axes": np.int32([0, 1]), "keep_dims": np.bool_(False)},
            {"t": "float32"},
        ),
        Operation("greater", {"x": "%t", "y": np.float32(1)}, {"go": "bool"}),
    ]
    body = [
        Operation("mul", {"x": "%v", "y": np.float32(0.5)}, {"t": "float32"}),
        Operation("sub", {"x": "%t", "y": "%w"}, {"v2": "float32"}),
        Operation("add", {"x": "%n", "y": np.int32(1)}, {"n2": "int32"}),
    ]
    add_block(loop, formal, test, ["go"], "test")
    add_block(loop, formal, body, ["v2", "n2", "u"], "body")
    return model


@pytest.mark.parametrize("size", [0.01, 1.0, 40.0])
def test_a_loop_reads_what_lies_outside_and_hands_on_what_stays(size):
    x = size * np.float32([[1, 2, 3], [4, 5, 7]])
    graph = load_coreml(halving().SerializeToString()).graph
    v, n = x.astype(np.float64), 0
    while v.sum() > 1:
        v, n = v / 2 - 0.125 * x.astype(np.float64), n + 1
    made = list(evaluate(graph, {"x": x}).values())
    assert np.allclose(made[0], v, rtol=1e-6) and int(made[1]) == n
    assert np.array_equal(made[2], x)
    assert made[1].dtype == np.int32 and (n > 0) == (size > 0.01)


def branch(first="a", second="b"):
    """2 x where p, else a constant of the block."""
    steps = [
        Operation("greater", {"x": "%p", "y": np.float32(0)}, {"is": "bool"}),
        Operation("cond", {"pred": "%is"}, {"y": "float32"}),
    ]
    model = program(steps, {"x": ("float32", (2, 3)), "p": ("float32", ())}, 7)
    _, choice = blocks_of(model)
    double = Operation("mul", {"x": "%x", "y": np.float32(2)}, {"a": "float32"})
    add_block(choice, {}, [double], [first], "then")
    add_block(choice, {}, [], [second], "else")
    constant = choice.blocks[1].operations.add()
    constant.type = "const"
    output = constant.outputs.add()
    output.name = "b"
    type_(output.type, "float32", (2, 3))
    bind_value(constant, np.float32([[1, 2, 3], [4, 5, 6]]))
    return model


def bind_value(operation, array):
    content = operation.attributes["val"]
    type_(content.type, "float32", array.shape)
    content.immediateValue.tensor.floats.values.extend(array.ravel().tolist())


@pytest.mark.parametrize("p", [1.0, -1.0])
def test_a_branch_may_give_a_constant(p):
    x = np.float32([[3, 1, 4], [1, 5, 9]])
    graph = load_coreml(branch().SerializeToString()).graph
    (found,) = evaluate(graph, {"x": x, "p": np.float32(p)}).values()
    want = 2 * x if p > 0 else np.float32([[1, 2, 3], [4, 5, 6]])
    assert np.array_equal(found, want)


def broken(change):
    model = halving()
    change(blocks_of(model)[1])
    return model


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (broken(lambda o: o.blocks.pop()), "1 blocks"),
        (broken(lambda o: o.inputs["more"].CopyFrom(o.inputs["loop_vars"])), "more"),
        (broken(lambda o: o.blocks[1].outputs.pop()), "3 inputs and 2 outputs|should have"),
        (broken(lambda o: o.blocks[0].inputs.pop()), "'u'|should have|2 inputs"),
        (broken(lambda o: o.blocks[1].outputs.__setitem__(0, "v1")), "before anything defines"),
        (broken(lambda o: o.blocks[1].outputs.__setitem__(0, "go")), "before anything defines"),
        (broken(lambda o: setattr(o.blocks[1].operations[0].outputs[0], "name", "w")), "twice"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(model, text):
    with pytest.raises(ModelError, match=text) as caught:
        load_coreml(model.SerializeToString())
    assert re.search("'(v1|w)'", caught.value.place)


def test_other_operations_hold_no_blocks():
    model = halving()
    blocks_of(model)[1].type = "map"
    with pytest.raises(UnsupportedError, match="holds blocks"):
        load_coreml(model.SerializeToString())


@pytest.mark.parametrize("block", [0, 1])
def test_an_unknown_operation_within_a_block_is_named(block):
    model = halving()
    blocks_of(model)[1].blocks[block].operations[0].type = "muI"
    with pytest.raises(UnsupportedError, match="muI"):
        load_coreml(model.SerializeToString())


def test_attributes_of_control_flow_are_refused_by_name():
    model = halving()
    bind_value(blocks_of(model)[1], np.zeros(1, np.float32))
    with pytest.raises(UnsupportedError, match="val"):
        load_coreml(model.SerializeToString())

"""One program for many sizes gives the bits of programs made for each of them.

A network whose sizes are symbols is compiled for one set of them (`ir.assumptions`); for every
other set that the program says it serves, its bits are those of a program made for these sizes
alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.compiler.graphs import networks
from tests.compiler.test_bits import bits
from tests.compiler.test_operators import graph_of
from verax.base.errors import GraphError, InputError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.specialize import Specializer
from verax.compiler.specialized import Specialized
from verax.ir.assumptions import Assumptions, assuming
from verax.ir.dim import symbol
from verax.ir.graph import Builder, Graph, reinfer, specialize
from verax.ir.operator import REGISTRY
from verax.ir.types import DType, TensorType
from verax.ops.movement.slicing import Concat
from verax.ops.pointwise.arithmetic import Add

Arrays = Mapping[str, np.ndarray]


def opened(graph: Graph, sizes: Mapping[str, int], settings_: Settings) -> Specialized | None:
    """The program of `graph` made while its symbols have these sizes."""
    return Specializer(settings_).specialize_open(graph, dict(sorted(sizes.items())))


def run_opened(program: Specialized, sizes: Mapping[str, int], inputs: Arrays) -> dict[str, Any]:
    """Outputs of a program that serves `sizes`, twice, with other memory the second time."""
    in_order = tuple(n for _, n in sorted(sizes.items()))
    assert program.open_sizes.serves(in_order)
    sized = program.program.sized(in_order)
    arrays = [inputs[v] for v in program.inputs]
    first = program.program.run(arrays, sized)
    program.program.poison(0xA5)
    again = program.program.run(arrays, sized)
    names = [s.name for s in program.binary.outputs]
    assert all(bits(a) == bits(b) for a, b in zip(first, again, strict=True))
    return dict(zip(names, first, strict=True))


def assert_as_alone(graph: Graph, program: Specialized, sizes: Mapping[str, int], inputs: Arrays,
                    settings_: Settings) -> None:  # fmt: skip
    """The program gives what one made for these sizes gives."""
    want = compile(specialize(graph, sizes), settings_).run(inputs)
    got = run_opened(program, sizes, inputs)
    for value, array in want.items():
        assert got[value].shape == array.shape
        assert bits(got[value]) == bits(array), (str(graph), sizes, program.plan.lines)


# --- random networks

SIZES = st.fixed_dictionaries(
    {"h": st.integers(3, 40), "n": st.integers(1, 3), "w": st.integers(3, 40)}
)


@settings(max_examples=25)
@given(networks(5), st.lists(SIZES, min_size=1, max_size=2), st.sampled_from([0, 1, 2, 3]),
       st.integers(1, 2))  # fmt: skip
def test_random_networks_have_the_bits_of_known_sizes(
    network: tuple[Graph, dict[str, np.ndarray]],
    other_sizes: list[dict[str, int]],
    level: int,
    threads: int,
) -> None:
    graph, inputs = network
    n, channels, h, w = inputs["x"].shape
    dims = (symbol("n"), channels, symbol("h"), symbol("w"))
    try:
        symbolic = reinfer(graph, {"x": TensorType(DType.float32, dims)})
        made_for = other_sizes[0]
        options = Settings(level, threads=threads, quick=True)
        program = opened(symbolic, made_for, options)
    except GraphError:  # a reshape that only the first size fits, a window that is too large
        assume(False)
    assume(program is not None)
    assert program is not None
    for sizes in ({"h": h, "n": n, "w": w}, *other_sizes):
        in_order = tuple(size for _, size in sorted(sizes.items()))
        if program.open_sizes.serves(in_order):
            rng = np.random.default_rng(sum(in_order))
            shape = (sizes["n"], channels, sizes["h"], sizes["w"])
            x = rng.standard_normal(shape).astype(np.float32)
            assert_as_alone(symbolic, program, sizes, {"x": x}, options)


# --- every operator


def symbolic(graph: Graph, inputs: Arrays) -> tuple[Graph, dict[str, int]]:
    """The network with a symbol for every size of its inputs but 1, the same for equal ones; and
    what they are worth."""
    sizes = sorted({n for a in inputs.values() for n in a.shape if n > 1})
    names = {n: f"s{n}" for n in sizes}
    types = {
        v: TensorType(
            graph.types[v].dtype, tuple(symbol(names[n]) if n > 1 else n for n in a.shape)
        )
        for v, a in inputs.items()
    }
    return reinfer(graph, types), {names[n]: n for n in sizes}


def served(name: str, quick: bool) -> tuple[int, int]:
    """Of an operator's cases, how many a program made for other sizes serves, and how many were
    tried. The bits are compared where it does."""
    cls, options = REGISTRY[name], Settings(1, threads=1, quick=True)
    count = tried = 0
    for case in list(cls.cases(np.random.default_rng(0)))[: 1 if quick else None]:
        graph, inputs = graph_of(case, constant=True)
        if any(0 in a.shape for a in inputs.values()) or graph.updates:
            continue
        try:
            generic, sizes = symbolic(graph, inputs)
        except (GraphError, InputError):
            continue  # it asks for known sizes
        for grown in (lambda n: 2 * n, lambda n: n + 5, lambda n: n + 1):
            try:
                program = opened(generic, {s: grown(n) for s, n in sizes.items()}, options)
            except (GraphError, InputError, AssertionError):
                continue
            in_order = tuple(n for _, n in sorted(sizes.items()))
            if program is not None and program.open_sizes.serves(in_order):
                assert_as_alone(generic, program, sizes, inputs, options)
                count += 1
                break
        tried += 1
    return count, tried


SERVED = """
Abs Acos Acosh ArgMax ArgMin Asin Asinh Atan Atanh Bfloat16Factor BitCast BitwiseNot Cast Ceil
Celu Clip ConstantOfShape Cos Cosh CumProd CumSum DepthToSpace DequantizeLinear Dropout
DynamicQuantizeGroups DynamicQuantizeLinear Elu Erf ErfInv Exp Expm1 EyeLike Flatten Floor
Gather GatherElements GatherND Gelu GlobalAveragePool GlobalLpPool GlobalMaxPool HardSigmoid
HardSwish Hardmax Identity If IsInf IsNaN L2NormalizeInteger LRN LeakyRelu Log Log1p LogSoftmax
LookupTable Loop LpNormalization Max Mean Min Mish Neg Not OneHot Pad QuantizeLinear Range
Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
ReduceProd ReduceSum ReduceSumSquare Relu Requantize Resize Round Rsqrt Selu Shrink Sigmoid Sign
Sin Sinh Slice Softmax SoftmaxInteger Softplus Softsign SpaceToDepth Sqrt Sum Swish Tan Tanh
ThresholdedRelu Tile Transpose Trilu Unsqueeze
""".split()  # noqa: SIM905
"""Operators whose first case a program made for other sizes serves."""


@pytest.mark.parametrize("name", SERVED)
def test_an_operator_reads_its_sizes_when_it_runs(name: str) -> None:
    assert served(name, quick=True) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(n for n in REGISTRY if not REGISTRY[n].unsupported))
def test_all_cases_that_are_served_have_their_bits(name: str) -> None:
    served(name, quick=False)


# --- networks with weights, at every level


def image_network(rng: np.random.Generator) -> Graph:
    """Convolutions of all kinds, pools, a sum, a mean over open axes and a product behind it."""
    b = Builder("image")
    dims = (symbol("n"), 3, symbol("h"), symbol("w"))
    x = b.input("x", TensorType(DType.float32, dims))

    def weights(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape).astype(np.float32) / 4)

    conv, pool = REGISTRY["Conv"], REGISTRY["MaxPool"]
    a = b.add(conv(strides=(2, 1), pads=((2, 1), (1, 2))), [x, weights(21, 3, 5, 3), weights(21)])
    a = b.add(REGISTRY["Relu"](), [a])
    a = b.add(pool(kernel_shape=(3, 2), strides=(2, 1), pads=((1, 0), (0, 1))), [a])
    left = b.add(conv(pads=((1, 1), (1, 1))), [a, weights(21, 21, 3, 3), weights(21)])
    right = b.add(conv(pads=((1, 1), (2, 2)), groups=21), [a, weights(21, 1, 3, 5), weights(21)])
    a = b.add(Add(), [left, right])
    average = REGISTRY["AveragePool"](
        kernel_shape=(2, 3), strides=(1, 2), pads=((1, 1), (1, 1)), count_include_pad=False
    )
    mean = b.add(REGISTRY["GlobalAveragePool"](), [a])
    flat = b.add(REGISTRY["Flatten"](), [mean])
    logits = b.add(REGISTRY["Gemm"](), [flat, weights(21, 6), weights(6)])
    return b.graph([b.add(average, [a]), b.add(REGISTRY["Softmax"](axis=-1), [logits])])


IMAGES = ({"h": 40, "n": 2, "w": 33}, {"h": 17, "n": 3, "w": 64}, {"h": 63, "n": 1, "w": 29},
          {"h": 40, "n": 2, "w": 33})  # fmt: skip


@pytest.mark.parametrize(("level", "threads"), [(0, 1), (1, 3), (2, 2), (3, 1)])
def test_images_of_any_size_go_through_one_program(level: int, threads: int) -> None:
    graph, options = image_network(np.random.default_rng(7)), Settings(level, threads=threads)
    program = opened(graph, {"h": 53, "n": 2, "w": 47}, options)
    assert program is not None
    count = 0
    for sizes in IMAGES:
        if program.open_sizes.serves(tuple(n for _, n in sorted(sizes.items()))):
            rng = np.random.default_rng(sizes["h"])
            x = rng.standard_normal((sizes["n"], 3, sizes["h"], sizes["w"])).astype(np.float32)
            assert_as_alone(graph, program, sizes, {"x": x}, options)
            count += 1
    assert count == len(IMAGES) or level == 3  # Winograd's rule looks at sizes


def test_attention_over_open_keys_has_its_bits() -> None:
    b = Builder("attention")
    dims = (symbol("n"), 3, symbol("s"), 20)
    q, k, v = (b.input(name, TensorType(DType.float32, dims)) for name in "qkv")
    turned = b.add(REGISTRY["Transpose"](perm=(0, 1, 3, 2)), [k])
    scores = b.add(REGISTRY["MatMul"](), [q, turned])
    shares = b.add(REGISTRY["Softmax"](axis=-1), [scores])
    graph = b.graph([b.add(REGISTRY["MatMul"](), [shares, v])])
    for level in (0, 1):  # in three steps, and in one
        options = Settings(level, threads=1)
        program = opened(graph, {"n": 2, "s": 37}, options)
        assert program is not None
        for sizes in ({"n": 2, "s": 37}, {"n": 1, "s": 1030}, {"n": 4, "s": 16}, {"n": 2, "s": 5}):
            rng = np.random.default_rng(sizes["s"])
            shape = (sizes["n"], 3, sizes["s"], 20)
            inputs = {name: rng.standard_normal(shape).astype(np.float32) for name in "qkv"}
            assert_as_alone(graph, program, sizes, inputs, options)


# --- executables


@pytest.mark.parametrize("kind", ["InstanceNormalization", "GroupNormalization", "Softmax"])
@pytest.mark.parametrize("channels", [6, 32])
def test_normalizations_over_open_images_have_their_bits(kind: str, channels: int) -> None:
    """The number of elements that a mean is of is read, and so is which of them a first guess of
    it is taken from."""
    b, rng = Builder(kind), np.random.default_rng(88)
    x = b.input("x", TensorType.parse(f"float32[n, {channels}, h, w]"))
    weights = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32)
    y = b.add(REGISTRY["Conv"](kernel_shape=(3, 3)), [x, b.constant(weights)])
    scales = [b.constant(rng.standard_normal(channels).astype(np.float32)) for _ in range(2)]
    fields = {"GroupNormalization": {"num_groups": 2}, "Softmax": {"axis": 3}}.get(kind, {})
    y = b.add(REGISTRY[kind](**fields), [y, *([] if kind == "Softmax" else scales)])
    graph = b.graph([b.add(REGISTRY["Relu"](), [y])])
    options = Settings(1, threads=1, quick=True)
    program = opened(graph, {"n": 2, "h": 14, "w": 11}, options)
    assert program is not None
    for h, w in ((5, 7), (31, 4), (14, 11), (23, 40)):
        sizes = {"n": 3, "h": h, "w": w}
        inputs = {"x": rows(h, 3, channels, h, w)}
        assert_as_alone(graph, program, sizes, inputs, options)


@pytest.mark.parametrize("kind", ["LayerNormalization", "RMSNormalization"])
def test_normalizations_over_open_rows_have_their_bits(kind: str) -> None:
    b = Builder(kind)
    x = b.input("x", TensorType.parse("float32[n, t]"))
    scale = b.constant(np.array([1.75], np.float32))
    graph = b.graph([b.add(REGISTRY[kind](), [x, scale])])
    options = Settings(1, threads=1, quick=True)
    program = opened(graph, {"n": 2, "t": 90}, options)
    assert program is not None
    for t in (3, 16, 81, 96, 97, 1000):
        assert_as_alone(graph, program, {"n": 5, "t": t}, {"x": rows(t, 5, t)}, options)


def test_a_product_of_two_open_factors_is_one_program() -> None:
    b = Builder("attention")
    x = b.input("x", TensorType.parse("float32[n, 4, t, 8]"))
    y = b.add(REGISTRY["Relu"](), [x])
    graph = b.graph([b.add(REGISTRY["Einsum"](equation="bhid,bhjd->bhij"), [x, y])])
    options = Settings(1, threads=1, quick=True)
    program = opened(graph, {"n": 2, "t": 25}, options)
    assert program is not None
    for n, t in ((3, 19), (2, 70), (5, 33)):
        inputs = {"x": rows(t, n, 4, t, 8)}
        assert_as_alone(graph, program, {"n": n, "t": t}, inputs, options)


def joined() -> Graph:
    """Two inputs that are joined along their rows, whose columns have to agree."""
    b = Builder("joined")
    first = b.input("first", TensorType(DType.float32, (symbol("m"), symbol("c"))))
    second = b.input("second", TensorType(DType.float32, (symbol("n"), symbol("d"))))
    return b.graph([b.add(Concat(axis=0), [first, second])])


def rows(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_sizes_that_do_not_fit_one_another_are_refused_by_the_second_program_too() -> None:
    exe = compile(joined(), Settings(1, threads=1))
    (name,) = exe.outputs
    for m, n, columns in ((3, 2, 5), (4, 7, 6), (1, 9, 8)):
        a, b = rows(m, m, columns), rows(n, n, columns)
        assert np.array_equal(exe.run({"first": a, "second": b})[name], np.concatenate([a, b]))
    with pytest.raises(GraphError, match="must be equal"):
        exe.run({"first": rows(1, 4, 6), "second": rows(2, 7, 5)})


def test_the_first_size_makes_a_program_for_all_and_no_second_one() -> None:
    exe = compile(image_network(np.random.default_rng(8)), Settings(2, threads=1))
    programs = []
    for h, w in ((40, 33), (36, 50), (61, 44), (40, 33), (36, 50)):
        exe.run({"x": rows(h, 2, 3, h, w)})
        programs.append(exe.program)
    assert all(program is programs[0] for program in programs)
    assert exe.plan.lines and "d0" in str(exe.plan)
    assert exe.specialized.binary.open_sizes is None  # what is asked about one size is made for it


def test_an_empty_batch_is_computed_after_others() -> None:
    exe = compile(joined(), Settings(1, threads=1))
    (name,) = exe.outputs
    for m in (3, 5, 0):
        got = exe.run({"first": rows(m, m, 4), "second": rows(9, 2, 4)})[name]
        assert got.shape == (m + 2, 4)


# --- conditions


def test_a_decision_is_recorded_as_the_condition_that_it_rests_on() -> None:
    n, m = symbol("d0"), symbol("d1")
    assumed = Assumptions({"d0": 5, "d1": 7})
    with assuming(assumed):
        assert n != m and n < 6 and m % 2 == 1 and int(n) == 5 and max(n, 3) is n
    asked = [str(c) for c in assumed.conditions]
    assert asked == [
        "d0 - d1 != 0", "d0 - 6 < 0", "-2*(d1//2) + d1 - 1 == 0", "d0 - 5 == 0", "d0 - 3 >= 0"
    ]  # fmt: skip
    assert all(c.holds({"d0": 5, "d1": 9}) for c in assumed.conditions)
    assert not all(c.holds({"d0": 5, "d1": 8}) for c in assumed.conditions)


def test_what_no_condition_says_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison of bits would see a program that serves what it was not made for."""
    b = Builder("cut")
    x = b.input("x", TensorType(DType.float32, (symbol("n"), 4)))
    bounds = [b.constant(np.array([v])) for v in (0, 6, 0)]
    graph = b.graph([b.add(REGISTRY["Slice"](), [x, *bounds])])
    monkeypatch.setattr(Assumptions, "require", lambda self, difference, relation: None)
    program = opened(graph, {"n": 9}, Settings(1, threads=1))
    assert program is not None and not program.open_sizes.conditions
    with pytest.raises(AssertionError):
        assert_as_alone(graph, program, {"n": 3}, {"x": rows(1, 3, 4)}, Settings(1, threads=1))


def test_a_failure_of_ours_costs_programs_and_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise IndexError("of ours")

    monkeypatch.setattr(Specializer, "specialize_open", fails)
    exe = compile(joined(), Settings(1, threads=1))
    (name,) = exe.outputs
    with pytest.warns(UserWarning, match="IndexError: of ours.*report"):
        exe.run({"first": rows(3, 3, 4), "second": rows(9, 2, 4)})
    got = exe.run({"first": rows(5, 5, 4), "second": rows(9, 2, 4)})[name]
    assert np.array_equal(got, np.concatenate([rows(5, 5, 4), rows(9, 2, 4)]))


def test_dimensions_are_compared_with_integers_of_numpy() -> None:
    n = symbol("d0")
    assumed = Assumptions({"d0": 5})
    with assuming(assumed):
        assert n == np.int64(5) and np.int32(4) != n
    assert [str(c) for c in assumed.conditions] == ["d0 - 5 == 0", "d0 - 4 != 0"]

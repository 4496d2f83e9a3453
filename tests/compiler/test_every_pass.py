"""No pass, no decision and no schedule can get lost: each has a network in which it shows.

What a pass leaves behind is looked at in the graph, what a decision does in the kernel calls. Then
each is deleted, disabled and replaced by one that does nothing, and the look must fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from tests.compiler.renaming import NODE_NAMES, renamed
from tests.compiler.test_bits import bits
from tests.compiler.test_dtypes import call_of
from tests.compiler.test_every_lowering import ELSEWHERE, USES, compiled
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.products.attention_spec import AttentionSchedule, AttentionSpec
from verax.compiler.kernels.registry import ANY_TARGET, EMITTERS, Emitter
from verax.compiler.kernels.target import Target
from verax.compiler.passes.base import Pass, PassClass
from verax.compiler.pipeline import levels
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.schedule_words import schedule_words
from verax.compiler.plan import fusion, graph_plan, steps
from verax.ir.graph import Builder, Graph, walk_values
from verax.ir.operator import REGISTRY
from verax.ir.types import TensorType
from verax.judge.inputs import draw_inputs
from verax.records.trace import Trace
from verax.reference import promised


def network(make: Callable[[Builder, str], Sequence[str]], shape: str = "2, 3, 9, 7") -> Graph:
    b = Builder("net")
    return b.graph(make(b, b.input("x", TensorType.parse(f"float32[{shape}]"))))


def random(b: Builder, *shape: int) -> str:
    rng = np.random.default_rng([23, *shape])
    return b.constant(rng.standard_normal(shape).astype(np.float32))


def add(b: Builder, kind: str, *inputs: str, **attributes: Any) -> str:
    return b.add(REGISTRY[kind](**attributes), list(inputs))


def scaled(b: Builder, x: str) -> list[str]:
    return [add(b, "Mul", x, add(b, "Exp", random(b, 3, 1, 1)))]


def padded(b: Builder, x: str) -> list[str]:
    pad = add(b, "Pad", x, b.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64)))
    return [add(b, "Conv", pad, random(b, 5, 3, 3, 2), strides=(2, 1))]


def far_reaching(b: Builder, x: str) -> list[str]:
    """Of 3 x 3 positions, 12 apart, the middle one alone meets the image."""
    far = ((12, 12), (12, 12))
    return [add(b, "Conv", x, random(b, 5, 3, 3, 3), pads=far, dilations=(12, 12))]


def multiplied(b: Builder, x: str) -> list[str]:
    return [
        add(b, "MatMul", add(b, "Reshape", x, b.constant(np.array([2, 189]))), random(b, 189, 5))
    ]


def large(b: Builder, x: str) -> list[str]:
    """126 rows of 768, by 896 columns."""
    rows = add(b, "Reshape", x, b.constant(np.array([126, 3])))
    rows = add(b, "Tanh", add(b, "MatMul", rows, random(b, 3, 768)))
    return [add(b, "MatMul", rows, random(b, 768, 896))]


def turned(b: Builder, x: str) -> list[str]:
    last = add(b, "Abs", add(b, "Transpose", x, perm=(0, 2, 3, 1)))
    return [add(b, "Relu", add(b, "Transpose", last, perm=(0, 3, 1, 2)))]


def tokens(b: Builder, x: str) -> list[str]:
    rows = add(b, "Transpose", add(b, "Reshape", x, axes(b, 2, 63, 3)), perm=(0, 2, 1))
    image = add(b, "Reshape", rows, axes(b, 2, 3, 9, 7))
    y = add(b, "Conv", image, random(b, 3, 1, 3, 3), groups=3, pads=((1, 1), (1, 1)))
    rows = add(b, "Relu", add(b, "Reshape", y, axes(b, 2, 3, 63)))
    return [add(b, "Transpose", rows, perm=(0, 2, 1))]


def axes(b: Builder, *sizes: int) -> str:
    return b.constant(np.array(sizes, np.int64))


def normed(b: Builder, x: str) -> list[str]:
    y = add(b, "Conv", x, random(b, 5, 3, 3, 2))
    more = [b.constant(np.arange(1, 6, dtype=np.float32) / n) for n in (3, 5, 7, 11)]
    return [add(b, "BatchNormalization", y, *more)]


def wide(b: Builder, x: str) -> list[str]:
    h = add(b, "Tanh", add(b, "Conv", x, random(b, 65, 3, 1, 1)))
    return [add(b, "Conv", h, random(b, 67, 65, 3, 3), pads=((1, 1), (1, 1)))]


def twice(b: Builder, x: str) -> list[str]:
    return [add(b, "Sub", add(b, "Exp", x), add(b, "Neg", add(b, "Exp", x)))]


def idle(b: Builder, x: str) -> list[str]:
    add(b, "Neg", x)
    return [add(b, "Relu", x)]


def reshaped(b: Builder, x: str) -> list[str]:
    flat = add(b, "Reshape", x, b.constant(np.array([2, -1], np.int64)))
    return [add(b, "Relu", add(b, "Reshape", flat, b.constant(np.array([2, 7, 27], np.int64))))]


def halved(b: Builder, x: str) -> list[str]:
    return [add(b, "Div", x, b.constant(np.array([2, 0.5, -4], np.float32).reshape(3, 1, 1)))]


def tied(b: Builder, x: str) -> list[str]:
    first = add(b, "Conv", x, random(b, 3, 3, 3, 2), pads=((1, 1), (0, 1)))
    return [add(b, "Conv", first, random(b, 3, 3, 3, 2))]


def convolved(b: Builder, x: str) -> list[str]:
    first = add(b, "Conv", x, random(b, 21, 3, 3, 2))
    return [add(b, "Conv", add(b, "Tanh", first), random(b, 5, 21, 2, 1))]


def last_mean(b: Builder, x: str) -> str:
    return add(b, "ReduceMean", x, b.constant(np.array([-1])))


def number(b: Builder, value: float) -> str:
    return b.constant(np.array(value, np.float32))


def over_root(b: Builder, x: str) -> str:
    second = last_mean(b, add(b, "Mul", x, x))
    return add(b, "Div", x, add(b, "Sqrt", add(b, "Add", second, number(b, 1e-3))))


def layer_normed(b: Builder, x: str) -> list[str]:
    return [over_root(b, add(b, "Sub", x, last_mean(b, x)))]


def gaussian(b: Builder, x: str) -> list[str]:
    e = add(b, "Erf", add(b, "Div", x, number(b, 2**0.5)))
    gate = add(b, "Add", e, number(b, 1))
    return [add(b, "Mul", add(b, "Mul", x, gate), number(b, 0.5))]


def unit_length(b: Builder, x: str) -> list[str]:
    length = add(b, "ReduceL2", x, b.constant(np.array([1])))
    return [add(b, "Div", x, add(b, "Max", length, number(b, 1e-3)))]


def narrowed(b: Builder, x: str) -> list[str]:
    wide = add(b, "Conv", x, random(b, 21, 3, 3, 2), pads=((1, 1), (0, 1)))
    return [add(b, "Conv", wide, random(b, 2, 21, 1, 1))]


def exponentials(b: Builder, x: str) -> list[str]:
    axis = b.constant(np.array([1]))
    e = add(b, "Exp", add(b, "Sub", x, add(b, "ReduceMax", x, axis)))
    return [add(b, "Div", e, add(b, "ReduceSum", e, axis))]


def attended(b: Builder, x: str) -> list[str]:
    scores = add(b, "MatMul", x, add(b, "Transpose", add(b, "Tanh", x), perm=(0, 1, 3, 2)))
    return [add(b, "MatMul", add(b, "Softmax", scores, axis=3), add(b, "Exp", x))]


def scalar(b: Builder, value: float, dtype: str = "float32") -> str:
    return b.constant(np.array(value, dtype))


def by_roots(b: Builder, x: str) -> list[str]:
    """As PyTorch's exporter writes attention: keys are transposed as matrices, then scaled."""
    root = scalar(b, 0.75, "float32")
    flat = add(b, "Reshape", add(b, "Exp", x), b.constant(np.array([6, 9, 7])))
    turned = add(b, "Transpose", flat, perm=(0, 2, 1))
    keys = add(b, "Reshape", turned, b.constant(np.array([2, 3, 7, 9])))
    queries = add(b, "Mul", add(b, "Tanh", x), root)
    shares = add(b, "Softmax", add(b, "MatMul", queries, add(b, "Mul", keys, root)), axis=3)
    return [add(b, "MatMul", shares, x)]


def scaled_queries(b: Builder, x: str) -> list[str]:
    queries = add(b, "Mul", add(b, "Tanh", x), scalar(b, 0.75, "float32"))
    return [add(b, "Attention", queries, x, x)]


def as_bytes(b: Builder, x: str, scale: float = 0.03, zero: int = 113) -> str:
    return add(b, "QuantizeLinear", x, scalar(b, scale), scalar(b, zero, "uint8"))


def as_floats(b: Builder, q: str, scale: float = 0.03, zero: int = 113) -> str:
    return add(b, "DequantizeLinear", q, scalar(b, scale), scalar(b, zero, "uint8"))


def byte_weights(b: Builder, *shape: int) -> str:
    return b.constant(np.random.default_rng(31).integers(-128, 128, shape).astype(np.int8))


def on_bytes(b: Builder, x: str) -> list[str]:
    scale = b.constant(np.linspace(0.01, 0.02, 5, dtype=np.float32))
    w = add(b, "DequantizeLinear", byte_weights(b, 5, 3, 3, 2), scale, axis=0)
    return [add(b, "Conv", as_floats(b, as_bytes(b, x)), w)]


def in_blocks(b: Builder, x: str) -> list[str]:
    """18 rows of 21, the last of two blocks of 16 filled up with zeros."""
    rows = add(b, "Reshape", x, axes(b, 18, 21))
    rows = add(b, "Reshape", add(b, "Pad", rows, axes(b, 0, 0, 0, 11)), axes(b, 18, 2, 16))
    quantize = REGISTRY["DynamicQuantizeGroups"](axis=2, symmetric=True)
    q, scale = b.add_all(quantize, [rows])
    rows = add(b, "Mul", add(b, "Cast", q, to="float32"), scale)
    rows = add(
        b, "Slice", add(b, "Reshape", rows, axes(b, 18, 32)), *(axes(b, n) for n in (0, 21, 1))
    )
    w = add(b, "DequantizeLinear", byte_weights(b, 21, 5), random(b, 2, 5), axis=0, block_size=16)
    return [add(b, "MatMul", rows, w)]


def in_halves(b: Builder, x: str) -> list[str]:
    w = b.constant(np.linspace(-1, 1, 90).reshape(5, 3, 3, 2).astype(np.float16))
    return [add(b, "Conv", add(b, "Cast", x, to="float16"), w)]


def pooled_bytes(b: Builder, x: str) -> list[str]:
    pool = add(b, "MaxPool", as_floats(b, as_bytes(b, x)), kernel_shape=(3, 2))
    return [as_bytes(b, pool)]


def summed_bytes(b: Builder, x: str) -> list[str]:
    zero = scalar(b, 113, "uint8")
    return [add(b, "ConvInteger", as_bytes(b, x), byte_weights(b, 5, 3, 3, 2), zero)]


def one_window(b: Builder, x: str) -> list[str]:
    """As streaming networks convolve what they remember: a filter a channel, then all."""
    last = add(b, "Reshape", as_bytes(b, x), b.constant(np.array([2, 9, 7, 3])))
    first = add(b, "Transpose", last, perm=(0, 3, 1, 2))
    zero = scalar(b, 113, "uint8")
    return [
        add(b, "ConvInteger", first, byte_weights(b, 3, 1, 9, 7), zero, groups=3),
        add(b, "ConvInteger", first, byte_weights(b, 5, 3, 9, 7), zero),
    ]


def rounded_thrice(b: Builder, x: str) -> list[str]:
    """As TFLite adds bytes."""
    terms = []
    for value, factor in ((x, (1623821475, -2)), (add(b, "Neg", x), (1073741824, 0))):
        wide = add(b, "Cast", as_bytes(b, value), to="int32")
        wide = add(b, "Mul", wide, scalar(b, 1 << 20, "int32"))
        terms.append(requantised(b, wide, *factor, output_dtype="int32"))
    return [requantised(b, add(b, "Add", *terms), 1098017566, -17, zero_point=-100)]


def requantised(b: Builder, x: str, multiplier: int, shift: int, **more: Any) -> str:
    return add(
        b, "Requantize", x, scalar(b, multiplier, "int32"), scalar(b, shift, "int32"), **more
    )


def scaled_bytes(b: Builder, x: str) -> list[str]:
    return [as_bytes(b, add(b, "Add", add(b, "Mul", x, random(b, 3, 1, 1)), random(b, 3, 1, 1)))]


def divides(exe: Executable) -> bool:
    """Whether a QuantizeLinear has another scale than 1."""
    graph = exe.specialized.graph
    made = [n for n in graph.nodes if n.op.kind == "QuantizeLinear"]
    return any(graph.constants[n.inputs[1] or ""] != 1 for n in made)


def three_factors(b: Builder, x: str) -> list[str]:
    return [add(b, "Einsum", x, random(b, 7, 5), random(b, 5, 9), equation="abcd,de,ec->ab")]


def enlarged(b: Builder, x: str) -> list[str]:
    x = add(b, "Pad", x, b.constant(np.array([0, 0, 300, 300, 0, 0, 300, 300])))
    for _ in range(4):
        x = add(b, "MaxPool", x, kernel_shape=(2, 3))
    return [add(b, "GlobalMaxPool", x)]


def kinds(exe: Executable) -> list[str]:
    return [n.op.kind for n in exe.specialized.graph.nodes]


def calls(exe: Executable) -> list[KernelCall]:
    return [s for s in exe.specialized.lowered.steps if isinstance(s, KernelCall)]


Look = Callable[[Executable], bool]
SHOWN: dict[str, tuple[Callable[[Builder, str], Sequence[str]], Look]] = {
    "fold_constants": (scaled, lambda exe: kinds(exe) == ["Mul"]),
    "remove_identity": (lambda b, x: [add(b, "Relu", add(b, "Identity", x))],
                        lambda exe: kinds(exe) == ["Relu"]),
    "share_constants": (tied, lambda exe: len(exe.specialized.graph.constants) == 1),
    "canonicalize": (reshaped, lambda exe: kinds(exe) == ["Reshape", "Relu"]),
    "reduce_strength": (halved, lambda exe: kinds(exe) == ["Mul"]),
    "tokens_as_images": (tokens, lambda exe: kinds(exe)[-4:] == ["Conv", "Relu", "Transpose",
                                                                 "Reshape"]),
    "cancel_transposes": (turned, lambda exe: "Transpose" not in kinds(exe)),
    "fold_pads": (padded, lambda exe: kinds(exe) == ["Conv"]),
    "trim_kernels": (far_reaching, lambda exe: exe.specialized.graph.nodes[0].op.kernel_shape  # type: ignore[attr-defined]
                     == (1, 1)),
    "recognize_layer_norm": (layer_normed, lambda exe: kinds(exe) == ["LayerNormalization"]),
    "recognize_rms_norm": (lambda b, x: [over_root(b, x)],
                           lambda exe: kinds(exe) == ["RMSNormalization"]),
    "recognize_gelu": (gaussian, lambda exe: kinds(exe) == ["Gelu"]),
    "recognize_swish": (lambda b, x: [add(b, "Mul", x, add(b, "Sigmoid", x))],
                        lambda exe: kinds(exe) == ["Swish"]),
    "recognize_lp_norm": (unit_length, lambda exe: kinds(exe) == ["LpNormalization"]),
    "recognize_attention": (attended, lambda exe: kinds(exe) == ["Tanh", "Exp", "Attention"]),
    "hoist_scales": (by_roots, lambda exe: "Attention" in kinds(exe)),
    "fold_attention_scales": (scaled_queries, lambda exe: kinds(exe) == ["Tanh", "Attention"]),
    "recognize_softmax": (exponentials, lambda exe: kinds(exe) == ["Softmax"]),
    "split_einsum": (three_factors, lambda exe: kinds(exe) == ["Einsum", "Einsum"]),
    "fold_scales": (normed, lambda exe: kinds(exe) == ["Conv", "Add"]),
    "merge_linear": (narrowed, lambda exe: kinds(exe) == ["Conv"]),
    "choose_winograd": (wide, lambda exe: kinds(exe) == ["Conv", "Tanh", "WinogradConv"]),
    "choose_bfloat16": (multiplied, lambda exe: "Bfloat16Factor" in kinds(exe)),
    "choose_strassen": (large, lambda exe: kinds(exe) == ["Reshape", "MatMul", "Tanh",
                                                    "StrassenMatMul"]),
    "integer_products": (on_bytes, lambda exe: "ConvInteger" in kinds(exe)),
    "block_products": (in_blocks, lambda exe: "BlockScaledMatMul" in kinds(exe)),
    "widen_halves": (in_halves, lambda exe: kinds(exe).count("Cast") == 3),
    "move_dequantize": (pooled_bytes, lambda exe: kinds(exe) == ["QuantizeLinear", "MaxPool"]),
    "flatten_windows": (one_window, lambda exe: "ReduceSum" in kinds(exe)),
    "join_roundings": (rounded_thrice, lambda exe: kinds(exe)[-1] == "WeightedSumInteger"),
    "center_integers": (summed_bytes,
                        lambda exe: kinds(exe) == ["QuantizeLinear", "Clip", "ConvInteger"]),
    "scale_quantized": (scaled_bytes, lambda exe: not divides(exe)),
    "merge_common": (twice, lambda exe: kinds(exe).count("Exp") == 1),
    "remove_dead_code": (idle, lambda exe: kinds(exe) == ["Relu"]),
    "divide_batch": (enlarged, lambda exe: exe.plan.lines[0] == "2 times, for 1 of 2 images each:"),
    "fuse_elementwise": (convolved, lambda exe: any(" + " in c.label for c in calls(exe))),
    "block_layouts": (convolved, lambda exe: not any("to plain" in c.label for c in calls(exe))),
}  # fmt: skip
"""By name: a network, and what shows that the pass or the decision has worked on it."""


LEVEL = {p.name: levels.FIRST_LEVEL[p.kind] for p in levels.PIPELINE}
"""The first level that has a pass; decisions are at 1."""
ALLOW = {p.name: (p.allowance,) for p in levels.PIPELINE if p.allowance}
"""What a user must allow for a pass to run."""
CHANGING = {p.name for p in levels.PIPELINE if p.kind is not PassClass.exact}


def asked(name: str, **more: Any) -> Settings:
    return Settings(LEVEL.get(name, 1), threads=1, allow=ALLOW.get(name, ()), **more)


def look(name: str, settings: Settings | None = None, names: str = "") -> None:
    """The pass does what it is for, says so, and changes no bit, if its class says that; the
    bits of one that changes numbers are promised of what it makes of the network. names: style of
    `NODE_NAMES` under which the network is looked at."""
    made, shows = SHOWN[name]
    graph = network(made)
    graph = renamed(graph, names) if names else graph
    inputs = draw_inputs(graph, 3)[0]
    exe = compile(graph, settings or asked(name))
    got = exe.run(inputs)
    meant = exe.specialized.graph if name in CHANGING else graph
    wanted = promised(meant, inputs)
    for value, new in zip(graph.outputs, meant.outputs, strict=True):
        assert bits(got[value]) == bits(np.asarray(wanted[new]))
    assert shows(exe), f"nothing shows of {name}"
    assert any(note.startswith(f"{name}: ") for note in exe.trace.notes), f"{name} does not say so"


@pytest.mark.parametrize("name", SHOWN)
def test_a_pass_or_a_decision_does_what_it_is_for_and_says_so(name: str) -> None:
    look(name)


LARGE = ("choose_strassen", "divide_batch")
"""Whose networks are large: they are looked at under two styles of names, and all in `slow`."""


def with_names() -> Iterator[Any]:
    """(pass, style of names)."""
    for name in SHOWN:
        for number, names in enumerate(NODE_NAMES):
            slow = (pytest.mark.slow,) if name in LARGE and number > 1 else ()
            yield pytest.param(name, names, marks=slow)


@pytest.mark.parametrize(("name", "names"), with_names())
def test_no_name_of_a_node_or_a_value_matters(name: str, names: str) -> None:
    look(name, names=names)


def test_every_pass_and_every_decision_has_such_a_network() -> None:
    decisions = {s.name for s in steps.STEPS if not s.by_target}  # those: test_target_rewrites
    assert {p.name for p in levels.PIPELINE} | decisions == SHOWN.keys()


@pytest.mark.parametrize("name", SHOWN)
def test_disabling_one_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError, match=r"nothing shows|does not say so"):
        look(name, asked(name, disable=(name,)))


@pytest.mark.parametrize("name", SHOWN)
def test_one_alone_can_be_required_where_the_level_has_none(name: str) -> None:
    exe = compile(network(SHOWN[name][0]), Settings(opt_level=0, threads=1, require=(name,)))
    exe.run(draw_inputs(network(SHOWN[name][0]), 3)[0])
    assert {note.partition(":")[0] for note in exe.trace.notes} == {name}


PASSES = [p.name for p in levels.PIPELINE]
DECISIONS = [s.name for s in steps.STEPS if not s.by_target]


def nothing(graph: Graph, limit: int | None = None, **options: Any) -> tuple[Graph, Trace]:
    return graph, Trace({v: v for v in walk_values(graph)})


@pytest.mark.parametrize("name", PASSES)
def test_deleting_a_pass_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tuple(p for p in levels.PIPELINE if p.name != name)
    monkeypatch.setattr(levels, "PIPELINE", left)
    with pytest.raises(AssertionError, match="nothing shows"):
        look(name)
    with pytest.raises(AssertionError):
        test_every_pass_and_every_decision_has_such_a_network()


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_that_does_nothing_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(step: Pass) -> Pass:
        return step if step.name != name else Pass(nothing, step.kind)

    monkeypatch.setattr(levels, "PIPELINE", tuple(map(named, levels.PIPELINE)))
    with pytest.raises(AssertionError, match="nothing shows"):
        look(name)


@pytest.mark.parametrize("name", DECISIONS)
def test_deleting_a_decision_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tuple(s for s in steps.STEPS if s.name != name)
    monkeypatch.setattr(steps, "STEPS", left)
    with pytest.raises(AssertionError, match="nothing shows"):
        look(name)
    with pytest.raises(AssertionError):
        test_every_pass_and_every_decision_has_such_a_network()


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_that_is_not_counted_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made without being asked for: it could not be disabled, nor found by a search."""
    allows = steps.Decisions.allows

    def silent(self: steps.Decisions, step: steps.DecisionKind, what: str, *about: Any) -> bool:
        return True if step.name == name else allows(self, step, what, *about)

    monkeypatch.setattr(steps.Decisions, "allows", silent)
    with pytest.raises(AssertionError, match="does not say so"):
        look(name)


def test_the_rooms_of_decisions_make_those_that_are_listed() -> None:
    assert fusion.FUSE in steps.STEPS and graph_plan.BLOCK in steps.STEPS


# --- schedules and emitters

SCHEDULED = [kind for kind in USES if call_of(kind)[2].schedule is not None]


@pytest.mark.parametrize("kind", SCHEDULED, ids=lambda kind: kind.__name__)
def test_the_one_hook_for_schedules_decides_and_changes_no_bit(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, fed, call = call_of(kind)
    small = ConvSchedule(1, 1, 1, unroll=1, near=0)
    others = dict.fromkeys(SCHEDULED, small) | {AttentionSpec: AttentionSchedule(1, 1, 1)}
    other = others[kind]
    assert call.schedule != other
    for some in SCHEDULED:  # a product and its packing share their schedule
        own = EMITTERS[some, ANY_TARGET]
        hooked = dataclasses.replace(own, schedules=lambda spec, target: (others[type(spec)],))
        monkeypatch.setitem(EMITTERS, (some, ANY_TARGET), hooked)
    exe = compiled(graph, fed)
    assert {c.schedule for c in calls(exe) if type(c.spec) is kind} == {other}
    assert schedule_words(other) in str(exe.plan)
    got = exe.run(fed)
    for value, array in promised(graph, fed).items():
        assert bits(got[value]) == bits(np.asarray(array))


@pytest.mark.parametrize("kind", USES, ids=lambda kind: kind.__name__)
def test_a_targets_own_emitter_goes_before_everybodys(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, fed, _ = call_of(kind)
    asked: list[type] = []
    general = EMITTERS[kind, ANY_TARGET]

    def emit(module: Any, spec: Any, schedule: Any) -> Any:
        asked.append(type(spec))
        return general.emit(module, spec, schedule)

    own = Emitter(emit, general.schedules, general.dtypes)
    monkeypatch.setitem(EMITTERS, (kind, Target.host().name), own)
    compiled(graph, fed)
    assert set(asked) == {kind}


def test_every_emitter_has_a_network_that_calls_for_it() -> None:
    assert {kind for kind, target in EMITTERS if target == ANY_TARGET} == {*USES, *ELSEWHERE}

"""What a rule plans shows in some network: which nodes may be fused behind it, which of them fit,
and which layouts it wants. Taking any of it away must be noticed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import verax.compiler.place.program  # noqa: F401  (registers the rules)
from tests.compiler.test_bits import bits
from tests.compiler.test_every_pass import add, as_bytes, byte_weights, calls, network, random
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.plan import graph_plan
from verax.compiler.plan.choice import RULES, Alternatives, Choice, NoKernel, Planning
from verax.compiler.plan.epilogues import fits_epilogue
from verax.compiler.plan.fusion import Group
from verax.compiler.plan.layouts import Decided
from verax.compiler.plan.steps import Decisions
from verax.ir.graph import Builder, Node
from verax.ir.operator import REGISTRY
from verax.judge.inputs import draw_inputs
from verax.reference import promised

EPILOGUE, FITS, LAYOUTS = "epilogue", "fits", "layouts"
INTEGERS = ("ConvInteger", "ConvTransposeInteger", "AveragePoolInteger")
FUSING = (
    *("Conv", "ConvTranspose", "WinogradConv", "StrassenConv", "MaxPool", "AveragePool", "LpPool"),
    *("ConvInteger", "ConvTransposeInteger", "MatMul", "Gemm", "Einsum", "StrassenMatMul"),
    *("InstanceNormalization", "GroupNormalization"),
)
"""Operators behind whose kernels elementwise nodes are computed."""
REDUCED = sorted(name for name in RULES if name.startswith(("Reduce", "Global")))
BLOCKING = (
    *FUSING[:9], "AveragePoolInteger", *FUSING[-2:], "Concat", "Resize", "Slice", "Split",
    "Transpose", *REDUCED,
)  # fmt: skip
"""Operators that are computed in blocks of channels."""
OWN = sorted(name for name, rule in RULES.items() if rule.fits is not fits_epilogue)
CASES = [
    *((EPILOGUE, name) for name in FUSING),
    *((FITS, name) for name in OWN if name != "Gemm"),  # a matrix's columns are its channels
    *((LAYOUTS, name) for name in BLOCKING),
]


def take_away(hook: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rule of an operator not say one of the things."""
    rule = RULES[name]
    if hook == FITS:
        monkeypatch.setitem(RULES, name, dataclasses.replace(rule, fits=fits_epilogue))
        return
    lay_out = graph_plan._record_layouts

    def plan(planning: Planning, node: Node) -> Alternatives:
        alternatives = rule.plan(planning, node)
        if isinstance(alternatives, NoKernel):
            return alternatives
        return tuple(dataclasses.replace(c, takes_epilogue=False) for c in alternatives)

    def without_layouts(
        layouts: Decided, group: Group, choice: Choice | NoKernel, decisions: Decisions
    ) -> None:
        silent = graph_plan.LOOP if group.root.op.kind == name else choice
        lay_out(layouts, group, silent, decisions)

    if hook == EPILOGUE:
        monkeypatch.setitem(RULES, name, dataclasses.replace(rule, plan=plan))
    else:
        monkeypatch.setattr(graph_plan, "_record_layouts", without_layouts)


def made_by(name: str, b: Builder, h: str) -> str:
    """The operator on `h`, an image of 21 channels or a matrix of 7 columns; the rest constant."""
    if name == "Conv":
        return add(b, name, h, random(b, 19, 21, 2, 1))
    if name == "WinogradConv":
        return add(b, name, h, random(b, 19, 21, 3, 3))
    if name == "ConvTranspose":
        return add(b, name, h, random(b, 21, 19, 2, 1))
    if name in ("MaxPool", "AveragePool", "LpPool"):
        return add(b, name, h, kernel_shape=(2, 1))
    if name == "Resize":
        scales = b.constant(np.array([1, 1, 2, 3], np.float32))
        return b.add(REGISTRY[name](), [h, None, scales])
    if name == "AveragePoolInteger":
        return add(b, name, as_bytes(b, h), kernel_shape=(2, 1))
    if name in INTEGERS:
        shape = (19, 21, 2, 1) if name == "ConvInteger" else (21, 19, 2, 1)
        return add(b, name, as_bytes(b, h), byte_weights(b, *shape))
    if name.startswith("Reduce"):
        return add(b, name, h, b.constant(np.array([2, 3], np.int64)))
    if name in ("MatMul", "Gemm"):
        return add(b, name, h, random(b, 7, 17))
    if name == "StrassenConv":
        return add(b, name, h, random(b, 64, 32, 1, 1))
    if name == "StrassenMatMul":
        return add(b, name, h, random(b, 8, 32))
    if name == "BlockScaledMatMul":  # 3 blocks of 16
        codes = b.constant((np.arange(48 * 19).reshape(48, 19) * 7 % 16 - 8).astype(np.int8))
        scales = random(b, 2, 5, 3, 1), random(b, 3, 19)
        data = add(b, "Cast", h, to="int8")
        return add(b, name, data, scales[0], codes, scales[1])
    if name == "Concat":
        return add(b, name, h, h, axis=1)
    if name == "Slice":
        return add(b, name, h, *(b.constant(np.array([n])) for n in (16, 32, 1)))
    if name == "Split":
        return b.add_all(REGISTRY[name](num_outputs=2, axis=1), [h])[1]
    if name == "Einsum":
        return add(b, name, h, random(b, 7, 17), equation="bij,jk->bik")
    if name == "InstanceNormalization":
        channels = b.types[h].shape[1]
        return add(b, name, h, random(b, channels), random(b, channels))
    if name == "GroupNormalization":
        channels = b.types[h].shape[1]
        groups = 3 if channels == 21 else 4
        return add(b, name, h, random(b, channels), random(b, channels), num_groups=groups)
    if name == "Transpose":  # pixels whose channels are last, as an image
        n, channels, rows, cols = b.types[h].shape
        pixels = b.constant(np.array([n, rows, cols, channels], np.int64))
        return add(b, name, add(b, "Reshape", h, pixels), perm=(0, 3, 1, 2))
    assert name.startswith("Global"), f"say here how to make {name}"
    return add(b, name, h)


def shape_for(hook: str, name: str) -> str:
    if hook == "layouts":
        return "1, 3, 9, 7" if name in ("Slice", "Split") else "2, 3, 9, 7"
    return {
        "Gemm": "5, 7",
        "MatMul": "2, 5, 7",
        "Einsum": "2, 5, 7",
        "StrassenMatMul": "2, 5, 8",
        "StrassenConv": "2, 32, 9, 7",
        "BlockScaledMatMul": "2, 5, 3, 16",
    }.get(name, "2, 21, 9, 7")


def look(hook: str, name: str) -> None:
    """The hook of the rule shows in a network's kernel calls, and the bits are right."""

    def behind(b: Builder, x: str) -> list[str]:
        if hook == "layouts":  # between kernels that keep blocks of channels
            # no rest of a block
            full = ("Concat", "GroupNormalization", "InstanceNormalization", "Transpose")
            full += ("Slice", "Split", "StrassenConv")
            channels = 32 if name in full else 21
            h = made_by(name, b, add(b, "Conv", x, random(b, channels, 3, 2, 2)))
            h = add(b, "Cast", h, to="float32") if name in INTEGERS else h
            if name != "Transpose":  # read twice: nothing is fused
                h = add(b, "Mul", add(b, "Tanh", h), add(b, "Neg", h))
            return [add(b, "Conv", h, random(b, 3, b.types[h].shape[1], 1, 1))]
        last = made_by(name, b, x)
        if name in INTEGERS:
            return [add(b, "Mul", last, b.constant(np.array(3, np.int32)))]
        if hook == "fits" and "Conv" in name:  # another type than the default's float32
            return [add(b, "Cast", last, to="float16")]
        if hook == "fits":  # one value per column, which products alone take
            return [add(b, "Mul", last, random(b, b.types[last].shape[-1]))]
        return [add(b, "Tanh", last)]

    graph = network(behind, shape_for(hook, name))
    inputs = draw_inputs(graph, 3)[0]
    exe = compile(graph, Settings(threads=1))
    got = exe.run(inputs)
    for value, array in promised(graph, inputs).items():
        assert bits(got[value]) == bits(np.asarray(array))
    assert not exe.plan.on_reference
    labels = [c.label for c in calls(exe)]
    if hook == "layouts":
        sums = int(name in ("GroupNormalization", "Transpose"))  # its sums, its pixels want rows
        shows = sum(": to " in label for label in labels[1:]) <= sums
    else:
        shows = any(" + " in label and not label.startswith("quantize") for label in labels)
    assert shows, f"nothing shows of {hook}: {labels}"


@pytest.mark.parametrize(("hook", "name"), CASES)
def test_a_hook_shows_in_the_kernel_calls(hook: str, name: str) -> None:
    look(hook, name)


@pytest.mark.parametrize(("hook", "name"), CASES)
def test_deleting_a_hook_is_noticed(hook: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_away(hook, name, monkeypatch)
    with pytest.raises(AssertionError, match="nothing shows"):
        look(hook, name)

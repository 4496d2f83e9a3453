"""Every operator has a kernel or says why not, and no registered lowering can get lost.

An operator is native when one of its cases, its further inputs given to the network or constants in
it, leaves no step to the reference. The last test deletes every registration in turn.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import verax.ops
from tests.compiler.test_bits import bits
from tests.compiler.test_operators import graph_of
from verax.base.errors import UnsupportedError
from verax.base.option_groups.settings import Settings
from verax.compiler.compile import compile
from verax.compiler.executable import Executable
from verax.compiler.kernels import registry
from verax.compiler.kernels.convolution.planar_pooling import PlanarMaxSpec
from verax.compiler.kernels.convolution.pooling import PoolSpec
from verax.compiler.kernels.convolution.schedule import ConvSchedule
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.convolution.winograd import WinogradOutput
from verax.compiler.kernels.convolution.winograd_scales import WinogradScales
from verax.compiler.kernels.convolution.winograd_tiles import WinogradInput
from verax.compiler.kernels.loops.iota import IotaSpec
from verax.compiler.kernels.loops.loop import LoopSpec
from verax.compiler.kernels.products.attention_spec import AttentionSpec
from verax.compiler.kernels.products.block_scaled import BlockProductSpec, BlockSumsSpec
from verax.compiler.kernels.products.gemm import GemmSpec, PackSpec
from verax.compiler.kernels.products.stored import RowsSpec, WidenSpec
from verax.compiler.kernels.products.strassen_spec import StrassenSpec
from verax.compiler.kernels.products.visible_keys import UnusualSpec, VisibleKeysSpec
from verax.compiler.kernels.reduce.pairwise import PairwiseSpec
from verax.compiler.kernels.reduce.rows import ReduceSpec
from verax.compiler.kernels.reduce.running import RunningSpec
from verax.compiler.kernels.registry import ANY_TARGET, EMITTERS
from verax.compiler.kernels.search.chosen import KeptSpec, PlacesSpec, UniqueSpec
from verax.compiler.kernels.search.detect import DetectSpec
from verax.compiler.kernels.search.regions_of_interest import AlignSpec, RoiPoolSpec
from verax.compiler.kernels.search.scatter import ScatterSpec, StateCopySpec
from verax.compiler.kernels.search.suppress import SuppressSpec, TakenSpec
from verax.compiler.kernels.search.top import TopSpec
from verax.compiler.kernels.target import Target
from verax.compiler.place.calls import KernelCall
from verax.compiler.place.lowering import Lowering
from verax.compiler.plan.choice import MOVING, RULES, Planning
from verax.compiler.plan.graph_plan import plan_graph
from verax.compiler.plan.steps import Decisions
from verax.ir.graph import Graph
from verax.ir.operator import REGISTRY, Case
from verax.reference import promised

assert verax.ops
SUPPORTED = sorted(name for name, op in REGISTRY.items() if not op.unsupported)
TARGETS = [t for t in ("avx2", "avx512", "aarch64", "cuda-emulated") if Target.named(t).runs_here()]


USES = {ConvSpec: "Conv", GemmSpec: "MatMul", PackSpec: "MatMul", PoolSpec: "AveragePool",
        PlanarMaxSpec: "MaxPool", StrassenSpec: "StrassenMatMul",
        ReduceSpec: "Softmax", LoopSpec: "Relu", WinogradInput: "WinogradConv",
        WinogradOutput: "WinogradConv", WinogradScales: "WinogradConv", ScatterSpec: "ScatterND",
        RunningSpec: "CumSum", TopSpec: "TopK", AttentionSpec: "Attention",
        SuppressSpec: "BoxNMS", TakenSpec: "NonMaxSuppression", AlignSpec: "RoiAlign",
        RoiPoolSpec: "MaxRoiPool", PlacesSpec: "NonZero", DetectSpec: "MultiBoxDetection",
        UniqueSpec: "Unique"}  # fmt: skip
"""By type of spec, an operator whose network calls for it."""
ELSEWHERE = (
    RowsSpec, WidenSpec, KeptSpec, PairwiseSpec, StateCopySpec, IotaSpec, VisibleKeysSpec,
    UnusualSpec, BlockProductSpec, BlockSumsSpec,
)  # fmt: skip
"""Kernels of large weights: tests/compiler/test_stored_weights.py; of computed conditions:
tests/compiler/place/test_chosen.py; of sums of float64: tests/compiler/kernels/test_pairwise.py; of
state: tests/compiler/test_state_in_place.py; of open sizes:
tests/compiler/test_open_movement.py; of attention that
stops early: tests/compiler/test_attention_of_visible_keys.py; of blocks with scales:
tests/compiler/test_block_scaled.py."""


def networks(name: str) -> Iterator[tuple[Case, Graph, dict[str, np.ndarray]]]:
    seed = zlib.crc32(f"lowering of {name}".encode())
    for case in REGISTRY[name].cases(np.random.default_rng(seed)):
        for constant in (False, True):
            graph, fed = graph_of(case, constant)
            if fed and all(a.size for a in fed.values()):
                yield case, graph, fed


def compiled(graph: Graph, fed: dict[str, np.ndarray], target: str = "host") -> Executable:
    """The network at O0, where nothing is computed in advance; sizes known."""
    exe = compile(graph, Settings(opt_level=0, threads=1, target=target))
    exe.run(fed)
    return exe


def native_case(name: str) -> tuple[Graph, dict[str, np.ndarray]] | None:
    """The first network of the operator that runs natively."""
    for _, graph, fed in networks(name):
        if not compiled(graph, fed).plan.on_reference:
            return graph, fed
    return None


@pytest.mark.parametrize("name", SUPPORTED)
def test_an_operator_has_a_kernel_or_says_why_not(name: str) -> None:
    why = REGISTRY[name].no_kernel
    assert not (why and name in RULES), "a lowering is registered: no_kernel is out of date"
    if not why:
        assert native_case(name), "no case of it runs natively, and it does not say why"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", sorted(RULES))
def test_a_lowering_keeps_the_bits_on_every_target(name: str, target: str) -> None:
    found = native_case(name)
    assert found is not None
    graph, fed = found
    got = compiled(graph, fed, target).run(fed)
    for value, array in promised(graph, fed).items():
        assert bits(got[value]) == bits(np.asarray(array))


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_step_of_the_reference_says_why(name: str) -> None:
    _, graph, fed = next(networks(name))
    exe = compiled(graph, fed)
    reasons = [line.rpartition(": ")[2] for line in exe.plan.lines if " reference " in line]
    assert len(reasons) == len(exe.plan.on_reference)
    if reasons and reasons[0] != MOVING and REGISTRY[name].no_kernel:
        assert reasons == [REGISTRY[name].no_kernel]
    assert all(reasons)


@pytest.mark.parametrize("name", sorted(RULES))
def test_deleting_a_lowering_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(RULES, name)
    with pytest.raises(AssertionError, match="does not say why"):
        test_an_operator_has_a_kernel_or_says_why_not(name)


def test_a_network_that_must_be_native_names_what_is_not() -> None:
    wide = (n[1:] for n in networks("MultiBoxDetection") if n[0].inputs[0].dtype == np.float64)
    graph, fed = next(wide)
    with pytest.raises(UnsupportedError, match=r"MultiBoxDetection.*: it takes float32"):
        compile(graph, Settings(require_native=True)).run(fed)
    found = native_case("Relu")
    assert found is not None
    compile(found[0], Settings(require_native=True)).run(found[1])


@pytest.mark.parametrize(
    "key",
    sorted((k for k in EMITTERS if k[0] not in ELSEWHERE and k[1] == ANY_TARGET), key=str),
    ids=lambda key: key[0].__name__,
)
def test_deleting_an_emitter_is_noticed(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert key[0] in USES, "no network of these tests calls for it"
    monkeypatch.delitem(EMITTERS, key)
    with pytest.raises(KeyError, match=key[0].__name__):
        native_case(USES[key[0]])


def test_calls_are_data_until_all_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering needs no module of LLVM: with every emitter gone the calls are still there."""
    found = native_case("Conv")
    assert found is not None
    lowering = Lowering(found[0], Target.host(), Settings(threads=1))
    monkeypatch.setattr(registry, "emit", None)
    plan = plan_graph(Planning(found[0], Target.host(), Decisions(frozenset())))
    for step in plan.steps:
        RULES[step.group.root.op.kind].place_node(lowering, step.group, step.choice)
    calls = [s for s in lowering.calls.steps if isinstance(s, KernelCall)]
    assert [type(c.spec) for c in calls if isinstance(c.schedule, ConvSchedule)] == [ConvSpec]
    assert all("convolution" in str(c.spec) or "move" in str(c.spec) for c in calls)

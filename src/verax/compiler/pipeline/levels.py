"""Which passes run at which level, in one table derived from the passes' classes."""

from __future__ import annotations

import dataclasses

from verax.base.errors import UsageError
from verax.base.option_groups.settings import LEVELS, Settings
from verax.compiler.passes.base import Pass, PassClass
from verax.compiler.passes.block_products import block_products
from verax.compiler.passes.cancel_transposes import cancel_transposes
from verax.compiler.passes.canonicalize import canonicalize
from verax.compiler.passes.center_integers import center_integers
from verax.compiler.passes.choose_bfloat16 import choose_bfloat16
from verax.compiler.passes.choose_strassen import choose_strassen
from verax.compiler.passes.choose_winograd import choose_winograd
from verax.compiler.passes.flatten_windows import flatten_windows
from verax.compiler.passes.fold_attention_scales import fold_attention_scales
from verax.compiler.passes.fold_constants import fold_constants
from verax.compiler.passes.fold_pads import fold_pads
from verax.compiler.passes.fold_scales import fold_scales
from verax.compiler.passes.hoist_scales import hoist_scales
from verax.compiler.passes.integer_products import integer_products
from verax.compiler.passes.join_roundings import join_roundings
from verax.compiler.passes.merge_common import merge_common
from verax.compiler.passes.merge_linear import merge_linear
from verax.compiler.passes.move_dequantize import move_dequantize
from verax.compiler.passes.recognize_attention import recognize_attention
from verax.compiler.passes.recognize_gelu import recognize_gelu
from verax.compiler.passes.recognize_layer_norm import recognize_layer_norm
from verax.compiler.passes.recognize_lp_norm import recognize_lp_norm
from verax.compiler.passes.recognize_rms_norm import recognize_rms_norm
from verax.compiler.passes.recognize_softmax import recognize_softmax
from verax.compiler.passes.recognize_swish import recognize_swish
from verax.compiler.passes.reduce_strength import reduce_strength
from verax.compiler.passes.remove_dead_code import remove_dead_code
from verax.compiler.passes.remove_identity import remove_identity
from verax.compiler.passes.scale_quantized import scale_quantized
from verax.compiler.passes.share_constants import share_constants
from verax.compiler.passes.split_einsum import split_einsum
from verax.compiler.passes.tokens_as_images import tokens_as_images
from verax.compiler.passes.trim_kernels import trim_kernels
from verax.compiler.passes.widen_halves import widen_halves
from verax.compiler.pipeline.selected_rewrites import run_selected
from verax.compiler.pipeline.subgraphs import Bodies
from verax.compiler.pipeline.user_passes import passes_of, with_injected
from verax.compiler.plan.steps import STEPS
from verax.ir import checker
from verax.ir.graph import Graph, walk_values
from verax.records.trace import Rewrite, Trace

SIMPLE = ("fold_constants", "remove_identity", "cancel_transposes")
"""What makes the parts of a decomposition stand next to each other."""

PIPELINE: tuple[Pass, ...] = (
    Pass(integer_products, PassClass.reassociates),
    Pass(block_products, PassClass.reassociates),
    Pass(widen_halves, PassClass.exact, after=("integer_products",)),
    Pass(fold_constants, PassClass.exact),
    Pass(remove_identity, PassClass.exact),
    Pass(
        move_dequantize,
        PassClass.exact,
        after=("fold_constants", "integer_products", "remove_identity"),
    ),
    Pass(share_constants, PassClass.exact, after=("fold_constants",)),
    Pass(split_einsum, PassClass.reassociates, after=("fold_constants", "widen_halves")),
    Pass(canonicalize, PassClass.exact, after=("fold_constants", "remove_identity")),
    Pass(reduce_strength, PassClass.exact, after=("fold_constants", "remove_identity")),
    Pass(tokens_as_images, PassClass.exact, after=("fold_constants", "remove_identity")),
    Pass(
        cancel_transposes,
        PassClass.exact,
        after=("fold_constants", "remove_identity", "tokens_as_images"),
    ),
    Pass(hoist_scales, PassClass.exact, after=SIMPLE),
    Pass(
        fold_pads,
        PassClass.exact,
        after=("fold_constants", "remove_identity", "cancel_transposes", "move_dequantize"),
    ),
    Pass(trim_kernels, PassClass.reassociates, after=("fold_constants", "fold_pads")),
    Pass(recognize_layer_norm, PassClass.reassociates, after=SIMPLE),
    Pass(recognize_rms_norm, PassClass.reassociates, after=(*SIMPLE, "recognize_layer_norm")),
    Pass(recognize_gelu, PassClass.reassociates, after=SIMPLE),
    Pass(recognize_swish, PassClass.reassociates, after=SIMPLE),
    Pass(recognize_lp_norm, PassClass.reassociates, after=(*SIMPLE, "recognize_rms_norm")),
    Pass(recognize_softmax, PassClass.reassociates, after=SIMPLE),
    Pass(
        fold_scales,
        PassClass.reassociates,
        after=(*SIMPLE, "fold_pads", "recognize_layer_norm", "recognize_gelu", "recognize_swish"),
    ),
    Pass(merge_linear, PassClass.reassociates, after=("fold_constants", "fold_scales")),
    Pass(
        recognize_attention,
        PassClass.exact,
        after=(
            *(*SIMPLE, "reduce_strength", "recognize_softmax", "fold_scales", "merge_linear"),
            "hoist_scales",
        ),
    ),
    Pass(
        fold_attention_scales,
        PassClass.reassociates,
        after=("fold_scales", "recognize_attention"),
    ),
    Pass(
        choose_winograd,
        PassClass.approximates,
        after=("fold_constants", "fold_pads", "fold_scales", "merge_linear"),
    ),
    Pass(
        choose_bfloat16,
        PassClass.approximates,
        after=("fold_constants", "fold_scales", "merge_linear", "choose_winograd"),
        allowance="bf16",
    ),
    Pass(
        choose_strassen,
        PassClass.approximates,
        after=("fold_constants", "fold_scales", "merge_linear", "choose_bfloat16"),
    ),
    Pass(flatten_windows, PassClass.exact, after=("fold_constants", "cancel_transposes")),
    Pass(join_roundings, PassClass.exact, after=("fold_constants", "cancel_transposes")),
    Pass(
        center_integers,
        PassClass.exact,
        after=("fold_constants", "integer_products", "join_roundings"),
    ),
    Pass(
        scale_quantized,
        PassClass.reassociates,
        after=("fold_constants", "fold_scales", "center_integers"),
    ),
    Pass(merge_common, PassClass.exact, after=("fold_constants", "share_constants")),
    Pass(remove_dead_code, PassClass.exact, after=("merge_common", "remove_identity")),
)
"""Every pass, in the order in which they run."""

FIRST_LEVEL = {PassClass.exact: 1, PassClass.reassociates: 2, PassClass.approximates: 3}
"""The lowest level that admits passes of a class; those above admit them as well."""

CLASSES: dict[int, frozenset[PassClass]] = {
    level: frozenset(kind for kind, first in FIRST_LEVEL.items() if first <= level)
    for level in LEVELS
}
"""Classes of passes that each level admits."""


def classes_at(level: int) -> frozenset[PassClass]:
    """Classes of passes that a level admits."""
    return CLASSES[level]


for _i, _pass in enumerate(PIPELINE):
    assert set(_pass.after) <= {p.name for p in PIPELINE[:_i]}, f"{_pass.name} runs too early"


def passes_for(settings: Settings) -> tuple[Pass, ...]:
    """The passes that run. Raises `UsageError` for names that no pass has, and for passes asked
    for that the level does not admit."""
    pipeline = with_injected(PIPELINE, settings.inject)
    kinds = kinds_of(pipeline)
    for name in (*settings.disable, *settings.require, *(settings.passes or ())):
        if name not in kinds:
            raise UsageError(
                f"unknown pass {name!r}", next_step=f"choose from {', '.join(sorted(kinds))}"
            )
    clash = set(settings.disable) & {*settings.require, *(settings.passes or ())}
    if clash:
        raise UsageError(f"{', '.join(sorted(clash))} is both disabled and required")
    admitted = CLASSES[settings.opt_level]
    requested = {*(settings.passes or ()), *(p.name for f in settings.inject for p in passes_of(f))}
    for name in sorted(requested - {*settings.require, *settings.disable}):
        if kinds[name] not in admitted:
            raise UsageError(
                f"the pass {name!r} does not run at O{settings.opt_level}",
                next_step=f"it {kinds[name]}: ask for O{FIRST_LEVEL[kinds[name]]}",
            )
    only = kinds if settings.passes is None else settings.passes
    return tuple(
        p
        for p in pipeline
        if p.name in settings.require
        or (
            p.kind in admitted
            and p.name not in settings.disable
            and p.name in only
            and (not p.allowance or p.allowance in settings.allow)
        )
    )


def kinds_of(pipeline: tuple[Pass, ...]) -> dict[str, PassClass]:
    """What each pass and each decision may do to numbers, by name."""
    return {**{p.name: p.kind for p in pipeline}, **{s.name: s.kind for s in STEPS}}


def decisions_only(settings: Settings) -> Settings:
    """`settings` for a graph on which the passes have run: only the decisions are left."""
    names = {s.name for s in STEPS}
    only = names if settings.passes is None else names & {*settings.passes}
    return dataclasses.replace(
        settings,
        opt_level=FIRST_LEVEL[PassClass.exact],
        passes=tuple(sorted(only - {*settings.disable})),
        disable=(),
        require=tuple(n for n in settings.require if n in names),
        inject=(),
        allow=(),
    )


@dataclasses.dataclass(frozen=True)
class Change:
    """What one pass did that may change numbers: the graph before and after it, its rewrites."""

    name: str
    before: Graph
    after: Graph
    rewrites: tuple[Rewrite, ...]


def run_passes(
    graph: Graph, settings: Settings, changes: list[Change] | None = None
) -> tuple[Graph, Trace]:
    """Run the level's passes; in checked mode the graph is verified before and after each.

    `settings.stop_after` rewrites are done over all passes, of `settings.steps` if there are any;
    the trace names each one. A pass runs in the bodies of branches and loops right behind the rest
    (`inside`). changes: gets those that may change numbers.
    """
    trace = Trace({v: v for v in walk_values(graph)})
    bodies = Bodies(settings.steps)
    for step in passes_for(settings):
        if settings.checked:
            checker.check(graph)
        stop = settings.stop_after
        left = None if stop is None else stop - trace.rewrites
        before = graph
        if settings.steps is None:
            graph, change = step.apply(graph, left, settings.keep_exact)
        else:
            graph, change = run_selected(step, graph, left, settings.steps, settings.keep_exact)
        graph, inner = bodies.apply(step, graph, None if left is None else left - change.rewrites)
        if inner:
            change = change.then(Trace({v: v for v in graph.types}, tuple(inner)))
        if change.rewrites and step.kind is not PassClass.exact and changes is not None:
            changes.append(Change(step.name, before, graph, change.records))
        trace = trace.then(change)
    if settings.checked:
        checker.check(graph)
    return graph, trace

"""Who makes products of matrices and convolutions on a GPU: tiles of a block's threads where they
can, outputs of a thread where channels do not mix or groups are small, else the CPU's emitters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from verax.compiler.kernels.convolution import emit as convolution
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.gpu import depthwise, grouped
from verax.compiler.kernels.gpu.contraction import emit_tiled, takes
from verax.compiler.kernels.gpu.tiles import TILED, TileSchedule, tile_schedule
from verax.compiler.kernels.gpu.words import in_words
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.products import gemm
from verax.compiler.kernels.products.gemm import GemmSpec
from verax.compiler.kernels.registry import (
    ANY_TARGET,
    EMITTERS,
    Schedule,
    Space,
    Stage,
    emits,
)
from verax.compiler.kernels.sizes import entries
from verax.compiler.kernels.target import Target


def _itself(spec: ConvSpec) -> ConvSpec:
    return spec


def _register(kind: type, dtypes: Sequence[str], as_convolution: Callable[[Any], ConvSpec]) -> None:
    """Register the emitter of `kind` for GPUs; `as_convolution` gives what it computes."""
    elsewhere = EMITTERS[kind, ANY_TARGET]

    def schedules(spec: Any, target: Target) -> Sequence[Schedule]:
        conv = as_convolution(spec)
        if depthwise.takes(conv):
            return (depthwise.strip_schedule(conv),)
        if grouped.takes(conv):
            return (grouped.FilterSchedule(),)
        if not takes(conv):
            return elsewhere.schedules(spec, target)
        return (tile_schedule(in_words(conv), target),)

    def stages(spec: Any, target: Target) -> Sequence[Stage]:
        conv = as_convolution(spec)
        if depthwise.takes(conv) or grouped.takes(conv):
            return () if entries(conv) else (depthwise.strips_tried,)
        return TILED.stages(in_words(conv), target) if takes(conv) else ()

    def admits(spec: Any, target: Target, schedule: Any) -> bool:
        conv = as_convolution(spec)
        if depthwise.takes(conv):
            return not entries(conv) and depthwise.strips_admitted(conv, schedule)
        if grouped.takes(conv):
            return not entries(conv) and grouped.filters_admitted(schedule)
        return takes(conv) and TILED.admits(conv, target, schedule)

    @emits(
        kind,
        dtypes=dtypes,
        schedules=schedules,
        target="gpu",
        space=Space(
            TileSchedule, stages, admits, (depthwise.StripSchedule, grouped.FilterSchedule)
        ),
        settle=elsewhere.settle,
    )
    def emit(module: ModuleBuilder, spec: Any, schedule: Any) -> Kernel:
        if isinstance(schedule, depthwise.StripSchedule):
            return depthwise.emit_strips(module, as_convolution(spec), schedule)
        if isinstance(schedule, grouped.FilterSchedule):
            return grouped.emit_filters(module, as_convolution(spec), schedule)
        if not isinstance(schedule, TileSchedule):
            return elsewhere.emit(module, spec, schedule)
        return emit_tiled(module, as_convolution(spec), schedule)


_register(ConvSpec, convolution.KNOWN, _itself)
_register(GemmSpec, gemm.KNOWN, GemmSpec.convolution)

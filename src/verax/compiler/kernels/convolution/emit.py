"""Convolution of any kind: chooses the kernel, its schedule and the packing that go together.

Ordinary and transposed, one to three axes, every number of groups. The direct kernel is the fast
one; depthwise convolutions have their own; groups that cut through blocks of 16 channels take a
general path.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from verax.compiler.kernels.convolution.depthwise import (
    depthwise_schedule,
    emit_depthwise,
    pack_depthwise_weights,
)
from verax.compiler.kernels.convolution.direct import emit_direct
from verax.compiler.kernels.convolution.grouped import emit_grouped, pack_grouped_weights
from verax.compiler.kernels.convolution.pack import (
    pack_channels,
    pack_direct_weights,
    weights_by_group,
)
from verax.compiler.kernels.convolution.schedule import ConvSchedule, direct_schedule
from verax.compiler.kernels.convolution.space import CONVOLUTION
from verax.compiler.kernels.convolution.spec import ConvSpec
from verax.compiler.kernels.dtypes import CONTRACTED
from verax.compiler.kernels.llvm.builder import Kernel, ModuleBuilder
from verax.compiler.kernels.registry import emits
from verax.compiler.kernels.sizes import numbers
from verax.compiler.kernels.target import Target

KNOWN = CONTRACTED
"""Element types of the convolution kernels: of sums float32, float64, or of integers int32 and
int64; halves are what an epilogue reads and makes."""

__all__ = ["default_schedule", "emit_conv", "pack_channels", "pack_conv_weights"]


def _with_known_channels(spec: ConvSpec) -> ConvSpec:
    """The direct and the depthwise kernel read batch and image sizes at run time."""
    is_depthwise = spec.depthwise and spec.x.lane == 1
    if spec.paired or not (is_direct(spec) or is_depthwise):
        return numbers(spec)
    return dataclasses.replace(spec, channels=numbers(spec.channels), filters=numbers(spec.filters))


@emits(
    ConvSpec,
    dtypes=KNOWN,
    schedules=lambda spec, target: (default_schedule(spec, target),),
    space=CONVOLUTION,
    settle=_with_known_channels,
)
def emit_conv(module: ModuleBuilder, spec: ConvSpec, schedule: ConvSchedule) -> Kernel:
    """The kernel for `spec`, of whichever kind suits it; arguments as `ConvSpec` lists them."""
    if spec.depthwise and spec.x.lane == 1:
        return emit_depthwise(module, spec, schedule)
    if not spec.aligned:
        return emit_grouped(module, spec, schedule)
    return emit_direct(module, spec, schedule)


def is_direct(spec: ConvSpec) -> bool:
    """Whether `emit_direct` makes the kernel."""
    return spec.aligned and not (spec.depthwise and spec.x.lane == 1)


def pack_conv_weights(weights: np.ndarray, spec: ConvSpec, schedule: ConvSchedule) -> np.ndarray:
    """The weights as one vector, in the order in which `emit_conv`'s kernel reads them.

    weights: (filters, channels / groups, kernel...), or (channels, filters / groups, kernel...)
    when transposed, with one to three kernel axes.
    """
    if spec.depthwise and spec.x.lane == 1:
        return pack_depthwise_weights(weights, spec)
    if not spec.aligned:
        return pack_grouped_weights(weights_by_group(weights, spec), spec)
    return pack_direct_weights(weights, spec, schedule)


def default_schedule(spec: ConvSpec, target: Target) -> ConvSchedule:
    """A schedule by rule, for `emit_conv` and `pack_conv_weights` alike."""
    if spec.depthwise and spec.x.lane == 1:
        return depthwise_schedule(spec, target)
    return direct_schedule(spec, target)

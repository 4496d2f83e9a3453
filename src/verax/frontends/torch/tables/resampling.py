"""ATen resampling: upsample_* with sizes or scales, and grid_sampler."""

from __future__ import annotations

import math
from typing import Any

from verax.frontends.common.context import Result
from verax.frontends.torch.rows import Aten, row

MODES = {
    "nearest": "nearest",
    "_nearest_exact": "nearest",
    "linear": "linear",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}
NAMES = {
    1: ("nearest1d", "linear1d", "_nearest_exact1d"),
    2: ("nearest2d", "bilinear2d", "bicubic2d", "_nearest_exact2d"),
    3: ("nearest3d", "trilinear3d", "_nearest_exact3d"),
}
AXES = ("d", "h", "w")


def _operators(overload: str) -> list[str]:
    names_found = []
    for names in NAMES.values():
        for name in names:
            exact = name.startswith("_")
            names_found.append(f"{'_' if exact else ''}upsample_{name.lstrip('_')}.{overload}")
    extra = [f"_upsample_{m}2d_aa.{overload}" for m in ("bilinear", "bicubic")]
    return names_found + extra


@row(*_operators("vec"), *_operators("default"))
def upsample(t: Aten) -> Result:
    """Scales decide the coordinates where they are given, else the ratio of the sizes."""
    name = t.kind.removeprefix("_").removeprefix("upsample_").removesuffix("_aa")
    rank = int(name[-2])
    mode = "cubic" if name.startswith("bicubic") else "linear"
    fields: dict[str, Any] = {"axes": tuple(range(2, rank + 2))}
    x = t.tensor("input" if t.a.has("input") else "self")
    if "nearest" in name:
        mode = "nearest"
        exact = "exact" in name
        fields["coordinate_transformation_mode"] = "half_pixel" if exact else "asymmetric"
        fields["nearest_mode"] = "round_prefer_ceil" if exact else "floor"
    else:
        aligned = t.flag("align_corners")
        fields["coordinate_transformation_mode"] = "align_corners" if aligned else "half_pixel"
        smooth = t.kind.endswith("_aa")
        if smooth and aligned:
            t.a.refuse("align_corners", "with a filter that is widened to the scale")
        if smooth:
            # Filters are cut off at the border and made to sum to one again; the cubic is another.
            fields.update(antialias=True, exclude_outside=True, cubic_coeff_a=-0.5)
    scales = _scales(t, rank)
    output_size = t.a.get("output_size")
    if output_size is not None and (scales is None or t.node.op_type.endswith("default")):
        if scales is not None and not _consistent(t, x, scales):
            t.refuse("sizes and scales that disagree")
        return t.result("Resize", [x, None, None, t.vector(output_size)], mode=mode, **fields)
    if scales is None:
        t.refuse("neither a size nor scales")
    is_integral = all(f.is_integer() for f in scales)
    if fields["coordinate_transformation_mode"] == "align_corners" and not is_integral:
        # The corners of whole pixels meet: what a scale leaves beyond the last counts for nothing.
        static_sizes = t.known_sizes(x, fields["axes"])
        sizes = [math.floor(n * f) for n, f in zip(static_sizes, scales)]
        return t.result("Resize", [x, None, None, t.ints(sizes)], mode=mode, **fields)
    factors = t.constant(scales, "float32")
    return t.result("Resize", [x, None, factors], mode=mode, **fields)


def _scales(t: Aten, rank: int) -> tuple[float, ...] | None:
    if t.node.op_type.endswith("vec"):
        factors = t.numbers("scale_factors")
        return None if factors is None else tuple(map(float, factors))
    names = [f"scales_{a}" for a in AXES[3 - rank :]] if rank > 1 else ["scales"]
    values = [t.scalar(n) for n in names]
    return None if None in values else tuple(map(float, values))


def _consistent(t: Aten, x: str, scales: tuple[float, ...]) -> bool:
    """Whether each output size is exactly scale times the input's."""
    output = t.a.get("output_size")
    dims = t.type(x).dims[2:]
    return all(
        type(m) is int and isinstance(n, int) and m == n * s
        for n, m, s in zip(dims, output, scales)
    )


INTERPOLATION = ("linear", "nearest", "cubic")
PADDING = ("zeros", "border", "reflection")


@row("grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(t: Aten) -> Result:
    mode, padding = t.integer("interpolation_mode"), t.integer("padding_mode")
    if mode not in range(3) or padding not in range(3):
        t.refuse(f"interpolation {mode} with padding {padding}")
    return t.result(
        "GridSample",
        [t.tensor("input"), t.tensor("grid")],
        mode=INTERPOLATION[mode],
        padding_mode=PADDING[padding],
        align_corners=t.flag("align_corners"),
    )

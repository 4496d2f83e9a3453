"""Overloads of ATen operators that programs have, but that no function of `torch` asks for by
itself: what decompositions leave, other names of an operator, and sizes as values.

Each is called as `torch.ops` has it, so that an exported program holds exactly this overload.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from torch_cases import draw, positive, whole
from torch_programs import export, torch

from verax.frontends.common.foreign import ForeignModel, ForeignNode, ForeignValue
from verax.frontends.common.importing import Importer
from verax.frontends.model import Model
from verax.frontends.torch.arguments import Ref
from verax.frontends.torch.table import TABLE
from verax.ir.types import DType

a = torch.ops.aten
IMAGE, LINE, CUBE = draw(2, 4, 6, 8), draw(2, 4, 9), draw(2, 4, 5, 6, 7)
X, Y, BITS = draw(2, 3, 5), draw(2, 3, 5, seed=1), whole(2, 3, 5)
SQUARE, MASK = draw(4, 4), draw(2, 3, 5) > 0
FOUR, SPREAD, TWO = draw(4), positive(4), torch.tensor(2.0)
PLACES = whole(2, 2, 5, low=0, high=2)
Run = Callable[..., Any]
Case = tuple[Run, tuple[Any, ...]]


def _each(run: Callable[[str], Run], *names: str, of: tuple[Any, ...]) -> dict[str, Case]:
    return {name: (run(name), of) for name in names}


def _overload(name: str) -> Any:
    kind, _, overload = name.partition(".")
    return getattr(getattr(a, kind), overload)


def _of(*more: Any, **named: Any) -> Callable[[str], Run]:
    """Calls an overload with constant arguments behind its tensors."""
    return lambda name: lambda *tensors: _overload(name)(*tensors, *more, **named)


def _first(*more: Any) -> Callable[[str], Run]:
    """As `_of`, of an operator whose further results nobody uses."""
    return lambda name: lambda *tensors: _overload(name)(*tensors, *more)[0]


CALLS: dict[str, Case] = {
    **_each(_of(), "__and__.Tensor", "bitwise_and.Tensor", "bitwise_or.Tensor",
            "bitwise_xor.Tensor", of=(BITS, whole(2, 3, 5, low=1))),
    **_each(_of(5), "__and__.Scalar", "__or__.Scalar", "__xor__.Scalar", "bitwise_and.Scalar",
            "bitwise_or.Scalar", "bitwise_xor.Scalar", of=(BITS,)),
    **_each(_of(1.5), "add.Scalar", "sub.Scalar", "rsub.Scalar", "mul.Scalar", "div.Scalar",
            "lt.Scalar", "le.Scalar", "gt.Scalar", "ge.Scalar", "eq.Scalar", "ne.Scalar",
            "clamp_min.default", "clamp_max.default", of=(X,)),
    **_each(_of(), "rsub.Tensor", "remainder.Tensor", "fmod.Tensor", "lt.Tensor", "le.Tensor",
            "gt.Tensor", "ge.Tensor", "eq.Tensor", "ne.Tensor", "clamp_min.Tensor",
            "clamp_max.Tensor", "clamp.Tensor", "to.other", of=(X, Y)),
    **_each(_of(1.5, rounding_mode="floor"), "div.Scalar_mode", of=(X,)),
    **_each(_of(), "true_divide.Tensor", of=(X, Y)),
    **_each(_of(1.5), "true_divide.Scalar", of=(X,)),
    **_each(_of(0, 2), "swapdims.default", of=(X,)),
    **_each(_of([3, 2]), "_adaptive_avg_pool2d.default", of=(IMAGE,)),
    **_each(_of([3, 2, 4]), "_adaptive_avg_pool3d.default", of=(CUBE,)),
    **_each(_of(1, False), "_softmax.default", "_log_softmax.default", of=(X,)),
    **_each(_of(), "_prelu_kernel.default", of=(X, draw(1, 1, 1))),
    **_each(_of(), "alias.default", "positive.default",
            "all.default", "std.default", "var.default", "var_mean.default", "std_mean.default",
            "argsort.default", of=(X,)),
    **_each(_of([1], correction=0), "std.correction",
            "var.correction", "var_mean.correction", "std_mean.correction", of=(X,)),
    **_each(_of([1]), "std.dim", "var.dim", "std_mean.dim", "var_mean.dim", of=(X,)),
    **_each(_of([0, 2]), "any.dims", "all.dims", of=(MASK,)),
    **_each(_of(stable=True), "argsort.stable", "sort.stable", of=(X,)),
    **_each(_of(2.0, [1], True), "norm.ScalarOpt_dim", of=(X,)),
    **_each(_of(0.5, False), "alpha_dropout.default", "feature_dropout.default", of=(X,)),
    **_each(_of([1, 2]), "constant_pad_nd.default", "reflection_pad1d.default",
            "replication_pad1d.default", of=(LINE,)),
    **_each(_of([1, 2, 2, 1]), "reflection_pad2d.default", "replication_pad2d.default",
            of=(IMAGE,)),
    **_each(_of([1, 2, 2, 1, 1, 0]), "reflection_pad3d.default", "replication_pad3d.default",
            of=(CUBE,)),
    **_each(_of(None, [2], [1], [1], 2), "conv1d.default", of=(LINE, draw(6, 2, 3))),
    **_each(_of(None, [1], "same"), "conv1d.padding", of=(LINE, draw(6, 4, 3))),
    **_each(_of(None, [2, 1], [1, 0]), "conv2d.default", of=(IMAGE, draw(6, 4, 3, 2))),
    **_each(_of(None, [1, 1], "valid"), "conv2d.padding", of=(IMAGE, draw(6, 4, 3, 2))),
    **_each(_of(None, [2, 1, 1]), "conv3d.default", of=(CUBE, draw(6, 4, 3, 2, 2))),
    **_each(_of(None, [1, 1, 1], "same"), "conv3d.padding", of=(CUBE, draw(6, 4, 3, 2, 2))),
    **_each(_of(None, [2]), "conv_transpose1d.default", of=(LINE, draw(4, 6, 3))),
    **_each(_of(None, [2, 1]), "conv_transpose2d.input", of=(IMAGE, draw(4, 6, 3, 2))),
    **_each(_of(None, [2, 1, 1]), "conv_transpose3d.input", of=(CUBE, draw(4, 6, 3, 2, 2))),
    **_each(_of(None, [2, 1], [1, 0], [1, 1], False, [0, 0], 1), "convolution.default",
            of=(IMAGE, draw(6, 4, 3, 2))),
    **_each(_of([2, 3]), "_unsafe_view.default", of=(draw(3, 2),)),
    **_each(_of(), "copy.default", of=(X, draw(3, 5))),
    **_each(_of(dtype=torch.float64), "_to_copy.default", of=(X,)),
    **_each(_of(torch.device("cpu"), torch.float64), "to.device", of=(X,)),
    **_each(_of(dtype=torch.float64), "to.dtype_layout", of=(X,)),
    **_each(_of(1, torch.tensor([0, 2]), TWO),
            "index_fill.int_Tensor", of=(X,)),
    **_each(_of(), "masked_fill.Tensor", of=(X, MASK, TWO)),
    **_each(_of(), "fill.Tensor", of=(X, TWO)),
    **_each(_of(0, 0, False), "grid_sampler_2d.default", of=(IMAGE, draw(2, 3, 5, 2))),
    **_each(_of(0, 0, False), "grid_sampler_3d.default", of=(CUBE, draw(2, 3, 5, 4, 3))),
    **_each(_first(FOUR, FOUR, 2, 4, 48, 2, 1e-5), "native_group_norm.default", of=(IMAGE,)),
    **_each(_first([8], None, None, 1e-5), "native_layer_norm.default", of=(IMAGE,)),
    **_each(_first(FOUR, FOUR, FOUR, SPREAD, 0.1, 1e-5),
            "_native_batch_norm_legit_no_training.default", of=(IMAGE,)),
    **_each(_first(FOUR, FOUR, True, 0.1, 1e-5), "_native_batch_norm_legit.no_stats", of=(IMAGE,)),
    **_each(_of([12, 11], False, None), "upsample_bilinear2d.default", "upsample_bicubic2d.default",
            "_upsample_bilinear2d_aa.default", "_upsample_bicubic2d_aa.default", of=(IMAGE,)),
    **_each(_of([12, 11]), "upsample_nearest2d.default", "_upsample_nearest_exact2d.default",
            of=(IMAGE,)),
    **_each(_of([11], None), "upsample_nearest1d.default", "_upsample_nearest_exact1d.default",
            of=(LINE,)),
    **_each(_of([11], False), "upsample_linear1d.default", of=(LINE,)),
    **_each(_of([7, 8, 9]), "upsample_nearest3d.default", "_upsample_nearest_exact3d.default",
            of=(CUBE,)),
    **_each(_of([7, 8, 9], True), "upsample_trilinear3d.default", of=(CUBE,)),
    **_each(_first(), "_weight_norm_interface.default", of=(draw(3, 4), positive(3, 1))),
    "arange.default": (lambda x: x + a.arange.default(5), (X,)),
    "arange.start": (lambda x: x + a.arange.start(1, 6), (X,)),
    "eye.default": (lambda x: x + a.eye.default(4), (SQUARE,)),
    "meshgrid.default": (lambda x, y: a.meshgrid.default([x, y]), (FOUR, draw(3))),
    "where.Scalar": (lambda m: a.where.Scalar(m, 1.0, 2.0), (MASK,)),
    "where.ScalarSelf": (lambda m, x: a.where.ScalarSelf(m, 1.5, x), (MASK, X)),
    "split.sizes": (lambda x: a.split.sizes(x, [1, 2], 1)[1], (X,)),
    "scatter.reduce": (
        lambda x, i, y: a.scatter.reduce(x, 1, i, y, reduce="add"), (X, PLACES, draw(2, 2, 5))),
    "scatter.value_reduce": (
        lambda x, i: a.scatter.value_reduce(x, 1, i, 1.5, reduce="multiply"), (X, PLACES)),
    "rrelu_with_noise.default": (lambda x, n: a.rrelu_with_noise.default(x, n), (X, Y)),
    "rrelu_with_noise_functional.default": (
        lambda x, n: a.rrelu_with_noise_functional.default(x, n)[0], (X, Y)),
    "_scaled_dot_product_flash_attention_for_cpu.default": (
        lambda q: a._scaled_dot_product_flash_attention_for_cpu.default(q, q, q)[0],
        (draw(2, 3, 5, 8),)),
    "_native_batch_norm_legit.default": (
        lambda x: a._native_batch_norm_legit.default(x, None, None, FOUR, SPREAD, False, 0.1,
                                                     1e-5)[0], (IMAGE,)),
}  # fmt: skip


@functools.cache
def exported(name: str) -> Any:
    """The program of one call."""
    run, tensors = CALLS[name]
    return export(run, tensors)


Node = tuple[str, str, tuple[np.ndarray, ...], dict[str, Any]]
"""Domain, name, tensors and further arguments; "$i" is tensor i."""
SIZES = (np.array(7), np.array(3))
BOXES = np.array([[0, 0, 4, 4], [1, 1, 5, 5], [6, 0, 9, 3]], np.float32)
EXPERTS = (
    np.random.default_rng(91).standard_normal((7, 4)).astype(np.float32),
    np.random.default_rng(92).standard_normal((4, 4, 5)).astype(np.float32),
    np.array([2, 2, 5, 6], np.int32),
)
"""Rows of four experts, the second of which has none, and one row behind the last."""
NODES: list[Node] = [
    *(("_operator", kind, SIZES, {"x": "$0", "y": "$1"})
      for kind in ("add", "sub", "mul", "floordiv", "mod", "truediv", "eq", "ne", "lt", "le", "gt",
                   "ge")),
    ("_operator", "neg", SIZES[:1], {"x": "$0"}),
    *(("math", kind, (np.array(2.5),), {"x": "$0"}) for kind in ("ceil", "floor", "trunc")),
    *(("torch", kind, SIZES, {"x": "$0", "y": "$1"}) for kind in ("sym_max", "sym_min")),
    ("torchvision", "nms.default", (BOXES, np.array([0.5, 0.9, 0.7], np.float32)),
     {"dets": "$0", "scores": "$1", "iou_threshold": 0.4}),
    ("torchvision", "roi_align.default",
     (np.ones((1, 2, 9, 8), np.float32), np.array([[0, 1, 1, 6, 5]], np.float32)),
     {"input": "$0", "rois": "$1", "spatial_scale": 1.0, "pooled_height": 3, "pooled_width": 2,
      "sampling_ratio": 2, "aligned": True}),
    ("torchvision", "ps_roi_align.default",
     (np.ones((1, 6, 9, 8), np.float32), np.array([[0, 1, 1, 6, 5]], np.float32)),
     {"input": "$0", "rois": "$1", "spatial_scale": 1.0, "pooled_height": 3, "pooled_width": 2,
      "sampling_ratio": 2}),
    ("torchvision", "roi_pool.default",
     (np.ones((1, 6, 9, 8), np.float32), np.array([[0, 1, 1, 6, 5]], np.float32)),
     {"input": "$0", "rois": "$1", "spatial_scale": 1.0, "pooled_height": 3, "pooled_width": 2}),
    ("torchvision", "deform_conv2d.default",
     tuple(np.ones(s, np.float32)
           for s in ((2, 3, 5, 6), (4, 3, 2, 2), (2, 8, 4, 5), (2, 1), (4,))),
     {"input": "$0", "weight": "$1", "offset": "$2", "mask": "$3", "bias": "$4", "stride_h": 1,
      "stride_w": 1, "pad_h": 0, "pad_w": 0, "dilation_h": 1, "dilation_w": 1, "groups": 1,
      "offset_groups": 1, "use_mask": False}),
    ("prims", "scalar_tensor.default", SIZES[:1], {"s": 2.5}),
    ("transformers", "grouped_mm_fallback.default", EXPERTS,
     {"input": "$0", "weight": "$1", "offs": "$2"}),
    ("verax", "copy", SIZES[:1], {}),
    *(("aten", kind, (np.ones((1,), np.float32),), {"self": "$0"})
      for kind in ("item.default", "_local_scalar_dense.default", "lift_fresh.default",
                   "sym_numel.default")),
    ("aten", "_native_batch_norm_legit_functional.default",
     (np.ones((2, 3, 4), np.float32), np.zeros(3, np.float32), np.ones(3, np.float32)),
     {"input": "$0", "running_mean": "$1", "running_var": "$2", "training": True, "momentum": 0.1,
      "eps": 1e-5}),
    *(("aten", kind, SIZES[:1], {"size": "$0"})
      for kind in ("sym_constrain_range.default", "sym_constrain_range_for_size.default",
                   "_assert_async.msg")),
]  # fmt: skip
"""What programs with open sizes or operators of other libraries hold, as single nodes."""


def imported(case: Node) -> Model:
    """The program of one node; the first tensor is its input, the others are weights."""
    domain, kind, tensors, arguments = case
    names = [f"x{i}" for i in range(len(tensors))]
    given = {
        k: Ref(int(v[1:]), f"x{v[1:]}") if isinstance(v, str) else v for k, v in arguments.items()
    }
    outputs = () if "range" in kind or "assert" in kind else ("y",)
    node = ForeignNode(kind, tuple(names), outputs, given, "y", domain)
    x = ForeignValue("x0", DType(str(tensors[0].dtype)), tensors[0].shape)
    result = ForeignValue(outputs[0] if outputs else "x0", None, None)
    weights = dict(zip(names[1:], tensors[1:]))
    foreign = ForeignModel(kind, (x,), (result,), (node,), weights, {}, {}, {"torch": "test"})
    return Importer(foreign, TABLE).run(kind, "PyTorch")


def renamed(run: Run, tensors: tuple[Any, ...], old: str, new: str) -> Any:
    """A program with another name of PyTorch's for an operator in the place of the first."""
    program = export(run, tensors)
    for node in program.graph.nodes:
        if str(node.target) == f"aten.{old}":
            node.target = _overload(new)
    return program

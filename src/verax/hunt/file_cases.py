"""Cases that only a file states: `auto_pad`, sizes left to the run, forms of old operator sets.

A graph of ours has its pads resolved and its sizes known, and is written in operator set 13 or
later. What runtimes make of the other forms is tried with models written here node by node; our own
importer reads them as well, so that a misreading of ours shows as an opinion that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from verax.export.onnx.writer import to_onnx
from verax.frontends.model import Model
from verax.hunt.case import DrawnCase, NoCase, pick
from verax.loading import load
from verax.onnx_format.dtypes import newest_opset
from verax.onnx_format.package import checker, helper, numpy_helper, onnx

IR_VERSION = 10
Written = tuple[str, str, list[object], dict[str, np.ndarray], dict[str, np.ndarray], list[str]]
"""The operator, why, nodes, inputs, initializers, and the names of the outputs."""


def read(proto: onnx.ModelProto, aim: str, reason: str, inputs: dict[str, np.ndarray]) -> DrawnCase:
    """The case of a model. Raises `NoCase` when the standard's checker refuses it, and
    `VeraxError` when we do."""
    try:
        checker.check_model(proto, full_check=True)
    except Exception as error:  # the checker's own classes of errors have no common base
        raise NoCase from error
    model = load(proto)
    assert isinstance(model, Model)
    return DrawnCase(aim, reason, model.graph, inputs, proto.SerializeToString())


def _model(written: Written, opset: int, symbols: Callable[[str, int], object]) -> onnx.ModelProto:
    """symbols: gives the declared size of an axis of an input of so many elements."""
    _, _, nodes, inputs, constants, outputs = written
    values = []
    for name, array in inputs.items():
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        dims = [symbols(f"{name}{axis}", size) for axis, size in enumerate(array.shape)]
        values.append(helper.make_tensor_value_info(name, code, dims))
    graph = helper.make_graph(
        nodes,
        "case",
        values,
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(a, name) for name, a in constants.items()],
    )
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION
    )
    return _typed(proto)


def _typed(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the types of its outputs, which the standard requires."""
    inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True, data_prop=True)
    for declared, typed in zip(proto.graph.output, inferred.graph.output):
        declared.CopyFrom(typed)
    return proto


def _sizes(random: np.random.Generator) -> tuple[Callable[[str, int], object], str]:
    """Sizes as numbers, as symbols, or some of each; in words."""
    share = pick(random, (0.0, 0.0, 0.5, 1.0))
    words = {0.0: "", 0.5: ", some sizes symbolic", 1.0: ", all sizes symbolic"}[share]
    return lambda name, size: f"n_{name}" if random.random() < share else size, words


def automatic_pads(random: np.random.Generator) -> DrawnCase:
    """A window operator with `auto_pad`, of 1 to 3 spatial axes."""
    kind = pick(random, ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "ConvInteger",
                         "QLinearConv"))  # fmt: skip
    rank = pick(random, (1, 2, 2, 3))
    spatial = [int(n) for n in random.integers(5, 10, rank)]
    kernel = [int(n) for n in random.integers(1, 5, rank)]
    auto_pad = pick(random, ("SAME_UPPER", "SAME_LOWER", "SAME_LOWER", "VALID"))
    attributes: dict[str, object] = {"auto_pad": auto_pad, "kernel_shape": kernel}
    attributes["strides"] = [int(n) for n in random.integers(1, 4, rank)]
    opset = int(random.integers(8, newest_opset() + 1))
    has_dilations = kind not in ("AveragePool", "LpPool", "MaxPool") or opset >= 19
    if has_dilations and random.random() < 0.5:
        attributes["dilations"] = [int(n) for n in random.integers(1, 3, rank)]
    if kind == "AveragePool" and random.random() < 0.5:
        attributes["count_include_pad"] = 1
    if kind in ("MaxPool", "AveragePool") and opset >= 10 and random.random() < 0.3:
        attributes["ceil_mode"] = 1
    group = pick(random, (1, 1, 2)) if kind in ("Conv", "ConvTranspose") else 1
    channels, out = 4, 6
    if group > 1:
        attributes["group"] = group
    if kind == "ConvTranspose" and random.random() < 0.3:
        attributes["output_padding"] = [
            int(random.integers(0, s))
            for s in attributes["strides"]  # type: ignore[attr-defined]
        ]
    inputs, constants = {"x": _normal(random, 2, channels, *spatial)}, {}
    names = ["x"]
    if kind in ("Conv", "ConvTranspose"):
        shape = (out, channels // group) if kind == "Conv" else (channels, out // group)
        constants["w"] = _normal(random, *shape, *kernel)
        names.append("w")
        if random.random() < 0.5:
            constants["b"] = _normal(random, out)
            names.append("b")
    elif kind in ("ConvInteger", "QLinearConv"):
        opset = max(opset, 10)
        inputs = {"x": random.integers(0, 256, (2, channels, *spatial)).astype(np.uint8)}
        constants["w"] = random.integers(-128, 128, (out, channels, *kernel)).astype(np.int8)
        constants["xz"], constants["wz"] = np.array(121, np.uint8), np.array(0, np.int8)
        names = ["x", "w", "xz", "wz"]
        if kind == "QLinearConv":
            scales = {"xs": 0.03, "ws": 0.02, "ys": 0.4}
            constants |= {k: np.array(v, np.float32) for k, v in scales.items()}
            constants["yz"] = np.array(117, np.uint8)
            names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    node = helper.make_node(kind, names, ["y"], **attributes)
    sizes, words = _sizes(random)
    reason = f"auto_pad {auto_pad}, opset {opset}{words}"
    return read(_model((kind, reason, [node], inputs, constants, ["y"]), opset, sizes),
                kind, reason, inputs)  # fmt: skip


def symbolic(case: DrawnCase, random: np.random.Generator) -> DrawnCase:
    """A case in a file whose inputs have symbols for sizes; some of its constants are inputs, so
    that shapes, axes and weights are known by running only."""
    proto = to_onnx(case.graph)
    share = pick(random, (0.4, 1.0))
    inputs = dict(case.inputs)
    for value in proto.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if random.random() < share:
                dim.dim_param = f"{value.name}_{axis}"
    lifted = [t for t in proto.graph.initializer if random.random() < 0.4]
    for tensor in lifted:
        array = numpy_helper.to_array(tensor)
        inputs[tensor.name] = array
        dims = list(array.shape)
        proto.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, dims))
        proto.graph.initializer.remove(tensor)
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{axis}"
    reason = f"{case.reason}; sizes symbolic"
    reason += f", {len(lifted)} constants given at run time" if lifted else ""
    return read(proto, case.aim, reason, inputs)


def _normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def _integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def old_operator_set(random: np.random.Generator) -> DrawnCase:
    """An operator in a form that operator sets 7 to 12 have and 13 lacks."""
    first, last, build = pick(random, OLD_FORMS)
    opset = int(random.integers(first, last + 1))
    written = build(random, opset)
    sizes, words = _sizes(random)
    kind, reason, _, inputs, _, _ = written
    reason = f"{reason}, opset {opset}{words}"
    return read(_model(written, opset, sizes), kind, reason, inputs)


def _shape(random: np.random.Generator, rank: int) -> tuple[int, ...]:
    return tuple(int(n) for n in random.permutation(np.arange(2, 8))[:rank])


def _one(
    kind: str,
    reason: str,
    inputs: dict[str, np.ndarray],
    constants: dict[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    /,
    **attributes: object,
) -> Written:
    """One node that reads the inputs, then the constants."""
    constants = constants or {}
    node = helper.make_node(kind, [*inputs, *constants], list(outputs), **attributes)
    return kind, reason, [node], inputs, constants, [v for v in outputs if v]


def _flattened(random: np.random.Generator, opset: int) -> Written:
    """Softmax and its like flatten to two axes before operator set 13."""
    kind = pick(random, ("Softmax", "LogSoftmax", "Hardmax"))
    rank = pick(random, (2, 3, 4))
    axis = int(random.integers(0 if opset < 11 else -rank, rank))
    return _one(kind, f"axis {axis}", {"x": _normal(random, *_shape(random, rank))}, axis=axis)


def _reduced(random: np.random.Generator, opset: int) -> Written:
    kind = pick(random, ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd",
                         "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"))  # fmt: skip
    rank = pick(random, (1, 3, 4))
    axes = sorted(int(a) for a in random.permutation(rank)[: int(random.integers(1, rank + 1))])
    attributes: dict[str, object] = {"keepdims": pick(random, (0, 1))}
    if random.random() < 0.8:
        shift = rank if opset >= 11 and random.random() < 0.5 else 0
        attributes["axes"] = [a - shift for a in axes]
    inputs = {"x": _normal(random, *_shape(random, rank))}
    return _one(kind, f"axes {attributes.get('axes')}", inputs, **attributes)


def _sliced(random: np.random.Generator, opset: int) -> Written:
    shape = (3, 8, 5)
    starts, ends, axes = pick(
        random,
        (
            ([1], [100], [1]),
            ([-3, 0], [-1, 2], [1, 2]),
            ([0, 2, -4], [2, 7, 5], [0, 1, 2]),
            ([5], [2], [1]),
        ),
    )
    inputs = {"x": _normal(random, *shape)}
    if opset < 10:
        return _one("Slice", f"{starts}:{ends}", inputs, starts=starts, ends=ends, axes=axes)
    constants = {"s": _integers(*starts), "e": _integers(*ends), "a": _integers(*axes)}
    return _one("Slice", f"{starts}:{ends}", inputs, constants)


def _upsampled(random: np.random.Generator, opset: int) -> Written:
    mode = pick(random, ("nearest", "linear"))
    scales = [1.0, 1.0, *(float(pick(random, (1.0, 1.5, 2.0, 2.3))) for _ in range(2))]
    inputs = {"x": _normal(random, 2, 3, 5, 4)}
    reason = f"{mode} by {scales}"
    if opset < 9:
        return _one("Upsample", reason, inputs, mode=mode, scales=scales)
    return _one("Upsample", reason, inputs, {"s": np.array(scales, np.float32)}, mode=mode)


def _resized(random: np.random.Generator, opset: int) -> Written:
    scales = [1.0, 1.0, *(float(pick(random, (0.5, 0.6, 1.0, 1.5, 2.0, 2.3))) for _ in range(2))]
    inputs = {"x": _normal(random, 2, 3, 6, 7)}
    if opset < 11:
        mode = pick(random, ("nearest", "linear"))
        return _one("Resize", f"{mode} by {scales}", inputs, {"s": np.array(scales, np.float32)},
                    mode=mode)  # fmt: skip
    mode = pick(random, ("nearest", "linear", "cubic"))
    attributes: dict[str, object] = {"mode": mode, "coordinate_transformation_mode": pick(
        random, ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
                 "tf_half_pixel_for_nn"))}  # fmt: skip
    if mode == "nearest":
        attributes["nearest_mode"] = pick(
            random, ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        )
    if mode == "cubic":
        attributes["exclude_outside"] = pick(random, (0, 1))
        attributes["cubic_coeff_a"] = pick(random, (-0.75, -0.5))
    constants = {"roi": np.zeros(0, np.float32), "s": np.array(scales, np.float32)}
    return _one("Resize", f"{attributes} by {scales}", inputs, constants, **attributes)


def _padded(random: np.random.Generator, opset: int) -> Written:
    mode = pick(random, ("constant", "edge", "reflect"))
    pads = [0, 0, *(int(n) for n in random.integers(0, 3, 2))] * 2
    if random.random() < 0.3:
        pads[int(random.integers(2, 4))] = -1
    value = pick(random, (0.0, 1.5))
    inputs = {"x": _normal(random, 2, 3, 5, 6)}
    reason = f"{mode} {pads}, {value:g}"
    if opset < 11:
        return _one("Pad", reason, inputs, mode=mode, pads=pads, value=value)
    constants = {"p": _integers(*pads), "v": np.array(value, np.float32)}
    return _one("Pad", reason, inputs, constants, mode=mode)


def _selected(random: np.random.Generator, opset: int) -> Written:
    """TopK, with k an attribute before operator set 10."""
    inputs = {"x": random.permutation(90).reshape(3, 6, 5).astype(np.float32)}
    axis, outputs = int(random.integers(0, 3)), ("y", "i")
    if opset < 10:
        return _one("TopK", f"axis {axis}", inputs, None, outputs, axis=axis, k=2)
    attributes: dict[str, object] = {"axis": axis}
    if opset >= 11:
        attributes |= {"largest": pick(random, (0, 1)), "sorted": 1, "axis": axis - 3}
    return _one("TopK", f"axis {axis}", inputs, {"k": _integers(2)}, outputs, **attributes)


def _clipped(random: np.random.Generator, opset: int) -> Written:
    inputs = {"x": _normal(random, 3, 4, 5)}
    low, high = pick(random, ((-0.5, 0.75), (0.0, 6.0), (None, 0.25), (-0.3, None)))
    bounds = {k: v for k, v in (("min", low), ("max", high)) if v is not None}
    if opset < 11:
        return _one("Clip", f"{bounds}", inputs, **bounds)
    constants = {k: np.array(v, np.float32) for k, v in bounds.items()}
    names = ["x", *(k if k in constants else "" for k in ("min", "max"))]
    names = names[:2] if not names[2] else names
    node = helper.make_node("Clip", names, ["y"])
    return "Clip", f"{bounds}", [node], inputs, constants, ["y"]


def _normalized(random: np.random.Generator, opset: int) -> Written:
    c = 5
    constants = {n: _normal(random, c) for n in ("scale", "bias", "mean")}
    constants["var"] = random.uniform(0.3, 2.0, c).astype(np.float32)
    shape = (2, c, *_shape(random, pick(random, (0, 1, 2, 3))))
    inputs, epsilon = {"x": _normal(random, *shape)}, pick(random, (1e-5, 0.1))
    return _one("BatchNormalization", f"rank {len(shape)}", inputs, constants, epsilon=epsilon)


def _split(random: np.random.Generator, opset: int) -> Written:
    axis = int(random.integers(0, 3)) if opset < 11 else int(random.integers(-3, 3))
    shape = (6, 6, 6)
    split = pick(random, ([1, 5], [4, 2], [3, 3], None))
    attributes: dict[str, object] = {"axis": axis} | ({"split": split} if split else {})
    return _one(
        "Split", f"{attributes}", {"x": _normal(random, *shape)}, None, ("y", "z"), **attributes
    )


def _product(random: np.random.Generator, opset: int) -> Written:
    """Gemm, whose C was required before operator set 11, and broadcasts in one direction."""
    a, b = pick(random, (0, 1)), pick(random, (0, 1))
    x, w = (7, 5) if a else (5, 7), (4, 7) if b else (7, 4)
    c = pick(random, ((4,), (5, 1), (1, 4), (1,), (), (5, 4)))
    inputs = {"x": _normal(random, *x)}
    constants = {"w": _normal(random, *w), "c": _normal(random, *c)}
    return _one("Gemm", f"C {list(c)}", inputs, {k: np.asarray(v) for k, v in constants.items()},
                transA=a, transB=b, alpha=pick(random, (1.0, 0.5)),
                beta=pick(random, (1.0, 0.0, -2.0)))  # fmt: skip


def _pooled(random: np.random.Generator, opset: int) -> Written:
    """Pools with pads, ceil_mode and dilations, whose last windows are where runtimes differ."""
    kind = pick(random, ("MaxPool", "AveragePool", "LpPool"))
    attributes: dict[str, object] = {"kernel_shape": [3, 2], "strides": [2, pick(random, (1, 3))]}
    attributes["pads"] = pick(random, ([0, 0, 0, 0], [1, 0, 1, 1], [0, 1, 2, 0]))
    if kind != "LpPool" and opset >= 10:
        attributes["ceil_mode"] = pick(random, (0, 1))
    if kind == "AveragePool":
        attributes["count_include_pad"] = pick(random, (0, 1))
    if kind == "MaxPool" and opset >= 10 and random.random() < 0.5:
        attributes["dilations"] = [1, 2]
    if kind == "LpPool":
        attributes["p"] = pick(random, (1, 2, 3))
    outputs = ("y", "i") if kind == "MaxPool" and random.random() < 0.4 else ("y",)
    if len(outputs) > 1:
        attributes["storage_order"] = pick(random, (0, 1))
    return _one(
        kind, f"{attributes}", {"x": _normal(random, 2, 3, 8, 7)}, None, outputs, **attributes
    )


def _scattered(random: np.random.Generator, opset: int) -> Written:
    kind = "Scatter" if opset < 11 else "ScatterElements"
    axis = int(random.integers(0, 2))
    indices = np.argsort(random.standard_normal((4, 5)), axis)[:2, :3].astype(np.int64)
    inputs = {"x": _normal(random, 4, 5), "i": indices, "u": _normal(random, 2, 3)}
    return _one(kind, f"axis {axis}", inputs, axis=axis)


def _squeezed(random: np.random.Generator, opset: int) -> Written:
    kind = pick(random, ("Squeeze", "Unsqueeze"))
    if kind == "Squeeze":
        axes = pick(random, ([1], [1, 3], [3], None))
        attributes: dict[str, object] = {"axes": axes} if axes else {}
        return _one(kind, f"{axes}", {"x": _normal(random, 2, 1, 4, 1)}, **attributes)
    axes = pick(random, ([0], [1, 3], [3, 0], [2, 4]))
    return _one(kind, f"{axes}", {"x": _normal(random, 2, 5, 4)}, axes=axes)


def _dynamic_product(random: np.random.Generator, opset: int) -> Written:
    """DynamicQuantizeLinear, MatMulInteger, the scales in one order or the other, a bias: what
    runtimes fuse into one product."""
    dtype = pick(random, (np.int8, np.uint8))
    info = np.iinfo(dtype)
    constants = {"w": random.integers(info.min, info.max, (12, 7)).astype(dtype)}
    shape = pick(random, ((), (7,), (5, 1), (1,)))
    constants["f"] = np.asarray(random.uniform(0.01, 0.05, shape), np.float32)
    constants["b"] = _normal(random, *pick(random, ((7,), (5, 1), (1, 7))))
    factors = ["q", "w", "z"]
    if random.random() < 0.6:
        zeros = random.integers(info.min, info.max, (7,) if random.random() < 0.5 else ())
        constants["wz"] = np.asarray(zeros, dtype)
        factors.append("wz")
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", factors, ["p"]),
        helper.make_node("Cast", ["p"], ["pf"], to=onnx.TensorProto.FLOAT),
    ]
    if random.random() < 0.5:
        nodes.append(helper.make_node("Mul", ["s", "f"], ["sf"]))
        nodes.append(helper.make_node("Mul", ["pf", "sf"], ["m"]))
    else:
        nodes.append(helper.make_node("Mul", ["pf", "s"], ["ps"]))
        nodes.append(helper.make_node("Mul", ["ps", "f"], ["m"]))
    nodes.append(helper.make_node("Add", ["m", "b"], ["y"]))
    reason = f"weights {np.dtype(dtype)}, scale {list(shape)}"
    inputs = {"x": _normal(random, 5, 12)}
    return "dynamically quantized MatMul", reason, nodes, inputs, constants, ["y"]


OLD_FORMS: tuple[tuple[int, int, Callable[[np.random.Generator, int], Written]], ...] = (
    (7, 12, _flattened),
    (7, 12, _flattened),
    (7, 12, _reduced),
    (7, 12, _sliced),
    (7, 9, _upsampled),
    (10, 12, _resized),
    (11, 12, _resized),
    (7, 12, _padded),
    (7, 12, _selected),
    (7, 12, _clipped),
    (7, 12, _normalized),
    (7, 12, _split),
    (7, 12, _product),
    (7, 12, _pooled),
    (9, 12, _scattered),
    (7, 12, _squeezed),
    (11, 12, _dynamic_product),
    (11, 12, _dynamic_product),
)
"""The first and last operator set of a form, and what draws it."""

"""Small files that ask for terabytes or for eternity, in every format.

Every entry is (label, files); what is allowed to come of them is the test's business.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from onnx import helper
from tests.formats.small_files import (
    Files,
    mxnet_conv,
    pt2,
    tf_const,
    tf_graph,
    tf_node,
)
from tests.frontends.from_coreml.coreml_models import network, setting
from tests.frontends.from_keras.h5_files import h5py, sequential, written
from tests.frontends.from_mxnet.mxnet_models import params_bytes, symbol
from tests.frontends.from_tflite.tflite_writer import Op, T, const, model, one
from tests.frontends.onnx_models import model as onnx_model

Entry = tuple[str, Files]
HUGE = 10**9
DEEP = 20_000


def _int64(values: Any) -> np.ndarray:
    return np.asarray(values, np.int64)


def onnx_greedy() -> Iterator[Entry]:
    node = helper.make_node

    def net(nodes: Any, shape: Any = (2, 3), **constants: np.ndarray) -> Files:
        return {"net.onnx": onnx_model(nodes, {"x": shape}, {"y": None}, constants, 17)
                .SerializeToString()}  # fmt: skip

    x = np.ones((1, 1), np.float32)
    many = _int64([HUGE, HUGE])
    yield "tile", net([node("Tile", ["c", "r"], ["y"])], c=x, r=many)
    yield "tile the input", net([node("Tile", ["x", "r"], ["y"])], r=many)
    yield "expand", net([node("Expand", ["c", "r"], ["y"])], c=x, r=many)
    yield "fill", net([node("ConstantOfShape", ["r"], ["y"])], r=many)
    yield (
        "range",
        net([node("Range", ["a", "b", "d"], ["y"])], a=_int64(0), b=_int64(2**62), d=_int64(1)),
    )
    yield "one hot", net(
        [node("OneHot", ["a", "n", "v"], ["y"])],
        a=_int64([1, 2]), n=_int64(2**60), v=np.float32([0, 1]),
    )  # fmt: skip
    image = np.ones((1, 1, 2, 2), np.float32)
    scales = np.float32([1, 1, HUGE, HUGE])
    resize = [node("Resize", ["c", "", "s"], ["y"], mode="nearest")]
    yield "resize", net(resize, c=image, s=scales)
    yield "resize to inf", net(resize, c=image, s=np.float32([1, 1, np.inf, np.nan]))
    yield (
        "resize the input",
        net([node("Resize", ["x", "", "s"], ["y"])], (1, 1, 2, 3), s=scales),
    )
    pads = _int64([0, 0, HUGE, HUGE, 0, 0, HUGE, HUGE])
    yield "pad", net([node("Pad", ["c", "p"], ["y"])], c=image, p=pads)
    yield "pad below nothing", net([node("Pad", ["c", "p"], ["y"])], c=image, p=-pads)
    conv = node("Conv", ["x", "w"], ["y"], pads=[HUGE] * 4, dilations=[2**40, 3])
    yield "padded convolution", net([conv], (1, 1, 4, 5), w=image)
    yield (
        "outer sum",
        net([node("Add", ["a", "b"], ["y"])], a=np.ones((1, 99999), np.float32),
            b=np.ones((99999, 1), np.float32)),
    )  # fmt: skip
    double = [
        node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}" if i < 59 else "y"], axis=0)
        for i in range(60)
    ]
    yield "doubling", net(double, c0=_int64([1, 2]))
    for kind in ("ConstantOfShape", "Expand", "Reshape"):
        data = [] if kind == "ConstantOfShape" else ["x"]
        grow = [*double[:-1], node(kind, [*data, "c59"], ["y"])]
        yield f"{kind} of 2^60 dimensions", net(grow, c0=_int64([1, 2]))
    shapes = [node("Shape", ["x"], ["c0"]), *double]
    yield "doubling a shape", net(shapes)
    squares = [node("Mul", [f"n{i}", f"n{i}"], [f"n{i + 1}"]) for i in range(60)]
    yield (
        "squares",
        net([*squares, node("ConstantOfShape", ["n60"], ["y"])], n0=_int64([3])),
    )
    symbolic = [
        node("Shape", ["x"], ["n0"]),
        *squares,
        node("ConstantOfShape", ["n60"], ["y"]),
    ]
    yield "squares of a symbol", net(symbolic, ("n", "m"))
    sums = [
        node("Shape", ["x"], ["s"]),
        node("Split", ["s"], ["a0", "b0"], axis=0),
        *[node("Add", [f"a{i}", f"b{i}"], [f"t{i}"]) for i in range(14)],
        *[],
    ]
    for i in range(14):
        sums.append(node("Mul", [f"t{i}", f"t{i}"], [f"a{i + 1}"]))
        sums.append(node("Add", [f"a{i}", f"t{i}"], [f"b{i + 1}"]))
    order = sums[:2]
    for i in range(14):
        order += [sums[2 + i], sums[16 + 2 * i], sums[17 + 2 * i]]
    yield (
        "polynomials of symbols",
        net([*order, node("ConstantOfShape", ["a14"], ["y"])], ("n", "m")),
    )
    yield "einsum", net([node("Einsum", ["x"], ["y"], equation="ij->" + "ij" * 5000)])
    for sizes in ((2**62, 4), (2**31, 2**31, 2**31), (-7, 3), (2**63 - 1,)):
        relu = [node("Relu", ["x"], ["y"])]
        yield f"dimensions {sizes}", net(relu, sizes)
    flatten = [node("Flatten", ["x"], ["f"]), node("Relu", ["f"], ["y"])]
    yield "an overflowing product", net(flatten, (2, 2**31, 2**31, 2))


def torch_greedy() -> Iterator[Entry]:
    def net(target: str, shape: Any = (2, 3), **arguments: Any) -> Files:
        return {"net.pt2": pt2([(target, arguments, "y")], {"x": shape})}

    yield "full", net("full.default", size=[HUGE, HUGE], fill_value=1.0)
    yield "zeros", net("zeros.default", size=[HUGE, HUGE])
    yield "negative zeros", net("zeros.default", size=[-HUGE, HUGE])
    yield "arange", net("arange.default", end=2**62)
    yield "arange of inf", net("arange.default", end=float(10**300))
    yield "eye", net("eye.default", n=HUGE)
    yield "linspace", net("linspace.default", start=0.0, end=1.0, steps=10**10)
    yield "windows", net("unfold.default", (10**6, 3), self="x", dimension=0, size=10**5, step=1)
    window = {"kernel_size": [10**5, 1], "dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]}
    yield "im2col", net("im2col.default", (1, 1, 10**6, 3), self="x", **window)
    attention = {"query": "x", "key": "x", "value": "x", "is_causal": True}
    yield "attention", net("scaled_dot_product_attention.default", (1, 10**6, 4), **attention)
    yield "expand", net("expand.default", self="x", size=[HUGE, HUGE, 2, 3])
    yield "repeat", net("repeat.default", self="x", repeats=[HUGE, HUGE])
    yield "pad", net("constant_pad_nd.default", self="x", pad=[HUGE, HUGE])
    yield "one hot", net("one_hot.default", self="x", num_classes=2**60)
    yield (
        "upsample",
        net("upsample_nearest2d.vec", (1, 1, 2, 3), input="x", output_size=[HUGE, HUGE],
            scale_factors=None),
    )  # fmt: skip
    yield "unfold", net("unfold.default", self="x", dimension=1, size=2, step=0)
    yield "a size", net("relu.default", (2**62, 4), self="x")
    yield "a negative size", net("relu.default", (-3, 4), self="x")
    text = "Max(1, " * 2000 + "s0" + ")" * 2000
    yield "a deep size", net("relu.default", (text, 4), self="x")
    yield "a power", net("relu.default", ("9**9**9**9", 4), self="x")
    yield "code as a size", net("relu.default", ("__import__('os').abort()", 4), self="x")


def tensorflow_greedy() -> Iterator[Entry]:
    def net(fill: Callable[[Any], Any], shape: Any = (2, 3)) -> Files:
        graph = tf_graph(shape)
        fill(graph)
        return {"net.pb": graph.SerializeToString()}

    def made(op: str, *constants: Any, **attributes: Any) -> Callable[[Any], Any]:
        def fill(graph: Any) -> None:
            names = [
                value if isinstance(value, str)
                else tf_const(graph, f"c{i}", value, getattr(value, "dtype", np.int32))
                for i, value in enumerate(constants)
            ]  # fmt: skip
            tf_node(graph, "y", op, *names, **attributes)
            tf_node(graph, "z", "AddV2", "x", "y", T=1)

        return fill

    one_ = np.float32(1)
    yield "fill", net(made("Fill", [HUGE, HUGE], one_, T=1))
    yield "range", net(made("Range", 0, 2**31 - 1, 1, Tidx=3))
    yield "range without a step", net(made("Range", 0, 9, 0, Tidx=3))
    yield "tile", net(made("Tile", "x", [HUGE, HUGE], T=1, Tmultiples=3))
    yield "tile a constant", net(made("Tile", np.float32([[1]]), [HUGE, HUGE], T=1, Tmultiples=3))
    yield "broadcast", net(made("BroadcastTo", np.float32([[1]]), [HUGE, HUGE], T=1, Tidx=3))
    yield "pad", net(made("Pad", np.float32([[1]]), [[HUGE, HUGE]] * 2, T=1, Tpaddings=3))
    yield "zeros", net(made("ZerosLike", "x", T=1), (2**31, 2**31))
    size = made("ResizeNearestNeighbor", "x", [HUGE, HUGE], T=1)
    yield "resize", net(size, (1, 2, 3, 4))
    bicubic = made("ResizeBicubic", "x", [HUGE, HUGE], T=1)
    yield "resize bicubic", net(bicubic, (1, 2, 3, 4))
    yield "linspace", net(made("LinSpace", np.float32(0), one_, HUGE, T=1, Tidx=3))
    yield "one hot", net(made("OneHot", np.int32([1]), HUGE, one_, one_, T=1, TI=3))
    yield "dimensions", net(lambda g: tf_node(g, "y", "Relu", "x", T=1), (2**62, 2**62))

    def doubling(graph: Any) -> None:
        name = tf_const(graph, "c0", [1, 2])
        axis = tf_const(graph, "axis", 0)
        for i in range(60):
            name = tf_node(graph, f"d{i}", "ConcatV2", name, name, axis, T=3, Tidx=3, N=2).name
        tf_node(graph, "y", "Fill", name, "x", T=1)

    yield "doubling", net(doubling)

    def calls(graph: Any, count: int, twice: bool) -> None:
        for i in range(count):
            function = graph.library.function.add()
            function.signature.name = f"f{i}"
            function.signature.input_arg.add(name="a", type=1)
            function.signature.output_arg.add(name="b", type=1)
            after = f"f{(i + 1) % count}"
            value = "a"
            for j in range(1 + twice):
                node = function.node_def.add(name=f"n{j}", op="PartitionedCall", input=[value])
                node.attr["f"].func.name = after
                value = f"n{j}:output:0"
            function.ret["b"] = value
        call = tf_node(graph, "y", "PartitionedCall", "x")
        call.attr["f"].func.name = "f0"

    yield "a function that calls itself", net(lambda g: calls(g, 1, False))
    yield "functions that call each other twice", net(lambda g: calls(g, 30, True))
    yield "names twice", net(lambda g: [tf_node(g, "y", "Relu", "x", T=1) for _ in range(2)])
    yield "a node that reads itself", net(lambda g: tf_node(g, "y", "Relu", "y", T=1))
    yield "a port of 10^18", net(lambda g: tf_node(g, "y", "Relu", "x:999999999999999999", T=1))
    deep = lambda g: [tf_node(g, f"n{i}", "Relu", f"n{i - 1}" if i else "x", T=1)  # noqa: E731
                      for i in range(DEEP // 4)]  # fmt: skip
    yield "a long chain", net(deep)


def tflite_greedy() -> Iterator[Entry]:
    def net(kind: str, operands: Any, result: Any = (2, 3), **options: Any) -> Files:
        kept = T(result) if isinstance(result, tuple) else result
        return {"net.tflite": one(kind, operands, kept, **options)}

    top = 2**31 - 1
    yield "fill", net("FILL", [const(np.int32([top, top])), const(np.float32(1))], (top, top))
    yield "range", net("RANGE", [const(np.int32(v)) for v in (0, top, 1)], T((top,), "int32"))
    yield "tile", net("TILE", [T((2, 3)), const(np.int32([top, top]))], (top, top))
    yield (
        "tile a constant",
        net("TILE", [const(np.ones((2, 3), np.float32)), const(np.int32([top, top]))], (top, top)),
    )
    yield "broadcast", net("BROADCAST_TO", [T((2, 3)), const(np.int32([top, 2, 3]))], (top, 2, 3))
    yield "pad", net("PAD", [T((2, 3)), const(np.int32([[top, top]] * 2))], (top, top))
    size = const(np.int32([top, top]))
    yield "resize", net("RESIZE_NEAREST_NEIGHBOR", [T((1, 2, 3, 4)), size], (1, top, top, 4))
    yield "dimensions", net("ABS", [T((top, top, top, top))], (top, top, top, top))
    yield "negative", net("ABS", [T((-5, 3))], (-5, 3))
    tensors = [T((2, 3), name=n) for n in "xyz"]
    circle = [Op("ADD", [0, 2], [1]), Op("ABS", [1], [2])]
    yield "a circle", {"net.tflite": model(tensors, circle, [0], [2])}
    yield "itself", {"net.tflite": model(tensors[:2], [Op("ADD", [0, 1], [1])], [0], [1])}
    names = [T((2, 3), name="x"), T((2, 3), name="x"), T((2, 3), name="x")]
    ops = [Op("ABS", [0], [1]), Op("NEG", [1], [2])]
    yield "names twice", {"net.tflite": model(names, ops, [0], [2])}


def keras_greedy() -> Iterator[Entry]:
    def net(kind: str, shape: Any, **config: Any) -> Files:
        return {"net.h5": sequential([(kind, config, [])], shape)}

    yield "repeat", net("RepeatVector", [2, 3], n=2**62)
    yield "upsampling", net("UpSampling2D", [1, 2, 3, 4], size=[HUGE, HUGE])
    yield "bilinear", net("UpSampling2D", [1, 2, 3, 4], size=[HUGE, HUGE], interpolation="bilinear")
    yield "bicubic", net("UpSampling2D", [1, 2, 3, 4], size=[HUGE, HUGE], interpolation="bicubic")
    yield "upsampling a line", net("UpSampling1D", [1, 2, 3], size=HUGE)
    yield "upsampling a volume", net("UpSampling3D", [1, 2, 3, 4, 5], size=[HUGE, 2, HUGE])
    yield "resizing", net("Resizing", [1, 2, 3, 4], height=HUGE, width=HUGE)
    yield "padding", net("ZeroPadding2D", [1, 2, 3, 4], padding=[[HUGE, HUGE], [2**62, 1]])
    yield "cropping", net("Cropping2D", [1, 2, 3, 4], cropping=[[HUGE, HUGE], [2**62, 1]])
    yield "dimensions", net("ReLU", [2**62, 2**62])
    yield "negative", net("ReLU", [2, -3])
    yield "reshape", net("Reshape", [2, 3], target_shape=[-1, -1])
    yield "reshape by much", net("Reshape", [2, 3], target_shape=[2**62, 2**62])
    pool = {"pool_size": [2**40, 1], "strides": [1, 1], "padding": "same"}
    yield "pooling", net("MaxPooling2D", [1, 2, 3, 4], **pool)
    nested: Any = {"class_name": "ReLU", "config": {"name": "r"}}
    for i in range(12):
        inner = [json.loads(json.dumps(nested)) for _ in range(2)]
        nested = {"class_name": "Sequential", "config": {"name": f"m{i}", "layers": inner}}
    yield "models of models", {"net.h5": written(nested, {}, "2.4.0")}
    deep = '{"class_name": "Sequential", "config": ' + '{"a": ' * DEEP + "1" + "}" * DEEP + "}"
    yield "deep json", {"net.h5": written(deep, {}, "2.4.0")}


def keras_weights(create: Callable[[Any], Any], size: int) -> Files:
    """A Dense layer of size x size weights, which `create` makes in a group."""
    layer = {"class_name": "Dense", "config": {"name": "d", "units": size, "use_bias": False}}
    first = {"class_name": "InputLayer", "config": {"name": "x", "batch_input_shape": [2, size]}}
    layers = {"name": "net", "layers": [first, layer]}
    stream = io.BytesIO()
    with h5py.File(stream, "w") as file:
        file.attrs["keras_version"] = "2.4.0"
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": layers})
        group = file.create_group("model_weights").create_group("d")
        group.attrs["weight_names"] = [b"d/kernel:0"]
        create(group)
    return {"net.h5": stream.getvalue()}


def hdf5_greedy() -> Iterator[Entry]:
    """Arrays of which a file holds little or nothing."""

    def bomb(group: Any) -> None:
        part = zlib.compress(bytes(4 * 4000 * 4000), 9)
        made = group.create_dataset(
            "d/kernel:0", (20_000, 20_000), "f4", chunks=(4000, 4000), compression="gzip"
        )
        for i in range(0, 20_000, 4000):
            made.id.write_direct_chunk((i, i), part)

    yield "compressed zeros", keras_weights(bomb, 20_000)
    for label, options in (
        ("nothing stored", {}),
        ("no part stored", {"chunks": (1000, 1000)}),
        ("no compressed part stored", {"chunks": (10_000, 10_000), "compression": "gzip"}),
    ):
        yield (
            label,
            keras_weights(
                lambda g, o=options: g.create_dataset("d/kernel:0", (10**6, 10**6), "f4", **o),
                10**6,
            ),
        )


def coreml_greedy() -> Iterator[Entry]:
    def net(kind: str, shape: Any = (1, 2, 3, 4), **fields: Any) -> Files:
        layers = [(kind, "n", ["x"], ["y"], setting(**fields))]
        made = network(layers, {"x": shape}, {"y": ()})
        return {"net.mlmodel": made.SerializeToString()}

    def source(kind: str, **fields: Any) -> Files:
        layers = [
            (kind, "n", [], ["f"], setting(**fields)),
            ("add", "a", ["x", "f"], ["y"], setting()),
        ]
        return {"net.mlmodel": network(layers, {"x": (2, 3)}, {"y": ()}).SerializeToString()}

    yield "fill", source("fillStatic", value=1.0, targetShape=(2**40, 2**40))
    yield "range", source("rangeStatic", endValue=1e30, startValue=0.0, stepSizeValue=1.0)
    yield "range of nothing", source("rangeStatic", endValue=9.0, stepSizeValue=0.0)
    yield "random", source("randomNormalStatic", outputShape=(2**40, 2**40))
    yield "tile", net("tile", reps=(2**40, 2**40, 1, 1))
    yield "broadcast", net("broadcastToStatic", targetShape=(2**40, 2, 3, 4))
    yield "upsample", net("upsample", scalingFactor=(2**40, 2**40))
    yield "resize", net("resizeBilinear", targetSize=(2**40, 2**40))
    for mode in range(4):
        yield (
            f"resize {mode}",
            net("resizeBilinear", targetSize=(2**30, 2**30), mode__samplingMethod=mode),
        )
        crop = {"targetSize": (2**30, 2**30), "mode__samplingMethod": mode}
        yield f"crop and resize {mode}", net("cropResize", **crop)
    yield "upsample 2^30", net("upsample", scalingFactor=(2**30, 2**30), mode=1)
    yield "windows", net("slidingWindows", (1, 10**6), axis=1, windowSize=10**5, step=1)
    yield "range 2^30", source("rangeStatic", endValue=2.0**30, stepSizeValue=1.0)
    yield "matrix band", net("lowerTriangular", (1, 10**6, 10**6), k=1)
    yield "reshape", net("reshapeStatic", targetShape=(2**62, 2**62))
    yield "one hot", net("oneHot", oneHotVectorSize=2**60, axis=-1, onValue=1.0)
    yield "repeat", net("sequenceRepeat", nRepetitions=2**60)
    yield "padding", net("padding", constant__value=0.0,
                         paddingAmounts=((2**40, 2**40), (2**40, 1)))  # fmt: skip
    yield "negative", net("unary", (1, -2, 3), type=0)
    yield "dimensions", net("unary", (2**31, 2**31, 2**31), type=0)


def mxnet_greedy() -> Iterator[Entry]:
    def net(kind: str, size: str = "(1, 2, 3, 4)", reads: Any = (0,), **attrs: str) -> Files:
        nodes = symbol(
            ("null", "data", {"__shape__": size}, []),
            (kind, "n", attrs, list(reads)),
            ("broadcast_add", "y", {}, [0, 1]),
        )
        return {"net-symbol.json": json.dumps(nodes).encode(), "net-0000.params": params_bytes({})}

    many = f"({HUGE}, {HUGE})"
    yield "zeros", net("_zeros", reads=(), shape=many)
    yield "full", net("_full", reads=(), shape=many, value="1")
    yield "arange", net("_arange", reads=(), start="0", stop="1e30", step="1")
    yield "arange of nothing", net("_arange", reads=(), start="0", stop="9", step="0")
    yield "tile", net("tile", reps=many)
    yield "repeat", net("repeat", repeats=str(2**62))
    yield "broadcast", net("broadcast_to", "(1, 1)", shape=many)
    yield "upsampling", net("UpSampling", scale=str(HUGE), sample_type="nearest", num_args="1")
    yield "bilinear", net("UpSampling", scale=str(HUGE), sample_type="bilinear", num_filter="3",
                          num_args="1")  # fmt: skip
    many_ = {"height": str(HUGE), "width": str(HUGE)}
    yield "resize", net("_contrib_BilinearResize2D", **many_)
    yield "pooling to", net("_contrib_AdaptiveAvgPooling2D", output_size=many)
    yield "anchors", net("_contrib_MultiBoxPrior", f"(1, 1, {10**5}, {10**5})", sizes="(0.1, 0.2)")
    yield "eye", net("_eye", reads=(), N=str(HUGE))
    yield "pad", net("Pad", mode="constant", pad_width=f"(0, 0, 0, 0, {HUGE}, {HUGE}, 1, 1)")
    yield "reshape", net("Reshape", shape=f"({2**62}, {2**62})")
    yield "dimensions", net("relu", f"({2**62}, {2**62})")
    yield "negative", net("relu", "(2, -3)")
    yield "pooling", net("Pooling", kernel="(3, 3)", pad=many, pool_type="max")
    yield "deep text", net("Reshape", shape="(" * DEEP)
    yield "a long number", net("Reshape", shape=f"({'9' * 100_000},)")
    yield "one hot", net("one_hot", depth=str(2**60))
    deep = b'{"nodes": ' + b"[" * DEEP + b"]" * DEEP + b"}"
    yield "deep json", {**mxnet_conv(), "net-symbol.json": deep}


GREEDY: dict[str, Callable[[], Iterator[Entry]]] = {
    "onnx": onnx_greedy,
    "pt2": torch_greedy,
    "pb": tensorflow_greedy,
    "tflite": tflite_greedy,
    "h5": keras_greedy,
    "h5 weights": hdf5_greedy,
    "mlmodel": coreml_greedy,
    "mxnet": mxnet_greedy,
}

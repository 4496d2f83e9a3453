"""Networks of one operator of ONNX Runtime's own (com.microsoft), with arrays for their inputs."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MICROSOFT = "com.microsoft"


@dataclass
class Case:
    """A node: its operator, inputs (None: omitted), attributes, and how many outputs it has, of
    which those called used are named.

    live: numbers of inputs that are none of the file's constants, None for all. moved: its first
    output has channels last where its pair's has them first.
    """

    kind: str
    label: str
    inputs: list[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    used: tuple[int, ...] | None = None
    domain: str = MICROSOFT
    live: tuple[int, ...] | None = None
    moved: bool = False

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Of the inputs that are none of the file's constants (all, or those called live)."""
        live = range(len(self.inputs)) if self.live is None else self.live
        return {f"x{i}": a for i, a in self._all.items() if i in live}

    @property
    def _all(self) -> dict[int, np.ndarray]:
        return {i: np.asarray(a) for i, a in enumerate(self.inputs) if a is not None}

    def model(self, is_open: bool = False) -> onnx.ModelProto:
        """is_open: every size of every floating-point input but the last one is a symbol."""
        names = [f"x{i}" if a is not None else "" for i, a in enumerate(self.inputs)]
        used = self.used or tuple(range(self.outputs))
        made = [f"y{i}" if i in used else "" for i in range(self.outputs)]
        values = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(a.dtype), self._dims(name, a, is_open)
            )
            for name, a in self.arrays.items()
        ]
        graph = helper.make_graph(
            [helper.make_node(self.kind, names, made, "node", domain=self.domain,
                              **self.attributes)],
            self.kind,
            values,
            [onnx.ValueInfoProto(name=m) for m in made if m],
            [
                numpy_helper.from_array(a, f"x{i}")
                for i, a in self._all.items()
                if f"x{i}" not in self.arrays
            ],
        )  # fmt: skip
        sets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=10)

    @staticmethod
    def _dims(name: str, a: np.ndarray, is_open: bool) -> list[int | str]:
        if not is_open or a.ndim < 3:
            return list(a.shape)
        return [*(f"{name}_{i}" for i in range(a.ndim - 1)), a.shape[-1]]


def cases() -> Iterator[Case]:
    """Of every row that ONNX Runtime runs on a processor."""
    yield from products()
    yield from norms()
    yield from attention()
    yield from decoders()
    yield from quantised()
    yield from constant_cases()


def _drawn(*shape: int) -> np.ndarray:
    r = np.random.default_rng(zlib.crc32(repr(shape).encode()))
    return r.standard_normal(shape).astype(np.float32)


IMAGE, WEIGHTS = _drawn(2, 3, 8, 7), _drawn(5, 3, 2, 3)


def products() -> Iterator[Case]:
    window = {"pads": [1, 0, 0, 2], "strides": [2, 1], "kernel_shape": [2, 3]}
    added = _drawn(2, 5, 4, 7)
    bias = _drawn(5)
    for kind, given in (
        ("Relu", []),
        ("LeakyRelu", [0.25]),
        ("Tanh", []),
        ("Sigmoid", []),
        ("Clip", [-0.5, 0.75]),
        ("HardSigmoid", [0.3, 0.4]),
    ):
        more = {"activation": kind} | ({"activation_params": given} if given else {})
        yield Case("FusedConv", kind, [IMAGE, WEIGHTS, bias], window | more)
    yield Case("FusedConv", "", [IMAGE, WEIGHTS], window | {"pads": [0, 1, 1, 1]})
    yield Case("FusedConv", "added", [IMAGE, WEIGHTS, bias, added], window | {"activation": "Relu"})
    a, b, rows = _drawn(4, 6), _drawn(5, 6), _drawn(4, 5)
    for kind, fields in (
        ("Relu", {}),
        ("LeakyRelu", {"activation_alpha": 0.3}),
        ("Elu", {"activation_alpha": 0.7}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("Softsign", {}),
        ("Selu", {"activation_alpha": 1.5, "activation_gamma": 1.25}),
    ):
        more = {"transB": 1, "alpha": 0.5, "beta": 1.5, "activation": kind, **fields}
        yield Case("FusedGemm", kind, [a, b, rows], more)
    yield Case(
        "FusedGemm", "no bias", [a.T.copy(), b.T.copy()], {"transA": 1, "activation": "Tanh"}
    )
    batch, other = _drawn(2, 3, 4, 6), _drawn(2, 3, 6, 5)
    for name, left, right, fields in (
        ("plain", batch, other, {}),
        ("scaled", batch, other, {"alpha": 0.3}),
        ("B", batch, _drawn(2, 3, 5, 6), {"transB": 1, "alpha": 0.125}),
        ("A", _drawn(2, 3, 6, 4), other, {"transA": 1}),
        ("both", _drawn(2, 3, 6, 4), _drawn(3, 5, 6), {"transA": 1, "transB": 1}),
        ("batch A", _drawn(4, 2, 3, 6), other, {"transBatchA": 1}),
        ("batch B", batch, _drawn(6, 2, 3, 5), {"transBatchB": 1}),
        ("batch and A", _drawn(6, 2, 3, 4), other, {"transBatchA": 1, "transA": 1}),
    ):
        yield Case("FusedMatMul", name, [left, right], fields)
    yield Case("TransposeMatMul", "", [batch, _drawn(2, 3, 5, 6)], {"transB": 1, "alpha": 2.0})
    x, bias = _drawn(2, 5, 6), _drawn(6)
    yield Case("BiasGelu", "", [x, bias])
    yield Case("FastGelu", "", [3 * x, bias])
    yield Case("FastGelu", "alone", [x])
    yield Case("Gelu", "", [x])
    yield Case("QuickGelu", "", [x], {"alpha": 1.5})


def norms() -> Iterator[Case]:
    x, skip = _drawn(2, 5, 6), _drawn(2, 5, 6)[::-1].copy() + np.float32(0.5)
    gamma, beta, bias = (_drawn(1, 6)[0] + np.float32(i) for i in (1, 0, 0.25))
    eps = {"epsilon": 0.02}
    yield Case("SkipLayerNormalization", "", [x, skip, gamma, beta, bias], eps)
    yield Case("SkipLayerNormalization", "sum", [x, skip, gamma, beta], eps, 4, (0, 3))
    yield Case("SkipLayerNormalization", "no beta", [x, skip[0], gamma], {})
    kind = "SkipSimplifiedLayerNormalization"
    yield Case(kind, "", [x, skip, gamma, bias], eps, 4, (0, 3))
    yield Case(kind, "plain", [x, skip, gamma], {})
    kind = "SimplifiedLayerNormalization"
    yield Case(kind, "", [x, gamma], eps, domain="")
    yield Case(kind, "axis", [x, _drawn(5, 6)], {"axis": 1}, domain="")
    r = np.random.default_rng(9)
    ids, segments = r.integers(0, 9, (2, 5), np.int32), r.integers(0, 2, (2, 5), np.int32)
    mask = np.int32([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    places = r.integers(0, 7, (2, 5), np.int32)
    tables = [_drawn(9, 6), _drawn(7, 6), _drawn(2, 6)]
    kind = "EmbedLayerNormalization"
    yield Case(kind, "", [ids, segments, *tables, gamma, beta, mask], eps, 3)
    yield Case(kind, "places", [ids, segments, *tables, gamma, beta, None, places], {}, 2)
    yield Case(kind, "no segments", [ids, None, *tables[:2], None, gamma, beta, mask], {}, 2)


def masks(batch: int, new: int, total: int) -> Iterator[tuple[str, np.ndarray]]:
    r = np.random.default_rng(batch + new + total)
    flat = r.integers(0, 2, (batch, total), np.int32)
    flat[:, 0] = 1
    full = r.integers(0, 2, (batch, new, total), np.int32)
    full[..., 0] = 1
    yield "rows", flat
    yield "pairs", full


def attention() -> Iterator[Case]:
    batch, new, heads, own, past = 2, 5, 3, 4, 3
    x, w, b = _drawn(batch, new, 6), _drawn(6, 36), _drawn(36)
    n = {"num_heads": heads}
    yield Case("Attention", "", [x, w, b], n)
    yield Case("Attention", "scale", [x, w, b], n | {"scale": 0.3})
    yield Case("Attention", "causal", [x, w, b], n | {"unidirectional": 1})
    sizes = {"qkv_hidden_sizes": [12, 12, 9]}
    yield Case("Attention", "sizes", [x, _drawn(6, 33), _drawn(33)], n | sizes)
    for name, mask in masks(batch, new, new):
        yield Case("Attention", name, [x, w, b, mask], n)
        more = {"unidirectional": 1, "mask_filter_value": -500.0}
        yield Case("Attention", f"{name}, causal", [x, w, b, mask], n | more)
    yield Case("Attention", "lengths", [x, w, b, np.int32([3, 5])], n)
    yield Case("Attention", "ends and starts", [x, w, b, np.int32([4, 5, 1, 2])], n)
    added = _drawn(batch, heads, new, new)
    yield Case("Attention", "added", [x, w, b, None, None, added], n)
    yield from hidden(x, w, b)
    caches = _drawn(2, batch, heads, past, own)
    yield Case("Attention", "past", [x, w, b, None, caches], n, 2)
    yield Case("Attention", "past, causal", [x, w, b, None, caches], n | {"unidirectional": 1}, 2)
    for name, mask in masks(batch, new, new + past):
        yield Case("Attention", f"past, {name}", [x, w, b, mask, caches], n, 2)
    r = np.random.default_rng(4)
    inputs = [r.integers(0, 256, (batch, new, 6), np.uint8), r.integers(-60, 61, (6, 36), np.int8)]
    grid = [np.float32(0.02), np.full(1, 0.01, np.float32)]
    zeros = [np.uint8(117), np.zeros(1, np.int8)]
    yield Case("QAttention", "", [*inputs, b, *grid, None, *zeros], n)
    columns = r.uniform(0.005, 0.02, 36).astype(np.float32)
    lanes = [grid[0], columns, np.int32([3, 5]), zeros[0], np.zeros(36, np.int8)]
    yield Case("QAttention", "columns", [*inputs, b, *lanes], n | {"unidirectional": 1})
    yield from multi_head(batch, new, heads, own)


def hidden(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> Iterator[Case]:
    """Queries that see nothing: padding in front of a causal mask, and whole samples of it."""
    batch, new, _ = x.shape
    left, none = np.ones((2, batch, new), np.int32)
    left[1, :2] = none[1] = 0
    for name, mask in (("left", left), ("whole", none)):
        for low in (-10000.0, -np.inf) if name == "left" else (-500.0,):
            fields = {"num_heads": 3, "unidirectional": 1, "mask_filter_value": low}
            yield Case("Attention", f"padded {name}, {low:g}, causal", [x, w, b, mask], fields)
        fields = {"num_heads": 3, "mask_filter_value": -500.0}
        yield Case("Attention", f"padded {name}", [x, w, b, mask], fields)


def multi_head(batch: int, new: int, heads: int, own: int) -> Iterator[Case]:
    keys, wide, past, n = 7, heads * own, 3, {"num_heads": heads}
    kind = "MultiHeadAttention"
    q, k, v = _drawn(batch, new, wide), _drawn(batch, keys, wide), _drawn(batch, keys, wide)
    v = v[::-1].copy()
    added, lengths = _drawn(batch, heads, new, keys), np.int32([7, 4])
    yield Case(kind, "", [q, k, v], n)
    yield Case(kind, "bias", [q, k, v, _drawn(3 * wide)], n | {"scale": 0.7})
    yield Case(kind, "added", [q, k, v, None, None, added], n)
    yield Case(kind, "added to one head", [q, k, v, None, None, added[:1, :1]], n)
    yield Case(kind, "lengths", [q, k, v, None, lengths], n)
    for name, mask in masks(batch, new, keys):
        yield Case(kind, name, [q, k, v, None, mask], n)
    yield Case(kind, "both", [q, k, v, _drawn(3 * wide), mask[:, 0].copy(), added], n)
    yield Case(kind, "other values", [q, k, _drawn(batch, keys, heads * 6)], n)
    yield Case(kind, "causal", [q, q[::-1].copy(), q * 2], n | {"unidirectional": 1})
    more = [_drawn(batch, 9, wide), k[:, :new].copy(), v[:, :new].copy()]
    yield Case(kind, "causal, more queries", more, n | {"unidirectional": 1})
    caches = [
        _drawn(batch, heads, past, own),
        _drawn(heads, batch, past, own).swapaxes(0, 1).copy(),
    ]
    rest = [None, None, None, *caches]
    yield Case(kind, "past", [q, q[::-1].copy(), q * 2, *rest], n, 3)
    cross = [_drawn(batch, heads, keys, own), _drawn(batch, heads, keys, own) * 2]
    yield Case(kind, "heads given", [q, *cross], n)


def decoders() -> Iterator[Case]:
    kind, room = "RotaryEmbedding", 11
    x, cos, sin = _drawn(2, 5, 24), _drawn(room, 4), _drawn(4, room).T.copy()
    ids = np.int64([[0, 3, 1, 4, 2], [5, 6, 7, 9, 10]])
    yield Case(kind, "", [x, ids, cos, sin])
    yield Case(kind, "offset", [x, np.int64([3]), cos, sin])
    yield Case(kind, "interleaved", [x, ids, cos, sin], {"interleaved": 1})
    part = {"num_heads": 2, "rotary_embedding_dim": 8}
    yield Case(kind, "part", [x, ids, cos, sin], part)
    yield Case(kind, "part, interleaved", [x, ids, cos, sin], part | {"interleaved": 1})
    yield Case(kind, "heads first", [_drawn(2, 3, 5, 8), ids, cos, sin])
    yield from grouped()


def grouped() -> Iterator[Case]:
    kind, n = "GroupQueryAttention", {"num_heads": 4, "kv_num_heads": 2}
    q, k, v = _drawn(2, 5, 64), _drawn(2, 5, 32), _drawn(2, 5, 32)[::-1].copy()
    empty = np.zeros((2, 2, 0, 16), np.float32)
    cos, sin = _drawn(13, 8), _drawn(8, 13).T.copy()

    def run(  # type: ignore[no-untyped-def]
        label, tokens, past, last, total, more=(), packed=False, **fields
    ) -> Case:
        parts = [x[:, :tokens] for x in (q, k, v)]
        given = [np.concatenate(parts, -1), None, None] if packed else parts
        counts = [np.int32(last), np.int32(total)]
        held = [past, past * np.float32(0.5)]
        return Case(kind, label, [*given, *held, *counts, *more], n | fields, 3)

    old = _drawn(2, 2, 4, 16)
    yield run("prompt", 5, empty, [4, 4], 5)
    yield run("prompt, packed", 5, empty, [4, 4], 5, packed=True)
    yield run("prompt, all see all", 5, empty, [4, 4], 5, causal=0)
    yield run("prompt, rotated", 5, empty, [4, 4], 5, (cos, sin), do_rotary=1)
    yield run("token", 1, old, [4, 4], 5)
    yield run("token, room", 1, old, [2, 3], 4)
    yield run("token, shorter", 1, old, [3, 4], 5)
    rotated = {"do_rotary": 1, "rotary_interleaved": 1}
    yield run("token, rotated", 1, old, [3, 4], 5, (cos, sin), **rotated)
    yield run("window", 5, empty, [4, 4], 5, local_window_size=2)
    yield run("token, window", 1, old, [3, 4], 5, local_window_size=3, scale=0.5)
    yield run("bounded", 5, empty, [4, 4], 5, softcap=0.75)
    yield run("prompt, padded", 5, empty, [4, 2], 5)
    yield run("prompt, padded, all see all", 5, empty, [4, 2], 5, causal=0)
    yield run("prompt, padded, window", 5, empty, [4, 2], 5, local_window_size=2)
    yield run("prompt, padded, bounded", 5, empty, [4, 1], 5, softcap=0.75)
    hides = np.zeros((2, 1, 5, 5), np.float32)
    hides[1, 0, 2:] = -np.inf
    yield run("some see nothing", 5, empty, [4, 4], 5, (None, None, None, hides))
    yield run("smooth", 1, old, [4, 4], 5, smooth_softmax=1)
    sink = (None, None, None, None, _drawn(4))
    yield run("sink", 5, empty, [4, 4], 5, sink)
    added = (None, None, None, _drawn(2, 4, 5, 5))
    yield run("added", 5, empty, [4, 4], 5, added, softcap=3.0)
    places = np.int64([[4], [2]])
    yield run("places", 1, old, [4, 4], 5, (cos, sin, places), do_rotary=1)


def scalar(value: float, kind: str = "float32") -> np.ndarray:
    return np.array(value, kind)


def quantised() -> Iterator[Case]:
    r = np.random.default_rng(12)
    image = r.integers(0, 256, (2, 6, 7, 3), np.uint8)
    kernel = r.integers(-60, 61, (5, 3, 2, 3), np.int8)
    x, y = (scalar(0.03), scalar(117, "uint8")), (scalar(0.5), scalar(130, "uint8"))
    columns, none = r.uniform(0.01, 0.02, 5).astype(np.float32), np.zeros(5, np.int8)
    window = {"pads": [1, 0, 0, 2], "strides": [2, 1], "kernel_shape": [2, 3]}
    bias = r.integers(-900, 900, 5, np.int32)
    inputs = [image, *x, kernel, columns, none, *y, bias]
    yield Case("QLinearConv", "channels last", inputs, window | {"channels_last": 1})
    firsts = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    yield Case("QLinearConv", "", [firsts, *inputs[1:]], window)
    last = {"channels_last": 1}
    yield Case("QLinearGlobalAveragePool", "channels last", [image, *x, *y], last)
    yield Case("QLinearAveragePool", "channels last", [image, *x, *y], last | window)
    yield Case("NhwcMaxPool", "", [image], window)
    yield Case("QuantizeLinear", "", [_drawn(4, 5), scalar(0.001), scalar(-300, "int16")])
    whole = r.integers(-900, 900, (4, 5), np.int16)
    yield Case("QuantizeLinear", "axis", [_drawn(4, 5), columns, none], {"axis": 1})
    yield Case("DequantizeLinear", "", [whole, scalar(0.1), scalar(-300, "int16")])
    yield Case("DequantizeLinear", "axis", [kernel, columns, none + np.int8(3)], {"axis": 0})
    a, b = r.integers(0, 256, (2, 4, 6), np.uint8), r.integers(-60, 61, (6, 5), np.int8)
    zero, b_zero = scalar(3, "uint8"), scalar(5, "int8")
    add = _drawn(5)
    kind = "MatMulIntegerToFloat"
    yield Case(kind, "", [a, b, scalar(0.1), scalar(0.2), zero, b_zero, add])
    yield Case(kind, "columns", [a, b, scalar(0.1), columns, zero])
    kind = "DynamicQuantizeMatMul"
    yield Case(kind, "", [_drawn(2, 4, 6), b, scalar(0.2), b_zero, add])
    yield Case(kind, "columns", [_drawn(2, 4, 6), b, columns, none])
    yield Case("GridSample", "", [_drawn(2, 3, 4, 5), _drawn(2, 6, 3, 2)], {"align_corners": 1})
    modes = {"mode": "bicubic", "padding_mode": "border"}
    yield Case("GridSample", "modes", [_drawn(2, 3, 4, 5), _drawn(2, 6, 3, 2) * 2], modes)
    yield Case("Trilu", "", [_drawn(3, 4, 5), scalar(1, "int64")], {"upper": 0})


def constant_cases() -> Iterator[Case]:
    """Those whose inputs behind the first are constants of the file."""
    r, kind = np.random.default_rng(14), "GatherBlockQuantized"
    ids, scales = np.int64([[1, 6, 0], [2, 2, 5]]), r.uniform(0.1, 0.2, (7, 3)).astype(np.float32)
    bytes_ = r.integers(0, 256, (7, 48), np.uint8)
    points = r.integers(0, 256, (7, 3), np.uint8)
    blocks = {"block_size": 16, "gather_axis": 0, "quantize_axis": 1}
    yield Case(kind, "bytes", [bytes_, ids, scales, points], blocks | {"bits": 8}, live=(1,))
    yield Case(kind, "bytes, middle", [bytes_, ids, scales], blocks | {"bits": 8}, live=(1,))
    halves = r.integers(0, 256, (7, 2), np.uint8)
    yield Case(
        kind,
        "halves",
        [bytes_[:, :24].copy(), ids, scales, halves],
        blocks | {"bits": 4},
        live=(1,),
    )
    yield Case("Pad", "", [_drawn(4, 5), np.int64([1, 0, 2, 3]), scalar(0.5)], live=(0,))
    yield Case(
        "Pad", "edges", [_drawn(4, 5), np.int64([1, 0, 2, 3])], {"mode": "reflect"}, live=(0,)
    )


def unwitnessed() -> Iterator[tuple[Case, Case]]:
    """What ONNX Runtime runs on other machines only, beside the same in other words."""
    heads = {"num_heads": 3}
    whole = _drawn(2, 5, 3, 3, 4)
    parts = [np.ascontiguousarray(whole[:, :, :, i]).reshape(2, 5, 12) for i in range(3)]
    kind = "MultiHeadAttention"
    yield Case(kind, "packed", [whole], heads), Case(kind, "apart", parts, heads)
    keys, query = _drawn(2, 7, 3, 2, 4), _drawn(2, 5, 12)
    halves = [np.ascontiguousarray(keys[:, :, :, i]).reshape(2, 7, 12) for i in range(2)]
    yield Case(kind, "keys", [query, keys], heads), Case(kind, "apart", [query, *halves], heads)
    scores, mask = _drawn(2, 3, 4, 5), _drawn(3, 1, 5)
    fields = {"axis": 3, "is_inner_broadcast": 0}
    softmax = Case("Softmax", "", [scores + mask], {"axis": 3}, domain="")
    yield Case("BiasSoftmax", "", [scores, mask], fields), softmax
    image, kernel, bias = _drawn(2, 6, 7, 3), _drawn(5, 3, 2, 3), _drawn(5)
    window = {"pads": [1, 0, 0, 2], "strides": [2, 1], "activation": "Relu"}
    added = _drawn(2, 3, 7, 5)
    first = [np.ascontiguousarray(x.transpose(0, 3, 1, 2)) for x in (image, added)]
    yield (
        Case("NhwcFusedConv", "", [image, kernel, bias, added], window, moved=True),
        Case("FusedConv", "", [first[0], kernel, bias, first[1]], window),
    )
    x, gamma, beta = _drawn(2, 4, 5, 6), _drawn(6), _drawn(1, 6)[0]
    moved = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    groups = {"groups": 3, "epsilon": 0.1, "activation": 0}
    plain = Case("GroupNormalization", "", [moved, gamma, beta],
                 {"num_groups": 3, "epsilon": 0.1}, domain="")  # fmt: skip
    yield Case("GroupNorm", "", [x, gamma, beta], groups, moved=True), plain
    alone = {"channels_last": 0}
    yield Case("GroupNorm", "first", [moved, gamma, beta], groups | alone), plain
    skip, offset = np.full((2, 6), 0.5, np.float32), np.full(6, -0.5, np.float32)
    inputs = [x, gamma, beta, skip, offset]
    yield Case("SkipGroupNorm", "", inputs, groups, moved=True), plain
    inputs = [moved, gamma, beta, skip, offset]
    yield Case("SkipGroupNorm", "first", inputs, groups | alone), plain

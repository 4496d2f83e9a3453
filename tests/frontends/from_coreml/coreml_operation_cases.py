"""Cases of ML program operations, each with its meaning from the documentation of coremltools."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from coreml_detector import pick_top
from coreml_index_cases import BOXES, hat, spread
from coreml_models import weights
from coreml_operations import Case

PLAIN = (2, 3, 5)
IMAGE = (2, 3, 5, 7)


def indices(*values: int, dtype: str = "int32") -> np.ndarray:
    return np.array(values, dtype)


def picking() -> Iterator[Case]:
    at = np.array([[2, 0, 1], [1, 1, 0]], np.int32)
    yield Case(
        "gather", (PLAIN, at), {"x": "%x0", "indices": "%x1", "axis": -2},
        lambda x, i: x[:, i], "rank 2",
    )  # fmt: skip
    for axis in (1, 2):
        yield Case(
            "gather", ((2, 3, 5, 4), at),
            {"x": "%x0", "indices": "%x1", "axis": axis, "batch_dims": 1},
            lambda x, i, a=axis: np.stack([np.take(v, k, a - 1) for v, k in zip(x, i)]),
            f"batch {axis}", opset=6,
        )  # fmt: skip
    yield Case(
        "gather", (PLAIN,), {"x": "%x0", "indices": indices(1, 0, dtype="uint16"), "axis": 0,
                             "validate_indices": False},
        lambda x: x[[1, 0]], "constant", opset=7,
    )  # fmt: skip
    along = np.random.default_rng(2).integers(0, 3, (2, 4, 5)).astype(np.int32)
    yield Case(
        "gather_along_axis", (PLAIN, along), {"x": "%x0", "indices": "%x1", "axis": 1},
        lambda x, i: np.take_along_axis(x, i, 1),
    )  # fmt: skip
    nd = np.array([[[1, 2], [0, 1]], [[0, 0], [1, 0]]], np.int32)
    yield Case(
        "gather_nd", (PLAIN, nd), {"x": "%x0", "indices": "%x1"},
        lambda x, i: x[i[..., 0], i[..., 1]],
    )  # fmt: skip
    yield Case(
        "gather_nd", (PLAIN, nd[..., :1]), {"x": "%x0", "indices": "%x1", "batch_dims": 1},
        lambda x, i: np.stack([v[k[:, 0]] for v, k in zip(x, i)]), "batch", opset=6,
    )  # fmt: skip
    joins = {"update": lambda o, u: u, "add": np.add, "sub": np.subtract, "mul": np.multiply,
             "max": np.maximum, "min": np.minimum}  # fmt: skip
    places = np.stack([np.random.default_rng(i).permutation(3)[:2] for i in range(10)], 1)
    places = places.reshape(2, 2, 5).transpose(1, 0, 2).astype(np.int32)
    for mode, join in joins.items():

        def along_axis(x, i, u, f=join):
            y = x.copy()
            for n, j, k in np.ndindex(*i.shape):
                y[n, i[n, j, k], k] = f(y[n, i[n, j, k], k], u[n, j, k])
            return y

        def slices(x, i, u, f=join):
            y = x.copy()
            for j, place in enumerate(i):
                y[:, place] = f(y[:, place], u[:, j])
            return y

        def points(x, i, u, f=join):
            y = x.copy()
            for place, part in zip(i, u):
                y[tuple(place)] = f(y[tuple(place)], part)
            return y

        how = {"data": "%x0", "indices": "%x1", "updates": "%x2", "mode": mode}
        yield Case("scatter_along_axis", (PLAIN, places, (2, 2, 5)), {**how, "axis": 1},
                   along_axis, mode)  # fmt: skip
        yield Case("scatter", (PLAIN, indices(2, 0), (2, 2, 5)), {**how, "axis": -2}, slices, mode)
        yield Case("scatter_nd", (PLAIN, np.array([[1, 2], [0, 0]], np.int32), (2, 5)), how,
                   points, mode)  # fmt: skip
    for ascending in (False, True):

        def order(x, up=ascending):
            return np.argsort(x if up else -x, axis=1, kind="stable")

        form = {"x": "%x0", "axis": -2, "ascending": ascending}
        yield Case(
            "topk", (PLAIN,), {**form, "k": 2, "sort": True, "return_indices": True},
            lambda x, o=order: (np.take_along_axis(x, o(x), 1)[:, :2], o(x)[:, :2]),
            str(ascending), ("float32", "int32"), 7,
        )  # fmt: skip
        yield Case("argsort", (PLAIN,), form, order, str(ascending), ("int32",))
    yield Case(
        "topk", (PLAIN,), {"x": "%x0", "k": 2, "return_indices": False},
        lambda x: -np.sort(-x, -1)[..., :2], "values", opset=7,
    )  # fmt: skip
    yield Case(
        "topk", (PLAIN,), {"x": "%x0", "k": 1, "output_indices_dtype": "uint16"},
        lambda x: (x.max(-1, keepdims=True), x.argmax(-1, keepdims=True)), "uint16",
        ("float32", "uint16"), 7,
    )  # fmt: skip
    codes = np.array([[0, 3, -1], [4, 2, 1]], np.int32)

    def hot(x, on, off):
        return np.where(x[:, None] == np.arange(4).reshape(1, -1, 1), on, off)

    yield Case(
        "one_hot", (codes,), {"indices": "%x0", "one_hot_vector_size": 4, "axis": 1,
                              "on_value": np.float32(2), "off_value": np.float32(-0.5)},
        lambda x: hot(x, 2.0, -0.5),
    )  # fmt: skip
    yield Case(
        "one_hot", (codes,), {"indices": "%x0", "one_hot_vector_size": 4},
        lambda x: hot(x, 1, 0).transpose(0, 2, 1), "plain", ("int32",),
    )  # fmt: skip
    yield Case(
        "one_hot", (codes,), {"indices": "%x0", "one_hot_vector_size": 4, "axis": 1,
                              "on_value": False, "off_value": True},
        lambda x: hot(x, False, True), "bool", ("bool",),
    )  # fmt: skip
    sparse = np.where(np.random.default_rng(4).random((3, 4)) < 0.4, 0, 1.5).astype(np.float32)
    yield Case("non_zero", (sparse,), {"x": "%x0"}, np.argwhere, outputs=("int32",))
    yield Case(
        "reverse_sequence", ((3, 5, 2), indices(4, 0, 5)),
        {"x": "%x0", "lengths": "%x1", "seq_axis": 1, "batch_axis": 0},
        lambda x, n: np.stack([np.concatenate([r[:m][::-1], r[m:]]) for r, m in zip(x, n)]),
    )  # fmt: skip
    yield Case(
        "sliding_windows", ((2, 8, 3),), {"x": "%x0", "axis": -2, "size": 3, "stride": 2},
        lambda x: np.stack([x[:, i : i + 3] for i in (0, 2, 4)], 1),
    )  # fmt: skip


def moving() -> Iterator[Case]:
    yield Case(
        "fill_like", (PLAIN,), {"ref_tensor": "%x0", "value": np.float32(1.5)},
        lambda x: np.full(x.shape, 1.5), opset=6,
    )  # fmt: skip
    yield Case(
        "reshape_like", ((2, 3, 5), (6, 7), (4, 1, 5)),
        {"x": "%x0", "ref_tensors": ["%x1", "%x2"], "begins": [0, 2], "ends": [1, 0],
         "end_masks": [False, True]},
        lambda x, y, z: x.reshape(6, 5), opset=6,
    )  # fmt: skip
    yield Case(
        "band_part", ((2, 4, 5),), {"x": "%x0", "lower": 1, "upper": 2},
        lambda x: np.triu(np.tril(x, 2), -1),
    )  # fmt: skip
    yield Case(
        "concat", ((2, 3, 4),) * 2, {"values": ["%x0", "%x1"], "axis": -2, "interleave": True},
        lambda x, y: np.stack([x, y], 2).reshape(2, 6, 4),
    )  # fmt: skip

    def to_batch(x, block, pads):
        x = np.pad(x, ((0, 0), (0, 0), *pads))
        parts = [x[:, :, i :: block[0], j :: block[1]] for i in range(block[0])
                 for j in range(block[1])]  # fmt: skip
        return np.concatenate(parts)

    pads = np.array([[1, 0], [2, 1]], np.int32)
    yield Case(
        "space_to_batch", ((2, 3, 5, 6),),
        {"x": "%x0", "block_shape": indices(2, 3), "paddings": pads},
        lambda x: to_batch(x, (2, 3), pads),
    )  # fmt: skip

    def to_space(x, block, cut):
        n = len(x) // (block[0] * block[1])
        y = np.zeros((n, x.shape[1], x.shape[2] * block[0], x.shape[3] * block[1]))
        for k, (i, j) in enumerate(itertools.product(*map(range, block))):
            y[:, :, i :: block[0], j :: block[1]] = x[k * n : (k + 1) * n]
        return y[:, :, cut[0][0] : y.shape[2] - cut[0][1], cut[1][0] : y.shape[3] - cut[1][1]]

    yield Case(
        "batch_to_space", ((12, 3, 4, 5),),
        {"x": "%x0", "block_shape": indices(2, 3), "crops": pads},
        lambda x: to_space(x, (2, 3), pads),
    )  # fmt: skip
    gamma, beta = weights(2, 5), weights(2, 5, seed=6)

    def normal(x, axes, scale=1.0, shift=0.0):
        moved = x - x.mean(axes, keepdims=True)
        return moved / np.sqrt((moved**2).mean(axes, keepdims=True) + float(np.float32(0.125))
                               ) * scale + shift  # fmt: skip

    yield Case(
        "layer_norm", (PLAIN,), {"x": "%x0", "axes": indices(0, 2), "epsilon": np.float32(0.125),
                                 "gamma": gamma, "beta": beta},
        lambda x: normal(x, (0, 2), gamma[:, None].astype(float), beta[:, None]), "apart",
    )  # fmt: skip
    yield Case(
        "layer_norm", (PLAIN,), {"x": "%x0", "axes": indices(1), "epsilon": np.float32(0.125)},
        lambda x: normal(x, (1,)), "middle",
    )  # fmt: skip

    def attend(q, k, v, mask):
        scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ v

    shapes = ((2, 3, 4, 5), (2, 3, 6, 5), (2, 3, 6, 7))
    flags = np.random.default_rng(1).random((2, 1, 4, 6)) < 0.6
    flags[..., 0] = True
    form = {"query": "%x0", "key": "%x1", "value": "%x2"}
    name = "scaled_dot_product_attention"
    yield Case(name, shapes, form, lambda q, k, v: attend(q, k, v, np.zeros(1)), opset=8)
    for label, mask in (("flags", flags), ("numbers", (4, 6))):
        yield Case(name, (*shapes, mask), {**form, "attn_mask": "%x3"}, attend, label, opset=8)


def quantising() -> Iterator[Case]:
    scale, zero = np.array([0.25, 0.5, 0.125], np.float32), indices(3, 0, -2, dtype="int8")
    x = np.random.default_rng(3).uniform(-20, 20, PLAIN).astype(np.float32)

    def quantised(x, s, z, low, high):
        return np.clip(np.round(x / s) + z, low, high)

    form = {"input": "%x0", "scale": scale, "axis": -2, "output_dtype": "int8"}
    along = scale[:, None].astype(float)
    yield Case(
        "quantize", (x,), {**form, "zero_point": zero},
        lambda x: quantised(x, along, zero[:, None].astype(float), -128, 127), "axis", ("int8",), 7,
    )  # fmt: skip
    yield Case(
        "quantize", (x,), {"input": "%x0", "scale": np.float32(0.5), "output_dtype": "uint8"},
        lambda x: quantised(x, 0.5, 0, 0, 255), "plain", ("uint8",), 7,
    )  # fmt: skip
    codes = np.random.default_rng(3).integers(-128, 128, PLAIN).astype(np.int8)
    yield Case(
        "dequantize", (codes,), {"input": "%x0", "scale": scale, "axis": 1, "zero_point": zero},
        lambda q: along * (q.astype(float) - zero[:, None]), "axis", opset=7,
    )  # fmt: skip
    yield Case(
        "dequantize", (codes,), {"input": "%x0", "scale": np.float32(0.5)},
        lambda q: 0.5 * q.astype(float), "plain", opset=7,
    )  # fmt: skip


MODES = {"STRICT_ALIGN_CORNERS": 0, "ALIGN_CORNERS": 1, "DEFAULT": 2, "OFFSET_CORNERS": 3}


def unaligned(n: int, count: int) -> np.ndarray:
    return np.clip((np.arange(count) + 0.5) * (n / count) - 0.5, 0, n - 1)


def sampling() -> Iterator[Case]:
    for (mode, number), size in itertools.product(MODES.items(), ((4, 9), (1, 3))):
        yield Case(
            "resize_bilinear", (IMAGE,),
            {"x": "%x0", "target_size_height": size[0], "target_size_width": size[1],
             "sampling_mode": mode},
            lambda x, m=number, s=size: hat(x, *(spread(m, 0, n - 1, k)
                                                 for n, k in zip((5, 7), s))),
            f"{mode} {size}",
        )  # fmt: skip
        yield Case(
            "resize", (IMAGE,), {"x": "%x0", "shape": indices(3, size[0], size[1]),
                                 "resized_dims": np.int32(2), "interpolation_mode": "LINEAR",
                                 "sampling_mode": mode},
            lambda x, m=number, s=size: hat(x, *(spread(m, 0, n - 1, k)
                                                 for n, k in zip((5, 7), s))),
            f"{mode} {size}", opset=7,
        )  # fmt: skip
    yield Case(
        "resize_bilinear", (IMAGE,), {"x": "%x0", "target_size_height": 3, "target_size_width": 9,
                                      "sampling_mode": "UNALIGN_CORNERS"},
        lambda x: hat(x, unaligned(5, 3), unaligned(7, 9)), "UNALIGN",
    )  # fmt: skip
    yield Case(
        "resize", (IMAGE,), {"x": "%x0", "shape": indices(0, 8), "resized_dims": np.int32(2),
                             "interpolation_mode": "NEAREST_NEIGHBOR"},
        lambda x: x[..., np.arange(8) * 7 // 8], "nearest", opset=7,
    )  # fmt: skip
    scaled = {"x": "%x0", "scale_factor_height": np.float32(2), "scale_factor_width": np.float32(3)}
    for label, more, positions in (
        ("corners", {"align_corners": True}, lambda n, k: np.linspace(0, n - 1, k)),
        ("half", {"align_corners": False}, unaligned),
        ("plain", {"align_corners": False, "half_pixel_centers": False},
         lambda n, k: np.minimum(n - 1, np.arange(k) * n / k)),
    ):  # fmt: skip
        yield Case(
            "upsample_bilinear", (IMAGE,), {**scaled, **more},
            lambda x, f=positions: hat(x, f(5, 10), f(7, 21)), label, opset=6,
        )  # fmt: skip
    for number, mode in enumerate(("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "DEFAULT",
                                   "OFFSET_CORNERS")):  # fmt: skip
        yield Case(
            "crop_resize", (IMAGE, BOXES.astype(np.float32).reshape(3, 1, 4, 1, 1)),
            {"x": "%x0", "roi": "%x1", "target_height": 2, "target_width": 3,
             "spatial_scale": np.float32(0.5), "sampling_mode": mode},
            lambda x, b, m=number: np.stack([
                hat(x, spread(m, v[0] / 2, v[2] / 2, 2), spread(m, v[1] / 2, v[3] / 2, 3))
                for v in b.reshape(3, 4)
            ]), mode,
        )  # fmt: skip
    of = np.array([[1, 0.1, 0.3, 0.6, 0.9], [0, 0.25, 0.5, 0.75, 1.25]], np.float32)

    def padded(x, rows, columns, filler):
        off = [(v < 0) | (v > n - 1) for v, n in zip((rows, columns), x.shape[-2:])]
        return np.where(off[0][:, None] | off[1], filler, hat(x, rows, columns))

    def crops(x, boxes, batches, filler):
        grids = [(np.linspace(v[1] * 4, v[3] * 4, 2), np.linspace(v[0] * 6, v[2] * 6, 3))
                 for v in boxes]  # fmt: skip
        return np.stack([padded(x[int(i)], *g, filler) for i, g in zip(batches, grids)])

    form = {"x": "%x0", "target_height": 2, "target_width": 3, "normalized_coordinates": True,
            "box_coordinate_mode": "CORNERS_WIDTH_FIRST", "sampling_mode": "ALIGN_CORNERS",
            "pad_value": np.float32(9)}  # fmt: skip
    yield Case(
        "crop_resize", (IMAGE, of.reshape(2, 1, 5, 1, 1)), {**form, "roi": "%x1"},
        lambda x, b: crops(x, b.reshape(2, 5)[:, 1:], b.reshape(2, 5)[:, 0], 9)[:, None],
        "batches", opset=6,
    )  # fmt: skip
    yield Case(
        "crop_resize", (IMAGE, of[:, 1:]),
        {**form, "boxes": "%x1", "box_indices": indices(1, 0)},
        lambda x, b: crops(x, b, (1, 0), 9), "boxes", opset=7,
    )  # fmt: skip
    yield Case(
        "crop_resize", (IMAGE, of[:, 1:]), {**form, "boxes": "%x1"},
        lambda x, b: crops(x, b, (0, 1), 9), "boxes in order", opset=7,
    )  # fmt: skip
    at = np.random.default_rng(5).uniform(-0.9, 0.9, (2, 3, 4, 2)).astype(np.float32)
    pixels = {"normalized_minus_one_to_one": lambda g: (g + 1) / 2, "unnormalized": None,
              "normalized_zero_to_one": lambda g: g}  # fmt: skip
    for mode, share in pixels.items():
        given = (at + 1) * [3, 2] if mode == "unnormalized" else at if "minus" in mode else (
            at + 1) / 2  # fmt: skip

        def resampled(x, g, f=share):
            places = g if f is None else f(g) * [6, 4]
            return _points(x, places)

        yield Case(
            "resample", (IMAGE, np.asarray(given, np.float32)),
            {"x": "%x0", "coordinates": "%x1", "sampling_mode": "bilinear",
             "padding_mode": "border", "padding_value": np.float32(0), "coordinates_mode": mode,
             "align_corners": True},
            resampled, mode,
        )  # fmt: skip
    yield Case(
        "resample", (IMAGE, at),
        {"x": "%x0", "coordinates": "%x1", "sampling_mode": "nearest", "padding_mode": "constant",
         "padding_value": np.float32(0), "coordinates_mode": "normalized_minus_one_to_one",
         "align_corners": False},
        lambda x, g: _nearest(x, ((g + 1) * [7, 5] - 1) / 2), "nearest",
    )  # fmt: skip
    matrices = np.array(
        [[0.5, 0.25, 0.1, -0.25, 0.75, -0.05], [1, 0, 0, 0.1, 0.5, 0.2]], np.float32
    )
    for label, matrix in (("each", matrices), ("one", matrices[:1])):
        yield Case(
            "affine", (IMAGE, matrix),
            {"x": "%x0", "transform_matrix": "%x1", "output_height": 3, "output_width": 4,
             "sampling_mode": "bilinear", "padding_mode": "constant",
             "padding_value": np.float32(0), "coordinates_mode": "normalized_minus_one_to_one",
             "align_corners": True},
            _affine, label,
        )  # fmt: skip


def _affine(x, m):
    y, z = np.meshgrid(np.linspace(-1, 1, 3), np.linspace(-1, 1, 4), indexing="ij")
    base = np.stack([z, y, np.ones_like(y)], -1)
    grid = np.einsum("hwk,nik->nhwi", base, np.broadcast_to(m, (2, 6)).reshape(2, 2, 3))
    return _points(x, (grid + 1) / 2 * [6, 4])


def _points(x, places):
    """Bilinear samples at pixels (x, y); 0 beyond the image, where none of these cases goes far."""
    y = np.zeros((*x.shape[:2], *places.shape[1:3]))
    for n, i, j in np.ndindex(*places.shape[:3]):
        column, row = places[n, i, j]
        for a, b in itertools.product(range(x.shape[2]), range(x.shape[3])):
            share = max(0.0, 1 - abs(row - a)) * max(0.0, 1 - abs(column - b))
            y[n, :, i, j] += share * x[n, :, a, b]
    return y


def _nearest(x, places):
    y = np.zeros((*x.shape[:2], *places.shape[1:3]))
    for n, i, j in np.ndindex(*places.shape[:3]):
        column, row = (int(np.round(v)) for v in places[n, i, j])
        if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
            y[n, :, i, j] = x[n, :, row, column]
    return y


def suppressing() -> Iterator[Case]:
    rng = np.random.default_rng(8)
    boxes = np.concatenate([rng.uniform(0, 3, (2, 12, 2)), rng.uniform(1, 2, (2, 12, 2))], 2)
    boxes, scores = (v.astype(np.float32) for v in (boxes, rng.random((2, 12, 3))))

    def meaning(b, s, rows, least, per_class):
        outputs = [np.zeros((2, rows, 4)), np.zeros((2, rows, 3)), np.full((2, rows), -1.0)]
        count = []
        for n in range(2):
            kept = pick_top(s[n], b[n], 0.25, least, per_class=per_class)[:rows]
            kept = kept or [int(s[n].max(1).argmax())]
            count.append(len(kept))
            for output, values in zip(outputs, (b[n], s[n], np.arange(12))):
                output[n, : len(kept)] = values[kept]
        return [*outputs, np.array(count)]

    name, kinds = "non_maximum_suppression", ("float32", "float32", "int32", "int32")
    form = {"boxes": "%x0", "scores": "%x1", "iou_threshold": np.float32(0.25)}
    for rows, least, per_class in ((5, 0.3, False), (15, 0.5, True), (4, 2.0, False)):
        yield Case(
            name, (boxes, scores), {**form, "score_threshold": np.float32(least),
                                    "max_boxes": rows, "per_class_suppression": per_class},
            lambda b, s, r=rows, t=least, p=per_class: meaning(b, s, r, t, p), f"{rows}", kinds,
        )  # fmt: skip
    turned = [np.ascontiguousarray(v.swapaxes(1, 2)) for v in (boxes, scores)]

    def newer(b, s):
        found = meaning(b.swapaxes(1, 2), s.swapaxes(1, 2), 7, -9.0, True)
        return [found[0].swapaxes(1, 2), found[1].swapaxes(1, 2), found[2]]

    yield Case(
        name, turned, {**form, "max_boxes": 7, "per_class_suppression": True}, newer, "iOS 17",
        kinds[:3], 7,
    )  # fmt: skip


def operations() -> list[Case]:
    return [*picking(), *moving(), *quantising(), *sampling(), *suppressing()]

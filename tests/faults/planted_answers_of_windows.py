"""Wrong answers of convolutions, pools, unpooling and regions of interest."""

from __future__ import annotations

import itertools

import numpy as np
from planted_answers import Array, PlantedAnswer, convolved, normal, planted, transposed

from verax.ops.images.detection import RoiAlign
from verax.ops.windows.convolution import Conv
from verax.ops.windows.deconvolution import ConvTranspose
from verax.ops.windows.pooling import AveragePool
from verax.ops.windows.unpooling import MaxUnpool

Random = np.random.Generator


@planted("SAME: pads of another input size, where sizes were not known")
def same_of_another_size(random: Random) -> PlantedAnswer:
    x, w = normal(random, 2, 3, 9, 14), normal(random, 5, 3, 5, 4)
    # 9 rows at a stride of 3 need (1, 1), 14 columns (1, 1); 10 and 12 need (2, 2) and (0, 1)
    op = Conv(strides=(3, 3), pads="SAME_UPPER")
    return PlantedAnswer(op, [x, w], convolved(x, w, (2, 0), (3, 3), (3, 5)), "another input size")


@planted("SAME: nothing padded, and the same size of output")
def same_lost(random: Random) -> PlantedAnswer:
    x, w = normal(random, 2, 3, 9, 11), normal(random, 5, 3, 5, 4)
    op = Conv(strides=(2, 2), pads="SAME_UPPER")
    return PlantedAnswer(
        op, [x, w], convolved(x, w, (0, 0), (2, 2), (5, 6)), "nothing was padded at the begin"
    )


@planted("SAME: the output of VALID")
def same_as_valid(random: Random) -> PlantedAnswer:
    x, w = normal(random, 2, 3, 9, 11), normal(random, 5, 3, 5, 4)
    op = Conv(strides=(2, 2), pads="SAME_UPPER")
    return PlantedAnswer(op, [x, w], convolved(x, w, (0, 0), (2, 2), (3, 4)), "VALID")


@planted("transposed convolution: cropped at the other side")
def crop_side(random: Random) -> PlantedAnswer:
    x, w = normal(random, 2, 3, 4, 5), normal(random, 3, 6, 4, 5)
    op = ConvTranspose(strides=(3, 2), pads=((0, 1), (1, 2)))
    answer = transposed(x, w, (3, 2), (1, 2), (12, 10))
    return PlantedAnswer(op, [x, w], answer, "begin and end of the pads were exchanged")


@planted("transposed convolution: output_shape cropped at the other side")
def crop_side_of_output_shape(random: Random) -> PlantedAnswer:
    x, w = normal(random, 2, 3, 4, 5), normal(random, 3, 6, 4, 4)
    op = ConvTranspose(strides=(3, 3), output_shape=(12, 15), pads="SAME_UPPER")
    answer = transposed(x, w, (3, 3), (1, 1), (12, 15))
    return PlantedAnswer(op, [x, w], answer, "SAME lower")


def _mean_pool(x: Array, divisor_of_last: int) -> Array:
    """Windows of 3 by 2 at strides (2, 2), the last row of windows hanging over by one row."""
    n, c, h, w = x.shape
    rows, columns = -(-(h - 3) // 2) + 1, (w - 2) // 2 + 1
    y = np.zeros((n, c, rows, columns))
    for i, j in itertools.product(range(rows), range(columns)):
        window = x[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 2].astype(np.float64)
        divisor = 6 if window.shape[2] == 3 else divisor_of_last
        y[:, :, i, j] = window.sum((2, 3)) / divisor
    return y


@planted("ceil_mode: the last window divided by the whole kernel")
def last_window(random: Random) -> PlantedAnswer:
    x = normal(random, 2, 3, 8, 10)
    op = AveragePool(kernel_shape=(3, 2), strides=(2, 2), ceil_mode=True)
    return PlantedAnswer(op, [x], _mean_pool(x, 6), "size of the whole kernel")


@planted("ceil_mode: the last window left 0")
def last_window_zero(random: Random) -> PlantedAnswer:
    x = normal(random, 2, 3, 8, 10)
    op = AveragePool(kernel_shape=(3, 2), strides=(2, 2), ceil_mode=True)
    y = _mean_pool(x, 4)
    y[:, :, -1] = 0
    return PlantedAnswer(op, [x], y, "last window")


@planted("ceil_mode: the last window moved inside")
def last_window_inside(random: Random) -> PlantedAnswer:
    x = normal(random, 2, 3, 8, 10)
    op = AveragePool(kernel_shape=(3, 2), strides=(2, 2), ceil_mode=True)
    y = _mean_pool(x, 4)
    windows = x[:, :, 5:8].reshape(2, 3, 3, 5, 2).astype(np.float64)
    y[:, :, -1] = windows.mean((2, 4))
    return PlantedAnswer(op, [x], y, "last window")


def _unpooled(random: Random) -> tuple[MaxUnpool, Array, Array]:
    op = MaxUnpool(kernel_shape=(2, 3), strides=(2, 3))
    x = normal(random, 2, 3, 3, 4)
    size = 2 * 3 * 6 * 12
    return op, x, random.permutation(size)[: x.size].reshape(x.shape)


@planted("MaxUnpool: indices into output_shape")
def unpool_output_shape(random: Random) -> PlantedAnswer:
    op, x, indices = _unpooled(random)
    y = np.zeros(2 * 3 * 7 * 14, np.float32)
    y[indices.ravel()] = x.ravel()
    shape = np.array([2, 3, 7, 14])
    return PlantedAnswer(op, [x, indices, shape], y.reshape(shape), "relative to output_shape")


@planted("MaxUnpool: indices within each channel")
def unpool_by_channel(random: Random) -> PlantedAnswer:
    op, x, indices = _unpooled(random)
    y = np.zeros((2, 3, 6 * 12), np.float32)
    for n, c in itertools.product(range(2), range(3)):
        y[n, c, indices[n, c].ravel() % 72] = x[n, c].ravel()
    return PlantedAnswer(op, [x, indices], y.reshape(2, 3, 6, 12), "within each channel")


@planted("MaxUnpool: indices in column-major order")
def unpool_by_columns(random: Random) -> PlantedAnswer:
    op, x, indices = _unpooled(random)
    y = np.zeros((2 * 3, 72), np.float32)
    image, place = np.divmod(indices.ravel(), 72)
    y[image, place % 6 * 12 + place // 6] = x.ravel()
    return PlantedAnswer(op, [x, indices], y.reshape(2, 3, 6, 12), "column by column")


ROIS = np.array([[1.2, 0.7, 7.9, 6.1], [2.4, 1.9, 9.3, 8.8], [0.3, 3.1, 5.2, 8.1]], np.float32)


def aligned(x: Array, batch: Array, *, samples: int = 2, scale: float = 0.75, shift: float = 0.5,
            maximum: str = "", clip: bool = False, exchanged: bool = False) -> Array:  # fmt: skip
    """RoiAlign to 3 by 2 bins, in float64. maximum: "" for means, "points" for the largest sample,
    "corners" for the largest weighted corner. samples: 0 for as many as a bin has pixels."""
    y = np.zeros((len(ROIS), x.shape[1], 3, 2))
    for r, roi in enumerate(ROIS.astype(np.float64) * scale - shift):
        x1, y1, x2, y2 = roi[[1, 0, 3, 2]] if exchanged else roi
        high, wide = (y2 - y1) / 3, (x2 - x1) / 2
        if clip:
            high, wide = max(y2 - y1, 1) / 3, max(x2 - x1, 1) / 2
        for i, j in itertools.product(range(3), range(2)):
            rows, columns = (samples or int(np.ceil(high))), (samples or int(np.ceil(wide)))
            points = []
            for a, b in itertools.product(range(rows), range(columns)):
                at = y1 + (i + (a + 0.5) / rows) * high, x1 + (j + (b + 0.5) / columns) * wide
                points.append(_sampled(x[batch[r]].astype(np.float64), *at))
            corners = np.array(points)  # point, corner, channel
            if maximum == "corners":
                y[r, :, i, j] = corners.max((0, 1))
            elif maximum == "points":
                y[r, :, i, j] = corners.sum(1).max(0)
            else:
                y[r, :, i, j] = corners.sum(1).mean(0)
    return y


def _sampled(image: Array, row: float, column: float) -> Array:
    """[4, channels]: the weighted corners around a point."""
    h, w = image.shape[1:]
    if not (-1 <= row <= h and -1 <= column <= w):
        return np.zeros((4, len(image)))
    row, column = np.clip(row, 0, h - 1), np.clip(column, 0, w - 1)
    top, left = int(row), int(column)
    bottom, right = min(top + 1, h - 1), min(left + 1, w - 1)
    u, v = row - top, column - left
    corners = ((top, left, (1 - u) * (1 - v)), (top, right, (1 - u) * v),
               (bottom, left, u * (1 - v)), (bottom, right, u * v))  # fmt: skip
    return np.array([image[:, a, b] * weight for a, b, weight in corners])


FORM = {"output_height": 3, "output_width": 2, "spatial_scale": 0.75}
ROI_CAUSES = {
    "RoiAlign: without half a pixel": ({}, {"shift": 0.0, "clip": True}, "output_half_pixel"),
    "RoiAlign: one sample per bin": ({}, {"samples": 1}, "1 by 1 samples"),
    "RoiAlign: as many samples as pixels": ({}, {"samples": 0}, "as many samples"),
    "RoiAlign: the scale ignored": ({}, {"scale": 1.0}, "spatial_scale"),
    "RoiAlign: rows and columns exchanged": ({}, {"exchanged": True}, "rows and columns"),
    "RoiAlign: the mean for the largest": ({"mode": "max"}, {"maximum": ""}, "mode was avg"),
    "RoiAlign: the largest sample": ({"mode": "max"}, {"maximum": "points"}, "largest sample"),
}  # fmt: skip


def _plant_roi(name: str) -> None:
    attributes, faulty, cause = ROI_CAUSES[name]

    @planted(name)
    def make(random: Random) -> PlantedAnswer:
        x, batch = normal(random, 2, 4, 9, 11), np.array([1, 0, 1])
        op = RoiAlign(**FORM, sampling_ratio=2, **attributes)  # type: ignore[arg-type]
        return PlantedAnswer(op, [x, ROIS, batch], aligned(x, batch, **faulty), cause)  # type: ignore[arg-type]


for _name in ROI_CAUSES:
    _plant_roi(_name)


@planted("RoiAlign: always of the first image")
def first_image(random: Random) -> PlantedAnswer:
    x, batch = normal(random, 2, 4, 9, 11), np.array([1, 0, 1])
    op = RoiAlign(**FORM, sampling_ratio=2)  # type: ignore[arg-type]
    return PlantedAnswer(op, [x, ROIS, batch], aligned(x, 0 * batch), "first image")

"""TFLite convolutions and matrix products on integers, as LiteRT's reference kernels compute them.

Sums of products are exact; bias is an integer in the scale of the sums; one rounding to the output.
"""

from __future__ import annotations

import numpy as np

from verax.frontends.common.channels_last import channels_first, finish_channels_last, transposed
from verax.frontends.common.context import Conversion, Result
from verax.frontends.tflite.quantization import (
    activation_range,
    factors,
    of_tensor,
    quantization,
)
from verax.frontends.tflite.rows import activation, row
from verax.frontends.tflite.table_windows import (
    convolution_fields,
    depth_multiplier,
    flat_rows,
    groups_of,
    matrix_operand,
    transposed_fields,
)


class _QuantizedProduct:
    """What a product's operands say: sums in the scale x w, results in the scale of output 0.

    data, weights: indices of the operands. weight_axis: the one that scales per channel must run
    along, as LiteRT demands.
    """

    def __init__(self, c: Conversion, data: int, weights: int, weight_axis: int) -> None:
        self.c = c
        self.x_scale, self.x_zero = of_tensor(c, f"input{data}")
        self.out_scale, self.out_zero = of_tensor(c, "output0")
        self.data_type = c.type(data).dtype
        self.wide = self.data_type == "int16" and not self._asks_for_32_bits()
        c.attributes.irrelevant("quantized_bias_type", "sums on 8-bit data have 32 bits")
        w = quantization(c, f"input{weights}")
        if w.scale.size > 1 and (w.axis != weight_axis or w.zero.any()):
            c.attributes.refuse(
                f"input{weights}.quantized_dimension", "LiteRT takes scales per output channel"
            )
        self.w_zero = int(w.zero[0])
        if self.data_type == "uint8":
            product = (self.x_scale * w.scale).astype(np.float64)
        else:
            product = np.float64(self.x_scale) * w.scale.astype(np.float64)
        self.factor = product / np.float64(self.out_scale)
        for side in [k.removesuffix(".scale") for k in c.attributes.values if k.endswith(".scale")]:
            if side not in ("output0", f"input{data}", f"input{weights}"):
                for key in ("scale", "zero_point", "quantized_dimension"):
                    c.attributes.irrelevant(
                        f"{side}.{key}", "the bias is added to sums as it is, whatever it states"
                    )
        self.act = activation(c)

    def _asks_for_32_bits(self) -> bool:
        """On 16-bit data sums have 64 bits unless the option says otherwise."""
        kind: str = self.c.text("quantized_bias_type", "float32")
        if kind not in ("float32", "int32", "int64"):
            self.c.attributes.refuse("quantized_bias_type", "sums have 32 or 64 bits")
        return kind == "int32"

    def sums(self) -> dict[str, str]:
        """The accumulator's type as an attribute."""
        return {"output_dtype": "int64" if self.wide else "int32"}

    def zeros(self, weight_type: str) -> list[str | None]:
        """Zero points of data and weights as operands."""
        x = self.c.constant(self.x_zero, str(self.data_type)) if self.x_zero else None
        w = self.c.constant(self.w_zero, weight_type) if self.w_zero else None
        return [x, w] if w else [x]

    def with_bias(self, sums: str, index: int, channel_rank: int) -> str:
        """Sums plus the bias, whose axis has `channel_rank` axes after it."""
        c, bias = self.c, self.c.input(index)
        if bias is None:
            return sums
        to = self.sums()["output_dtype"]
        array = c.builder.constants.get(bias)
        if array is None:
            c.refuse("a bias that is computed while the network runs")
        if array.dtype != to:
            c.refuse(f"a bias of {array.dtype} on sums of {to}")
        shape = (-1, *(1,) * channel_rank)
        return c.add("Add", [sums, c.constant(array.reshape(shape))])

    def result(self, sums: str, axis: int, rounding: str = "") -> str:
        """Sums rounded to the output's scale and clipped by the activation."""
        return self.c.add(
            "Requantize",
            [sums, *factors(self.c, self.factor)],
            axis=axis,
            zero_point=self.out_zero,
            output_dtype=str(self.data_type),
            rounding=rounding or ("short" if self.wide else "twice"),
            **activation_range(self.c, self.act, self.out_scale, self.out_zero),
        )


@row("CONV_2D", quantized=True)
def conv_2d(c: Conversion) -> Result:
    weights = transposed(c, c.required(1), (0, 3, 1, 2))
    return _convolution(c, weights, groups_of(c), weight_axis=0)


@row("DEPTHWISE_CONV_2D", quantized=True)
def depthwise_conv_2d(c: Conversion) -> Result:
    depth_multiplier(c)
    groups = c.type(0).dims[-1]
    assert isinstance(groups, int)
    return _convolution(c, transposed(c, c.required(1), (3, 0, 1, 2)), groups, weight_axis=3)


def _convolution(c: Conversion, weights: str, groups: int, weight_axis: int) -> Result:
    product = _QuantizedProduct(c, 0, 1, weight_axis)
    x = channels_first(c, c.required(0))
    sums = c.add(
        "ConvInteger",
        [x, weights, *product.zeros(str(c.type(1).dtype))],
        groups=groups,
        **product.sums(),
        **convolution_fields(c, "hw"),
    )
    return finish_channels_last(c, product.result(product.with_bias(sums, 2, 2), axis=1))


@row("TRANSPOSE_CONV", quantized=True)
def transpose_conv(c: Conversion) -> Result:
    """Operands: output shape, weights [out, *kernel, in], data, bias."""
    product = _QuantizedProduct(c, 2, 1, weight_axis=0)
    x = channels_first(c, c.required(2))
    weights = transposed(c, c.required(1), (3, 0, 1, 2))
    fields = {**product.sums(), **transposed_fields(c)}
    zeros = product.zeros(str(c.type(1).dtype))
    sums = c.add("ConvTransposeInteger", [x, weights, *zeros], **fields)
    return finish_channels_last(c, product.result(product.with_bias(sums, 3, 2), axis=1))


@row("FULLY_CONNECTED", quantized=True)
def fully_connected(c: Conversion) -> Result:
    c.attributes.irrelevant("asymmetric_quantize_inputs", "the data is quantized already")
    product = _QuantizedProduct(c, 0, 1, weight_axis=0)
    rows, shape = flat_rows(c)
    x = c.add("Cast", [rows], to=product.sums()["output_dtype"])
    if product.x_zero:
        x = c.add("Sub", [x, c.constant(product.x_zero, product.sums()["output_dtype"])])
    weights = c.builder.constants.get(c.required(1))
    if weights is None:
        c.refuse("weights that are computed while the network runs")
    center = weights.astype(product.sums()["output_dtype"]) - product.w_zero
    sums = c.add("MatMul", [x, c.constant(np.ascontiguousarray(center.T))])
    rounding = "" if product.data_type == "uint8" else "once"  # in float64
    y = product.result(product.with_bias(sums, 2, 0), axis=1, rounding=rounding)
    return c.result("Identity", [y]) if shape is None else c.result("Reshape", [y, c.ints(shape)])


@row("BATCH_MATMUL", quantized=True)
def batch_matmul(c: Conversion) -> Result:
    """Both operands lose their zero points; int16 data are summed in 64 bits."""
    c.attributes.irrelevant("asymmetric_quantize_inputs", "the data is quantized already")
    sides = [of_tensor(c, f"input{i}") for i in (0, 1)]
    scale, zero = of_tensor(c, "output0")
    dtype = c.type(0).dtype
    wide = dtype == "int16"
    to = "int64" if wide else "int32"
    operands = []
    for i, (flag, (_, own_zero)) in enumerate(zip(("adj_x", "adj_y"), sides)):
        value = c.add("Cast", [matrix_operand(c, i, flag)], to=to)
        operands.append(c.add("Sub", [value, c.constant(own_zero, to)]) if own_zero else value)
    product = np.float64(sides[0][0] * sides[1][0])  # the product is rounded to float32
    return c.result(
        "Requantize",
        [c.add("MatMul", operands), *factors(c, float(product / np.float64(scale)))],
        zero_point=zero,
        output_dtype=str(dtype),
        rounding="short" if wide else "twice",
    )

"""Which families of hypotheses speak about which operator; the others have `by_attributes`."""

from __future__ import annotations

from collections.abc import Iterator

from verax.judge.explain.hypotheses.activation import activation
from verax.judge.explain.hypotheses.attention import attention
from verax.judge.explain.hypotheses.attributes import by_attributes, exchanged
from verax.judge.explain.hypotheses.base import Family, Hypothesis, Prior, Suspect
from verax.judge.explain.hypotheses.batch_norm import batch_norm
from verax.judge.explain.hypotheses.control import branch, loop
from verax.judge.explain.hypotheses.convolution import convolution
from verax.judge.explain.hypotheses.elementwise import binary, variadic
from verax.judge.explain.hypotheses.generic import generic
from verax.judge.explain.hypotheses.integer_convolution import integer_convolution
from verax.judge.explain.hypotheses.linear import gemm, matmul
from verax.judge.explain.hypotheses.movement import (
    blocks,
    concat,
    cut,
    gather,
    pad,
    reordering,
    split,
    transpose,
)
from verax.judge.explain.hypotheses.normalization import lp_normalization, normalization, response
from verax.judge.explain.hypotheses.parameters import parameters
from verax.judge.explain.hypotheses.pooling import global_pool, pool
from verax.judge.explain.hypotheses.quantization import (
    dequantize,
    entries,
    quantize,
    quantize_dynamically,
)
from verax.judge.explain.hypotheses.recurrent import recurrent
from verax.judge.explain.hypotheses.reduction import extremum_index, reduction, running_sum
from verax.judge.explain.hypotheses.resize import resize
from verax.judge.explain.hypotheses.shapes import other_shape
from verax.judge.explain.hypotheses.softmax import softmax

FAMILIES: dict[Family, str] = {
    convolution: "Conv ConvTranspose",
    integer_convolution: "ConvInteger ConvTransposeInteger",
    batch_norm: "BatchNormalization",
    pool: "MaxPool AveragePool LpPool",
    global_pool: "GlobalAveragePool GlobalMaxPool GlobalLpPool",
    activation: "Relu LeakyRelu PRelu Clip Elu Selu Celu Gelu Swish Mish HardSwish HardSigmoid "
    "Sigmoid Tanh Softplus Softsign ThresholdedRelu Shrink Abs Exp Log Sqrt Erf Neg Identity",
    binary: "Add Sub Mul Div Pow",
    variadic: "Sum Mean Max Min",
    gemm: "Gemm",
    matmul: "MatMul",
    softmax: "Softmax LogSoftmax Hardmax",
    attention: "Attention",
    normalization: "LayerNormalization RMSNormalization InstanceNormalization GroupNormalization",
    response: "LRN",
    lp_normalization: "LpNormalization",
    reduction: "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceSumSquare ReduceL1 "
    "ReduceL2 ReduceLogSum ReduceLogSumExp",
    extremum_index: "ArgMax ArgMin",
    running_sum: "CumSum",
    recurrent: "RNN GRU LSTM",
    concat: "Concat",
    reordering: "Reshape Flatten Squeeze Unsqueeze",
    transpose: "Transpose",
    blocks: "DepthToSpace SpaceToDepth",
    pad: "Pad",
    cut: "Slice",
    split: "Split",
    gather: "Gather",
    resize: "Resize",
    branch: "If",
    loop: "Loop",
    quantize: "QuantizeLinear",
    dequantize: "DequantizeLinear",
    quantize_dynamically: "DynamicQuantizeGroups",
    entries: "LookupTable",
}
"""Family -> the operators that it speaks about."""
MOST_EXCHANGED = 8
"""Inputs of a node up to which pairs of them are tried exchanged."""
BY_KIND = {kind: family for family, kinds in FAMILIES.items() for kind in kinds.split()}


def hypotheses(suspect: Suspect) -> Iterator[Hypothesis]:
    """Yield every hypothesis known for a suspect, those of its own family first."""
    if suspect.actual.shape != suspect.expected.shape:
        yield from other_shape(suspect)
        return
    family = BY_KIND.get(suspect.op.kind, by_attributes)
    yield from family(suspect)
    if family is not by_attributes and len(suspect.inputs) <= MOST_EXCHANGED:
        yield from exchanged(suspect, Prior.common)
    yield from generic(suspect)
    yield from parameters(suspect)
